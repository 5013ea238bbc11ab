//! Predictions without a network. A model that does not beat them has learnt nothing.

mod most_frequent;

use megabatch_gpu_core::Device;
use megabatch_nn::batch::BatchView;
use megabatch_nn::graph::{EdgeForm, check_graphs};
use megabatch_nn::loss::{Group, Loss};
use megabatch_nn::model::Readout;
use megabatch_nn_cpu::matmul::{Matrix, Output, multiply};

use crate::data::level::Level;
use crate::data::prefetch::{GatherMode, Source, with_batches};
use crate::data::sample_weights::LossInputs;
use crate::error::{Error, Result};
use crate::evaluate::selection::{EvaluationProgress, Selection, SharedProgress};
use most_frequent::{ClassCounts, ProbabilitySums};

/// The ridge of the linear baseline, as a share of the mean of the normal matrix's diagonal. It
/// keeps constant and repeated features, such as the time of day in several timeframes, from making
/// the equations singular.
const RIDGE: f64 = 1e-8;

/// Samples of a batch while baselines are fitted. Graphs stay whole.
const BATCH_SAMPLES: usize = 64;

/// Baselines fitted on training samples.
#[derive(Clone, Debug)]
pub struct Baselines {
    /// Level of prediction in graphs; `None` for samples that stand alone.
    readout: Option<Readout>,
    fitted: Fitted,
}

#[derive(Clone, Debug)]
enum Fitted {
    Numbers {
        /// Mean target of each horizon, [K].
        mean: Vec<f32>,
        /// Coefficients of the last bar's features of every timeframe, side by side, and of 1, [P,
        /// K].
        coefficients: Vec<f64>,
    },
    /// Outputs for the share of each class, [K, C]; [K] where the targets are the probabilities of
    /// K classes.
    Classes { outputs: Vec<f32> },
    /// For tasks: the baselines of numbers for all targets, and the outputs for each group of
    /// classes.
    Groups { numbers: Box<Fitted>, classes: Vec<Option<Vec<f32>>> },
}

impl Baselines {
    /// Fits the mean of each horizon and a linear regression on the last bar's features of every
    /// timeframe, in one pass that keeps sums only: P² + P·K doubles, whatever the number of
    /// samples, and P² more for each horizon with targets that are not known, which count nowhere.
    /// Where samples are the nodes of graphs, `training` lists graphs, and every node whose targets
    /// are all known counts. For a horizon without any known target nothing is predicted: NaN.
    ///
    /// Whole graphs are regressed on the sums over their nodes if a model with this `readout` reads
    /// the sum, else on the means. For a `loss` of classes, the share of each class is fitted.
    /// `progress` gets the number of samples, or graphs, done after every batch.
    ///
    /// # Errors
    /// [`Error::NothingLeft`] for no samples, [`Error::Gather`] and [`Error::Memory`] as for
    /// training; [`Targets`](megabatch_nn::Error::Targets) for targets that the loss has no meaning
    /// for; [`Error::Interrupted`] where `progress` breaks.
    pub fn fit(
        device: &Device,
        training: Selection<'_>,
        readout: Option<Readout>,
        loss: Loss,
        progress: &mut EvaluationProgress<'_>,
    ) -> Result<Self> {
        let Selection { samples, indices } = training;
        if indices.is_empty() {
            let advice = "the baselines are fitted on the training samples; give them a fraction in `split`";
            return Err(Error::NothingLeft { part: "training", before: 0, after: 0, advice });
        }
        let fitting = Fitting { device, training, readout, progress };
        let fitted = match loss {
            Loss::Classes(classes) => {
                let mut counts = ClassCounts::new(classes, samples.shape().outputs);
                for_each_batch(fitting, |batch| {
                    counts.add(&Level::from_readout(readout).targets(batch), batch.graphs().is_some())
                })?;
                (!counts.is_empty()).then(|| Fitted::Classes { outputs: counts.outputs() })
            }
            Loss::CrossEntropy => {
                let mut sums = ProbabilitySums::new(samples.shape().outputs);
                for_each_batch(fitting, |batch| sums.add(&Level::from_readout(readout).targets(batch)))?;
                (!sums.is_empty()).then(|| Fitted::Classes { outputs: sums.outputs() })
            }
            Loss::Tasks(_) => fit_groups(fitting, &loss.groups(samples.shape().outputs))?,
            _ => fit_numbers(fitting, |_| Ok(()))?,
        };
        let advice = "none of the training targets is known; give samples of which some are";
        let none = Error::NothingLeft { part: "training", before: indices.len(), after: 0, advice };
        Ok(Baselines { readout, fitted: fitted.ok_or(none)? })
    }

