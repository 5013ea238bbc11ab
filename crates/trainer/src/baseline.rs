#![forbid(unsafe_code)]

//! Predictions that need no network: whoever does not beat them has learnt nothing.

use megabatch_gpu_core::Device;

use crate::error::{Error, Result};
use crate::evaluate::Selection;
use crate::form::Form;
use crate::graph::{Readout, check_graphs};
use crate::level::Level;
use crate::loss::is_labelled;
use crate::matmul::{Matrix, Output, multiply};
use crate::prefetch::{Source, with_batches};
use crate::view::BatchView;

/// The ridge of the linear baseline, as a share of the mean of the normal matrix's diagonal. It only keeps features that are
/// constant or repeat each other (the time of day in several timeframes) from making the equations singular.
const RIDGE: f64 = 1e-8;

/// Samples of the batches that the baselines are fitted in, as far as whole graphs allow.
const BATCH_SAMPLES: usize = 64;

/// Baselines fitted on training samples.
#[derive(Clone, Debug)]
pub struct Baselines {
    /// What they predict for in graphs; none for samples that stand alone.
    readout: Option<Readout>,
    /// Mean target of each horizon, [K].
    mean: Vec<f32>,
    /// Coefficients of the last bar's features of every timeframe, side by side, and of 1, [P, K].
    coefficients: Vec<f64>,
}

impl Baselines {
    /// Fits the mean of each horizon and a linear regression on the last bar's features of every timeframe, in one pass
    /// that keeps sums only: P² + P·K doubles, whatever the number of samples. Where samples are the nodes of graphs, `training` lists
    /// graphs, and every node whose targets are known counts.
    ///
    /// # Errors
    /// [`Error::NothingLeft`] for no samples, [`Error::Gather`] and [`Error::Memory`] as for training.
    pub fn fit(device: &Device, training: Selection<'_>) -> Result<Self> {
        Baselines::fit_for(device, training, training.samples.graphs().map(|_| Readout::Node))
    }

    /// The same beside a model that predicts with this readout. Graphs as a whole are regressed on the sums over their nodes beside a model
    /// that reads the sum, else on the means.
    ///
    /// # Errors
    /// As [`Baselines::fit`].
    pub fn fit_for(device: &Device, training: Selection<'_>, readout: Option<Readout>) -> Result<Self> {
        let Selection { samples, indices } = training;
        let graphs = samples.graphs().filter(|_| readout.is_some());
        graphs.map_or(Ok(()), |graphs| check_graphs(graphs, indices))?;
        if indices.is_empty() {
            let advice = "the baselines are fitted on the training samples; give them a fraction in data.split";
            return Err(Error::NothingLeft { part: "training", before: 0, after: 0, advice });
        }
        let shape = samples.shape();
        let width = shape.timeframes.iter().map(|timeframe| timeframe.features).sum::<usize>() + 1;
        let mut normal = NormalEquations {
            readout,
            rows: 0,
            width,
            outputs: shape.outputs,
            xx: vec![0.0; width * width],
            xy: vec![0.0; width * shape.outputs],
        };
        let scope = device.scope("batches");
        let batch_size = (BATCH_SAMPLES / graphs.map_or(1, |graphs| graphs.largest().0.max(1))).max(1);
        let source = Source { samples, graphs, scope: &scope, batch_size, form: Form::Fast };
        with_batches(source, indices.chunks(batch_size).map(<[usize]>::to_vec), |feed| {
            while let Some(batch) = feed.next()? {
                normal.add(&batch);
            }
            Ok(())
        })?;
        if normal.rows == 0 {
            let advice = "none of the training targets is known; give graphs of which some are";
            return Err(Error::NothingLeft { part: "training", before: indices.len(), after: 0, advice });
        }
        // The row of the constant 1 holds the sums of the targets.
        let sums = &normal.xy[(width - 1) * shape.outputs..];
        let mean = sums.iter().map(|sum| (sum / normal.rows as f64) as f32).collect();
        Ok(Baselines { readout, mean, coefficients: normal.solve() })
    }

    /// Each baseline's name and its predictions for a batch: [B, K], or a row a graph where it is graphs that are predicted.
    pub fn predict(&self, batch: &BatchView<'_>) -> [(&'static str, Vec<f32>); 3] {
        let outputs = self.mean.len();
        let (x, width) = regressors(batch, self.readout);
        let rows = x.len() / width;
        let mut linear = vec![0.0; rows * outputs];
        let coefficients = Matrix::new(&self.coefficients, [width, outputs]);
        multiply(Matrix::new(&x, [rows, width]), coefficients, Output::Overwrite, &mut linear);
        [
            ("no_change", vec![0.0; rows * outputs]),
            ("mean", self.mean.repeat(rows)),
            ("linear", linear.into_iter().map(|y| y as f32).collect()),
        ]
    }
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

/// What each row is regressed on: the last bars of a sample, or what a graph's nodes have in sum or on average, then 1: [R, P], and P.
fn regressors(batch: &BatchView<'_>, readout: Option<Readout>) -> (Vec<f64>, usize) {
    let (x, width) = last_bars(batch);
    let (Level::Graph, Some(graphs)) = (Level::of(readout), batch.graphs) else { return (x, width) };
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
    rows: usize,
    width: usize,
    outputs: usize,
    xx: Vec<f64>, // [P, P]
    xy: Vec<f64>, // [P, K]
}

