#![forbid(unsafe_code)]

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
pub(crate) struct FusionSizes {
    /// n: timeframes.
    pub(crate) tokens: usize,
    /// H.
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    /// Width of the feed-forward network.
    pub(crate) inner: usize,
}

impl FusionSizes {
    /// Weights of a sample, [heads, n, n].
    pub(crate) fn weights_len(self) -> usize {
        self.heads * self.tokens * self.tokens
    }

    /// d: numbers of a head.
    pub(crate) fn head_width(self) -> usize {
        self.hidden / self.heads
    }
}

/// A linear map's weight and bias.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear {
    pub(crate) weight: Slot,
    pub(crate) bias: Slot,
}

/// Offsets of the parameters of fusion by attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionFusion {
    pub(crate) sizes: FusionSizes,
    pub(crate) input: Linear,  // [3H, H]: those of q, k and v
    pub(crate) output: Linear, // [H, H]
    pub(crate) widen: Linear,  // [inner, H]
    pub(crate) narrow: Linear, // [H, inner]
    pub(crate) norm1: LayerNorm,
    pub(crate) norm2: LayerNorm,
}

impl AttentionFusion {
    /// Appends the parameters to `layout`, named `fusion.self_attn.in_proj_weight` and so on, in
    /// PyTorch's order.
    pub(crate) fn new(sizes: FusionSizes, layout: &mut Layout) -> Self {
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
    pub(crate) fn start(&self, layout: &Layout) -> usize {
        layout.range(self.input.weight).start
    }
}
