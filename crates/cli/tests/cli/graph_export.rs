//! `graph export`: what is written for other programs is what was built, and reads back as such.

use std::fs;
use std::path::Path;

use megabatch_test_support::published_data;
use serde_json::json;

use crate::stage::{Stage, tensor};

/// A TU dataset of two graphs with labels of nodes and graphs, and attributes of edges.
const TU: [(&str, &str); 5] = [
    ("DS_A.txt", "1, 2\n2, 1\n5, 4\n4, 5\n"),
    ("DS_graph_indicator.txt", "1\n1\n1\n2\n2\n"),
    ("DS_graph_labels.txt", "1\n-1\n"),
    ("DS_node_labels.txt", "7\n3\n3\n7\n7\n"),
    ("DS_edge_attributes.txt", "0.5, 2\n1, 0\n0.25, 1\n7, 8\n"),
];

const EDGE_LIST: [(&str, &str); 3] = [
    ("edges.csv", "src,dst,weight\nB,A,0.5\nC,A,0.25\nA,B,1\n"),
    ("features.csv", "node,x,y\nA,1,3\nB,0,2\nC,5,5\n"),
    ("labels.csv", "node,label,split\nA,up,train\nB,down,val\nC,up,test\n"),
];

/// Two molecules with the data item `energy`; water and carbon monoxide, whose charges are told.
const SDF: &str = "\
1
  megabatch

  3  2  0  0  0  0  0  0  0  0999 V2000
    0.0000    0.0000    0.1174 O   0  0  0  0  0  0  0  0  0  0  0  0
    0.0000    0.7572   -0.4696 H   0  0  0  0  0  0  0  0  0  0  0  0
    0.0000   -0.7572   -0.4696 H   0  0  0  0  0  0  0  0  0  0  0  0
  1  2  1  0  0  0  0
  1  3  1  0  0  0  0
M  END
> <energy>
-232.5

$$$$
2
  megabatch

  2  1  0  0  0  0  0  0  0  0999 V2000
    0.0000    0.0000    0.0000 C   0  0  0  0  0  0  0  0  0  0  0  0
    0.0000    0.0000    1.1282 O   0  0  0  0  0  0  0  0  0  0  0  0
  1  2  3  0  0  0  0
M  CHG  2   1  -1   2   1
M  END
> <energy>
-259.25

$$$$
";

fn write_folder(stage: &Stage, folder: &str, files: &[(&str, &str)]) {
    fs::create_dir(stage.path(folder)).unwrap();
    files.iter().for_each(|(name, text)| stage.write(&format!("{folder}/{name}"), text));
}

/// Both files hold the same graphs: all of them, as the format that keeps everything has them, are
/// the same bytes.
fn assert_same_graphs(stage: &Stage, one: &str, other: &str) {
    let everything = |file: &str| {
        stage.succeeds(&format!("graph export {file} --format edge-index --out everything.safetensors"));
        stage.read("everything.safetensors")
    };
    assert!(everything(one) == everything(other), "{one} and {other} differ");
}

