//! Pooling of a window's hidden states: choice and parameters.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::model::tensor::{Layout, Slot};

/// Heads of attention where nothing else is said, and H is a multiple of it.
const HEADS: usize = 4;

/// Pooling of the top layer's hidden states of a window into one vector `[H]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// The last one.
    #[default]
    Last,
    /// Multi-head attention of a learned query, one a timeframe, over all of them:
    /// torch.nn.MultiheadAttention.
    Attention {
        /// Heads, of which H is a multiple.
        heads: usize,
    },
}

impl Pooling {
    /// Attention with 4 heads, or as many as H = `hidden` is a multiple of.
    pub fn attention(hidden: usize) -> Self {
        Pooling::Attention { heads: default_heads(hidden) }
    }

    /// Heads of attention; 0 without it.
    pub fn heads(self) -> usize {
        match self {
            Pooling::Last => 0,
            Pooling::Attention { heads } => heads,
        }
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pooling::Last => f.write_str("last"),
            Pooling::Attention { heads } => write!(f, "attention of {heads} heads"),
        }
    }
}

/// 4, or the largest number below it that H = `hidden` is a multiple of.
pub(crate) fn default_heads(hidden: usize) -> usize {
    (1..=HEADS).rev().find(|heads| hidden.is_multiple_of(*heads)).unwrap_or(1)
}

/// Refuses heads that H = `hidden` cannot be cut into.
pub(crate) fn check_heads(setting: &'static str, heads: usize, hidden: usize) -> Result<()> {
    if heads > 0 && hidden.is_multiple_of(heads) {
        return Ok(());
    }
    Err(Error::setting(setting, &heads, "a number, 1 or more, of which `hidden` is a multiple"))
}

/// Offsets of one timeframe's attention parameters.
#[derive(Clone, Copy, Debug)]
pub struct AttentionPooling {
    /// H.
    pub hidden: usize,
    /// Heads of attention.
    pub heads: usize,
    /// The learned query, `[1, H]`.
    pub query: Slot,
    /// W_q, W_k and W_v, `[3H, H]`.
    pub in_weight: Slot,
    /// b_q, b_k and b_v, `[3H]`.
    pub in_bias: Slot,
    /// W_o, `[H, H]`.
    pub out_weight: Slot,
    /// b_o, `[H]`.
    pub out_bias: Slot,
}

impl AttentionPooling {
    /// Appends the parameters to `layout`, named `<prefix>.query`,
    /// `<prefix>.attention.in_proj_weight` and so on.
    pub fn new(hidden: usize, heads: usize, prefix: &str, layout: &mut Layout) -> Self {
        let mut slot = |name: &str, shape: &[usize]| layout.push(format!("{prefix}.{name}"), shape);
        AttentionPooling {
            hidden,
            heads,
            query: slot("query", &[1, hidden]),
            in_weight: slot("attention.in_proj_weight", &[3 * hidden, hidden]),
            in_bias: slot("attention.in_proj_bias", &[3 * hidden]),
            out_weight: slot("attention.out_proj.weight", &[hidden, hidden]),
            out_bias: slot("attention.out_proj.bias", &[hidden]),
        }
    }

    /// Start of the first parameter, which the others follow.
    pub fn start(&self, layout: &Layout) -> usize {
        layout.range(self.query).start
    }

    /// d: numbers of a head.
    pub fn head_width(&self) -> usize {
        self.hidden / self.heads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_units_are_cut_into_at_most_four_heads() {
        for (hidden, heads) in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 1), (6, 3), (7, 1), (10, 2), (12, 4), (128, 4)] {
            assert_eq!(Pooling::attention(hidden), Pooling::Attention { heads }, "H = {hidden}");
        }
        for (heads, accepted) in [(0, false), (1, true), (4, false), (5, true), (10, true), (20, false)] {
            assert_eq!(check_heads("pooling_heads", heads, 10).is_ok(), accepted, "{heads} heads");
        }
    }
}
