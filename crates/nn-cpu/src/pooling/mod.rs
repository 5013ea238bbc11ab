//! Attention pooling: from the top layer's hidden states h_t of a window to one vector [H].
//!
//! It is torch.nn.MultiheadAttention(H, heads, batch_first=True) of a learned query, one for all
//! windows of a timeframe, over the window's states. A head has d = H / heads of the numbers of q,
//! k and v:
//!
//! ```text
//! q = W_q query + b_q       k_t = W_k h_t + b_k       v_t = W_v h_t + b_v
//! a_t = softmax over t of q·k_t / √d, head by head
//! pooled = W_o (Σ_t a_t v_t, heads side by side) + b_o
//! ```
//!
//! As the query is the same for all windows, no state is multiplied by a matrix, forward or
//! backward:
//!
//! 1. q·k_t = (W_kᵀ q)·h_t + q·b_k. The *key* u = W_kᵀ q / √d is one vector [H] a head for all
//!    windows. q·b_k is the same for all t, which the softmax does not see: b_k changes nothing,
//!    and its gradient is zero.
//! 2. Σ_t a_t v_t = W_v (Σ_t a_t h_t) + b_v, since the weights sum to one: states are summed up
//!    before they are mapped.
//!
//! A window thus costs 2 · T · heads · H multiplications and two products with a matrix [H, H], in
//! place of 2 · T of these.

mod project;
mod query;
mod sliding;
mod window;

pub(crate) use project::{Vectors, project, project_backward};
pub(crate) use query::{find_keys, keys_backward};
pub(crate) use sliding::{SlidingCapacity, SlidingPooling};
pub(crate) use window::{WindowPooling, softmax};
