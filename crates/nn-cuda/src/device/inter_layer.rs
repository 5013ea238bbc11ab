//! Norm and dropout between a layer and the one above.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::Model;

use super::memory_estimate::MostRows;
use super::norm::Norms;
use super::outputs::{OutputRows, Outputs};
use crate::ops::{Dropped, Operand, TensorSlice, drop_gradients, drop_outputs, ensure_capacity, round_part};

/// Norm and dropout between a layer and the one above it.
#[derive(Debug)]
pub(super) struct InterLayer<T: Operand> {
    norms: Option<Norms>,
    /// One timeframe's outputs after the norm, `[T·B, H]`, on the way to dropout.
    normed: Buffer<f32>,
    /// Input of the layer above, `[Σ T·B, H]`, where it is not the outputs as they are.
    changed: Buffer<T>,
    is_changed: bool,
}

impl<T: Operand> InterLayer<T> {
    /// Between layer `l` of a model and the one above; memory on `scope` is taken when batches
    /// come.
    pub(super) fn new(scope: &Scope, model: &Model, l: usize) -> Result<Self> {
        Ok(InterLayer {
            norms: Norms::new(scope, model, l)?,
            normed: Buffer::zeros(scope, 0)?,
            changed: Buffer::zeros(scope, 0)?,
            is_changed: false,
        })
    }

    /// Takes memory for so many rows of each timeframe and for dropout, if it `drops`.
    pub(super) fn reserve(&mut self, rows: MostRows<'_>, hidden: usize, drops: bool) -> Result<()> {
        // A prediction drops nothing.
        if drops {
            ensure_capacity(&mut self.changed, rows.learnt.iter().sum::<usize>() * hidden)?;
        }
        let Some(norms) = &mut self.norms else { return Ok(()) };
        ensure_capacity(&mut self.changed, rows.all.iter().sum::<usize>() * hidden)?;
        if drops {
            ensure_capacity(&mut self.normed, rows.learnt.iter().copied().max().unwrap_or(0) * hidden)?;
        }
        norms.reserve(rows)
    }

    /// Makes of `outputs` what the layer above reads; `dropped` tells what is dropped in a
    /// timeframe.
    pub(super) fn forward<'d>(
        &mut self,
        outputs: Outputs<'_, T>,
        dropped: impl Fn(usize) -> Option<Dropped<'d>>,
        weights: &Buffer<f32>,
    ) -> Result<()> {
        let InterLayer { norms, normed, changed, is_changed } = self;
        *is_changed = norms.is_some() || dropped(0).is_some();
        if !*is_changed {
            return Ok(());
        }
        ensure_capacity(changed, outputs.list.rows() * outputs.list.hidden())?;
        for k in outputs.timeframes() {
            let (rows, to) = (outputs.all(k), (&mut *changed, outputs.start_of_all(k)));
            match (&mut *norms, dropped(k)) {
                (None, Some(dropped)) => drop_outputs(dropped, rows.part, to.0, to.1)?,
                (Some(norms), None) => norms.forward(k, weights, rows, to.0, to.1)?,
                (Some(norms), Some(dropped)) => {
                    ensure_capacity(normed, rows.rows * outputs.list.hidden())?;
                    norms.forward(k, weights, rows, &mut *normed, 0)?;
                    drop_outputs(dropped, (&*normed).into(), to.0, to.1)?;
                }
                (None, None) => unreachable!("all timeframes have masks, or none"),
            }
        }
        Ok(())
    }

    /// Input of the layer above in timeframe `k`.
    pub(super) fn read<'a>(&'a self, outputs: Outputs<'a, T>, k: usize) -> OutputRows<'a, T> {
        let rows = outputs.all(k);
        if !self.is_changed {
            return rows;
        }
        OutputRows { part: TensorSlice { buffer: &self.changed, start: outputs.start_of_all(k) }, ..rows }
    }

    /// Turns the gradients of what the layer above read, `d` `[Σ T·B, H]`, into those of `outputs`;
    /// adds those of the norms.
    pub(super) fn backward<'d>(
        &mut self,
        outputs: Outputs<'_, T>,
        dropped: impl Fn(usize) -> Option<Dropped<'d>>,
        d: &mut Buffer<f32>,
        weights: &Buffer<f32>,
        gradients: &mut Buffer<f32>,
    ) -> Result<()> {
        round_part::<T>(d, 0..outputs.list.rows() * outputs.list.hidden())?;
        for k in outputs.timeframes() {
            let start = outputs.start_of_all(k);
            if let Some(dropped) = dropped(k) {
                drop_gradients(dropped, &mut *d, start)?;
            }
            if let Some(norms) = &mut self.norms {
                norms.backward(k, weights, outputs.all(k), &mut *d, start, gradients)?;
            }
        }
        Ok(())
    }
}
