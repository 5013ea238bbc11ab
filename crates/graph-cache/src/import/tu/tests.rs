use super::*;
use crate::builder::Builder;

fn texts(files: &[(&str, &str)]) -> Vec<Text> {
    files.iter().map(|(name, text)| Text::new(format!("DS_{name}.txt"), text.as_bytes().to_vec()).unwrap()).collect()
}

const EDGES: (&str, &str) = ("A", "1, 2\n2, 1\n5, 4\n4,4\n");
const NODES: (&str, &str) = ("graph_indicator", "1\n1\n1\n2\n2\n");

#[test]
fn every_file_of_the_format_is_read() {
    let imported = tu_texts(&texts(&[
        EDGES,
        NODES,
        ("graph_labels", "1\n-1\n"),
        ("node_labels", "7,0\n3,0\n3,1\n7,0\n7,0\n"),
        ("node_attributes", "0.5\n1\n1.5\n2\n-3e-1\n"),
        ("edge_labels", "1\n1\n0\n1\n"),
        ("edge_attributes", "1, 2\n3, 4\n5, 6\n7, 8\n"),
    ]))
    .unwrap();
    let schema = imported.schema();
    assert_eq!(schema.node_features, ["attribute_1", "label=3", "label=7", "label_2=0", "label_2=1"]);
    assert_eq!(schema.edge_attributes, ["attribute_1", "attribute_2", "label=0", "label=1"]);
    assert_eq!(
        (schema.targets.as_slice(), imported.keys()),
        (["-1", "1"].map(String::from).as_slice(), ["1", "2"].map(String::from).as_slice())
    );
    let first = imported.build(0).unwrap();
    assert_eq!((first.row_ptr, first.col), (vec![0, 1, 2, 2], vec![1, 0]));
    assert_eq!(first.node_features[10..], [1.5, 1.0, 0.0, 0.0, 1.0]);
    assert_eq!(
        (first.edge_attributes, first.targets),
        (vec![3.0, 4.0, 0.0, 1.0, 1.0, 2.0, 0.0, 1.0], Targets::Graph(vec![0.0, 1.0]))
    );
    let second = imported.build(1).unwrap();
    assert_eq!((second.row_ptr, second.col), (vec![0, 2, 2], vec![0, 1]));
    assert_eq!(second.edge_attributes, [7.0, 8.0, 0.0, 1.0, 5.0, 6.0, 1.0, 0.0]);
}

#[test]
fn attributes_of_graphs_are_their_targets_and_graphs_may_be_empty() {
    let imported =
        tu_texts(&texts(&[EDGES, ("graph_indicator", "2\n2\n2\n3\n3"), ("graph_attributes", "1,2\n3,4\n5,6\n7,8\n")]))
            .unwrap();
    let sizes = (0..4).map(|index| imported.build(index).unwrap().len()).collect::<Vec<_>>();
    assert_eq!(sizes, [0, 3, 2, 0]);
    assert_eq!(imported.build(3).unwrap().targets, Targets::Graph(vec![7.0, 8.0]));
}

#[test]
fn what_does_not_fit_together_is_told() {
    for (files, message) in [
        (vec![EDGES], "`DS_graph_indicator.txt`, which says"),
        (vec![NODES], "a file `DS_A.txt`"),
        (
            vec![EDGES, ("graph_indicator", "1\n1\n1\n3\n3")],
            "DS_graph_indicator.txt: line 4, column 1: expected the number of a graph, 1 to 2",
        ),
        (vec![EDGES, ("graph_indicator", "1\n2\n1\n3\n3")], "line 3, column 1: expected the number of a graph, 2 to 3"),
        (vec![EDGES, NODES, ("graph_labels", "1\n")], "DS_graph_indicator.txt: line 4"),
        (
            vec![("A", "1,2\n\n1,6\n"), NODES],
            "DS_A.txt: line 3, column 2: expected the number of a node, 1 to 5, found `6`",
        ),
        (vec![("A", "0,2\n"), NODES], "column 1: expected the number of a node, 1 to 5, found `0`"),
        (vec![("A", "3,4\n"), NODES], "a node of graph 1, as is the first; this is one of graph 2, found `4`"),
        (vec![EDGES, NODES, ("node_labels", "1\n2\n")], "DS_node_labels.txt: there are 2 lines; expected 5"),
        (vec![EDGES, NODES, ("edge_labels", "1\n2\n3\n4.5\n")], "line 4, column 1: expected an integer"),
        (
            vec![EDGES, NODES, ("edge_attributes", "1\n2\nnan\n")],
            "line 3, column 1: expected a finite number, found `nan`",
        ),
        (vec![EDGES, NODES, ("graph_labels", "1,1\n1,2\n")], "2 labels a graph; expected one"),
        (vec![EDGES, NODES, ("node_attributes", "1\n1,2\n")], "line 2, column 2: expected 1 fields"),
    ] {
        let error = tu_texts(&texts(&files)).unwrap_err().to_string();
        assert!(error.contains(message), "{error}\ndoes not contain\n{message}");
    }
    let error = tu(Path::new(".")).unwrap_err().to_string();
    assert!(error.contains("no TU dataset"), "{error}");
}
