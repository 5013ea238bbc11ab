//! Fusion of the timeframes' vectors: side by side, or through one layer of a transformer,
//! torch.nn.TransformerEncoderLayer with its norms last and ReLU, and their mean.

use super::Weights;
use super::graph::{Graph, Node};
use super::recurrent::layer_norm;

/// One vector after the other, [B, n · H].
pub(super) fn concat(graph: &mut Graph, vectors: &[String]) -> String {
    match vectors {
        [only] => only.clone(),
        _ => {
            let inputs: Vec<&str> = vectors.iter().map(String::as_str).collect();
            graph.add(Node::new("Concat", &inputs, "fusion.joined").int("axis", 1))
        }
    }
}

/// From n vectors [B, H] to one [B, H].
pub(super) fn attention(
    graph: &mut Graph,
    weights: Weights<'_>,
    vectors: &[String],
    hidden: usize,
    heads: usize,
) -> String {
    let tokens = as_tokens(graph, vectors);
    let seen = self_attention(graph, weights, &tokens, vectors.len(), hidden / heads, heads);
    let added = graph.add(Node::new("Add", &[&tokens, &seen], "fusion.first"));
    let first = layer_norm(graph, weights, &added, "fusion.norm1");
    let wide = linear(graph, weights, &first, "fusion.linear1");
    let wide = graph.add(Node::new("Relu", &[&wide], "fusion.relu"));
    let narrow = linear(graph, weights, &wide, "fusion.linear2");
    let added = graph.add(Node::new("Add", &[&first, &narrow], "fusion.second"));
    let second = layer_norm(graph, weights, &added, "fusion.norm2");
    graph.add(Node::new("ReduceMean", &[&second], "fusion.mean").ints("axes", &[1]).int("keepdims", 0))
}

/// [B, n, H].
fn as_tokens(graph: &mut Graph, vectors: &[String]) -> String {
    let axes = graph.whole_numbers(&[1]);
    let token = |vector: &String| graph.add(Node::new("Unsqueeze", &[vector, &axes], format!("{vector}.token")));
    let tokens: Vec<String> = vectors.iter().map(token).collect();
    let inputs: Vec<&str> = tokens.iter().map(String::as_str).collect();
    graph.add(Node::new("Concat", &inputs, "fusion.tokens").int("axis", 1))
}

/// torch.nn.MultiheadAttention among the tokens [B, n, H] of a sample, with d numbers of a head.
fn self_attention(
    graph: &mut Graph,
    weights: Weights<'_>,
    tokens: &str,
    count: usize,
    width: usize,
    heads: usize,
) -> String {
    let hidden = (width * heads) as i64;
    let projected =
        weights.map(graph, tokens, "fusion.qkv", "fusion.self_attn.in_proj_weight", "fusion.self_attn.in_proj_bias");
    let mut split = Node::new("Split", &[&projected], "fusion.q").int("axis", 2);
    split.outputs.extend(["fusion.k", "fusion.v"].map(str::to_owned));
    graph.add(split);
    let by_head = graph.whole_numbers(&[-1, count as i64, heads as i64, width as i64]);
    // [B, heads, n, d], and the keys [B, heads, d, n].
    let mut heads_of = |part: &str, perm: &[i64]| {
        let cut = graph.add(Node::new("Reshape", &[part, &by_head], format!("{part}.heads")));
        graph.add(Node::new("Transpose", &[&cut], format!("{part}.by_head")).ints("perm", perm))
    };
    let (q, k) = (heads_of("fusion.q", &[0, 2, 1, 3]), heads_of("fusion.k", &[0, 2, 3, 1]));
    let v = heads_of("fusion.v", &[0, 2, 1, 3]);
    let products = graph.add(Node::new("MatMul", &[&q, &k], "fusion.products"));
    let scale = graph.constant("fusion.scale", &[], vec![1.0 / (width as f32).sqrt()]);
    let scores = graph.add(Node::new("Mul", &[&products, &scale], "fusion.scores"));
    let shares = graph.add(Node::new("Softmax", &[&scores], "fusion.weights").int("axis", -1));
    let seen = graph.add(Node::new("MatMul", &[&shares, &v], "fusion.seen_by_head"));
    let transposed = graph.add(Node::new("Transpose", &[&seen], "fusion.seen_turned").ints("perm", &[0, 2, 1, 3]));
    let joined = graph.whole_numbers(&[-1, count as i64, hidden]);
    let seen = graph.add(Node::new("Reshape", &[&transposed, &joined], "fusion.seen"));
    linear(graph, weights, &seen, "fusion.self_attn.out_proj")
}

/// torch.nn.Linear `<name>` of the last dimension of [B, n, ..].
fn linear(graph: &mut Graph, weights: Weights<'_>, x: &str, name: &str) -> String {
    weights.map(graph, x, &format!("{name}.out"), &format!("{name}.weight"), &format!("{name}.bias"))
}
