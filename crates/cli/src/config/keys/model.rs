//! What is trained.

use super::{Acts, DEPTH, Key, WIDTH, key};
use crate::config::value::Kind;

pub(super) const KEYS: &[Key] = &[
    key("model.hidden", WIDTH, "64", "Hidden units H of each LSTM.").only(&[Acts::WithLstms]),
    key("model.layers", DEPTH, "1", "Layers of each LSTM.").only(&[Acts::WithLstms]),
    key("model.bias", Kind::Bool, "true", "Whether the LSTMs have bias terms.").only(&[Acts::WithLstms]),
    key(
        "model.dropout",
        Kind::Probability,
        "0",
        "Share of the units between two LSTM layers that a training step leaves out; with one layer it does nothing, as in PyTorch.",
    ).only(&[Acts::WithLstms]),
    key(
        "model.layer_norm",
        Kind::Bool,
        "false",
        "Whether the outputs of every LSTM layer go through a layer norm, before dropout. The recurrence goes on from the states before it.",
    ).only(&[Acts::WithLstms]),
    key(
        "model.pooling",
        Kind::Choice { now: &["last", "attention"], later: "" },
        "last",
        "How a sequence becomes one vector: its last hidden state, or attention of a learned query over all of them.",
    ).only(&[Acts::WithLstms]),
    key(
        "model.pooling_heads",
        Kind::OrWord { word: "auto", otherwise: &WIDTH },
        "auto",
        "Heads of attention pooling, of which H is a multiple. `auto` is 4, or the largest number below it that fits.",
    ).only(&[Acts::WithLstms, Acts::With { key: "model.pooling", values: &["attention"] }]),
    key(
        "model.fusion",
        Kind::Choice { now: &["concat", "attention"], later: "" },
        "concat",
        "How timeframes come together: concatenated, shortest first, or by one layer of a transformer over their vectors, and the mean.",
    ).only(&[Acts::WithLstms]),
    key(
        "model.fusion_heads",
        Kind::OrWord { word: "auto", otherwise: &WIDTH },
        "auto",
        "Heads of fusion by attention, of which H is a multiple. `auto` is 4, or the largest number below it that fits.",
    ).only(&[Acts::WithLstms, Acts::With { key: "model.fusion", values: &["attention"] }]),
    key(
        "model.fusion_feed_forward",
        DEPTH,
        "4",
        "Width of the feed-forward network in fusion by attention, in multiples of H.",
    ).only(&[Acts::WithLstms, Acts::With { key: "model.fusion", values: &["attention"] }]),
    key(
        "model.encoder",
        Kind::Choice { now: &["auto", "lstm", "none"], later: "" },
        "auto",
        "What comes before graph attention: an LSTM for each timeframe, or nothing, which takes the last bar as it is. `auto` is `lstm` for bars \
         and `none` for a file of graphs, whose nodes have no past.",
    ).only(&[Acts::WithGraphs]),
    key(
        "model.graph",
        Kind::OrWord { word: "none", otherwise: &Kind::Text },
        "none",
        "File of graphs over the instruments, such as `G.mbg` of `megabatch graph build`: a sample then is all instruments at one time, and \
         each of them attends to its neighbours. A batch is so many times. Where `data.path` is a file of graphs itself, this stays `none`.",
    ),
    key(
        "model.graph_attention",
        Kind::Choice { now: &["gat", "gatv2"], later: "" },
        "gat",
        "How a neighbour's weight is computed: as in \"Graph attention networks\" (2018), or as in \"How attentive are graph attention \
         networks?\" (2022).",
    ).only(&[Acts::WithGraphAttention]),
    key(
        "model.graph_layers",
        Kind::Count { min: 0, max: 64 },
        "2",
        "Layers of graph attention where there are graphs; 0 leaves every node to itself.",
    ).only(&[Acts::WithGraphs]),
    key("model.graph_heads", WIDTH, "4", "Heads of each layer of graph attention.").only(&[Acts::WithGraphAttention]),
    key("model.graph_hidden", WIDTH, "16", "Units of each head.").only(&[Acts::WithGraphAttention]),
    key(
        "model.graph_output",
        Kind::Choice { now: &["linear", "attention"], later: "" },
        "linear",
        "What gives the predictions: a linear head on the last layer, or the last layer itself, as the mean of its heads.",
    ).only(&[Acts::WithGraphAttention]),
    key("model.graph_output_heads", WIDTH, "1", "Heads of a last layer that gives the predictions itself.").only(&[Acts::WithGraphAttention, Acts::With { key: "model.graph_output", values: &["attention"] }]),
    key(
        "model.graph_activation",
        Kind::Choice { now: &["elu", "relu"], later: "" },
        "elu",
        "The function between layers of graph attention.",
    ).only(&[Acts::WithGraphAttention]),
    key(
        "model.graph_residual",
        Kind::Bool,
        "false",
        "Whether each layer adds a linear map of its input to its output.",
    ).only(&[Acts::WithGraphAttention]),
    key(
        "model.graph_self_loops",
        Kind::Bool,
        "true",
        "Whether each node attends to itself too, once; edges from a node to itself that the graph has are then left out.",
    ).only(&[Acts::WithGraphAttention]),
    key(
        "model.graph_edge_attributes",
        Kind::Bool,
        "true",
        "Whether attention sees weights and attributes of edges, where they have any.",
    ).only(&[Acts::WithGraphAttention]),
    key(
        "model.graph_dropout",
        Kind::Probability,
        "0",
        "Share of the inputs of each layer of graph attention that a training step leaves out.",
    ).only(&[Acts::WithGraphAttention]),
    key(
        "model.graph_attention_dropout",
        Kind::Probability,
        "0",
        "Share of the attention weights that a training step leaves out.",
    ).only(&[Acts::WithGraphAttention]),
    key(
        "model.readout",
        Kind::Choice { now: &["auto", "node", "mean", "sum", "max"], later: "" },
        "auto",
        "What predictions are for: each node, or each graph by the mean, the sum or the largest of its nodes. `auto` is `node`, or `mean` where \
         graphs have targets as wholes.",
    ).only(&[Acts::WithGraphs]),
];
