//! The trained model in a run's folder.

use std::path::{Path, PathBuf};

use megabatch_bars::listed;
use megabatch_chunk_io::{AttributeValue, NonFinite, Source};
use megabatch_gpu_core::Device;
use megabatch_nn::model::{Model, ModelConfig, SampleShape};
use megabatch_nn_cpu::Compute;
use megabatch_trainer as trainer;
use megabatch_trainer::{Checkpoints, Predictor, SampleRanges, Split, State};
use serde::Serialize;

use crate::adapters::data::Data;
use crate::adapters::data_schema::DataSchema;
use crate::config::choices::Residency;
use crate::config::{self, Config};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::ingest::Recipe;
use crate::plan::SplitPlan;
use crate::run_folder::RunFolder;
use crate::setup::computing::{Computing, DeviceRequest};
use crate::setup::settings::{loss, precision, recurrent_config, streams, threads, with_fields};
use crate::setup::{data_path, free_memory_bytes};
use crate::text::{plural, utc};

/// Which checkpoint of a run is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointChoice {
    /// The one with the lowest validation loss; the last where nothing was validated.
    #[default]
    Best,
    /// The last one.
    Last,
}

/// The model of a run and the data it is asked about.
pub(crate) struct Trained {
    pub(crate) device: Device,
    pub(crate) config: Config,
    pub(crate) data: Data,
    pub(crate) predictor: Predictor,
    /// The checkpoint's step.
    pub(crate) step: u64,
    /// Notes on the computation, for people.
    pub(crate) notes: Vec<String>,
    /// True if the data are those that the run was trained on.
    pub(crate) is_own_data: bool,
    /// Begin of the test of other data than these: the run was trained, and its checkpoint chosen,
    /// on the bars before it.
    trained_until_ns: Option<i64>,
    /// The split of training in `plan.json`, where that of the data must be the same.
    split_in_training: Option<serde_json::Value>,
}

/// Run to open, with its data and device.
pub(crate) struct Opening<'a> {
    /// Folder of the run.
    pub(crate) run: &'a Path,
    /// Data file; the one that the run was trained on if not given.
    pub(crate) data: Option<&'a Path>,
    /// File that warnings name, if `data` is a temporary one that was made of it.
    pub(crate) made_of: Option<&'a Path>,
    pub(crate) checkpoint: CheckpointChoice,
    pub(crate) weights: Weights,
    /// As `--device` names it.
    pub(crate) device: &'a str,
    pub(crate) instruments: Instruments,
    pub(crate) changed: ChangedData,
}

/// Units of errors by horizon.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UnitsOfErrors {
    pub(crate) errors: &'static str,
    pub(crate) horizons: String,
}

/// Treatment of instruments that the model has not seen in training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instruments {
    /// A warning names them.
    #[default]
    Doubted,
    /// They are intended.
    Allowed,
}

/// Treatment of data that have changed since the run was trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangedData {
    /// They are an error.
    #[default]
    Refuse,
    /// They are used, with a note.
    Accept,
}

/// True if `data`, the argument, names the data that the run of `config` was trained on.
fn is_own_data(config: &Config, data: Option<&Path>) -> bool {
    let own = config.get(&config::data::PATH).and_then(|own| own.canonicalize().ok());
    data.is_none_or(|data| data.canonicalize().ok() == own)
}

/// The data file for the run in `folder`: `data`, or the one that the run of `config` was trained
/// on.
///
/// # Errors
/// A data error for data or graphs of the run that are not there any more.
pub(crate) fn own_data_path(folder: &RunFolder, config: &Config, data: Option<&Path>) -> Result<PathBuf> {
    let (path, run) = (data_path(config, data)?, folder.root().display());
    if data.is_none() && !path.exists() {
        return Err(Error::data(format!(
            "{}: the data that {run} was trained on are not there; give their new place with --data",
            path.display()
        )));
    }
    let Some(graph) = config.get(&config::model::GRAPH).filter(|graph| !graph.exists()) else { return Ok(path) };
    Err(Error::data(format!(
        "{}: the graphs that {run} was trained with are not there; write their new place as model.graph into {}",
        graph.display(),
        folder.config_file().display()
    )))
}

