//! Predictions of a model for some samples.

use std::ops::{ControlFlow, Range};
use std::path::PathBuf;

use megabatch_chunk_io::Source;
use megabatch_nn::graph::Graphs;
use megabatch_nn::loss::{Classes, Group, Loss, is_labelled};
use megabatch_nn::model::Readout;
use megabatch_trainer::{SampleRanges, Selection};

use super::latest::LatestSamples;
use crate::adapters::data::{Data, times_of};
use crate::adapters::purge_basis::has_ordinal_times;
use crate::error::{Error, Result};
use crate::evaluate::Part;
use crate::host::{Host, Work};
use crate::run_folder::RunFolder;
use crate::setup::settings::loss;
use crate::text::number::grouped;
use crate::text::plural;
use crate::trained::{ChangedData, CheckpointChoice, Instruments, Opening, Trained, Weights};
use crate::unit_names::UnitNames;

/// Choice of samples to predict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleChoice {
    /// All samples; of a run of several folds, for each model those of its fold's test.
    Default,
    /// A part of the data, split as in training.
    Part(Part),
    /// Numbers of samples, from 0.
    Range(Range<usize>),
    /// Numbers of samples, or of graphs, as a part of the data counts them, from 0.
    Units(Range<usize>),
    /// The bars of a series after its last samples, whose targets lie ahead. They are
    /// numbered among themselves.
    Latest,
}

/// Samples to predict.
#[derive(Clone, Debug)]
pub struct PredictRequest {
    /// Folder of the run.
    pub run: PathBuf,
    /// Data file; the one trained on if `None`.
    pub data: Option<PathBuf>,
    /// Samples, or graphs if the model predicts whole graphs.
    pub samples: SampleChoice,
    /// Which checkpoint.
    pub checkpoint: CheckpointChoice,
    /// Arithmetic of the LSTMs' matrices.
    pub weights: Weights,
    /// Treatment of data that have changed since training.
    pub changed_data: ChangedData,
    /// `cpu`, `auto`, `cuda` or `cuda:N`.
    pub device: String,
    /// Treatment of instruments that the model was not trained on.
    pub instruments: Instruments,
}

impl PredictRequest {
    /// All samples of the data that the run in `run` was trained on, by its best checkpoint.
    pub fn new(run: impl Into<PathBuf>) -> Self {
        PredictRequest {
            run: run.into(),
            data: None,
            samples: SampleChoice::Default,
            checkpoint: CheckpointChoice::default(),
            weights: Weights::default(),
            changed_data: ChangedData::default(),
            device: "auto".to_owned(),
            instruments: Instruments::default(),
        }
    }

    /// The model and its data; in place of them their latest samples, if these are asked for, which
    /// are there as long as their file is kept.
    pub(super) fn open(&self, host: &Host<'_>) -> Result<(Trained, Option<LatestSamples>)> {
        let is_latest = self.samples == SampleChoice::Latest;
        let latest = is_latest.then(|| LatestSamples::write(&self.run, self.data.as_deref(), host)).transpose()?;
        let opening = Opening {
            run: &self.run,
            data: latest.as_ref().map(LatestSamples::path).or(self.data.as_deref()),
            made_of: latest.as_ref().map(LatestSamples::data),
            checkpoint: self.checkpoint,
            weights: self.weights,
            device: &self.device,
            instruments: self.instruments,
            changed: self.changed_data,
        };
        let mut trained = Trained::open(opening, host)?;
        trained.notes.extend(latest.iter().flat_map(LatestSamples::notes).cloned());
        Ok((trained, latest))
    }
}

