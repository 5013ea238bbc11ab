//! Output of the top layer on a device: a vector for each window or, where windows are runs of
//! samples, for each of their steps.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::Model;
use megabatch_nn::model::pooling::Pooling;

use super::memory_estimate::MostRows;
use super::norm::Norms;
use super::outputs::Outputs;
use super::pooling::DevicePooled;
use crate::ops::{
    Arithmetic, GatherIndex, Gradients, Operand, ReadFrom, RowGranularity, ensure_capacity, join, scatter_add,
};

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a model has one")]
pub(super) enum Top {
    /// The states as they are.
    Last,
    /// The states after their norm, a row a vector.
    Normed { norms: Norms, vectors: Buffer<f32> },
    /// Attention pooling over all of them.
    DevicePooled(DevicePooled),
}

impl Top {
    /// Top of a model; memory on `scope` is taken when batches come.
    pub(super) fn new(scope: &Scope, model: &Model, arithmetic: Arithmetic) -> Result<Self> {
        if let Pooling::Attention { heads } = model.config().pooling {
            return Ok(Top::DevicePooled(DevicePooled::new(scope, model, heads, arithmetic)?));
        }
        Ok(match Norms::new(scope, model, model.config().layers - 1)? {
            Some(norms) => Top::Normed { norms, vectors: Buffer::zeros(scope, 0)? },
            None => Top::Last,
        })
    }

    /// Takes memory for what is read of windows of H = `hidden` units: so many vectors of each
    /// timeframe, which has so many rows.
    pub(super) fn reserve(&mut self, most_vectors: MostRows<'_>, rows: MostRows<'_>, hidden: usize) -> Result<()> {
        match self {
            Top::Last => Ok(()),
            Top::Normed { norms, vectors } => {
                ensure_capacity(vectors, most_vectors.all.iter().sum::<usize>() * hidden)?;
                norms.reserve(most_vectors)
            }
            Top::DevicePooled(pooled) => pooled.reserve(most_vectors.all, rows, hidden),
        }
    }

    /// True if the outputs after every step get a gradient, and not the last ones alone.
    pub(super) fn reads_every_step(&self) -> bool {
        matches!(self, Top::DevicePooled(_))
    }

    /// Vectors that samples read.
    pub(super) fn read_from(&self) -> ReadFrom {
        if matches!(self, Top::Last) { ReadFrom::States } else { ReadFrom::RowGranularity }
    }

    /// Makes the vectors that samples read from the top layer's outputs.
    pub(super) fn forward<T: Operand>(
        &mut self,
        outputs: Outputs<'_, T>,
        reads: &GatherIndex,
        weights: &Buffer<f32>,
    ) -> Result<()> {
        match self {
            Top::Last => Ok(()),
            Top::Normed { norms, vectors } => {
                ensure_capacity(vectors, reads.vectors_len() * outputs.list.hidden())?;
                outputs.timeframes().try_for_each(|k| {
                    let (rows, start) = outputs.vector_rows(k, reads.vectors());
                    norms.forward(k, weights, rows, &mut *vectors, start)
                })
            }
            Top::DevicePooled(pooled) => pooled.forward(outputs, weights),
        }
    }

    /// Joins what each sample reads, `[samples, N · H]`.
    pub(super) fn join<T: Operand, To: Operand>(
        &self,
        outputs: Outputs<'_, T>,
        reads: &GatherIndex,
        joined: &mut Buffer<To>,
    ) -> Result<()> {
        match self {
            Top::Last => join(reads, outputs.hidden, joined),
            Top::Normed { vectors, .. } => join(reads, vectors, joined),
            Top::DevicePooled(pooled) => join(reads, &pooled.vectors, joined),
        }
    }

    /// Backward pass from the gradients of what was joined to those of the outputs, in `back`: of
    /// the last ones, or where all of them are read in `d_outputs` `[Σ T·B, H]`. Adds those of the
    /// parameters.
    pub(super) fn backward<T: Operand>(
        &mut self,
        outputs: Outputs<'_, T>,
        reads: &GatherIndex,
        d_joined: &Buffer<f32>,
        back: &mut Gradients<T>,
        d_outputs: Option<&mut Buffer<f32>>,
        weights: &Buffer<f32>,
        gradients: &mut Buffer<f32>,
    ) -> Result<()> {
        if let Top::DevicePooled(pooled) = self {
            back.hidden.set_zero()?;
            scatter_add::<T>(reads, d_joined, &mut pooled.d_vectors)?;
            return pooled.backward(outputs, d_outputs.expect(EVERY_OUTPUT), weights, gradients);
        }
        let d = match reads.vectors() {
            RowGranularity::OfWindows => &mut back.hidden,
            RowGranularity::OfSteps => {
                back.hidden.set_zero()?;
                d_outputs.expect(EVERY_OUTPUT)
            }
        };
        scatter_add::<T>(reads, d_joined, d)?;
        let Top::Normed { norms, .. } = self else { return Ok(()) };
        outputs.timeframes().try_for_each(|k| {
            let (rows, start) = outputs.vector_rows(k, reads.vectors());
            norms.backward(k, weights, rows, &mut *d, start, gradients)
        })
    }
}

const EVERY_OUTPUT: &str = "made for outputs that are all read";
