//! Several losses at once, each of a group of targets.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Ascending, Classes, Loss, known_targets};
use crate::error::{Error, Result};

/// Largest distance of the weights' sum from one: rounding is forgiven, thirds written in four
/// digits are not.
const WEIGHTS_TOLERANCE: f64 = 1e-6;

/// Targets that are learnt with one loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The first of them, and the one after the last.
    pub targets: [usize; 2],
    /// Loss of the group.
    pub loss: TaskLoss,
    /// Its share in the loss of all, > 0.
    pub weight: f64,
}

/// A [`Loss`] that compares each target with outputs of its own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskLoss {
    /// [`Loss::Mse`].
    Mse,
    /// [`Loss::Huber`].
    Huber {
        /// Error at which the square goes over into a straight line.
        delta: f64,
    },
    /// [`Loss::Quantile`].
    Quantile {
        /// Shares of the targets that are to lie below the outputs.
        levels: Ascending,
    },
    /// [`Loss::Classes`].
    Classes(Classes),
}

impl From<TaskLoss> for Loss {
    fn from(loss: TaskLoss) -> Self {
        match loss {
            TaskLoss::Mse => Loss::Mse,
            TaskLoss::Huber { delta } => Loss::Huber { delta },
            TaskLoss::Quantile { levels } => Loss::Quantile { levels },
            TaskLoss::Classes(classes) => Loss::Classes(classes),
        }
    }
}

/// One to eight groups of targets, each with a loss and a weight. Together they are all targets, in
/// their order, and their weights sum to one.
///
/// The loss is Σ wᵢ · Lᵢ, Lᵢ being the mean over the known targets of group i; of a group of which
/// no target is known it is 0. A model has the outputs of the first group, then those of the
/// second, and so on.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Task>", into = "Vec<Task>")]
pub struct Tasks {
    len: usize,
    /// Repeats of the first from `len` on.
    tasks: [Task; Tasks::MAX],
    /// Terms of each over a whole step, where they are more than those of the targets at hand.
    counts: Option<[usize; Tasks::MAX]>,
}

/// Targets with one loss, and the outputs that it compares with them.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Among the K targets of a sample.
    pub targets: Range<usize>,
    /// Among its outputs.
    pub outputs: Range<usize>,
    /// Loss; none that has groups itself.
    pub loss: Loss,
    /// Its share in the loss of all.
    pub weight: f64,
}

impl Tasks {
    /// Largest count.
    pub const MAX: usize = 8;

    /// These groups.
    ///
    /// # Errors
    /// [`Error::Setting`] for no tasks or too many. [`Error::Task`] for groups that do not follow
    /// one another from target 0 on, and settings of a loss out of range; it names the group,
    /// counted from 0. [`Error::TaskWeights`] for weights that do not sum to 1.
    pub fn new(tasks: &[Task]) -> Result<Self> {
        let Some(&first) = tasks.first().filter(|_| tasks.len() <= Self::MAX) else {
            return Err(Error::setting("tasks", &format!("a list of {}", tasks.len()), "1 to 8 tasks"));
        };
        let mut next = 0;
        for (k, Task { targets: [start, end], loss, weight }) in tasks.iter().enumerate() {
            let refuse = |key: &str, found: String, expected: String| {
                Err(Error::Task { setting: format!("tasks[{k}].{key}"), value: found, expected })
            };
            if *start != next || end <= start {
                let expected = format!("{next}..END: tasks follow one another and leave no target out");
                return refuse("targets", format!("{start}..{end}"), expected);
            }
            if !(*weight > 0.0 && weight.is_finite()) {
                return refuse("weight", weight.to_string(), "a positive number".to_owned());
            }
            if let Err(Error::Setting { setting, value, expected }) = Loss::from(*loss).check() {
                return refuse(setting, value, expected.to_owned());
            }
            next = *end;
        }
        let sum: f64 = tasks.iter().map(|task| task.weight).sum();
        if (sum - 1.0).abs() > WEIGHTS_TOLERANCE {
            return Err(Error::TaskWeights { sum });
        }
        let mut all = [first; Self::MAX];
        all[..tasks.len()].copy_from_slice(tasks);
        Ok(Tasks { len: tasks.len(), tasks: all, counts: None })
    }

    /// The groups.
    pub fn as_slice(&self) -> &[Task] {
        &self.tasks[..self.len]
    }