/// Predictions of samples.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Predicted {
    /// The samples, or graphs, in ascending order; those of each fold, where there are several.
    pub samples: SampleRanges,
    /// `[n, K]`. It is the quantile nearest to the median, or the most probable class, if there are
    /// several. NaN for a sample that is in no graph.
    pub values: Vec<f32>,
    /// Quantiles, or probabilities of classes, `[n, K]` each, by name.
    pub named: Vec<(String, Vec<f32>)>,
    /// K: numbers a sample.
    pub horizons: usize,
    /// `[n, targets]` what is predicted, in the units of the data; NaN where it is not known.
    pub targets: Vec<f32>,
    /// `[n, K]` true class beside each predicted one, where classes are made of targets by
    /// thresholds or are the most probable ones; NaN where it is not known. Targets that no
    /// threshold divides stay as they are. `None` if `values` and `targets` are of one kind.
    pub true_classes: Option<Vec<f32>>,
    /// `[n]` ns since 1970 UTC, where the data tell.
    pub sample_times: Option<Vec<i64>>,
    /// True if these times only order the samples.
    pub(super) has_ordinal_times: bool,
    /// Instruments of the samples, where the data have several.
    pub instruments: Option<InstrumentsOfSamples>,
    /// `[n]` fold whose model predicted each sample, from 1, where there are several.
    pub folds: Option<Vec<i32>>,
    /// Step of the checkpoint; of several folds, of the last one's.
    pub step: u64,
    /// Notes on the computation, each once.
    pub notes: Vec<String>,
    /// Singular of what is predicted for a row.
    pub(super) target: &'static str,
    pub(super) device: String,
}

/// Instruments of predicted samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstrumentsOfSamples {
    /// Names.
    pub names: Vec<String>,
    /// `[n]` place among `names` of each sample's instrument.
    pub name_indices: Vec<i32>,
}

/// Predicts samples by an open model.
pub(super) fn predict_with(trained: &mut Trained, request: &PredictRequest, host: &Host<'_>) -> Result<Predicted> {
    let loss = loss(&trained.config, trained.data.samples().shape().outputs)?;
    let seen = seen_in_training(trained, request)?;
    trained.notes.extend(seen);
    let rows = Rows::new(&trained.data, trained.predictor.model().config().readout);
    let chosen = chosen_rows(request, trained, &rows)?;
    let are_units = matches!(rows, Rows::Units { .. });
    let doubt = if are_units { trained.doubt_times(&chosen, "predictions")? } else { None };
    trained.notes.extend(doubt);
    let (data, predictor) = (&trained.data, &mut trained.predictor);
    let (places, count) = (Places::new(&chosen), chosen.len());
    let horizons = data.samples().shape().outputs;
    // The prediction of what is in no graph stays unknown.
    let outputs = predictor.model().outputs();
    let mut predicted = vec![f32::NAN; count * outputs];
    let mut targets = vec![f32::NAN; count * horizons];
    let unit = format!("{}s", rows.noun());
    let mut follow = host.follow(Work { label: "predict", total: count as u64, unit: &unit });
    let (indices, mut done) = (rows.units(&chosen, &places), 0);
    let mut is_predicted = vec![false; count];
    predictor.predict_beside_targets(
        Selection { samples: data.samples(), indices: &indices },
        &|| !host.cancel.is_requested(),
        |rows, batch, truth| {
            for ((row, own), truth) in rows.iter().zip(batch.chunks_exact(outputs)).zip(truth.chunks_exact(horizons)) {
                let Some(place) = places.find(*row) else { continue };
                predicted[place * outputs..][..outputs].copy_from_slice(own);
                targets[place * horizons..][..horizons].copy_from_slice(truth);
                is_predicted[place] = true;
                done += 1;
            }
            match follow(done) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(megabatch_trainer::Error::Interrupted { work: "the prediction" }),
            }
        },
    )?;
    drop(follow);
    let in_no_graph: Vec<usize> = (0..count).filter(|&place| !is_predicted[place]).collect();
    if !in_no_graph.is_empty() {
        let samples: Vec<usize> = in_no_graph.iter().map(|&place| chosen.sample_at(place)).collect();
        let mut known = vec![f32::NAN; samples.len() * horizons];
        data.samples().read_targets(&samples, &mut known)?;
        for (place, truth) in in_no_graph.iter().zip(known.chunks_exact(horizons)) {
            targets[place * horizons..][..horizons].copy_from_slice(truth);
        }
    }
    let source = data.source();
    let (values, named) = by_name(loss, &predicted, horizons);
    let source_instruments = |source: &Source| {
        let indices = chosen.iter().map(|sample| source.instrument_of(sample).map(|place| place as i32));
        let name_indices = indices.collect::<Option<Vec<i32>>>().filter(|_| !source.instruments().is_empty())?;
        Some(InstrumentsOfSamples { names: source.instruments().to_vec(), name_indices })
    };
    Ok(Predicted {
        horizons: values.len() / count.max(1),
        values,
        named,
        true_classes: true_classes(loss, &targets, horizons),
        targets,
        sample_times: source.map_or(Ok(None), |source| times_of(source, &chosen))?,
        has_ordinal_times: source.map_or(Ok(false), has_ordinal_times)?,
        instruments: source.and_then(source_instruments),
        folds: None,
        step: trained.step,
        notes: trained.notes.clone(),
        target: UnitNames::for_data(data).with(loss).target,
        device: trained.predictor.device().to_string(),
        samples: chosen,
    })
}

