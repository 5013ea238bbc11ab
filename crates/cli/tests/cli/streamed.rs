//! Series that do not fit in memory: read as batches need them, to the same weights and errors.

use serde_json::Value;

use crate::stage::{SMALL, Stage};

/// Shares of one file, and windows that overlap.
fn shares() -> Stage {
    let stage = Stage::new();
    stage.succeeds("synth shares --shares 4 --days 400");
    stage.succeeds(
        "ingest shares --out shares.h5 --timeframes D1:8 --features log_return,range --target log_return --horizon 2",
    );
    stage
}

/// A series of two timeframes that is stored as `storage` says.
fn series(storage: &str) -> Stage {
    let stage = Stage::new();
    stage.succeeds(&format!(
        "synth series.h5 --samples 3000 --timeframes M1:6,M5:4 --features 5 --targets 3 --compression {storage}"
    ));
    stage
}

fn weights(stage: &Stage, run: &str) -> Vec<Vec<u8>> {
    let checkpoints = stage.contents_of(&format!("{run}/checkpoints"));
    let weights =
        checkpoints.into_iter().filter(|(path, _)| path.extension().is_some_and(|ending| ending == "safetensors"));
    weights.map(|(_, bytes)| bytes).collect()
}

/// Errors of the run and of its `eval`, and predictions.
fn results(stage: &Stage, run: &str) -> (Value, Value, String) {
    let evaluation = serde_json::from_str(&stage.text(&format!("{run}/evaluation.json"))).unwrap();
    let evaluated = stage.succeeds(&format!("eval --run {run}"));
    stage.succeeds(&format!("predict --run {run} --out {run}.csv"));
    (evaluation, evaluated, stage.text(&format!("{run}.csv")))
}

#[test]
fn a_streamed_series_gives_the_weights_the_errors_and_the_predictions_of_a_resident_one() {
    let cases = [
        (series("contiguous"), "series.h5", "training.run_length=16"),
        (series("contiguous"), "series.h5", "training.run_length=1"),
        (series("gzip --chunk-rows 100"), "series.h5", "training.run_length=7"),
        (shares(), "shares.h5", "training.run_length=16"),
        (series("contiguous"), "series.h5", "training.carry_state=true --set model.pooling=attention"),
        (series("gzip --chunk-rows 100"), "series.h5", "training.loss_on=every_step --set training.run_length=8"),
        (shares(), "shares.h5", "training.carry_state=true --set training.validation_samples=100"),
        (shares(), "shares.h5", "training.loss_on=every_step --set training.carry_state=true"),
    ];
    for (stage, data, more) in cases {
        let train = |run: &str, how: &str| {
            stage.succeeds(&format!("train --data {data} --out {run} {SMALL} --max-steps 40 --set {more} {how}"));
            (weights(&stage, run), results(&stage, run))
        };
        let resident = train("resident", "--set data.residency=resident");
        assert!(!resident.0.is_empty());
        for cache in ["0.000001", "0.0001", "auto"] {
            let run = format!("streamed-{cache}");
            let streamed = train(&run, &format!("--set data.residency=streamed --set data.cache_gb={cache}"));
            assert!(streamed == resident, "{data} {more}: another model with a cache of {cache}");
            let plan: Value = serde_json::from_str(&stage.text(&format!("{run}/plan.json"))).unwrap();
            assert_eq!(plan["data"]["residence"], "streamed");
        }
    }
}

/// A run that streams did not read these rows, and ended with 0.
#[test]
fn a_streamed_series_is_refused_for_a_list_for_which_a_resident_one_is() {
    let stage = shares();
    let whole = stage.read("shares.h5");
    for object in ["samples/reach_time", "samples/label_end_time"] {
        std::fs::write(stage.path("shares.h5"), &whole).unwrap();
        stage.damage("shares.h5", |draft| {
            let file = hdf5::File::open_rw(draft).unwrap();
            let dataset = file.dataset(object).unwrap();
            let mut times = dataset.read_raw::<i64>().unwrap();
            *times.last_mut().unwrap() += 1;
            dataset.write_raw(&times).unwrap();
        });
        for residency in ["resident", "streamed"] {
            let settings = format!("{SMALL} --set data.purge=0s --set data.residency={residency}");
            let [message, _] = stage.fails(&format!("train --data shares.h5 --out run --max-steps 2 {settings}"), 3);
            assert!(message.contains(&format!("/{object}[")), "{residency}: {message}");
        }
    }
}

