//! A step of several ranks on GPUs: each gives the gradients of its part as one block, and gets the
//! sum over all ranks. It begins with an agreement, where all hear of a rank that has failed since
//! the last exchange.

use std::ops::ControlFlow;
use std::slice::from_ref;

use megabatch_amp::ops::StepReport;
use megabatch_nn::model::TensorSet;
use megabatch_nn_cpu::Totals;

use super::ProcessGroup;
use super::shared_step::answer;
use crate::error::Result;
use crate::peers::exchange::exchange;
use crate::peers::relay::{StepSums, relay};
use crate::peers::step_gradients::{Outcome, OwnBlocks, StepGradients};
use crate::train::on_gpu::{CudaBackend, GpuStep};
use crate::train::step_plan::{BatchPipeline, StepPlan};

/// End of a step on a GPU: its plan, the sums over its batches, and the device's report.
type StepEnd = (StepPlan, Totals, StepReport);

/// A step of all ranks, with the update by the gradients of all; the answer to all observers before
/// it.
pub(in crate::train) fn shared_gpu_step(
    cuda: &mut CudaBackend,
    process_group: &mut ProcessGroup,
    pipeline: &mut BatchPipeline<'_, '_>,
    mut step: GpuStep<'_>,
) -> Result<(StepEnd, ControlFlow<()>)> {
    let own = read_own(cuda, process_group, pipeline, &mut step);
    let (mut plan, [loss_sum, terms]) = process_group.agree_on(own)?;
    let outcome = Outcome { losses: vec![(loss_sum, terms as u64)], failed: false };
    let (StepSums { loss_sum, terms, .. }, agreed) = process_group.relay_blocks(outcome)?;
    let written = cuda.write_gradients(process_group.blocks[0].values(), [loss_sum, terms as f64]);
    let ended = written.and_then(|()| cuda.end_step(&mut plan, pipeline, step));
    // The others, whose step has ended, hear of it in what they do next.
    let (totals, report) = match ended {
        Ok(ended) => ended,
        failed => process_group.agree_on(failed)?,
    };
    Ok(((plan, totals, report), answer(agreed)))
}

/// Computes this rank's part of a step: its plan, and the sum of its losses and their terms. Its
/// gradients are the last block.
fn read_own(
    cuda: &mut CudaBackend,
    process_group: &mut ProcessGroup,
    pipeline: &mut BatchPipeline<'_, '_>,
    step: &mut GpuStep<'_>,
) -> Result<(StepPlan, [f64; 2])> {
    let plan = cuda.submit(pipeline, step)?;
    let own = usize::from(!process_group.is_first());
    let totals = cuda.read_gradients(process_group.blocks[own].values_mut())?;
    Ok((plan, totals))
}

impl ProcessGroup {
    /// Has the first block become the sum of those of all ranks. The sums of the step, and the
    /// flags of all ranks.
    fn relay_blocks(&mut self, outcome: Outcome) -> Result<(StepSums, u32)> {
        let (is_first, flags, piece_len) = (self.is_first(), self.flags(), self.relay.piece_len);
        let (sum, held) = self.blocks.split_first_mut().expect("memory for the sum was taken before the first step");
        let sum = sum.values_mut();
        let whole = 0..sum.len();
        let blocks = OwnBlocks { is_first, done: 1, in_turn: 1, count: 1 };
        let own =
            StepGradients::new(blocks, from_ref(&whole), piece_len, sum, held.iter_mut().map(TensorSet::values_mut));
        own.finish(outcome);
        let peers = &mut *self.peers;
        Ok(exchange(peers, flags, |peers| relay(peers, &own))?)
    }
}
