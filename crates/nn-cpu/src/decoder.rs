//! Layers after the encoders: fusion, graph attention, a readout, the linear head, each where the
//! model has it.

use megabatch_amp::NonFiniteTrace;
use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::graph::{GraphDropout, GraphView};
use megabatch_nn::memory::{BACKWARD, BOTH, StepPhase};
use megabatch_nn::model::decoder::{Decoder, Widths};
use megabatch_nn::model::fusion::{AttentionFusion, Linear};
use megabatch_nn::model::head::Head;
use megabatch_nn::model::{Readout, TensorSet};

use crate::arithmetic::CpuArithmetic;
use crate::compute::{BufferPlan, Capacity, Purpose};
use crate::fusion::FusionMemory;
use crate::graph_attention::{AttentionPass, NodeGradients, Nodes, PackedAttention, Passes};
use crate::kernel::bf16::Bf16Isa;
use crate::matmul::Output;
use crate::team::ThreadTeam;
use crate::{linear, readout};

/// Rule of a model over graphs.
const PACKED: &str = "a model over graphs has packed weights of attention";

/// A graph that is computed, and what is dropped in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphShard<'a> {
    pub(crate) view: GraphView<'a>,
    pub(crate) dropout: Option<GraphDropout>,
    /// The threads that share the loops.
    pub(crate) team: &'a ThreadTeam,
}

/// Numbers in the buffers of [`Decoding`], apart from attention's own, in the order of its
/// fields.
fn lens(decoder: &Decoder, capacity: Capacity) -> [usize; 9] {
    let Widths { encoding, fused, top, outputs, readout } = decoder.widths;
    let (encodings, outputs) = (capacity.samples * encoding, decoder.rows(capacity.samples) * outputs);
    let attended = if decoder.attention.is_some() { capacity.samples * top } else { 0 };
    let pooled = if readout == Readout::Node { 0 } else { top };
    // Formed for an encoder that learns, and where it is the gradient of what the head reads.
    let d_encodings = if decoder.encoder_learns || decoder.attention.is_none() { encodings } else { 0 };
    let d_fused = if decoder.fusion.is_some() { capacity.samples * fused } else { 0 };
    [encodings, outputs, outputs, d_encodings, d_fused, attended, attended, pooled, pooled]
}

/// The memory for shards of up to `capacity`, in the order in which [`Decoding::new`] takes it.
pub(crate) fn buffer_plan(decoder: &Decoder, capacity: Capacity, purpose: Purpose) -> BufferPlan {
    const NAMES: [(&str, &[StepPhase]); 9] = [
        ("encodings", BOTH),
        ("outputs", BOTH),
        ("gradient of the outputs", BACKWARD),
        ("gradient of the encodings", BACKWARD),
        ("gradient of what is fused", BACKWARD),
        ("what graph attention gives", BOTH),
        ("its gradient", BACKWARD),
        ("what is read out of a graph", BOTH),
        ("its gradient", BACKWARD),
    ];
    let own = lens(decoder, capacity).into_iter().zip(NAMES);
    let own = own.map(|(len, (name, phases))| (name.to_owned(), vec![len], phases));
    let fusion_lens = |fusion: &AttentionFusion| FusionMemory::lens(fusion.sizes, capacity.samples, purpose);
    let fusion = decoder.fusion.iter().flat_map(fusion_lens).collect();
    let attention_lens = |attention| AttentionPass::lens(attention, capacity.samples, capacity.edges, passes(purpose));
    let attention = decoder.attention.iter().flat_map(attention_lens).collect();
    own.chain([("fusion".to_owned(), fusion, BOTH), ("graph attention".to_owned(), attention, BOTH)]).collect()
}

