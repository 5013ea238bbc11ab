//! Samples that a run is evaluated on, from its plan and its evaluation. Graphs between samples do
//! not count: they are settings of the model.

use std::path::PathBuf;

use megabatch_chunk_io::{NonFinite, is_fingerprint_of_blocks};
use megabatch_gpu_core::Device;
use serde_json::{Value, json};

use super::Side;
use crate::adapters::samples::SourceSamples;
use crate::error::{Kind, Result};
use crate::host::Host;

/// Result of comparing the samples of two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleMatch {
    Same,
    Different,
    /// The fingerprints of the data are of two kinds, and no file is there to tell.
    Unknown,
}

/// Samples that one or several runs are evaluated on.
pub(super) struct RunSamples {
    /// Which of the data they are.
    judged: Value,
    layout: Value,
    /// Data file, where the run had it.
    path: PathBuf,
    /// Fingerprints of the data file; none in plans from before there were any.
    fingerprints: Fingerprints,
}

/// Fingerprints of one content. A run keeps that of the kind that its file had.
#[derive(Default)]
struct Fingerprints {
    /// Fingerprint that files with a mark of verification have.
    by_blocks: Option<String>,
    /// Fingerprint that files without a mark have.
    by_numbers: Option<String>,
}

impl RunSamples {
    /// Samples of a run.
    pub(super) fn from_side(side: &Side) -> Self {
        let data = &side.plan["data"];
        // Plans from before there were files have the fingerprint of all alone.
        let fingerprint = data["files"].get(0).map_or(&data["fingerprint"], |file| &file["fingerprint"]);
        let mut fingerprints = Fingerprints::default();
        fingerprint.as_str().into_iter().for_each(|known| fingerprints.add(known.to_owned()));
        RunSamples {
            judged: judged(side),
            layout: data["layout"].clone(),
            path: data["path"].as_str().unwrap_or_default().into(),
            fingerprints,
        }
    }

    /// Compares samples with those of another run. Of two kinds of fingerprint, the one that a run
    /// did not keep is computed from its file, if that is as it was.
    ///
    /// # Errors
    /// A cancelled failure where the host ends the reading.
    pub(super) fn compare(&mut self, other: &mut RunSamples, host: &Host<'_>) -> Result<SampleMatch> {
        let known = |is_same| if is_same { SampleMatch::Same } else { SampleMatch::Different };
        if self.judged != other.judged {
            return Ok(SampleMatch::Different);
        }
        let [kept, others] = [&self.fingerprints, &other.fingerprints].map(|known| known.any().map(str::to_owned));
        let (Some(kept), Some(others)) = (&kept, &others) else {
            return Ok(known(kept == others && self.path == other.path));
        };
        if kept == others {
            return Ok(SampleMatch::Same);
        }
        if self.layout != other.layout {
            return Ok(SampleMatch::Different);
        }
        // A file with a mark need not be read for the fingerprint that its run kept.
        for has_mark in [true, false] {
            if let Some(is_same) = self.fingerprints.agree(&other.fingerprints) {
                return Ok(known(is_same));
            }
            match self.fingerprints.by_blocks.is_some() == has_mark {
                true => self.complete(others, host)?,
                false => other.complete(kept, host)?,
            }
        }
        Ok(self.fingerprints.agree(&other.fingerprints).map_or(SampleMatch::Unknown, known))
    }

    /// Adds the fingerprints of another run with the same samples.
    pub(super) fn extend(&mut self, same: RunSamples) {
        let Fingerprints { by_blocks, by_numbers } = same.fingerprints;
        by_blocks.into_iter().chain(by_numbers).for_each(|known| self.fingerprints.add(known));
    }

    /// Adds the fingerprint of the data file that is of the kind of `wanted`, where the file is as
    /// the run had it.
    fn complete(&mut self, wanted: &str, host: &Host<'_>) -> Result<()> {
        let Some(kept) = self.fingerprints.any() else { return Ok(()) };
        let compute = || {
            let samples = SourceSamples::open_in_file(&self.path, &Device::cpu(), NonFinite::Fail, host)?;
            let is_as_it_was = samples.fingerprint_like(kept, host)? == kept;
            is_as_it_was.then(|| samples.fingerprint_like(wanted, host)).transpose()
        };
        match compute() {
            Ok(found) => found.into_iter().for_each(|found| self.fingerprints.add(found)),
            Err(error) if error.kind() == Kind::Cancelled => return Err(error),
            // A file that is gone or damaged tells nothing.
            Err(_) => {}
        }
        Ok(())
    }
}

/// Samples of its data that a run is evaluated on: parts, folds, and the choice from a part. The
/// number of training samples counts only without times, where it decides where the others begin.
fn judged(side: &Side) -> Value {
    let (split, data) = (&side.plan["split"], &side.plan["data"]);
    let begins = json!([split["validation_start_ns"], split["test_start_ns"]]);
    let before = if begins == json!([null, null]) { json!([split["train"], split["purged"]]) } else { Value::Null };
    // Plans from before there was a choice validated on all.
    let chosen = |taken: &Value, part: &str| if *taken == split[part] { Value::Null } else { taken.clone() };
    let validated = chosen(&side.plan["validation_samples"], "validation");
    let tested: Vec<Value> = match side.evaluations.iter().any(Value::is_object) {
        true => side.evaluations.iter().map(|evaluation| evaluation["drawn"].clone()).collect(),
        false => vec![chosen(&side.plan["test_samples"], "test")],
    };
    let is_some = !validated.is_null() || tested.iter().any(|taken| !taken.is_null());
    let setting = |key: &str, value: &str| side.settings.get(key).is_some_and(|set| set == value);
    let has_stretches = setting("training.carry_state", "true") || setting("training.loss_on", "every_step");
    json!({
        "parts": [split["validation"], split["test"]],
        "begins": begins,
        "before": before,
        "rule": side.plan["split_rule"],
        "folds": side.folds.map(|folds| folds.folds),
        "units": [data["unit"], data["units"]],
        "validated": validated,
        "tested": if tested.iter().all(Value::is_null) { Value::Null } else { json!(tested) },
        "has_stretches": is_some && has_stretches,
    })
}

impl Fingerprints {
    fn add(&mut self, fingerprint: String) {
        let same_kind = if is_fingerprint_of_blocks(&fingerprint) { &mut self.by_blocks } else { &mut self.by_numbers };
        *same_kind = Some(fingerprint);
    }

    fn any(&self) -> Option<&str> {
        self.by_blocks.as_deref().or(self.by_numbers.as_deref())
    }

    /// True if both are of one content; `None` where no kind is known of both.
    fn agree(&self, other: &Fingerprints) -> Option<bool> {
        let kinds = [(&self.by_blocks, &other.by_blocks), (&self.by_numbers, &other.by_numbers)];
        kinds.into_iter().find_map(|(one, other)| Some(one.as_ref()? == other.as_ref()?))
    }
}
