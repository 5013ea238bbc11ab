//! The trainer's settings from the user's.

use megabatch_amp::{Precision, ScalerConfig};
use megabatch_nn::batch::LossOn;
use megabatch_nn::loss::{Ascending, Classes, Loss};
use megabatch_nn::model::{
    AttentionKind, Cell, Encoder, Fusion, GraphActivation, GraphConfig, GraphOutput, ModelConfig, Pooling, Readout,
};
use megabatch_nn_cuda::Tuning;
use megabatch_trainer as trainer;
use megabatch_trainer::{
    Divergence, EarlyStopping, LastBatch, LrSchedule, LrScheduleKind, OneCycle, OptimizerConfig, OptimizerKind,
};

use crate::adapters::data::Data;
use crate::adapters::neighbours::Neighbours;
use crate::config::Config;
use crate::error::Error;

/// The trainer's configuration for `data`. `neighbours` chooses the order, if given.
///
/// # Errors
/// As [`loss`].
pub(crate) fn training_config(
    config: &Config,
    data: &Data,
    neighbours: Option<Neighbours>,
) -> crate::error::Result<trainer::Config> {
    let loss = loss(config, data.samples().shape().outputs)?;
    let kind = match config.text("training.optimizer") {
        Some("sgd") => OptimizerKind::Sgd,
        Some("adam") => OptimizerKind::Adam,
        _ => OptimizerKind::AdamW,
    };
    Ok(trainer::Config {
        model: model_config(config, data).for_loss(loss),
        dropout: config.number("model.dropout") as f32,
        carry_state: config.flag("training.carry_state"),
        loss_on: loss_on(config),
        gradient_checkpointing: config.flag("training.gradient_checkpointing"),
        precision: precision(config),
        tf32: config.flag("training.tf32"),
        tuning: tuning(config),
        loss_scale: loss_scale(config),
        profile: config.flag("training.profile"),
        lr_schedule: LrSchedule {
            kind: match config.text("training.lr_schedule") {
                Some("cosine") => LrScheduleKind::Cosine,
                Some("one_cycle") => LrScheduleKind::OneCycle(OneCycle {
                    pct_start: config.number("training.pct_start"),
                    div_factor: config.number("training.div_factor"),
                    final_div_factor: config.number("training.final_div_factor"),
                }),
                _ => LrScheduleKind::Constant,
            },
            warmup_steps: config.count("training.warmup_steps") as u64,
            lr_min: config.number("training.lr_min"),
        },
        early_stopping: config.optional_count("training.early_stopping").map(|patience| EarlyStopping {
            patience: u32::try_from(patience).unwrap_or(u32::MAX),
            min_delta: config.number("training.early_stopping_min_delta"),
        }),
        divergence: Divergence {
            rollbacks_max: match config.text("training.on_nan") {
                Some("stop") => 0,
                _ => config.count("training.max_rollbacks") as u32,
            },
            loss_spike_factor: config.optional_number("training.loss_spike_factor"),
        },
        optimizer: OptimizerConfig {
            kind,
            lr: config.number("training.lr"),
            weight_decay: config.number("training.weight_decay"),
            beta1: config.number("training.beta1"),
            beta2: config.number("training.beta2"),
            epsilon: config.number("training.epsilon"),
        },
        clip_norm: config.optional_number("training.clip_norm"),
        loss,
        epochs: config.count("training.epochs") as u64,
        max_steps: config.optional_count("training.max_steps").map(|steps| steps as u64),
        batch_size: config.count("gpu_optimization.batch_size").min(data.units().max(1)),
        accumulation_steps: config.count("gpu_optimization.gradient_accumulation_steps"),
        run_length: match neighbours {
            Some(Neighbours::Apart) => Some(1),
            _ => config.optional_count("training.run_length"),
        },
        last_batch: LastBatch::Keep,
        seed: config.count("training.seed") as u64,
        threads: threads(config),
        validate_every_steps: config.optional_count("training.validate_every_steps").map(|steps| steps as u64),
        validation_samples: config.validation_samples(),
    })
}

