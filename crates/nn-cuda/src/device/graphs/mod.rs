//! A model over graphs on a device: encodings of the nodes, layers of attention, a readout, a
//! linear head, the loss; each where the model has it.

mod counting;
mod encoder;
mod graph_loss;
mod layer;
mod shared;
mod slots;
#[cfg(test)]
mod tests;

use std::convert::identity;
use std::sync::Arc;

use bytemuck::Zeroable;
use megabatch_gpu_core::{Buffer, Captures, Scope};
use megabatch_nn::Result;
use megabatch_nn::batch::{BatchView, SeriesView};
use megabatch_nn::graph::{EdgeForm, GraphDropout, GraphMask, Graphs, SeenEdges};
use megabatch_nn::model::{Encoder, Model, Readout, StepDropout, StepSeed, TensorSet};

use super::bucketing::{bucket_nodes, bucket_places};
use super::device_model::{DeviceModel, DropoutSeed};
use super::head::LossInput;
use crate::ComputeConfig;
use crate::ops::{
    Affine, BatchUploader, GraphLists, KeptGraphs, MaskNumbers, Output, ReadGraphs, Scratch, ensure_capacity,
    read_graphs, read_graphs_backward,
};
use crate::tuning::Tuner;
pub(super) use counting::estimate;
use encoder::Encodings;
use graph_loss::GraphLoss;
use layer::{BatchInputs, GraphLayer, GraphSizes, LayerShape};
use shared::Shared;

#[derive(Debug)]
pub(super) struct GraphModel {
    encodings: Encodings,
    layers: Vec<GraphLayer>,
    /// `None` where attention gives the outputs.
    head: Option<Affine>,
    readout: Readout,
    /// The rates of dropout, of inputs and of coefficients.
    rates: [f32; 2],
    lists: GraphLists,
    seen: SeenEdges,
    /// Scope of the lists of all graphs of the source, and the lists if they stay on the device.
    resident: Scope,
    kept: Option<KeptGraphs>,
    /// Dropout masks of each layer's input and of its coefficients.
    masks: Buffer<MaskNumbers>,
    drops: bool,
    /// W of what is read of a node or a graph, and outputs of each.
    widths: [usize; 2],
    /// Number of nodes that a batch of a number of nodes is padded to.
    padded_nodes: fn(usize) -> usize,
    read: Buffer<f32>,      // [G, W]; empty for readouts by node
    arguments: Buffer<u32>, // [G, W], the nodes that maxima are from
    outputs: Buffer<f32>,   // [R, K]
    d_outputs: Buffer<f32>, // [R, K]
    d_read: Buffer<f32>,    // [G, W]
    shared: Shared,
    graph_loss: GraphLoss,
    scratch: Scratch,
    uploader: BatchUploader,
}

/// True if batches are padded, so that captures are replayed for batches of other sizes: where the
/// encoder takes nodes as they come.
fn pads(model: &Model) -> bool {
    model.config().encoder == Encoder::LastBar
}

impl GraphModel {
    /// The model of a run with `config`, on scopes below `scope`, whose kernels `tuner` chooses;
    /// memory for batches is taken when they come.
    pub(super) fn new(scope: &Scope, model: &Model, config: &ComputeConfig, tuner: &Tuner) -> Result<Self> {
        let (batches, activations) = (scope.child("batches"), scope.child("activations"));
        let (decoder, arithmetic) = (model.decoder(), config.arithmetic);
        let attention = decoder.attention.as_ref();
        let attention_config = attention.map(|attention| *attention.config()).unwrap_or_default();
        let head = decoder.head.as_ref().map(|head| {
            let [weight, bias] = head.slots();
            Affine::new(model, weight, Some(bias), decoder.widths.top, arithmetic)
        });
        let layers = LayerShape::all(model, arithmetic).into_iter().map(|shape| GraphLayer::new(&activations, shape));
        let none = || Buffer::zeros(&activations, 0);
        Ok(GraphModel {
            encodings: Encodings::new(scope, model, config, tuner)?,
            layers: layers.collect::<Result<_>>()?,
            head,
            readout: model.config().readout.unwrap_or_default(),
            rates: [attention_config.dropout, attention_config.attention_dropout],
            lists: GraphLists::empty(&batches)?,
            seen: SeenEdges::for_config(&model.config()),
            resident: scope.child("graphs"),
            kept: None,
            masks: Buffer::zeros(&batches, 0)?,
            drops: false,
            widths: [decoder.widths.top, model.outputs()],
            padded_nodes: if pads(model) { bucket_nodes } else { identity },
            read: none()?,
            arguments: Buffer::zeros(&activations, 0)?,
            outputs: none()?,
            d_outputs: none()?,
            d_read: none()?,
            shared: Shared::empty(&activations)?,
            graph_loss: GraphLoss::new(scope, model, config.loss)?,
            scratch: Scratch::tuned(&activations, tuner)?,
            uploader: BatchUploader::new(&batches)?,
        })
    }

