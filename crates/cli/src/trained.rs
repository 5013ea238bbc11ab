//! A trained model off a run's folder.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;
use megabatch_gpu_core::Device;
use megabatch_trainer::{self as trainer, Checkpoints, Compute, Model, Predictor, SampleShape, Samples as _, State};

use crate::adapt::meaning::Meaning;
use crate::adapt::samples::SourceSamples;
use crate::config::Config;
use crate::failure::Failure;
use crate::job::{data_path, form, free_memory_bytes, model_config, threads};
use crate::run::RunFolder;

/// Which checkpoint of a run is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    /// The one with the lowest validation loss; the last where nothing was validated
    Best,
    /// The last one
    Last,
}

/// The model of a run and the data it is asked about.
pub(crate) struct Trained {
    pub(crate) device: Device,
    pub(crate) config: Config,
    pub(crate) samples: SourceSamples,
    pub(crate) predictor: Predictor,
    /// The checkpoint's step.
    pub(crate) step: u64,
}

impl Trained {
    /// Opens the run in `run`, and `data` or else the data that it was trained on.
    pub(crate) fn open(run: &Path, data: Option<&Path>, which: Which) -> Result<Self> {
        let folder = RunFolder::open(run)?;
        let config = folder.config(&[])?;
        let (step, weights) = weights_file(&folder, which)?;
        let device = Device::cpu();
        let samples = SourceSamples::open(&data_path(&config, data)?, &device, free_memory_bytes(&device) / 2)?;
        require_same_meaning(&folder, &samples)?;
        if data.is_none() {
            tell_changed_data(&folder, &samples)?;
        }
        let model = Model::new(trained_shape(&folder)?, model_config(&config))?;
        if samples.shape() != model.shape() {
            let (model, samples) = (model.shape().to_string(), samples.shape().to_string());
            return Err(trainer::Error::SamplesShape { model, samples }.into());
        }
        let batch_size = config.count("gpu_optimization.batch_size");
        let compute = Compute { threads: threads(&config), batch_size, form: form(&config) };
        let predictor = Predictor::open(&device, model, &weights, compute)?;
        let predictor = if config.flag("training.carry_state") { predictor.with_carried_state() } else { predictor };
        Ok(Trained { device, config, samples, predictor, step })
    }

    /// Number of samples in the data.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }
}

/// The data that a run was trained on are taken to be the same still; where they are not, its errors on them mean something else.
fn tell_changed_data(folder: &RunFolder, samples: &SourceSamples) -> Result<()> {
    let trained = folder.saved_plan()["data"]["fingerprint"].clone();
    if trained.is_string() && trained != samples.fingerprint()? {
        let path = samples.source().path().display();
        eprintln!("megabatch: {path}: not the samples any more that {} was trained on", folder.root().display());
    }
    Ok(())
}

fn require_same_meaning(folder: &RunFolder, samples: &SourceSamples) -> Result<()> {
    let trained: Meaning = serde_json::from_value(folder.saved_plan()["data"]["meaning"].clone()).unwrap_or_default();
    match trained.difference(&Meaning::of(samples.source())?) {
        None => Ok(()),
        Some(difference) => Err(Failure::data(format!(
            "{}: {difference}; the model of {} takes data made as its own were",
            samples.source().path().display(),
            folder.root().display()
        ))),
    }
}

/// The weights of a run's checkpoint, and its step.
pub(crate) fn weights_file(folder: &RunFolder, which: Which) -> Result<(u64, PathBuf)> {
    let all = Checkpoints::new(folder.checkpoints()).list()?;
    let Some((last_step, last)) = all.last().cloned() else {
        return Err(Failure::usage(format!("{}: the run has no checkpoint yet", folder.root().display())));
    };
    let best_step = State::of_checkpoint(&last)?.best.map(|best| best.step);
    let chosen = match which {
        Which::Best => all.into_iter().find(|(step, _)| Some(*step) == best_step),
        Which::Last => None,
    };
    let (step, path) = chosen.unwrap_or((last_step, last));
    // Reading its state compares every file with its checksum: a damaged model would predict without a word.
    State::of_checkpoint(&path)?;
    Ok((step, path.join("model.safetensors")))
}

/// The shape of the samples that the model was trained on.
pub(crate) fn trained_shape(folder: &RunFolder) -> Result<SampleShape> {
    let file = folder.plan_file();
    let fault = |what: &str| Failure::data(format!("{}: {what}; it is written by `megabatch train`", file.display()));
    let text = std::fs::read_to_string(&file).map_err(|error| fault(&error.to_string()))?;
    let plan: serde_json::Value = serde_json::from_str(&text).map_err(|error| fault(&error.to_string()))?;
    serde_json::from_value(plan["shape"].clone()).map_err(|error| fault(&format!("shape: {error}")))
}
