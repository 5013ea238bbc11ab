//! `graph`: graphs from files into one file, what is in it, and what becomes of it when something
//! changes.

use std::fs;
use std::path::Path;

use megabatch_test_support::published_data;
use safetensors::SafeTensors;
use serde_json::{Value, json};

use crate::stage::{Stage, tensor};

const EDGE_LIST: [(&str, &str); 3] = [
    ("edges.csv", "src,dst,weight\nB,A,0.5\nC,A,0.25\nA,B,1\n"),
    ("features.csv", "node,x,y\nA,1,3\nB,0,2\nC,5,5\n"),
    ("labels.csv", "node,label,split\nA,up,train\nB,down,val\nC,up,test\n"),
];

fn with_files(folder: &str, files: &[(&str, &str)]) -> Stage {
    let stage = Stage::new();
    fs::create_dir(stage.path(folder)).unwrap();
    files.iter().for_each(|(name, text)| stage.write(&format!("{folder}/{name}"), text));
    stage
}

/// Daily bars of a few shares whose returns repeat: A and B go together, C against them, and D has
/// only a few days.
fn with_shares() -> Stage {
    let stage = Stage::new();
    fs::create_dir(stage.path("shares")).unwrap();
    let wave = |day: usize, phase: f64| (day as f64 * 0.7 + phase).sin() + 0.1 * (day as f64 * 2.3 + 5.0 * phase).cos();
    for (name, phase, first) in [("A", 0.0, 0), ("B", 0.2, 0), ("C", 3.0, 0), ("D", 1.0, 36)] {
        let mut text = "timestamp,open,high,low,close,adjusted_close,volume\n".to_owned();
        for day in first..40 {
            let close = 100.0 + 10.0 * wave(day, phase);
            let date = format!("2021-{:02}-{:02}", 1 + day / 20, 1 + day % 20);
            text.push_str(&format!("{date},{close},{close},{close},{close},{close},1\n"));
        }
        stage.write(&format!("shares/daily_{name}.csv"), &text);
    }
    stage.write("shares/daily_E.csv", "{\"Error Message\": \"the limit of calls is reached\"}\n");
    stage
}

const CORRELATION: &str = "graph build shares --kind correlation --on-error skip --lookback 10 --k 1 --out g.mbg";

#[test]
fn what_is_known_of_shares_becomes_attributes_of_their_edges() {
    let stage = with_shares();
    stage.write("known.csv", "symbol,cap,sector\nA,2,Energy\nB,8,Energy\nC,2,Banks\nD,,\n");
    stage.succeeds(&format!("{CORRELATION} --k 3 --similarities known.csv").replace("--k 1 ", ""));
    let answer = stage.succeeds("graph inspect g.mbg --dump 2021-02-20 out.safetensors");
    assert_eq!(answer["edges"], 6);
    let bytes = stage.read("out.safetensors");
    let (shape, attributes) = tensor(&bytes, "edge_attr");
    assert_eq!(shape, [6, 2]);
    // Row by row: A from B and from C, B from A and from C, C from both.
    assert_eq!(attributes, [0.25, 1.0, 1.0, 0.0, 0.25, 1.0, 0.25, 0.0, 1.0, 0.0, 0.25, 0.0]);
    let error = stage.run(&format!("{CORRELATION} --similarities missing.csv")).failure();
    assert!(String::from_utf8_lossy(&error.get_output().stderr).contains("missing.csv"));
}

/// Graphs of one node each were built, without a word.
#[test]
fn one_share_makes_no_graph() {
    let stage = with_shares();
    let alone = |input: &str| CORRELATION.replace("build shares", &format!("build {input}"));
    let [error, _] = stage.fails(&alone("shares/daily_A.csv"), 3);
    let expected = " is the only share with returns: expected the bars of two shares or more, as correlations are between shares; give each share a file";
    assert!(error.contains(expected) && !error.contains("left out"), "{error}");
    let [error, _] = stage.fails(&alone("shares/daily_A.csv shares/daily_E.csv"), 3);
    assert!(error.contains(expected) && error.contains("`symbol`; left out: "), "{error}");
    assert!(!stage.path("g.mbg").exists());
    stage.succeeds(&alone("shares/daily_A.csv shares/daily_B.csv"));
}

