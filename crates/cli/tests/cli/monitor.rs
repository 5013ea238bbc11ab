//! A run as others see it: `monitor` on the screen and for Prometheus, TensorBoard's events, and
//! the trace of its steps.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use crate::stage::{SMALL, Stage};

#[test]
fn one_screen_and_json_tell_how_a_run_stands() {
    let stage = Stage::with_run();
    // Standard output of a test is no terminal: one screen, asked for or not.
    for line in ["monitor run", "monitor run --once"] {
        let screen = stage.said(line);
        for part in
            ["run: step 9 of 9, epoch 1; ended", "100.0 %", "loss by step", "samples/s", "allocated", "warnings: 0"]
        {
            assert!(screen.contains(part), "{part}:\n{screen}");
        }
        assert!(!screen.contains("q ends"), "no key ends it:\n{screen}");
    }
    let answer = stage.succeeds("monitor run");
    let last = stage.metrics("run", "step").pop().unwrap();
    for (key, line_key) in
        [("step", "step"), ("loss", "loss"), ("learning_rate", "lr"), ("allocated_bytes", "allocated_bytes")]
    {
        assert_eq!(answer[key].as_f64(), last[line_key].as_f64(), "{key}");
    }
    assert_eq!((&answer["finished"], &answer["warnings"]), (&1.0.into(), &serde_json::json!([])));
    assert!(answer["free_bytes"].as_f64().unwrap() > 0.0, "{answer}");
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let stage = Stage::with_run();
    let [message, _] = stage.fails("monitor nowhere", 2);
    assert!(message.contains("nowhere: not a run folder"), "{message}");
    let [message, _] = stage.fails("monitor run --prometheus nonsense", 2);
    assert!(message.contains("--prometheus nonsense: cannot listen here"), "{message}");
}

#[test]
fn prometheus_is_answered() {
    let stage = Stage::with_run();
    let mut process = stage
        .command("monitor run --prometheus 127.0.0.1:0")
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut told = String::new();
    BufReader::new(process.stderr.take().unwrap()).read_line(&mut told).unwrap();
    let address = told.trim().strip_prefix("metrics at http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let mut stream = TcpStream::connect(address.unwrap_or_else(|| panic!("{told}"))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("megabatch_step{run=\"run\"} 9\n"), "{answer}");
}

/// TensorBoard's files of `run`, in the order of the sessions.
fn event_files(stage: &Stage, run: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(stage.path(&format!("{run}/tb"))).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn sessions_leave_events_and_a_trace_unless_they_are_not_wanted() {
    let stage = Stage::with_series();
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps 5 {SMALL}"));
    let first = event_files(&stage, "run");
    let bytes = fs::read(&first[0]).unwrap();
    assert!(bytes.windows(13).any(|window| window == b"loss/training"));
    stage.succeeds("train --out run --resume --max-steps 12");
    let both = event_files(&stage, "run");
    assert_eq!((first.len(), both.len()), (1, 2));
    assert_eq!(fs::read(&both[0]).unwrap(), bytes, "what is written stays");

    let trace: Vec<Value> = serde_json::from_str(&stage.text("run/trace.json")).unwrap();
    let steps = trace.iter().filter(|event| event["name"] == "step");
    let steps: Vec<u64> = steps.map(|event| event["args"]["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (6..=12).collect::<Vec<_>>(), "those of the session");
    for phase in ["forward", "backward", "optimizer", "data wait", "save", "validation"] {
        assert!(trace.iter().any(|event| event["name"] == phase), "{phase}");
    }

    let without = "--set output.tensorboard=false --set output.trace_steps=none";
    stage.succeeds(&format!("train --data series.h5 --out bare --max-steps 2 {SMALL} {without}"));
    assert!(!stage.path("bare/tb").exists() && !stage.path("bare/trace.json").exists());
}