    /// Rows of what is read and predicted.
    fn rows(&self) -> usize {
        if self.readout == Readout::Node { self.lists.nodes() } else { self.lists.graphs() }
    }

    /// Builds the lists of a batch's graphs, and grows the buffers to them.
    fn prepare_batch(&mut self, batch: &BatchView<'_>, learns: bool) -> Result<()> {
        let graphs = batch.graphs().expect("a batch of a model over graphs has graphs");
        let nodes = (self.padded_nodes)(batch.len());
        match (graphs.edges(), &self.kept) {
            (Some(edges), _) => self.lists.set(Arc::clone(edges)),
            (None, Some(kept)) => kept.select(graphs.indices(), nodes, &mut self.lists),
            (None, None) => panic!("a batch brings the edges of its graphs unless the device keeps them"),
        }
        let graph_sizes = GraphSizes { nodes: self.lists.nodes(), places: bucket_places(self.lists.places()) };
        self.lists.reserve(graph_sizes.nodes, graph_sizes.places, self.seen.attributes)?;
        self.layers.iter_mut().try_for_each(|layer| layer.prepare(graph_sizes, learns))?;
        self.ensure_output_capacity(self.rows(), learns)?;
        if learns { self.ensure_gradient_capacity(graph_sizes) } else { Ok(()) }
    }

    /// Takes memory for so many rows of what is read and predicted, where they are not those of
    /// nodes, and for their gradients if a batch `learns`.
    fn ensure_output_capacity(&mut self, rows: usize, learns: bool) -> Result<()> {
        let ([width, outputs], by_node, has_head) = (self.widths, self.readout == Readout::Node, self.head.is_some());
        let read = if by_node { 0 } else { rows * width };
        ensure_capacity(&mut self.outputs, if has_head { rows * outputs } else { 0 })?;
        ensure_capacity(&mut self.read, read)?;
        ensure_capacity(&mut self.arguments, read)?;
        if !learns {
            return Ok(());
        }
        ensure_capacity(&mut self.d_outputs, if has_head || !by_node { rows * outputs } else { 0 })?;
        ensure_capacity(&mut self.d_read, if has_head { read } else { 0 })
    }

    /// Takes memory for the gradients of layers over graphs of these sizes.
    fn ensure_gradient_capacity(&mut self, graph_sizes: GraphSizes) -> Result<()> {
        self.shared.ensure_capacity(self.layers.iter().map(|layer| &layer.shape), graph_sizes)?;
        ensure_capacity(&mut self.shared.d_y, graph_sizes.nodes * self.widths[0])
    }

