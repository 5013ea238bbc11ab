use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::model::dropout::check_rate_of;

/// Computation of an edge's score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttentionKind {
    /// Veličković et al., "Graph attention networks", 2018: LeakyReLU(aᵀ [W x_j ‖ W x_i]).
    #[default]
    Gat,
    /// Brody, Alon and Yahav, "How attentive are graph attention networks?", 2022: aᵀ LeakyReLU(W_l
    /// x_j + W_r x_i).
    GatV2,
}

/// Output after the layers that concatenate their heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GraphOutput {
    /// The model's linear head reads the last layer's heads.
    #[default]
    Linear,
    /// The last layer gives the K outputs itself, as the mean of its heads.
    Attention,
}

/// The function between layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GraphActivation {
    /// x, or eˣ - 1 where x is negative (Clevert et al., 2016).
    #[default]
    Elu,
    /// x, or 0 where x is negative.
    Relu,
}

impl GraphActivation {
    /// Its value at `x`.
    pub fn apply(self, x: f32) -> f32 {
        match self {
            GraphActivation::Elu if x < 0.0 => x.exp() - 1.0,
            GraphActivation::Relu if x < 0.0 => 0.0,
            _ => x,
        }
    }

    /// The slope where it gave `y`.
    pub fn slope(self, y: f32) -> f32 {
        match self {
            _ if y > 0.0 => 1.0,
            GraphActivation::Elu => y + 1.0,
            GraphActivation::Relu => 0.0,
        }
    }
}

/// The choices of graph attention that its data leave open.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GraphConfig {
    /// Computation of edge scores.
    #[serde(rename = "kind")]
    pub attention: AttentionKind,
    /// Layers, an averaging last one included.
    pub layers: usize,
    /// Heads of the layers whose heads stand side by side.
    pub heads: usize,
    /// Units of each of those heads.
    pub hidden: usize,
    /// Kind of the last layer.
    pub output: GraphOutput,
    /// Heads of an averaging last layer.
    pub output_heads: usize,
    /// The function between layers.
    pub activation: GraphActivation,
    /// True if each layer adds a linear map of its input to its output.
    pub residual: bool,
    /// The probability with which a number of a layer's input is dropped.
    pub dropout: f32,
    /// The probability with which an attention coefficient is dropped.
    pub attention_dropout: f32,
    /// The slope of LeakyReLU for negative numbers.
    pub negative_slope: f64,
    /// True if every node attends to itself once: edges from a node to itself are left out, and one
    /// is added to each node, whose attributes are the mean of those of the edges that the node
    /// receives.
    pub self_loops: bool,
}

impl Default for GraphConfig {
    fn default() -> Self {
        GraphConfig {
            attention: AttentionKind::Gat,
            layers: 2,
            heads: 4,
            hidden: 64,
            output: GraphOutput::Linear,
            output_heads: 1,
            activation: GraphActivation::Elu,
            residual: false,
            dropout: 0.0,
            attention_dropout: 0.0,
            negative_slope: 0.2,
            self_loops: true,
        }
    }
}

impl GraphConfig {
    /// Refuses what no layer can be made of.
    ///
    /// # Errors
    /// [`Error::Setting`] for a size of 0, a rate outside [0, 1) or a slope that is not a number.
    pub fn check(&self) -> Result<()> {
        let sizes = [
            ("graph_layers", self.layers),
            ("graph_heads", self.heads),
            ("graph_hidden", self.hidden),
            ("graph_output_heads", self.output_heads),
        ];
        if let Some((setting, _)) = sizes.into_iter().find(|&(_, size)| size == 0) {
            return Err(Error::setting(setting, &0, "1 or more"));
        }
        check_rate_of("graph_dropout", self.dropout)?;
        check_rate_of("graph_attention_dropout", self.attention_dropout)?;
        if !self.negative_slope.is_finite() {
            return Err(Error::setting(
                "the negative slope of graph attention",
                &self.negative_slope,
                "a finite number",
            ));
        }
        Ok(())
    }
}