#[test]
fn a_second_build_does_nothing_and_a_change_is_named() {
    let stage = with_files("list", &EDGE_LIST);
    let line = "graph build list --kind edge-list --out g.mbg";
    let answer = stage.succeeds(line);
    assert_eq!(
        (&answer["state"], &answer["graphs"], &answer["kind"]),
        (&json!("built"), &json!(3), &json!("edge-list"))
    );
    let written = stage.read("g.mbg");
    assert_eq!(stage.succeeds(line)["state"], "unchanged");
    assert!(stage.said(line).contains("nothing to do"));
    assert_eq!(stage.read("g.mbg"), written);
    let answer = stage.succeeds(&format!("{line} --normalize-features"));
    assert_eq!((&answer["state"], &answer["changes"][0]["what"]), (&json!("replaced"), &json!("parameters")));
    let text = stage.said(line);
    assert!(text.contains("it held others: normalize_features was true, is false"), "{text}");
    stage.write("list/edges.csv", "src,dst,weight\nB,A,0.5\n");
    let answer = stage.succeeds(line);
    assert_eq!((&answer["state"], &answer["changes"][0]["what"]), (&json!("replaced"), &json!("data")));
}

#[test]
fn a_graph_is_dumped_as_pytorch_geometric_has_it() {
    let stage = with_files("list", &EDGE_LIST);
    stage.succeeds("graph build list --kind edge-list --out g.mbg");
    let answer = stage.succeeds("graph inspect g.mbg --dump train out.safetensors");
    assert_eq!((&answer["nodes"], &answer["edges"]), (&json!(3), &json!(3)));
    let bytes = stage.read("out.safetensors");
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let edges = tensors.tensor("edge_index").unwrap();
    let ends: Vec<i64> = edges.data().chunks_exact(8).map(|end| i64::from_le_bytes(end.try_into().unwrap())).collect();
    // Row 0 are the nodes that edges come from.
    assert_eq!((edges.shape(), ends), (&[2, 3][..], vec![1, 2, 0, 0, 0, 1]));
    assert_eq!(tensor(&bytes, "edge_weight"), (vec![3], vec![0.5, 0.25, 1.0]));
    assert_eq!(tensor(&bytes, "x").1, [1.0, 3.0, 0.0, 2.0, 5.0, 5.0]);
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap()["node_names"], r#"["A","B","C"]"#);
    // What is dumped can be built from again.
    let again = stage.succeeds("graph build out.safetensors --kind edge-index --out again.mbg");
    assert_eq!(again["graphs"], 1);
    let [text, _] = stage.fails("graph inspect g.mbg --dump valid out.safetensors", 2);
    assert!(text.contains("no graph \"valid\""), "{text}");
}