    /// From a batch, with its targets where they are learnt, to the outputs.
    fn forward(
        &mut self,
        batch: &BatchView<'_>,
        dropout_seed: DropoutSeed,
        loss_input: Option<LossInput<'_>>,
        parameters: &Buffer<f32>,
    ) -> Result<()> {
        self.prepare_batch(batch, loss_input.is_some())?;
        self.drops = dropout_seed.dropout.is_some() && self.rates.iter().any(|&rate| rate > 0.0);
        let (masks, nodes, rows) = (self.masks_of(dropout_seed), self.lists.nodes(), self.rows());
        let GraphModel { encodings, lists, masks: layer_masks, graph_loss, uploader, .. } = self;
        let mut upload = uploader.upload();
        encodings.enqueue(batch, nodes, dropout_seed, loss_input.is_some(), &mut upload)?;
        lists.enqueue(&mut upload)?;
        upload.put(layer_masks, &masks)?;
        if let (Some(loss_input), Some(graphs)) = (loss_input, batch.graphs()) {
            graph_loss.enqueue(batch, graphs, rows, loss_input, &mut upload)?;
        }
        upload.send()?;
        if let Some(kept) = &self.kept {
            kept.take(&mut self.lists)?;
        }
        // Lists are of other lengths each time; what follows is not.
        Captures::cut(self.outputs.scope().device())?;
        self.encodings.forward(parameters)?;
        self.attend(parameters)?;
        self.read_out(parameters)
    }

    /// The masks of all layers, where something is dropped.
    fn masks_of(&self, dropout_seed: DropoutSeed) -> Vec<MaskNumbers> {
        let Some(StepDropout { in_graphs: StepSeed { seed, step }, .. }) = dropout_seed.dropout.filter(|_| self.drops)
        else {
            return Vec::new();
        };
        // The graph is no part of a mask's key.
        let dropout = GraphDropout::for_step(seed, step, 0);
        let masks_for_layer = |l| [dropout.input(l, self.rates[0]), dropout.attention(l, self.rates[1])];
        let numbers =
            |mask: Option<GraphMask>| mask.map_or_else(MaskNumbers::zeroed, |graph_mask| graph_mask.mask.into());
        (0..self.layers.len()).flat_map(masks_for_layer).map(numbers).collect()
    }

    fn attend(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        let GraphModel { encodings, layers, lists, masks, drops, scratch, .. } = self;
        let inputs = BatchInputs { parameters, lists, masks: drops.then_some(&*masks) };
        for l in 0..layers.len() {
            let (below, above) = layers.split_at_mut(l);
            above[0].forward(inputs, below.last().map_or(&encodings.x, |below| &below.y), scratch)?;
        }
        Ok(())
    }

    /// From what nodes came to, to the outputs.
    fn read_out(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        let (rows, readout_and_width) = (self.rows(), self.read_graphs());
        let GraphModel { encodings, layers, read, arguments, head, outputs, scratch, .. } = self;
        let nodes = layers.last().map_or(&encodings.x, |top| &top.y);
        let read = match readout_and_width {
            Some((readout, width)) => {
                let graphs = ReadGraphs { readout, lists: &self.lists, width };
                read_graphs(graphs, nodes, read, arguments)?;
                &*read
            }
            None => nodes,
        };
        head.map_or(Ok(()), |head| head.forward(parameters, read, rows, outputs, Output::Overwrite, scratch))
    }

    /// The readout of graphs as a whole, and W.
    fn read_graphs(&self) -> Option<(Readout, usize)> {
        (self.readout != Readout::Node).then_some((self.readout, self.widths[0]))
    }

    /// From the outputs to their loss, and its gradient.
    fn graph_loss(&mut self, scale: &Buffer<f32>) -> Result<()> {
        let GraphModel { encodings, layers, lists, readout, read, head, outputs, d_outputs, shared, .. } = self;
        let nodes = layers.last().map_or(&encodings.x, |top| &top.y);
        // Where attention gives the outputs of nodes, their gradient is that of what nodes came to.
        let (outputs, d_outputs) = match (head, readout) {
            (Some(_), _) => (&*outputs, d_outputs),
            (None, Readout::Node) => (nodes, &mut shared.d_y),
            (None, _) => (&*read, d_outputs),
        };
        self.graph_loss.accumulate_gradients(lists, outputs, scale, d_outputs, &mut self.scratch)
    }

