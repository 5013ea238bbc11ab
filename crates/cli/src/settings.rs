//! The trainer's settings from the user's.

use megabatch_trainer::{
    self as trainer, AttentionKind, EarlyStopping, Encoder, Form, GraphActivation, GraphConfig, GraphOutput, LastBatch,
    Loss, LrSchedule, LrScheduleKind, ModelConfig, OptimizerConfig, OptimizerKind, Readout,
};

use crate::adapt::data::Data;
use crate::config::Config;

/// All of them, for `data`.
pub(crate) fn training_config(config: &Config, data: &Data) -> trainer::Config {
    let kind = match config.text("training.optimizer") {
        Some("sgd") => OptimizerKind::Sgd,
        Some("adam") => OptimizerKind::Adam,
        _ => OptimizerKind::AdamW,
    };
    trainer::Config {
        model: model_config(config, data),
        dropout: config.number("model.dropout") as f32,
        carry_state: config.flag("training.carry_state"),
        lr_schedule: LrSchedule {
            kind: match config.text("training.lr_schedule") {
                Some("cosine") => LrScheduleKind::Cosine,
                _ => LrScheduleKind::Constant,
            },
            warmup_steps: config.count("training.warmup_steps") as u64,
            lr_min: config.number("training.lr_min"),
        },
        early_stopping: config.optional_count("training.early_stopping").map(|patience| EarlyStopping {
            patience: u32::try_from(patience).unwrap_or(u32::MAX),
            min_delta: config.number("training.early_stopping_min_delta"),
        }),
        optimizer: OptimizerConfig {
            kind,
            lr: config.number("training.lr"),
            weight_decay: config.number("training.weight_decay"),
            ..OptimizerConfig::default()
        },
        clip_norm: config.optional_number("training.clip_norm"),
        loss: loss(config),
        epochs: config.count("training.epochs") as u64,
        max_steps: config.optional_count("training.max_steps").map(|steps| steps as u64),
        batch_size: config.count("gpu_optimization.batch_size"),
        accumulation_steps: config.count("gpu_optimization.gradient_accumulation_steps"),
        run_length: config.optional_count("training.run_length"),
        last_batch: LastBatch::Keep,
        seed: config.count("training.seed") as u64,
        threads: threads(config),
        form: form(config),
        validate_every_steps: config.optional_count("training.validate_every_steps").map(|steps| steps as u64),
    }
}

/// The loss, which validation and evaluation measure too.
pub(crate) fn loss(config: &Config) -> Loss {
    match config.text("training.loss") {
        Some("huber") => Loss::Huber { delta: config.number("training.huber_delta") },
        Some("cross_entropy") => Loss::CrossEntropy,
        Some("rank_pairwise") => Loss::RankPairwise,
        Some("rank_listwise") => Loss::RankListwise { temperature: config.number("training.rank_temperature") },
        _ => Loss::Mse,
    }
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
        hidden: config.count("model.hidden"),
        layers: config.count("model.layers"),
        bias: config.flag("model.bias"),
        ..ModelConfig::default()
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

/// How the model is computed.
pub(crate) fn form(config: &Config) -> Form {
    match config.text("training.form") {
        Some("plain") => Form::Plain,
        _ => Form::Fast,
    }
}

/// Threads that compute.
pub(crate) fn threads(config: &Config) -> usize {
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    config.optional_count("training.threads").unwrap_or_else(all)
}