/// A note on what training has seen, where all of its data are predicted.
fn seen_in_training(trained: &Trained, request: &PredictRequest) -> Result<Option<String>> {
    if !trained.is_own_data || !matches!(request.samples, SampleChoice::Default | SampleChoice::Part(Part::All)) {
        return Ok(None);
    }
    let split = &RunFolder::open(&request.run)?.saved_plan()["split"];
    let [train, validation, test] = ["train", "validation", "test"].map(|part| split[part].as_u64().unwrap_or(0));
    let (seen, unit) = (train + validation, UnitNames::for_data(&trained.data).unit);
    Ok((seen > 0 && test > 0).then(|| {
        format!(
            "{} of {} are those of training and validation; `--split test` predicts the {} that the model has not seen",
            grouped(seen),
            plural(trained.units(), unit),
            grouped(test)
        )
    }))
}

/// The rows that are asked for, in ascending order.
fn chosen_rows(request: &PredictRequest, trained: &Trained, rows: &Rows<'_>) -> Result<SampleRanges> {
    let data = &trained.data;
    let part = match &request.samples {
        SampleChoice::Units(_) if matches!((data, rows), (Data::Graphs(_), Rows::Nodes { .. })) => {
            let file = data.path().display();
            return Err(Error::usage(format!(
                "{file} has parts of whole graphs, and the run predicts their nodes; `--split test` predicts those of a part"
            )));
        }
        SampleChoice::Range(range) | SampleChoice::Units(range) if range.end > rows.len() => {
            let (Range { start, end }, file) = (range, data.path().display());
            let found = plural(rows.len(), rows.noun());
            return Err(Error::usage(format!("--samples {start}..{end}: {file} has {found}")));
        }
        SampleChoice::Range(range) | SampleChoice::Units(range) => return Ok(range.clone().into()),
        SampleChoice::Default | SampleChoice::Part(Part::All) | SampleChoice::Latest => {
            return Ok((0..rows.len()).into());
        }
        SampleChoice::Part(part) => part,
    };
    let split = trained.split()?;
    let mut own = rows.rows_of(&part.indices(&split, data.units()));
    if own.is_empty() {
        return Err(Error::usage(format!("--split {}: it is empty; data.split says how large each is", part.name())));
    }
    // Parts that are drawn by chance are in the order in which they were drawn.
    own.sort_unstable();
    Ok(own.into_iter().collect())
}

/// Places of chosen rows among the chosen ones.
struct Places {
    /// Rows that follow each other, and the place of the first, in ascending order.
    runs: Vec<(Range<usize>, usize)>,
}

impl Places {
    fn new(chosen: &SampleRanges) -> Self {
        let mut placed = 0;
        let place = |run: Range<usize>| {
            let first = placed;
            placed += run.len();
            (run, first)
        };
        Places { runs: chosen.runs().map(place).collect() }
    }

    fn find(&self, row: usize) -> Option<usize> {
        let (run, first) = self.runs.get(self.runs.partition_point(|(run, _)| run.end <= row))?;
        run.contains(&row).then(|| first + row - run.start)
    }
}

/// One number for each horizon, [n, K], or the one class [n, 1] of `cross_entropy`; then named
/// numbers. Several quantiles have a name each. Classes give the most probable one, the first if
/// several are equally probable, and the probability of each. Numbers of one task alone have its
/// targets in their name, and are NaN for all others.
pub(super) fn by_name(loss: Loss, outputs: &[f32], horizons: usize) -> (Vec<f32>, Vec<(String, Vec<f32>)>) {
    let groups = loss.groups(horizons);
    if let [_] = groups.as_slice() {
        return group_values(groups[0].loss, outputs, horizons);
    }
    let width = loss.outputs(horizons);
    let rows = outputs.len() / width;
    let (mut values, mut all) = (vec![f32::NAN; rows * horizons], Vec::new());
    for Group { targets, outputs: places, loss, .. } in groups {
        let own: Vec<f32> = outputs.chunks_exact(width).flat_map(|row| &row[places.clone()]).copied().collect();
        let (group, named) = group_values(loss, &own, targets.len());
        let place = |src: &[f32], dst: &mut [f32]| {
            let rows = dst.chunks_exact_mut(horizons).zip(src.chunks_exact(targets.len()));
            rows.for_each(|(dst, src)| dst[targets.clone()].copy_from_slice(src));
        };
        place(&group, &mut values);
        for (name, own) in named {
            let mut wide = vec![f32::NAN; rows * horizons];
            place(&own, &mut wide);
            all.push((format!("t{}-{}_{name}", targets.start, targets.end), wide));
        }
    }
    (values, all)
}