/// Arithmetic of the matrices of a model's LSTMs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weights {
    /// Arithmetic of training.
    #[default]
    AsTrained,
    /// Eight bits.
    Int8,
}

impl Trained {
    /// Opens a run, and the data that it is asked about.
    pub(crate) fn open(
        Opening { run, data, made_of, checkpoint, weights, device: name, instruments, changed }: Opening<'_>,
        host: &Host<'_>,
    ) -> Result<Self> {
        let named = DeviceRequest::select(name, host)?;
        let folder = RunFolder::open(run)?;
        let config = folder.config(&[])?;
        named.leave_to_driver(&config);
        let (step, file) = weights_file(&folder, checkpoint)?;
        let device = Device::cpu();
        let is_own_data = is_own_data(&config, data);
        let path = own_data_path(&folder, &config, data)?;
        let mut data = Data::open(&path, &config, &device, NonFinite::Fail, host)?;
        hold_what_fits(&mut data, &config, free_memory_bytes(&device))?;
        require_same_meaning(&folder, &data)?;
        let change = change(&folder, &data, host)?;
        let trained_until_ns = change.as_ref().and_then(|_| trained_until_ns(&folder));
        if let Some(change) = change.filter(|_| is_own_data) {
            match changed {
                ChangedData::Refuse => {
                    return Err(Error::data(format!(
                        "{change}, and its split would part other samples; bring back the file, name other data with --data, or \
                         add --force"
                    )));
                }
                ChangedData::Accept => host.observer.note(&change),
            }
        }
        let model = trained_model(&folder)?;
        if data.samples().shape() != model.shape() {
            let (model, samples) = told_apart(model.shape(), data.samples().shape());
            return Err(trainer::Error::SamplesShape { model, samples }.into());
        }
        with_fields(&config, trainer::Config::default()).check_dense_samples(data.samples())?;
        let predictor = open_predictor(&device, model, &file, &config, weights, data.units())?;
        let Computing { gpu, skip_reason } = named.computing(predictor.check_on_gpu())?;
        let predictor = on(gpu.as_ref(), predictor)?;
        let notes: Vec<String> = skip_reason.into_iter().collect();
        let (in_training, found) = (meaning_in_training(&folder), data.meaning()?);
        let stale_graphs = data.warning().map(|warning| format!("warning: {warning}"));
        let path = made_of.unwrap_or(data.path());
        let doubts = doubts_on_opening(&folder, step, &in_training, &found, path, instruments);
        doubts.iter().chain(&stale_graphs).for_each(|doubt| host.observer.note(doubt));
        let must_be_same = is_own_data && changed == ChangedData::Refuse;
        let split_in_training =
            must_be_same.then(|| folder.saved_plan()["split"].clone()).filter(|split| !split.is_null());
        Ok(Trained { device, config, data, predictor, step, notes, is_own_data, trained_until_ns, split_in_training })
    }

    /// The split of the data.
    ///
    /// # Errors
    /// A data failure for data of the run that are divided in another way than in training, as
    /// where the ends of labels were changed since, or by a version that purged less; and for data
    /// that cannot be split.
    pub(crate) fn split(&self) -> Result<Split> {
        let split = self.data.split(&self.config)?;
        match &self.split_in_training {
            Some(own) if *own != serde_json::to_value(SplitPlan::new(&split, &self.data)?)? => {
                Err(Error::data(format!(
                    "{}: its split is not that of training: what its samples and their labels read was changed since, or another version split \
                     it; bring back the file, name other data with --data, or add --force",
                    self.data.path().display()
                )))
            }
            _ => Ok(split),
        }
    }

    /// A note on those of `samples` that are not later than what the run was trained on, where its
    /// data are other ones; `results` are what they give.
    ///
    /// # Errors
    /// Times that cannot be read.
    pub(crate) fn doubt_times(&self, samples: &SampleRanges, results: &str) -> Result<Option<String>> {
        let Some(until_ns) = self.trained_until_ns else { return Ok(None) };
        let early = self.data.count_before(samples, until_ns)?;
        Ok((early > 0).then(|| {
            format!(
                "{} of {} samples are before {}, until which the run was trained and its checkpoint chosen on other data: \
                 where these had the same bars, the {results} are not those of a test",
                early,
                samples.len(),
                utc(until_ns)
            )
        }))
    }

