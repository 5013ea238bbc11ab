//! Golden runs: weights, predictions, errors and plans of runs of every kind, and files of data, by
//! their hashes, which `golden.tsv` has.
//!
//! They show that a change of the structure changes no bit. Weights and predictions depend on the
//! instruction set, which is a column; on a machine with another one only the rest is compared. A
//! change that is meant to change bits writes the table anew:
//!
//! ```text
//! MEGABATCH_GOLDEN=write cargo test -p megabatch --test cli golden::
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use megabatch_test_support::{Requirement, skip};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_128;

use crate::graph_training::write_shapes;
use crate::stage::{Stage, without_targets};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/golden.tsv");

/// In the column of the instruction set where a number does not depend on it.
const ANY: &str = "any";

/// Numbers of threads that give the same bits. The first run of a case is compared with the table,
/// the others with it.
const THREADS: [usize; 3] = [2, 1, 5];

/// A model, its data and its settings.
struct Case {
    name: &'static str,
    data: &'static str,
    settings: &'static str,
}

const fn case(name: &'static str, data: &'static str, settings: &'static str) -> Case {
    Case { name, data, settings }
}

const FP16: &str = "training.precision=fp16 training.loss_scale_initial=64";
const GAT: &str = "model.graph=shares.mbg model.graph_hidden=4 model.graph_heads=2 gpu_optimization.batch_size=4";

const CASES: &[Case] = &[
    case("fp32", "series.h5", ""),
    case("bf16", "series.h5", "training.precision=bf16"),
    case("fp16", "series.h5", FP16),
    case("windows", "windows.h5", ""),
    case("windows in bf16", "windows.h5", "training.precision=bf16"),
    case("windows by batch", "windows.h5", "gpu_optimization.use_chunk_loader=false"),
    case("windows in chunks", "windows.h5", "gpu_optimization.chunk_size_gb=0.000015"),
    case("streamed", "series.h5", "data.residency=streamed data.cache_gb=0.0001"),
    case("dense", "series.h5", "training.loss_on=every_step training.run_length=6"),
    case("dense in bf16", "series.h5", "training.loss_on=every_step training.run_length=6 training.precision=bf16"),
    case("carried", "series.h5", "training.carry_state=true training.run_length=4"),
    case("carried, streamed", "series.h5", "training.carry_state=true data.residency=streamed data.cache_gb=0.0001"),
    case("dropout", "series.h5", "model.layers=2 model.dropout=0.3"),
    case("norm", "series.h5", "model.layers=2 model.layer_norm=true"),
    case("pooling", "series.h5", "model.pooling=attention"),
    case("pooling in bf16", "series.h5", "model.pooling=attention training.precision=bf16"),
    case("fusion", "series.h5", "model.fusion=attention"),
    case("accumulation", "series.h5", "gpu_optimization.gradient_accumulation_steps=3 gpu_optimization.batch_size=5"),
    case("checkpointing", "series.h5", "training.gradient_checkpointing=true"),
    case("sgd, huber", "series.h5", "training.optimizer=sgd training.loss=huber"),
    case("quantile", "series.h5", "training.loss=quantile"),
    case("wide", "series.h5", "model.hidden=80"),
    case("wide in bf16", "series.h5", "model.hidden=80 training.precision=bf16"),
    case("GRU", "series.h5", "model.cell=gru"),
    case("GRU in bf16", "series.h5", "model.cell=gru training.precision=bf16"),
    case("GRU, dense", "series.h5", "model.cell=gru training.loss_on=every_step training.run_length=6"),
    case("GRU, dropout and norm", "series.h5", GRU_LAYERS),
    case("GAT over shares", "shares.h5", GAT),
    case("GAT over shares, ranks", "shares.h5", GAT_RANKS),
    case("GAT over graphs", "shapes.mbg", "model.graph_hidden=4 model.graph_heads=2 training.loss=cross_entropy"),
];

const GRU_LAYERS: &str = "model.cell=gru model.layers=2 model.dropout=0.3 model.layer_norm=true \
    training.gradient_checkpointing=true";

const GAT_RANKS: &str = "model.graph=shares.mbg model.graph_hidden=4 model.graph_heads=2 model.graph_dropout=0.1 \
    gpu_optimization.batch_size=4 training.loss=rank_pairwise";

/// Numbers of one case by what they are; the instruction set is in front where they depend on it.
type Hashes = BTreeMap<(String, String, String), String>;

