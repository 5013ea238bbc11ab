//! From the query to the keys, and back: what is done once a layer, and not once a window.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, arguments};
use megabatch_nn::Result;

use super::super::operand::TensorSlice;
#[cfg(feature = "conformance")]
use super::cpu;
use super::{PoolMemory, PoolSizes, PoolSlots, PoolWeights};

const PTX: &str = megabatch_gpu_core::ptx!("pool_keys");

/// Warps of a block, and its columns: those of pool_keys.cu.
pub(super) const WARPS: usize = 8;
const COLUMNS: usize = 32;

/// The scaled query, the heads' keys, and the bias of pooled vectors, W_o b_v + b_o.
pub(super) fn find_keys(weights: PoolWeights<'_>, memory: &mut PoolMemory) -> Result<()> {
    let PoolSlots { query, in_weight, in_bias, out_weight, out_bias } = weights.slots;
    let [_, _, _, hidden] = memory.sizes.wide();
    let weight_k = in_weight + hidden * hidden;
    let read = [query, in_weight, in_bias, weight_k, out_weight, in_bias + 2 * hidden, out_bias];
    let PoolMemory { sizes, query, keys, bias, .. } = memory;
    match keys.scope().device().clone() {
        Device::Cuda(device) => {
            let [query_from, weight_q, bias_q, weight_k, weight_o, bias_v, bias_o] =
                read.map(|start| weights.parameter(start).address());
            let (query, keys, bias) = (query.address(), keys.address(), bias.address());
            let arguments = arguments![
                sizes.heads,
                sizes.hidden,
                sizes.scale(),
                query_from,
                weight_q,
                bias_q,
                weight_k,
                weight_o,
                bias_v,
                bias_o,
                query,
                keys,
                bias
            ];
            // SAFETY: the parameters are those of a pooling of H units, as are the arrays; a block
            // writes the numbers of its head, or a warp of it one of the bias. What is submitted to
            // the default stream later runs after it.
            Ok(unsafe { kernel("pool_keys").submit(&device, launch_of_keys(*sizes), &arguments) }?)
        }
        _ => cpu_arm!(cpu::find_keys(weights, memory)),
    }
}

/// From the gradients of the keys to those of the query, W_q, b_q and W_k, which are added.
pub(super) fn keys_backward(
    weights: PoolWeights<'_>,
    memory: &mut PoolMemory,
    gradients: &mut Buffer<f32>,
) -> Result<()> {
    let PoolSlots { query, in_weight, in_bias, .. } = weights.slots;
    let [_, _, _, hidden] = memory.sizes.wide();
    let weight_k = in_weight + hidden * hidden;
    let PoolMemory { sizes, query: scaled, d_keys, d_query, .. } = memory;
    match d_keys.scope().device().clone() {
        Device::Cuda(device) => {
            let weight = weights.parameter(weight_k).address();
            let d_weight = TensorSlice { buffer: gradients, start: weight_k }.address();
            let (d_keys, scaled, d_query) = (d_keys.address(), scaled.address(), d_query.address());
            let arguments =
                arguments![sizes.heads, sizes.hidden, sizes.scale(), d_keys, scaled, weight, d_query, d_weight];
            // SAFETY: as in `find_keys`; a warp writes a number of the query's gradient, and a row
            // of that of W_k.
            unsafe { kernel("pool_keys_backward").submit(&device, launch_of_heads(*sizes), &arguments)? };
        }
        _ => cpu_arm!({
            let weight = &weights.parameter(weight_k).elements()[..hidden * hidden];
            let d_weight = &mut gradients.as_mut_slice()[weight_k..][..hidden * hidden];
            let read = [d_keys.as_slice(), scaled.as_slice(), weight];
            cpu::keys_backward(*sizes, read[0], read[1], read[2], d_query.as_mut_slice(), d_weight);
        })?,
    }
    let affine = AffineOffsets { x: query, weight: in_weight, bias: in_bias };
    affine_backward(weights, d_query, affine, gradients)
}