/// From the outputs' gradient to that of what the head read.
fn head_backward(
    decoder: &Decoder,
    bf16_isa: Option<Bf16Isa>,
    parameters: &TensorSet,
    read: &[f32],
    d_outputs: &[f32],
    d_read: &mut [f32],
    gradients: &mut TensorSet,
) {
    match decoder.head {
        Some(Head { weight, bias, .. }) => {
            let head = Linear { weight, bias };
            linear::backward(head, bf16_isa, parameters, read, d_outputs, d_read, Output::Overwrite, gradients);
        }
        None => d_read.copy_from_slice(d_outputs),
    }
}

/// Input of attention.
fn nodes<'a>(decoder: &Decoder, graph: Option<GraphShard<'a>>, x: &'a [f32]) -> Nodes<'a> {
    let GraphShard { view, dropout, team } = graph.expect("a shard of a model over graphs is a graph");
    let attributes = if decoder.sees_attributes { view.attributes } else { &[] };
    Nodes { graph: GraphView { attributes, ..view }, x, dropout, team }
}

/// The passes of attention.
pub(crate) fn passes(purpose: Purpose) -> Passes {
    match purpose {
        Purpose::Training { .. } => Passes::ForwardAndBackward,
        Purpose::Prediction => Passes::Forward,
    }
}

/// The memory from a shard's encodings to its outputs and back. B samples, of which R rows of
/// outputs are made: one each, or one of all.
#[derive(Debug)]
pub(crate) struct Decoding {
    /// B now.
    samples: usize,
    arithmetic: CpuArithmetic,
    widths: Widths,
    encodings: Buffer<f32>,   // [B, D]
    outputs: Buffer<f32>,     // [R, K]
    d_outputs: Buffer<f32>,   // [R, K]
    d_encodings: Buffer<f32>, // [B, D]; empty where nobody asks for it
    /// The gradient of what fusion makes of the encodings; empty without it.
    d_fused: Buffer<f32>, // [B, H]
    fusion: Option<FusionMemory>,
    /// Output of graph attention; empty without it.
    attended: Buffer<f32>, // [B, W]
    d_attended: Buffer<f32>, // [B, W]
    /// Readout of a graph; empty for readouts by node.
    pooled: Buffer<f32>, // [W]
    d_pooled: Buffer<f32>,   // [W]
    /// The nodes that a maximum is from, [W].
    arguments: Vec<usize>,
    attention: Option<AttentionPass>,
}

impl Decoding {
    /// Memory for shards of up to `capacity`, booked on `scope`.
    pub(crate) fn new(scope: &Scope, decoder: &Decoder, capacity: Capacity, purpose: Purpose) -> Result<Self> {
        let [encodings, outputs, d_outputs, d_encodings, d_fused, attended, d_attended, pooled, d_pooled] =
            lens(decoder, capacity);
        let zeros = |len| Buffer::zeros(scope, len);
        let fusion = |fusion: AttentionFusion| FusionMemory::new(scope, fusion.sizes, capacity.samples, purpose);
        let attention =
            |attention| AttentionPass::new(scope, attention, capacity.samples, capacity.edges, passes(purpose));
        Ok(Decoding {
            samples: 0,
            arithmetic: CpuArithmetic::Fp32,
            widths: decoder.widths,
            encodings: zeros(encodings)?,
            outputs: zeros(outputs)?,
            d_outputs: zeros(d_outputs)?,
            d_encodings: zeros(d_encodings)?,
            d_fused: zeros(d_fused)?,
            attended: zeros(attended)?,
            d_attended: zeros(d_attended)?,
            pooled: zeros(pooled)?,
            d_pooled: zeros(d_pooled)?,
            arguments: vec![0; pooled],
            fusion: decoder.fusion.map(fusion).transpose()?,
            attention: decoder.attention.as_ref().map(attention).transpose()?,
        })
    }

    /// Rounds the gradient of the encodings.
    pub(crate) fn round_d_encodings(&mut self) {
        let len = (self.samples * self.widths.encoding).min(self.d_encodings.len());
        self.arithmetic.round(&mut self.d_encodings.as_mut_slice()[..len]);
    }

