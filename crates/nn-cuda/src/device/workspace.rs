//! The parameters that stay in f32 on a device, as products in 16 bits read them.

use std::marker::PhantomData;
use std::ops::Range;

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::Model;

use crate::ops::{Operand, round_part};

/// All parameters, of which the matrices of pooling and of fusion are rounded to `T`. LSTMs and the
/// head have forms of their own of theirs.
#[derive(Debug)]
pub(super) struct WorkingCopy<T: Operand> {
    values: Buffer<f32>,
    matrices: Vec<Range<usize>>,
    rounded_to: PhantomData<T>,
}

impl<T: Operand> WorkingCopy<T> {
    /// Working copy of `model`; `None` in single precision, and where there is nothing to be
    /// rounded.
    pub(super) fn new(scope: &Scope, model: &Model) -> Result<Option<Self>> {
        // The first matrix that is rounded, if there is one.
        let pooling = model.poolings().first().map(|pooling| pooling.start(model.layout()));
        let fusion = model.decoder().fusion.map(|fusion| fusion.start(model.layout()));
        let Some(start) = pooling.or(fusion).filter(|_| T::IS_NARROW) else { return Ok(None) };
        let values = Buffer::zeros(&scope.child("model/parameters/working"), model.layout().len())?;
        Ok(Some(WorkingCopy { values, matrices: model.layout().matrices(start).collect(), rounded_to: PhantomData }))
    }

    /// Takes the parameters as they are now.
    pub(super) fn load(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        self.values.copy_from_buffer(parameters)?;
        self.matrices.iter().try_for_each(|range| round_part::<T>(&mut self.values, range.clone()))
    }

    pub(super) fn values(&self) -> &Buffer<f32> {
        &self.values
    }
}
