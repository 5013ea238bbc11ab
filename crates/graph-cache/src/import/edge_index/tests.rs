use std::collections::HashMap;

use safetensors::tensor::{Dtype, TensorView, serialize};

use super::*;
use crate::builder::Builder;

enum Values {
    I(Vec<i64>),
    F(Vec<f32>),
}
use Values::{F, I};

/// A file of tensors, each with its shape.
fn file(tensors: &[(&str, Vec<usize>, Values)], metadata: &[(&str, &str)]) -> Vec<u8> {
    let bytes: Vec<(Dtype, Vec<u8>)> = tensors
        .iter()
        .map(|(_, _, values)| match values {
            I(values) => (Dtype::I64, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
            F(values) => (Dtype::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
        })
        .collect();
    let views = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, shape, _), (dtype, bytes))| (*name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    let metadata: HashMap<String, String> =
        metadata.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    serialize(views, Some(metadata)).unwrap()
}

fn import(tensors: &[(&str, Vec<usize>, Values)], metadata: &[(&str, &str)]) -> Result<Imported> {
    edge_index_bytes(Path::new("g.safetensors"), &file(tensors, metadata))
}

fn edges(ends: &[i64]) -> (&'static str, Vec<usize>, Values) {
    ("edge_index", vec![2, ends.len() / 2], I(ends.to_vec()))
}

#[test]
fn a_single_graph_with_all_that_belongs_to_it() {
    let imported = import(
        &[
            edges(&[2, 1, 0, 0]),
            ("edge_weight", vec![2], F(vec![0.5, 0.25])),
            ("edge_attr", vec![2, 1], F(vec![7.0, 8.0])),
            ("x", vec![4, 2], F((0..8).map(|value| value as f32).collect())),
            ("y", vec![4], I(vec![1, 0, 2, -1])),
        ],
        &[("node_names", r#"["A","B","C","D"]"#), ("keys", r#"["2021-04-21"]"#), ("known_time", "[5]")],
    )
    .unwrap();
    let schema = imported.schema();
    assert_eq!((imported.keys().join(" "), schema.names.join("")), ("2021-04-21".into(), "ABCD".into()));
    assert_eq!(
        (schema.node_features.join(" "), schema.edge_attributes.join(" ")),
        ("x_0 x_1".into(), "edge_attr_0".into())
    );
    let graph = imported.build(0).unwrap();
    assert_eq!((graph.row_ptr, graph.col), (vec![0, 2, 2, 2, 2], vec![1, 2]));
    assert_eq!((graph.weights, graph.edge_attributes, graph.known_time), (vec![0.25, 0.5], vec![8.0, 7.0], Some(5)));
    let Targets::Nodes(targets) = graph.targets else { panic!("a row a node") };
    assert_eq!(targets[..9], [0., 1., 0., 1., 0., 0., 0., 0., 1.]);
    assert!(targets[9..].iter().all(|target| target.is_nan()));
}

#[test]
fn several_graphs_by_ptr_or_by_batch() {
    let y = || ("y", vec![2, 1], F(vec![1.5, 2.5]));
    let by_ptr = import(&[edges(&[1, 2, 0, 3]), ("ptr", vec![3], I(vec![0, 2, 4])), y()], &[]).unwrap();
    let by_batch = import(&[edges(&[1, 2, 0, 3]), ("batch", vec![4], I(vec![0, 0, 1, 1])), y()], &[]).unwrap();
    assert_eq!(by_ptr.keys(), ["1", "2"]);
    let second = by_ptr.build(1).unwrap();
    assert_eq!((&second.row_ptr, &second.col, &second.targets), (&vec![0, 0, 1], &vec![0], &Targets::Graph(vec![2.5])));
    assert_eq!(second, by_batch.build(1).unwrap());
}

#[test]
fn masks_make_the_parts_of_a_split() {
    let mask = |name, values: [i64; 2]| (name, vec![2], I(values.to_vec()));
    let y = ("y", vec![2], I(vec![1, 0]));
    let imported = import(&[edges(&[0, 1]), y, mask("train_mask", [1, 0]), mask("test_mask", [0, 1])], &[]).unwrap();
    assert_eq!(imported.keys(), ["train", "test"]);
    assert!(matches!(imported.build(1).unwrap().targets, Targets::Nodes(t) if t[0].is_nan() && t[2..] == [1.0, 0.0]));
}

#[test]
fn what_does_not_fit_together_is_told() {
    let ptr = |values: &[i64]| ("ptr", vec![values.len()], I(values.to_vec()));
    for (tensors, metadata, message) in [
        (vec![ptr(&[0])], vec![], "no tensor `edge_index`, but `ptr`"),
        (vec![("edge_index", vec![1, 2], I(vec![0, 0]))], vec![], "`edge_index` is [1, 2]; expected [2, E]"),
        (vec![("edge_index", vec![2, 1], F(vec![0.0, 0.0]))], vec![], "`edge_index` is of F32"),
        (vec![edges(&[0, -1])], vec![], "`edge_index`[1, 0] is -1; expected a node, 0 to below 1"),
        (vec![edges(&[0, 4_000_000_000])], vec![], "it speaks of 4000000001 nodes"),
        (vec![edges(&[0, i64::MAX])], vec![], "nodes, and has"),
        (vec![edges(&[]), ptr(&[0, 1 << 40])], vec![], "it speaks of 1099511627776 nodes"),
        (vec![edges(&[]), ptr(&[0, 2, 1])], vec![], "`ptr` begins elsewhere or decreases"),
        (vec![edges(&[]), ptr(&[])], vec![], "`ptr` begins elsewhere"),
        (vec![edges(&[]), ("batch", vec![2], I(vec![0, 2]))], vec![], "`batch`[1] is 2; expected 0 or the next"),
        (vec![edges(&[0, 1]), ptr(&[0, 1, 2])], vec![], "edge 0 goes from node 0 to node 1, which is of another graph"),
        (vec![edges(&[0, 1]), ("x", vec![3, 0], F(vec![])), ("y", vec![2], F(vec![0.0; 2]))], vec![], "`y` has 2 rows"),
        (
            vec![edges(&[0, 1]), ("edge_attr", vec![2], F(vec![0.0; 2]))],
            vec![],
            "`edge_attr` is [2]; expected a row for each of 1",
        ),
        (vec![edges(&[0, 1]), ("y", vec![2], I(vec![0, 9999]))], vec![], "a class a row, 0 to below 2048"),
        (vec![edges(&[]), ("edge_attr", vec![0, 1 << 40, 1 << 40], F(vec![]))], vec![], "columns and no rows"),
        (vec![edges(&[0, 1])], vec![("node_names", "[]x")], "`node_names` of the metadata"),
        (
            vec![edges(&[0, 1]), ptr(&[0, 2])],
            vec![("node_names", r#"["A"]"#)],
            "`node_names` has 1 names; expected at least 2",
        ),
        (
            vec![edges(&[0, 1]), ("n_id", vec![2], I(vec![0, 7]))],
            vec![("node_names", r#"["A","B"]"#)],
            "`n_id` has no place",
        ),
        (vec![edges(&[]), ptr(&[0, 0, 0])], vec![("keys", r#"["a","a"]"#)], "2 names, no two of them equal"),
        (vec![edges(&[])], vec![("known_time", "[]")], "`known_time` of the metadata has 0 times; expected 1"),
    ] {
        let error = import(&tensors, &metadata).unwrap_err().to_string();
        assert!(error.contains(message), "{error}\ndoes not contain\n{message}");
    }
    let error = edge_index_bytes(Path::new("g"), b"{}").unwrap_err().to_string();
    assert!(error.contains("this is no safetensors file"), "{error}");
}
