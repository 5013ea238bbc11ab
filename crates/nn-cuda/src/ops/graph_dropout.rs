//! Dropout of the nodes of graphs by the CPU's masks: [`GraphDropout`](crate::GraphDropout) has the
//! definition.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu/graph_dropout.rs"]
mod cpu;

use megabatch_gpu_core::kernel::{Arguments, Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, arguments};
use megabatch_nn::Result;

use super::dropout::{MaskNumbers, mask_address};
use super::graph_lists::GraphLists;
use super::operand::TensorSlice;

/// Dropout of rows `[N, width]` of the nodes of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DroppedNodes<'a> {
    /// The mask, by its number: it is another in each step, and read on the device.
    pub(crate) mask: (&'a Buffer<MaskNumbers>, usize),
    pub(crate) lists: &'a GraphLists,
    pub(crate) width: usize,
}

impl DroppedNodes<'_> {
    fn len(&self) -> usize {
        self.lists.nodes() * self.width
    }

    /// # Safety
    /// As [`Kernel::submit`].
    unsafe fn submit(&self, device: &Cuda, name: &str, arguments: &Arguments) -> Result<()> {
        let kernel = Kernel { module: "nn/graph_dropout", ptx: megabatch_gpu_core::ptx!("graph_dropout"), name };
        // SAFETY: as the caller promised.
        Ok(unsafe { kernel.submit(device, Launch::for_threads(self.len()), arguments) }?)
    }
}

/// Writes rows `x` `[N, width]` with what is dropped to `to`.
pub(crate) fn drop_nodes(dropped: DroppedNodes<'_>, x: &Buffer<f32>, to: &mut Buffer<f32>) -> Result<()> {
    let (device, len) = (to.scope().device().clone(), dropped.len());
    [x, &*to].into_iter().for_each(|array| TensorSlice::from(array).assert_has(len, &device));
    device.assert_beside(dropped.lists.device());
    match device {
        Device::Cuda(device) => {
            let lists = &dropped.lists.on_device;
            let (graphs, graph_of, width) = (lists.graphs.address(), lists.graph_of.address(), dropped.width as u32);
            let arguments = arguments![
                mask_address(dropped.mask.0, dropped.mask.1),
                graphs,
                graph_of,
                x.address(),
                to.address(),
                len as u64,
                width
            ];
            // SAFETY: the lists have the graph of every node; a thread writes one element, of which
            // the arrays were seen to have as many. What is submitted to the default stream later
            // runs after it.
            unsafe { dropped.submit(&device, "drop_nodes", &arguments) }
        }
        _ => cpu_arm!(cpu::drop_nodes(dropped, x.as_slice(), to.as_mut_slice())),
    }
}

/// Turns gradients of such rows, `d` `[N, width]`, into those of the rows before.
pub(crate) fn drop_node_gradients(dropped: DroppedNodes<'_>, d: &mut Buffer<f32>) -> Result<()> {
    let (device, len) = (d.scope().device().clone(), dropped.len());
    TensorSlice::from(&*d).assert_has(len, &device);
    device.assert_beside(dropped.lists.device());
    match device {
        Device::Cuda(device) => {
            let lists = &dropped.lists.on_device;
            let (graphs, graph_of, width) = (lists.graphs.address(), lists.graph_of.address(), dropped.width as u32);
            let arguments = arguments![
                mask_address(dropped.mask.0, dropped.mask.1),
                graphs,
                graph_of,
                d.address(),
                len as u64,
                width
            ];
            // SAFETY: as in `drop_nodes`.
            unsafe { dropped.submit(&device, "drop_node_gradients", &arguments) }
        }
        _ => cpu_arm!(cpu::drop_node_gradients(dropped, d.as_mut_slice())),
    }
}

#[cfg(test)]
mod tests {
    use megabatch_nn::graph::GraphDropout;
    use megabatch_simt::Arg;

    use super::super::attention::tests::graphs;
    use super::super::harness::{HARNESS, noise};
    use super::*;

    #[test]
    fn the_kernels_have_the_cpus_bits() {
        let scope = Device::cpu().scope("test");
        let (graphs, width, rate) = (graphs(&[1, 9, 4], 0), 5, 0.4);
        let lists = GraphLists::new(&scope, graphs.edges(true, 0)).unwrap();
        let mask = |graph| GraphDropout::for_step(3, 4, graph).input(1, rate).unwrap().mask;
        let masks = Buffer::from_slice(&scope, &[MaskNumbers::from(mask(0))]).unwrap();
        let dropped = DroppedNodes { mask: (&masks, 0), lists: &lists, width };
        let x = noise("x", dropped.len(), 2.0);
        let (from, mut to) = (Buffer::from_slice(&scope, &x).unwrap(), Buffer::zeros(&scope, x.len()).unwrap());
        drop_nodes(dropped, &from, &mut to).unwrap();
        let by_graph: Vec<f32> = (0..x.len())
            .map(|k| {
                let graph = lists.edges.graphs[lists.edges.graph_of[k / width] as usize];
                let dropout = GraphDropout::for_step(3, 4, graph.index as usize).input(1, rate).unwrap();
                x[k] * dropout.mask.factor(graph.index as usize, k / width - graph.node as usize, k % width) as f32
            })
            .collect();
        assert_eq!(to.as_slice(), by_graph);
        assert!(by_graph.contains(&0.0) && by_graph.iter().any(|x| *x != 0.0));

        let (places, graph_of) = (&lists.edges.graphs[..], &lists.edges.graph_of[..]);
        let (mut found, mut d) = (vec![f32::NAN; x.len()], x.clone());
        let len = Arg::from(x.len() as u64);
        let mut arguments = [
            Arg::from(masks.as_slice()),
            Arg::from(places),
            Arg::from(graph_of),
            Arg::from(&x[..]),
            Arg::from(&mut found[..]),
            len,
            Arg::from(width as u32),
        ];
        HARNESS.run("drop_nodes", Launch::for_threads(x.len()), &mut arguments);
        let len = Arg::from(x.len() as u64);
        let mut arguments = [
            Arg::from(masks.as_slice()),
            Arg::from(places),
            Arg::from(graph_of),
            Arg::from(&mut d[..]),
            len,
            Arg::from(width as u32),
        ];
        HARNESS.run("drop_node_gradients", Launch::for_threads(x.len()), &mut arguments);
        assert_eq!((&found, &d), (&by_graph, &by_graph));
        let mut gradients = Buffer::from_slice(&scope, &x).unwrap();
        drop_node_gradients(dropped, &mut gradients).unwrap();
        assert_eq!(gradients.as_slice(), by_graph);
    }
}
