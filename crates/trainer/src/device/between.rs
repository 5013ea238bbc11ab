#![forbid(unsafe_code)]

//! What norm and dropout make of a layer's outputs for the layer above.

use megabatch_gpu_core::{Buffer, Scope};

use super::norm::Norms;
use super::outputs::{Outputs, Rows};
use crate::error::Result;
use crate::model::Model;
use crate::ops::{Dropped, Operand, Part, drop_gradients, drop_outputs, make_room, round_part};

/// What lies between a layer and the one above it.
#[derive(Debug)]
pub(super) struct Between<T: Operand> {
    norms: Option<Norms>,
    /// One timeframe's outputs after the norm, `[T·B, H]`, on the way to dropout; none without both.
    normed: Option<Buffer<f32>>,
    /// What the layer above reads, `[Σ T·B, H]`; none where that is the outputs as they are.
    changed: Option<Buffer<T>>,
}

impl<T: Operand> Between<T> {
    /// Between layer `l` of a model and the one above; memory on `scope` is taken when batches come.
    pub(super) fn new(scope: &Scope, (model, l): (&Model, usize), drops: bool) -> Result<Self> {
        let norms = Norms::new(scope, model, l)?;
        Ok(Between {
            normed: (norms.is_some() && drops).then(|| Buffer::zeros(scope, 0)).transpose()?,
            changed: (norms.is_some() || drops).then(|| Buffer::zeros(scope, 0)).transpose()?,
            norms,
        })
    }

    /// Makes of `outputs` what the layer above reads; `dropped` tells what is dropped in a timeframe.
    pub(super) fn forward<'d>(
        &mut self,
        outputs: Outputs<'_, T>,
        dropped: impl Fn(usize) -> Option<Dropped<'d>>,
        weights: &Buffer<f32>,
    ) -> Result<()> {
        let Between { norms, normed, changed } = self;
        let Some(changed) = changed else { return Ok(()) };
        make_room(changed, outputs.list.rows() * outputs.list.hidden())?;
        for k in outputs.timeframes() {
            let (of, to) = (outputs.all(k), (&mut *changed, outputs.start_of_all(k)));
            match (&mut *norms, dropped(k)) {
                (None, Some(dropped)) => drop_outputs(dropped, of.part, to)?,
                (Some(norms), None) => norms.forward((k, weights), of, to)?,
                (Some(norms), Some(dropped)) => {
                    let normed = normed.as_mut().expect("made for norms and dropout");
                    make_room(normed, of.rows * outputs.list.hidden())?;
                    norms.forward((k, weights), of, (&mut *normed, 0))?;
                    drop_outputs(dropped, (&*normed).into(), to)?;
                }
                (None, None) => unreachable!("what is made for dropout has masks"),
            }
        }
        Ok(())
    }

    /// What the layer above reads of timeframe `k`.
    pub(super) fn read<'a>(&'a self, outputs: Outputs<'a, T>, k: usize) -> Rows<'a, T> {
        let of = outputs.all(k);
        match &self.changed {
            Some(buffer) => Rows { part: Part { buffer, start: outputs.start_of_all(k) }, ..of },
            None => of,
        }
    }

    /// Turns the gradients of what the layer above read, `d` `[Σ T·B, H]`, into those of `outputs`; adds those of the norms.
    pub(super) fn backward<'d>(
        &mut self,
        outputs: Outputs<'_, T>,
        dropped: impl Fn(usize) -> Option<Dropped<'d>>,
        d: &mut Buffer<f32>,
        (weights, gradients): (&Buffer<f32>, &mut Buffer<f32>),
    ) -> Result<()> {
        round_part::<T>(d, 0..outputs.list.rows() * outputs.list.hidden())?;
        for k in outputs.timeframes() {
            let start = outputs.start_of_all(k);
            if let Some(dropped) = dropped(k) {
                drop_gradients(dropped, (&mut *d, start))?;
            }
            if let Some(norms) = &mut self.norms {
                norms.backward((k, weights), outputs.all(k), (&mut *d, start), gradients)?;
            }
        }
        Ok(())
    }
}
