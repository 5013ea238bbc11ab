//! Readout of graphs as a whole, and its gradients; [`Readout`] has the definition.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu/readout.rs"]
mod cpu;

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, arguments};
use megabatch_nn::Result;
use megabatch_nn::model::Readout;

use super::graph_lists::GraphLists;
use super::operand::TensorSlice;

const PTX: &str = megabatch_gpu_core::ptx!("readout");

/// A readout of the graphs of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadGraphs<'a> {
    /// Mean, sum or max: nodes as they are need none.
    pub(crate) readout: Readout,
    pub(crate) lists: &'a GraphLists,
    /// W.
    pub(crate) width: usize,
}

impl ReadGraphs<'_> {
    /// Numbers that are read, and of nodes.
    fn lens(&self) -> [usize; 2] {
        assert_ne!(self.readout, Readout::Node, "nodes are read as they are");
        [self.lists.graphs() * self.width, self.lists.nodes() * self.width]
    }

    fn assert_have(&self, read: &Buffer<f32>, nodes: &Buffer<f32>, arguments: &Buffer<u32>) -> Device {
        let (device, [graphs, all]) = (self.lists.device().clone(), self.lens());
        TensorSlice::from(read).assert_has(graphs, &device);
        TensorSlice::from(nodes).assert_has(all, &device);
        assert!(arguments.len() >= graphs, "an argument for each number");
        device.assert_beside(arguments.scope().device());
        device
    }

    /// Code in readout.cu.
    fn code(&self) -> u32 {
        match self.readout {
            Readout::Node => 0,
            Readout::Mean => 1,
            Readout::Sum => 2,
            Readout::Max => 3,
        }
    }
}

/// Reads `nodes` `[N, W]` into `read` `[G, W]`; `arguments` `[G, W]` are then the nodes that maxima
/// are from.
pub(crate) fn read_graphs(
    inputs: ReadGraphs<'_>,
    nodes: &Buffer<f32>,
    read: &mut Buffer<f32>,
    arguments: &mut Buffer<u32>,
) -> Result<()> {
    match inputs.assert_have(read, nodes, arguments) {
        Device::Cuda(device) => {
            let kernel = Kernel { module: "nn/readout", ptx: PTX, name: "read_graphs" };
            let (len, graphs) = (inputs.lens()[0], inputs.lists.on_device.graphs.address());
            let (nodes, read, to) = (nodes.address(), read.address(), arguments.address());
            let arguments = arguments![inputs.code(), graphs, nodes, read, to, len as u64, inputs.width as u32];
            // SAFETY: the nodes of a graph are among those of the lists, which the array was seen
            // to have; a thread writes one number and one argument. What is submitted to the
            // default stream later runs after it.
            Ok(unsafe { kernel.submit(&device, Launch::for_threads(len), &arguments) }?)
        }
        _ => cpu_arm!(cpu::read_graphs(inputs, nodes.as_slice(), read.as_mut_slice(), arguments.as_mut_slice())),
    }
}

/// Writes the gradients of the nodes, `d_nodes` `[N, W]`, from those of what [`read_graphs`] read,
/// `d_read` `[G, W]`.
pub(crate) fn read_graphs_backward(
    inputs: ReadGraphs<'_>,
    d_read: &Buffer<f32>,
    arguments: &Buffer<u32>,
    d_nodes: &mut Buffer<f32>,
) -> Result<()> {
    match inputs.assert_have(d_read, d_nodes, arguments) {
        Device::Cuda(device) => {
            let kernel = Kernel { module: "nn/readout", ptx: PTX, name: "read_graphs_backward" };
            let (len, lists) = (inputs.lens()[1], &inputs.lists.on_device);
            let (graphs, graph_of, from) = (lists.graphs.address(), lists.graph_of.address(), arguments.address());
            let (d_read, d_nodes) = (d_read.address(), d_nodes.address());
            let arguments =
                arguments![inputs.code(), graphs, graph_of, d_read, from, d_nodes, len as u64, inputs.width as u32];
            // SAFETY: the lists have the graph of every node; a thread writes one element. What is
            // submitted to the default stream later runs after it.
            Ok(unsafe { kernel.submit(&device, Launch::for_threads(len), &arguments) }?)
        }
        _ => cpu_arm!(cpu::backward(inputs, d_read.as_slice(), arguments.as_slice(), d_nodes.as_mut_slice())),
    }
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;

    use super::super::attention::tests::graphs;
    use super::super::harness::{HARNESS, noise};
    use super::*;

    const WIDTH: usize = 3;

    fn check(readout: Readout, sizes: &[usize]) {
        let scope = Device::cpu().scope("test");
        let graphs = graphs(sizes, 0);
        let lists = GraphLists::new(&scope, graphs.edges(false, 0)).unwrap();
        let inputs = ReadGraphs { readout, lists: &lists, width: WIDTH };
        let [len, all] = inputs.lens();
        let mut numbers = noise("nodes", all, 2.0);
        // Two maxima, and what is not a number.
        numbers[all - 1] = numbers[WIDTH - 1];
        numbers[all - 3] = f32::NAN;
        let nodes = Buffer::from_slice(&scope, &numbers).unwrap();
        let (mut read, mut from) = (Buffer::zeros(&scope, len).unwrap(), Buffer::zeros(&scope, len).unwrap());
        read_graphs(inputs, &nodes, &mut read, &mut from).unwrap();
        let d_read = Buffer::from_slice(&scope, &noise("d", len, 1.0)).unwrap();
        let mut d_nodes = Buffer::from_slice(&scope, &vec![9.0; all]).unwrap();
        read_graphs_backward(inputs, &d_read, &from, &mut d_nodes).unwrap();

        let (places, graph_of) = (&lists.edges.graphs[..], &lists.edges.graph_of[..]);
        let (mut found, mut arguments_found, mut d_found) = (vec![9.0f32; len], vec![0u32; len], vec![7.0f32; all]);
        let mut arguments = [
            Arg::from(inputs.code()),
            Arg::from(places),
            Arg::from(&numbers[..]),
            Arg::from(&mut found[..]),
            Arg::from(&mut arguments_found[..]),
            Arg::from(len as u64),
            Arg::from(WIDTH as u32),
        ];
        HARNESS.run("read_graphs", Launch::for_threads(len), &mut arguments);
        let mut arguments = [
            Arg::from(inputs.code()),
            Arg::from(places),
            Arg::from(graph_of),
            Arg::from(d_read.as_slice()),
            Arg::from(from.as_slice()),
            Arg::from(&mut d_found[..]),
            Arg::from(all as u64),
            Arg::from(WIDTH as u32),
        ];
        HARNESS.run("read_graphs_backward", Launch::for_threads(all), &mut arguments);
        assert!(found.iter().any(|x| x.is_nan()), "{readout:?}");
        let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
        assert!(same(&found, read.as_slice()), "{readout:?} of {sizes:?}: {found:?} for {:?}", read.as_slice());
        assert_eq!(d_found, d_nodes.as_slice(), "{readout:?} of {sizes:?}");
        if readout == Readout::Max {
            assert_eq!(arguments_found, from.as_slice(), "{sizes:?}");
        }
    }

    #[test]
    fn the_kernels_have_the_cpus_bits() {
        for readout in [Readout::Mean, Readout::Sum, Readout::Max] {
            for sizes in [&[1][..], &[2], &[3, 1, 300]] {
                check(readout, sizes);
            }
        }
    }
}