#[test]
fn a_plan_streams_what_does_not_fit_and_says_so() {
    let stage = series("contiguous");
    let plan = |memory_mb: f64, more: &str| {
        let line = format!("plan --data series.h5 --device cpu --memory-gb {} {SMALL} {more}", memory_mb / 1e3);
        stage.succeeds(&line)
    };
    let number = |plan: &Value, section: &str, name: &str| {
        plan[section][name].as_u64().unwrap_or_else(|| panic!("no {section}.{name} in {plan}"))
    };
    let roomy = plan(100.0, "");
    assert_eq!(roomy["data"]["residence"], "resident");
    // One byte less than a resident series needs.
    let needed = number(&roomy, "memory", "total_bytes");
    assert_eq!(plan((needed as f64 + 0.5) / 1e6, "")["data"]["residence"], "resident");
    let tight = plan((needed as f64 - 0.5) / 1e6, "");
    assert_eq!(tight["data"]["residence"], "streamed");
    assert!(number(&tight, "memory", "total_bytes") < needed);
    let cached = plan(100.0, "--set data.residency=streamed --set data.cache_gb=0.00005");
    // Whole blocks of each table.
    let cache_bytes = number(&cached, "data", "data_bytes");
    assert!((45_000..=50_000).contains(&cache_bytes), "{cache_bytes}");
    let reads = &cached["data"]["streamed"];
    let [step, epoch] = ["step_bytes", "epoch_bytes"].map(|key| reads[key].as_u64().unwrap());
    // 131 steps of 16 samples; each reads a block of 4096 bytes or two of M1 and of the targets.
    assert!(epoch / step == 131 || epoch / step == 130, "{reads}");
    assert!((2 * 4096..8 * 4096).contains(&step), "{reads}");
    let listed = stage.said(&format!(
        "plan --data series.h5 --device cpu {SMALL} --set data.residency=streamed --set data.cache_gb=0.00005"
    ));
    // Three significant digits.
    let kilobytes = cache_bytes as f64 / 1e3;
    let decimals = (2 - kilobytes.log10().floor() as i64).max(0) as usize;
    let cache = format!("streamed through a cache of {kilobytes:.decimals$} kB");
    assert!(listed.contains(&cache), "{listed}");
    assert!(listed.contains(" an epoch: 10 steps a second take "), "{listed}");
}

/// Chunks of a compressed file that hold far more than a batch needs are named beside those that do
/// not, and the command makes them.
#[test]
fn a_plan_names_the_chunks_that_suit_a_compressed_series() {
    let stage = series("gzip --chunk-rows 2048");
    let line = |data: &str| {
        format!("plan --data {data} --device cpu {SMALL} --set data.residency=streamed --set data.cache_gb=0.000001")
    };
    let plan = stage.succeeds(&line("series.h5"));
    let chunks = &plan["data"]["streamed"]["chunks"];
    let number = |name: &str| chunks[name].as_u64().unwrap_or_else(|| panic!("no {name} in {chunks}"));
    assert_eq!(number("chunk_rows_now"), 2048);
    assert!((16..=512).contains(&number("chunk_rows")), "{chunks}");
    assert!(2 * number("epoch_decoded_bytes") < number("epoch_decoded_bytes_now"), "{chunks}");
    let said = stage.said(&line("series.h5"));
    assert!(said.contains("\nchunks    an epoch decodes "), "{said}");
    let command = chunks["command"].as_str().unwrap();
    assert!(said.contains(&format!("`{command}`")), "{said}");
    stage.succeeds(command.strip_prefix("megabatch ").unwrap());
    let better = stage.succeeds(&line("series.better.h5"));
    assert!(better["data"]["streamed"]["chunks"].is_null(), "{better}");
    assert_eq!(better["data"]["fingerprint"], plan["data"]["fingerprint"]);
    assert!(better["data"]["streamed"]["step_bytes"].as_u64() < plan["data"]["streamed"]["step_bytes"].as_u64());
}

