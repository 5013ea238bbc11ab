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
//! n tokens a sample are few beside the T steps that each of them took, and all samples' tokens go
//! through a matrix at once.

mod attention;
mod memory;

pub(crate) use memory::FusionMemory;
