#![forbid(unsafe_code)]

//! Fusion by attention: from the vectors of the timeframes, n tokens [H] a sample, to one vector
//! [H].
//!
//! It is torch.nn.TransformerEncoderLayer(H, heads, feed_forward · H, dropout=0, activation="relu",
//! batch_first=True), whose norms come last as in "Attention is all you need" (Vaswani et al.,
//! 2017), and the mean over the tokens:
//!
//! ```text
//! y = norm1(x + attention(x, x, x))
//! z = norm2(y + W_2 relu(W_1 y + b_1) + b_2)
//! fused = mean over the tokens of z
//! ```
//!
//! Tokens have no positions: that they come from different timeframes they know from the LSTMs,
//! which are different ones. Nothing is dropped.
//!
//! Both forms of the model compute this alike: n tokens a sample are few beside the T steps that
//! each of them took, and all samples' tokens go through a matrix at once.

mod attention;
mod memory;

pub(crate) use memory::FusionMemory;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cpu::norm::LayerNorm;
use crate::cpu::pooling::default_heads;
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
pub(crate) struct Sizes {
    /// n: timeframes.
    pub(crate) tokens: usize,
    /// H.
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    /// Width of the feed-forward network.
    pub(crate) inner: usize,
}

/// A linear map's weight and bias.
#[derive(Clone, Copy, Debug)]
struct Linear {
    weight: Slot,
    bias: Slot,
}

/// Offsets of the parameters of fusion by attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionFusion {
    pub(crate) sizes: Sizes,
    input: Linear,  // [3H, H]: those of q, k and v
    output: Linear, // [H, H]
    widen: Linear,  // [inner, H]
    narrow: Linear, // [H, inner]
    norm1: LayerNorm,
    norm2: LayerNorm,
}

impl AttentionFusion {
    /// Appends the parameters to `layout`, named `fusion.self_attn.in_proj_weight` and so on, in
    /// PyTorch's order.
    pub(crate) fn new(sizes: Sizes, layout: &mut Layout) -> Self {
        let Sizes { hidden, inner, .. } = sizes;
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
        layout.place(self.input.weight).start
    }
}
