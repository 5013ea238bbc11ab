//! Several processes, as far as a machine without MPI shows them. `cargo xtask mpi` starts real
//! ones.

use crate::stage::{SMALL, Stage};

#[test]
fn without_a_library_the_run_does_not_begin_and_the_package_is_named() {
    let stage = Stage::with_series();
    let train = format!("train --data series.h5 --out run {SMALL}");
    let [_, error] =
        stage.fails(&format!("{train} --distributed mpi --set distributed.library=libmpi-of-nobody.so"), 6);
    assert!(error.contains("libmpi-of-nobody.so: ") && error.contains("openmpi-bin"), "{error}");
    assert!(!stage.path("run").exists());
    stage.succeeds(&format!("{train} --set training.epochs=1"));
}

#[test]
fn a_plan_of_several_ranks_tells_blocks_and_messages() {
    let stage = Stage::with_series();
    let plan = "plan --data series.h5 --set model.hidden=4 --set gpu_optimization.batch_size=64";
    let (alone, two) = (stage.succeeds(plan), stage.succeeds(&format!("{plan} --ranks 2")));
    assert!(alone["distributed"].is_null());
    let parameters = two["parameters"].as_u64().unwrap();
    let distributed = &two["distributed"];
    assert_eq!(distributed["blocks"], 2);
    // The gradients once, with the sums of the loss.
    assert_eq!(distributed["sent_bytes_a_step"], 4 * parameters + 24);
    assert_eq!(distributed["held_bytes"], 4 * parameters);
    // To the last rank and back, by links that a step keeps busy no longer than its computation.
    assert_eq!(distributed["bytes_in_a_row_a_step"], 8 * parameters);
    assert_eq!(distributed["bottleneck_bits_a_sample"], (64 * parameters) as f64 / 32.0);
    let said = stage.said(&format!("{plan} --ranks 2"));
    let rate = format!("below {:.2} Mbit/s for every 1,000 samples a second", 2.0 * parameters as f64 / 1e3);
    assert!(said.contains(&rate), "{said}");
    let gradients = |plan: &serde_json::Value| plan["memory"]["gradients_bytes"].as_u64().unwrap();
    assert_eq!(gradients(&two), gradients(&alone) + 4 * parameters);
    // Of four blocks a rank on a CPU holds two, and the gradients of a GPU are one.
    let wide = "plan --data series.h5 --set model.hidden=4 --set gpu_optimization.batch_size=128";
    for (device, held_blocks) in [("cpu", 2), ("cuda:7", 1)] {
        let plan = |ranks: u64| stage.succeeds(&format!("{wide} --device {device} --ranks {ranks}"));
        let ([alone, two], held_bytes) = ([1, 2].map(plan), held_blocks * 4 * parameters);
        assert_eq!(two["distributed"]["held_bytes"], held_bytes, "{device}");
        assert_eq!(gradients(&two), gradients(&alone) + held_bytes, "{device}");
    }
    let three = stage.succeeds(&format!("{plan} --ranks 3"));
    assert_eq!(three["distributed"]["batch_size_for_all"], 96);
    let said = stage.said(&format!("{plan} --ranks 3"));
    assert!(said.contains("idle, which is refused; gpu_optimization.batch_size=96 gives every rank one"), "{said}");
    let said = stage.said(&format!("{plan} --ranks 3 --set distributed.idle_ranks=allow"));
    assert!(said.contains("1 of the ranks would be idle, which distributed.idle_ranks allows; "), "{said}");
}

/// `plan --ranks 2` planned what `train` by two processes refused.
#[test]
fn a_plan_of_several_ranks_refuses_what_they_do_not_train() {
    let stage = Stage::with_series();
    let folds = "a run of several folds is not supported by several processes yet";
    for (setting, refusal) in [
        ("training.carry_state=true", "training.carry_state is true, which is not supported by several ranks yet"),
        ("data.walk_forward=2", folds),
        ("data.folds=3 --set data.fold_number=all", folds),
    ] {
        let [message, _] =
            stage.fails(&format!("plan --data series.h5 --set model.hidden=4 --ranks 2 --set {setting}"), 2);
        assert!(message.contains(refusal) && message.contains("use `--distributed off`"), "{setting}: {message}");
    }
    stage.succeeds("plan --data series.h5 --set model.hidden=4 --set training.carry_state=true");
    let one = "--set data.walk_forward=2 --set data.walk_forward_number=1";
    stage.succeeds(&format!("plan --data series.h5 --set model.hidden=4 --ranks 2 {one}"));
}