#[test]
fn convert_takes_the_chunks_that_a_plan_names() {
    let stage = series("gzip --chunk-rows 2048");
    stage.succeeds("convert series.h5 windows.h5 --to windows");
    let with_residency = |line: &str, residency: &str| {
        let mut command = stage.command(line);
        let settings = [("DATA__RESIDENCY", residency), ("DATA__CACHE_GB", "0.000001"), ("MODEL__HIDDEN", "4")];
        command.envs(settings.map(|(key, value)| (format!("MEGABATCH_{key}"), value)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let plan = with_residency("--json plan --data series.h5 --device cpu", "streamed");
    let rows = &plan["data"]["streamed"]["chunks"]["chunk_rows"];
    assert!(rows.is_u64(), "{plan}");
    let convert = "--json convert series.h5 auto.h5 --chunk-rows auto";
    let done = with_residency(convert, "streamed");
    assert_eq!((&done["planned_chunk_rows"], &done["to"]), (rows, &"series".into()));
    let mut command = stage.command(&format!("convert series.h5 stated.h5 --chunk-rows {rows}"));
    assert!(command.output().unwrap().status.success());
    assert!(stage.read("auto.h5") == stage.read("stated.h5"));
    assert!(stage.read("auto.h5") != stage.read("series.h5"));
    // Of a series in memory a plan names none.
    assert_eq!(with_residency(convert, "resident")["planned_chunk_rows"], Value::Null);
    assert!(
        stage
            .said("convert series.h5 auto.h5 --chunk-rows auto")
            .contains("chunks have as many rows as those of the input")
    );
    for line in
        ["convert windows.h5 out.h5 --chunk-rows auto", "convert series.h5 out.h5 --to windows --chunk-rows auto"]
    {
        let [message, _] = stage.fails(line, 2);
        assert!(message.contains("chunk_rows is auto: expected a series that stays one"), "{message}");
    }
}

/// A plan of a run whose carried states do not fit says how many bytes they take.
#[test]
fn carried_states_are_in_the_plan_of_a_streamed_series() {
    let stage = series("contiguous");
    let carried = "--set data.residency=streamed --set training.carry_state=true --set model.hidden=64";
    let plan = stage.succeeds(&format!("plan --data series.h5 --device cpu {SMALL} {carried}"));
    assert_eq!(plan["data"]["residence"], "streamed");
    let states =
        plan["memory"]["tensors"].as_array().unwrap().iter().find(|tensor| tensor["part"] == "carried").unwrap();
    assert!(states["bytes"].as_u64().unwrap() > 2100 * 2 * 64 * 4, "{states}");
    let [message, _] =
        stage.fails(&format!("plan --data series.h5 --device cpu {SMALL} {carried} --memory-gb 0.001"), 4);
    assert!(message.contains("; the carried states alone take ") && message.contains("carry_state=false"), "{message}");
}

/// Graphs over instruments read bars and targets of the nodes of each batch.
#[test]
fn graphs_over_instruments_stream() {
    let stage = shares();
    stage.succeeds("graph build shares --kind correlation --lookback 20 --min-observations 10 --k 2 --out shares.mbg");
    for (n, more) in ["", "--set training.loss=rank_listwise --set training.run_length=3"].into_iter().enumerate() {
        let train = |run: &str, how: &str| {
            let data = format!("--data shares.h5 --device cpu --set model.graph=shares.mbg {SMALL} {more}");
            stage.succeeds(&format!("train {data} --out {run} --max-steps 12 {how}"));
            (weights(&stage, run), results(&stage, run))
        };
        let resident = train(&format!("resident-{n}"), "--set data.residency=resident");
        assert!(!resident.0.is_empty());
        for cache in ["0.000001", "auto"] {
            let run = format!("streamed-{n}-{cache}");
            let streamed = train(&run, &format!("--set data.residency=streamed --set data.cache_gb={cache}"));
            assert!(streamed == resident, "{more}: another model with a cache of {cache}");
            let plan: Value = serde_json::from_str(&stage.text(&format!("{run}/plan.json"))).unwrap();
            assert_eq!(plan["data"]["residence"], "streamed");
            assert!(plan["data"]["streamed"]["epoch_bytes"].as_u64().is_some(), "{plan}");
        }
    }
}

#[test]
fn a_run_goes_on_whether_its_series_is_streamed_or_resident() {
    let stage = series("contiguous");
    let line = |run: &str, steps: usize, how: &str| {
        stage.succeeds(&format!("train --out {run} --max-steps {steps} --set data.residency={how} {SMALL}"));
    };
    let begin = |run: &str, steps: usize, how: &str| line(&format!("{run} --data series.h5"), steps, how);
    begin("whole", 24, "resident");
    begin("run", 8, "resident");
    line("run --resume", 16, "streamed");
    line("run --resume", 24, "resident");
    assert_eq!(stage.checkpoint("run", 24), stage.checkpoint("whole", 24));
}
