//! The graphs of a batch on a device.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use megabatch_gpu_core::{Buffer, Device, Scope};
use megabatch_nn::Result;
use megabatch_nn::graph::{BatchEdges, GraphStart};

use super::batch_upload::{PlannedUpload, UploadBatch};
use super::capacity::ensure_capacity;

/// The edges of a batch's graphs, on the host, and on the device, where there may be room for more
/// behind them.
#[derive(Debug)]
pub(crate) struct GraphLists {
    /// The starts of the graphs, and the lists if the batch brings them.
    pub(super) edges: Arc<BatchEdges>,
    /// Graphs of the batch among those that the device keeps, if the batch brings no lists.
    pub(super) selected: Option<Selected>,
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
    pub(super) origins: Buffer<Origin>,
}

/// Graphs of a batch whose lists are taken from those of all.
#[derive(Debug)]
pub(super) struct Selected {
    pub(super) origins: Vec<Origin>,
    /// Edges of the graphs.
    pub(super) edges: usize,
    /// A.
    pub(super) width: usize,
}

/// Start of a batch's graph in the lists of all: `Origin` of kept_graphs.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Origin {
    pub(super) node: u32,
    pub(super) place: u32,
    pub(super) edge: u32,
    /// Its first edge in the lists of the batch.
    pub(super) to_edge: u32,
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
            origins: Buffer::zeros(scope, 0)?,
        };
        Ok(GraphLists { edges: Arc::default(), selected: None, on_device })
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
        self.selected = None;
    }

    /// Takes graphs among those that the device keeps, which start in lists of their own as
    /// `graphs` says.
    pub(super) fn select(&mut self, selected: Selected, graphs: Vec<GraphStart>) {
        self.edges = Arc::new(BatchEdges { graphs, ..BatchEdges::default() });
        self.selected = Some(selected);
    }

    /// Takes memory on the device for the lists of so many nodes and places of edges, which have so
    /// many attributes, where there is not as much.
    pub(crate) fn reserve(&mut self, nodes: usize, places: usize, attributes: usize) -> Result<()> {
        self.on_device.reserve(nodes, places, attributes)
    }

    /// Gives `upload` what the device has to know of the graphs.
    pub(crate) fn enqueue<'a>(&'a mut self, upload: &mut UploadBatch<'a>) -> Result<()> {
        if let Some(Selected { origins, width, .. }) = &self.selected {
            let (nodes, places, on_device) = (self.nodes(), self.places(), &mut self.on_device);
            on_device.reserve(nodes, places, *width)?;
            upload.put(&mut on_device.graphs, &self.edges.graphs)?;
            return upload.put(&mut on_device.origins, origins);
        }
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

    /// Plans the upload of the lists of `nodes` nodes in `graphs` graphs. Their edges have
    /// `edge_places` places, each of `width` attributes: `lists` is
    /// `[graphs, nodes, edge_places, width]`.
    pub(crate) fn plan_lists(&mut self, lists: [usize; 4], upload: &mut PlannedUpload) -> Result<()> {
        let [graphs, nodes, edge_places, width] = lists;
        let OnDevice { starts, from, src_starts, places, to, attributes, graph_of, graphs: graph_starts, .. } =
            &mut self.on_device;
        upload.put(starts, nodes + 1)?;
        upload.put(from, edge_places)?;
        upload.put(src_starts, nodes + 1)?;
        upload.put(places, edge_places)?;
        upload.put(to, edge_places)?;
        upload.put(attributes, edge_places * width)?;
        upload.put(graph_of, nodes)?;
        upload.put(graph_starts, graphs + 1)
    }

    /// Plans the upload of so many graphs among those that the device keeps.
    pub(crate) fn plan_selected(&mut self, graphs: usize, upload: &mut PlannedUpload) -> Result<()> {
        upload.put(&mut self.on_device.graphs, graphs + 1)?;
        upload.put(&mut self.on_device.origins, graphs)
    }

    /// G, with the graph that pads.
    pub(crate) fn graphs(&self) -> usize {
        self.edges.graphs.len().saturating_sub(1)
    }

    /// N, with the nodes that pad.
    pub(crate) fn nodes(&self) -> usize {
        self.edges.graphs.last().map_or(0, |end| end.node as usize)
    }

    /// P.
    pub(crate) fn places(&self) -> usize {
        self.edges.graphs.last().map_or(0, |end| end.place as usize)
    }

    pub(super) fn device(&self) -> &Device {
        self.on_device.graphs.scope().device()
    }
}

impl OnDevice {
    /// Takes memory for the lists of so many nodes and places of edges, which have so many
    /// attributes, where there is not as much.
    fn reserve(&mut self, nodes: usize, places: usize, attributes: usize) -> Result<()> {
        ensure_capacity(&mut self.starts, nodes + 1)?;
        ensure_capacity(&mut self.from, places)?;
        ensure_capacity(&mut self.src_starts, nodes + 1)?;
        ensure_capacity(&mut self.places, places)?;
        ensure_capacity(&mut self.to, places)?;
        ensure_capacity(&mut self.attributes, places * attributes)?;
        ensure_capacity(&mut self.graph_of, nodes)
    }
}
