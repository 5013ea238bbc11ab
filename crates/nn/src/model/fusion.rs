//! Fusion of the timeframes' vectors: choice and parameters.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::norm::LayerNorm;
use crate::model::pooling::default_heads;
use crate::model::tensor::{Layout, Slot};

/// Fusion of the timeframes' vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fusion {
    /// Side by side.
    #[default]
    Concat,
    /// One layer of a transformer over them, and their mean: torch.nn.TransformerEncoderLayer with
    /// its norms last and ReLU.
    Attention {
        /// Heads, of which H is a multiple.
        heads: usize,
        /// Width of the feed-forward network, in multiples of H.
        feed_forward: usize,
    },
}

impl Fusion {
    /// Attention with 4 heads, or as many as H = `hidden` is a multiple of, and a feed-forward
    /// network four times as wide.
    pub fn attention(hidden: usize) -> Self {
        Fusion::Attention { heads: default_heads(hidden), feed_forward: 4 }
    }
}

impl fmt::Display for Fusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fusion::Concat => f.write_str("concat"),
            Fusion::Attention { heads, feed_forward } => {
                write!(f, "attention (heads: {heads}, feed-forward: {feed_forward} H)")
            }
        }
    }
}

/// Sizes of fusion by attention.
#[derive(Clone, Copy, Debug)]
pub struct FusionSizes {
    /// n: timeframes.
    pub tokens: usize,
    /// H.
    pub hidden: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Width of the feed-forward network.
    pub inner: usize,
}

impl FusionSizes {
    /// Weights of a sample, `[heads, n, n]`.
    pub fn weights_len(self) -> usize {
        self.heads * self.tokens * self.tokens
    }

    /// d: numbers of a head.
    pub fn head_width(self) -> usize {
        self.hidden / self.heads
    }
}

/// A linear map's weight and bias.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    /// W, `[out, in]`.
    pub weight: Slot,
    /// b, `[out]`.
    pub bias: Slot,
}

/// Offsets of the parameters of fusion by attention.
#[derive(Clone, Copy, Debug)]
pub struct AttentionFusion {
    /// Sizes of the fusion.
    pub sizes: FusionSizes,
    /// Map of tokens to q, k and v, `[3H, H]`.
    pub input: Linear,
    /// Map of what tokens see, `[H, H]`.
    pub output: Linear,
    /// First map of the feed-forward network, `[inner, H]`.
    pub widen: Linear,
    /// Second map of the feed-forward network, `[H, inner]`.
    pub narrow: Linear,
    /// Norm after attention.
    pub norm1: LayerNorm,
    /// Norm after the feed-forward network.
    pub norm2: LayerNorm,
}

impl AttentionFusion {
    /// Appends the parameters to `layout`, named `fusion.self_attn.in_proj_weight` and so on, in
    /// PyTorch's order.
    pub fn new(sizes: FusionSizes, layout: &mut Layout) -> Self {
        let FusionSizes { hidden, inner, .. } = sizes;
        let mut linear = |weight: &str, bias: &str, shape: [usize; 2]| Linear {
            weight: layout.push(format!("fusion.{weight}"), &shape),
            bias: layout.push(format!("fusion.{bias}"), &shape[..1]),
        };
        let input = linear("self_attn.in_proj_weight", "self_attn.in_proj_bias", [3 * hidden, hidden]);
        let output = linear("self_attn.out_proj.weight", "self_attn.out_proj.bias", [hidden, hidden]);
        let widen = linear("linear1.weight", "linear1.bias", [inner, hidden]);
        let narrow = linear("linear2.weight", "linear2.bias", [hidden, inner]);
        let [norm1, norm2] = ["fusion.norm1", "fusion.norm2"].map(|name| LayerNorm::new(hidden, name, layout));
        AttentionFusion { sizes, input, output, widen, narrow, norm1, norm2 }
    }

    /// Start of the first parameter, which the others follow.
    pub fn start(&self, layout: &Layout) -> usize {
        layout.range(self.input.weight).start
    }
}