/// y = W x + b of H numbers: where these are among the parameters.
#[derive(Clone, Copy)]
pub(super) struct AffineOffsets {
    pub(super) x: usize,
    pub(super) weight: usize,
    pub(super) bias: usize,
}

/// Adds the gradients of all three, from that of y, `d` `[H]`.
pub(super) fn affine_backward(
    weights: PoolWeights<'_>,
    d: &Buffer<f32>,
    place: AffineOffsets,
    gradients: &mut Buffer<f32>,
) -> Result<()> {
    let (hidden, AffineOffsets { x, weight, bias }) = (d.len(), place);
    match d.scope().device().clone() {
        Device::Cuda(device) => {
            let [x_from, weight_from] = [x, weight].map(|start| weights.parameter(start).address());
            let [d_weight, d_bias, d_x] =
                [weight, bias, x].map(|start| TensorSlice { buffer: &*gradients, start }.address());
            let arguments = arguments![hidden as u32, d.address(), x_from, weight_from, d_weight, d_bias, d_x];
            // SAFETY: there are H numbers of d, x and b, and H rows of W, as of the pooling that
            // they are of; a thread changes elements of its own column.
            Ok(unsafe { kernel("affine_backward").submit(&device, launch_of_columns(hidden), &arguments) }?)
        }
        _ => cpu_arm!(cpu::affine_backward(weights, d.as_slice(), place, gradients.as_mut_slice())),
    }
}

fn kernel(name: &str) -> Kernel<'_> {
    Kernel { module: "nn/pool_keys", ptx: PTX, name }
}

fn launch_of_keys(sizes: PoolSizes) -> Option<Launch> {
    let [_, _, heads, hidden] = sizes.wide();
    launch(heads + hidden.div_ceil(WARPS))
}

fn launch_of_heads(sizes: PoolSizes) -> Option<Launch> {
    launch(sizes.heads as usize)
}

fn launch_of_columns(hidden: usize) -> Option<Launch> {
    launch(hidden.div_ceil(COLUMNS))
}

fn launch(blocks: usize) -> Option<Launch> {
    Launch::for_blocks(blocks).map(|launch| launch.with_threads(32 * WARPS as u32))
}

#[cfg(test)]
mod tests {
    use megabatch_gpu_core::Scope;
    use megabatch_simt::Arg;

    use super::super::super::harness::{HARNESS, noise};
    use super::super::super::product_kind::Arithmetic;
    use super::*;

    /// A pooling whose parameters lie where others do, too.
    struct Example {
        scope: Scope,
        slots: PoolSlots,
        parameters: Buffer<f32>,
        memory: PoolMemory,
    }

    impl Example {
        fn new(heads: u32, hidden: u32) -> Self {
            let scope = Device::cpu().scope("test");
            let slots = PoolSlots::from(3, hidden as usize);
            let len = slots.out_bias + hidden as usize + 2;
            let parameters = Buffer::from_slice(&scope, &noise("parameters", len, 0.7)).unwrap();
            let memory = PoolMemory::zeros(&scope, PoolSizes { steps: 1, windows: 0, heads, hidden }).unwrap();
            Example { scope, slots, parameters, memory }
        }

        /// From an element on to the end.
        fn parameter(&self, start: usize) -> Arg<'_> {
            Arg::from(&self.parameters.as_slice()[start..])
        }