/// True if the data choose the order. In dense training they do not: its runs are computed as a
/// whole.
pub(crate) fn data_choose_order(config: &Config) -> bool {
    config.text("training.run_length") == Some("auto") && loss_on(config) == LossOn::LastStep
}

/// True if the spread of targets decides the temperature of ranks.
pub(crate) fn targets_choose_temperature(config: &Config) -> bool {
    config.text("training.loss") == Some("rank_listwise") && config.text("training.rank_temperature") == Some("auto")
}

/// Refuses mixed precision and single precision at once.
pub(crate) fn check_precision(config: &Config) -> crate::error::Result<()> {
    if config.flag("gpu_optimization.use_amp") && precision(config) == Precision::Fp32 {
        return Err(Error::usage(
            "gpu_optimization.use_amp is true and training.precision is fp32: they contradict each other; keep one",
        ));
    }
    Ok(())
}

/// Precision of products: `training.precision`, or fp16 for `gpu_optimization.use_amp`.
pub(crate) fn precision(config: &Config) -> Precision {
    match config.text("training.precision") {
        Some("fp32") => Precision::Fp32,
        Some("bf16" | "bf16-mixed") => Precision::Bf16,
        Some("fp16" | "16-mixed") => Precision::Fp16,
        _ if config.flag("gpu_optimization.use_amp") => Precision::Fp16,
        _ => Precision::Fp32,
    }
}

fn tuning(config: &Config) -> Tuning {
    match config.text("training.autotune") {
        Some("off") => Tuning::Off,
        Some("fast") => Tuning::Fast,
        _ => Tuning::Deterministic,
    }
}

fn loss_scale(config: &Config) -> ScalerConfig {
    let count = |path| u32::try_from(config.count(path)).unwrap_or(u32::MAX);
    ScalerConfig {
        initial_scale: config.number("training.loss_scale_initial") as f32,
        growth_factor: config.number("training.loss_scale_growth_factor"),
        backoff_factor: config.number("training.loss_scale_backoff_factor"),
        growth_interval: count("training.loss_scale_growth_interval"),
        hysteresis: count("training.loss_scale_hysteresis"),
        min_scale: config.number("training.loss_scale_floor") as f32,
        max_scale: config.number("training.loss_scale_ceiling") as f32,
    }
}

fn loss_on(config: &Config) -> LossOn {
    match config.text("training.loss_on") {
        Some("every_step") => LossOn::EveryStep,
        _ => LossOn::LastStep,
    }
}

/// True if predictions are those of one pass over each segment.
pub(crate) fn streams(config: &Config) -> bool {
    config.flag("training.carry_state") || loss_on(config) == LossOn::EveryStep
}

/// The loss of samples with this number of targets, in training, validation and evaluation.
///
/// # Errors
/// A usage failure for tasks that are not groups of these targets.
pub(crate) fn loss(config: &Config, targets: usize) -> crate::error::Result<Loss> {
    if let Some(tasks) = config.tasks() {
        return Ok(Loss::Tasks(tasks.resolve(targets)?));
    }
    Ok(match config.text("training.loss") {
        Some("huber") => Loss::Huber { delta: config.number("training.huber_delta") },
        Some("quantile") => Loss::Quantile { levels: quantiles(config) },
        Some("cross_entropy") => classes(config).map_or(Loss::CrossEntropy, Loss::Classes),
        Some("rank_pairwise") => Loss::RankPairwise,
        Some("rank_listwise") => {
            // What `auto` stands for is settled when a run begins, see `TrainingSetup::open`.
            let temperature = config.optional_number("training.rank_temperature").unwrap_or(1.0);
            Loss::RankListwise { temperature }
        }
        Some("mse") => Loss::Mse,
        // `auto` is settled by the data before a run begins.
        Some("auto") | None => Loss::Mse,
        Some(other) => unreachable!("{other} is a choice of training.loss that no loss is made of"),
    })
}

/// The classes that targets name, if they do.
pub(crate) fn classes(config: &Config) -> Option<Classes> {
    let thresholds = config.optional_numbers("training.thresholds").map(Classes::Thresholds);
    thresholds.or(config.optional_count("training.classes").map(Classes::Labels))
}

