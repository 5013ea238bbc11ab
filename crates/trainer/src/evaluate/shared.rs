//! An evaluation by several ranks, with the bits of a single process.
//!
//! ```text
//! each rank      outputs of its contiguous part of the samples, or graphs      predict_own
//! together       outputs and targets of all ranks, in their order              encode, decode
//! each rank      sums of all, in the order of one process                      fold
//! ```

use std::ops::Range;

use megabatch_nn::batch::BatchView;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::Model;
use megabatch_nn_cpu::SHARD_SAMPLES;
use megabatch_order::Rank;

use super::evaluation::Evaluation;
use super::pass::{EvaluationSums, Expected, INTERRUPTED, Observed, check};
use crate::data::sample_ranges::SampleRanges;
use crate::data::target_scales::TargetScales;
use crate::error::Result;
use crate::evaluate::predictions::Predictions;
use crate::evaluate::selection::{EvaluationProgress, Selection, SharedProgress};
use crate::peers::floats::{from_bytes, to_bytes};

/// Outputs of a batch, and what they are compared with.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PredictedBatch {
    /// Index of the sample, or the graph, of each row.
    indices: Vec<usize>,
    /// The rows of each graph; none of samples that stand alone.
    graphs: Vec<Range<usize>>,
    targets: Vec<f32>,
    outputs: Vec<f32>,
}

/// Samples, or graphs, of a block, which one rank predicts.
fn block_len(model: &Model) -> usize {
    if model.config().is_over_graphs() { 1 } else { SHARD_SAMPLES }
}

/// The part of `rank`: whole blocks of `block_len`, of which the last may be shorter.
pub(crate) fn own_part(indices: &SampleRanges, block_len: usize, rank: Rank) -> SampleRanges {
    let blocks = rank.slice(0..indices.len().div_ceil(block_len));
    indices.slice((blocks.start * block_len).min(indices.len())..(blocks.end * block_len).min(indices.len()))
}

/// The outputs of this rank's part of `selection`.
///
/// # Errors
/// As [`evaluate`](super::pass::evaluate).
pub(crate) fn predict_own(
    mut predictions: Predictions<'_>,
    selection: Selection<'_>,
    loss: Loss,
    rank: Rank,
    progress: &mut EvaluationProgress<'_>,
) -> Result<Vec<PredictedBatch>> {
    check(predictions.model, selection, loss)?;
    let own = own_part(selection.indices, block_len(predictions.model), rank);
    let mut predicted = Vec::new();
    if own.is_empty() {
        return Ok(predicted);
    }
    let own = Selection { indices: &own, ..selection };
    let mut observed = Observed::new(predictions.model, own, loss);
    let see = |batch: &BatchView<'_>| observed.see(batch, None);
    let progress = SharedProgress::new(progress);
    let flow = predictions.for_each(own, &|| progress.is_wanted(), see, |expected, outputs| {
        let Expected { indices, targets, graphs, done, .. } = expected;
        predicted.push(PredictedBatch { indices, graphs, targets, outputs: outputs.to_vec() });
        Ok(progress.at(done))
    })?;
    if flow.is_break() { Err(INTERRUPTED) } else { Ok(predicted) }
}

/// The evaluation of all `batches` of `selection`, in its order, for a model of targets that were
/// scaled by `target_scales`, if they were.
///
/// # Errors
/// As [`evaluate`](super::pass::evaluate).
pub(crate) fn fold(
    model: &Model,
    selection: Selection<'_>,
    loss: Loss,
    target_scales: Option<&TargetScales>,
    batches: Vec<PredictedBatch>,
    progress: &mut EvaluationProgress<'_>,
) -> Result<Evaluation> {
    let mut sums = EvaluationSums::new(model, selection, loss, target_scales);
    for batch in batches {
        let PredictedBatch { indices, graphs, targets, outputs } = batch;
        sums.add(&Expected { indices, targets, baselines: Vec::new(), graphs, done: 0 }, &outputs);
    }
    // The other ranks' part, of which this one's progress has not told.
    if progress(selection.indices.len()).is_break() {
        return Err(INTERRUPTED);
    }
    sums.finish()
}