    /// Backward pass from the outputs' gradient to that of what nodes came to, `shared.d_y`.
    fn read_out_backward(&mut self, parameters: &Buffer<f32>, gradients: &mut Buffer<f32>) -> Result<()> {
        let (rows, readout_and_width) = (self.rows(), self.read_graphs());
        let GraphModel { encodings, layers, read, arguments, head, d_outputs, d_read, shared, scratch, .. } = self;
        let nodes = layers.last().map_or(&encodings.x, |top| &top.y);
        if let Some(head) = head {
            let read = if readout_and_width.is_some() { &*read } else { nodes };
            head.add_gradients(d_outputs, read, rows, gradients, scratch)?;
            let to = if readout_and_width.is_some() { &mut *d_read } else { &mut shared.d_y };
            head.backward(parameters, d_outputs, rows, to, Output::Overwrite, scratch)?;
        }
        let Some((readout, width)) = readout_and_width else { return Ok(()) };
        let d_read = if head.is_some() { d_read } else { d_outputs };
        let graphs = ReadGraphs { readout, lists: &self.lists, width };
        read_graphs_backward(graphs, d_read, arguments, &mut shared.d_y)
    }
}

impl DeviceModel for GraphModel {
    fn keep_series(&mut self, series: Option<&SeriesView<'_>>) -> Result<()> {
        self.encodings.keep_series(series)
    }

    fn keep_windows(&mut self, windows: usize) -> Result<()> {
        self.encodings.keep_windows(windows)
    }

    fn put_windows(&mut self, first: usize, batch: &BatchView<'_>) -> Result<()> {
        self.encodings.put_windows(first, batch)
    }

    fn keeps_bars(&self) -> bool {
        self.encodings.keeps_bars()
    }

    fn keep_graphs(&mut self, graphs: Option<&dyn Graphs>) -> Result<()> {
        // Given back before the new memory is taken.
        self.kept = None;
        self.kept = graphs.map(|graphs| KeptGraphs::bring(&self.resident, graphs, self.seen)).transpose()?;
        Ok(())
    }

    fn edge_form(&self) -> EdgeForm {
        match self.kept {
            Some(_) => EdgeForm::OnDevice,
            None => EdgeForm::Lists { seen: self.seen, padded_nodes: self.padded_nodes },
        }
    }

    fn load(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        self.graph_loss.reset_totals()?;
        self.encodings.load(parameters)
    }

    fn quantize(&mut self, scope: &Scope, model: &Model, parameters: &TensorSet) -> Result<()> {
        self.encodings.quantize(scope, model, parameters)
    }

    fn accumulate_gradients(
        &mut self,
        batch: &BatchView<'_>,
        dropout_seed: DropoutSeed,
        loss_input: LossInput<'_>,
        parameters: &Buffer<f32>,
        gradients: &mut Buffer<f32>,
    ) -> Result<()> {
        let scale = loss_input.scale;
        self.forward(batch, dropout_seed, Some(loss_input), parameters)?;
        self.graph_loss(scale)?;
        self.read_out_backward(parameters, gradients)?;
        let GraphModel { encodings, layers, lists, masks, drops, shared, scratch, .. } = self;
        let inputs = BatchInputs { parameters, lists, masks: drops.then_some(&*masks) };
        for l in (0..layers.len()).rev() {
            let x = if l > 0 { &layers[l - 1].y } else { &encodings.x };
            layers[l].backward(inputs, x, l > 0 || encodings.learns(), shared, scratch, gradients)?;
            shared.go_below();
        }
        encodings.backward(&shared.d_y, parameters, gradients)?;
        // Both are again where they were, so that the next batch has the same launches.
        if layers.len() % 2 == 1 {
            shared.go_below();
        }
        Ok(())
    }

    fn predict(&mut self, batch: &BatchView<'_>, parameters: &Buffer<f32>) -> Result<()> {
        self.forward(batch, DropoutSeed::default(), None, parameters)
    }

    fn outputs(&self) -> &Buffer<f32> {
        match (&self.head, self.readout) {
            (Some(_), _) => &self.outputs,
            (None, Readout::Node) => self.layers.last().map_or(&self.encodings.x, |top| &top.y),
            (None, _) => &self.read,
        }
    }

    fn totals(&self) -> &Buffer<f64> {
        &self.graph_loss.sums.totals
    }

    fn totals_mut(&mut self) -> &mut Buffer<f64> {
        &mut self.graph_loss.sums.totals
    }
}