impl NormalEquations {
    fn add(&mut self, batch: &BatchView<'_>) {
        let (mut x, width) = regressors(batch, self.readout);
        let mut y: Vec<f64> = Level::of(self.readout).targets(batch).iter().copied().map(f64::from).collect();
        if batch.graphs.is_some() {
            (x, y) = keep_labelled((&x, width), (&y, self.outputs));
        }
        let rows = x.len() / width;
        let x = Matrix::new(&x, [rows, width]);
        multiply(x.transposed(), x, Output::Add, &mut self.xx);
        multiply(x.transposed(), Matrix::new(&y, [rows, self.outputs]), Output::Add, &mut self.xy);
        self.rows += rows;
    }

    /// The coefficients [P, K] that solve (XᵀX + ridge) β = XᵀY. The constant bears no ridge.
    fn solve(mut self) -> Vec<f64> {
        let diagonal = |xx: &[f64]| (0..self.width).map(|i| xx[i * self.width + i]).sum::<f64>();
        let ridge = RIDGE * diagonal(&self.xx) / self.width as f64;
        (0..self.width - 1).for_each(|i| self.xx[i * self.width + i] += ridge);
        cholesky(&mut self.xx, self.width);
        substitute(&self.xx, self.width, &mut self.xy);
        self.xy
    }
}

/// The rows whose targets are all known.
fn keep_labelled((x, width): (&[f64], usize), (y, outputs): (&[f64], usize)) -> (Vec<f64>, Vec<f64>) {
    let rows = x.chunks_exact(width).zip(y.chunks_exact(outputs)).filter(|(_, y)| is_labelled(y));
    let (x, y): (Vec<&[f64]>, Vec<&[f64]>) = rows.unzip();
    (x.concat(), y.concat())
}

/// Replaces the lower triangle of a positive definite matrix [n, n] by its Cholesky factor L, A = L·Lᵀ.
fn cholesky(a: &mut [f64], n: usize) {
    for i in 0..n {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| a[i * n + k] * a[j * n + k]).sum();
            let rest = a[i * n + j] - dot;
            // Rounding can make a pivot of a repeated feature vanish; an infinite one gives it the coefficient 0.
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
mod tests {
    use megabatch_order::random::{Stream, uniform};

    use super::*;
    use crate::model::{SampleShape, Timeframe};
    use crate::samples::{Batch, InMemory, Samples};

    /// Two timeframes; targets are linear in the last bars, the second one constant; one feature repeats another.
    fn linear_samples(samples: usize) -> InMemory {
        let timeframe = |name: &str, steps| Timeframe { name: name.to_owned(), steps, features: 2 };
        let shape = SampleShape { timeframes: vec![timeframe("M1", 3), timeframe("H1", 2)], outputs: 2 };
        let draw = |name, len: usize| -> Vec<f32> {
            (0..len as u64).map(|i| uniform(Stream { seed: 1, name }, i) as f32 - 0.5).collect()
        };
        let (m1, mut h1) = (draw("m1", samples * 6), draw("h1", samples * 4));
        for n in 0..samples {
            h1[n * 4 + 3] = m1[n * 6 + 5];
        }
        let targets = (0..samples).flat_map(|n| [2.0 * m1[n * 6 + 4] - h1[n * 4 + 2] + 0.5, 3.0]).collect();
        InMemory::new(shape, vec![m1, h1], targets).unwrap()
    }

    #[test]
    fn linear_targets_are_predicted_and_means_are_means() {
        let samples = linear_samples(200);
        let device = Device::cpu();
        let indices: Vec<usize> = (0..150).collect();
        let baselines = Baselines::fit(&device, Selection { samples: &samples, indices: &indices }).unwrap();
        let mut batch = Batch::new(&device.scope("test"), samples.shape(), 50).unwrap();
        batch.resize(50);
        samples.gather(&(150..200).collect::<Vec<_>>(), &mut batch).unwrap();

        let [(_, zeros), (_, means), (_, linear)] = baselines.predict(&batch.view());
        assert!(zeros.iter().all(|&y| y == 0.0));
        let training: f64 = (0..150).map(|n| f64::from(samples_target(&samples, n))).sum::<f64>() / 150.0;
        assert!((f64::from(means[0]) - training).abs() < 1e-6 && means[1] == 3.0, "{means:?}");
        // The ridge moves the coefficients by about its share, 1e-8, and single precision rounds the result.
        let error = linear.iter().zip(batch.view().targets()).map(|(y, target)| (y - target).abs()).fold(0.0, f32::max);
        assert!(error < 1e-5, "{error}");
    }

    fn samples_target(samples: &InMemory, n: usize) -> f32 {
        let mut batch = Batch::new(&Device::cpu().scope("test"), samples.shape(), 1).unwrap();
        batch.resize(1);
        samples.gather(&[n], &mut batch).unwrap();
        batch.view().targets()[0]
    }

    #[test]
    fn cholesky_solves_a_system_by_hand() {
        let mut a = [4.0, f64::NAN, 2.0, 5.0];
        cholesky(&mut a, 2);
        assert_eq!([a[0], a[2], a[3]], [2.0, 1.0, 2.0]);
        let mut b = [8.0, 14.0];
        substitute(&a, 2, &mut b);
        assert_eq!(b, [0.75, 2.5]);
    }

    #[test]
    fn no_samples_is_an_error() {
        let samples = linear_samples(1);
        let nothing = Selection { samples: &samples, indices: &[] };
        assert!(matches!(Baselines::fit(&Device::cpu(), nothing), Err(Error::NothingLeft { .. })));
    }
}
