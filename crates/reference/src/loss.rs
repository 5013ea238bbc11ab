//! Losses, whose gradients come from the tape. A target of NaN is not known, and counts nowhere.

use megabatch_nn::loss::{Classes, Group, Loss};

use crate::tape::{Matrix, Tape, Var};

/// The loss of a batch, and its gradient in the outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct LossValue {
    /// The mean over terms; of tasks the weighted sum of their means. 0 where no target is known.
    pub mean: f64,
    /// As the outputs, sample after sample or graph after graph.
    pub gradient: Vec<f64>,
}

/// The loss of samples that stand alone: outputs [B, K · M] for targets [B, K = `width`].
///
/// # Panics
/// For a loss that compares outputs with each other.
pub fn loss(loss: Loss, outputs: &[f64], targets: &[f64], width: usize) -> LossValue {
    let samples = targets.len() / width;
    let tape = Tape::default();
    let y = tape.leaf(Matrix::new(samples, loss.outputs(width), outputs.to_vec()));
    let targets = Matrix::new(samples, width, targets.to_vec());
    let group_mean = |group: Group| {
        let known = known_terms(&group, &targets);
        group_terms(&tape, &group, y, &known).map(|terms| mean(terms).scale(group.weight))
    };
    let means = loss.groups(width).into_iter().filter_map(group_mean);
    valued(&tape, y, means.reduce(|sum, mean| sum + mean))
}

/// The loss of graphs, given the outputs [R, K · M] and the targets [R, K = `width`] of each. A row
/// with a target of NaN has no label, and counts nowhere.
///
/// # Panics
/// For tasks.
pub fn loss_of_graphs(loss: Loss, graphs: &[(&[f64], &[f64])], width: usize) -> LossValue {
    let tape = Tape::default();
    let columns = loss.outputs(width);
    let all = graphs.iter().flat_map(|(outputs, _)| outputs.iter().copied()).collect::<Vec<_>>();
    let y = tape.leaf(Matrix::new(all.len() / columns, columns, all));
    let (mut terms, mut first) = (Vec::new(), 0);
    for (_, targets) in graphs {
        let rows = targets.len() / width;
        let targets = Matrix::new(rows, width, targets.to_vec());
        let labelled: Vec<usize> = (0..rows).filter(|&i| (0..width).all(|k| !targets.get(i, k).is_nan())).collect();
        let own = y.gather(&labelled.iter().map(|row| first + row).collect::<Vec<_>>());
        let targets = Matrix::from_fn(labelled.len(), width, |i, k| targets.get(labelled[i], k));
        terms.extend(graph_terms(&tape, loss, own, &targets));
        first += rows;
    }
    valued(&tape, y, (!terms.is_empty()).then(|| mean(Var::concat_rows(&terms))))
}

/// A known target, and the place of its M outputs.
struct Known {
    row: usize,
    first: usize,
    target: f64,
}

fn known_terms(group: &Group, targets: &Matrix) -> Vec<Known> {
    let each = group.outputs.len() / group.targets.len();
    let places = (0..targets.rows).flat_map(|row| group.targets.clone().map(move |k| (row, k)));
    places
        .map(|(row, k)| {
            let first = group.outputs.start + (k - group.targets.start) * each;
            Known { row, first, target: targets.get(row, k) }
        })
        .filter(|known| !known.target.is_nan())
        .collect()
}

/// Terms of a group's loss [n, M], of which it is the mean; none where no target is known.
fn group_terms<'t>(tape: &'t Tape, group: &Group, y: Var<'t>, known: &[Known]) -> Option<Var<'t>> {
    let each = group.outputs.len() / group.targets.len();
    let outputs: Vec<Var<'t>> =
        known.iter().map(|known| y.gather(&[known.row]).slice(known.first..known.first + each)).collect();
    if outputs.is_empty() {
        return None;
    }
    let targets: Vec<f64> = known.iter().map(|known| known.target).collect();
    Some(target_terms(tape, group.loss, Var::concat_rows(&outputs), &targets))
}

/// Terms of the loss of outputs [n, M] for targets [n].
fn target_terms<'t>(tape: &'t Tape, loss: Loss, y: Var<'t>, targets: &[f64]) -> Var<'t> {
    let error = || y - tape.leaf(Matrix::new(targets.len(), 1, targets.to_vec()));
    match loss {
        Loss::Mse => error() * error(),
        Loss::Huber { delta } => huber(error(), delta),
        Loss::Quantile { levels } => {
            let levels = levels.as_slice().iter().enumerate();
            Var::concat_columns(&levels.map(|(m, &level)| pinball(error().slice(m..m + 1), level)).collect::<Vec<_>>())
        }
        Loss::Classes(classes) => y.log_sum_exp() - (y * tape.leaf(one_hot(classes, targets))).sum_columns(),
        _ => panic!("{} is a loss of graphs", loss.name()),
    }
}

