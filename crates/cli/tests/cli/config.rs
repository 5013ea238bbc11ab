//! Sources of settings, seen in the `config.yaml` that a run keeps.

use serde_json::json;

use crate::stage::{SMALL, Stage};

/// Trains a step with `arguments` and the environment `variables`; the run's configuration, one
/// line a setting.
fn saved(stage: &Stage, arguments: &str, variables: &[(&str, &str)]) -> String {
    let mut command = stage.command(&format!("train --data series.h5 --out run --max-steps 1 {arguments}"));
    command.envs(variables.iter().copied());
    assert_cmd::Command::from_std(command).assert().success();
    let saved = stage.text("run/config.yaml");
    std::fs::remove_dir_all(stage.path("run")).unwrap();
    saved
}

fn check_setting(saved: &str, section: &str, setting: &str) {
    let after = saved.split(&format!("{section}:\n")).nth(1).unwrap_or_else(|| panic!("no {section} in\n{saved}"));
    let mut settings = after.lines().take_while(|line| line.starts_with("  "));
    assert!(settings.any(|line| line.trim() == setting), "no `{setting}` under {section} in\n{saved}");
}

#[test]
fn the_file_yields_to_the_environment_and_that_to_the_arguments() {
    let stage = Stage::with_series();
    stage.write("c.yaml", "training:\n  lr: 0.5\n  epochs: 3\n  seed: 7\nmodel.hidden: 5\n");
    let environment = [("MEGABATCH_TRAINING__LR", "0.25"), ("MEGABATCH_TRAINING__EPOCHS", "2")];
    let from_file = saved(&stage, "--config c.yaml", &[]);
    let from_environment = saved(&stage, "--config c.yaml", &environment);
    let from_arguments = saved(&stage, "--config c.yaml --set training.lr=0.125", &environment);
    for (saved, lr, epochs) in [(&from_file, "0.5", 3), (&from_environment, "0.25", 2), (&from_arguments, "0.125", 2)] {
        check_setting(saved, "training", &format!("lr: {lr}"));
        check_setting(saved, "training", &format!("epochs: {epochs}"));
        check_setting(saved, "training", "seed: 7");
        check_setting(saved, "model", "hidden: 5");
        check_setting(saved, "model", "layers: 1");
    }
    assert!(!from_file.contains("0.125") && !from_arguments.contains("0.25"), "each setting has one value");
}

#[test]
fn settings_under_other_names_are_kept_under_their_own() {
    let stage = Stage::with_series();
    let aliases = "training:\n  batch_size: 24\n  use_amp: false\n  grad_clip: 0.5\n  gradient_accumulation_steps: 2\n\
                   data:\n  num_workers: 4\n  pin_memory: false\n  persistent_workers: false\n";
    stage.write("c.yaml", aliases);
    let saved = saved(&stage, "--config c.yaml", &[]);
    check_setting(&saved, "training", "clip_norm: 0.5");
    for setting in [
        "batch_size: 24",
        "use_amp: false",
        "gradient_accumulation_steps: 2",
        "num_workers: 4",
        "pin_memory: false",
        "persistent_workers: false",
    ] {
        check_setting(&saved, "gpu_optimization", setting);
    }
}

#[test]
fn a_saved_configuration_starts_the_same_run() {
    let stage = Stage::with_series();
    stage.succeeds(&format!("train --data series.h5 --out first --max-steps 3 {SMALL}"));
    stage.succeeds("train --config first/config.yaml --out second --max-steps 3");
    assert!(stage.checkpoint("first", 3) == stage.checkpoint("second", 3));
}

#[test]
fn the_environment_has_no_say_in_a_run_that_goes_on() {
    let stage = Stage::with_run();
    let before = stage.text("run/config.yaml");
    let mut command = stage.command("train --out run --resume --max-steps 10");
    command.env("MEGABATCH_TRAINING__LR", "5").env("MEGABATCH_NO_SUCH__KEY", "1");
    assert_cmd::Command::from_std(command).assert().success();
    assert_eq!(stage.text("run/config.yaml"), before.replace("max_steps: none", "max_steps: 10"));
    assert_eq!(stage.metrics("run", "step")[9]["lr"], 0.02);
}

#[test]
fn a_wrong_variable_is_named() {
    let stage = Stage::with_series();
    let mut command = stage.command("plan --data series.h5");
    command.env("MEGABATCH_MODEL__HIDEN", "4");
    let assert = assert_cmd::Command::from_std(command).assert().code(2).stdout("");
    let message = String::from_utf8_lossy(&assert.get_output().stderr);
    let expected = "environment variable MEGABATCH_MODEL__HIDEN: unknown key `model.hiden`; the nearest known key is `model.hidden`";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn the_page_of_all_keys_is_printed() {
    let page = Stage::new().said("config");
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
    assert_eq!(page, std::fs::read_to_string(committed).unwrap());
}

#[test]
fn all_keys_are_listed_for_programs() {
    let listed = Stage::new().succeeds("config");
    let settings = listed["settings"].as_array().unwrap();
    let page = listed["markdown"].as_str().unwrap();
    let rows = page.lines().take_while(|line| !line.starts_with("Aliases")).filter(|line| line.starts_with("| `"));
    assert_eq!(settings.len(), rows.count());
    let named = |name: &str| settings.iter().find(|setting| setting["name"] == name).unwrap();
    let hidden = json!({
        "name": "model.hidden",
        "default": "64",
        "values": { "type": "integer", "minimum": 1, "maximum": 65536 },
        "meaning": "Hidden units H of each LSTM.",
    });
    assert_eq!(*named("model.hidden"), hidden);
    assert_eq!(
        named("data.residency")["values"],
        json!({ "anyOf": [{ "enum": ["auto"] }, { "enum": ["resident", "streamed"] }] })
    );
    assert_eq!(named("output.dir")["default"], json!(null));
}
