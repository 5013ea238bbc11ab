//! Files of graphs: whatever they say, reading them ends in graphs whose indices can be followed,
//! or in an error. Checksums would keep the fuzzer from ever getting beyond them, so all are made
//! to fit, from what docs/reference/formats.md says of them.

use std::ops::Range;
use std::sync::LazyLock;

use megabatch_graph_cache::{
    BlockDiagonal, BuildOptions, Builder, Graph, GraphFile, Identity, Result, Schema, TargetLevel, Targets,
    build_cached, unwatched,
};
use megabatch_segment::Index;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const PAGE: usize = 4096;
const ENTRY_BYTES: usize = 64;

/// A file of three graphs as it should be.
static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("sound.mbg");
    build_cached(&path, &Stars::new(), &BuildOptions::default(), &mut unwatched).expect("stars can be stored");
    std::fs::read(path).expect("the file was written")
});

/// Positions of its meaningful eight-byte words, without the zeros that fill pages.
static WORDS: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let blocks = number(&SOUND, 112) as usize;
    let means = |&at: &usize| at >= blocks || at < 136 || SOUND[at..at + 8] != [0; 8];
    (0..SOUND.len()).step_by(8).filter(means).collect()
});

/// Reads a file with changes: each is a word's number, u16, and the eight bytes in its place.
pub fn read(changes: &[u8]) {
    let mut file = SOUND.clone();
    for change in changes.chunks_exact(10) {
        let word = usize::from(u16::from_le_bytes([change[0], change[1]])) % WORDS.len();
        let at = WORDS[word];
        file[at..at + 8].copy_from_slice(&change[2..]);
    }
    seal(&mut file);
    match GraphFile::from_bytes("fuzzed", &file).and_then(|file| file.verify().map(|()| file)) {
        Ok(file) => follow(&file),
        Err(error) => assert!(!error.to_string().is_empty(), "an error says what is wrong"),
    }
}

/// Follows every index of a file that was found right.
fn follow(file: &GraphFile) {
    for index in 0..file.len() {
        assert_eq!(file.find(file.key(index)), Some(index));
        if let Ok(graph) = file.graph(index) {
            let (csr, csc, mut seen) = (graph.csr(), graph.csc(), vec![false; graph.csr().edges()]);
            for column in 0..csc.columns() {
                for place in csc.offsets()[column] as usize..csc.offsets()[column + 1] as usize {
                    let edge = csc.edges()[place] as usize;
                    assert_eq!(csr.col()[edge] as usize, column);
                    assert!(csr.edges_of(csc.rows()[place] as usize).contains(&edge));
                    assert!(!std::mem::replace(&mut seen[edge], true), "each edge once");
                }
            }
            assert!(seen.into_iter().all(|seen| seen) && graph.to_graph().len() == graph.len());
        }
    }
    batch::<u32>(file);
    batch::<u64>(file);
}

fn batch<I: Index>(file: &GraphFile) {
    let mut batch = BlockDiagonal::<I>::new(file.clone());
    let graphs: Vec<usize> = (0..file.len()).chain((0..file.len()).rev()).collect();
    if batch.set(&graphs).is_ok() {
        let ends = batch.edge_index();
        assert_eq!(ends.len(), 2 * batch.edges());
        assert!(ends.iter().all(|node| (0..batch.nodes() as i64).contains(node)));
    }
}

/// Puts the checksums where they belong, of all that lies within the file.
fn seal(file: &mut [u8]) {
    for section in 0..2 {
        put_section_sum(file, section);
    }
    let said = [number(file, 56), number(file, 80)];
    let index = range(file, number(file, 88), number(file, 96)).unwrap_or_default();
    for (graph, at) in (0u64..).zip(index.step_by(ENTRY_BYTES)) {
        let Some(entry) = file.get(at..at + ENTRY_BYTES).map(<[u8]>::to_vec) else { continue };
        let Some(block) = range(file, number(&entry, 0), number(&entry, 8)) else { continue };
        let mut hasher = Xxh3::new();
        let graph_facts = [graph, number(&entry, 24), number(&entry, 32), number(&entry, 40), number(&entry, 48)];
        said.iter().chain(&graph_facts).for_each(|number| hasher.update(&number.to_le_bytes()));
        hasher.update(&file[block]);
        put(file, at + 16, hasher.digest());
    }
    put_section_sum(file, 2);
    let sum = xxh3_64(&file[..PAGE - 8]);
    put(file, PAGE - 8, sum);
}

fn put_section_sum(file: &mut [u8], section: usize) {
    let at = 40 + 24 * section;
    if let Some(range) = range(file, number(file, at), number(file, at + 8)) {
        let sum = xxh3_64(&file[range]);
        put(file, at + 16, sum);
    }
}

fn range(file: &[u8], start: u64, bytes: u64) -> Option<Range<usize>> {
    let end = start.checked_add(bytes).filter(|&end| end <= file.len() as u64)?;
    Some(start as usize..end as usize)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn put(file: &mut [u8], at: usize, number: u64) {
    file[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

/// Stars: graphs in which the first node receives from all.
struct Stars(Schema, Vec<String>);

impl Stars {
    fn new() -> Self {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let schema = Schema {
            names: names(&["A", "B", "C", "D"]),
            weighted: true,
            edge_attributes: names(&["distance"]),
            node_features: names(&["volume"]),
            targets: names(&["up"]),
            target_level: TargetLevel::Node,
        };
        Stars(schema, names(&["2021-04-19", "2021-04-20", "2021-04-21"]))
    }
}

impl Builder for Stars {
    fn identity(&self) -> Identity {
        Identity { data: 1, builder: "stars/1".to_owned(), parameters: "{}".to_owned() }
    }

    fn schema(&self) -> &Schema {
        &self.0
    }

    fn keys(&self) -> &[String] {
        &self.1
    }

    fn build(&self, index: usize) -> Result<Graph> {
        let nodes = index as u32 + 2;
        let edges: Vec<_> = (0..nodes).map(|node| (node, 0, 0.5)).collect();
        let values = vec![1.0; nodes as usize];
        let graph = Graph::from_edges(&self.0, (0..nodes).collect(), &edges)?;
        let targets = Targets::Nodes(values.clone());
        Ok(Graph { edge_attributes: values.clone(), node_features: values, targets, known_time: Some(7), ..graph })
    }
}
