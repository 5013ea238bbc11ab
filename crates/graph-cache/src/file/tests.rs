//! Files as a whole: what comes back, and what is refused.

use megabatch_segment::Index;
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::graph::{Graph, Targets};
use crate::schema::TargetLevel;

/// The bytes of a file of `graphs`, whose keys are `day 0`, `day 1`, …
fn bytes_of(schema: &Schema, widths: Widths, graphs: &[Graph]) -> Result<Vec<u8>> {
    let identity = Identity { data: 7, builder: "test/1".into(), parameters: "{}".into() };
    let keys: Vec<String> = (0..graphs.len()).map(|index| format!("day {index}")).collect();
    let collection = Collection::new(CollectionDescription { identity, schema: schema.clone(), widths }, &keys)?;
    let (mut entries, mut blocks) = (Vec::new(), Vec::new());
    for (key, graph) in keys.iter().zip(graphs) {
        let block = encode(&collection.shape, key, graph)?;
        entries.push(collection.entry(&entries, &block));
        blocks.extend(block.bytes);
    }
    let [description, keys] = &collection.preamble;
    let (header, index) = (collection.header(&entries), collection.index(&entries));
    Ok([&header[..], description, keys, &index, &blocks].concat())
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|name| format!("name {name}")).collect()
}

fn schema() -> Schema {
    Schema {
        names: names(9),
        weighted: true,
        edge_attributes: names(2),
        node_features: names(3),
        targets: names(2),
        target_level: TargetLevel::Node,
    }
}

/// A graph that has all that the schema asks for, of edges given by their ends.
fn graph(schema: &Schema, nodes: usize, ends: &[(u32, u32)]) -> Graph {
    let edges: Vec<(u32, u32, f32)> =
        ends.iter().map(|&(from, to)| (from, to, from as f32 - to as f32 / 2.0)).collect();
    let floats = |count: usize| (0..count).map(|k| k as f32 / 4.0).collect();
    let columns = schema.targets.len();
    Graph {
        edge_attributes: floats(edges.len() * schema.edge_attributes.len()),
        node_features: floats(nodes * schema.node_features.len()),
        targets: match schema.target_level {
            TargetLevel::None => Targets::None,
            TargetLevel::Node => Targets::Nodes(floats(nodes * columns)),
            TargetLevel::Graph => Targets::Graph(floats(columns)),
        },
        known_time: (nodes % 2 == 1).then_some(nodes as i64),
        ..Graph::from_edges(schema, (0..nodes as u32).collect(), &edges).unwrap()
    }
}

fn ring(nodes: u32) -> Vec<(u32, u32)> {
    (0..nodes).map(|node| (node, (node + 1) % nodes)).collect()
}

/// A file of rings of 1, 2, … nodes and the graphs in it.
pub(crate) fn written(count: u32) -> (GraphFile, Vec<Graph>) {
    let graphs: Vec<Graph> = (1..=count).map(|nodes| graph(&schema(), nodes as usize, &ring(nodes))).collect();
    let bytes = bytes_of(&schema(), Widths::default(), &graphs).unwrap();
    (GraphFile::from_bytes("rings.mbg", &bytes).unwrap(), graphs)
}

/// The file at `path`, mapped whatever its size where the system maps files.
pub(super) fn mapped(path: &Path) -> GraphFile {
    GraphFile::over(path, FileBytes::open_with_limit(File::open(path).unwrap(), 0).unwrap()).unwrap()
}

/// `megabatch graph inspect PIPE` waited for somebody who writes to the pipe.
#[cfg(unix)]
#[test]
fn a_pipe_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graphs.mbg");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert!(matches!(GraphFile::open(&path), Err(Error::NotAFile { .. })));
}

