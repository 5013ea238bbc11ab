//! Names that are no text, links and pipes in the place of files, and files that a killed process
//! left.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use assert_cmd::assert::Assert;

use crate::stage::{SMALL, Stage};

const NOT_TEXT: &[u8] = b"na\xffme";

fn no_text() -> &'static OsStr {
    OsStr::from_bytes(NOT_TEXT)
}

fn ended(command: Command) -> Assert {
    assert_cmd::Command::from_std(command).assert()
}

/// `megabatch BEFORE NAME AFTER`, where the name is no text and ends in `ending`.
fn with_name(stage: &Stage, before: &str, ending: &str, after: &str) -> Assert {
    let name = OsStr::from_bytes(&[NOT_TEXT, ending.as_bytes()].concat()).to_owned();
    let mut command = stage.command(before);
    command.arg(name).args(after.split_whitespace());
    ended(command)
}

// `X=$'\xff' megabatch config` and `megabatch config $'\xff' --json` ended with a panic (exit 101).
#[test]
fn the_environment_and_arguments_may_be_no_text() {
    let stage = Stage::new();
    let mut command = stage.command("config");
    command.env("X", no_text()).env(no_text(), "1");
    ended(command).success();
    let mut command = stage.command("plan");
    command.env("MEGABATCH_TRAINING__LR", no_text());
    let said = String::from_utf8(ended(command).code(2).get_output().stderr.clone()).unwrap();
    assert!(said.contains("MEGABATCH_TRAINING__LR in the environment is not UTF-8"), "{said}");
    with_name(&stage, "config", "", "--json").code(2);
}

// `megabatch synth $'na\xffme.csv' --json` wrote the file and panicked; so did every command that
// answers with a path.
#[test]
fn files_may_have_names_that_are_no_text() {
    let stage = Stage::new();
    with_name(&stage, "synth", ".csv", "--days 5 --json").success();
    let name = OsStr::from_bytes(b"na\xffme.csv");
    assert!(stage.path("").join(name).exists());
    for json in ["", " --json"] {
        let said = with_name(&stage, "ingest", ".csv", &format!("--out series.h5 --symbol EURUSD{json}")).code(2);
        let said = String::from_utf8(said.get_output().stderr.clone()).unwrap();
        assert!(said.contains("this path is not UTF-8, and the account of its bars"), "{said}");
    }
    assert!(!stage.path("series.h5").exists());
    let stage = Stage::with_series();
    let said = with_name(&stage, &format!("train --data series.h5 --max-steps 1 {SMALL} --out"), "", "").code(2);
    let said = String::from_utf8(said.get_output().stderr.clone()).unwrap();
    assert!(said.contains("not UTF-8, and the run's config.yaml"), "{said}");
    with_name(&stage, "train --data series.h5 --out run --resume --data", ".h5", "--json").code(2);
    with_name(&stage, "inspect series.h5 --dump 0..3", ".safetensors", "--json").success();
    with_name(&stage, "inspect", ".h5", "--json").code(3);
}

// `megabatch ingest <(cat EURUSD.csv) --out series.h5` kept the hash of nothing as the hash of its
// bars.
#[test]
fn bars_are_not_taken_from_a_pipe() {
    let stage = Stage::new();
    stage.succeeds("synth EURUSD.csv --days 9");
    let command = stage.command("ingest /dev/stdin --symbol EURUSD --out series.h5");
    let bars = stage.text("EURUSD.csv");
    let ended = assert_cmd::Command::from_std(command).write_stdin(bars).assert().code(3);
    let said = String::from_utf8(ended.get_output().stderr.clone()).unwrap();
    assert!(said.contains("expected a file of bars, found a pipe"), "{said}");
    assert!(!stage.path("series.h5").exists());
}

// `ln -s there.h5 link.h5; megabatch ingest EURUSD.csv --out link.h5` made a file of the link; `ln
// -s precious .out.h5.convert; megabatch convert series.h5 out.h5` overwrote what the link led to.
#[test]
fn an_output_is_written_through_a_link_and_nothing_else_is() {
    let stage = Stage::with_series();
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, stage.path(name)).unwrap();
    stage.write("there.h5", "old");
    stage.write("precious", "kept");
    link("there.h5", "link.h5");
    link("absent.h5", "nowhere.h5");
    stage.succeeds("convert series.h5 link.h5 --chunk-rows 10");
    assert!(stage.path("link.h5").is_symlink());
    stage.succeeds("inspect there.h5");
    let [said, _] = stage.fails("convert series.h5 nowhere.h5 --chunk-rows 10", 2);
    assert!(said.contains("a symbolic link that leads nowhere"), "{said}");
    link("precious", ".out.h5.convert");
    let [said, _] = stage.fails("convert series.h5 out.h5 --chunk-rows 10", 2);
    assert!(said.contains("is not a file of this program; remove it"), "{said}");
    assert_eq!(stage.text("precious"), "kept");
}

// A `kill -9` during `megabatch ingest … --out series.h5` left `.series.h5.Xy3kQ9.tmp` for ever.
#[test]
fn what_a_killed_process_left_goes_with_the_next_write() {
    let stage = Stage::new();
    stage.succeeds("synth EURUSD.csv --days 9");
    stage.write(".series.h5.Xy3kQ9.tmp", "half of it");
    stage.write(".other.h5.Xy3kQ9.tmp", "of another file");
    stage.succeeds("ingest EURUSD.csv --out series.h5 --timeframes M1:20,M5:6");
    assert!(!stage.path(".series.h5.Xy3kQ9.tmp").exists() && stage.path(".other.h5.Xy3kQ9.tmp").exists());
}

// `megabatch inspect` printed "error: /targets[7][1]: …" and ended with 0.
#[test]
fn inspect_ends_with_the_exit_code_of_wrong_data_where_it_finds_an_error() {
    let stage = Stage::with_series();
    stage.run("inspect series.h5").success();
    stage.with_hdf5("series.h5", |path| {
        let file = hdf5::File::open_rw(path).unwrap();
        let targets = file.dataset("targets").unwrap();
        let mut values = targets.read_raw::<f32>().unwrap();
        values[7] = f32::INFINITY;
        targets.write_raw(&values).unwrap();
    });
    let said = stage.run("inspect series.h5").code(3);
    let said = String::from_utf8(said.get_output().stdout.clone()).unwrap();
    assert!(said.contains("error: "), "{said}");
}

// `megabatch graph inspect .` ended with "Is a directory (os error 21)" and exit code 1, `graph
// build --threshold 2` with "found Some(2.0)", and `inspect graphs.mbg` with "expected an HDF5
// file".
#[test]
fn folders_and_graphs_in_the_place_of_data_are_named() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("folder.mbg")).unwrap();
    std::fs::create_dir(stage.path("folder")).unwrap();
    for line in ["graph inspect folder.mbg", "graph verify folder"] {
        let [said, _] = stage.fails(line, 3);
        assert!(said.contains("expected a file, found a folder"), "{line}: {said}");
    }
    stage.write("graphs.mbg", "");
    for line in ["inspect graphs.mbg", "bench load graphs.mbg"] {
        let [said, _] = stage.fails(line, 3);
        assert!(said.contains("megabatch graph inspect graphs.mbg"), "{line}: {said}");
    }
    stage.succeeds("synth shares --shares 5 --days 120");
    let [said, _] = stage.fails("graph build shares --kind correlation --threshold 2 --out g.mbg", 2);
    assert!(said.contains("from -1 to 1, found 2"), "{said}");
}
