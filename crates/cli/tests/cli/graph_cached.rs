//! `graph build --cache`: a folder of graphs that were built, found by what they are of, within a
//! limit.

use std::fs;

use serde_json::{Value, json};

use crate::stage::Stage;

fn stage() -> Stage {
    let stage = Stage::new();
    fs::create_dir(stage.path("list")).unwrap();
    stage.write("list/edges.csv", "src,dst,weight\nB,A,0.5\nC,A,0.25\nA,B,1\n");
    stage.write("list/features.csv", "node,x,y\nA,1,3\nB,0,2\nC,5,5\n");
    stage
}

fn build(stage: &Stage, options: &str) -> Value {
    stage.succeeds(&format!("graph build list --kind edge-list --cache cache {options}"))
}

/// Names of the files that are in the folder.
fn files(stage: &Stage) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(stage.path("cache"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The name of the file that an answer tells.
fn file(answer: &Value) -> String {
    answer["out"].as_str().unwrap().strip_prefix("cache/").expect("it is in the folder").to_owned()
}

#[test]
fn what_was_built_before_is_found_whatever_was_built_since() {
    let stage = stage();
    let plain = build(&stage, "");
    assert_eq!((&plain["state"], &plain["graphs"], &plain["kind"]), (&json!("built"), &json!(1), &json!("edge-list")));
    let normal = build(&stage, "--normalize-features");
    let narrow = build(&stage, "--edge-width f16");
    assert_eq!((&normal["state"], &narrow["state"]), (&json!("built"), &json!("built")));
    let mut all = [file(&plain), file(&normal), file(&narrow)];
    all.sort();
    assert_eq!(files(&stage), all, "each has a name of its own, and nothing else is left");
    let before = stage.contents();
    let again = build(&stage, "");
    assert_eq!((&again["state"], &again["out"]), (&json!("hit"), &plain["out"]));
    assert_eq!((&again["cache"]["removed"], &again["cache"]["limit_bytes"]), (&json!([]), &Value::Null));
    assert_eq!(stage.contents(), before);
    let text = stage.said("graph build list --kind edge-list --cache cache");
    assert!(text.contains(plain["out"].as_str().unwrap()) && text.contains("hit: they were there"), "{text}");
    // The file is one like any other, and the same as by --out.
    stage.succeeds(&format!("graph verify {}", plain["out"].as_str().unwrap()));
    stage.succeeds("graph build list --kind edge-list --out g.mbg");
    assert!(stage.read("g.mbg") == stage.read(plain["out"].as_str().unwrap()));
    stage.write("list/edges.csv", "src,dst,weight\nB,A,0.5\n");
    let changed = build(&stage, "");
    assert_eq!(changed["state"], "built");
    assert_ne!(changed["out"], plain["out"]);
}

#[test]
fn those_unused_for_longest_go_where_the_folder_is_too_large() {
    let stage = stage();
    let first = build(&stage, "");
    let second = build(&stage, "--normalize-features");
    let [a, b] = [&first, &second].map(|answer| answer["bytes"].as_u64().unwrap());
    // A use makes the first the younger of the two.
    assert_eq!(build(&stage, "")["state"], "hit");
    let third = build(&stage, &format!("--edge-width f16 --limit {}", 2 * a.max(b)));
    assert_eq!(third["cache"]["removed"], json!([second["out"]]));
    let mut left = [file(&first), file(&third)];
    left.sort();
    assert_eq!(files(&stage), left);
    assert_eq!(third["cache"]["left_bytes"], a + third["bytes"].as_u64().unwrap());
    // What is asked for stays whatever the limit, and the answer says that it is more.
    let text = stage.said("graph build list --kind edge-list --cache cache --limit 100");
    assert!(text.contains("removed, unused for longest: cache/") && text.contains("more than its 100"), "{text}");
    assert_eq!(files(&stage), [file(&first)]);
    // One that was removed is built again, to the same name and bytes.
    assert_eq!((build(&stage, "--normalize-features")["state"].clone(), files(&stage).len()), (json!("built"), 2));
}

#[test]
fn a_damaged_file_of_the_folder_is_built_again() {
    let stage = stage();
    let out = build(&stage, "")["out"].as_str().unwrap().to_owned();
    let whole = stage.read(&out);
    let mut damaged = whole.clone();
    let last = damaged.iter().rposition(|&byte| byte != 0).unwrap();
    damaged[last] ^= 1;
    fs::write(stage.path(&out), &damaged).unwrap();
    assert_eq!(build(&stage, "")["state"], "built");
    assert!(stage.read(&out) == whole);
}

#[test]
fn words_that_do_not_go_together_are_refused() {
    let stage = stage();
    stage.write("file", "");
    for (line, message) in [
        ("", "--out <OUT>"),
        ("--out g.mbg --cache cache", "cannot be used with"),
        ("--out g.mbg --limit 1GiB", "cannot be used with"),
        ("--limit 1GiB", "--cache <DIR>"),
        ("--cache cache --limit 0", "expected from one byte"),
        ("--cache file", "this is a file; name a folder"),
    ] {
        let before = stage.contents();
        let failed = stage.run(&format!("graph build list --kind edge-list {line}")).code(2).stdout("");
        let text = String::from_utf8_lossy(&failed.get_output().stderr).into_owned();
        assert!(text.contains(message), "{line}: {text}");
        assert_eq!(stage.contents(), before, "{line}");
    }
}