/// [`by_name`] of `targets` targets with one loss, from outputs [n, K, M].
fn group_values(loss: Loss, outputs: &[f32], targets: usize) -> (Vec<f32>, Vec<(String, Vec<f32>)>) {
    match loss {
        Loss::Classes(classes) => return classes_by_name(outputs, classes.count()),
        // The targets of a row are the probabilities of its one class.
        Loss::CrossEntropy => return classes_by_name(outputs, targets),
        _ => {}
    }
    let each =
        |output: usize| outputs.iter().skip(output).step_by(loss.outputs_per_target()).copied().collect::<Vec<f32>>();
    let named = match loss {
        Loss::Quantile { levels } if levels.as_slice().len() > 1 => {
            let levels = levels.as_slice().iter().enumerate();
            levels.map(|(k, level)| (format!("q{level}"), each(k))).collect()
        }
        _ => Vec::new(),
    };
    (each(loss.point()), named)
}

/// [`Predicted::true_classes`] of `targets` targets a row.
fn true_classes(loss: Loss, rows: &[f32], targets: usize) -> Option<Vec<f32>> {
    if loss == Loss::CrossEntropy {
        let class = |row: &[f32]| if is_labelled(row) { most_probable(row) } else { f32::NAN };
        return Some(rows.chunks_exact(targets).map(class).collect());
    }
    let groups = loss.groups(targets);
    let has_thresholds = |group: &Group| matches!(group.loss, Loss::Classes(Classes::Thresholds(_)));
    if !groups.iter().any(has_thresholds) {
        return None;
    }
    let mut found = rows.to_vec();
    for row in found.chunks_exact_mut(targets) {
        for group in &groups {
            let Loss::Classes(classes) = group.loss else { continue };
            for target in &mut row[group.targets.clone()] {
                *target = classes.index(f64::from(*target)).map_or(f32::NAN, |class| class as f32);
            }
        }
    }
    Some(found)
}

/// Rows to predict.
enum Rows<'a> {
    /// Samples that stand alone, or graphs as wholes.
    Units { count: usize, noun: &'static str },
    /// Samples that are the nodes of graphs.
    Nodes { count: usize, graphs: &'a dyn Graphs, noun: &'static str },
}

impl<'a> Rows<'a> {
    fn new(data: &'a Data, readout: Option<Readout>) -> Self {
        match (readout, data.samples().graphs()) {
            (Some(Readout::Node), Some(graphs)) => {
                Rows::Nodes { count: data.samples().len(), graphs, noun: UnitNames::for_data(data).row }
            }
            (Some(_), _) => Rows::Units { count: data.units(), noun: "graph" },
            (None, _) => Rows::Units { count: data.units(), noun: "sample" },
        }
    }

    fn len(&self) -> usize {
        match self {
            Rows::Units { count, .. } | Rows::Nodes { count, .. } => *count,
        }
    }

    /// The singular of what a row is of.
    fn noun(&self) -> &'static str {
        match self {
            Rows::Units { noun, .. } | Rows::Nodes { noun, .. } => noun,
        }
    }

    /// The units to be computed for chosen rows: graphs are computed whole.
    fn units(&self, chosen: &SampleRanges, places: &Places) -> SampleRanges {
        match self {
            Rows::Units { .. } => chosen.clone(),
            Rows::Nodes { graphs, .. } => {
                let has_some = |&graph: &usize| graphs.nodes(graph).iter().any(|sample| places.find(*sample).is_some());
                (0..graphs.len()).filter(has_some).collect()
            }
        }
    }

    /// The rows of units.
    fn rows_of(&self, units: &SampleRanges) -> Vec<usize> {
        match self {
            Rows::Units { .. } => units.iter().collect(),
            Rows::Nodes { graphs, .. } => units.iter().flat_map(|graph| graphs.nodes(graph).iter().copied()).collect(),
        }
    }
}

