//! Losses and their gradients.

mod ascending;
mod classes;
mod graph;
mod needs;
mod tasks;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::model::ModelConfig;
use crate::model::Readout;
use crate::model::StepDropout;
pub use ascending::Ascending;
pub use classes::Classes;
use graph::wide;
pub use graph::{is_labelled, labelled_rows, softmax};
pub use needs::TargetNeeds;
pub use tasks::{Group, Task, TaskLoss, Tasks};

/// Losses. A target of NaN is not known, and counts nowhere; in graphs, a node whose targets are
/// not all known does not, see [`Graphs::labelled`](crate::graph::Graphs::labelled). The losses
/// that compare the outputs of one row, or the rows of one graph, with each other are for models
/// over graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(clippy::large_enum_variant, reason = "a run has one, and passes it by value a batch at a time")]
pub enum Loss {
    /// The mean over known targets of the squared error, as `torch.nn.MSELoss`.
    #[default]
    Mse,
    /// The mean over known targets of Huber's function of the error e ("Robust Estimation of a
    /// Location Parameter", 1964), as `torch.nn.HuberLoss`: ½·e² where |e| < `delta`,
    /// `delta`·(|e| - ½·`delta`) beyond.
    Huber {
        /// Error at which the square goes over into a straight line, > 0, in the unit of the
        /// targets.
        delta: f64,
    },
    /// The mean over known targets of the pinball loss, whose least is at a quantile of the targets
    /// (Koenker and Bassett, "Regression Quantiles", 1978): q·(t - y) for the level q where the
    /// target t is above the output y, (1 - q)·(y - t) where it is below. ½ is half the mean
    /// absolute error. Its slope at y = t, where it has none, is taken to be 0.
    Quantile {
        /// Shares of the targets that are to lie below the outputs, between 0 and 1; the same for
        /// all K. A model has an output for each: Q of the first target, then Q of the second, and
        /// so on. The loss is the mean over them, too.
        levels: Ascending,
    },
    /// The mean over known targets of the cross entropy of their classes: the negative logarithm of
    /// the class's share in the softmax of the target's C outputs, as `torch.nn.CrossEntropyLoss`
    /// of indices. A model has C outputs for the first target, then C for the second, and so on.
    Classes(Classes),
    /// The mean over rows of the cross entropy between the targets, which are the probabilities of
    /// K classes, and the softmax of the outputs, as `torch.nn.CrossEntropyLoss`.
    #[serde(rename = "cross_entropy")]
    CrossEntropy,
    /// RankNet's loss (Burges et al., "Learning to Rank using Gradient Descent", 2005) by horizon,
    /// mean over horizons and graphs: the mean over pairs of a graph's nodes of which one has the
    /// larger target of ln(1 + e^-d), d being by how much its output is the larger.
    #[serde(rename = "rank_pairwise")]
    RankPairwise,
    /// ListNet's loss (Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach",
    /// 2007) by horizon, mean over horizons and graphs: the cross entropy between the probabilities
    /// of each node to be on top, once by targets and once by outputs.
    #[serde(rename = "rank_listwise")]
    RankListwise {
        /// Divisor of the targets, > 0, in their unit: far above their spread, all nodes are wanted
        /// alike. 1 is the paper's.
        temperature: f64,
    },
    /// Several of the above at once, each of some of the targets. It is for samples that stand
    /// alone.
    Tasks(Tasks),
}

