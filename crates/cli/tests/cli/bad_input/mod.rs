//! Bad input ends in a message that names the place and the remedy, in the exit code of its kind,
//! and in nothing written.

mod bars;
mod configuration;
mod data_files;
mod exports;
mod outputs;
mod runs;
mod splits;
mod values;

use crate::stage::{SERIES, SMALL, Stage};

struct Case {
    what: &'static str,
    /// Makes what the command finds.
    given: fn(&Stage),
    command: &'static str,
    exit_code: i32,
    /// Parts of the message, in any order.
    says: &'static [&'static str],
}

const USAGE: i32 = 2;
const DATA: i32 = 3;
const DEVICE: i32 = 6;

fn check(cases: &[Case]) {
    for Case { what, given, command, exit_code, says } in cases {
        let stage = Stage::new();
        given(&stage);
        let before = stage.contents();
        for message in stage.fails(command, *exit_code) {
            for part in *says {
                assert!(message.contains(part), "{what}: `{command}` says\n{message}\nand not\n{part}");
            }
        }
        assert!(stage.contents() == before, "{what}: `{command}` left something behind");
    }
}

fn make_nothing(_: &Stage) {}

fn make_series(stage: &Stage) {
    stage.succeeds(SERIES);
}

fn make_run(stage: &Stage) {
    make_series(stage);
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps 1 {SMALL}"));
}

fn make_bars(stage: &Stage) {
    stage.succeeds("synth bars.csv --days 1");
}

fn make_hdf5(stage: &Stage, fill: impl FnOnce(&hdf5::File)) {
    stage.with_hdf5("data.h5", |file| fill(&hdf5::File::create(file).unwrap()));
}

fn make_zeros(file: &hdf5::File, object: &str, shape: &[usize]) {
    file.new_dataset::<f32>().shape(shape).create(object).unwrap();
}