#[test]
fn shares_become_a_graph_a_day_of_what_was_known_before_it() {
    let stage = with_shares();
    let answer = stage.succeeds(&format!("{CORRELATION} --min-observations 5"));
    assert_eq!(answer["found"]["symbols"], json!(["A", "B", "C", "D"]));
    assert_eq!(answer["found"]["universe"]["left_out"][0]["symbol"], "E");
    assert_eq!(answer["found"]["universe"]["listed_late"], json!(["D"]));
    assert_eq!(answer["parameters"]["lookback"], 10);
    let other = stage.succeeds(&format!("{CORRELATION} --min-observations 5 --symbol-pattern *ily_{{}}"));
    assert_eq!(other["found"]["symbols"], json!(["A", "B", "C", "D"]));
    let other = stage.succeeds(&format!("{CORRELATION} --min-observations 5 --symbol-pattern {{}}"));
    assert_eq!(other["found"]["symbols"][0], "DAILY_A");
    stage.succeeds(&format!("{CORRELATION} --min-observations 5"));
    // Ten returns, the first of which is of the second day, are before the twelfth.
    assert_eq!((&answer["first_key"], &answer["last_key"]), (&json!("2021-01-12"), &json!("2021-02-20")));
    stage.succeeds("graph inspect g.mbg --dump 2021-02-10 day.safetensors");
    let before = stage.read("day.safetensors");
    let (_, metadata) = SafeTensors::read_metadata(&before).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap()["node_names"], r#"["A","B","C"]"#);
    // The day itself and what comes later is not seen.
    let prices = stage.text("shares/daily_A.csv");
    let changed = prices.lines().map(|line| match line.split_once(',') {
        Some((day, _)) if ("2021-02-10".."2022").contains(&day) => format!("{day},50,50,50,50,50,1\n"),
        _ => format!("{line}\n"),
    });
    stage.write("shares/daily_A.csv", &changed.collect::<String>());
    let answer = stage.succeeds(&format!("{CORRELATION} --min-observations 5"));
    assert_eq!(answer["changes"][0]["what"], "data");
    stage.succeeds("graph inspect g.mbg --dump 2021-02-10 day.safetensors");
    let after = stage.read("day.safetensors");
    let edges = |file: &[u8]| SafeTensors::deserialize(file).unwrap().tensor("edge_index").unwrap().data().to_vec();
    assert_eq!(edges(&after), edges(&before));
    assert_eq!(tensor(&after, "edge_weight"), tensor(&before, "edge_weight"));
    stage.succeeds("graph inspect g.mbg --dump 2021-02-12 later.safetensors");
    assert_ne!(tensor(&stage.read("later.safetensors"), "edge_weight"), tensor(&before, "edge_weight"));
    let text = stage.said(&format!("{CORRELATION} --min-observations 5"));
    assert!(text.contains("left out") && text.contains("E"), "{text}");
}

#[test]
fn rows_of_a_table_become_graphs_by_nearness() {
    let stage = Stage::new();
    stage.write("points.csv", "node,x,y,z\nA,0,0,0\nB,1,0,0\nC,9,0,0\n");
    let edges = |line: &str| {
        stage.succeeds(&format!("graph build points.csv {line} --out g.mbg"));
        let inspected = stage.succeeds("graph inspect g.mbg");
        inspected["edges"]["max"].as_u64().unwrap()
    };
    assert_eq!(edges("--kind radius --radius 2"), 2);
    assert_eq!(edges("--kind radius --radius 2 --periodic 10,10,10"), 6);
    assert_eq!(edges("--kind euclidean --k 1"), 3);
    assert_eq!(edges("--kind euclidean --k 1 --symmetry mutual"), 2);
    stage.write("points.csv", "x,y\n1,0\n2,0.1\n0,1\n");
    assert_eq!(edges("--kind cosine --k 2"), 6);
}

#[test]
fn a_damaged_file_is_told_from_a_whole_one_and_built_again() {
    let stage = with_files("list", &EDGE_LIST);
    let line = "graph build list --kind edge-list --out g.mbg";
    stage.succeeds(line);
    let answer = stage.succeeds("graph verify g.mbg");
    assert_eq!((&answer["graphs"], &answer["damaged"]), (&json!(3), &json!(0)));
    let whole = stage.read("g.mbg");
    let mut damaged = whole.clone();
    let last = damaged.iter().rposition(|&byte| byte != 0).unwrap();
    damaged[last] ^= 1;
    fs::write(stage.path("g.mbg"), &damaged).unwrap();
    let [text, json] = stage.fails("graph verify g.mbg", 3);
    assert!(text.contains("of 3 graphs 1 damaged: test"), "{text}");
    assert!(json.contains("build the file again"), "{json}");
    let answer = stage.succeeds(line);
    // Two of three graphs are whole, and the answer had `"kept": 0`.
    assert_eq!((&answer["state"], &answer["kept"]), (&json!("built"), &json!(2)));
    assert_eq!(stage.read("g.mbg"), whole);
    fs::write(stage.path("g.mbg"), &damaged).unwrap();
    let text = stage.said(line);
    assert!(text.contains("; 2 graphs kept of the file that was there\n"), "{text}");
}