fn classes_by_name(outputs: &[f32], count: usize) -> (Vec<f32>, Vec<(String, Vec<f32>)>) {
    let mut named: Vec<_> = (0..count).map(|class| (format!("p{class}"), Vec::new())).collect();
    let mut classes = Vec::with_capacity(outputs.len() / count);
    for logits in outputs.chunks_exact(count) {
        let class = first_largest(logits);
        classes.push(most_probable(logits));
        let weights: Vec<f64> = logits.iter().map(|&y| f64::from(y - logits[class]).exp()).collect();
        let sum: f64 = weights.iter().sum();
        named.iter_mut().zip(weights).for_each(|((_, shares), weight)| shares.push((weight / sum) as f32));
    }
    (classes, named)
}

/// The first place of the largest number.
fn first_largest(numbers: &[f32]) -> usize {
    (1..numbers.len()).fold(0, |most, place| if numbers[place] > numbers[most] { place } else { most })
}

/// The most probable class by a number for each; what is not known stays NaN.
fn most_probable(numbers: &[f32]) -> f32 {
    let class = first_largest(numbers);
    if numbers[class].is_nan() { f32::NAN } else { class as f32 }
}

#[cfg(test)]
mod tests {
    use megabatch_nn::loss::{Ascending, Classes};

    use super::*;

    #[test]
    fn chosen_rows_have_places_in_their_order() {
        for chosen in [vec![], vec![3], vec![0, 1, 4, 5, 9], (2..70).collect()] {
            let places = Places::new(&chosen.iter().copied().collect());
            for row in 0..100 {
                assert_eq!(places.find(row), chosen.iter().position(|&own| own == row), "{chosen:?}, {row}");
            }
        }
    }

    #[test]
    fn classes_have_their_probabilities_beside_the_most_probable_one() {
        let outputs = [0.0, 2f32.ln(), 1000.0, 0.0, f32::NAN, f32::NAN];
        let (values, named) = by_name(Loss::Classes(Classes::Labels(2)), &outputs, 1);
        assert_eq!((values[0], values[1]), (1.0, 0.0));
        assert_eq!(named.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["p0", "p1"]);
        for ((_, shares), expected) in named.iter().zip([[1.0 / 3.0, 1.0], [2.0 / 3.0, 0.0]]) {
            assert!(shares.iter().zip(expected).all(|(share, expected)| (share - expected).abs() < 1e-6), "{shares:?}");
            assert!(shares[2].is_nan() && values[2].is_nan());
        }
    }

    /// `predict` of a run on a TU dataset wrote the logits of its two classes as `h1,h2`.
    #[test]
    fn a_class_that_is_learnt_from_its_probabilities_is_one_prediction() {
        let (values, named) = by_name(Loss::CrossEntropy, &[0.0, 3f32.ln(), 5.0, 5.0, f32::NAN, f32::NAN], 2);
        assert_eq!(values[..2], [1.0, 0.0]);
        assert!(values[2].is_nan() && values.len() == 3);
        assert_eq!(named.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["p0", "p1"]);
        assert!((named[0].1[0] - 0.25).abs() < 1e-6 && (named[1].1[0] - 0.75).abs() < 1e-6, "{named:?}");
    }

    /// `run.predict().to_pandas()` had the number of a class beside a target of 0.0012.
    #[test]
    fn a_predicted_class_has_the_true_one_beside_it() {
        let nan = f32::NAN;
        let thresholds = Loss::Classes(Classes::Thresholds(Ascending::new(&[-0.001, 0.001]).unwrap()));
        let targets = [-0.5, 0.0012, 0.0, nan];
        let found = true_classes(thresholds, &targets, 2).unwrap();
        assert_eq!(found[..3], [0.0, 2.0, 1.0]);
        assert!(found[3].is_nan(), "{found:?}");
        let found = true_classes(Loss::CrossEntropy, &[0.0, 1.0, 1.0, 0.0, nan, nan], 2).unwrap();
        assert_eq!(found[..2], [1.0, 0.0]);
        assert!(found[2].is_nan() && found.len() == 3, "{found:?}");
        for loss in [Loss::Mse, Loss::Classes(Classes::Labels(3))] {
            assert_eq!(true_classes(loss, &[0.0, 2.0], 1), None, "{loss:?}");
        }
    }
}
