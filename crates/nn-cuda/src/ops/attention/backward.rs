//! Attention over the edges of a batch's graphs, backward.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::kernel::{Arguments, Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, arguments};
use megabatch_nn::Result;
use megabatch_nn::model::graph::GraphActivation;

#[cfg(feature = "conformance")]
use super::cpu;
use super::{Attended, Scored, WARP, address};
use crate::ops::operand::TensorSlice;
use crate::ops::product_kind::Output;

const PTX: &str = megabatch_gpu_core::ptx!("attention_backward");

/// # Safety
/// As [`Kernel::submit`].
unsafe fn submit(device: &Cuda, name: &str, launch: Option<Launch>, arguments: &Arguments) -> Result<()> {
    let kernel = Kernel { module: "nn/attention_backward", ptx: PTX, name };
    // SAFETY: as the caller promised.
    Ok(unsafe { kernel.submit(device, launch, arguments) }?)
}

/// The first `len` gradients `d` of what `activation` gave, `y`, become those of what it was given.
pub(crate) fn activation_gradients(
    activation: GraphActivation,
    y: &Buffer<f32>,
    len: usize,
    d: &mut Buffer<f32>,
) -> Result<()> {
    let device = d.scope().device().clone();
    [y, &*d].into_iter().for_each(|array| TensorSlice::from(array).assert_has(len, &device));
    match device {
        Device::Cuda(device) => {
            let is_elu = u32::from(activation == GraphActivation::Elu);
            let arguments = arguments![y.address(), d.address(), len as u64, is_elu];
            // SAFETY: a thread changes one of `len` elements, which both arrays were seen to have.
            // What is submitted to the default stream later runs after it.
            unsafe { submit(&device, "activation_gradients", Launch::for_threads(len), &arguments) }
        }
        _ => cpu_arm!({
            let pairs = d.as_mut_slice()[..len].iter_mut().zip(y.as_slice());
            pairs.for_each(|(d, &y)| *d *= activation.slope(y));
        }),
    }
}

/// Writes the gradients of the scores, `d_scores` `[P, H]`, from those of what heads gave, `d_y`
/// `[N, D]`, after [`gather_heads`](super::gather_heads) of the same coefficients and values.
pub(crate) fn score_gradients(
    attended: Attended<'_>,
    coefficients: &Buffer<f32>,
    values: &Buffer<f32>,
    d_y: &Buffer<f32>,
    d_scores: &mut Buffer<f32>,
) -> Result<()> {
    let (sizes, nodes, edges) = (attended.sizes, attended.sizes.nodes as usize, attended.lens()[1]);
    let lens = [edges, nodes * sizes.projected(), nodes * sizes.width(), edges];
    attended.assert_have([(coefficients, lens[0]), (values, lens[1]), (d_y, lens[2]), (d_scores, lens[3])]);
    match attended.device() {
        Device::Cuda(device) => {
            let (lists, launch) = (&attended.lists.on_device, Launch::for_threads(sizes.node_heads() * WARP));
            let arguments = arguments![
                sizes,
                lists.starts.address(),
                lists.from.address(),
                coefficients.address(),
                attended.mask_address(),
                values.address(),
                d_y.address(),
                d_scores.address(),
            ];
            // SAFETY: the lists were made with nodes and places within them; a warp writes what is
            // of the edges that a node receives for a head, each by one lane. What is submitted to
            // the default stream later runs after it.
            unsafe { submit(&device, "score_gradients", launch, &arguments) }
        }
        _ => cpu_arm!({
            let arrays = [coefficients, values, d_y].map(Buffer::as_slice);
            cpu::score_gradients(attended, arrays[0], arrays[1], arrays[2], d_scores.as_mut_slice());
        }),
    }
}

/// Outputs of [`receiver_gradients`] for each node that receives.
#[derive(Debug)]
pub(crate) struct ReceiverRows<'a> {
    /// `[N, H · U]`: the gradient of what it scored by.
    pub(crate) dst: &'a mut Buffer<f32>,
    /// `[N, H · U]`: what it gives to that of the vector; nothing is written where there is none.
    pub(crate) vector: &'a mut Buffer<f32>,
    /// `[N, H · U, A]`: what it gives to that of the edges' weight.
    pub(crate) edges: &'a mut Buffer<f32>,
}

/// From the gradients of scores, `d_scores` `[P, H]`, to those that belong to nodes that receive.
pub(crate) fn receiver_gradients(
    attended: Attended<'_>,
    scored: Scored<'_>,
    d_scores: &Buffer<f32>,
    to: &mut ReceiverRows<'_>,
) -> Result<()> {
    let [len, edges] = attended.lens();
    let vector_len = if scored.vector.is_some() { len } else { 0 };
    attended.assert_has_scored(scored);
    attended.assert_have([
        (d_scores, edges),
        (to.dst, len),
        (to.vector, vector_len),
        (to.edges, len * attended.sizes.attributes as usize),
    ]);
    match attended.device() {
        Device::Cuda(device) => {
            let (lists, Scored { src, dst, vector, edge_weight }) = (&attended.lists.on_device, scored);
            let arguments = arguments![
                attended.sizes,
                lists.starts.address(),
                lists.from.address(),
                src.address(),
                dst.address(),
                address(vector),
                address(edge_weight),
                lists.attributes.address(),
                d_scores.address(),
                to.dst.address(),
                to.vector.address(),
                to.edges.address(),
            ];
            // SAFETY: the lists were made with nodes and places within them; a thread writes what
            // is of one column of one node. What is submitted to the default stream later runs
            // after it.
            unsafe { submit(&device, "receiver_gradients", Launch::for_threads(len), &arguments) }
        }
        _ => cpu_arm!({
            let [dst, vector, edges] = [&mut *to.dst, to.vector, to.edges].map(Buffer::as_mut_slice);
            cpu::receiver_gradients(attended, scored, d_scores.as_slice(), dst, vector, edges);
        }),
    }
}

