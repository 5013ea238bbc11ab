//! Which of several kernels is the fastest for a shape: measured once a GPU, and kept on disk.
//!
//! An operation asks a [`Tuner`] a [`TuningQuery`] with the candidates that answer it, the one that
//! a rule would take first. What is known is remembered; else the folder is looked into, and then
//! each candidate is measured on the arrays at hand: once to be warm, then five times, of which the
//! median counts. What is asked at every step is kept in [`Choices`], which ask once.

mod choices;
mod library;
mod store;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use choices::Choices;
use library::Library;
use megabatch_gpu_core::Cuda;
use megabatch_nn::Result;
use serde::{Deserialize, Serialize};
use store::{Answer, Store};

/// Times that a candidate is measured, of which the median counts.
const SAMPLES: usize = 5;

/// Which kernels the operations of a run take on a GPU. Nothing on the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tuning {
    /// Kernels by shape rules alone: nothing is measured.
    Off,
    /// The fastest by measurement of the kernels that give the rules' bits. A run has the same bits
    /// however that comes out.
    #[default]
    Deterministic,
    /// The fastest of all. Sums may be added in another order, so that a run on another GPU, or one
    /// that is measured anew, is another rounding of the same.
    Fast,
}

/// Choice to make, in words.
#[derive(Clone, Debug)]
pub(crate) struct TuningQuery<C> {
    /// The operation, and all of its kind that matters.
    pub(crate) what: String,
    /// Sizes of the shape, each of a [`bucket`]: the measurement holds for all of it.
    pub(crate) sizes: Vec<usize>,
    /// Candidates by name, the rule's first.
    pub(crate) candidates: Vec<(&'static str, C)>,
    /// The PTX of the candidates: other kernels are measured anew.
    pub(crate) ptx: &'static [&'static str],
}

impl<C: Copy> TuningQuery<C> {
    /// Between other candidates is another question.
    fn text(&self) -> String {
        let names: Vec<&str> = self.candidates.iter().map(|(name, _)| *name).collect();
        let sizes: Vec<String> = self.sizes.iter().map(usize::to_string).collect();
        format!("{} {}: {}", self.what, sizes.join(" x "), names.join(" or "))
    }

    fn candidate(&self, name: &str) -> Option<C> {
        self.candidates.iter().find(|(candidate, _)| *candidate == name).map(|&(_, candidate)| candidate)
    }
}

/// Chooses kernels, and remembers. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct Tuner {
    tuning: Tuning,
    known: Arc<Mutex<Known>>,
    /// Locked before what is known, where both are.
    library: Arc<Mutex<Library>>,
}

#[derive(Debug, Default)]
struct Known {
    /// Names of the chosen ones.
    chosen: BTreeMap<String, String>,
    folder: Option<PathBuf>,
    notes: Vec<String>,
    /// True if it was noted that the folder takes nothing.
    is_noted: bool,
}

impl Tuner {
    /// A tuner without choices and without a folder.
    pub fn new(tuning: Tuning) -> Self {
        Tuner { tuning, known: Arc::default(), library: Arc::default() }
    }

    /// A tuner that measures nothing.
    pub fn off() -> Self {
        Tuner::new(Tuning::Off)
    }

    /// Looks for choices in a folder from now on, and keeps them there.
    pub fn keep_in(&self, folder: &Path) {
        self.known().folder = Some(folder.to_owned());
    }

