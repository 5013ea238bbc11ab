//! `doctor`: on a machine without a GPU, and on one with a synthetic driver and a synthetic Python.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use megabatch_simt::driver::FakeDriver;
use serde_json::Value;

use crate::stage::Stage;

/// `megabatch LINE` with an environment in which there is nothing but `variables`.
fn run(stage: &Stage, line: &str, variables: &[(&str, &Path)]) -> Output {
    let mut command = stage.command(line);
    command.env_clear().envs(variables.iter().copied());
    command.output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// An environment in the folder `env`, whose Python tells of a PyTorch for the CPU.
fn with_python(stage: &Stage) {
    fs::create_dir_all(stage.path("env/bin")).unwrap();
    let facts = [
        r#"["python", "3.11.9"]"#,
        r#"["torch", {"version": "2.7.0+cpu", "cuda": null, "hip": null, "compiled_for": [], "is_available": false, "gpus": [], "cudnn": null}]"#,
    ];
    let answer: String = facts.iter().map(|fact| format!("megabatch-doctor {fact}\n")).collect();
    stage.write("env/bin/python.answer", &answer);
    let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("../doctor/tests/cases/fake-python.sh");
    symlink(fs::canonicalize(fake).unwrap(), stage.path("env/bin/python")).unwrap();
}

#[test]
fn the_exit_code_tells_healthy_from_not_and_the_answer_is_printed_either_way() {
    let stage = Stage::new();
    let before = stage.contents();
    let output = run(&stage, "doctor --json", &[]);
    let answer = json(&output);
    let expected = if answer["is_healthy"].as_bool().unwrap() { 0 } else { 6 };
    assert_eq!(output.status.code(), Some(expected), "{answer}");
    let text = run(&stage, "doctor", &[]);
    assert_eq!(text.status.code(), Some(expected));
    let text = String::from_utf8(text.stdout).unwrap();
    for finding in answer["findings"].as_array().unwrap() {
        let beginning: String = finding["seen"].as_str().unwrap().split(' ').take(5).collect::<Vec<_>>().join(" ");
        assert!(text.contains(&beginning), "no `{beginning}` in\n{text}");
    }
    assert_eq!(stage.contents(), before, "nothing is changed");
}

#[test]
fn pages_are_printed_by_name() {
    let stage = Stage::new();
    for topic in ["architectures", "jit-cache", "allocator", "cpu", "arm", "batch-size"] {
        let page = stage.succeeds(&format!("doctor --explain {topic}"))["page"].as_str().unwrap().to_owned();
        assert_eq!(stage.said(&format!("doctor --explain {topic}")), format!("{}\n", page.trim_end()));
    }
    for message in stage.fails("doctor --python no/such/python", 2) {
        assert!(message.starts_with("--python no/such/python: expected a Python interpreter"), "{message}");
    }
}

#[test]
fn every_gpu_of_the_driver_is_tried() {
    let stage = Stage::new();
    let folder = FakeDriver::folder();
    let answer = json(&run(&stage, "doctor --json", &[("LD_LIBRARY_PATH", &folder)]));
    let trials = answer["trials"].as_array().unwrap();
    assert!(trials.iter().all(|trial| trial["device"] == "cuda:0"), "{answer}");
    let named = |name: &str| {
        let trial = trials.iter().find(|trial| trial["name"].as_str().unwrap().starts_with(name));
        trial.unwrap_or_else(|| panic!("no {name} in {answer}"))
    };
    for name in [
        "memory pool: blocks keep",
        "memory pool: what was given back",
        "memory pool: a refused request",
        "memory pool: scattered memory",
        "copies from pageable memory",
        "copies from pinned memory",
    ] {
        assert_eq!(named(name)["fault"], Value::Null, "{name}");
    }
    for name in ["training: losses in bf16", "training: losses in fp32 of two layers"] {
        assert!(named(name)["fault"].is_string(), "without kernels, {name} cannot work");
    }
    // The synthetic driver of this process has no kernels, and a trial that fails is a problem that
    // is told.
    let failed = named("training: losses in fp32")["fault"].is_string();
    let is_told = answer["findings"].as_array().unwrap().iter().any(|finding| finding["id"] == "megabatch-failed");
    assert_eq!(failed, is_told, "{answer}");
}

#[test]
fn a_script_is_written_for_an_environment_that_can_be_mended_and_runs_nothing() {
    let stage = Stage::new();
    with_python(&stage);
    let (folder, environment) = (FakeDriver::folder(), stage.path("env"));
    let variables: [(&str, &Path); 2] = [("LD_LIBRARY_PATH", &folder), ("VIRTUAL_ENV", &environment)];
    let output = run(&stage, "doctor --fix-script fix.sh --json", &variables);
    let answer = json(&output);
    assert_eq!((output.status.code(), &answer["fix_script"]), (Some(6), &Value::from("fix.sh")), "{answer}");
    let script = stage.text("fix.sh");
    let commands: Vec<&str> =
        answer["repair"].as_array().unwrap().iter().map(|command| command.as_str().unwrap()).collect();
    assert!(commands.iter().all(|command| script.contains(command)) && commands.len() == 2, "{script}");
    assert!(Command::new("sh").arg("-n").arg(stage.path("fix.sh")).status().unwrap().success());
    let nothing = run(&Stage::new(), "doctor --fix-script fix.sh --json", &[]);
    assert_eq!(json(&nothing)["fix_script"], Value::Null);
}
