//! Settings that may change between a run and its resumption.

use megabatch_nn::loss::Ascending;
use megabatch_nn::model::{AttentionKind, Cell, GraphConfig, Pooling, Readout, Timeframe};
use serde_json::Value;

use super::*;
use crate::config::optimizer::OptimizerKind;

fn settings() -> RunSettings {
    let timeframe = Timeframe { name: "M1".to_owned(), steps: 6, features: 3 };
    RunSettings {
        shape: SampleShape { timeframes: vec![timeframe], outputs: 2 },
        model: ModelConfig { hidden: 5, layers: 2, ..ModelConfig::default() },
        train_samples: 90,
        validation_samples: 10,
        seed: 11,
        batch_size: 8,
        gradient_accumulation_steps: 1,
        run_length: 8,
        last_batch: LastBatch::Keep,
        optimizer: OptimizerConfig::default(),
        lr_schedule: LrSchedule { kind: LrScheduleKind::Cosine, warmup_steps: 3, lr_min: 1e-5 },
        steps: 20,
        loss: Loss::Huber { delta: 1.5 },
        clip_norm: Some(1.0),
        dropout: 0.1,
        carry_state: true,
        loss_on: LossOn::EveryStep,
        precision: Precision::Fp32,
        tf32: false,
        autotune: Tuning::Deterministic,
        loss_scale: ScalerConfig::default(),
        is_weighted: false,
    }
}

