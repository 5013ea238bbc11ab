//! Errors on all samples of a selection. For tests.

use std::borrow::Cow;
use std::ops::ControlFlow;

use megabatch_nn::loss::Loss;

use crate::data::evenly_spaced::DrawnSamples;
use crate::error::Result;
use crate::evaluate::baseline::Baselines;
use crate::evaluate::evaluation::Evaluation;
use crate::evaluate::predictor::Predictor;
use crate::evaluate::selection::Selection;
use crate::train::Trainer;

impl Trainer {
    /// The errors of the weights as they are now.
    ///
    /// # Errors
    /// As [`Trainer::evaluate_drawn`].
    pub fn evaluate(&mut self, selection: Selection<'_>, baselines: Option<&Baselines>) -> Result<Evaluation> {
        self.evaluate_drawn(selection.samples, &whole(selection), baselines, &mut unwatched)
    }
}

impl Predictor {
    /// The model's errors, beside those of the baselines if there are any.
    ///
    /// # Errors
    /// As [`Predictor::evaluate_drawn`].
    pub fn evaluate(
        &mut self,
        selection: Selection<'_>,
        loss: Loss,
        baselines: Option<&Baselines>,
    ) -> Result<Evaluation> {
        self.evaluate_drawn(selection.samples, &whole(selection), loss, baselines, &mut unwatched)
    }
}

fn whole(selection: Selection<'_>) -> DrawnSamples<'_> {
    DrawnSamples { samples: Cow::Borrowed(selection.indices), choice: None }
}

/// Progress that is ignored.
fn unwatched(_done: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}
