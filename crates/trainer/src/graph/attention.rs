#![forbid(unsafe_code)]

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_order::random::{Stream, uniform};
use serde::{Deserialize, Serialize};

use super::GraphView;
use crate::error::Result;
use crate::matmul::{Matrix, Output, multiply};
use crate::scalar::Scalar;
use crate::tensor::{Layout, Slot, TensorSet};

/// Kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttentionKind {
    /// GAT.
    #[default]
    Gat,
    /// GATv2.
    GatV2,
}

/// Output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GraphOutput {
    /// Head.
    #[default]
    Linear,
    /// None.
    Attention,
}

/// Activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GraphActivation {
    /// ELU.
    #[default]
    Elu,
    /// ReLU.
    Relu,
}

/// Config.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "a stand-in")]
pub struct GraphConfig {
    pub kind: AttentionKind,
    pub layers: usize,
    pub heads: usize,
    pub hidden: usize,
    pub output: GraphOutput,
    pub output_heads: usize,
    pub activation: GraphActivation,
    pub residual: bool,
    pub dropout: f32,
    pub attention_dropout: f32,
    pub negative_slope: f32,
    pub self_loops: bool,
}

impl Default for GraphConfig {
    fn default() -> Self {
        GraphConfig {
            kind: AttentionKind::Gat,
            layers: 2,
            heads: 8,
            hidden: 8,
            output: GraphOutput::Linear,
            output_heads: 1,
            activation: GraphActivation::Elu,
            residual: false,
            dropout: 0.0,
            attention_dropout: 0.0,
            negative_slope: 0.2,
            self_loops: true,
        }
    }
}

/// Dropout.
#[derive(Clone, Copy, Debug)]
pub struct GraphDropout {
    seed: u64,
    step: u64,
    graph: usize,
}

impl GraphDropout {
    /// Of a step.
    pub fn of_step((seed, step): (u64, u64), graph: usize) -> Self {
        GraphDropout { seed, step, graph }
    }
}

/// Nodes.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "a stand-in")]
pub struct Nodes<'a, S> {
    pub graph: GraphView<'a>,
    pub x: &'a [S],
    pub dropout: Option<GraphDropout>,
}

/// Passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "a stand-in")]
pub enum Passes {
    Forward,
    ForwardAndBackward,
}

/// Gradients.
#[derive(Debug)]
#[allow(missing_docs, reason = "a stand-in")]
pub struct NodeGradients<'a, S> {
    pub d_output: &'a [S],
    pub d_x: Option<&'a mut [S]>,
}

#[derive(Debug)]
pub(crate) struct PackedAttention {}

impl PackedAttention {
    pub(crate) fn new(_scope: &Scope, _attention: &GraphAttention, _passes: Passes) -> Result<Self> {
        Ok(PackedAttention {})
    }

    pub(crate) fn pack(&mut self, _attention: &GraphAttention, _parameters: &TensorSet<f32>) {}

    pub(crate) fn len(_attention: &GraphAttention, _passes: Passes) -> usize {
        0
    }
}

#[derive(Debug)]
pub(crate) struct AttentionPass(AttentionMemory<f32>);

impl AttentionPass {
    pub(crate) fn new(
        scope: &Scope,
        attention: &GraphAttention,
        capacity: (usize, usize),
        passes: Passes,
    ) -> Result<Self> {
        attention.memory(scope, capacity, passes).map(AttentionPass)
    }

    pub(crate) fn len(attention: &GraphAttention, capacity: (usize, usize), passes: Passes) -> usize {
        attention.memory_len(capacity, passes)
    }

    pub(crate) fn forward(
        &mut self,
        attention: &GraphAttention,
        (parameters, _packed): (&TensorSet<f32>, &PackedAttention),
        nodes: Nodes<'_, f32>,
    ) -> &[f32] {
        attention.forward(parameters, nodes, &mut self.0)
    }

    pub(crate) fn backward(
        &mut self,
        attention: &GraphAttention,
        (parameters, _packed): (&TensorSet<f32>, &PackedAttention),
        node_gradients: (Nodes<'_, f32>, NodeGradients<'_, f32>),
        gradients: &mut TensorSet<f32>,
    ) {
        attention.backward(parameters, node_gradients, gradients, &mut self.0);
    }
}

#[derive(Debug)]
pub(crate) struct GraphAttention {
    config: GraphConfig,
    layers: Vec<(usize, usize, Slot, Slot)>,
}

#[derive(Debug)]
pub(crate) struct AttentionMemory<S: Scalar> {
    /// Means [N, in] and outputs [N, out] of each layer, and their gradients.
    layers: Vec<[Buffer<S>; 4]>,
    factors: Vec<Vec<f64>>,
}

impl GraphAttention {
    pub(crate) fn new(
        config: GraphConfig,
        (width_in, _attributes, outputs): (usize, usize, usize),
        layout: &mut Layout,
    ) -> Self {
        let mut width = width_in;
        let mut layer = |l: usize| {
            let last = l + 1 == config.layers && config.output == GraphOutput::Attention;
            let out = if last { outputs } else { config.heads * config.hidden };
            let weight = layout.push(format!("graph.{l}.lin.weight"), &[out, width]);
            let bias = layout.push(format!("graph.{l}.bias"), &[out]);
            (std::mem::replace(&mut width, out), out, weight, bias)
        };
        let layers = (0..config.layers).map(&mut layer).collect();
        GraphAttention { config, layers }
    }

    pub(crate) fn width(&self) -> usize {
        self.layers.last().unwrap().1
    }

