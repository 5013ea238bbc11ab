//! Attention over the states of a window, and among the vectors of the timeframes.

use crate::parameters::Weights;
use crate::tape::Var;

/// A result of attention, and its weights [L, S] by head.
pub(crate) struct Attended<'t> {
    pub(crate) result: Var<'t>,
    pub(crate) weights: Vec<Var<'t>>,
}

/// torch.nn.MultiheadAttention(H, heads, batch_first=True) `name` of `query` [L, H] over `states`
/// [S, H], which are keys and values: for each head, of d = H / heads units,
///
/// ```text
/// Q = W_q query + b_q      K = W_k states + b_k      V = W_v states + b_v
/// softmax(Q Kᵀ / √d) V
/// ```
///
/// and W_o of the heads side by side + b_o.
pub(crate) fn multihead_attention<'t>(
    weights: &Weights<'t>,
    name: &str,
    heads: usize,
    query: Var<'t>,
    states: Var<'t>,
) -> Attended<'t> {
    let hidden = query.columns();
    let in_weight = weights.get(&format!("{name}.in_proj_weight"), 3 * hidden, hidden);
    let in_bias = weights.get(&format!("{name}.in_proj_bias"), 1, 3 * hidden);
    let project = |x: Var<'t>, part: usize| {
        let own = part * hidden..(part + 1) * hidden;
        x.linear(in_weight.gather(&own.clone().collect::<Vec<_>>()), Some(in_bias.slice(own)))
    };
    let (q, k, v) = (project(query, 0), project(states, 1), project(states, 2));
    let width = hidden / heads;
    let head = |head: usize| {
        let own = head * width..(head + 1) * width;
        let scores = q.slice(own.clone()).matmul(k.slice(own.clone()).transposed()).scale(1.0 / (width as f64).sqrt());
        let weights = scores.softmax();
        (weights.matmul(v.slice(own)), weights)
    };
    let (values, weights_by_head): (Vec<Var<'t>>, Vec<Var<'t>>) = (0..heads).map(head).unzip();
    let result = weights.linear(&format!("{name}.out_proj"), Var::concat_columns(&values), hidden);
    Attended { result, weights: weights_by_head }
}

/// Pooling of the states of a window [T, H] to [1, H]: attention of a learned query, `name`.query.
pub(crate) fn pool<'t>(weights: &Weights<'t>, name: &str, heads: usize, states: Var<'t>) -> Attended<'t> {
    let query = weights.get(&format!("{name}.query"), 1, states.columns());
    multihead_attention(weights, &format!("{name}.attention"), heads, query, states)
}

/// Fusion of the vectors of the timeframes [n, H] to [1, H]: the mean over the tokens of
/// torch.nn.TransformerEncoderLayer(H, heads, dim_feedforward=`inner`, dropout=0,
/// activation="relu", batch_first=True), whose norms come last:
///
/// ```text
/// y = norm1(x + attention(x, x, x))
/// z = norm2(y + linear2(relu(linear1(y))))
/// ```
pub(crate) fn fuse<'t>(weights: &Weights<'t>, heads: usize, inner: usize, tokens: Var<'t>) -> Attended<'t> {
    let seen = multihead_attention(weights, "fusion.self_attn", heads, tokens, tokens);
    let y = weights.layer_norm("fusion.norm1", tokens + seen.result);
    let wide = weights.linear("fusion.linear1", y, inner).relu();
    let z = weights.layer_norm("fusion.norm2", y + weights.linear("fusion.linear2", wide, tokens.columns()));
    Attended { result: z.mean_rows(), weights: seen.weights }
}