/// Terms of the loss of one graph, of outputs [n, K · M] of rows with labels; none without.
fn graph_terms<'t>(tape: &'t Tape, loss: Loss, y: Var<'t>, targets: &Matrix) -> Option<Var<'t>> {
    if targets.rows == 0 || (loss.ranks() && targets.rows < 2) {
        return None;
    }
    let horizon_loss = |k: usize| {
        let column: Vec<f64> = (0..targets.rows).map(|i| targets.get(i, k)).collect();
        rank(tape, loss, y.slice(k..k + 1), &column)
    };
    match loss {
        // torch.nn.CrossEntropyLoss of probabilities: -Σ p ln softmax(y).
        Loss::CrossEntropy => Some(cross_entropy(tape.leaf(targets.clone()), y)),
        Loss::RankPairwise | Loss::RankListwise { .. } => {
            let horizons: Vec<Var<'t>> = (0..targets.columns).map(horizon_loss).collect();
            Some(Var::concat_columns(&horizons).mean_columns())
        }
        _ => {
            let groups = loss.groups(targets.columns);
            assert!(groups.len() == 1, "tasks are for samples that stand alone");
            let terms = group_terms(tape, &groups[0], y, &known_terms(&groups[0], targets))?;
            // A column, as the terms of all graphs are.
            Some(Var::concat_rows(&(0..terms.columns()).map(|m| terms.slice(m..m + 1)).collect::<Vec<_>>()))
        }
    }
}

/// torch.nn.HuberLoss: ½ e² where |e| ≤ δ, δ (|e| - ½ δ) beyond.
fn huber(error: Var<'_>, delta: f64) -> Var<'_> {
    let value = move |e: f64| if e.abs() <= delta { 0.5 * e * e } else { delta * (e.abs() - 0.5 * delta) };
    error.map(value, move |e, _| e.clamp(-delta, delta))
}

/// Koenker and Bassett, "Regression Quantiles", 1978: (1 - q) e for errors above 0, -q e below.
fn pinball(error: Var<'_>, level: f64) -> Var<'_> {
    let slope = move |e: f64| match e {
        e if e > 0.0 => 1.0 - level,
        e if e < 0.0 => -level,
        _ => 0.0,
    };
    error.map(move |e| slope(e) * e, move |e, _| slope(e))
}

/// Σ p (ln Σ eʸ - y) of each row, [n, 1].
fn cross_entropy<'t>(probabilities: Var<'t>, y: Var<'t>) -> Var<'t> {
    probabilities.sum_columns() * y.log_sum_exp() - (probabilities * y).sum_columns()
}

/// The classes that targets name, as rows with a one.
fn one_hot(classes: Classes, targets: &[f64]) -> Matrix {
    let class = |i: usize| classes.index(targets[i]).unwrap_or_else(|| panic!("{} names no class", targets[i]));
    Matrix::from_fn(targets.len(), classes.count(), |i, c| if class(i) == c { 1.0 } else { 0.0 })
}

/// The loss of the ranks of one horizon, outputs [n, 1] for targets [n]: [1, 1].
fn rank<'t>(tape: &'t Tape, loss: Loss, y: Var<'t>, targets: &[f64]) -> Var<'t> {
    match loss {
        // Burges et al., "Learning to Rank using Gradient Descent", 2005: the mean of ln(1 + e⁻ᵈ)
        // over the pairs whose targets differ, d being by how much the output of the higher target
        // is the larger.
        Loss::RankPairwise => {
            let pairs = (0..targets.len()).flat_map(|high| (0..targets.len()).map(move |low| (high, low)));
            let (high, low): (Vec<usize>, Vec<usize>) =
                pairs.filter(|&(high, low)| targets[high] > targets[low]).unzip();
            match high.is_empty() {
                true => tape.zeros(1, 1),
                false => softplus(y.gather(&low) - y.gather(&high)).mean_rows(),
            }
        }
        // Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", 2007: the
        // cross entropy between the softmax of the targets and that of the outputs.
        Loss::RankListwise { temperature } => {
            let targets = Matrix::from_fn(1, targets.len(), |_, i| targets[i] / temperature);
            cross_entropy(tape.leaf(targets).softmax(), y.transposed())
        }
        _ => panic!("{} ranks nothing", loss.name()),
    }
}

/// ln(1 + eˣ), whose slope is the sigmoid.
fn softplus(x: Var<'_>) -> Var<'_> {
    x.map(|x| x.max(0.0) + (-x.abs()).exp().ln_1p(), |x, _| 1.0 / (1.0 + (-x).exp()))
}

/// The mean of all numbers, [1, 1].
fn mean(terms: Var<'_>) -> Var<'_> {
    terms.mean_columns().mean_rows()
}

fn valued<'t>(tape: &'t Tape, y: Var<'t>, mean: Option<Var<'t>>) -> LossValue {
    match mean {
        None => LossValue { mean: 0.0, gradient: vec![0.0; y.value().values.len()] },
        Some(mean) => {
            let gradients = tape.gradients(mean, Matrix::new(1, 1, vec![1.0]));
            LossValue { mean: mean.value().get(0, 0), gradient: gradients.with_respect_to(y).values }
        }
    }
}
