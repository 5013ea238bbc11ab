#![forbid(unsafe_code)]

//! What follows the encoder, on the processor: fusion, head, loss and the way back to the encodings.

use megabatch_amp::{Operation, Precision, round_to};
use megabatch_gpu_core::Device;

use crate::decoder::Decoding;
use crate::error::Result;
use crate::graph::AttentionPass;
use crate::model::Model;
use crate::step::{Objective, Purpose, Room, Totals, WorkingCopy};
use crate::tensor::TensorSet;

#[derive(Debug)]
pub(super) struct Decode {
    decoding: Decoding<f32, AttentionPass>,
    working: Option<WorkingCopy>,
    precision: Precision,
}

impl Decode {
    /// For batches of up to `samples`, in the memory of `host`.
    pub(super) fn new(
        host: &Device,
        (model, precision): (&Model, Precision),
        (samples, purpose): (usize, Purpose),
    ) -> Result<Self> {
        let room = Room { samples, edges: 0, run: 1 };
        let mut decoding = Decoding::new(&host.scope("activations"), model.decoder(), room, purpose)?;
        decoding.set_precision(precision);
        let working = WorkingCopy::new(&host.scope("model/parameters/working"), model, precision)?;
        Ok(Decode { decoding, working, precision })
    }

    /// Makes ready for `parameters`.
    pub(super) fn load(&mut self, parameters: &TensorSet<f32>) {
        self.working.iter_mut().for_each(|working| working.take(parameters));
    }

    /// The encodings of so many samples for writing, `[B, D]`.
    pub(super) fn encodings_mut(&mut self, samples: usize) -> &mut [f32] {
        self.decoding.encodings_mut(samples)
    }

    /// The loss of the samples whose encodings are set, added to `totals`. Adds the gradients of what follows the encoder; that of the encodings is then
    /// [`Decode::d_encodings`].
    pub(super) fn learn(
        &mut self,
        (model, parameters): (&Model, &TensorSet<f32>),
        (targets, Objective { loss, count, scale, .. }): (&[f32], Objective),
        (gradients, totals): (&mut TensorSet<f32>, &mut Totals),
    ) {
        let parameters = self.working.as_ref().map_or(parameters, |working| &working.parameters);
        let products = self.precision.arithmetic(Operation::MatrixProduct);
        self.decoding.round_encodings(products.operands);
        self.decoding.forward(model.decoder(), (parameters, None), None);
        let (y, d_y) = self.decoding.outputs_and_gradient_mut();
        loss.gradient((y, targets), count, d_y);
        totals.loss_sum += loss.sum(y, targets);
        totals.terms += loss.terms(targets);
        d_y.iter_mut().for_each(|d| *d *= scale);
        round_to(products.operands, d_y);
        self.decoding.backward(model.decoder(), (parameters, None), None, gradients);
        self.decoding.round_d_encodings(products.result);
    }

    /// `[B, D]`.
    pub(super) fn d_encodings(&self) -> &[f32] {
        self.decoding.d_encodings()
    }
}
