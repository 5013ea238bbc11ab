//! Attention of one learned query over a window's states: torch.nn.MultiheadAttention, of which all
//! that is the same for every window is computed here, once. With d = H / heads numbers of a head:
//!
//! ```text
//! u = W_kᵀ (W_q query + b_q) / √d      the key of a head [H]; b_k adds the same to all scores of a
//! head, and changes nothing a = softmax over t of u·h_t pooled = W_o (W_v Σ_t a_t h_t + b_v, heads
//! side by side) + b_o
//! ```

use super::graph::{Graph, Node};
use super::recurrent::Reader;

/// From states [T, B, H] to [B, H].
pub(super) fn add_to(graph: &mut Graph, reader: &Reader<'_>, states: &str, heads: usize) -> String {
    let (hidden, weights) = (reader.config.hidden, reader.weights);
    let width = hidden / heads;
    let parameter = |rest: &str| reader.parameter("pooling", rest);
    let value = |rest: &str| reader.value(&format!("pooling.{rest}"));
    let keys = graph.constant(parameter("keys"), &[hidden, heads], keys(reader, heads));
    let scores = graph.add(Node::new("MatMul", &[states, &keys], value("scores"))); // [T, B, heads]
    let by_head = graph.add(Node::new("Transpose", &[&scores], value("scores_by_head")).ints("perm", &[1, 2, 0]));
    let shares = graph.add(Node::new("Softmax", &[&by_head], value("weights")).int("axis", -1)); // [B, heads, T]
    let by_sample = graph.add(Node::new("Transpose", &[states], value("states")).ints("perm", &[1, 0, 2]));
    let sums = graph.add(Node::new("MatMul", &[&shares, &by_sample], value("sums"))); // [B, heads, H]

    // Each head has a matrix of its own: [B, heads, 1, H] by [heads, H, d].
    let axes = graph.whole_numbers(&[2]);
    let rows = graph.add(Node::new("Unsqueeze", &[&sums, &axes], value("rows")));
    let in_weight = weights.get(&parameter("attention.in_proj_weight"));
    let transposed = transposed_blocks(&in_weight[2 * hidden * hidden..], width, hidden);
    let value_weight = graph.constant(parameter("values"), &[heads, hidden, width], transposed);
    let by_head = graph.add(Node::new("MatMul", &[&rows, &value_weight], value("values_by_head")));
    let shape = graph.whole_numbers(&[-1, hidden as i64]);
    let joined = graph.add(Node::new("Reshape", &[&by_head, &shape], value("values_joined")));
    let in_bias = weights.get(&parameter("attention.in_proj_bias"));
    let bias = graph.constant(parameter("values_bias"), &[hidden], in_bias[2 * hidden..].to_vec());
    let values = graph.add(Node::new("Add", &[&joined, &bias], value("values")));
    weights.linear(graph, &values, &parameter("attention.out_proj"), &value("pooled"))
}

/// The keys side by side, [H, heads].
fn keys(reader: &Reader<'_>, heads: usize) -> Vec<f32> {
    let hidden = reader.config.hidden;
    let width = hidden / heads;
    let weights = |rest: &str| reader.weights.get(&reader.parameter("pooling", rest));
    let (query, in_weight, in_bias) =
        (weights("query"), weights("attention.in_proj_weight"), weights("attention.in_proj_bias"));
    let rows: Vec<&[f32]> = in_weight.chunks_exact(hidden).collect(); // W_q, W_k, W_v
    let dot = |row: &[f32]| row.iter().zip(query).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum::<f64>();
    let scaled_query = |j: usize| (dot(rows[j]) + f64::from(in_bias[j])) / (width as f64).sqrt();
    let query: Vec<f64> = (0..hidden).map(scaled_query).collect();
    let key = |(k, head): (usize, usize)| {
        let own = head * width..(head + 1) * width;
        own.map(|j| query[j] * f64::from(rows[hidden + j][k])).sum::<f64>() as f32
    };
    (0..hidden).flat_map(|k| (0..heads).map(move |head| (k, head))).map(key).collect()
}

/// Blocks [rows, columns], one after the other, each transposed.
fn transposed_blocks(blocks: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let transposed = |block: &[f32]| -> Vec<f32> {
        (0..columns * rows).map(|place| block[place % rows * columns + place / rows]).collect()
    };
    blocks.chunks_exact(rows * columns).flat_map(transposed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_transposed_by_itself() {
        let blocks: Vec<f32> = (0..12u8).map(f32::from).collect();
        let expected = [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11u8].map(f32::from);
        assert_eq!(transposed_blocks(&blocks, 2, 3), expected);
    }
}
