#![forbid(unsafe_code)]

//! The graphs of a batch on a device.

use std::sync::Arc;

use megabatch_gpu_core::{Buffer, Device, Scope};
use megabatch_nn::Result;
use megabatch_nn::graph::{BatchEdges, GraphStart};

use super::batch_upload::UploadBatch;

/// The edges of a batch's graphs, on the host, and on the device, where there may be room for more
/// behind them.
#[derive(Debug)]
pub(crate) struct GraphLists {
    pub(super) edges: Arc<BatchEdges>,
    pub(super) on_device: OnDevice,
}

/// [`BatchEdges`] on a device.
#[derive(Debug)]
pub(super) struct OnDevice {
    pub(super) starts: Buffer<u32>,
    pub(super) from: Buffer<u32>,
    pub(super) src_starts: Buffer<u32>,
    pub(super) places: Buffer<u32>,
    pub(super) to: Buffer<u32>,
    pub(super) attributes: Buffer<f32>,
    pub(super) graph_of: Buffer<u32>,
    pub(super) graphs: Buffer<GraphStart>,
}

impl GraphLists {
    /// Lists of no graph; memory on `scope` is taken when graphs come.
    pub(crate) fn empty(scope: &Scope) -> Result<Self> {
        let none = || Buffer::zeros(scope, 0);
        let on_device = OnDevice {
            starts: none()?,
            from: none()?,
            src_starts: none()?,
            places: none()?,
            to: none()?,
            attributes: Buffer::zeros(scope, 0)?,
            graph_of: none()?,
            graphs: Buffer::zeros(scope, 0)?,
        };
        Ok(GraphLists { edges: Arc::default(), on_device })
    }

    /// Lists of these edges, which the device has.
    #[cfg(test)]
    pub(crate) fn new(scope: &Scope, edges: BatchEdges) -> Result<Self> {
        let mut lists = GraphLists::empty(scope)?;
        let mut uploader = super::BatchUploader::new(scope)?;
        lists.set(Arc::new(edges));
        let mut upload = uploader.upload();
        lists.enqueue(&mut upload)?;
        upload.send()?;
        Ok(lists)
    }

    /// Takes the edges of other graphs, of which the device learns by [`GraphLists::enqueue`].
    pub(crate) fn set(&mut self, edges: Arc<BatchEdges>) {
        self.edges = edges;
    }

    /// Gives `upload` what the device has to know of the graphs.
    pub(crate) fn enqueue<'a>(&'a mut self, upload: &mut UploadBatch<'a>) -> Result<()> {
        let (BatchEdges { starts, from, src_starts, places, to, attributes, graph_of, graphs }, on_device) =
            (&*self.edges, &mut self.on_device);
        upload.put(&mut on_device.starts, starts)?;
        upload.put(&mut on_device.from, from)?;
        upload.put(&mut on_device.src_starts, src_starts)?;
        upload.put(&mut on_device.places, places)?;
        upload.put(&mut on_device.to, to)?;
        upload.put(&mut on_device.attributes, attributes)?;
        upload.put(&mut on_device.graph_of, graph_of)?;
        upload.put(&mut on_device.graphs, graphs)
    }

    /// Bytes of what the device has of so many graphs of so many nodes and places in all, whose
    /// edges have so many attributes.
    pub(crate) fn upload_bytes(graphs: usize, nodes: usize, places: usize, attributes: usize) -> [usize; 8] {
        let words = [nodes + 1, places, nodes + 1, places, places, places * attributes, nodes];
        let words = words.map(|words| words * size_of::<u32>());
        let [starts, from, givers, giver_places, to, attributes, graph_of] = words;
        [starts, from, givers, giver_places, to, attributes, graph_of, (graphs + 1) * size_of::<GraphStart>()]
    }

    /// G.
    pub(crate) fn graphs(&self) -> usize {
        self.edges.graphs.len().saturating_sub(1)
    }

    /// N.
    pub(crate) fn nodes(&self) -> usize {
        self.edges.graph_of.len()
    }

    /// P.
    pub(crate) fn places(&self) -> usize {
        self.edges.from.len()
    }

    pub(super) fn device(&self) -> &Device {
        self.on_device.graphs.scope().device()
    }
}
