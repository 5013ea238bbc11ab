//! Import after export after import gives the same graphs.

use std::path::Path;

use super::*;
use crate::builder::Identity;
use crate::graph::Targets;
use crate::import::{self, EdgeListOptions, MoleculeEdges, Positions, SdfOptions};
use crate::schema::{Schema, TargetLevel};

/// Graphs in memory.
struct InMemoryGraphs {
    schema: Schema,
    keys: Vec<String>,
    graphs: Vec<Graph>,
}

impl Builder for InMemoryGraphs {
    fn identity(&self) -> Identity {
        Identity::default()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn keys(&self) -> &[String] {
        &self.keys
    }

    fn build(&self, index: usize) -> Result<Graph> {
        Ok(self.graphs[index].clone())
    }
}

/// Unknown targets, which are equal to nothing, as a number that no test has.
fn comparable(mut graph: Graph) -> Graph {
    if let Targets::Nodes(targets) | Targets::Graph(targets) = &mut graph.targets {
        targets.iter_mut().filter(|target| target.is_nan()).for_each(|target| *target = -99.0);
    }
    graph
}

fn assert_same(one: &dyn Builder, other: &dyn Builder) {
    assert_eq!(one.schema(), other.schema());
    assert_eq!(one.keys(), other.keys());
    for index in 0..one.keys().len() {
        assert_eq!(comparable(one.build(index).unwrap()), comparable(other.build(index).unwrap()), "graph {index}");
    }
}

fn text(name: &str, bytes: &str) -> Text {
    Text::new(name, bytes.into()).unwrap()
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn tu_datasets_return() {
    let always = [("A", "1, 2\n2, 1\n5, 4\n4, 4\n"), ("graph_indicator", "1\n1\n1\n2\n2\n")];
    for more in [
        vec![],
        vec![
            ("graph_labels", "1\n-1\n"),
            ("node_labels", "7,0\n3,0\n3,1\n7,0\n7,0\n"),
            ("edge_labels", "1\n1\n0\n1\n"),
        ],
        vec![
            ("graph_attributes", "0.1, -2\n1e-7, 3e20\n"),
            ("node_attributes", "0.5\n1\n1.5\n2\n-3e-1\n"),
            ("edge_attributes", "1, 2\n1, 0\n0, 1\n7, 8\n"),
            ("edge_labels", "-1\n1\n0\n1\n"),
        ],
    ] {
        let texts: Vec<Text> =
            always.iter().chain(&more).map(|(name, bytes)| text(&format!("DS_{name}.txt"), bytes)).collect();
        let first = import::tu_texts(&texts).unwrap();
        let exported = tu(&first, "NEW").unwrap();
        assert_eq!(exported.len(), texts.len(), "{:?}", exported.iter().map(Text::path).collect::<Vec<_>>());
        assert_same(&first, &import::tu_texts(&exported).unwrap());
    }
}

#[test]
fn edge_lists_return() {
    for files in [
        vec![("edges", "src,dst\n2,0\n1,0\n")],
        vec![
            ("edges", "src,dst,weight,kind\n2,0,0.5,1\n1,0,0.25,0\n"),
            ("features_sparse", "node,feature\n0,4\n2,0\n"),
            ("labels", "node,label,split\n0,b,train\n1,a,test\n2,a,val\n3,,train\n"),
        ],
        vec![
            ("edges", "src,dst\n\"C, 3\",A\nA,B\n"),
            ("features", "node,x,y\nA,1,2\nB,3,4\n\"C, 3\",5,6e-9\n"),
            ("targets", "node,return,risk\nB,0.5,1\nA,,1\n"),
        ],
    ] {
        let texts: Vec<Text> = files.iter().map(|(name, bytes)| text(&format!("{name}.csv"), bytes)).collect();
        let first = import::edge_list_texts(&texts, EdgeListOptions::default()).unwrap();
        let exported = edge_list(&first).unwrap();
        assert_same(&first, &import::edge_list_texts(&exported, EdgeListOptions::default()).unwrap());
    }
}

const MOLECULE: &str = "\
1
  megabatch

  3  2  0  0  0  0  0  0  0  0999 V2000
    0.0000    0.0000    0.0000 C   0  0  0  0  0  0  0  0  0  0  0  0
   -3.1234    4.0000  123.4567 Cl  0  0  0  0  0  0  0  0  0  0  0  0
    0.0000    4.0000    0.0000 N   0  0  0  0  0  0  0  0  0  0  0  0
  1  2  2  0  0  0  0
  2  3  1  0  0  0  0
M  CHG  2   2  -1   3   2
M  END
> <energy>
-1.25

$$$$
";

#[test]
fn molecules_return() {
    for edges in [MoleculeEdges::Bonds, MoleculeEdges::Radius(5.0)] {
        let options =
            SdfOptions { edges, positions: Positions::Kept, targets: strings(&["energy"]), ..SdfOptions::default() };
        let first = import::sdf_text(&text("m.sdf", MOLECULE), &options).unwrap();
        let exported = sdf(&first).unwrap();
        assert_same(&first, &import::sdf_text(&exported, &options).unwrap());
        if edges == MoleculeEdges::Bonds {
            assert_eq!(str::from_utf8(exported.bytes()).unwrap(), MOLECULE);
        }
    }
}

#[test]
fn everything_returns_from_edge_index() {
    let schema = Schema {
        names: strings(&["A", "B", "C"]),
        weighted: true,
        edge_attributes: strings(&["size"]),
        node_features: strings(&["x", "y"]),
        targets: strings(&["up"]),
        target_level: TargetLevel::Node,
    };
    let graph = |nodes: Vec<u32>, known_time| Graph {
        node_features: (0..2 * nodes.len()).map(|value| value as f32 / 3.0).collect(),
        targets: Targets::Nodes(vec![f32::NAN; nodes.len()]),
        nodes,
        row_ptr: vec![0, 1, 2],
        col: vec![1, 0],
        weights: vec![0.1, -0.2],
        edge_attributes: vec![1.0, 2.0],
        known_time,
    };
    let keys = strings(&["2021-04-20", "2021-04-21"]);
    let in_memory =
        InMemoryGraphs { schema, keys, graphs: vec![graph(vec![0, 2], Some(i64::MIN)), graph(vec![1, 2], None)] };
    let bytes = edge_index(&in_memory, &[0, 1]).unwrap();
    assert_same(&in_memory, &import::edge_index_bytes(Path::new("g"), &bytes).unwrap());
    // The metadata of each call are hashed with another seed.
    assert!((0..8).all(|_| edge_index(&in_memory, &[0, 1]).unwrap() == bytes), "the same graphs give the same bytes");
    // Of a single graph the names are its own.
    let alone = import::edge_index_bytes(Path::new("g"), &edge_index(&in_memory, &[1]).unwrap()).unwrap();
    assert_eq!((alone.schema().names.join(""), alone.keys()), ("BC".into(), ["2021-04-21".to_owned()].as_slice()));
    let expected = Graph { nodes: vec![0, 1], ..graph(vec![1, 2], None) };
    assert_eq!(comparable(alone.build(0).unwrap()), comparable(expected));
}

#[test]
fn graphs_without_anything_return_from_edge_index() {
    let in_memory = InMemoryGraphs {
        schema: Schema { target_level: TargetLevel::Graph, targets: strings(&["y"]), ..Schema::default() },
        keys: strings(&["1", "2"]),
        graphs: [vec![], vec![0, 1]]
            .map(|nodes| Graph {
                row_ptr: vec![0; nodes.len() + 1],
                nodes,
                targets: Targets::Graph(vec![0.5]),
                ..Graph::default()
            })
            .to_vec(),
    };
    for indices in [vec![0, 1], vec![0], vec![1], vec![]] {
        let bytes = edge_index(&in_memory, &indices).unwrap();
        let again = import::edge_index_bytes(Path::new("g"), &bytes).unwrap();
        assert_eq!(again.keys().len(), indices.len());
        for (place, &index) in indices.iter().enumerate() {
            assert_eq!(again.build(place).unwrap(), in_memory.graphs[index]);
        }
    }
}

#[test]
fn what_a_format_has_no_place_for_is_told() {
    let in_memory = |level| InMemoryGraphs {
        schema: Schema { targets: strings(&["y"]), target_level: level, ..Schema::default() },
        keys: strings(&["a", "b"]),
        graphs: vec![
            Graph { row_ptr: vec![0], ..Graph::default() },
            Graph { row_ptr: vec![0, 0], nodes: vec![0], ..Graph::default() },
        ],
    };
    let nodes = in_memory(TargetLevel::Node);
    for (error, message) in [
        (tu(&nodes, "DS").unwrap_err(), "targets of nodes cannot be exported as TU"),
        (edge_list(&nodes).unwrap_err(), "different edges cannot be exported as an edge list"),
        (sdf(&nodes).unwrap_err(), "no positions of nodes cannot be exported as SDF: build them of molecules with"),
    ] {
        assert!(error.to_string().contains(message), "{error}");
    }
    let alone = InMemoryGraphs {
        keys: strings(&["a"]),
        graphs: vec![Graph { row_ptr: vec![0], ..Graph::default() }],
        ..in_memory(TargetLevel::Graph)
    };
    assert!(edge_list(&alone).unwrap_err().to_string().contains("targets of graphs"));
    let unknown = [("edges", "src,dst\n1,0\n"), ("labels", "node,label,split\n0,a,train\n1,,val\n")];
    let texts = unknown.map(|(name, bytes)| text(&format!("{name}.csv"), bytes));
    let imported = import::edge_list_texts(&texts, EdgeListOptions::default()).unwrap();
    assert_eq!(imported.keys(), ["train", "validation"]);
    let lost = "the part `validation`, of whose nodes no target is known cannot be exported as an edge list";
    assert!(edge_list(&imported).unwrap_err().to_string().contains(lost));
}

#[test]
fn texts_are_written_whole() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("new");
    write(&place, &[text("a.txt", "1"), text("b.txt", "2")]).unwrap();
    write(&place, &[text("a.txt", "3")]).unwrap();
    let mut names: Vec<_> = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!((names, fs::read(place.join("a.txt")).unwrap()), (vec!["a.txt".into(), "b.txt".into()], b"3".to_vec()));
    assert!(matches!(write(&place.join("a.txt"), &[]), Err(Error::Io { .. })));
}