    pub(crate) fn initial<S: Scalar>(&self, seed: u64, parameters: &mut TensorSet<S>) {
        for (l, &(input, output, weight, bias)) in self.layers.iter().enumerate() {
            let bound = (6.0 / (input + output) as f64).sqrt();
            let name = format!("graph.{l}.lin.weight");
            for (index, value) in (0..).zip(parameters.slot_mut(weight)) {
                *value = S::from_f64(bound * (2.0 * uniform(Stream { seed, name: &name }, index) - 1.0));
            }
            parameters.slot_mut(bias).fill(S::ZERO);
        }
    }

    pub(crate) fn memory_len(&self, (nodes, _edges): (usize, usize), _passes: Passes) -> usize {
        self.layers.iter().map(|&(input, output, ..)| 2 * nodes * (input + output)).sum()
    }

    pub(crate) fn memory<S: Scalar>(
        &self,
        scope: &Scope,
        (nodes, _edges): (usize, usize),
        _passes: Passes,
    ) -> Result<AttentionMemory<S>> {
        let layer = |&(input, output, ..): &(usize, usize, Slot, Slot)| {
            let zeros = |width| Buffer::zeros(scope, nodes * width);
            Ok([zeros(input)?, zeros(output)?, zeros(input)?, zeros(output)?])
        };
        Ok(AttentionMemory { layers: self.layers.iter().map(layer).collect::<Result<_>>()?, factors: Vec::new() })
    }

    pub(crate) fn forward<'m, S: Scalar>(
        &self,
        parameters: &TensorSet<S>,
        Nodes { graph, x, dropout }: Nodes<'_, S>,
        memory: &'m mut AttentionMemory<S>,
    ) -> &'m [S] {
        let nodes = graph.nodes();
        memory.factors.clear();
        for (l, &(input, output, weight, bias)) in self.layers.iter().enumerate() {
            let (before, after) = memory.layers.split_at_mut(l);
            let x = before.last().map_or(x, |layer| &layer[1].as_slice()[..nodes * input]);
            let factor = |i: usize| match dropout {
                Some(GraphDropout { seed, step, graph }) if self.config.dropout > 0.0 => {
                    let name = format!("graph.{l}.{graph}.{step}");
                    let kept = uniform(Stream { seed, name: &name }, i as u64) >= f64::from(self.config.dropout);
                    if kept { 1.0 / (1.0 - f64::from(self.config.dropout)) } else { 0.0 }
                }
                _ => 1.0,
            };
            let factors: Vec<f64> = (0..nodes * input).map(factor).collect();
            let x: Vec<S> = x.iter().zip(&factors).map(|(&x, &f)| x * S::from_f64(f)).collect();
            memory.factors.push(factors);
            let [mean, y, ..] = &mut after[0];
            let mean = &mut mean.as_mut_slice()[..nodes * input];
            mean.copy_from_slice(&x);
            for r in 0..nodes {
                let columns = graph.csr.columns_of(r);
                let share = S::from_f64(1.0 / columns.len().max(1) as f64);
                for &c in columns {
                    for u in 0..input {
                        mean[r * input + u] += share * x[c as usize * input + u];
                    }
                }
            }
            let y = &mut y.as_mut_slice()[..nodes * output];
            y.chunks_exact_mut(output).for_each(|row| row.copy_from_slice(parameters.slot(bias)));
            let weight = Matrix::new(parameters.slot(weight), [output, input]).transposed();
            multiply(Matrix::new(mean, [nodes, input]), weight, Output::Add, y);
            if l + 1 < self.layers.len() {
                y.iter_mut().filter(|y| **y < S::ZERO).for_each(|y| *y = y.exp() - S::ONE);
            }
        }
        &memory.layers.last().unwrap()[1].as_slice()[..nodes * self.width()]
    }

    pub(crate) fn backward<S: Scalar>(
        &self,
        parameters: &TensorSet<S>,
        (Nodes { graph, .. }, NodeGradients { d_output, d_x }): (Nodes<'_, S>, NodeGradients<'_, S>),
        gradients: &mut TensorSet<S>,
        memory: &mut AttentionMemory<S>,
    ) {
        let nodes = graph.nodes();
        let mut d_y = d_output.to_vec();
        for (l, &(input, output, weight, bias)) in self.layers.iter().enumerate().rev() {
            let [mean, y, d_mean, _] = &mut memory.layers[l];
            if l + 1 < self.layers.len() {
                let y = &y.as_slice()[..nodes * output];
                d_y.iter_mut().zip(y).filter(|(_, y)| **y < S::ZERO).for_each(|(d, &y)| *d = *d * (y + S::ONE));
            }
            let d = Matrix::new(&d_y, [nodes, output]);
            let mean = Matrix::new(&mean.as_slice()[..nodes * input], [nodes, input]);
            multiply(d.transposed(), mean, Output::Add, gradients.slot_mut(weight));
            for row in d_y.chunks_exact(output) {
                gradients.slot_mut(bias).iter_mut().zip(row).for_each(|(sum, &term)| *sum += term);
            }
            let d_mean = &mut d_mean.as_mut_slice()[..nodes * input];
            multiply(d, Matrix::new(parameters.slot(weight), [output, input]), Output::Overwrite, d_mean);
            let mut below = d_mean.to_vec();
            for r in 0..nodes {
                let columns = graph.csr.columns_of(r);
                let share = S::from_f64(1.0 / columns.len().max(1) as f64);
                for &c in columns {
                    for u in 0..input {
                        below[c as usize * input + u] += share * d_mean[r * input + u];
                    }
                }
            }
            below.iter_mut().zip(&memory.factors[l]).for_each(|(d, &f)| *d = *d * S::from_f64(f));
            d_y = below;
        }
        if let Some(d_x) = d_x {
            d_x.copy_from_slice(&d_y);
        }
    }
}

impl GraphConfig {
    pub(crate) fn check(&self) -> Result<()> {
        Ok(())
    }
}