    /// Units of errors by horizon, where a series file tells.
    pub(crate) fn units_of_errors(&self) -> Result<Option<UnitsOfErrors>> {
        let Some(series) = self.data.source().and_then(Source::series) else { return Ok(None) };
        let text = |name| match series.file().attribute(name) {
            Ok(Some(AttributeValue::Text(text))) => Ok(Some(text)),
            other => other.map(|_| None),
        };
        let errors = match text("target_kind")?.as_deref() {
            Some("cumulative" | "increment") => "pips",
            Some("log_return") => "log returns",
            _ => return Ok(None),
        };
        Ok(text("base")?.map(|base| UnitsOfErrors { errors, horizons: format!("bars of {base}") }))
    }

    /// The files of bars that a series file was made of.
    pub(crate) fn bar_files(&self) -> Result<Vec<PathBuf>> {
        let Some(series) = self.data.source().and_then(Source::series) else { return Ok(Vec::new()) };
        let source = series.file().attribute("source")?;
        let recipe = Recipe::recorded(self.data.path(), source.as_ref());
        // Files of other programs tell no files.
        Ok(recipe.map_or(Vec::new(), |(_, recipe)| recipe.files().into_iter().map(Path::to_owned).collect()))
    }

    /// A second predictor of the same model, with the LSTMs' matrices in eight bits, on the same
    /// device.
    pub(crate) fn int8(&self, run: &Path, which: CheckpointChoice) -> Result<Predictor> {
        let folder = RunFolder::open(run)?;
        let (_, file) = weights_file(&folder, which)?;
        let model = trained_model(&folder)?;
        let predictor = open_predictor(&self.device, model, &file, &self.config, Weights::Int8, self.units())?;
        on(Some(self.predictor.device()).filter(|device| matches!(device, Device::Cuda(_))), predictor)
    }

    /// Number of units in the data.
    pub(crate) fn units(&self) -> usize {
        self.data.units()
    }
}

/// Reads the data into memory if that leaves room for a model in `free_bytes`. Otherwise they stay
/// in their file.
fn hold_what_fits(data: &mut Data, config: &Config, free_bytes: usize) -> Result<()> {
    if data.is_windows() {
        let fits = data.shape().windows_bytes() <= free_bytes as u64 / 2;
        return if fits { Ok(data.hold_unchecked()?) } else { Ok(()) };
    }
    if data.beside_bytes() <= free_bytes / 4 * 3 {
        data.hold_graphs()?;
    }
    let Some(series) = data.streamable() else { return Ok(()) };
    let stays = match config.get(&config::data::RESIDENCY) {
        Some(Residency::Resident) => true,
        Some(Residency::Streamed) => false,
        _ => series.resident_bytes() <= free_bytes as u64 / 4 * 3,
    };
    match stays {
        true => data.hold()?,
        false => {
            let cache_bytes = series.cache_bounds()?.bytes_max.min(free_bytes / 4);
            data.set_cache(cache_bytes)?;
        }
    }
    Ok(())
}

/// The predictor for at most `units` samples or graphs in a batch.
fn open_predictor(
    device: &Device,
    model: Model,
    file: &Path,
    config: &Config,
    weights: Weights,
    units: usize,
) -> Result<Predictor> {
    let batch_size = config.get(&config::gpu_optimization::BATCH_SIZE).min(units.max(1));
    let compute = Compute { threads: threads(config), batch_size };
    let predictor = Predictor::open(device, model, file, compute)?;
    let predictor = match weights {
        Weights::AsTrained => predictor.with_precision(precision(config))?,
        Weights::Int8 => predictor.with_int8()?,
    };
    Ok(if streams(config) { predictor.with_carried_state() } else { predictor })
}

fn on(gpu: Option<&Device>, predictor: Predictor) -> Result<Predictor> {
    Ok(match gpu {
        Some(gpu) => predictor.on_gpu(gpu)?,
        None => predictor,
    })
}