    /// Each baseline's name and its predictions for a batch: [B, K], or a row a graph if graphs are
    /// predicted; for classes [B, K, C], as a model puts them out.
    ///
    /// For tasks, the numbers of all targets, as if each were one.
    pub fn predict(&self, batch: &BatchView<'_>) -> Vec<(&'static str, Vec<f32>)> {
        let numbers = match &self.fitted {
            Fitted::Groups { numbers, .. } => numbers,
            fitted => fitted,
        };
        let (mean, coefficients) = match numbers {
            Fitted::Numbers { mean, coefficients } => (mean, coefficients),
            Fitted::Groups { .. } => unreachable!("groups are not made of groups"),
            Fitted::Classes { outputs } => {
                let rows = Level::from_readout(self.readout).targets(batch).len() / batch.shape().outputs;
                return vec![("most_frequent", outputs.repeat(rows))];
            }
        };
        let outputs = mean.len();
        let (x, width) = regressors(batch, self.readout);
        let rows = x.len() / width;
        let mut linear = vec![0.0; rows * outputs];
        let coefficients = Matrix::new(coefficients, width, outputs);
        multiply(Matrix::new(&x, rows, width), coefficients, Output::Overwrite, &mut linear);
        vec![
            ("no_change", vec![0.0; rows * outputs]),
            ("mean", mean.repeat(rows)),
            ("linear", linear.into_iter().map(|y| y as f32).collect()),
        ]
    }
}

impl Baselines {
    /// The predictions for each of `groups`, with the targets of the group alone.
    pub(crate) fn predict_groups(&self, batch: &BatchView<'_>, groups: &[Group]) -> Vec<Vec<(&'static str, Vec<f32>)>> {
        let all = self.predict(batch);
        let Fitted::Groups { classes, .. } = &self.fitted else { return vec![all] };
        let (rows, width) = (batch.len(), batch.shape().outputs);
        let group_predictions = |(group, outputs): (&Group, &Option<Vec<f32>>)| match outputs {
            Some(outputs) => vec![("most_frequent", outputs.repeat(rows))],
            None => {
                let own = |row: &[f32]| row[group.targets.clone()].to_vec();
                all.iter().map(|(name, values)| (*name, values.chunks_exact(width).flat_map(own).collect())).collect()
            }
        };
        groups.iter().zip(classes).map(group_predictions).collect()
    }
}

/// Samples, or graphs, to be fitted on.
struct Fitting<'a, 'p> {
    device: &'a Device,
    training: Selection<'a>,
    readout: Option<Readout>,
    progress: &'a mut EvaluationProgress<'p>,
}

/// Fits numbers of all targets and the groups of classes in one pass; `None` if no target is known.
fn fit_groups(fitting: Fitting<'_, '_>, groups: &[Group]) -> Result<Option<Fitted>> {
    let counts = |group: &Group| match group.loss {
        Loss::Classes(classes) => Some(ClassCounts::new(classes, group.targets.len())),
        _ => None,
    };
    let mut counts: Vec<Option<ClassCounts>> = groups.iter().map(counts).collect();
    let width = fitting.training.samples.shape().outputs;
    let numbers = fit_numbers(Fitting { readout: None, ..fitting }, |batch| {
        for (group, counts) in groups.iter().zip(&mut counts) {
            let Some(counts) = counts else { continue };
            let mut rows = batch.targets().chunks_exact(width);
            rows.try_for_each(|row| counts.add(&row[group.targets.clone()], false))?;
        }
        Ok(())
    })?;
    let classes = counts.iter().map(|counts| counts.as_ref().map(ClassCounts::outputs)).collect();
    Ok(numbers.map(|numbers| Fitted::Groups { numbers: Box::new(numbers), classes }))
}

