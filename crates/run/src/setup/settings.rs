//! The trainer's settings from the user's.

use megabatch_amp::Precision;
use megabatch_nn::batch::LossOn;
use megabatch_nn::loss::{Classes, Loss};
use megabatch_nn::model::{Fusion, GraphConfig, ModelConfig, Pooling};
use megabatch_trainer as trainer;
use megabatch_trainer::{Divergence, EarlyStopping, LastBatch, LrSchedule, LrScheduleKind, OneCycle};

use crate::adapters::data::Data;
use crate::adapters::neighbours::Neighbours;
use crate::config::choices::{FusionKind, LossKind, LrCurve, OnNan, PoolingKind, RunLength};
use crate::config::{Config, gpu_optimization, keys, model, training};
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
    let training = trainer::Config {
        model: model_config(config, data).for_loss(loss),
        loss,
        precision: precision(config),
        early_stopping: config
            .get(&training::EARLY_STOPPING)
            .map(|patience| EarlyStopping { patience, min_delta: config.get(&training::EARLY_STOPPING_MIN_DELTA) }),
        divergence: Divergence {
            max_rollbacks: match config.get(&training::ON_NAN) {
                OnNan::Stop => 0,
                OnNan::Rollback => config.get(&training::MAX_ROLLBACKS),
            },
            ..Divergence::default()
        },
        lr_schedule: LrSchedule { kind: lr_curve(config), ..LrSchedule::default() },
        batch_size: config.get(&gpu_optimization::BATCH_SIZE).min(data.units().max(1)),
        run_length: match (neighbours, config.get(&training::RUN_LENGTH)) {
            (Some(Neighbours::Apart), _) => Some(1),
            (_, RunLength::Samples(samples)) => Some(samples),
            _ => None,
        },
        last_batch: LastBatch::Keep,
        threads: threads(config),
        validation_samples: config.validation_samples(),
        ..trainer::Config::default()
    };
    Ok(with_fields(config, training))
}

/// `training` with the settings that are fields of it.
pub(crate) fn with_fields(config: &Config, mut training: trainer::Config) -> trainer::Config {
    keys().filter_map(|key| key.assign).for_each(|assign| assign(config, &mut training));
    training
}

/// Name of the loss of training and validation, for people.
pub(crate) fn loss_name(training: &trainer::Config) -> &'static str {
    if training.scales_targets() { "loss (scaled)" } else { "loss" }
}

fn lr_curve(config: &Config) -> LrScheduleKind {
    match config.get(&training::LR_SCHEDULE) {
        LrCurve::Constant => LrScheduleKind::Constant,
        LrCurve::Cosine => LrScheduleKind::Cosine,
        LrCurve::OneCycle => LrScheduleKind::OneCycle(OneCycle {
            pct_start: config.get(&training::PCT_START),
            div_factor: config.get(&training::DIV_FACTOR),
            final_div_factor: config.get(&training::FINAL_DIV_FACTOR),
        }),
    }
}

/// True if the data choose the order. In dense training they do not: its runs are computed as a
/// whole.
pub(crate) fn data_choose_order(config: &Config) -> bool {
    config.get(&training::RUN_LENGTH) == RunLength::Auto && config.get(&training::LOSS_ON) == LossOn::LastStep
}

/// True if the spread of targets decides the temperature of ranks.
pub(crate) fn targets_choose_temperature(config: &Config) -> bool {
    let is_listwise = config.get(&training::LOSS) == Some(LossKind::RankListwise);
    is_listwise && config.get(&training::RANK_TEMPERATURE).is_none()
}

/// Refuses mixed precision and single precision at once.
pub(crate) fn check_precision(config: &Config) -> crate::error::Result<()> {
    if config.get(&gpu_optimization::USE_AMP) && precision(config) == Precision::Fp32 {
        return Err(Error::usage(
            "gpu_optimization.use_amp is true and training.precision is fp32: they contradict each other; keep one",
        ));
    }
    Ok(())
}

/// Precision of products: `training.precision`, or fp16 for `gpu_optimization.use_amp`.
pub(crate) fn precision(config: &Config) -> Precision {
    let auto = || if config.get(&gpu_optimization::USE_AMP) { Precision::Fp16 } else { Precision::Fp32 };
    config.get(&training::PRECISION).unwrap_or_else(auto)
}

/// True if predictions are those of one pass over each segment.
pub(crate) fn streams(config: &Config) -> bool {
    config.get(&training::CARRY_STATE) || config.get(&training::LOSS_ON) == LossOn::EveryStep
}

