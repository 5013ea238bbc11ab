//! Choices of kernels, looked up at every step.

use std::collections::HashMap;
use std::hash::Hash;

use megabatch_gpu_core::Cuda;
use megabatch_nn::Result;

use super::{Tuner, TuningQuery};

/// Choices of one kind, each by all that decides it. A question is put into words only where
/// nothing is known of it yet.
#[derive(Debug)]
pub(crate) struct Choices<K, C> {
    tuner: Tuner,
    known: HashMap<K, C>,
}

impl<K: Copy + Eq + Hash, C: Copy> Choices<K, C> {
    /// No choices yet; `tuner` makes them.
    pub(crate) fn new(tuner: &Tuner) -> Self {
        Choices { tuner: tuner.clone(), known: HashMap::new() }
    }

    pub(crate) fn tuner(&self) -> &Tuner {
        &self.tuner
    }

    /// Choice already made, as [`Tuner::stored_choice`] says.
    pub(crate) fn stored_choice(
        &mut self,
        cuda: &Cuda,
        key: K,
        question: impl FnOnce() -> TuningQuery<C>,
    ) -> Option<C> {
        if let Some(&choice) = self.known.get(&key) {
            return Some(choice);
        }
        let choice = self.tuner.stored_choice(cuda, &question())?;
        self.known.insert(key, choice);
        Some(choice)
    }

    /// Choice, by measurement if need be.
    ///
    /// # Errors
    /// Errors of `measure`.
    pub(crate) fn choose(
        &mut self,
        cuda: &Cuda,
        key: K,
        question: impl FnOnce() -> TuningQuery<C>,
        measure: impl FnMut(C) -> Result<f32>,
    ) -> Result<C> {
        if let Some(&choice) = self.known.get(&key) {
            return Ok(choice);
        }
        let choice = self.tuner.choose(cuda, &question(), measure)?;
        self.known.insert(key, choice);
        Ok(choice)
    }
}