impl PredictedBatch {
    /// Samples, or graphs.
    pub(crate) fn count(&self) -> usize {
        if self.graphs.is_empty() { self.indices.len() } else { self.graphs.len() }
    }

    /// Little-endian: the four lengths, indices, graphs, targets, outputs.
    fn encode_to(&self, bytes: &mut Vec<u8>) {
        let PredictedBatch { indices, graphs, targets, outputs } = self;
        let lengths = [indices.len(), graphs.len(), targets.len(), outputs.len()];
        let bounds = graphs.iter().flat_map(|rows| [rows.start, rows.end]);
        for word in lengths.into_iter().chain(indices.iter().copied()).chain(bounds) {
            bytes.extend((word as u64).to_le_bytes());
        }
        [targets, outputs].into_iter().for_each(|values| bytes.extend(to_bytes(values)));
    }

    fn decode_from(reader: &mut Reader<'_>) -> Option<Self> {
        let [rows, graphs, targets, outputs] = [(); 4].map(|()| reader.word());
        Some(PredictedBatch {
            indices: (0..rows?).map(|_| reader.word()).collect::<Option<_>>()?,
            graphs: (0..graphs?).map(|_| Some(reader.word()?..reader.word()?)).collect::<Option<_>>()?,
            targets: reader.floats(targets?)?,
            outputs: reader.floats(outputs?)?,
        })
    }
}

/// Batches as a message to other ranks.
pub(crate) fn encode(batches: &[PredictedBatch]) -> Vec<u8> {
    let mut bytes = Vec::new();
    batches.iter().for_each(|batch| batch.encode_to(&mut bytes));
    bytes
}

/// The batches of a message, which another rank of the same program encoded.
pub(crate) fn decode(bytes: &[u8]) -> Vec<PredictedBatch> {
    let mut reader = Reader { rest: bytes };
    std::iter::from_fn(|| {
        let more = !reader.rest.is_empty();
        more.then(|| PredictedBatch::decode_from(&mut reader).expect("a message of the same program"))
    })
    .collect()
}

/// A message that is being read.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn word(&mut self) -> Option<usize> {
        let (word, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        usize::try_from(u64::from_le_bytes(*word)).ok()
    }

    fn floats(&mut self, len: usize) -> Option<Vec<f32>> {
        let (bytes, rest) = self.rest.split_at_checked(len.checked_mul(size_of::<f32>())?)?;
        self.rest = rest;
        let mut values = vec![0.0; len];
        from_bytes(bytes, &mut values);
        Some(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_blocks_in_order() {
        let indices = SampleRanges::from(100..345);
        for (len, block_len, world) in [(0, 32, 3), (1, 32, 2), (31, 32, 2), (33, 32, 2), (245, 32, 3), (5, 1, 9)] {
            let rank_part = |rank| own_part(&indices.slice(0..len), block_len, Rank::new(rank, world).unwrap());
            let parts: Vec<SampleRanges> = (0..world).map(rank_part).collect();
            assert_eq!(parts.iter().flat_map(SampleRanges::runs).collect::<SampleRanges>(), indices.slice(0..len));
            let starts = parts.iter().filter_map(|part| Some(part.first()? - 100));
            assert!(starts.clone().all(|start| start % block_len == 0));
            assert_eq!(starts.count(), len.div_ceil(block_len).min(world));
        }
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let graph = PredictedBatch {
            indices: vec![7, 0, usize::MAX],
            graphs: vec![0..1, 1..3],
            targets: vec![1.5, -0.0, f32::MIN_POSITIVE],
            outputs: vec![0.1; 6],
        };
        for batches in [vec![], vec![PredictedBatch::default()], vec![graph.clone(), PredictedBatch::default(), graph]]
        {
            assert_eq!(decode(&encode(&batches)), batches);
        }
        // A target that is not known keeps its bits.
        let unknown = PredictedBatch { targets: vec![f32::from_bits(0x7fc0_1234)], ..PredictedBatch::default() };
        assert_eq!(decode(&encode(&[unknown]))[0].targets[0].to_bits(), 0x7fc0_1234);
    }
}