    /// Sets B, and gives the encodings for writing, [B, D].
    pub(crate) fn encodings_mut(&mut self, samples: usize) -> &mut [f32] {
        self.samples = samples;
        &mut self.encodings.as_mut_slice()[..samples * self.widths.encoding]
    }

    /// Looks at all that [`Decoding::forward`] computed, in its order.
    pub(crate) fn trace(&self, decoder: &Decoder, trace: &mut NonFiniteTrace) {
        let Widths { encoding, top, readout, .. } = self.widths;
        trace.look(
            "the encoder",
            "what it gives of each sample [B, D]",
            &self.encodings.as_slice()[..self.samples * encoding],
        );
        if let (Some(fusion), Some(memory)) = (&decoder.fusion, &self.fusion) {
            memory.trace(fusion.sizes, trace);
        }
        if decoder.attention.is_some() {
            trace.look(
                "graph attention",
                "what it gives of each node [N, W]",
                &self.attended.as_slice()[..self.samples * top],
            );
        }
        if readout != Readout::Node {
            trace.look("the readout", "what it gives of the graph [W]", self.pooled.as_slice());
        }
        trace.look("head", "outputs", self.outputs());
    }

    /// The encodings' gradient [B, D], after [`Decoding::backward`] for an encoder that learns.
    pub(crate) fn d_encodings(&self) -> &[f32] {
        &self.d_encodings.as_slice()[..self.samples * self.widths.encoding]
    }

    /// The outputs [R, K].
    pub(crate) fn outputs(&self) -> &[f32] {
        &self.outputs.as_slice()[..self.outputs_len()]
    }

    /// The outputs and, for writing, their gradient, [R, K] both.
    pub(crate) fn outputs_and_gradient_mut(&mut self) -> (&[f32], &mut [f32]) {
        let len = self.outputs_len();
        (&self.outputs.as_slice()[..len], &mut self.d_outputs.as_mut_slice()[..len])
    }

    /// The weights [heads, n, n] of fusion by attention of one sample, after [`Decoding::forward`];
    /// none without it.
    pub(crate) fn fusion_weights(&self, decoder: &Decoder, sample: usize) -> &[f32] {
        match (&decoder.fusion, &self.fusion) {
            (Some(fusion), Some(memory)) => memory.weights(fusion, sample),
            _ => &[],
        }
    }

    fn outputs_len(&self) -> usize {
        self.widths.readout.rows(self.samples) * self.widths.outputs
    }

    /// Computes the outputs from the encodings; `graph` is that of the samples, for a model over
    /// graphs.
    pub(crate) fn forward(
        &mut self,
        decoder: &Decoder,
        parameters: &TensorSet,
        packed: Option<&PackedAttention>,
        graph: Option<GraphShard<'_>>,
    ) {
        let Widths { encoding, top, readout, .. } = self.widths;
        let outputs_len = self.outputs_len();
        let mut x = &self.encodings.as_slice()[..self.samples * encoding];
        if let (Some(fusion), Some(memory)) = (&decoder.fusion, &mut self.fusion) {
            x = memory.forward(fusion, parameters, x);
        }
        if let (Some(attention), Some(memory)) = (&decoder.attention, &mut self.attention) {
            let attended = &mut self.attended.as_mut_slice()[..self.samples * top];
            attended.copy_from_slice(memory.forward(attention, packed.expect(PACKED), nodes(decoder, graph, x)));
            x = attended;
        }
        if readout != Readout::Node {
            let pooled = self.pooled.as_mut_slice();
            readout::forward(readout, x, pooled, &mut self.arguments);
            x = pooled;
        }
        let outputs = &mut self.outputs.as_mut_slice()[..outputs_len];
        match decoder.head {
            Some(Head { weight, bias, .. }) => {
                let (head, isa) = (Linear { weight, bias }, self.arithmetic.bf16_isa());
                linear::forward(head, isa, parameters, x, outputs, Output::Overwrite);
            }
            None => outputs.copy_from_slice(x),
        }
    }