/// The files of a run's data that have changed since the run was trained; empty for runs that kept
/// no fingerprint. A file with a mark of verification and one without are compared by a hash of
/// their numbers.
///
/// # Errors
/// As [`Data::files`].
pub(crate) fn changed_files(folder: &RunFolder, data: &Data, host: &Host<'_>) -> Result<Vec<PathBuf>> {
    let saved = &folder.saved_plan()["data"];
    let Some(recorded) = saved["fingerprint"].as_str() else { return Ok(Vec::new()) };
    // That of graphs between samples hides that of the samples.
    let file_fingerprint = saved["files"][0]["fingerprint"].as_str().unwrap_or(recorded);
    let found = data.files_like(file_fingerprint, host)?;
    if data.fingerprint(&found) == recorded {
        return Ok(Vec::new());
    }
    let is_as_saved = |place: usize| saved["files"][place]["fingerprint"] == found[place].fingerprint.as_str();
    let changed: Vec<PathBuf> =
        (0..found.len()).filter(|&place| !is_as_saved(place)).map(|place| found[place].path.clone()).collect();
    // A run that had another number of files, or none by name, is of other data as a whole.
    Ok(if changed.is_empty() { found.iter().map(|file| file.path.clone()).collect() } else { changed })
}

/// Begin of the test of the run in `folder`, or of validation where it has no test, ns since 1970
/// UTC.
fn trained_until_ns(folder: &RunFolder) -> Option<i64> {
    let split = &folder.saved_plan()["split"];
    split["test_start_ns"].as_i64().or(split["validation_start_ns"].as_i64())
}

/// Texts of two shapes, which differ: a timeframe may have the name that one without a name is
/// shown by.
fn told_apart(model: &SampleShape, samples: &SampleShape) -> (String, String) {
    let texts = (model.to_string(), samples.to_string());
    if texts.0 != texts.1 {
        return texts;
    }
    let with_name = |shape: &SampleShape| match shape.timeframes[0].name.as_str() {
        "" => format!("{shape} (a timeframe without a name)"),
        name => format!("{shape} (a timeframe named {name})"),
    };
    (with_name(model), with_name(samples))
}

/// Paths in a sentence.
pub(crate) fn named(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" or ")
}

/// Change of the data since the run in `folder` was trained, in a sentence without its stop.
pub(crate) fn change(folder: &RunFolder, data: &Data, host: &Host<'_>) -> Result<Option<String>> {
    let changed = changed_files(folder, data, host)?;
    let root = folder.root().display();
    Ok((!changed.is_empty()).then(|| format!("{}: changed since {root} was trained on it", named(&changed))))
}

/// A warning about instruments that the model has not been trained on: their scalers and pips are
/// others.
fn doubt_instruments(trained: &DataSchema, found: &DataSchema, path: &Path) -> Option<String> {
    let others: Vec<String> = trained.other_instruments(found).into_iter().map(str::to_owned).collect();
    let named = listed(&others);
    let ours = match trained.instruments() {
        [one] => one.clone(),
        all => format!("{} others", all.len()),
    };
    (!others.is_empty()).then(|| {
        format!(
            "warning: {}: the model was trained on {ours} and is used on {named}: it sees other inputs than it learned; --allow-other-instruments says that it is meant",
            path.display()
        )
    })
}

/// Notes and warnings on data at `path` that are other than those of training, and on weights of
/// `step`.
pub(crate) fn doubts_on_opening(
    folder: &RunFolder,
    step: u64,
    trained: &DataSchema,
    found: &DataSchema,
    path: &Path,
    instruments: Instruments,
) -> Vec<String> {
    let others = match instruments {
        Instruments::Doubted => doubt_instruments(trained, found, path),
        Instruments::Allowed => None,
    };
    let (bars, scalers) = (doubt_bars(trained, found, path), doubt_scalers(trained, found, path));
    [others, bars, scalers, doubt_step(folder, step)].into_iter().flatten().collect()
}

/// A note on data whose features were scaled by other numbers than those of training.
fn doubt_scalers(trained: &DataSchema, found: &DataSchema, path: &Path) -> Option<String> {
    let others = trained.other_scalers(found);
    let (first, timeframes) = others.first()?;
    let more = match others.len() - 1 {
        0 => String::new(),
        more => format!(" and {}", plural(more, "other instrument")),
    };
    Some(format!(
        "note: {}: the features of {first}{more} were scaled by the numbers of this file's own bars, not by those of training ({}): the model sees other inputs than it learned. A series that bars are appended to keeps its scalers",
        path.display(),
        timeframes.join(", ")
    ))
}

