//! Model of a run.

use super::{Condition, DEPTH, Key, WIDTH, key};
use crate::config::value::Kind;

pub(super) const KEYS: &[Key] = &[
    key(
        "model.cell",
        Kind::Choice { now: &["lstm", "gru"], later: "" },
        "lstm",
        "Recurrent cell. `gru`: on the CPU; settings of LSTMs are then those of GRUs.",
    )
    .only(&[Condition::WithLstms]),
    key("model.hidden", WIDTH, "64", "Hidden units H of each LSTM.").only(&[Condition::WithLstms]),
    key("model.layers", DEPTH, "1", "Layers of each LSTM.").only(&[Condition::WithLstms]),
    key("model.bias", Kind::Bool, "true", "The LSTMs have bias terms.").only(&[Condition::WithLstms]),
    key("model.dropout", Kind::Probability, "0", "Dropout rate between LSTM layers.").only(&[Condition::WithLstms]),
    key(
        "model.layer_norm",
        Kind::Bool,
        "false",
        "Layer norm on the outputs of every LSTM layer, before dropout. The recurrence uses the \
         states before it.",
    )
    .only(&[Condition::WithLstms]),
    key(
        "model.pooling",
        Kind::Choice { now: &["last", "attention"], later: "" },
        "last",
        "Pooling of a sequence. `last`: the last hidden state. `attention`: attention of a \
         learned query over all hidden states.",
    )
    .only(&[Condition::WithLstms]),
    key(
        "model.pooling_heads",
        Kind::OrWord { word: "auto", otherwise: &WIDTH },
        "auto",
        "Heads of attention pooling. They divide H; `auto` is the largest such number up to 4.",
    )
    .only(&[Condition::WithLstms, Condition::With { key: "model.pooling", values: &["attention"] }]),
    key(
        "model.fusion",
        Kind::Choice { now: &["concat", "attention"], later: "" },
        "concat",
        "Fusion of the timeframes' vectors. `concat`: concatenated, shortest timeframe first. \
         `attention`: a transformer encoder layer, then the mean.",
    )
    .only(&[Condition::WithLstms]),
    key(
        "model.fusion_heads",
        Kind::OrWord { word: "auto", otherwise: &WIDTH },
        "auto",
        "Heads of attention fusion. They divide H; `auto` is the largest such number up to 4.",
    )
    .only(&[Condition::WithLstms, Condition::With { key: "model.fusion", values: &["attention"] }]),
    key("model.fusion_feed_forward", DEPTH, "4", "Width of the feed-forward network of fusion, in multiples of H.")
        .only(&[Condition::WithLstms, Condition::With { key: "model.fusion", values: &["attention"] }]),
    key(
        "model.encoder",
        Kind::Choice { now: &["auto", "lstm", "none"], later: "" },
        "auto",
        "Encoder before graph attention. `lstm`: an LSTM for each timeframe. `none`: the last bar \
         itself. `auto`: `lstm` for bars, `none` for a file of graphs.",
    )
    .only(&[Condition::WithGraphs]),
    key(
        "model.graph",
        Kind::OrWord { word: "none", otherwise: &Kind::Text },
        "none",
        "File of graphs over the instruments, from `megabatch graph build`. A sample is then all \
         instruments at one time. `none` if `data.path` is a file of graphs.",
    ),
    key(
        "model.graph_attention",
        Kind::Choice { now: &["gat", "gatv2"], later: "" },
        "gat",
        "Scores of neighbours. `gat`: \"Graph attention networks\" (2018). `gatv2`: \"How \
         attentive are graph attention networks?\" (2022).",
    )
    .only(&[Condition::WithGraphAttention]),
    key("model.graph_layers", Kind::Count { min: 0, max: 64 }, "2", "Layers of graph attention; 0 for none.")
        .only(&[Condition::WithGraphs]),
    key("model.graph_heads", WIDTH, "4", "Heads of each layer of graph attention.")
        .only(&[Condition::WithGraphAttention]),
    key("model.graph_hidden", WIDTH, "16", "Units of each head.").only(&[Condition::WithGraphAttention]),
    key(
        "model.graph_output",
        Kind::Choice { now: &["linear", "attention"], later: "" },
        "linear",
        "Output layer. `linear`: a linear head on the last attention layer. `attention`: the last \
         attention layer itself, averaged over its heads.",
    )
    .only(&[Condition::WithGraphAttention]),
    key("model.graph_output_heads", WIDTH, "1", "Heads of the output layer.")
        .only(&[Condition::WithGraphAttention, Condition::With { key: "model.graph_output", values: &["attention"] }]),
    key(
        "model.graph_activation",
        Kind::Choice { now: &["elu", "relu"], later: "" },
        "elu",
        "Activation between layers of graph attention.",
    )
    .only(&[Condition::WithGraphAttention]),
    key("model.graph_residual", Kind::Bool, "false", "Each layer adds a linear map of its input to its output.")
        .only(&[Condition::WithGraphAttention]),
    key(
        "model.graph_self_loops",
        Kind::Bool,
        "true",
        "Each node attends to itself once; self-loops of the graph are ignored.",
    )
    .only(&[Condition::WithGraphAttention]),
    key("model.graph_edge_attributes", Kind::Bool, "true", "Attention uses weights and attributes of edges.")
        .only(&[Condition::WithGraphAttention]),
    key("model.graph_dropout", Kind::Probability, "0", "Dropout rate of the inputs of graph attention layers.")
        .only(&[Condition::WithGraphAttention]),
    key("model.graph_attention_dropout", Kind::Probability, "0", "Dropout rate of the attention weights.")
        .only(&[Condition::WithGraphAttention]),
    key(
        "model.readout",
        Kind::Choice { now: &["auto", "node", "mean", "sum", "max"], later: "" },
        "auto",
        "Level of the predictions. `node`: each node. `mean`, `sum`, `max`: each graph, pooled \
         over its nodes. `auto`: `mean` if targets belong to graphs, else `node`.",
    )
    .only(&[Condition::WithGraphs]),
];