/// The loss of samples with this number of targets, in training, validation and evaluation.
///
/// # Errors
/// A usage failure for tasks that are not groups of these targets.
pub(crate) fn loss(config: &Config, targets: usize) -> crate::error::Result<Loss> {
    if let Some(tasks) = config.get(&training::TASKS) {
        return Ok(Loss::Tasks(tasks.resolve(targets)?));
    }
    // The data settle what `auto` is before a run begins.
    Ok(match config.get(&training::LOSS).unwrap_or(LossKind::Mse) {
        LossKind::Mse => Loss::Mse,
        LossKind::Huber => Loss::Huber { delta: config.get(&training::HUBER_DELTA) },
        LossKind::Quantile => Loss::Quantile { levels: config.get(&training::QUANTILE) },
        LossKind::CrossEntropy => classes(config).map_or(Loss::CrossEntropy, Loss::Classes),
        LossKind::RankPairwise => Loss::RankPairwise,
        LossKind::RankListwise => {
            // What `auto` stands for is settled when a run begins, see `TrainingSetup::open`.
            Loss::RankListwise { temperature: config.get(&training::RANK_TEMPERATURE).unwrap_or(1.0) }
        }
    })
}

/// The classes that targets name, if they do.
pub(crate) fn classes(config: &Config) -> Option<Classes> {
    let thresholds = config.get(&training::THRESHOLDS).map(Classes::Thresholds);
    thresholds.or(config.get(&training::CLASSES).map(Classes::Labels))
}

/// Refuses two ways at once in which targets name their classes.
pub(crate) fn check_classes(config: &Config) -> crate::error::Result<()> {
    match (config.get(&training::THRESHOLDS), config.get(&training::CLASSES)) {
        (Some(thresholds), Some(labels)) => Err(Error::usage(format!(
            "training.thresholds is {thresholds} and training.classes is {labels}: targets are numbers that thresholds make classes of, or classes \
             already; keep one"
        ))),
        _ => Ok(()),
    }
}

/// The model for `data`.
fn model_config(config: &Config, data: &Data) -> ModelConfig {
    let recurrent = recurrent_config(config);
    let Some(graphs) = data.samples().graphs() else { return recurrent };
    let (encoder, readout) = data.model_of_graphs();
    let graph = (config.get(&model::GRAPH_LAYERS) > 0).then(|| graph_config(config));
    ModelConfig {
        encoder: config.get(&model::ENCODER).unwrap_or(encoder),
        graph_edge_attributes: if graph.is_some() { graphs.edge_attributes() } else { 0 },
        graph,
        readout: Some(config.get(&model::READOUT).unwrap_or(readout)),
        ..recurrent
    }
}

/// A model of recurrent layers alone.
pub(crate) fn recurrent_config(config: &Config) -> ModelConfig {
    let hidden = config.get(&model::HIDDEN);
    ModelConfig {
        pooling: match (config.get(&model::POOLING), config.get(&model::POOLING_HEADS)) {
            (PoolingKind::Last, _) => Pooling::Last,
            (PoolingKind::Attention, Some(heads)) => Pooling::Attention { heads },
            (PoolingKind::Attention, None) => Pooling::attention(hidden),
        },
        fusion: match (config.get(&model::FUSION), Fusion::attention(hidden)) {
            (FusionKind::Attention, Fusion::Attention { heads: auto, .. }) => Fusion::Attention {
                heads: config.get(&model::FUSION_HEADS).unwrap_or(auto),
                feed_forward: config.get(&model::FUSION_FEED_FORWARD),
            },
            _ => Fusion::Concat,
        },
        ..with_fields(config, trainer::Config::default()).model
    }
}

fn graph_config(config: &Config) -> GraphConfig {
    GraphConfig {
        attention: config.get(&model::GRAPH_ATTENTION),
        layers: config.get(&model::GRAPH_LAYERS),
        heads: config.get(&model::GRAPH_HEADS),
        hidden: config.get(&model::GRAPH_HIDDEN),
        output: config.get(&model::GRAPH_OUTPUT),
        output_heads: config.get(&model::GRAPH_OUTPUT_HEADS),
        activation: config.get(&model::GRAPH_ACTIVATION),
        residual: config.get(&model::GRAPH_RESIDUAL),
        dropout: config.get(&model::GRAPH_DROPOUT),
        attention_dropout: config.get(&model::GRAPH_ATTENTION_DROPOUT),
        self_loops: config.get(&model::GRAPH_SELF_LOOPS),
        ..GraphConfig::default()
    }
}

/// Threads that compute.
pub(crate) fn threads(config: &Config) -> usize {
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    config.get(&training::THREADS).unwrap_or_else(all)
}