/// Fits means and regression; `look` sees each batch. `None` if no target is known.
fn fit_numbers(fitting: Fitting<'_, '_>, mut look: impl FnMut(&BatchView<'_>) -> Result<()>) -> Result<Option<Fitted>> {
    let (shape, readout) = (fitting.training.samples.shape(), fitting.readout);
    let width = shape.timeframes.iter().map(|timeframe| timeframe.features).sum::<usize>() + 1;
    let mut normal = NormalEquations {
        readout,
        width,
        outputs: shape.outputs,
        xx: vec![0.0; width * width],
        xx_of_known: vec![None; shape.outputs],
        xy: vec![0.0; width * shape.outputs],
    };
    for_each_batch(fitting, |batch| {
        normal.add(batch);
        look(batch)
    })?;
    let mean = normal.means();
    let is_empty = mean.iter().all(|mean| mean.is_nan());
    Ok((!is_empty).then(|| Fitted::Numbers { mean, coefficients: normal.solve() }))
}

/// Reads the samples, or graphs, to be fitted on.
fn for_each_batch(
    Fitting { device, training: Selection { samples, indices }, readout, progress }: Fitting<'_, '_>,
    mut each: impl FnMut(&BatchView<'_>) -> Result<()>,
) -> Result<()> {
    let graphs = samples.graphs().filter(|_| readout.is_some());
    graphs.map_or(Ok(()), |graphs| check_graphs(graphs, indices.iter()))?;
    let scope = device.scope("batches");
    let batch_size = (BATCH_SAMPLES / graphs.map_or(1, |graphs| graphs.largest().0.max(1))).max(1);
    let source = Source {
        samples,
        graphs,
        edge_form: EdgeForm::Views,
        scope: &scope,
        batch_size,
        chunk_percent: 100,
        gather_mode: GatherMode::Bars,
        loss_inputs: LossInputs::default(),
    };
    let progress = SharedProgress::new(progress);
    let is_wanted = || progress.is_wanted();
    with_batches(source, indices.chunks(batch_size).map(|batch| batch.iter().collect()), &is_wanted, |feed| {
        let mut done = 0;
        while let Some(batch) = feed.next()? {
            each(&batch)?;
            done = indices.len().min(done + batch_size);
            if progress.at(done).is_break() {
                return Err(Error::Interrupted { work: "the fit of the baselines" });
            }
        }
        Ok(())
    })
}

/// The last bar's features of every timeframe side by side, then 1: [B, P], and P.
fn last_bars(batch: &BatchView<'_>) -> (Vec<f64>, usize) {
    let timeframes = &batch.shape().timeframes;
    let mut x = Vec::new();
    for sample in 0..batch.len() {
        for (k, timeframe) in timeframes.iter().enumerate() {
            let window = batch.window(k, sample);
            x.extend(window[window.len() - timeframe.features..].iter().copied().map(f64::from));
        }
        x.push(1.0);
    }
    (x, timeframes.iter().map(|timeframe| timeframe.features).sum::<usize>() + 1)
}

/// Regressors of each row: the last bars of a sample, or the sum or mean of a graph's nodes, then
/// 1: [R, P], and P.
fn regressors(batch: &BatchView<'_>, readout: Option<Readout>) -> (Vec<f64>, usize) {
    let (x, width) = last_bars(batch);
    let (Level::Graph, Some(graphs)) = (Level::from_readout(readout), batch.graphs()) else { return (x, width) };
    let mut pooled = Vec::with_capacity(graphs.len() * width);
    for nodes in graphs.samples() {
        let rows = x[nodes.start * width..nodes.end * width].chunks_exact(width);
        let mut sum = vec![0.0; width];
        rows.for_each(|row| sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x));
        let share = if readout == Some(Readout::Sum) { 1.0 } else { 1.0 / nodes.len() as f64 };
        sum.iter_mut().for_each(|sum| *sum *= share);
        sum[width - 1] = 1.0;
        pooled.extend(sum);
    }
    (pooled, width)
}

/// XᵀX and XᵀY of the samples seen.
struct NormalEquations {
    readout: Option<Readout>,
    width: usize,
    outputs: usize,
    xx: Vec<f64>, // [P, P]
    /// XᵀX of the rows whose target is known, for each horizon with unknown targets.
    xx_of_known: Vec<Option<Vec<f64>>>, // [K] of [P, P]
    /// Products of known targets.
    xy: Vec<f64>, // [P, K]
}

impl NormalEquations {
    fn add(&mut self, batch: &BatchView<'_>) {
        let (mut x, width) = regressors(batch, self.readout);
        let mut y: Vec<f64> = Level::from_readout(self.readout).targets(batch).iter().copied().map(f64::from).collect();
        if batch.graphs().is_some() {
            (x, y) = keep_labelled(&x, width, &y, self.outputs);
        }
        for k in 0..self.outputs {
            self.add_known(k, &x, &y);
        }
        y.iter_mut().filter(|y| y.is_nan()).for_each(|y| *y = 0.0);
        let rows = x.len() / width;
        let x = Matrix::new(&x, rows, width);
        multiply(x.transposed(), x, Output::Add, &mut self.xx);
        multiply(x.transposed(), Matrix::new(&y, rows, self.outputs), Output::Add, &mut self.xy);
    }

    /// Adds the rows whose target k is known to their own XᵀX. A horizon without unknown targets so
    /// far uses that of all rows.
    fn add_known(&mut self, k: usize, x: &[f64], y: &[f64]) {
        let known = |row: &usize| !y[row * self.outputs + k].is_nan();
        let rows = x.len() / self.width;
        if self.xx_of_known[k].is_none() && (0..rows).all(|row| known(&row)) {
            return;
        }
        let row_values = |row: usize| &x[row * self.width..][..self.width];
        let x: Vec<f64> = (0..rows).filter(known).flat_map(row_values).copied().collect();
        let x = Matrix::new(&x, x.len() / self.width, self.width);
        let xx = self.xx_of_known[k].get_or_insert_with(|| self.xx.clone());
        multiply(x.transposed(), x, Output::Add, xx);
    }

    /// Known targets of horizon `k`: the square of the constant 1, summed.
    fn known(&self, k: usize) -> f64 {
        self.xx_of_known[k].as_ref().unwrap_or(&self.xx)[self.width * self.width - 1]
    }

    /// Mean of the known targets of each horizon.
    fn means(&self) -> Vec<f32> {
        // The row of the constant 1 holds the sums of the targets.
        let sums = &self.xy[(self.width - 1) * self.outputs..];
        sums.iter().enumerate().map(|(k, sum)| (sum / self.known(k)) as f32).collect()
    }

    /// The coefficients [P, K] that solve (XᵀX + ridge) β = XᵀY. The constant bears no ridge.
    fn solve(mut self) -> Vec<f64> {
        let mut coefficients = self.xy.clone();
        let known: Vec<f64> = (0..self.outputs).map(|k| self.known(k)).collect();
        factorize(&mut self.xx, self.width);
        substitute(&self.xx, self.width, &mut coefficients);
        for (k, xx) in self.xx_of_known.iter_mut().enumerate() {
            let Some(xx) = xx else { continue };
            let mut column: Vec<f64> = self.xy.chunks_exact(self.outputs).map(|row| row[k]).collect();
            factorize(xx, self.width);
            substitute(xx, self.width, &mut column);
            // Without any, the equations are solved by zeros.
            if known[k] == 0.0 {
                column.fill(f64::NAN);
            }
            coefficients.chunks_exact_mut(self.outputs).zip(column).for_each(|(row, x)| row[k] = x);
        }
        coefficients
    }
}

/// Replaces the lower triangle of XᵀX [n, n] by the Cholesky factor of XᵀX + ridge.
fn factorize(xx: &mut [f64], n: usize) {
    let diagonal = (0..n).map(|i| xx[i * n + i]).sum::<f64>();
    let ridge = RIDGE * diagonal / n as f64;
    (0..n - 1).for_each(|i| xx[i * n + i] += ridge);
    cholesky(xx, n);
}

/// The rows whose targets are all known.
fn keep_labelled(x: &[f64], width: usize, y: &[f64], outputs: usize) -> (Vec<f64>, Vec<f64>) {
    let rows =
        x.chunks_exact(width).zip(y.chunks_exact(outputs)).filter(|(_, y)| !y.iter().any(|target| target.is_nan()));
    let (x, y): (Vec<&[f64]>, Vec<&[f64]>) = rows.unzip();
    (x.concat(), y.concat())
}

/// Replaces the lower triangle of a positive definite matrix [n, n] by its Cholesky factor L, A =
/// L·Lᵀ.
fn cholesky(a: &mut [f64], n: usize) {
    for i in 0..n {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| a[i * n + k] * a[j * n + k]).sum();
            let rest = a[i * n + j] - dot;
            // Rounding can make a pivot of a repeated feature vanish; an infinite one gives it the
            // coefficient 0.
            a[i * n + j] = match (i == j, rest > 0.0) {
                (false, _) => rest / a[j * n + j],
                (true, true) => rest.sqrt(),
                (true, false) => f64::INFINITY,
            };
        }
    }
}

/// Solves L·Lᵀ·X = B for X, in place of B [n, columns].
fn substitute(l: &[f64], n: usize, b: &mut [f64]) {
    let columns = b.len() / n;
    for column in 0..columns {
        for i in 0..n {
            let dot: f64 = (0..i).map(|k| l[i * n + k] * b[k * columns + column]).sum();
            b[i * columns + column] = (b[i * columns + column] - dot) / l[i * n + i];
        }
        for i in (0..n).rev() {
            let dot: f64 = (i + 1..n).map(|k| l[k * n + i] * b[k * columns + column]).sum();
            b[i * columns + column] = (b[i * columns + column] - dot) / l[i * n + i];
        }
    }
}

#[cfg(test)]
mod tests;