#[test]
fn a_file_tells_what_was_written() {
    let (file, graphs) = written(5);
    assert_eq!((file.len(), file.schema(), file.identity().builder.as_str()), (5, &schema(), "test/1"));
    file.verify().unwrap();
    for (index, graph) in graphs.iter().enumerate() {
        assert_eq!(&file.graph(index).unwrap().to_graph(), graph);
        assert_eq!(file.find(file.key(index)), Some(index));
        assert_eq!((file.size(index), file.known_time(index)), ((index + 1, index + 1), graph.known_time));
    }
    assert!(matches!(file.graph(5), Err(Error::NoGraph { index: 5, graphs: 5, .. })));
    assert!(matches!(file.wide_graph(0), Err(Error::IndexWidth { found: 32, asked: 64, .. })));
    for (key, message) in [
        ("day 10", r#"there is no graph "day 10"; there are "day 1" and "day 2""#),
        ("a", r#"there is no graph "a"; the first is "day 0""#),
        ("z", r#"there is no graph "z"; the last is "day 4""#),
    ] {
        let error = file.index_of(key).unwrap_err().to_string();
        assert!(error.ends_with(message), "{error}");
    }
    // By bytes the last is "day 9".
    let graphs: Vec<Graph> = (0..12).map(|_| graph(&schema(), 1, &ring(1))).collect();
    let bytes = bytes_of(&schema(), Widths::default(), &graphs).unwrap();
    let file = GraphFile::from_bytes("days.mbg", &bytes).unwrap();
    let error = file.index_of("z").unwrap_err().to_string();
    assert!(error.ends_with(r#"the last is "day 11""#), "{error}");
}

#[test]
fn files_without_graphs_and_graphs_without_nodes_are_files_and_graphs() {
    let empty = GraphFile::from_bytes("x", &bytes_of(&schema(), Widths::default(), &[]).unwrap()).unwrap();
    assert!(empty.is_empty() && empty.verify().is_ok() && empty.find("day 0").is_none());
    let bytes = bytes_of(&Schema::default(), Widths::default(), &[graph(&Schema::default(), 0, &[])]).unwrap();
    let graph = GraphFile::from_bytes("x", &bytes).unwrap().graph(0).unwrap().to_graph();
    assert_eq!((graph.row_ptr, graph.known_time), (vec![0], None));
}

#[test]
fn graphs_that_are_not_as_their_schema_says_are_refused() {
    let right = graph(&schema(), 2, &ring(2));
    let spoiled = |spoil: fn(&mut Graph)| {
        let mut graph = right.clone();
        spoil(&mut graph);
        graph
    };
    let cases: [(Graph, &str); 11] = [
        (spoiled(|graph| graph.weights.push(0.0)), "weights has 3 values, and 2 rows of 1 by the schema"),
        (spoiled(|graph| graph.edge_attributes.truncate(3)), "edge_attributes has 3 values, and 2 rows of 2"),
        (spoiled(|graph| graph.node_features.clear()), "node_features has 0 values, and 2 rows of 3"),
        (spoiled(|graph| graph.targets = Targets::Nodes(vec![0.0; 2])), "targets has 2 values, and 2 rows of 2"),
        (spoiled(|graph| graph.nodes[1] = 9), "node 1 has the name 9, and the schema has 9"),
        (spoiled(|graph| graph.col[0] = 2), "col[0] is 2"),
        (spoiled(|graph| graph.row_ptr.push(2)), "row_ptr has 4 values, and 3 rows of 1"),
        (spoiled(|graph| graph.weights[1] = 1e6), "weights[1] is 1000000, and f16 ends at 65504"),
        (spoiled(|graph| graph.weights[0] = f32::NAN), "weights[0] is NaN: expected a finite number"),
        (spoiled(|graph| graph.node_features[1] = f32::INFINITY), "node_features[1] is inf: expected a finite number"),
        (
            spoiled(|graph| graph.targets = Targets::Nodes(vec![f32::NAN, 0.0, f32::NEG_INFINITY, 0.0])),
            "targets[2] is -inf: expected a finite number",
        ),
    ];
    let widths = Widths { edges: FloatWidth::F16, ..Widths::default() };
    for (graph, message) in cases {
        let error = bytes_of(&schema(), widths, &[graph]).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let alone = graph(&schema(), 1, &[]);
    let other = Graph { targets: Targets::Graph(vec![0.0; 2]), ..alone };
    let error = bytes_of(&schema(), widths, &[other]).unwrap_err().to_string();
    assert!(error.contains("targets are Graph, and the schema says Node"), "{error}");
    let nameless = Graph { nodes: vec![1], row_ptr: vec![0, 0], ..Graph::default() };
    let error = bytes_of(&Schema::default(), widths, &[nameless]).unwrap_err();
    assert!(matches!(error, Error::Unnamed { node: 0, place: 1, names: 0, .. }), "{error}");
}

#[test]
fn every_byte_that_is_flipped_is_noticed() {
    let (file, _) = written(3);
    let mut bytes = file.inner.bytes.to_vec();
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            bytes[at] ^= flip;
            let found = GraphFile::from_bytes("x", &bytes).and_then(|file| file.verify());
            assert!(found.is_err(), "byte {at} ^ {flip:#x}");
            bytes[at] ^= flip;
        }
    }
    assert!(GraphFile::from_bytes("x", &bytes).unwrap().verify().is_ok());
}

#[test]
fn files_of_another_length_are_refused() {
    let (file, _) = written(2);
    let bytes = file.inner.bytes.to_vec();
    for len in (0..bytes.len()).step_by(61) {
        assert!(GraphFile::from_bytes("x", &bytes[..len]).is_err(), "{len}");
    }
    assert!(GraphFile::from_bytes("x", &[&bytes[..], &[0; 64]].concat()).is_err());
}

#[test]
fn a_small_file_stays_as_it_was_opened_whatever_others_do_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rings.mbg");
    let (written, graphs) = written(9);
    std::fs::write(&path, &*written.inner.bytes).unwrap();
    let file = GraphFile::open(&path).unwrap();
    assert_eq!(file.graph(8).unwrap().to_graph(), graphs[8]);
    for content in [vec![], vec![0xff_u8; written.bytes()]] {
        std::fs::write(&path, content).unwrap();
        for (index, graph) in graphs.iter().enumerate() {
            assert_eq!(&file.graph(index).unwrap().to_graph(), graph);
        }
        file.verify().unwrap();
    }
    // It still counts as used, for those who remove files for space.
    let locked = File::open(&path).unwrap().try_lock();
    assert!(matches!(locked, Err(std::fs::TryLockError::WouldBlock)), "{locked:?}");
}

#[cfg(unix)]
#[test]
fn a_mapped_file_that_is_cut_short_is_an_error_at_the_next_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rings.mbg");
    let (written, graphs) = written(9);
    let bytes = written.inner.bytes.to_vec();
    std::fs::write(&path, &bytes).unwrap();
    let file = mapped(&path);
    // A file that was replaced or removed stays what it was.
    std::fs::write(folder.path().join("other"), "another file").unwrap();
    std::fs::rename(folder.path().join("other"), &path).unwrap();
    assert_eq!(file.graph(7).unwrap().to_graph(), graphs[7]);

    std::fs::write(&path, &bytes).unwrap();
    let file = mapped(&path);
    assert_eq!(file.graph(8).unwrap().to_graph(), graphs[8]);
    let shortened = std::fs::File::options().write(true).open(&path).unwrap();
    shortened.set_len(bytes.len() as u64 - 1).unwrap();
    let expected =
        format!("cut the file short while it was open: {} of {} bytes are left", bytes.len() - 1, bytes.len());
    for graph in [0, 8] {
        let error = file.graph(graph).unwrap_err().to_string();
        assert!(error.contains(&expected) && error.contains("rings.mbg"), "{error}");
    }
    assert!(file.verify().unwrap_err().to_string().contains(&expected));
    assert_eq!(file.damaged().len(), 9);
    shortened.set_len(0).unwrap();
    assert!(file.graph(8).unwrap_err().to_string().contains("0 of"));
    // The keys are in the file, too: looking for one ended the process.
    assert!(file.index_of("day 8").unwrap_err().to_string().contains("0 of"));
    // As it was, with all of its bytes.
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(file.graph(8).unwrap().to_graph(), graphs[8]);
}

#[cfg(unix)]
#[test]
fn a_mapped_file_that_is_held_stays_as_it_was_whatever_others_do_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rings.mbg");
    let (written, graphs) = written(9);
    std::fs::write(&path, &*written.inner.bytes).unwrap();
    let mut file = mapped(&path);
    let before = file.graph(8).unwrap().to_graph();
    file.hold().unwrap();
    assert!(matches!(file.inner.bytes, FileBytes::Owned { .. }));
    let in_use = file.graph(8).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    assert_eq!((in_use.to_graph(), before), (graphs[8].clone(), graphs[8].clone()));
    for (index, graph) in graphs.iter().enumerate() {
        assert_eq!(&file.graph(index).unwrap().to_graph(), graph);
    }
    file.hold().unwrap();
    file.verify().unwrap();

    std::fs::write(&path, &*written.inner.bytes).unwrap();
    let mut file = mapped(&path);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(5000).unwrap();
    let error = file.hold().unwrap_err().to_string();
    assert!(error.contains("cut the file short while it was open: 5000 of"), "{error}");
}

/// A file with wrong contents and valid checksums.
struct Hostile {
    bytes: Vec<u8>,
    sections: [Range<usize>; 4],
}

impl Hostile {
    fn new() -> Self {
        let bytes = written(3).0.inner.bytes.to_vec();
        let sections = FileHeader::decode(&bytes[..PAGE]).unwrap().ranges(bytes.len()).unwrap();
        Hostile { bytes, sections }
    }

    fn put(&mut self, at: usize, number: u64) {
        self.bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }

    /// The u32 at `place` of an array of the last graph, a ring of three nodes.
    fn put_index(&mut self, array: impl FnOnce(&BlockLayout) -> Range<usize>, place: usize, index: u32) {
        let layout = BlockLayout::new(&BlockShape::new(&schema(), Widths::default()), 3, 3).unwrap();
        let at = self.bytes.len() - layout.bytes + array(&layout).start + 4 * place;
        self.bytes[at..at + 4].copy_from_slice(&index.to_le_bytes());
    }

    /// Recomputes every checksum.
    fn with_checksums(mut self) -> Vec<u8> {
        let [description, keys, index, _] = self.sections.clone();
        let hash = |range: Range<usize>| xxh3_64(&self.bytes[range]);
        let checksums = HeaderChecksums { description: hash(description), keys: hash(keys) };
        for graph in 0..3 {
            let at = index.start + graph * size_of::<IndexEntry>();
            let entry: IndexEntry = bytemuck::pod_read_unaligned(&self.bytes[at..at + size_of::<IndexEntry>()]);
            let end = entry.offset.saturating_add(entry.bytes).min(self.bytes.len() as u64) as usize;
            let block = &self.bytes[end.min(entry.offset as usize)..end];
            let checksum = entry.checksum_of(checksums, graph, block);
            self.put(at + 16, checksum);
        }
        let sums = [checksums.description, checksums.keys, xxh3_64(&self.bytes[index])];
        for (at, checksum) in [56, 80, 104].into_iter().zip(sums) {
            self.put(at, checksum);
        }
        let header = xxh3_64(&self.bytes[..PAGE - 8]);
        self.put(PAGE - 8, header);
        self.bytes
    }
}

#[test]
fn files_with_right_checksums_and_wrong_contents_are_refused() {
    type Spoil = fn(&mut Hostile);
    let cases: &[(Spoil, &str)] = &[
        (|file| file.put(20, 1), "header: bytes that are 0"),
        (|file| file.put(2000, 1), "header: bytes that are 0"),
        (|file| file.put(24, 1 << 40), "header: it was written with 1099511627776 bytes"),
        (|file| file.put(32, 1 << 62), "header: the sections of 4611686018427387904 graphs"),
        (|file| file.put(32, 200), "header: the sections of 200 graphs"),
        (|file| file.put(32, 2), "keys: there are 3 of them for 2 graphs"),
        (|file| file.put(40, 0), "header: description has 4096 bytes at 0 where 4096 is next"),
        (|file| file.put(48, u64::MAX), "header: description has 18446744073709551615 bytes"),
        (|file| file.put(48, 4095), "header: description has 4095 bytes"),
        (|file| file.put(120, 64), "header: the sections of 3 graphs do not fill"),
        (|file| file.put(128, 5), "blocks: its bytes have the XXH3-64 0000000000000000"),
        (|file| file.bytes[file.sections[0].start] = 3, "description: [3, 4, 4, 1, 1, 0, 0, 0] are not"),
        (|file| file.put(file.sections[0].start + 24, 1), "description: "),
        (|file| file.put(file.sections[0].start + 24, u64::MAX), "description: 18446744073709551615 times 8 bytes"),
        (|file| file.put(file.sections[1].start + 8, 99), "keys: string 0 is from 0 to 99 of 15"),
        (|file| file.bytes[file.sections[1].start + 32] = 0xff, "keys: string 0 is not UTF-8"),
        (|file| file.put(file.sections[1].start + 48, 3), "keys: place 0 of their order is 3 of 3"),
        (|file| file.put(file.sections[1].start + 48, 1), "keys: their order is not that of their bytes"),
        (|file| file.put(file.sections[2].start, 4096), "index: a block has"),
        (|file| file.put(file.sections[2].start + 24, u64::MAX), "index: no memory holds"),
        (|file| file.put(file.sections[2].start + 32, 1 << 40), "index: a block has"),
        (|file| file.put(file.sections[2].start + 48, 9), "index: the time of a block is 9 and"),
        (|file| file.put_index(|block| block.row_ptr.clone(), 0, 1), "\"day 2\": row_ptr[0] is 1"),
        (|file| file.put_index(|block| block.row_ptr.clone(), 1, 9), "\"day 2\": row_ptr[2] is 2, less than the 9"),
        (|file| file.put_index(|block| block.col.clone(), 1, 3), "\"day 2\": col[1] is 3"),
        (|file| file.put_index(|block| block.csc_offsets.clone(), 3, 2), "\"day 2\": by columns, row_ptr ends with 2"),
        (|file| file.put_index(|block| block.csc_rows.clone(), 0, 77), "\"day 2\": by columns, col[0] is 77"),
        (|file| file.put_index(|block| block.csc_edges.clone(), 0, 77), "\"day 2\": by columns, edges[0] is 77"),
        (|file| file.put_index(|block| block.csc_edges.clone(), 0, 0), "\"day 2\": its edges by columns are not"),
        (|file| file.put_index(|block| block.nodes.clone(), 2, 9), "\"day 2\": node 2 has the name 9 of 9"),
        (
            |file| file.put_index(|block| block.weights.clone(), 1, f32::NAN.to_bits()),
            "\"day 2\": weights[1] is NaN: expected a finite number",
        ),
        (
            |file| file.put_index(|block| block.edge_attributes.clone(), 5, f32::NEG_INFINITY.to_bits()),
            "\"day 2\": edge_attributes[5] is -inf: expected",
        ),
        (
            |file| file.put_index(|block| block.node_features.clone(), 8, f32::INFINITY.to_bits()),
            "\"day 2\": node_features[8] is inf: expected",
        ),
        (
            |file| file.put_index(|block| block.targets.clone(), 0, f32::INFINITY.to_bits()),
            "\"day 2\": targets[0] is inf: expected",
        ),
    ];
    assert!(
        GraphFile::from_bytes("x", &Hostile::new().with_checksums()).unwrap().verify().is_ok(),
        "sealing is no harm"
    );
    for (spoil, message) in cases {
        let mut file = Hostile::new();
        spoil(&mut file);
        let found =
            GraphFile::from_bytes("x", &file.with_checksums()).and_then(|file| file.verify()).unwrap_err().to_string();
        assert!(found.contains(message), "expected {message}, found {found}");
    }
}

/// Files of earlier versions may have such floats, and their graphs are built again.
#[test]
fn a_graph_whose_floats_are_not_finite_is_not_kept() {
    let (file, _) = written(3);
    let keys: Vec<String> = (0..3).map(|index| file.key(index).to_owned()).collect();
    let collection = Collection::new(file.description().clone(), &keys).unwrap();
    let mut earlier = Hostile::new();
    earlier.put_index(|block| block.targets.clone(), 0, f32::NAN.to_bits());
    let unknown = earlier.with_checksums();
    assert!(collection.whole_entry(&unknown, 2).is_some(), "an unknown target is NaN");
    assert!(GraphFile::from_bytes("x", &unknown).unwrap().verify().is_ok());
    let mut earlier = Hostile::new();
    earlier.put_index(|block| block.node_features.clone(), 0, f32::NAN.to_bits());
    let bytes = earlier.with_checksums();
    assert!(collection.whole_entry(&bytes, 1).is_some());
    assert!(collection.whole_entry(&bytes, 2).is_none());
    let error = GraphFile::from_bytes("old.mbg", &bytes).unwrap().graph(2).unwrap_err().to_string();
    assert!(error.starts_with("old.mbg: graph \"day 2\": node_features[0] is NaN: expected a finite"), "{error}");
}

/// Such a block of an earlier file, right otherwise, ended the process that built the file anew.
#[test]
fn a_block_that_is_not_aligned_is_not_kept() {
    let (file, _) = written(3);
    let keys: Vec<String> = (0..3).map(|index| file.key(index).to_owned()).collect();
    let collection = Collection::new(file.description().clone(), &keys).unwrap();
    let mut hostile = Hostile::new();
    let place = hostile.sections[2].start + 2 * size_of::<IndexEntry>();
    let offset = file.inner.entries()[2].offset;
    hostile.bytes.insert(offset as usize, 0);
    hostile.put(place, offset + 1);
    let bytes = FileBytes::owned(&hostile.with_checksums());
    assert!(collection.whole_entry(&bytes, 1).is_some());
    assert!(collection.whole_entry(&bytes, 2).is_none());
}

#[test]
fn the_first_float_that_is_not_finite_is_found_in_any_width() {
    let mut values = vec![f32::MAX; 1300];
    assert_eq!(Floats::F32(&values).first_not_finite(), None);
    for position in [1299, 512, 511, 0] {
        values[position] = f32::NEG_INFINITY;
        assert_eq!(Floats::F32(&values).first_not_finite(), Some((position, f32::NEG_INFINITY)));
    }
    let halves = [half::f16::MAX, half::f16::INFINITY];
    assert_eq!(Floats::F16(&halves[..1]).first_not_finite(), None);
    assert_eq!(Floats::F16(&halves).first_not_finite(), Some((1, f32::INFINITY)));
}

#[test]
fn other_files_and_other_versions_are_told_apart() {
    let bytes = written(1).0.inner.bytes.to_vec();
    let error = |bytes: &[u8]| GraphFile::from_bytes("x", bytes).unwrap_err();
    assert!(matches!(error(b""), Error::NotGraphs { .. }));
    assert!(matches!(error(b"Date,Open,High,Low,Close\n"), Error::NotGraphs { .. }));
    let newer = [&bytes[..16], &2u32.to_le_bytes(), &bytes[20..]].concat();
    assert!(matches!(error(&newer), Error::Version { found: 2, known: 1, .. }));
    let cut = error(&bytes[..100]).to_string();
    assert!(cut.contains("header: it ends after 100 of 4096 bytes"), "{cut}");
}

fn widths() -> impl Strategy<Value = Widths> {
    let indices = prop_oneof![Just(IndexWidth::U32), Just(IndexWidth::U64)];
    let float = || prop_oneof![Just(FloatWidth::F32), Just(FloatWidth::F16)];
    (indices, float(), float()).prop_map(|(indices, edges, features)| Widths { indices, edges, features })
}

fn any_schema() -> impl Strategy<Value = Schema> {
    let level = prop_oneof![Just(TargetLevel::None), Just(TargetLevel::Node), Just(TargetLevel::Graph)];
    (any::<bool>(), 0usize..3, 0usize..3, (level, 0usize..3), any::<bool>()).prop_map(
        |(weighted, attributes, features, (target_level, targets), named)| Schema {
            names: names(if named { 12 } else { 0 }),
            weighted,
            edge_attributes: names(attributes),
            node_features: names(features),
            targets: names(targets),
            target_level,
        },
    )
}

/// Asserts that `stored` is `graph`, whose numbers both widths of floats hold.
fn assert_same<I: Index>(stored: &StoredGraph<'_, I>, graph: &Graph) {
    let same =
        |stored: &[I], indices: &[u32]| stored.iter().map(|i| i.wide()).eq(indices.iter().map(|&i| u64::from(i)));
    let (csr, csc, expected) = (stored.csr(), stored.csc(), graph.csr().unwrap().transposed().unwrap());
    assert!(same(csr.row_ptr(), &graph.row_ptr) && same(csr.col(), &graph.col));
    assert!(same(csc.offsets(), &expected.offsets));
    assert!(same(csc.rows(), &expected.indices) && same(csc.edges(), &expected.edges));
    let copy = stored.to_graph();
    assert_eq!(
        (copy.nodes, copy.weights, copy.edge_attributes),
        (graph.nodes.clone(), graph.weights.clone(), graph.edge_attributes.clone())
    );
    assert_eq!(
        (copy.node_features, copy.targets, copy.known_time),
        (graph.node_features.clone(), graph.targets.clone(), graph.known_time)
    );
}

proptest! {
    /// Graphs of any schema come back from files of any widths, with the edges by columns that
    /// segment makes of them.
    #[test]
    fn any_graph_comes_back(
        schema in any_schema(),
        widths in widths(),
        graphs in prop::collection::vec(
            (1usize..12).prop_flat_map(|nodes| {
                (Just(nodes), prop::collection::vec((0..nodes as u32, 0..nodes as u32), 0..40))
            }),
            0..4,
        ),
    ) {
        let graphs: Vec<Graph> = graphs.iter().map(|(nodes, ends)| graph(&schema, *nodes, ends)).collect();
        let file = GraphFile::from_bytes("x", &bytes_of(&schema, widths, &graphs).unwrap()).unwrap();
        file.verify().unwrap();
        for (index, graph) in graphs.iter().enumerate() {
            match widths.indices {
                IndexWidth::U32 => assert_same(&file.graph(index).unwrap(), graph),
                IndexWidth::U64 => assert_same(&file.wide_graph(index).unwrap(), graph),
            }
        }
    }
}
