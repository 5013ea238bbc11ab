//! Model of a run.

use std::path::PathBuf;

use megabatch_nn::model::{AttentionKind, Cell, Encoder, GraphActivation, GraphOutput, Readout};

use super::choices::{FusionKind, PoolingKind};
use super::setting::{Setting, auto_or_choice, choice, setting, settings};
use super::{Condition::*, DEPTH, Key, WIDTH, or};
use crate::config::value::Kind;

settings! {
    /// Recurrent cell. `gru`: on the CPU; settings of LSTMs are then those of GRUs.
    CELL: Cell => model.cell = choice("model.cell", "lstm").only(&[WithLstms]);

    /// Hidden units H of each LSTM.
    HIDDEN: usize => model.hidden = setting("model.hidden", WIDTH, "64").only(&[WithLstms]);

    /// Layers of each LSTM.
    LAYERS: usize => model.layers = setting("model.layers", DEPTH, "1").only(&[WithLstms]);

    /// The LSTMs have bias terms.
    BIAS: bool => model.bias = setting("model.bias", Kind::Bool, "true").only(&[WithLstms]);

    /// Dropout rate between LSTM layers.
    DROPOUT: f32 => dropout = setting("model.dropout", Kind::Probability, "0").only(&[WithLstms]);

    /// Layer norm on the outputs of every LSTM layer, before dropout. The recurrence uses the
    /// states before it.
    LAYER_NORM: bool => model.layer_norm = setting("model.layer_norm", Kind::Bool, "false")
        .only(&[WithLstms]);

    /// Pooling of a sequence. `last`: the last hidden state. `attention`: attention of a learned
    /// query over all hidden states.
    POOLING: PoolingKind = choice("model.pooling", "last").only(&[WithLstms]);

    /// Heads of attention pooling. They divide H; `auto` is the largest such number up to 4.
    POOLING_HEADS: Option<usize> = setting("model.pooling_heads", or("auto", &WIDTH), "auto")
        .only(&[WithLstms, POOLING.is(&["attention"])]);

    /// Fusion of the timeframes' vectors. `concat`: concatenated, shortest timeframe first.
    /// `attention`: a transformer encoder layer, then the mean.
    FUSION: FusionKind = choice("model.fusion", "concat").only(&[WithLstms]);

    /// Heads of attention fusion. They divide H; `auto` is the largest such number up to 4.
    FUSION_HEADS: Option<usize> = setting("model.fusion_heads", or("auto", &WIDTH), "auto")
        .only(&[WithLstms, FUSION.is(&["attention"])]);

    /// Width of the feed-forward network of fusion, in multiples of H.
    FUSION_FEED_FORWARD: usize = setting("model.fusion_feed_forward", DEPTH, "4")
        .only(&[WithLstms, FUSION.is(&["attention"])]);

    /// Encoder before graph attention. `lstm`: an LSTM for each timeframe. `none`: the last bar
    /// itself. `auto`: `lstm` for bars, `none` for a file of graphs.
    ENCODER: Option<Encoder> = auto_or_choice("model.encoder").only(&[WithGraphs]);

    /// File of graphs over the instruments, from `megabatch graph build`. A sample is then all
    /// instruments at one time. `none` if `data.path` is a file of graphs.
    GRAPH: Option<PathBuf> = setting("model.graph", or("none", &Kind::Text), "none");

    /// Scores of neighbours. `gat`: "Graph attention networks" (2018). `gatv2`: "How attentive are
    /// graph attention networks?" (2022).
    GRAPH_ATTENTION: AttentionKind = choice("model.graph_attention", "gat")
        .only(&[WithGraphAttention]);

    /// Layers of graph attention; 0 for none.
    GRAPH_LAYERS: usize = setting("model.graph_layers", Kind::Count { min: 0, max: 64 }, "2")
        .only(&[WithGraphs]);

    /// Heads of each layer of graph attention.
    GRAPH_HEADS: usize = setting("model.graph_heads", WIDTH, "4")
        .only(&[WithGraphAttention]);

    /// Units of each head.
    GRAPH_HIDDEN: usize = setting("model.graph_hidden", WIDTH, "16")
        .only(&[WithGraphAttention]);

    /// Output layer. `linear`: a linear head on the last attention layer. `attention`: the last
    /// attention layer itself, averaged over its heads.
    GRAPH_OUTPUT: GraphOutput = choice("model.graph_output", "linear")
        .only(&[WithGraphAttention]);

    /// Heads of the output layer.
    GRAPH_OUTPUT_HEADS: usize = setting("model.graph_output_heads", WIDTH, "1")
        .only(&[WithGraphAttention, GRAPH_OUTPUT.is(&["attention"])]);

    /// Activation between layers of graph attention.
    GRAPH_ACTIVATION: GraphActivation = choice("model.graph_activation", "elu")
        .only(&[WithGraphAttention]);

    /// Each layer adds a linear map of its input to its output.
    GRAPH_RESIDUAL: bool = setting("model.graph_residual", Kind::Bool, "false")
        .only(&[WithGraphAttention]);

    /// Each node attends to itself once; self-loops of the graph are ignored.
    GRAPH_SELF_LOOPS: bool = setting("model.graph_self_loops", Kind::Bool, "true")
        .only(&[WithGraphAttention]);

    /// Attention uses weights and attributes of edges.
    GRAPH_EDGE_ATTRIBUTES: bool = setting("model.graph_edge_attributes", Kind::Bool, "true")
        .only(&[WithGraphAttention]);

    /// Dropout rate of the inputs of graph attention layers.
    GRAPH_DROPOUT: f32 = setting("model.graph_dropout", Kind::Probability, "0")
        .only(&[WithGraphAttention]);

    /// Dropout rate of the attention weights.
    GRAPH_ATTENTION_DROPOUT: f32 = setting("model.graph_attention_dropout", Kind::Probability, "0")
        .only(&[WithGraphAttention]);

    /// Level of the predictions. `node`: each node. `mean`, `sum`, `max`: each graph, pooled over
    /// its nodes. `auto`: `mean` if targets belong to graphs, else `node`.
    READOUT: Option<Readout> = auto_or_choice("model.readout").only(&[WithGraphs]);
}
