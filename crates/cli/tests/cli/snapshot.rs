//! Memory snapshots of a run, and `memory snapshot`.

use std::io::Write as _;
use std::process::{Command, Stdio};

use megabatch_test_support::{Requirement, skip};
use serde_json::{Value, json};

use crate::stage::{SMALL, Stage};

fn labels(summary: &Value) -> Vec<&str> {
    summary["owners"].as_array().unwrap().iter().map(|owned| owned["owner"].as_str().unwrap()).collect()
}

#[test]
fn a_run_leaves_its_peak_as_text_picture_and_page() {
    let stage = Stage::with_run();
    let summary = stage.succeeds("memory snapshot run --svg map.svg");
    assert_eq!((&summary["reason"], &summary["snapshot"]), (&json!("peak"), &json!("run/memory.json")));
    let allocated = summary["allocated_bytes"].as_u64().unwrap();
    let owned: u64 = summary["owners"].as_array().unwrap().iter().map(|owned| owned["bytes"].as_u64().unwrap()).sum();
    assert!(allocated <= owned && owned <= summary["reserved_bytes"].as_u64().unwrap(), "{summary}");
    for label in ["data", "model/parameters", "optimizer", "activations", "batches"] {
        assert!(labels(&summary).contains(&label), "{label}: {summary}");
    }
    let picture = stage.text("map.svg");
    assert!(picture.starts_with("<svg xmlns=") && picture.contains("<title>activations: "), "{picture}");

    let text = stage.said("memory snapshot run/memory.json");
    for part in
        ["run/memory.json: memory of", "at its peak", "fragmentation", "model/parameters", "largest free blocks"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let page = stage.text("run/report.html");
    for part in
        ["Allocated over time", "Memory map", "At its peak, to a hundredth, the pool had reserved", ">reserved</li>"]
    {
        assert!(page.contains(part), "{part}");
    }
    let epochs = stage.metrics("run", "epoch");
    assert_eq!(epochs.len(), 1);
    assert!(epochs[0]["allocated_bytes_peak"].as_u64() >= epochs[0]["allocated_bytes"].as_u64(), "{epochs:?}");
    assert!(epochs[0]["reserved_bytes"].as_u64() >= epochs[0]["allocated_bytes"].as_u64(), "{epochs:?}");
}

#[test]
fn python_reads_the_snapshot_of_a_run() {
    let stage = Stage::with_run();
    let summary = stage.succeeds("memory snapshot run --pickle run.pickle");
    let python = std::env::var("MEGABATCH_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = "import json, pickle, sys; d = pickle.load(sys.stdin.buffer); print(json.dumps([\
                  sum(s['total_size'] for s in d['segments']), sum(s['allocated_size'] for s in d['segments']), \
                  len([e for e in d['device_traces'][0] if e['action'] == 'alloc']) > 0]))";
    let process = Command::new(&python).args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut process) = process else {
        skip(Requirement::Python, "reading the pickle");
        return;
    };
    process.stdin.take().unwrap().write_all(&stage.read("run.pickle")).unwrap();
    let answer: Value = serde_json::from_slice(&process.wait_with_output().unwrap().stdout).unwrap();
    let owned: u64 = summary["owners"].as_array().unwrap().iter().map(|owned| owned["bytes"].as_u64().unwrap()).sum();
    assert_eq!(answer, json!([summary["reserved_bytes"], owned, true]));
}

#[test]
fn what_is_recorded_is_a_setting() {
    let stage = Stage::with_series();
    let train = |record: &str| {
        let settings = format!("--max-steps 3 --set gpu_optimization.record_memory={record} {SMALL}");
        stage.succeeds(&format!("train --data series.h5 --out {record} {settings}"));
    };
    train("off");
    assert!(!stage.path("off/memory.json").exists() && !stage.text("off/report.html").contains("Memory map"));
    let [message, _] = stage.fails("memory snapshot off", 2);
    assert!(message.contains("gpu_optimization.record_memory was off"), "{message}");
    assert!(stage.path("off/report.html").exists());

    train("trace");
    let trace = stage.text("trace/memory-trace.jsonl");
    let lines: Vec<Value> =
        trace.lines().map(|line| serde_json::from_str(line).expect("one JSON object a line")).collect();
    let count = |op: &str| lines.iter().filter(|line| line["op"] == op).count();
    assert_eq!(count("step"), 3);
    assert!(count("alloc") >= count("free") && count("free") > 0, "{trace}");
    assert!(lines[0]["bytes"].as_u64().unwrap() > 0 && lines[0]["stream"] == 0);
}

#[test]
fn what_is_no_snapshot_is_refused() {
    let stage = Stage::with_run();
    stage.write("text.json", "{}");
    let [message, _] = stage.fails("memory snapshot text.json", 3);
    assert!(message.contains("text.json") && message.contains("not a memory snapshot"), "{message}");
    stage.write(
        "later.json",
        &stage.text("run/memory.json").replacen("\"format_version\":1", "\"format_version\":2", 1),
    );
    let [message, _] = stage.fails("memory snapshot later.json", 3);
    assert!(message.contains("format_version: 2, and this program reads 1"), "{message}");
    let [message, _] = stage.fails("memory snapshot absent.json", 3);
    assert!(message.contains("absent.json"), "{message}");
    let [message, _] = stage.fails("memory snapshot run/memory.json --svg run/memory.json", 2);
    assert!(message.contains("the file that is read"), "{message}");
    stage.fails("memory snapshot .", 2);
}

#[test]
fn the_latest_snapshot_of_a_run_is_shown() {
    let stage = Stage::with_run();
    let mut later: Value = serde_json::from_str(&stage.text("run/memory.json")).unwrap();
    later["time_us"] = json!(later["time_us"].as_u64().unwrap() + 1);
    later["reason"] = json!("shortage");
    later["shortage"] = json!({ "requested_bytes": 7, "owner": "greedy", "message": "greedy: no room" });
    stage.write("run/oom-1.json", &later.to_string());
    stage.write("run/oom-2.json", &later.to_string());
    let summary = stage.succeeds("memory snapshot run");
    assert_eq!((&summary["snapshot"], &summary["shortage"]["owner"]), (&json!("run/oom-2.json"), &json!("greedy")));
    assert!(stage.said("memory snapshot run").contains("greedy: no room"));
}
