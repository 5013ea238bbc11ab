//! Common behaviour of every command: help with an example, completions, and JSON that programs
//! rely on.

use crate::stage::{Stage, numbers};

/// The commands that `--help` lists.
fn commands(stage: &Stage) -> Vec<String> {
    let help = stage.said("--help");
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // The text of a command goes on in lines that are further in.
    let names = listed.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_has_help_with_an_example() {
    let stage = Stage::new();
    let commands = commands(&stage);
    for expected in ["demo", "ingest", "synth", "inspect", "plan", "train", "eval", "predict", "export", "import"] {
        assert!(commands.iter().any(|command| command == expected), "{expected} is not in {commands:?}");
    }
    for command in commands {
        let help = stage.run(&format!("{command} --help")).success().stderr("");
        let help = String::from_utf8_lossy(&help.get_output().stdout).into_owned();
        assert!(help.contains("Example"), "{command}: {help}");
        assert!(help.contains(&format!("  megabatch {command}")), "{command}: {help}");
        assert!(help.contains("--json"), "{command}: {help}");
    }
}

#[test]
fn shells_complete_every_command() {
    let stage = Stage::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = stage.run(&format!("completions {shell}")).success().stderr("");
        let script = String::from_utf8_lossy(&script.get_output().stdout).into_owned();
        for command in commands(&stage) {
            assert!(script.contains(&command), "{shell} does not complete {command}");
        }
        assert!(script.contains("--max-steps") || script.contains("max-steps"), "{shell}");
    }
}

#[test]
fn a_command_line_that_is_not_understood_is_a_usage_error() {
    let stage = Stage::new();
    let lines = ["", "trian", "train --no-such-flag", "train --max-steps 0", "synth out.h5 --timeframes M7:3"];
    for line in lines.into_iter().chain(["leak series.h5 --samples 0"]) {
        let assert = stage.run(line).code(2).stdout("");
        assert!(!assert.get_output().stderr.is_empty(), "`{line}`");
    }
}

/// `--max-steps -5` was "invalid digit found in string".
#[test]
fn a_wrong_number_of_steps_is_told_with_what_is_expected() {
    for line in ["train --max-steps -5", "train --max-steps 0", "plan --max-steps ten"] {
        let assert = Stage::new().run(line).code(2).stdout("");
        let told = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(told.contains("expected a whole number of steps, 1 or more"), "{line}: {told}");
    }
}

#[test]
fn a_command_line_that_is_not_understood_is_an_error_in_json_too() {
    for line in ["train --no-such-flag", "train --max-steps 0", "predict --run run --samples 9..3 --out p.h5"] {
        for line in [format!("{line} --json"), format!("--json {line}")] {
            let assert = Stage::new().run(&line).code(2).stdout("");
            let error: serde_json::Value =
                serde_json::from_slice(&assert.get_output().stderr).expect("one JSON object");
            assert_eq!(error["exit_code"], 2, "{line}");
            assert!(!error["error"].as_str().unwrap().is_empty(), "{line}");
        }
    }
}

#[test]
fn bench_answers_with_the_keys_that_programs_read() {
    let line = "bench train --model single --batch 2 --features 2 --hidden 3 --threads 1 --steps 2";
    for line in [line.to_owned(), format!("{line} --shuffled"), format!("{line} --gradient-checkpointing")] {
        let answer = Stage::new().succeeds(&line);
        assert!(answer["samples_per_s"].as_f64().unwrap() > 0.0, "{answer}");
        if cfg!(target_os = "linux") {
            assert!(answer["peak_rss_bytes"].as_u64().unwrap() > answer["peak_allocated_bytes"].as_u64().unwrap());
        }
    }
}

#[test]
fn text_and_json_tell_the_same() {
    let stage = Stage::with_run();
    let text = stage.said("eval --run run --data series.h5");
    let answer = stage.succeeds("eval --run run --data series.h5");
    for rmse in numbers(&answer["rmse"]) {
        // Four significant digits.
        let decimals = (3 - rmse.log10().floor() as i64).max(0) as usize;
        assert!(text.contains(&format!("{rmse:.decimals$}")), "{rmse} is not in\n{text}");
    }
    assert!(text.contains("the best baseline (linear"), "{text}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let stage = Stage::new();
    let mut process = stage.command("config").stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(process.stdout.take());
    assert_eq!(process.wait().unwrap().code(), Some(0));
}
