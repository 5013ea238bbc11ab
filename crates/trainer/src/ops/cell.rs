//! The general path of the recurrence on a GPU, for widths and types that no persistent kernel takes: for every step of every sequence, a product and what is left of the cell.

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, arguments};

use super::matmul::{Call, Layout, Operands, Output};
use super::operand::Operand;
use super::recurrence::{Inputs, States};
use super::recurrence_backward::Gradients;
use super::recurrent_weights::RecurrentWeights;
use super::work_list::WorkList;
use crate::error::Result;

const PTX: &str = include_str!("cell.ptx");

/// Runs every sequence, step after step.
pub(super) fn forward<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    inputs: &Inputs<'_, T>,
    states: &mut States<T>,
) -> Result<()> {
    let (hidden, name) = (list.hidden(), format!("step_forward_{}", T::SUFFIX));
    let product = Buffer::<f32>::zeros(states.cell.scope(), 4 * widest(list) * hidden)?;
    let kernel = Kernel { module: "trainer/cell", ptx: PTX, name: &name };
    for of in list.places() {
        let (windows, weight) = (of.windows as usize, &inputs.weights.rows[of.weight as usize]);
        let call = Call::whole::<T>([windows, 4 * hidden, hidden], Layout::Straight, Output::Overwrite);
        let first = element(&list.on_device.first, of.window as usize);
        for t in 0..of.steps as usize {
            let [before, after] = [of.states(t), of.states(t + 1)].map(|row| row * hidden);
            let operands =
                Operands { a: element(&states.hidden, before), b: weight.address(), start: 0, out: product.address() };
            let further = of.projected_row + t as u64 * of.row_step;
            let (cell_before, cell_after) = (element(&states.cell, before), element(&states.cell, after));
            let (h, gates) = (element(&states.hidden, after), element(&states.gates, 4 * hidden * of.gates(t)));
            let arguments = arguments![
                product.address(),
                inputs.projected.address(),
                first,
                further,
                cell_before,
                cell_after,
                h,
                gates,
                of.windows,
                hidden as u32
            ];
            // SAFETY: the list was made of rows within the projected inputs, and `recurrence` has seen that all arrays have its lengths; `product` has room for the
            // sequence with the most windows. Each launch reads what the ones before it wrote, in the order of the default stream.
            unsafe {
                call.submit(device, operands)?;
                kernel.submit(device, Launch::over(windows * hidden), &arguments)?;
            }
        }
    }
    Ok(())
}

/// Goes back through every sequence, step after step.
pub(super) fn backward<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    (weights, states): (&RecurrentWeights<T>, &States<T>),
    gradients: &mut Gradients<T>,
) -> Result<()> {
    let (hidden, name) = (list.hidden(), format!("step_backward_{}", T::SUFFIX));
    let kernel = Kernel { module: "trainer/cell", ptx: PTX, name: &name };
    for of in list.places() {
        let (windows, weight) = (of.windows as usize, &weights.rows[of.weight as usize]);
        let call = Call::whole::<T>([windows, hidden, 4 * hidden], Layout::SecondTurned, Output::Overwrite);
        let edge = of.window as usize * hidden;
        let (d_hidden, d_cell) = (element(&gradients.hidden, edge), element(&gradients.cell, edge));
        for t in (0..of.steps as usize).rev() {
            let step = of.gates(t) * hidden;
            let [before, after] = [of.states(t), of.states(t + 1)].map(|row| element(&states.cell, row * hidden));
            let d_output = gradients.outputs.as_ref().map_or(0, |outputs| element(outputs, step));
            let (gates, d_gates) = (element(&states.gates, 4 * step), element(&gradients.gates, 4 * step));
            let operands = Operands { a: d_gates, b: weight.address(), start: 0, out: d_hidden };
            let len = (windows * hidden) as u64;
            let arguments = arguments![gates, before, after, d_output, d_hidden, d_cell, d_gates, len];
            // SAFETY: `recurrence_backward` has seen that all arrays have the lengths of the list. Each launch reads what the ones before it wrote, in the order of
            // the default stream.
            unsafe {
                kernel.submit(device, Launch::over(windows * hidden), &arguments)?;
                call.submit(device, operands)?;
            }
        }
    }
    Ok(())
}

/// The most windows of a sequence.
fn widest(list: &WorkList) -> usize {
    list.places().iter().map(|of| of.windows as usize).max().unwrap_or(0)
}

/// Address of an element, or of the end.
fn element<T: bytemuck::Pod>(of: &Buffer<T>, number: usize) -> u64 {
    assert!(number <= of.len(), "element {number} of {}", of.len());
    of.address() + (number * size_of::<T>()) as u64
}