impl Loss {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Loss::Mse => "mse",
            Loss::Huber { .. } => "huber",
            Loss::Quantile { .. } => "quantile",
            Loss::CrossEntropy | Loss::Classes(_) => "cross_entropy",
            Loss::RankPairwise => "rank_pairwise",
            Loss::RankListwise { .. } => "rank_listwise",
            Loss::Tasks(_) => "tasks",
        }
    }

    /// True if outputs, or some of them, are in the unit of the targets.
    pub fn predicts_values(self) -> bool {
        match self {
            Loss::Mse | Loss::Huber { .. } | Loss::Quantile { .. } => true,
            Loss::Tasks(tasks) => tasks.groups().iter().any(|group| group.loss.predicts_values()),
            _ => false,
        }
    }

    /// True if it asks of outputs only how they order the nodes of a graph, so that they have no
    /// unit.
    pub fn ranks(self) -> bool {
        matches!(self, Loss::RankPairwise | Loss::RankListwise { .. })
    }

    /// Refuses a loss that cannot be formed of what is predicted with this readout; none for
    /// samples that stand alone.
    pub fn check_readout(self, readout: Option<Readout>) -> Result<()> {
        let expected = match (self, readout) {
            (Loss::Mse | Loss::Huber { .. } | Loss::Quantile { .. } | Loss::Classes(_), _)
            | (Loss::Tasks(_), None)
            | (Loss::CrossEntropy, Some(_)) => return Ok(()),
            (Loss::Tasks(_), Some(_)) => {
                let expected = "none for a model over graphs, which learns one loss";
                return Err(Error::setting("tasks", &"a list", expected));
            }
            (_, Some(Readout::Node)) => return Ok(()),
            (Loss::CrossEntropy, None) => {
                "`thresholds` or `classes` beside it, which make classes of the targets of samples that are not nodes of graphs"
            }
            (_, None) => {
                "mse, huber or quantile, as samples without a graph stand alone and have no ranks; set `graph`, which joins the samples of a time, or take ranks as targets with mse"
            }
            (_, Some(_)) => "a loss of one graph at a time, where it is the graph that is predicted and has no rank",
        };
        Err(Error::setting("loss", &self.name(), expected))
    }

    /// Refuses parameters out of range.
    ///
    /// # Errors
    /// [`Error::Setting`] and [`Error::Task`].
    pub fn check(self) -> Result<()> {
        match self {
            // Its slope must not vanish in the single precision that gradients are computed in.
            Loss::Huber { delta } if !(delta as f32 > 0.0 && delta.is_finite()) => {
                Err(Error::setting("huber_delta", &delta, "a positive number"))
            }
            // Both slopes must not vanish in single precision.
            Loss::Quantile { levels } if !levels.as_slice().iter().all(|&q| q as f32 > 0.0 && (q as f32) < 1.0) => {
                Err(Error::setting("quantile", &levels, "shares above 0 and below 1"))
            }
            Loss::Classes(classes) => classes.check(),
            Loss::RankListwise { temperature } if !(temperature > 0.0 && temperature.is_finite()) => {
                Err(Error::setting("rank_temperature", &temperature, "a positive number"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses groups that are not all of a sample's `targets`.
    pub fn check_groups(self, targets: usize) -> Result<()> {
        match self {
            Loss::Tasks(tasks) if tasks.targets() != targets => {
                let last = tasks.as_slice().len() - 1;
                let setting = format!("tasks[{last}].targets");
                let expected = format!("{targets} as its end: each target of a sample is in a task");
                Err(Error::Task { setting, value: format!("..{}", tasks.targets()), expected })
            }
            _ => Ok(()),
        }
    }

    /// The targets of a sample, of which there are so many, by the loss that each is learnt with.
    pub fn groups(self, targets: usize) -> Vec<Group> {
        match self {
            Loss::Tasks(tasks) => tasks.groups(),
            loss => {
                let outputs = 0..targets * loss.outputs_per_target();
                vec![Group { targets: 0..targets, outputs, loss, weight: 1.0 }]
            }
        }
    }

    /// Outputs of a model for a sample of so many targets.
    pub fn outputs(self, targets: usize) -> usize {
        match self {
            Loss::Tasks(tasks) => tasks.outputs(),
            loss => targets * loss.outputs_per_target(),
        }
    }

    /// M: outputs of a model for each target. They stand side by side, those of the first target
    /// first. Of tasks each group has its own M; see [`Loss::groups`].
    pub fn outputs_per_target(self) -> usize {
        match self {
            Loss::Quantile { levels } => levels.as_slice().len(),
            Loss::Classes(classes) => classes.count(),
            _ => 1,
        }
    }

    /// Which of a target's outputs stands for it where one number is asked for: of quantiles the
    /// one nearest to the median, of two the lower. Classes have none.
    pub fn point(self) -> usize {
        let Loss::Quantile { levels } = self else { return 0 };
        let distance = |&(_, level): &(usize, &f64)| (level - 0.5).abs();
        let nearest = levels.as_slice().iter().enumerate().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        nearest.map_or(0, |(k, _)| k)
    }

    /// Terms of [`Loss::sum`], over which the loss of a batch is the mean: the targets that are
    /// known, of quantiles each as often as there are.
    pub fn terms(self, targets: &[f32]) -> usize {
        match self {
            Loss::Tasks(tasks) => tasks.count(targets).iter().sum(),
            _ => self.terms_of(known_targets(targets)),
        }
    }

    /// Terms of so many samples of `targets` targets if all of them are known.
    pub fn terms_max(self, samples: usize, targets: usize) -> usize {
        self.groups(targets).into_iter().map(|group| group.loss.terms_of(samples * group.targets.len())).sum()
    }

    /// The same of so many targets that are known, for a loss without groups.
    pub fn terms_of(self, known: usize) -> usize {
        match self {
            Loss::Quantile { levels } => known * levels.as_slice().len(),
            _ => known,
        }
    }

    /// The loss summed over the outputs [.., K, M] for targets [.., K], without the division by the
    /// number of terms, in double precision. Targets of NaN are not known, and count nowhere. Of
    /// tasks it is the weighted mean over their groups times the number of all terms.
    ///
    /// # Panics
    /// For a loss that compares outputs with each other; see [`Loss::graph_sum`].
    pub fn sum(self, outputs: &[f32], targets: &[f32]) -> f64 {
        match self {
            Loss::Tasks(tasks) => tasks.sum(outputs, targets),
            _ => self.add_to(0.0, outputs, targets),
        }
    }

    /// [`Loss::sum`] with the terms of each sample multiplied by its weight, if `weights` `[N]` are
    /// given.
    ///
    /// # Panics
    /// As [`Loss::sum`].
    pub fn weighted_sum(self, outputs: &[f32], targets: &[f32], weights: Option<&[f32]>) -> f64 {
        let Some(weights) = weights else { return self.sum(outputs, targets) };
        if weights.is_empty() {
            return 0.0;
        }
        // Factors of tasks are those of all samples.
        let loss = match self {
            Loss::Tasks(tasks) => Loss::Tasks(tasks.with_counts_from(targets)),
            loss => loss,
        };
        let [outputs_width, width] = [outputs, targets].map(|rows| rows.len() / weights.len());
        let rows = outputs.chunks_exact(outputs_width).zip(targets.chunks_exact(width)).zip(weights);
        rows.map(|((y, targets), weight)| f64::from(*weight) * loss.sum(y, targets)).sum()
    }

    /// [`Loss::sum`] added to `sum` term by term, so that it does not matter where batches end.
    pub fn add_to(self, sum: f64, outputs: &[f32], targets: &[f32]) -> f64 {
        let pairs = outputs.chunks_exact(self.outputs_per_target()).zip(targets);
        let known = pairs.filter(|(_, target)| is_known(**target));
        known.fold(sum, |sum, (y, target)| sum + self.target_loss(y, f64::from(*target)))
    }

    /// The loss of the outputs [M] for one target. Of classes, NaN for a target that names none.
    fn target_loss(&self, y: &[f32], target: f64) -> f64 {
        let error = |y: f32| f64::from(y) - target;
        match *self {
            Loss::Mse => error(y[0]) * error(y[0]),
            Loss::Huber { delta } => huber(error(y[0]), delta),
            Loss::Quantile { levels } => {
                y.iter().zip(levels.as_slice()).map(|(&y, &level)| pinball(error(y), level)).sum()
            }
            Loss::Classes(classes) => {
                let class_slope = |class: usize| softmax(&wide(y)).1 - f64::from(y[class]);
                classes.index(target).map_or(f64::NAN, class_slope)
            }
            Loss::CrossEntropy | Loss::RankPairwise | Loss::RankListwise { .. } | Loss::Tasks(_) => {
                panic!("{} has no value for one target", self.name())
            }
        }
    }

    /// The gradient of the sum divided by `count`, such as the number of terms of the whole batch
    /// that `outputs` is a part of. That of outputs whose targets are not known is zero.
    ///
    /// # Panics
    /// As [`Loss::sum`].
    pub fn gradient(self, outputs: &[f32], targets: &[f32], count: usize, d_outputs: &mut [f32]) {
        if let Loss::Tasks(tasks) = self {
            return tasks.gradient(outputs, targets, count, d_outputs);
        }
        let width = self.outputs_per_target();
        let each_target = outputs.chunks_exact(width).zip(targets).zip(d_outputs.chunks_exact_mut(width));
        for ((y, &target), d) in each_target {
            match is_known(target) {
                true => self.slopes(y, f64::from(target), count, d),
                false => d.fill(0.0),
            }
        }
    }

    /// The slopes of the loss over `count` in the outputs [M] for one target.
    fn slopes(&self, y: &[f32], target: f64, count: usize, d: &mut [f32]) {
        let over_count = |x: f64| (x / count as f64) as f32;
        let error = |y: f32| y - target as f32;
        match *self {
            Loss::Mse => d[0] = over_count(2.0) * error(y[0]),
            Loss::Huber { delta } => d[0] = over_count(1.0) * limited(error(y[0]), delta as f32),
            Loss::Quantile { levels } => {
                for ((d, &y), level) in d.iter_mut().zip(y).zip(levels.as_slice()) {
                    *d = pinball_slope(error(y), over_count(-level), over_count(1.0 - level));
                }
            }
            Loss::Classes(classes) => {
                let class = classes.index(target);
                for (c, (d, share)) in d.iter_mut().zip(softmax(&wide(y)).0).enumerate() {
                    let wanted = class.map_or(f64::NAN, |class| f64::from(u8::from(c == class)));
                    *d = over_count(share - wanted);
                }
            }
            Loss::CrossEntropy | Loss::RankPairwise | Loss::RankListwise { .. } | Loss::Tasks(_) => {
                panic!("{} has no value for one target", self.name())
            }
        }
    }
}

/// Multiplies the gradient of each sample's outputs `[N, ..]` by its weight, if `weights` `[N]` are
/// given.
pub fn weigh_gradient(d_outputs: &mut [f32], weights: Option<&[f32]>) {
    let Some(weights) = weights.filter(|weights| !weights.is_empty()) else { return };
    let width = d_outputs.len() / weights.len();
    for (row, weight) in d_outputs.chunks_exact_mut(width).zip(weights) {
        row.iter_mut().for_each(|d| *d *= weight);
    }
}

/// Loss of a part of a batch, as a function of weights and samples.
#[derive(Clone, Copy, Debug)]
pub struct Objective {
    /// The loss.
    pub loss: Loss,
    /// Divisor of its sum over the whole step.
    pub count: usize,
    /// Position of the batch's first sample in the epoch's order, by which dense training finds its
    /// runs.
    pub position: usize,
    /// Dropout of the step.
    pub dropout: StepDropout,
    /// Factor of the gradients: the loss scale, or 1. A GPU reads the scale in its own memory.
    pub scale: f32,
}

/// The numbers that a loss has, as settings.
impl Loss {
    /// Parameter of a loss that has one: name of its setting and value.
    pub fn setting(self) -> Option<(&'static str, String)> {
        match self {
            Loss::Huber { delta } => Some(("huber_delta", delta.to_string())),
            Loss::Quantile { levels } => Some(("quantile", levels.to_string())),
            Loss::Classes(Classes::Labels(count)) => Some(("classes", count.to_string())),
            Loss::Classes(Classes::Thresholds(thresholds)) => Some(("thresholds", thresholds.to_string())),
            Loss::CrossEntropy => Some(("classes", "none".to_owned())),
            Loss::RankListwise { temperature } => Some(("rank_temperature", temperature.to_string())),
            Loss::Tasks(tasks) => Some(("tasks", tasks.to_string())),
            _ => None,
        }
    }
}

/// True if a target is known: NaN stands for one that is not.
pub fn is_known(target: f32) -> bool {
    !target.is_nan()
}

/// Targets that are known.
pub fn known_targets(targets: &[f32]) -> usize {
    targets.iter().filter(|target| is_known(**target)).count()
}

/// NaN for an error that is NaN.
fn huber(error: f64, delta: f64) -> f64 {
    let size = error.abs();
    if size > delta { delta * (size - 0.5 * delta) } else { 0.5 * (error * error) }
}

/// The slope of Huber's function: `error` within ±`delta`. NaN for an error that is NaN.
fn limited(error: f32, delta: f32) -> f32 {
    if error > delta {
        delta
    } else if error < -delta {
        -delta
    } else {
        error
    }
}

/// The loss of a quantile; NaN for an error that is NaN.
pub fn pinball(error: f64, level: f64) -> f64 {
    if error > 0.0 { (1.0 - level) * error } else { -level * error }
}

/// The slopes are those below and above an error of 0. NaN for an error that is NaN.
fn pinball_slope(error: f32, below: f32, above: f32) -> f32 {
    if error > 0.0 {
        above
    } else if error < 0.0 {
        below
    } else {
        // Zero or NaN.
        error
    }
}

impl ModelConfig {
    /// The same with the outputs that `loss` compares with each target.
    pub fn for_loss(self, loss: Loss) -> Self {
        let outputs = match loss {
            Loss::Tasks(tasks) => Some(loss.outputs(tasks.targets())),
            _ => None,
        };
        ModelConfig { outputs_per_target: loss.outputs_per_target(), outputs, ..self }
    }
}

#[cfg(test)]
mod tests;
