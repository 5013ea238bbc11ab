//! Behaviour on a machine with an NVIDIA driver: a fake one, found by the name that a real one has.
#![cfg(target_os = "linux")]

use std::process::Output;

use megabatch_nn_cuda::ops::SOURCES;
use megabatch_simt::Harness;
use megabatch_simt::driver::FakeDriver;
use megabatch_test_support::{Requirement, skip};
use serde_json::{Value, json};

use crate::graph_training::write_shapes;
use crate::stage::{SERIES, SMALL, Stage, dataset, numbers};

/// The kernels of a training step.
static NN: Harness = Harness::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../nn-cuda/src/ops"), SOURCES);
static AMP: Harness =
    Harness::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../amp/src/ops"), &["unscale_and_check", "update"]);

const TRAIN: &str = "train --data series.h5 --out run --max-steps 1";

/// Output of `megabatch LINE` on a machine with a driver.
fn output_with_driver(stage: &Stage, line: &str) -> Output {
    let mut command = stage.command(line);
    let kernels = [&NN, &AMP].map(|harness| harness.object().display().to_string()).join(":");
    command.env("LD_LIBRARY_PATH", FakeDriver::folder()).env(FakeDriver::KERNELS, kernels);
    command.env("XDG_CACHE_HOME", stage.path("cache"));
    command.output().unwrap()
}

