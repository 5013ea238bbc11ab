//! The loss of a batch of graphs on a device.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::batch::BatchView;
use megabatch_nn::graph::GraphBatch;
use megabatch_nn::loss::{Loss, is_labelled};
use megabatch_nn::model::{Model, Readout};

use crate::device::head::{LossInput, LossSums};
use crate::ops::{
    GraphLists, GraphRows, LossScaling, LossTable, PlannedUpload, Predictions, Scratch, Terms, UploadBatch, graph_loss,
    graph_loss_partials_len, loss, loss_partials_len,
};

#[derive(Debug)]
pub(super) struct GraphLoss {
    loss: Loss,
    /// Table of a loss that compares each output with its own target.
    table: Option<LossTable>,
    by_node: bool,
    /// K of targets.
    width: usize,
    rows: usize,
    /// NaN for all targets of a row of which one is not known, on the host and on the device.
    known: Vec<f32>,
    targets: Buffer<f32>, // [R, K]
    pub(super) sums: LossSums,
}

/// True if a loss compares a row or a graph, and not each output with its own target.
fn compares(loss: Loss) -> bool {
    loss == Loss::CrossEntropy || loss.ranks()
}

impl GraphLoss {
    pub(super) fn new(scope: &Scope, model: &Model, loss: Loss) -> Result<Self> {
        let (batches, width) = (scope.child("batches"), model.shape().outputs);
        Ok(GraphLoss {
            loss,
            table: GraphLoss::table(&scope.child("model/parameters/packed"), loss, width)?,
            by_node: model.config().readout == Some(Readout::Node),
            width,
            rows: 0,
            known: Vec::new(),
            targets: Buffer::zeros(&batches, 0)?,
            sums: LossSums::zeros(&batches)?,
        })
    }

    /// The table of a loss that compares each output with its own target, of so many targets.
    pub(super) fn table(scope: &Scope, loss: Loss, targets: usize) -> Result<Option<LossTable>> {
        (!compares(loss)).then(|| LossTable::new(scope, loss, targets)).transpose()
    }

    /// Plans the upload of a batch of so many rows.
    pub(super) fn plan_upload(&mut self, rows: usize, upload: &mut PlannedUpload) -> Result<()> {
        upload.put(&mut self.sums.terms, 1)?;
        upload.put(&mut self.targets, rows * self.width)
    }

    /// Takes what the loss of so many graphs and rows asks a scratch for.
    pub(super) fn reserve_scratch(&self, scratch: &mut Scratch, graphs: usize, rows: usize) -> Result<()> {
        scratch.reserve::<f64>(match self.table {
            None => graph_loss_partials_len(self.loss, [graphs, rows, self.width]),
            Some(_) => loss_partials_len(rows * self.width),
        })
    }

    /// Sets the totals of the losses to zero.
    pub(super) fn reset_totals(&mut self) -> Result<()> {
        Ok(self.sums.totals.set_zero()?)
    }

    /// Gives `upload` the targets of a batch: those of nodes, or those of each graph's first node,
    /// which are those of all. Rows behind these, up to `rows`, have none.
    pub(super) fn enqueue<'a>(
        &'a mut self,
        batch: &BatchView<'_>,
        graphs: &GraphBatch<'_>,
        rows: usize,
        loss_input: LossInput<'_>,
        upload: &mut UploadBatch<'a>,
    ) -> Result<()> {
        self.rows = rows;
        let GraphLoss { by_node, width, known, targets, sums, .. } = self;
        known.clear();
        for nodes in graphs.samples() {
            let own = if *by_node { nodes } else { nodes.start..nodes.start + 1 };
            known.extend_from_slice(&batch.targets()[own.start * *width..own.end * *width]);
        }
        known.chunks_exact_mut(*width).filter(|row| !is_labelled(row)).for_each(|row| row.fill(f32::NAN));
        known.resize(rows * *width, f32::NAN);
        // Without a label in the whole step there is no term to divide by.
        upload.put(&mut sums.terms, &[Terms::new(loss_input.loss, loss_input.count.max(1), known)])?;
        upload.put(targets, known)
    }

    /// Writes the gradient of the loss by `outputs`, times `scale` `[1]`, and adds the loss to the
    /// totals.
    pub(super) fn accumulate_gradients(
        &mut self,
        lists: &GraphLists,
        outputs: &Buffer<f32>,
        scale: &Buffer<f32>,
        d_outputs: &mut Buffer<f32>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let GraphLoss { by_node, width, rows, ref targets, .. } = *self;
        let LossSums { terms, totals } = &mut self.sums;
        let objective = LossScaling { terms, scale };
        let to = (d_outputs, totals, scratch);
        match &self.table {
            Some(table) => {
                loss(table, Predictions { outputs, targets, weights: None, rows }, objective, to.0, to.1, to.2)
            }
            None => graph_loss(
                self.loss,
                GraphRows { lists, by_node, outputs, targets, width },
                objective,
                to.0,
                to.1,
                to.2,
            ),
        }
    }
}
