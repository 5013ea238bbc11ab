//! Targets of graphs without a model: their spread, and the loss of equal outputs.

use megabatch_gpu_core::Device;
use megabatch_nn::loss::{Loss, is_labelled, labelled_rows};

use crate::data::samples::TargetReader;
use crate::error::{Error, Result};
use crate::evaluate::selection::Selection;

/// The deviation of targets within a graph: the root of the mean, over graphs and horizons, of the
/// variance over labelled nodes. `None` if all nodes of each graph have the same targets, or none
/// is known.
///
/// # Errors
/// [`Error::Setting`] for samples that are not nodes of graphs, and those of reading them.
pub fn cross_sectional_deviation(device: &Device, selection: Selection<'_>) -> Result<Option<f64>> {
    let (mut variances, mut count) = (0.0, 0);
    let width = selection.samples.shape().outputs;
    for_each_graph(device, selection, |targets| {
        let rows: Vec<&[f32]> = targets.chunks_exact(width).filter(|row| is_labelled(row)).collect();
        if rows.len() < 2 {
            return;
        }
        for k in 0..width {
            let mean = rows.iter().map(|row| f64::from(row[k])).sum::<f64>() / rows.len() as f64;
            let squares = rows.iter().map(|row| (f64::from(row[k]) - mean).powi(2)).sum::<f64>();
            variances += squares / (rows.len() - 1) as f64;
            count += 1;
        }
    })?;
    let deviation = (variances / f64::from(count.max(1))).sqrt();
    Ok(Some(deviation).filter(|deviation| *deviation > 0.0 && deviation.is_finite()))
}

/// The mean of a rank loss for equal outputs of all nodes: the loss of a model without information.
/// `None` if no graph has a term of it.
///
/// # Errors
/// As [`cross_sectional_deviation`].
pub fn uninformed_loss(device: &Device, selection: Selection<'_>, loss: Loss) -> Result<Option<f64>> {
    if !loss.ranks() {
        return Ok(None);
    }
    let width = selection.samples.shape().outputs;
    let (mut sum, mut terms) = (0.0, 0);
    for_each_graph(device, selection, |targets| {
        sum += loss.graph_sum(&vec![0.0f32; targets.len()], targets, width);
        terms += loss.graph_terms(labelled_rows(targets, width), width);
    })?;
    Ok((terms > 0).then(|| sum / terms as f64))
}

/// Calls `each` with the targets [R, K] of every graph of `selection`.
fn for_each_graph(device: &Device, selection: Selection<'_>, mut each: impl FnMut(&[f32])) -> Result<()> {
    let Some(graphs) = selection.samples.graphs() else {
        let expected = "node, mean, sum or max for samples that are the nodes of graphs";
        return Err(Error::setting("readout", &"none", expected));
    };
    let mut all = TargetReader::new(selection.samples, &device.scope("batches"))?;
    let mut targets = Vec::new();
    for graph in selection.indices.iter() {
        targets.clear();
        for &sample in graphs.nodes(graph) {
            targets.extend_from_slice(all.read(sample)?);
        }
        each(&targets);
    }
    Ok(())
}