/// Writes the gradients of the values that nodes give, `d_values` `[N, H · C]`, from those of what
/// heads gave, `d_y` `[N, D]`.
pub(crate) fn value_gradients(
    attended: Attended<'_>,
    coefficients: &Buffer<f32>,
    d_y: &Buffer<f32>,
    d_values: &mut Buffer<f32>,
) -> Result<()> {
    let (sizes, nodes) = (attended.sizes, attended.sizes.nodes as usize);
    let len = nodes * sizes.projected();
    attended.assert_have([(coefficients, attended.lens()[1]), (d_y, nodes * sizes.width()), (d_values, len)]);
    match attended.device() {
        Device::Cuda(device) => {
            let lists = &attended.lists.on_device;
            let arguments = arguments![
                sizes,
                lists.src_starts.address(),
                lists.places.address(),
                lists.to.address(),
                coefficients.address(),
                attended.mask_address(),
                d_y.address(),
                d_values.address(),
            ];
            // SAFETY: the lists were made with nodes and places within them; a thread writes one
            // element. What is submitted to the default stream later runs after it.
            unsafe { submit(&device, "value_gradients", Launch::for_threads(len), &arguments) }
        }
        _ => cpu_arm!(cpu::value_gradients(attended, coefficients.as_slice(), d_y.as_slice(), d_values.as_mut_slice())),
    }
}

/// From the gradients of scores, `d_scores` `[P, H]`, to those of what nodes that give were scored
/// by, `d_src` `[N, H · U]`.
pub(crate) fn src_gradients(
    attended: Attended<'_>,
    scored: Scored<'_>,
    d_scores: &Buffer<f32>,
    output: Output,
    d_src: &mut Buffer<f32>,
) -> Result<()> {
    let [len, edges] = attended.lens();
    attended.assert_has_scored(scored);
    attended.assert_have([(d_scores, edges), (d_src, len)]);
    match attended.device() {
        Device::Cuda(device) => {
            let (lists, Scored { src, dst, vector, edge_weight }) = (&attended.lists.on_device, scored);
            let arguments = arguments![
                attended.sizes,
                lists.src_starts.address(),
                lists.places.address(),
                lists.to.address(),
                src.address(),
                dst.address(),
                address(vector),
                address(edge_weight),
                lists.attributes.address(),
                d_scores.address(),
                u32::from(output == Output::Add),
                d_src.address(),
            ];
            // SAFETY: the lists were made with nodes and places within them; a thread writes one
            // element. What is submitted to the default stream later runs after it.
            unsafe { submit(&device, "giver_gradients", Launch::for_threads(len), &arguments) }
        }
        _ => cpu_arm!({
            let adds = output == Output::Add;
            cpu::src_gradients(attended, scored, d_scores.as_slice(), adds, d_src.as_mut_slice());
        }),
    }
}

/// Inputs of [`node_dot_gradients`]: the values `[N, H · C]`, the vectors `[H · C]` and the
/// gradients of the dots `[N, H]`, of nodes that give and of those that receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeDotInputs<'a> {
    pub(crate) values: &'a Buffer<f32>,
    pub(crate) vectors: [TensorSlice<'a, f32>; 2],
    pub(crate) d: [&'a Buffer<f32>; 2],
}

/// [`node_dots`](super::node_dots) backward: adds to the gradients of the values, `d_values` `[N, H
/// · C]`, and writes what each node gives to those of the two vectors, `rows` `[N, H · C]`.
pub(crate) fn node_dot_gradients(
    attended: Attended<'_>,
    NodeDotInputs { values, vectors, d }: NodeDotInputs<'_>,
    d_values: &mut Buffer<f32>,
    source_rows: &mut Buffer<f32>,
    target_rows: &mut Buffer<f32>,
) -> Result<()> {
    let (sizes, device, len) =
        (attended.sizes, attended.device(), attended.sizes.nodes as usize * attended.sizes.projected());
    attended.assert_have([(values, len), (d_values, len), (source_rows, len), (target_rows, len)]);
    attended.assert_have(d.map(|d| (d, sizes.node_heads())));
    vectors.iter().for_each(|vector| vector.assert_has(sizes.projected(), &device));
    match device {
        Device::Cuda(device) => {
            let arguments = arguments![
                sizes,
                values.address(),
                vectors[0].address(),
                vectors[1].address(),
                d[0].address(),
                d[1].address(),
                d_values.address(),
                source_rows.address(),
                target_rows.address(),
            ];
            // SAFETY: a thread takes an element, of which the arrays were seen to have as many.
            // What is submitted to the default stream later runs after it.
            unsafe { submit(&device, "node_dot_gradients", Launch::for_threads(len), &arguments) }
        }
        _ => cpu_arm!({
            for ((vector, d), rows) in vectors.into_iter().zip(d).zip([source_rows, target_rows]) {
                let (d_values, rows) = (d_values.as_mut_slice(), rows.as_mut_slice());
                cpu::node_dot_gradients(sizes, values.as_slice(), vector.elements(), d.as_slice(), d_values, rows);
            }
        }),
    }
}
