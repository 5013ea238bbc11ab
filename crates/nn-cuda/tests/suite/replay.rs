//! Work that comes again, which a GPU replays.

use half::bf16;
use megabatch_gpu_core::{Buffer, Captures, Device};
use megabatch_nn::Result;

use super::inter_layer::wide;
use super::{Example, Prepared};
use megabatch_nn_cuda::ops::{Gradients, RecurrenceInputs, States, TileWindows, recurrence, recurrence_backward};

/// A layer forward and backward, four times: as it is, captured, and twice replayed. Each has the
/// bits of the first.
pub(super) fn layer(device: &Device, hidden: usize) -> Result<()> {
    let (scope, example, mut captures) = (device.scope("ops"), Example::new(hidden), Captures::default());
    let list = example.work_list(&scope, TileWindows::Eight)?;
    let Prepared { weights, projected, .. } = example.prepare::<bf16>(&scope, &list)?;
    let (mut states, mut gradients) = (States::zeros(&scope, &list)?, Gradients::zeros(&scope, &list)?);
    gradients.outputs = Some(Buffer::from_slice(&scope, &example.d_outputs.concat())?);
    let mut first = None;
    for round in 0..4 {
        captures.run(device, || {
            gradients.hidden.set_zero()?;
            gradients.cell.set_zero()?;
            recurrence(&list, &RecurrenceInputs { weights: &weights, projected: &projected }, &mut states)?;
            recurrence_backward(&list, &weights, &states, &mut gradients)
        })?;
        let state_values = [wide(&states.hidden)?, states.cell.to_vec()?, wide(&gradients.gates)?];
        let found = [state_values.concat(), gradients.hidden.to_vec()?, gradients.cell.to_vec()?].concat();
        assert!(*first.get_or_insert_with(|| found.clone()) == found, "{hidden} units, round {round}");
        // Nothing is left of it for the next round.
        states.hidden.set_zero()?;
        states.cell.set_zero()?;
        gradients.gates.set_zero()?;
    }
    assert!(
        captures.made() == 1 || matches!(device, Device::Cpu(_)),
        "{device} made {} captures: {:?}",
        captures.made(),
        captures.refusal()
    );
    Ok(())
}