    /// [`Decoding::forward`] with products in `arithmetic`, as [`Decoding::backward`] after it.
    /// Encodings are rounded to its precision.
    pub(crate) fn forward_in(
        &mut self,
        arithmetic: CpuArithmetic,
        decoder: &Decoder,
        parameters: &TensorSet,
        packed: Option<&PackedAttention>,
        graph: Option<GraphShard<'_>>,
    ) {
        self.arithmetic = arithmetic;
        arithmetic.round(&mut self.encodings.as_mut_slice()[..self.samples * self.widths.encoding]);
        self.fusion.iter_mut().for_each(|fusion| fusion.set_arithmetic(arithmetic));
        self.forward(decoder, parameters, packed, graph);
    }

    /// Backward pass from the outputs' gradient to that of the encodings; adds the parameters'
    /// gradients to `gradients`.
    pub(crate) fn backward(
        &mut self,
        decoder: &Decoder,
        parameters: &TensorSet,
        packed: Option<&PackedAttention>,
        graph: Option<GraphShard<'_>>,
        gradients: &mut TensorSet,
    ) {
        self.backward_to_attended(decoder, parameters, gradients);
        let (fused, d_fused) = match &decoder.fusion {
            Some(fusion) => (self.fusion.as_ref().map_or(&[][..], |memory| memory.fused(fusion)), &mut self.d_fused),
            None => (self.encodings.as_slice(), &mut self.d_encodings),
        };
        if let (Some(attention), Some(memory)) = (&decoder.attention, &mut self.attention) {
            let len = self.samples * self.widths.fused;
            let nodes = nodes(decoder, graph, &fused[..len]);
            let node_gradients = NodeGradients {
                d_output: &self.d_attended.as_slice()[..self.samples * self.widths.top],
                d_x: decoder.encoder_learns.then(|| &mut d_fused.as_mut_slice()[..len]),
            };
            memory.backward(attention, parameters, packed.expect(PACKED), nodes, node_gradients, gradients);
        }
        if let (Some(fusion), Some(memory)) = (&decoder.fusion, &mut self.fusion) {
            let len = self.samples * self.widths.encoding;
            let d_fused = &self.d_fused.as_slice()[..self.samples * self.widths.fused];
            memory.backward(
                fusion,
                parameters,
                &self.encodings.as_slice()[..len],
                d_fused,
                &mut self.d_encodings.as_mut_slice()[..len],
                gradients,
            );
        }
    }

    /// Backward pass through the head and the readout, to what they read: attention's outputs or,
    /// without it, the fused vectors or encodings.
    fn backward_to_attended(&mut self, decoder: &Decoder, parameters: &TensorSet, gradients: &mut TensorSet) {
        let (nodes, d_nodes) = match (&decoder.attention, &decoder.fusion, &self.fusion) {
            (Some(_), ..) => (self.attended.as_slice(), &mut self.d_attended),
            (None, Some(fusion), Some(memory)) => (memory.fused(fusion), &mut self.d_fused),
            _ => (self.encodings.as_slice(), &mut self.d_encodings),
        };
        let len = self.samples * self.widths.top;
        let (nodes, d_nodes) = (&nodes[..len], &mut d_nodes.as_mut_slice()[..len]);
        let d_outputs = &self.d_outputs.as_slice()[..self.widths.readout.rows(self.samples) * self.widths.outputs];
        if self.widths.readout == Readout::Node {
            head_backward(decoder, self.arithmetic.bf16_isa(), parameters, nodes, d_outputs, d_nodes, gradients);
        } else {
            let d_pooled = self.d_pooled.as_mut_slice();
            head_backward(
                decoder,
                self.arithmetic.bf16_isa(),
                parameters,
                self.pooled.as_slice(),
                d_outputs,
                d_pooled,
                gradients,
            );
            readout::backward(self.widths.readout, d_pooled, &self.arguments, d_nodes);
        }
    }
}