/// Its exit code and standard error.
fn with_driver(stage: &Stage, line: &str) -> (Option<i32>, String) {
    let output = output_with_driver(stage, line);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Its answer, of one that succeeds.
fn answer_with_driver(stage: &Stage, line: &str) -> Value {
    let output = output_with_driver(stage, &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The losses of a run's steps, and the device of its report.
fn trained(stage: &Stage, run: &str) -> (Vec<f64>, String) {
    let metrics = stage.text(&format!("{run}/metrics.jsonl"));
    let lines = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let steps = lines.filter(|line| line["event"] == "step").map(|line| line["loss"].as_f64().unwrap());
    let report = stage.text(&format!("{run}/report.html"));
    let device = ["cuda:0", "cpu"].into_iter().find(|name| report.contains(&format!("<td>{name}</td>")));
    (steps.collect(), device.unwrap_or("none").to_owned())
}

#[test]
fn a_gpu_trains_as_the_processor_does_and_either_goes_on_where_the_other_stopped() {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    let train = format!("train --data series.h5 {SMALL} --set training.epochs=2");
    for (run, options) in [
        ("processor", "--device cpu"),
        ("gpu", "--device cuda:0"),
        ("auto", "--device auto"),
        ("other", "--device auto --set training.profile=true"),
        ("first", "--device cuda:0 --max-steps 5"),
        ("second", "--device cpu --max-steps 5"),
        ("third", "--device cpu --max-steps 5"),
        ("fourth", "--device cuda:0 --max-steps 5"),
    ] {
        let (code, message) = with_driver(&stage, &format!("{train} --out {run} {options}"));
        assert_eq!(code, Some(0), "{run}: {message}");
    }
    for (run, before, device) in [("first", "cuda:0", "cpu"), ("second", "cpu", "cuda:0")] {
        let (code, message) =
            with_driver(&stage, &format!("train --out {run} --resume --max-steps 18 --device {device}"));
        assert_eq!(code, Some(0), "{run} on {device}: {message}");
        let note = format!("the run was trained on {before} and goes on on {device}: ");
        assert!(message.contains(&note), "{message}");
    }
    // Without a stated device a run stays on its kind: the third went on on the GPU without a note.
    let rounds = "it is the same to rounding, not to the bit";
    for run in ["third", "fourth"] {
        let (code, message) = with_driver(&stage, &format!("train --out {run} --resume --max-steps 18"));
        assert!(code == Some(0) && !message.contains(rounds), "{run}: {message}");
    }
    for (run, unbroken) in [("third", "processor"), ("fourth", "gpu")] {
        assert_eq!(trained(&stage, run), trained(&stage, unbroken), "{run}");
    }
    let (expected, device) = trained(&stage, "processor");
    assert_eq!((expected.len(), device.as_str()), (18, "cpu"));
    for (run, expected_device) in [("gpu", "cuda:0"), ("auto", "cuda:0"), ("first", "cpu"), ("second", "cuda:0")] {
        let (found, device) = trained(&stage, run);
        assert_eq!((found.len(), device.as_str()), (18, expected_device), "{run}");
        let error = found.iter().zip(&expected).map(|(found, expected)| (found - expected).abs()).fold(0.0, f64::max);
        assert!(error < 1e-4 * expected[0], "{run}: losses differ by {error}");
    }
    assert_eq!(trained(&stage, "other").1, "cpu");
    assert!(stage.text("other/plan.json").contains("cuda:0 is not used: training.profile is true"));
}

#[test]
fn auto_leaves_a_gpu_aside_that_cannot_do_the_run() {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    for (setting, reason) in [
        ("--set model.hidden=1024 --set model.layers=2", "cuda:0 is not used: the run needs"),
        (
            "--set data.residency=streamed --set training.loss_on=every_step",
            "cuda:0 is not used: data.residency is streamed",
        ),
        ("--set training.profile=true", "cuda:0 is not used: training.profile is true"),
        (
            "--set gpu_optimization.driver_reserve_gb=10",
            "of its memory, and 0 B are free beside gpu_optimization.driver_reserve_gb=10",
        ),
    ] {
        let plan = answer_with_driver(&stage, &format!("plan --data series.h5 {setting}"));
        assert_eq!(plan["gpu"], Value::Null, "{setting}: {plan}");
        assert!(plan.to_string().contains(reason), "{setting}: {plan}");
    }
    let plan = answer_with_driver(&stage, "plan --data series.h5");
    assert_eq!(plan["gpu"]["device"], "cuda:0", "{plan}");
    // An eighth of the fake driver's 256 MiB.
    assert_eq!(plan["gpu"]["driver_bytes"], (256 << 20) / 8, "{plan}");
    let elsewhere = "plan --data series.h5 --device cuda:3 --memory-gb 16 --set gpu_optimization.driver_reserve_gb=2";
    let plan = answer_with_driver(&stage, elsewhere);
    assert_eq!([&plan["gpu"]["available_bytes"], &plan["gpu"]["driver_bytes"]], [14_000_000_000_u64, 2_000_000_000]);
}

/// A run with these settings has the same losses on the CPU and on the GPU.
fn check_losses(stage: &Stage, settings: &str) {
    let train = format!("train --data series.h5 {SMALL} {settings} --set model.dropout=0.1 --max-steps 10");
    for (run, device) in [("processor", "cpu"), ("gpu", "cuda:0")] {
        let (code, message) = with_driver(stage, &format!("{train} --out {run} --device {device}"));
        assert_eq!(code, Some(0), "{run}: {message}");
    }
    let [(expected, _), (found, device)] = ["processor", "gpu"].map(|run| trained(stage, run));
    assert_eq!((found.len(), device.as_str()), (expected.len(), "cuda:0"));
    let error = found.iter().zip(&expected).map(|(found, expected)| (found - expected).abs()).fold(0.0, f64::max);
    assert!(error < 1e-4 * expected[0], "losses differ by {error}");
}

#[test]
fn a_gpu_trains_the_whole_model() {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    let model =
        "--set model.layers=2 --set model.layer_norm=true --set model.pooling=attention --set model.fusion=attention";
    check_losses(&stage, model);
}

#[test]
fn a_gpu_carries_states_as_the_processor_does() {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    check_losses(&stage, "--set model.layers=2 --set training.carry_state=true --set training.run_length=6");
}

#[test]
fn a_gpu_trains_densely_and_the_processor_predicts_with_what_it_learnt() {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    check_losses(&stage, "--set model.layers=2 --set training.loss_on=every_step --set training.run_length=6");
    let [expected, found] = ["processor", "gpu"].map(|run| answer_with_driver(&stage, &format!("eval --run {run}")));
    for (found, expected) in numbers(&found["rmse"]).into_iter().zip(numbers(&expected["rmse"])) {
        assert!((found - expected).abs() < 1e-4 * expected, "{found} where {expected} is right");
    }
}

#[test]
fn a_gpu_trains_and_evaluates_models_over_graphs() {
    let stage = Stage::new();
    stage.succeeds("synth shares --shares 5 --days 120");
    stage.succeeds(
        "ingest shares --out shares.h5 --timeframes D1:3 --features log_return --target log_return --horizon 2",
    );
    stage.succeeds("graph build shares --kind correlation --lookback 20 --min-observations 10 --k 2 --out shares.mbg");
    let layers = "--set model.graph_hidden=4 --set model.graph_heads=2 --set model.graph_dropout=0.1 --set training.loss=rank_pairwise";
    let train = format!(
        "train --data shares.h5 --max-steps 3 --set model.graph=shares.mbg --set gpu_optimization.batch_size=4 --set model.hidden=4 {layers}"
    );
    for (run, device) in [("processor", "cpu"), ("gpu", "cuda:0")] {
        let (code, message) = with_driver(&stage, &format!("{train} --out {run} --device {device}"));
        assert_eq!(code, Some(0), "{run}: {message}");
    }
    let [(expected, _), (found, device)] = ["processor", "gpu"].map(|run| trained(&stage, run));
    assert_eq!((found.len(), expected.len(), device.as_str()), (3, 3, "cuda:0"));
    let error = found.iter().zip(&expected).map(|(found, expected)| (found - expected).abs()).fold(0.0, f64::max);
    assert!(error < 1e-4 * expected[0], "losses differ by {error}");
    let [exact, found] =
        ["cpu", "cuda:0"].map(|device| answer_with_driver(&stage, &format!("eval --run gpu --device {device}")));
    assert_eq!((&found["gpu"], &found["samples"]), (&Value::from("cuda:0"), &exact["samples"]));
    for (found, expected) in numbers(&found["ic"]).into_iter().zip(numbers(&exact["ic"])) {
        assert!((found - expected).abs() < 1e-4, "{found} where {expected} is right");
    }
}

#[test]
fn a_gpu_predicts_and_evaluates_as_the_processor_does() {
    let stage = Stage::with_run();
    let [exact, auto] =
        ["cpu", "auto"].map(|device| answer_with_driver(&stage, &format!("eval --run run --device {device}")));
    let found = answer_with_driver(&stage, "eval --run run --device cuda:0");
    assert_eq!((&found["gpu"], &exact["gpu"]), (&Value::from("cuda:0"), &Value::Null));
    assert_eq!(found["baselines"], exact["baselines"]);
    for (found, expected) in numbers(&found["rmse"]).into_iter().zip(numbers(&exact["rmse"])) {
        assert!((found - expected).abs() < 1e-5 * expected, "{found} where {expected} is right");
    }
    assert_eq!((&auto["gpu"], &auto["rmse"]), (&Value::from("cuda:0"), &found["rmse"]), "auto takes the GPU");

    for (device, out) in [("cpu", "cpu.h5"), ("cuda:0", "gpu.h5")] {
        let answer = answer_with_driver(&stage, &format!("predict --run run --out {out} --device {device}"));
        let notes = answer["notes"].as_array().unwrap();
        assert!(answer["device"] == device && notes.len() == 1, "{answer}");
        assert!(notes[0].as_str().unwrap().contains("are those of training and validation"), "{answer}");
    }
    let [(shape, exact), (_, found)] =
        ["cpu.h5", "gpu.h5"].map(|file| dataset::<f32>(&stage.path(file), "predictions"));
    assert_eq!(shape, [200, 2]);
    let most = |values: &mut dyn Iterator<Item = f32>| values.fold(0.0, |most: f32, x| most.max(x.abs()));
    let error = most(&mut exact.iter().zip(&found).map(|(exact, found)| exact - found));
    assert!(error < 2e-5 * most(&mut exact.iter().copied()), "predictions differ by {error}");
}

#[test]
fn a_gpu_evaluates_in_eight_bits_as_the_processor_does() {
    let stage = Stage::with_run();
    let [expected, found] =
        ["cpu", "cuda:0"].map(|device| answer_with_driver(&stage, &format!("eval --run run --int8 --device {device}")));
    for (found, expected) in numbers(&found["rmse"]).into_iter().zip(numbers(&expected["rmse"])) {
        assert!((found - expected).abs() < 1e-4 * expected, "{found} where {expected} is right");
    }
    assert!(found["int8"]["weights"] == expected["int8"]["weights"] && !found["int8"].is_null(), "{found}");
}

#[test]
fn what_a_gpu_does_not_predict_is_named() {
    let stage = Stage::with_run();
    stage.succeeds(&format!(
        "train --data series.h5 --out carried --max-steps 1 {SMALL} --set training.carry_state=true"
    ));
    for (line, expected_code, says) in [
        ("predict --run run --out p.csv --device cuda:1", 6, "the driver lists 1 device, counted"),
        ("predict --run run --out p.csv --device gpu", 2, "`gpu`"),
        (
            "eval --run carried --device cuda:0",
            2,
            "training.carry_state is true, or training.loss_on every_step, which is not supported on a GPU yet; use `--device cpu`",
        ),
        (
            "predict --run carried --follow bars.csv --device cuda:0",
            2,
            "--device cuda:0: states go on by one step a bar",
        ),
    ] {
        let (code, message) = with_driver(&stage, line);
        assert_eq!(code, Some(expected_code), "{line}: {message}");
        assert!(message.contains(says), "{line}: {message}");
    }
}

#[test]
fn training_steps_are_timed_on_a_gpu() {
    let stage = Stage::new();
    let bench = "bench train --model single --batch 1 --features 1 --hidden 1 --threads 1 --steps 1 --device cuda:0";
    let graphs =
        "bench train --graph-nodes 3 --graph-neighbours 1 --batch 2 --features 1 --hidden 1 --threads 1 --steps 1";
    let answer = answer_with_driver(&stage, &format!("{graphs} --device cuda:0"));
    assert!(answer["gpu_busy"].as_f64().unwrap() > 0.0, "{answer}");
    let answer = answer_with_driver(&stage, &format!("{bench} --precision bf16"));
    for key in ["samples_per_s_mean", "peak_gpu_bytes"] {
        assert!(answer[key].as_f64().unwrap() > 0.0, "{key}: {answer}");
    }
    assert_eq!(answer["device"], "cuda:0", "{answer}");
    // By events, without the management library, which the fake driver has not.
    let busy = answer["gpu_busy"].as_f64().unwrap();
    assert!(busy > 0.0 && busy <= 1.0 + 1e-6, "{answer}");
    let (code, message) = with_driver(&stage, &format!("{bench} --gradient-checkpointing"));
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("training.gradient_checkpointing"), "{message}");
}

#[test]
fn what_a_gpu_does_not_do_is_named() {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    for (options, expected_code, says) in [
        ("train --device cuda:1", 6, "the driver lists 1 device, counted"),
        (
            "train --device cuda:0 --set training.profile=true",
            2,
            "training.profile is true, which is not supported on a GPU yet; use `--device cpu`",
        ),
        (
            "train --device cuda:0 --set training.loss_on=every_step --set model.pooling=attention",
            2,
            "training.loss_on is every_step, which is not supported on a GPU yet together with attention pooling; use",
        ),
        (
            "plan --device cuda:0 --set training.gradient_checkpointing=true",
            2,
            "training.gradient_checkpointing is true, which is not supported on a GPU yet together with fewer than two LSTM",
        ),
        (
            "train --device cuda:0 --set model.cell=gru",
            2,
            "model.cell is gru, which is not supported on a GPU yet; use `--device cpu`",
        ),
        (
            "plan --device cuda:0 --set model.cell=gru",
            2,
            "model.cell is gru, which is not supported on a GPU yet; use `--device cpu`",
        ),
        ("train --device cuda:0 --set model.hidden=1024 --set model.layers=2", 4, "of the memory of cuda:0, and"),
    ] {
        let (command, rest) = options.split_once(' ').unwrap();
        let out = if command == "train" { "--out run" } else { "" };
        let (code, message) = with_driver(&stage, &format!("{command} --data series.h5 {out} {rest}"));
        assert_eq!(code, Some(expected_code), "{options}: {message}");
        assert!(message.contains(says), "{options}: {message}");
    }
}

#[test]
fn a_run_on_a_gpu_takes_what_was_planned_there() {
    let stage = Stage::new();
    stage.succeeds("synth windows.h5 --layout windows --samples 120 --steps 20 --features 5 --targets 2");
    for precision in ["fp32", "bf16"] {
        let options = format!(
            "--data windows.h5 --device cuda:0 {SMALL} --set training.precision={precision} --set data.purge=0s \
             --set training.epochs=1"
        );
        let plan = answer_with_driver(&stage, &format!("plan {options}"));
        let gpu = &plan["gpu"];
        assert!(gpu["total_bytes"].as_u64() < gpu["available_bytes"].as_u64(), "{gpu}");
        let sum =
            |parts: &Value| parts.as_array().unwrap().iter().map(|part| part["bytes"].as_u64().unwrap()).sum::<u64>();
        let total = gpu["total_bytes"].as_u64().unwrap();
        assert_eq!((sum(&gpu["tensors"]), sum(&gpu["parts"])), (total, total), "{gpu}");
        let trained = answer_with_driver(&stage, &format!("train --out {precision} {options}"));
        let memory = &trained["gpu_memory"];
        assert_eq!((&memory["planned_bytes"], &memory["peak_bytes"]), (&gpu["total_bytes"], &gpu["total_bytes"]));
    }
}

#[test]
fn stored_windows_stay_on_a_gpu_that_has_room_for_all_of_them() {
    let stage = Stage::new();
    stage.succeeds("synth windows.h5 --layout windows --samples 120 --steps 20 --features 5 --targets 2");
    let kept = |options: &str| {
        let plan = answer_with_driver(
            &stage,
            &format!("plan --data windows.h5 --device cuda:0 {SMALL} --set data.purge=0s {options}"),
        );
        plan["gpu"]["parts"][0].clone()
    };
    let bytes = 120 * 20 * 5 * 4;
    assert_eq!(kept(""), json!({ "name": "bars", "bytes": bytes }));
    assert_eq!(kept("--set training.precision=bf16")["bytes"], bytes / 2);
    assert_eq!(kept("--set gpu_optimization.use_chunk_loader=false")["bytes"], 0);
    assert_eq!(kept("--max-steps 7")["bytes"], 0, "fewer samples than there are");
    // Three quarters of what the run leaves would not hold them.
    let plan = "plan --data windows.h5 --device cuda:0 --set gpu_optimization.use_chunk_loader=false";
    let needed = answer_with_driver(&stage, &format!("{plan} {SMALL} --set data.purge=0s"))["gpu"]["total_bytes"]
        .as_u64()
        .unwrap();
    let driver = "--set gpu_optimization.driver_reserve_gb=0.001";
    let memory = |left: u64| format!("{driver} --memory-gb {}", (1_000_000 + needed + left) as f64 / 1e9);
    assert_eq!(kept(&memory(2 * bytes))["bytes"], bytes);
    assert_eq!(kept(&memory(10_000))["bytes"], 0);
    // They hold two chunks of two batches, of which each has 16 windows.
    assert_eq!(kept(&memory(40_000))["bytes"], 2 * 2 * 16 * 20 * 5 * 4);

    let train = format!("train --data windows.h5 {SMALL} --set data.purge=0s --max-steps 8 --device cuda:0");
    for (run, options) in [("kept", ""), ("by-batch", "--set gpu_optimization.use_chunk_loader=false")] {
        let (code, message) = with_driver(&stage, &format!("{train} --out {run} {options}"));
        assert_eq!(code, Some(0), "{run}: {message}");
    }
    assert_eq!(trained(&stage, "kept").0, trained(&stage, "by-batch").0);
}

#[test]
fn a_series_trains_a_gpu_that_is_too_small_for_it() {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    let options = format!("--data series.h5 --device cuda:0 {SMALL}");
    let bars = |options: &str| {
        let gpu = answer_with_driver(&stage, &format!("plan {options}"))["gpu"].clone();
        (gpu["parts"][0]["bytes"].as_u64().unwrap(), gpu["total_bytes"].as_u64().unwrap())
    };
    let (kept, total) = bars(&options);
    assert!(kept > 0);
    let driver = "--set gpu_optimization.driver_reserve_gb=0.001";
    let memory = |bytes: u64| format!("{driver} --memory-gb {}", (1_000_000 + bytes) as f64 / 1e9);
    assert_eq!(bars(&format!("{options} {}", memory(total))), (kept, total));
    assert_eq!(bars(&format!("{options} {}", memory(total - 1))).0, 0);
    let streamed = "--set data.residency=streamed --set data.cache_gb=0.0001";
    assert_eq!(bars(&format!("{options} {streamed}")).0, 0);
    for (run, settings) in [("kept", ""), ("streamed", streamed)] {
        let (code, message) = with_driver(&stage, &format!("train {options} --max-steps 8 --out {run} {settings}"));
        assert_eq!(code, Some(0), "{run}: {message}");
    }
    assert_eq!(trained(&stage, "kept"), trained(&stage, "streamed"));
    let weights = |run: &str| stage.read(&format!("{run}/checkpoints/step-00000008/model.safetensors"));
    assert!(weights("kept") == weights("streamed"), "other weights");
}

#[test]
fn edges_of_graphs_stay_on_a_gpu_where_a_run_takes_all_of_them() {
    let stage = Stage::new();
    write_shapes(&stage, 24);
    stage.succeeds("graph build shapes --kind tu --out shapes.mbg");
    let options = "--data shapes.mbg --device cuda:0 --set gpu_optimization.batch_size=8 --set model.hidden=4";
    let plan = |steps| answer_with_driver(&stage, &format!("plan {options} --max-steps {steps}"))["gpu"].clone();
    let bytes = |plan: &Value| {
        let parts = plan["parts"].as_array().unwrap();
        parts.iter().find(|part| part["name"] == "graphs").unwrap()["bytes"].as_u64().unwrap()
    };
    let (all, few) = (plan(6), plan(2));
    assert!(bytes(&all) > 0 && bytes(&few) == 0, "{all} {few}");
    // The setting that has them come batch by batch was said to have no effect.
    let by_batch = format!("plan {options} --max-steps 6 --set gpu_optimization.use_chunk_loader=false");
    let by_batch_on_cpu = by_batch.replace("cuda:0", "cpu");
    let no_effect = "gpu_optimization.use_chunk_loader has no effect on series, nor on graphs on the CPU";
    for (line, acts) in [(by_batch, true), (by_batch_on_cpu, false)] {
        let plan = answer_with_driver(&stage, &line);
        assert!(plan["notes"].to_string().contains(no_effect) != acts, "{plan}");
        assert!(!acts || bytes(&plan["gpu"]) == 0, "{plan}");
    }
    for (run, steps, plan) in [("kept", 6, all), ("by-batch", 2, few)] {
        let trained = answer_with_driver(&stage, &format!("train {options} --max-steps {steps} --out {run}"));
        let memory = &trained["gpu_memory"];
        assert_eq!(memory["planned_bytes"], plan["total_bytes"]);
        assert!(memory["peak_bytes"].as_u64() <= memory["planned_bytes"].as_u64(), "{memory}");
    }
    let (kept, by_batch) = (trained(&stage, "kept").0, trained(&stage, "by-batch").0);
    assert_eq!(kept[..2], by_batch, "the same losses");
}

#[test]
fn without_a_driver_the_loader_says_why() {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    stage.succeeds(&format!("train --data series.h5 --out trained --max-steps 1 {SMALL}"));
    for line in [
        &format!("{TRAIN} {SMALL} --device cuda:0"),
        "eval --run trained --device cuda:0",
        "predict --run trained --out p.csv --device cuda:0",
    ] {
        let output = stage.command(line).output().unwrap();
        if output.status.success() {
            skip(Requirement::NoCudaDriver, "the message without a driver");
            return;
        }
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{line}: {message}");
        assert!(message.contains("device `cuda:0`: no CUDA driver: libcuda.so.1: cannot open"), "{line}: {message}");
    }
}