#[test]
fn each_format_reads_back_as_the_graphs_that_it_was_written_from() {
    let stage = Stage::new();
    write_folder(&stage, "tu", &TU);
    write_folder(&stage, "list", &EDGE_LIST);
    stage.write("two.sdf", SDF);
    let sdf = "--kind sdf --positions --target energy";
    for (input, kind, format, out, graphs) in [
        ("tu", "--kind tu", "tu", "new_tu", 2),
        ("list", "--kind edge-list", "edge-list", "new_list", 3),
        ("two.sdf", sdf, "sdf", "new.sdf", 2),
        ("two.sdf", "--kind sdf --positions --target energy --radius 2", "edge-index", "near.safetensors", 2),
    ] {
        stage.succeeds(&format!("graph build {input} {kind} --out g.mbg"));
        let answer = stage.succeeds(&format!("graph export g.mbg --format {format} --out {out}"));
        assert_eq!((&answer["graphs"], &answer["format"]), (&json!(graphs), &json!(format)));
        let files: Vec<&str> = answer["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
        let bytes: usize = files.iter().map(|file| stage.read(file).len()).sum();
        assert_eq!(answer["bytes"], bytes, "{files:?}");
        let kind = if format == "edge-index" { "--kind edge-index" } else { kind };
        stage.succeeds(&format!("graph build {out} {kind} --out again.mbg"));
        assert_same_graphs(&stage, "g.mbg", "again.mbg");
    }
    assert_eq!(stage.text("new.sdf"), SDF);
    // Edges by the node that receives.
    assert_eq!(stage.text("new_tu/new_tu_A.txt"), "2, 1\n1, 2\n5, 4\n4, 5\n");
    assert_eq!(stage.text("new_list/edges.csv"), "src,dst,weight\nB,A,0.5\nC,A,0.25\nA,B,1\n");
}

#[test]
fn graphs_are_chosen_by_key_in_the_order_of_the_keys() {
    let stage = Stage::new();
    write_folder(&stage, "tu", &TU);
    stage.succeeds("graph build tu --kind tu --out g.mbg");
    let answer = stage.succeeds("graph export g.mbg --key 2 --key 1 --format edge-index --out both.safetensors");
    assert_eq!(answer["keys"], json!(["2", "1"]));
    assert_eq!((&answer["nodes"], &answer["edges"]), (&json!(5), &json!(4)));
    let (shape, attributes) = tensor(&stage.read("both.safetensors"), "edge_attr");
    // By receiving node: of the second graph its first node receives from its second, as the edge
    // `5, 4` says.
    assert_eq!((shape, attributes), (vec![4, 2], vec![0.25, 1.0, 7.0, 8.0, 1.0, 0.0, 0.5, 2.0]));
    // One graph is the same as `inspect --dump` has it.
    stage.succeeds("graph export g.mbg --key 2 --format edge-index --out one.safetensors");
    stage.succeeds("graph inspect g.mbg --dump 2 dumped.safetensors");
    assert!(stage.read("one.safetensors") == stage.read("dumped.safetensors"));
    // And written again over what is there.
    stage.succeeds("graph export g.mbg --format tu --out out");
    stage.succeeds("graph export g.mbg --key 2 --format tu --out out");
    assert_eq!(stage.text("out/out_graph_labels.txt"), "-1\n");
    let text = stage.said("graph export g.mbg --key 1 --format tu --out out");
    assert!(text.contains("out: 1 graph, 3 nodes, 2 edges") && text.contains("out/out_A.txt"), "{text}");
}

#[test]
fn indices_of_64_bits_and_numbers_of_16_are_exported_too() {
    let stage = Stage::new();
    write_folder(&stage, "list", &EDGE_LIST);
    stage.succeeds("graph build list --kind edge-list --out g.mbg");
    stage.succeeds(
        "graph build list --kind edge-list --index-width u64 --edge-width f16 --feature-width f16 --out wide.mbg",
    );
    // All of its numbers are whole halves and quarters, which 16 bits hold.
    assert_same_graphs(&stage, "g.mbg", "wide.mbg");
}

#[test]
fn what_cannot_be_exported_is_refused_and_nothing_is_written() {
    let stage = Stage::new();
    write_folder(&stage, "tu", &TU);
    write_folder(&stage, "list", &EDGE_LIST);
    stage.succeeds("graph build tu --kind tu --out g.mbg");
    stage.succeeds("graph build list --kind edge-list --out list.mbg");
    for (line, exit_code, message) in [
        (
            "g.mbg --format edge-list --out out",
            2,
            "different edges cannot be exported as an edge list: it holds one graph",
        ),
        ("g.mbg --format edge-list --key 1 --out out", 2, "targets of graphs cannot be exported as an edge list"),
        ("g.mbg --format sdf --out out.sdf", 2, "no positions of nodes cannot be exported as SDF"),
        ("list.mbg --format tu --out out", 2, "targets of nodes cannot be exported as TU"),
        ("g.mbg --format tu --key 3 --out out", 2, "there is no graph \"3\"; the last is \"2\""),
        ("g.mbg --format tu --key 1 --key 1 --out out", 2, "--key 1 is given twice"),
        ("g.mbg --format edge-index --out out.csv", 2, "expected .safetensors"),
        ("g.mbg --format edge-index --out absent/out.safetensors", 2, "cannot write here"),
        ("g.mbg --format tu --out g.mbg", 2, "this is a file; name a folder"),
        ("g.mbg --format tu --out list", 2, ".csv is in it, which would be read with what is written"),
        ("tu/DS_A.txt --format tu --out out", 3, "not a file of graphs"),
    ] {
        let before = stage.contents();
        let [text, json] = stage.fails(&format!("graph export {line}"), exit_code);
        assert!(text.contains(message) && json.contains(message), "{line}: {text}");
        assert_eq!(stage.contents(), before, "{line}");
    }
}

#[test]
fn real_collections_return() {
    let Some(data) = published_data("exporting Cora, MUTAG and gdb1k") else { return };
    let stage = Stage::new();
    let at = |name: &str| Path::new(&data).join(name).display().to_string();
    let targets = at("molecules/gdb1k.sdf.csv.gz");
    for (input, first, format, out, again) in [
        ("graphs/cora_plain", "--kind edge-list", "edge-list", "cora", "--kind edge-list"),
        ("graphs/MUTAG_TU", "--kind tu", "tu", "MUTAG", "--kind tu"),
        (
            "molecules/gdb1k.sdf.gz",
            &format!("--kind sdf --positions --targets {targets} --target atomization_energy"),
            "sdf",
            "gdb1k.sdf",
            "--kind sdf --positions --target atomization_energy",
        ),
    ] {
        stage.succeeds(&format!("graph build {} {first} --out g.mbg", at(input)));
        stage.succeeds(&format!("graph export g.mbg --format {format} --out {out}"));
        stage.succeeds(&format!("graph build {out} {again} --out again.mbg"));
        assert_same_graphs(&stage, "g.mbg", "again.mbg");
    }
}