fn hash(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

/// Hash of an answer without times and places.
fn hash_of_answer(answer: &Value, keys: &[&str]) -> String {
    let kept: BTreeMap<&str, &Value> = keys.iter().map(|key| (*key, &answer[*key])).collect();
    hash(serde_json::to_string(&kept).unwrap().as_bytes())
}

/// The data of all cases, and their hashes.
fn with_data(found: &mut Hashes) -> Stage {
    let stage = Stage::new();
    stage.succeeds("synth series.h5 --samples 120 --timeframes M1:24,M5:7 --features 3 --targets 2");
    stage.succeeds("synth windows.h5 --layout windows --samples 90 --timeframes M1:18,M5:6 --features 3 --targets 2");
    stage.succeeds("synth shares --shares 6 --days 160");
    stage.succeeds(
        "ingest shares --out shares.h5 --timeframes D1:5 --features log_return --target log_return --horizon 2",
    );
    stage.succeeds("graph build shares --kind correlation --lookback 20 --min-observations 10 --k 2 --out shares.mbg");
    write_shapes(&stage, 24);
    stage.succeeds("graph build shapes --kind tu --out shapes.mbg");
    for file in ["series.h5", "windows.h5", "shares.mbg", "shapes.mbg"] {
        found.insert((ANY.to_owned(), file.to_owned(), "bytes".to_owned()), hash(&stage.read(file)));
    }
    stage
}

/// Hashes of a case with each number of threads, which must be equal.
fn run(stage: &Stage, case: &Case) -> Hashes {
    let settings: String = case.settings.split_whitespace().map(|setting| format!(" --set {setting}")).collect();
    let small = "--set model.hidden=6 --set gpu_optimization.batch_size=40 --set training.lr=0.02 \
        --set training.target_scaling=none";
    // A file of graphs has no times between which to purge.
    let purge = if case.data.ends_with(".mbg") { "" } else { "--set data.purge=0s" };
    let line = format!("--data {} --device cpu {small} {purge}{settings}", case.data);
    let mut first: Option<(Vec<u8>, String)> = None;
    let mut found = Hashes::new();
    for threads in THREADS {
        let name = format!("run-{threads}");
        let threads = format!("--set training.threads={threads}");
        // Half of the steps, and a resumed session.
        stage.succeeds(&format!("train --out {name} --max-steps 3 {line} {threads}"));
        stage.succeeds(&format!("train --out {name} --max-steps 6 --resume {threads}"));
        let weights = stage.read(&format!("{name}/checkpoints/step-00000006/model.safetensors"));
        stage.succeeds(&format!("predict --run {name} --checkpoint last --out predictions.csv"));
        let predictions = without_targets(&stage.text("predictions.csv"));
        match &first {
            Some(first) => assert!(*first == (weights, predictions), "{}: other bits with {threads}", case.name),
            None => {
                let isa = instruction_set(stage, &name);
                let mut keep = |isa: &str, what: &str, hash| {
                    found.insert((isa.to_owned(), case.name.to_owned(), what.to_owned()), hash);
                };
                let int8 = stage.run(&format!("predict --run {name} --checkpoint last --int8 --out int8.csv"));
                if int8.get_output().status.success() {
                    keep(&isa, "predictions in int8", hash(without_targets(&stage.text("int8.csv")).as_bytes()));
                }
                let errors = stage.succeeds(&format!("eval --run {name} --checkpoint last"));
                keep(
                    &isa,
                    "errors",
                    hash_of_answer(&errors, &["rmse", "mae", "direction_accuracy", "loss", "accuracy"]),
                );
                let plan = stage.succeeds(&format!("plan {line} --set training.threads=2 --memory-gb 1"));
                // Instructions for bf16 read operands that are held in 16 bits.
                let planned_for = if case.settings.contains("bf16") { isa.as_str() } else { ANY };
                keep(
                    planned_for,
                    "plan",
                    hash_of_answer(&plan["memory"], &["total_bytes", "phases", "step_phases", "tensors"]),
                );
                keep(&isa, "weights", hash(&weights));
                keep(&isa, "predictions", hash(predictions.as_bytes()));
                first = Some((weights, predictions));
            }
        }
        std::fs::remove_dir_all(stage.path(&name)).unwrap();
    }
    found
}

/// The instruction set that a run was computed with.
fn instruction_set(stage: &Stage, run: &str) -> String {
    let state: Value =
        serde_json::from_str(&stage.text(&format!("{run}/checkpoints/step-00000006/state.json"))).unwrap();
    state["arithmetic"]["instruction_set"].as_str().expect("a checkpoint names the instruction set").to_owned()
}

fn read_table() -> Hashes {
    let text = std::fs::read_to_string(TABLE).unwrap_or_default();
    let rows = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let [isa, case, what, hash] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("golden.tsv: {line}") };
        ((isa.to_owned(), case.to_owned(), what.to_owned()), hash.to_owned())
    });
    rows.collect()
}

fn write_table(rows: &Hashes) {
    let row =
        |((isa, case, what), hash): (&(String, String, String), &String)| format!("{isa}\t{case}\t{what}\t{hash}\n");
    let head = "# Instruction set, case, what is hashed, its XXH3 of 128 bits: golden.rs writes and compares them.\n";
    let text = head.to_owned() + &rows.iter().map(row).collect::<String>();
    std::fs::write(Path::new(TABLE), text).unwrap();
}

#[test]
fn runs_have_the_bits_of_the_table() {
    let mut found = Hashes::new();
    let stage = with_data(&mut found);
    for case in CASES {
        found.extend(run(&stage, case));
    }
    let mut table = read_table();
    if std::env::var("MEGABATCH_GOLDEN").is_ok_and(|mode| mode == "write") {
        // Rows of other instruction sets stay, those of cases that are no more go.
        table.retain(|(isa, case, _), _| isa != ANY && CASES.iter().any(|known| known.name == case));
        table.extend(found);
        write_table(&table);
        return;
    }
    let sets: Vec<&String> = table.keys().map(|(isa, ..)| isa).collect();
    let (mut wrong, mut is_other_machine) = (Vec::new(), false);
    for (key, hash) in &found {
        match table.get(key) {
            Some(expected) if expected == hash => {}
            None if !sets.contains(&&key.0) => is_other_machine = true,
            _ => wrong.push(format!("{}: {} ({})", key.1, key.2, key.0)),
        }
    }
    assert!(wrong.is_empty(), "other bits than golden.tsv's; it says how to write it anew:\n{}", wrong.join("\n"));
    if is_other_machine {
        skip(Requirement::Instructions, "weights and predictions of golden runs");
    }
}