type Change = (fn(&mut RunSettings), &'static str);

#[test]
fn what_gives_a_checkpoint_its_meaning_must_match() {
    let changes: [Change; 25] = [
        (
            |run| run.shape.outputs = 3,
            "the shape of the samples M1 [6, 3], targets [2], but this run has M1 [6, 3], targets [3];",
        ),
        (|run| run.model.hidden = 6, "`hidden` 5, but this run has 6;"),
        (|run| run.model.layers = 1, "`layers` 2, but this run has 1;"),
        (|run| run.model.bias = false, "`bias` true, but this run has false;"),
        (|run| run.train_samples = 91, "`split` (training samples) 90, but this run has 91;"),
        (
            |run| run.validation_samples = 0,
            "`split` or `validation_samples` (samples of a validation) 10, but this run has 0;",
        ),
        (|run| run.seed = 12, "`seed` 11, but this run has 12;"),
        (|run| run.batch_size = 4, "`batch_size` 8, but this run has 4;"),
        (|run| run.gradient_accumulation_steps = 2, "`gradient_accumulation_steps` 1, but this run has 2;"),
        (|run| run.run_length = 1, "`run_length` 8, but this run has 1;"),
        (|run| run.last_batch = LastBatch::Drop, "the treatment of the last batch keep, but this run has drop;"),
        (|run| run.optimizer.kind = OptimizerKind::Sgd, "`optimizer` adamw, but this run has sgd;"),
        (|run| run.optimizer.beta1 = 0.8, "`beta1` 0.9, but this run has 0.8;"),
        (|run| run.optimizer.beta2 = 0.9, "`beta2` 0.999, but this run has 0.9;"),
        (|run| run.optimizer.epsilon = 1e-6, "`epsilon` 0.00000001, but this run has 0.000001;"),
        (|run| run.loss = Loss::Mse, "`loss` huber, but this run has mse;"),
        (|run| run.loss = Loss::Huber { delta: 1.25 }, "`huber_delta` 1.5, but this run has 1.25;"),
        (|run| run.lr_schedule.kind = LrScheduleKind::Constant, "`lr_schedule` cosine, but this run has constant;"),
        (|run| run.lr_schedule.warmup_steps = 0, "`warmup_steps` 3, but this run has 0;"),
        (|run| run.lr_schedule.lr_min = 0.0, "`lr_min` 0.00001, but this run has 0;"),
        (
            |run| run.steps = 30,
            "`epochs` or `max_steps` (steps that the learning rate's curve is drawn over) 20, but this run has 30;",
        ),
        (|run| run.carry_state = false, "`carry_state` true, but this run has false;"),
        (|run| run.loss_on = LossOn::LastStep, "`loss_on` every_step, but this run has last_step;"),
        (|run| run.model.cell = Cell::Gru, "`cell` lstm, but this run has gru;"),
        // One is enough to refuse, whatever else has changed.
        (|run| (run.seed, run.optimizer.lr) = (0, 0.5), "`seed` 11, but this run has 0;"),
    ];
    for (change, expected) in changes {
        let mut now = settings();
        change(&mut now);
        let error = settings().compare(Path::new("step-00000010"), &now).unwrap_err().to_string();
        assert!(error.starts_with(&format!("step-00000010: made with {expected}")), "{error}");
    }
}

#[test]
fn the_shape_of_a_cycle_and_the_level_of_a_quantile_must_match() {
    let kind = LrScheduleKind::OneCycle(OneCycle::default());
    let cycle = |change: fn(&mut OneCycle), steps| {
        let mut cycle = OneCycle::default();
        change(&mut cycle);
        let lr_schedule = LrSchedule { kind: LrScheduleKind::OneCycle(cycle), ..LrSchedule::default() };
        RunSettings { lr_schedule, steps, loss: Loss::Quantile { levels: Ascending::one(0.9) }, ..settings() }
    };
    let before = cycle(|_| {}, 20);
    assert_eq!(before.lr_schedule.kind, kind);
    for (now, expected) in [
        (cycle(|cycle| cycle.pct_start = 0.5, 20), "`pct_start` 0.3, but this run has 0.5;"),
        (cycle(|cycle| cycle.div_factor = 10.0, 20), "`div_factor` 25, but this run has 10;"),
        (cycle(|cycle| cycle.final_div_factor = 10.0, 20), "`final_div_factor` 10000, but this run has 10;"),
        (cycle(|_| {}, 21), "`epochs` or `max_steps`"),
        (
            RunSettings { loss: Loss::Quantile { levels: Ascending::one(0.5) }, ..before.clone() },
            "`quantile` 0.9, but this run has 0.5;",
        ),
    ] {
        let error = before.compare(Path::new("step"), &now).unwrap_err().to_string();
        assert!(error.starts_with(&format!("step: made with {expected}")), "{error}");
    }
    let text = serde_json::to_string(&before).unwrap();
    assert_eq!(serde_json::from_str::<RunSettings>(&text).unwrap(), before);
}

#[test]
fn a_model_that_pools_otherwise_is_refused() {
    let mut before = settings();
    before.model.pooling = Pooling::Attention { heads: 5 };
    let refused = |before: &RunSettings, now: &RunSettings| before.compare(Path::new("step"), now).unwrap_err();
    let expected = "step: made with `pooling` attention of 5 heads, but this run has last;";
    assert!(refused(&before, &settings()).to_string().starts_with(expected));
    let one_head = RunSettings {
        model: ModelConfig { pooling: Pooling::Attention { heads: 1 }, ..before.model },
        ..before.clone()
    };
    assert!(refused(&before, &one_head).to_string().contains("but this run has attention of 1 heads;"));
}

#[test]
fn attention_that_scores_otherwise_is_refused() {
    let graph = |change: fn(&mut GraphConfig)| {
        let mut graph = GraphConfig::default();
        change(&mut graph);
        let model = ModelConfig { graph: Some(graph), readout: Some(Readout::Node), ..settings().model };
        RunSettings { model, ..settings() }
    };
    let before = graph(|_| {});
    let changes = [
        (graph(|graph| graph.attention = AttentionKind::GatV2), "`graph_attention` gat, but this run has gatv2;"),
        (graph(|graph| graph.heads = 2), "`graph_heads` 4, but this run has 2;"),
        (graph(|graph| graph.negative_slope = 0.1), "the negative slope of graph attention 0.2, but this run has 0.1;"),
    ];
    for (changed, expected) in changes {
        let error = before.compare(Path::new("step"), &changed).unwrap_err().to_string();
        assert!(error.starts_with(&format!("step: made with {expected}")), "{error}");
    }
    let mut now = before.clone();
    now.model.graph_edge_attributes = 2;
    let error = before.compare(Path::new("step"), &now).unwrap_err().to_string();
    assert!(error.starts_with("step: made with `graph_edge_attributes` 0, but this run has 2;"), "{error}");
}

#[test]
fn how_the_next_steps_are_made_may_be_changed_and_is_told() {
    let changes: [Change; 7] = [
        (|run| run.precision = Precision::Bf16, "`precision` is bf16, it was fp32"),
        (|run| run.tf32 = true, "`tf32` is true, it was false"),
        (|run| run.autotune = Tuning::Fast, "`autotune` is fast, it was deterministic"),
        (|run| run.optimizer.lr = 1e-4, "`lr` is 0.0001, it was 0.001"),
        (|run| run.optimizer.weight_decay = 0.0, "`weight_decay` is 0, it was 0.01"),
        (|run| run.clip_norm = None, "`clip_norm` is none, it was 1"),
        (|run| run.dropout = 0.25, "`dropout` is 0.25, it was 0.1"),
    ];
    for (change, expected) in changes {
        let mut now = settings();
        change(&mut now);
        let changed = settings().compare(Path::new("step"), &now).unwrap();
        assert_eq!(changed.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    }
    assert_eq!(settings().compare(Path::new("step"), &settings()).unwrap(), []);
}

#[test]
fn how_the_loss_scale_changes_is_told_where_there_is_one() {
    let with = |precision, growth_interval| {
        let loss_scale = ScalerConfig { growth_interval, floor: 2.0, ..ScalerConfig::default() };
        RunSettings { precision, loss_scale, ..settings() }
    };
    let told = |before: &RunSettings, now: &RunSettings| {
        let changed = before.compare(Path::new("step"), now).unwrap();
        changed.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let fp16 = with(Precision::Fp16, 10);
    let expected = "`loss_scale_growth_interval` is 20, it was 10";
    assert_eq!(told(&fp16, &with(Precision::Fp16, 20)), [expected]);
    let floor = "`loss_scale_floor` is 2, it was 1";
    assert_eq!(
        told(
            &RunSettings {
                loss_scale: ScalerConfig { growth_interval: 10, ..ScalerConfig::default() },
                ..fp16.clone()
            },
            &fp16
        ),
        [floor]
    );
    assert!(told(&with(Precision::Bf16, 10), &with(Precision::Bf16, 20)).is_empty());
    assert_eq!(told(&fp16, &with(Precision::Bf16, 20)), ["`precision` is bf16, it was fp16"]);
}

/// Changes of numbers and switches are refused or told. Words are listed, so that a new one shows.
#[test]
fn every_field_is_compared() {
    let model = ModelConfig { graph: Some(GraphConfig::default()), readout: Some(Readout::Node), ..settings().model };
    let before = RunSettings { model, precision: Precision::Fp16, ..settings() };
    let json = serde_json::to_value(&before).unwrap();
    let (mut pointers, mut words, mut ignored) = (Vec::new(), Vec::new(), Vec::new());
    add_leaves(&json, String::new(), &mut pointers);
    for pointer in pointers {
        let mut changed = json.clone();
        let leaf = changed.pointer_mut(&pointer).unwrap();
        *leaf = match &*leaf {
            Value::Bool(is_set) => Value::from(!is_set),
            Value::Number(number) => match number.as_u64() {
                Some(count) => Value::from(count + 1),
                None => Value::from(number.as_f64().unwrap() / 2.0 + 0.125),
            },
            _ => {
                words.push(pointer);
                continue;
            }
        };
        let now: RunSettings = serde_json::from_value(changed).unwrap();
        if before.compare(Path::new("step"), &now).is_ok_and(|changes| changes.is_empty()) {
            ignored.push(pointer);
        }
    }
    words.sort_unstable();
    assert_eq!(ignored, ["/model/outputs_per_target"], "the loss decides it");
    let expected = [
        "/last_batch",
        "/loss_on",
        "/lr_schedule/kind",
        "/model/cell",
        "/model/encoder",
        "/model/fusion",
        "/model/graph/activation",
        "/model/graph/kind",
        "/model/graph/output",
        "/model/pooling",
        "/model/readout",
        "/optimizer/kind",
        "/precision",
        "/shape/timeframes/0/name",
        "/tuning",
    ];
    assert_eq!(words, expected);
}

/// Adds the pointers of all values below `pointer` that have no values below them.
fn add_leaves(value: &Value, pointer: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| add_leaves(value, format!("{pointer}/{name}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(k, value)| add_leaves(value, format!("{pointer}/{k}"), found));
        }
        _ => found.push(pointer),
    }
}

#[test]
fn a_constant_rate_leaves_the_number_of_steps_and_the_lowest_rate_open() {
    let mut before = settings();
    before.lr_schedule.kind = LrScheduleKind::Constant;
    let mut now = RunSettings { steps: 30, ..before.clone() };
    now.lr_schedule.lr_min = 0.5;
    assert_eq!(before.compare(Path::new("step"), &now).unwrap(), []);
}

#[test]
fn checkpoints_keep_the_names_that_fields_had() {
    let model = ModelConfig { graph: Some(GraphConfig::default()), ..settings().model };
    let json = serde_json::to_value(RunSettings { model, ..settings() }).unwrap();
    for path in [
        "/accumulation_steps",
        "/tuning",
        "/model/edge_attributes",
        "/model/graph/kind",
        "/loss_scale/initial_scale",
        "/loss_scale/min_scale",
        "/loss_scale/max_scale",
    ] {
        assert!(json.pointer(path).is_some(), "{path} in {json}");
    }
}

/// Numbers whose shortest decimal form is easily misread by a bit.
#[test]
fn json_keeps_every_bit() {
    for number in [0.1 + 0.2, 1.0 / 3.0, 6.62607015e-34, 4.35e-7 / 3.0, 123_456_789.123_456_78] {
        let before = RunSettings { clip_norm: Some(number), ..settings() };
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<RunSettings>(&text).unwrap(), before);
    }
}