#[test]
fn a_build_that_goes_on_says_what_was_kept() {
    let stage = with_files("list", &EDGE_LIST);
    let line = "graph build list --kind edge-list --out g.mbg";
    let answer = stage.succeeds(line);
    assert_eq!((&answer["kept"], &answer["edges"]["max"]), (&json!(0), &json!(3)));
    let whole = stage.read("g.mbg");
    let mut unfinished = whole.clone();
    let last = unfinished.iter().rposition(|&byte| byte != 0).unwrap();
    unfinished[last] ^= 1;
    let interrupt = || {
        fs::remove_file(stage.path("g.mbg")).unwrap();
        fs::write(stage.path(".g.mbg.partial"), &unfinished).unwrap();
    };
    interrupt();
    let answer = stage.succeeds(line);
    assert_eq!((&answer["state"], &answer["kept"]), (&json!("built"), &json!(2)));
    assert_eq!(stage.read("g.mbg"), whole);
    interrupt();
    let text = stage.said(line);
    assert!(text.contains("2 graphs kept of a build that was interrupted\n3 nodes; "), "{text}");
}

#[test]
fn graphs_of_all_edges_and_of_none_are_noted() {
    let stage = with_shares();
    let text = stage.said(&CORRELATION.replace("--k 1", "--k 4"));
    assert!(text.contains("note: --k 4 makes neighbours of all 4 shares\n"), "{text}");
    stage.write("points.csv", "x,y,z\n0,0,0\n9,9,9\n");
    let text = stage.said("graph build points.csv --kind radius --radius 2 --out none.mbg");
    assert!(text.ends_with("2 nodes; 0 edges\nwarning: no graph has an edge\n"), "{text}");
    let text = stage.said("graph build points.csv --kind euclidean --k 1 --out all.mbg");
    assert!(text.ends_with("2 nodes; 2 edges\n") && !text.contains("note"), "{text}");
}

/// One default for `ingest` and `graph build`: a folder with a saved error in place of a file was
/// built without it.
#[test]
fn a_share_that_cannot_be_read_stops_as_in_ingest() {
    let stage = with_shares();
    let [failed, _] = stage.fails(&CORRELATION.replace("--on-error skip ", ""), 3);
    assert!(failed.contains("daily_E.csv") && !stage.path("g.mbg").exists(), "{failed}");
}

#[test]
fn correlations_of_two_returns_and_shares_of_other_days_are_warned_of() {
    let stage = with_shares();
    let text = stage.said(&CORRELATION.replace("--lookback 10", "--lookback 2"));
    assert!(text.contains("a correlation of two returns is always +1 or -1"), "{text}");
    assert!(!stage.said(&format!("{CORRELATION} --min-observations 5")).contains("+1 or -1"));
    // F has a bar on two days of four.
    let text = stage.text("shares/daily_A.csv");
    let is_kept = |line: usize| line == 0 || (line - 1) % 4 < 2;
    let rows = text.lines().enumerate().filter(|(line, _)| is_kept(*line));
    let half: String = rows.map(|(_, row)| format!("{row}\n")).collect();
    stage.write("shares/daily_F.csv", &half);
    let answer = stage.succeeds(&format!("{CORRELATION} --min-observations 5"));
    let warning = answer["found"]["warnings"][0].as_str().unwrap();
    assert!(warning.contains("F (20 of 38)") && warning.contains("--min-observations"), "{warning}");
}