    /// K.
    pub fn targets(&self) -> usize {
        self.as_slice().last().expect("there is a task").targets[1]
    }

    pub(super) fn groups(&self) -> Vec<Group> {
        let mut next = 0;
        let group = |&Task { targets: [start, end], loss, weight }: &Task| {
            let loss = Loss::from(loss);
            let first = next;
            next += (end - start) * loss.outputs_per_target();
            Group { targets: start..end, outputs: first..next, loss, weight }
        };
        self.as_slice().iter().map(group).collect()
    }

    /// Terms of each group over `targets` [.., K] that are known.
    pub fn count(&self, targets: &[f32]) -> [usize; Tasks::MAX] {
        let mut counts = [0; Tasks::MAX];
        for (count, group) in counts.iter_mut().zip(self.groups()) {
            let rows = targets.chunks_exact(self.targets());
            let known = rows.map(|row| known_targets(&row[group.targets.clone()])).sum();
            *count = group.loss.terms_of(known);
        }
        counts
    }

    /// The same as parts of a step whose known targets have so many terms in each group.
    pub fn with_step_counts(self, counts: [usize; Tasks::MAX]) -> Self {
        Tasks { counts: Some(counts), ..self }
    }

    /// The same as all of a step, whose targets are `targets` `[.., K]`, unless the terms of the
    /// step are known.
    pub(super) fn with_counts_from(self, targets: &[f32]) -> Self {
        Tasks { counts: self.counts.or_else(|| Some(self.count(targets))), ..self }
    }

    /// Factor of each group's terms, so that the mean over the terms of all is Σ wᵢ · Lᵢ.
    pub fn factors(&self, targets: &[f32]) -> Vec<f64> {
        let counts = self.counts.unwrap_or_else(|| self.count(targets));
        let all = counts.iter().sum::<usize>() as f64;
        let factor = |(task, &count): (&Task, &usize)| task.weight * all / count.max(1) as f64;
        self.as_slice().iter().zip(&counts).map(factor).collect()
    }

    pub(super) fn sum(&self, outputs: &[f32], targets: &[f32]) -> f64 {
        let width = self.outputs();
        let group_value = |(Group { targets: own, outputs: y, loss, .. }, factor): (Group, f64)| {
            let rows = outputs.chunks_exact(width).zip(targets.chunks_exact(self.targets()));
            factor * rows.fold(0.0, |sum, (row, targets)| loss.add_to(sum, &row[y.clone()], &targets[own.clone()]))
        };
        self.groups().into_iter().zip(self.factors(targets)).map(group_value).sum()
    }

    pub(super) fn gradient(&self, outputs: &[f32], targets: &[f32], count: usize, d_outputs: &mut [f32]) {
        let width = self.outputs();
        for (group, factor) in self.groups().into_iter().zip(self.factors(targets)) {
            let (factor, places) = (factor as f32, group.outputs);
            let rows = outputs.chunks_exact(width).zip(targets.chunks_exact(self.targets()));
            for ((y, targets), d) in rows.zip(d_outputs.chunks_exact_mut(width)) {
                let d = &mut d[places.clone()];
                group.loss.gradient(&y[places.clone()], &targets[group.targets.clone()], count, d);
                d.iter_mut().for_each(|d| *d *= factor);
            }
        }
    }

    /// Outputs of a sample.
    pub(super) fn outputs(&self) -> usize {
        self.groups().last().expect("there is a task").outputs.end
    }
}

impl TryFrom<Vec<Task>> for Tasks {
    type Error = String;

    fn try_from(tasks: Vec<Task>) -> Result<Self, String> {
        Tasks::new(&tasks).map_err(|error| error.to_string())
    }
}

impl From<Tasks> for Vec<Task> {
    fn from(tasks: Tasks) -> Self {
        tasks.as_slice().to_vec()
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// Each with its targets, its loss and its weight, as resuming compares them.
impl fmt::Display for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, Task { targets: [start, end], loss, weight }) in self.as_slice().iter().enumerate() {
            let comma = if k == 0 { "" } else { "; " };
            write!(f, "{comma}{start}..{end} {} x {weight}", Loss::from(*loss).name())?;
            if let Some((_, setting)) = Loss::from(*loss).setting() {
                write!(f, " ({setting})")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