        fn numbers(&self) -> Vec<Arg<'_>> {
            let sizes = self.memory.sizes;
            vec![Arg::from(sizes.heads), Arg::from(sizes.hidden), Arg::from(sizes.scale())]
        }
    }

    /// Sizes at which the parameters lie differently: another head, more units than a warp has
    /// lanes and a block columns, heads of one unit.
    const SIZES: [[u32; 2]; 4] = [[1, 1], [2, 6], [3, 33], [40, 40]];

    #[test]
    fn the_kernels_have_the_cpus_bits() {
        for [heads, hidden] in SIZES {
            let mut example = Example::new(heads, hidden);
            let weights =
                PoolWeights { parameters: &example.parameters, slots: example.slots, arithmetic: Arithmetic::Exact };
            find_keys(weights, &mut example.memory).unwrap();
            let PoolSlots { query, in_weight, in_bias, out_weight, out_bias } = example.slots;
            let wide = hidden as usize;
            let mut found = [wide, (heads * hidden) as usize, wide].map(|len| vec![9.0f32; len]);
            let mut arguments = example.numbers();
            let weight_k = in_weight + wide * wide;
            for start in [query, in_weight, in_bias, weight_k, out_weight, in_bias + 2 * wide, out_bias] {
                arguments.push(example.parameter(start));
            }
            arguments.extend(found.iter_mut().map(|to| Arg::from(&mut to[..])));
            HARNESS.run("pool_keys", launch_of_keys(example.memory.sizes), &mut arguments);
            drop(arguments);
            let expected = [&example.memory.query, &example.memory.keys, &example.memory.bias];
            assert_eq!(found, expected.map(|buffer| buffer.as_slice().to_vec()), "{heads} heads of {hidden}");
        }
    }

    #[test]
    fn gradients_by_the_kernels_have_the_cpus_bits() {
        for [heads, hidden] in SIZES {
            let mut example = Example::new(heads, hidden);
            let (wide, len) = (hidden as usize, example.parameters.len());
            example.memory.query.copy_from(&noise("scaled", wide, 1.0)).unwrap();
            example.memory.d_keys.copy_from(&noise("d_keys", heads as usize * wide, 1.0)).unwrap();
            let before = noise("gradients", len, 1.0);
            let mut gradients = Buffer::from_slice(&example.scope, &before).unwrap();
            let weights =
                PoolWeights { parameters: &example.parameters, slots: example.slots, arithmetic: Arithmetic::Exact };
            keys_backward(weights, &mut example.memory, &mut gradients).unwrap();
            let PoolSlots { query, in_weight, in_bias, .. } = example.slots;
            let weight_k = in_weight + wide * wide;

            let mut d_query = vec![9.0f32; wide];
            let [mut d_weight_k, mut d_weight_q] =
                [weight_k, in_weight].map(|start| before[start..][..wide * wide].to_vec());
            let [mut d_bias, mut d_x] = [in_bias, query].map(|start| before[start..][..wide].to_vec());
            let mut arguments = example.numbers();
            arguments
                .extend([&example.memory.d_keys, &example.memory.query].map(|buffer| Arg::from(buffer.as_slice())));
            arguments.push(example.parameter(weight_k));
            arguments.extend([Arg::from(&mut d_query[..]), Arg::from(&mut d_weight_k[..])]);
            HARNESS.run("pool_keys_backward", launch_of_heads(example.memory.sizes), &mut arguments);
            drop(arguments);
            assert_eq!(d_query, example.memory.d_query.as_slice(), "{heads} heads of {hidden}");

            let mut arguments = vec![Arg::from(hidden), Arg::from(&d_query[..])];
            arguments.extend([query, in_weight].map(|start| example.parameter(start)));
            arguments.extend([&mut d_weight_q, &mut d_bias, &mut d_x].map(|to| Arg::from(&mut to[..])));
            HARNESS.run("affine_backward", launch_of_columns(wide), &mut arguments);
            drop(arguments);
            let mut found = before.clone();
            for (start, part) in [(weight_k, d_weight_k), (in_weight, d_weight_q), (in_bias, d_bias), (query, d_x)] {
                found[start..][..part.len()].copy_from_slice(&part);
            }
            assert_eq!(found, gradients.as_slice(), "{heads} heads of {hidden}");
        }
    }
}