    /// Notes for users, each reported once.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.known().notes)
    }

    /// True if candidates may be asked about that have other bits.
    pub fn is_fast(&self) -> bool {
        self.tuning == Tuning::Fast
    }

    /// Choice already made, in this run or on disk; the first candidate where there is no other, or
    /// nothing is measured.
    pub(crate) fn stored_choice<C: Copy>(&self, cuda: &Cuda, question: &TuningQuery<C>) -> Option<C> {
        if self.tuning == Tuning::Off || question.candidates.len() == 1 {
            return Some(question.candidates[0].1);
        }
        let (mut known, what) = (self.known(), question.text());
        if !known.chosen.contains_key(&what) {
            let answer = known.store(cuda).and_then(|store| store.read(&what, question.ptx));
            match answer {
                Some(Ok(choice)) if question.candidate(&choice).is_some() => known.chosen.insert(what.clone(), choice),
                Some(Err(note)) => return known.note(note),
                _ => return None,
            };
        }
        question.candidate(known.chosen.get(&what)?)
    }

    /// The candidate that takes least by `measure`, in milliseconds, unless the choice is known.
    /// One that turns out not to be possible takes infinitely long; the choice is then not kept on
    /// disk.
    ///
    /// # Errors
    /// Errors of `measure`.
    pub(crate) fn choose<C: Copy>(
        &self,
        cuda: &Cuda,
        question: &TuningQuery<C>,
        mut measure: impl FnMut(C) -> Result<f32>,
    ) -> Result<C> {
        if let Some(choice) = self.stored_choice(cuda, question) {
            return Ok(choice);
        }
        let candidates = &question.candidates;
        let medians_ms = candidates.iter().map(|&(_, candidate)| median_ms(|| measure(candidate)));
        let medians_ms = medians_ms.collect::<Result<Vec<f32>>>()?;
        let fastest = (0..candidates.len()).min_by(|&a, &b| medians_ms[a].total_cmp(&medians_ms[b]));
        let (name, choice) = candidates[fastest.expect("there are candidates")];
        let (mut known, what) = (self.known(), question.text());
        let store = known.store(cuda).filter(|_| medians_ms.iter().all(|ms| ms.is_finite()));
        if let Some(store) = store {
            let times_us = candidates.iter().zip(&medians_ms);
            let times_us = times_us.map(|((name, _), ms)| ((*name).to_owned(), f64::from(*ms) * 1e3)).collect();
            let kept = store.write(&Answer { choice: name.to_owned(), times_us }, &what, question.ptx);
            known.note_failure(kept);
        }
        known.chosen.insert(what, name.to_owned());
        Ok(choice)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn store(&self, cuda: &Cuda) -> Option<Store> {
        self.folder.as_ref().map(|folder| Store { folder: folder.clone(), gpu: cuda.identity() })
    }

    fn note<C>(&mut self, note: String) -> Option<C> {
        self.notes.push(note);
        None
    }

    /// Once is enough: what holds for one choice holds for all.
    fn note_failure(&mut self, kept: Result<()>) {
        if let Err(error) = kept
            && !std::mem::replace(&mut self.is_noted, true)
        {
            self.notes.push(format!(
                "which kernels are the fastest is not kept, and is measured anew in the next run: {error}; XDG_CACHE_HOME may name another folder"
            ));
        }
    }
}

/// The largest size of which holds what is measured for `size`: that to three significant bits,
/// rounded up.
pub(crate) fn bucket(size: usize) -> usize {
    let step = 1 << size.checked_ilog2().unwrap_or(0).saturating_sub(2);
    size.next_multiple_of(step)
}

/// After a time that does not count.
fn median_ms(mut measure: impl FnMut() -> Result<f32>) -> Result<f32> {
    measure()?;
    let mut times_ms = (0..SAMPLES).map(|_| measure()).collect::<Result<Vec<f32>>>()?;
    times_ms.sort_by(f32::total_cmp);
    Ok(times_ms[SAMPLES / 2])
}

#[cfg(test)]
mod tests {
    use super::store::{Answer, Store};
    use super::*;

    #[test]
    fn sizes_have_three_significant_bits() {
        let cases = [(0, 0), (1, 1), (7, 7), (8, 8), (9, 10), (10, 10), (11, 12), (15, 16), (1024, 1024), (1025, 1280)];
        for (size, expected) in cases {
            assert_eq!(bucket(size), expected, "{size}");
        }
    }

    #[test]
    fn the_middle_one_of_five_times_counts_and_the_first_of_all_does_not() {
        let mut times_ms = [90.0, 7.0, 5.0, 80.0, 1.0, 6.0].into_iter();
        assert_eq!(median_ms(|| Ok(times_ms.next().unwrap())).unwrap(), 6.0);
        assert_eq!(times_ms.next(), None);
    }

    #[test]
    fn a_choice_is_found_again_by_all_that_it_was_made_for_and_by_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let store = |gpu: &str| Store { folder: folder.path().join("below"), gpu: gpu.to_owned() };
        let answer = Answer { choice: "b".to_owned(), times_us: BTreeMap::from([("a".to_owned(), 2.0)]) };
        assert!(store("A").read("q", &["ptx"]).is_none());
        store("A").write(&answer, "q", &["ptx"]).unwrap();
        assert_eq!(store("A").read("q", &["ptx"]).unwrap().unwrap(), "b");
        for (gpu, question, ptx) in [("B", "q", "ptx"), ("A", "r", "ptx"), ("A", "q", "other")] {
            assert!(store(gpu).read(question, &[ptx]).is_none(), "{gpu} {question} {ptx}");
        }
        let path = std::fs::read_dir(folder.path().join("below")).unwrap().next().unwrap().unwrap().path();
        std::fs::write(&path, "{").unwrap();
        let note = store("A").read("q", &["ptx"]).unwrap().unwrap_err();
        assert!(note.contains(&path.display().to_string()) && note.ends_with("it is measured anew"), "{note}");
        // One of another form.
        store("A").write(&answer, "q", &["ptx"]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap().replace("\"format\": 1", "\"format\": 2");
        std::fs::write(&path, text).unwrap();
        assert!(store("A").read("q", &["ptx"]).is_none());
    }
}