/// A warning about data whose bars were made by other rules than those of training.
fn doubt_bars(trained: &DataSchema, found: &DataSchema, path: &Path) -> Option<String> {
    let others = trained.other_bars(found);
    (!others.is_empty()).then(|| {
        format!(
            "warning: {}: {}: the model sees other bars than it learned; make the series by the rules of training",
            path.display(),
            others.join(", ")
        )
    })
}

/// A warning about weights that a run began with. Imported weights are meant: nothing was trained
/// there, so that there is no log.
fn doubt_step(folder: &RunFolder, step: u64) -> Option<String> {
    (step == 0 && folder.metrics_file().exists()).then(|| {
        format!(
            "warning: {}: the weights are those of step 0, before training, and no checkpoint is later; --resume goes on with a run that was killed",
            folder.root().display()
        )
    })
}

/// Names of the inputs and targets that a run was trained on.
pub(crate) fn meaning_in_training(folder: &RunFolder) -> DataSchema {
    serde_json::from_value(folder.saved_plan()["data"]["meaning"].clone()).unwrap_or_default()
}

/// Refuses data whose inputs or targets have other names than in training.
pub(crate) fn require_same_meaning(folder: &RunFolder, data: &Data) -> Result<()> {
    require_meaning(folder, data.path(), &data.meaning()?)
}

/// Refuses the file at `path` if its names, `found`, are not those of training.
pub(crate) fn require_meaning(folder: &RunFolder, path: &Path, found: &DataSchema) -> Result<()> {
    let Some(difference) = meaning_in_training(folder).difference(found) else { return Ok(()) };
    Err(Error::data(format!(
        "{}: {difference}; the model of {} takes data made as its own were",
        path.display(),
        folder.root().display()
    )))
}

/// The weights of a run's checkpoint, and its step.
pub(crate) fn weights_file(folder: &RunFolder, which: CheckpointChoice) -> Result<(u64, PathBuf)> {
    let all = Checkpoints::new(folder.checkpoints()).list()?;
    let Some((last_step, last)) = all.last().cloned() else {
        let folds: Vec<RunFolder> = folder.begun_folds().collect();
        if let [first, others @ ..] = &folds[..] {
            let last = others.last().map_or_else(String::new, |last| {
                format!(", or {}, the last, for the latest samples", last.root().display())
            });
            return Err(Error::usage(format!(
                "{}: the run has a model a fold; name one, such as {}{last}",
                folder.root().display(),
                first.root().display()
            )));
        }
        return Err(Error::usage(format!("{}: the run has no checkpoint yet", folder.root().display())));
    };
    let best_step = State::load(&last)?.best.map(|best| best.step);
    let chosen = match which {
        CheckpointChoice::Best => all.into_iter().find(|(step, _)| Some(*step) == best_step),
        CheckpointChoice::Last => None,
    };
    let (step, path) = chosen.unwrap_or((last_step, last));
    // Reading its state compares every file with its checksum: a damaged model would predict
    // without a word.
    State::load(&path)?;
    Ok((step, path.join("model.safetensors")))
}

/// The model of a run, for the samples that it was trained on.
pub(crate) fn trained_model(folder: &RunFolder) -> Result<Model> {
    let file = folder.plan_file();
    let fault = |what: &str| Error::data(format!("{}: {what}; it is written by `megabatch train`", file.display()));
    let text = std::fs::read_to_string(&file).map_err(|error| fault(&error.to_string()))?;
    let plan: serde_json::Value = serde_json::from_str(&text).map_err(|error| fault(&error.to_string()))?;
    let shape: SampleShape =
        serde_json::from_value(plan["shape"].clone()).map_err(|error| fault(&format!("shape: {error}")))?;
    let model: ModelConfig = match &plan["model"] {
        // Runs from before there were other models.
        serde_json::Value::Null => {
            let config = folder.config(&[])?;
            recurrent_config(&config).for_loss(loss(&config, shape.outputs)?)
        }
        model => serde_json::from_value(model.clone()).map_err(|error| fault(&format!("model: {error}")))?,
    };
    Ok(Model::new(shape, model)?)
}