/// Refuses two ways at once in which targets name their classes.
pub(crate) fn check_classes(config: &Config) -> crate::error::Result<()> {
    let labels = config.optional_count("training.classes");
    match (config.optional_numbers("training.thresholds"), labels) {
        (Some(thresholds), Some(labels)) => Err(Error::usage(format!(
            "training.thresholds is {thresholds} and training.classes is {labels}: targets are numbers that thresholds make classes of, or classes \
             already; keep one"
        ))),
        _ => Ok(()),
    }
}

/// The quantiles that are predicted.
pub(crate) fn quantiles(config: &Config) -> Ascending {
    config.optional_numbers("training.quantile").expect("the key has a default, and no word")
}

/// The model for `data`.
fn model_config(config: &Config, data: &Data) -> ModelConfig {
    let lstms = lstm_config(config);
    let Some(graphs) = data.samples().graphs() else { return lstms };
    let (encoder, readout) = data.model_of_graphs();
    let graph = (config.count("model.graph_layers") > 0).then(|| graph_config(config));
    ModelConfig {
        encoder: match config.text("model.encoder") {
            Some("lstm") => Encoder::Lstm,
            Some("none") => Encoder::LastBar,
            _ => encoder,
        },
        edge_attributes: if graph.is_some() { graphs.edge_attributes() } else { 0 },
        graph,
        readout: Some(match config.text("model.readout") {
            Some("node") => Readout::Node,
            Some("mean") => Readout::Mean,
            Some("sum") => Readout::Sum,
            Some("max") => Readout::Max,
            _ => readout,
        }),
        ..lstms
    }
}

/// A model of LSTMs alone.
pub(crate) fn lstm_config(config: &Config) -> ModelConfig {
    ModelConfig {
        cell: if config.text("model.cell") == Some("gru") { Cell::Gru } else { Cell::Lstm },
        hidden: config.count("model.hidden"),
        layers: config.count("model.layers"),
        bias: config.flag("model.bias"),
        layer_norm: config.flag("model.layer_norm"),
        pooling: match config.text("model.pooling") {
            Some("attention") => match config.optional_count("model.pooling_heads") {
                Some(heads) => Pooling::Attention { heads },
                None => Pooling::attention(config.count("model.hidden")),
            },
            _ => Pooling::Last,
        },
        fusion: fusion(config),
        ..ModelConfig::default()
    }
}

fn fusion(config: &Config) -> Fusion {
    let heads = config.optional_count("model.fusion_heads");
    match (config.text("model.fusion"), Fusion::attention(config.count("model.hidden"))) {
        (Some("attention"), Fusion::Attention { heads: auto, .. }) => {
            Fusion::Attention { heads: heads.unwrap_or(auto), feed_forward: config.count("model.fusion_feed_forward") }
        }
        _ => Fusion::Concat,
    }
}

fn graph_config(config: &Config) -> GraphConfig {
    GraphConfig {
        kind: match config.text("model.graph_attention") {
            Some("gatv2") => AttentionKind::GatV2,
            _ => AttentionKind::Gat,
        },
        layers: config.count("model.graph_layers"),
        heads: config.count("model.graph_heads"),
        hidden: config.count("model.graph_hidden"),
        output: match config.text("model.graph_output") {
            Some("attention") => GraphOutput::Attention,
            _ => GraphOutput::Linear,
        },
        output_heads: config.count("model.graph_output_heads"),
        activation: match config.text("model.graph_activation") {
            Some("relu") => GraphActivation::Relu,
            _ => GraphActivation::Elu,
        },
        residual: config.flag("model.graph_residual"),
        dropout: config.number("model.graph_dropout") as f32,
        attention_dropout: config.number("model.graph_attention_dropout") as f32,
        self_loops: config.flag("model.graph_self_loops"),
        ..GraphConfig::default()
    }
}

/// Threads that compute.
pub(crate) fn threads(config: &Config) -> usize {
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    config.optional_count("training.threads").unwrap_or_else(all)
}