#[test]
fn a_graph_is_drawn() {
    let stage = with_files("list", &EDGE_LIST);
    stage.succeeds("graph build list --kind edge-list --out g.mbg");
    stage.succeeds("graph inspect g.mbg --svg train day.svg");
    let svg = stage.text("day.svg");
    assert!(svg.starts_with("<svg xmlns") && svg.contains("prefers-color-scheme: dark"), "{svg:.200}");
    assert_eq!(svg.matches("<circle").count(), 3);
    stage.fails("graph inspect g.mbg --svg train day.png", 2);
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_written() {
    let stage = with_files("list", &EDGE_LIST);
    stage.write("bad.csv", "x,y\n1,two\n");
    stage.write("flat.csv", "x,y\n1,2\n");
    for (line, exit_code, message) in [
        ("graph build list --kind tu --out g.mbg", 3, "there is no TU dataset in it"),
        (
            "graph build list --kind edge-list --lookback 5 --out g.mbg",
            2,
            "--lookback is no option of --kind edge-list; leave it out, or use a kind that has it: correlation",
        ),
        ("graph build list list --kind edge-list --out g.mbg", 2, "reads one input, and 2 were named"),
        ("graph build list --kind edge-list --out g.h5", 2, "expected .mbg"),
        (
            "graph build bad.csv --kind cosine --out g.mbg",
            3,
            "bad.csv: line 2, column 2: expected a finite number, found `two`",
        ),
        ("graph build bad.csv --kind radius --out g.mbg", 3, "bad.csv: line 2"),
        ("graph build flat.csv --kind radius --radius 2 --out g.mbg", 3, "flat.csv: columns x, y: expected three"),
        ("graph inspect list/edges.csv", 3, "not a file of graphs"),
        ("graph verify absent.mbg", 3, "absent.mbg"),
    ] {
        let before = stage.contents();
        let [text, json] = stage.fails(line, exit_code);
        assert!(text.contains(message) && json.contains(message), "{line}: {text}");
        assert_eq!(stage.contents(), before, "{line}");
    }
}

#[test]
fn bench_answers_with_the_keys_that_programs_read() {
    let answer =
        Stage::new().succeeds("graph bench --nodes 12 --k 2 --window 8 --graphs 3 --features 4 --hidden 4 --repeats 1");
    for key in ["rebuilt", "cached", "in_memory"] {
        assert!(answer[key]["iterations_per_s"].as_f64().unwrap() > 0.0, "{answer}");
        let share = answer[key]["waiting_share"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&share), "{answer}");
        assert_eq!(answer[key]["sum"], answer["in_memory"]["sum"], "the model computes the same: {answer}");
    }
    assert_eq!(answer["edges"], 24);
    assert_eq!(answer["batch_graphs"], 3, "no more than there are");
    let [forward_s, step_s] = ["batch_forward_s", "batch_step_s"].map(|key| answer[key].as_f64().unwrap());
    assert!(forward_s > 0.0 && step_s > 0.0, "{answer}");
    assert!(answer["batch_topology_us"].as_f64().unwrap() > 0.0, "{answer}");
}

#[test]
fn real_collections_are_built_whole() {
    let Some(data) = published_data("building Cora, MUTAG and gdb1k") else { return };
    let stage = Stage::new();
    let at = |name: &str| Path::new(&data).join(name).display().to_string();
    let build = |input: &str, rest: &str| stage.succeeds(&format!("graph build {} {rest}", at(input)));
    let cora = build("graphs/cora_plain", "--kind edge-list --normalize-features --out cora.mbg");
    assert_eq!(cora["graphs"], 3);
    let inspected: Value = stage.succeeds("graph inspect cora.mbg");
    assert_eq!((&inspected["nodes"]["max"], &inspected["edges"]["max"]), (&json!(2708), &json!(10556)));
    assert_eq!(build("graphs/MUTAG_TU", "--kind tu --out mutag.mbg")["graphs"], 188);
    let targets = at("molecules/gdb1k.sdf.csv.gz");
    let gdb = build("molecules/gdb1k.sdf.gz", &format!("--kind sdf --targets {targets} --out gdb1k.mbg"));
    assert_eq!(gdb["graphs"], 1000);
    assert!(gdb["found"]["notes"][0].as_str().unwrap().contains("impossible valence"), "{gdb}");
}
