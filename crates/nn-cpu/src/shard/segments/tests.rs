//! Gradients with checkpointing are those without, to the bit.

use std::ops::Range;
use std::sync::Mutex;

use megabatch_amp::{Precision, round_to};
use megabatch_gpu_core::Device;
use megabatch_nn::batch::{BatchStorage, BatchView, WindowOffsets};
use megabatch_nn::model::fusion::Fusion;
use megabatch_nn::model::pooling::Pooling;
use megabatch_nn::model::{Cell, Dropout, Model, ModelConfig, SampleShape, TensorSet, Timeframe};
use proptest::prelude::*;

use crate::arithmetic::CpuArithmetic;
use crate::compute::{Capacity, CheckpointPolicy, Purpose};
use crate::kernel::Isa;
use crate::kernel::bf16::Bf16Isa;
use crate::schedule::TaskGraph;
use crate::shard::{BlockFinals, FinalGradients, PackedWeights, Shard, ShardWorkspace, SharedGradients, Weights};

/// Numbers in (-1, 1) without pattern.
fn numbers(seed: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f64 * 12.9898 + seed as f64 * 78.233 + 1.0).sin() as f32).collect()
}

/// A timeframe of the samples: each window ends `stride` bars behind the one before it.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct TimeframeWindows {
    pub(in crate::shard) steps: usize,
    pub(in crate::shard) features: usize,
    pub(in crate::shard) stride: usize,
}

const OUTPUTS: usize = 3;

/// Samples of these timeframes.
pub(in crate::shard) struct Samples {
    pub(in crate::shard) shape: SampleShape,
    series: Vec<Vec<f32>>,
    offsets: WindowOffsets,
    targets: Vec<f32>,
}

impl Samples {
    pub(in crate::shard) fn new(count: usize, timeframes: &[TimeframeWindows]) -> Self {
        let timeframe = |(k, timeframe): (usize, &TimeframeWindows)| Timeframe {
            name: format!("T{k}"),
            steps: timeframe.steps,
            features: timeframe.features,
        };
        let series = |(k, timeframe): (usize, &TimeframeWindows)| {
            numbers(k, (timeframe.steps + count * timeframe.stride) * timeframe.features)
        };
        let starts = |timeframe: &TimeframeWindows| {
            let stride = timeframe.stride;
            (0..count).map(move |n| n * stride)
        };
        Samples {
            shape: SampleShape { timeframes: timeframes.iter().enumerate().map(timeframe).collect(), outputs: OUTPUTS },
            series: timeframes.iter().enumerate().map(series).collect(),
            offsets: WindowOffsets {
                starts: timeframes.iter().map(|timeframe| starts(timeframe).collect()).collect(),
                ends: timeframes
                    .iter()
                    .map(|timeframe| starts(timeframe).map(|start| start + timeframe.steps - 1).collect())
                    .collect(),
            },
            targets: vec![0.0; count * OUTPUTS],
        }
    }

    pub(in crate::shard) fn batch(&self) -> BatchView<'_> {
        let series = self.series.iter().map(Vec::as_slice).collect();
        BatchView::new(&self.shape, series, &self.offsets, BatchStorage::Series, &self.targets)
    }
}

/// Gradients that were given as final: their places and their bits.
#[derive(Default)]
struct Finals(Mutex<Vec<(Range<usize>, Vec<u32>)>>);

impl Finals {
    fn take(&self, FinalGradients { block, range, values }: FinalGradients<'_>) {
        assert_eq!(block, 7);
        self.0.lock().unwrap().push((range, values.iter().map(|x| x.to_bits()).collect()));
    }

    /// Each group was given once, with the bits that it has in the end; one thread gives them in
    /// their order.
    fn check(self, model: &Model, gradients: &TensorSet, threads: usize) {
        let (mut given, mut groups) = (self.0.into_inner().unwrap(), model.gradient_groups());
        if threads > 1 {
            given.sort_by_key(|(range, _)| range.start);
            groups.sort_by_key(|range| range.start);
        }
        assert_eq!(given.iter().map(|(range, _)| range.clone()).collect::<Vec<_>>(), groups);
        for (range, bits) in given {
            let values = &gradients.values()[range.clone()];
            assert!(values.iter().map(|x| x.to_bits()).eq(bits), "{range:?} was not final");
        }
    }
}

/// Computation, beside the saved part of it.
pub(in crate::shard) struct Case {
    pub(in crate::shard) model: Model,
    pub(in crate::shard) precision: Precision,
    pub(in crate::shard) dropout: Option<Dropout>,
    /// True if all samples are one run of dense training.
    pub(in crate::shard) dense: bool,
    /// Threads that compute the shard.
    pub(in crate::shard) threads: usize,
    /// Seed of changes of the parameters by up to 2⁻⁹ of each, the error of bf16; `None` for none.
    pub(in crate::shard) nudge: Option<usize>,
}

impl Case {
    /// The gradients of a shard of all samples, from outputs whose gradients are themselves.
    pub(in crate::shard) fn gradients(
        &self,
        isa: Isa,
        bf16_isa: Option<Bf16Isa>,
        samples: &Samples,
        kept: CheckpointPolicy,
    ) -> Vec<u32> {
        let scope = Device::cpu().scope("test");
        let batch = samples.batch();
        let count = batch.len();
        let mut parameters = self.model.initial_parameters(&scope, 3).unwrap();
        if let Some(seed) = self.nudge {
            let values = parameters.values_mut();
            let factors = numbers(seed, values.len());
            values.iter_mut().zip(factors).for_each(|(value, factor)| *value *= 1.0 + factor / 512.0);
        }
        let matrices = parameters.tensors_mut().filter(|(_, shape, _)| shape.len() > 1);
        matrices.for_each(|(_, _, values)| round_to(self.precision, values));
        let purpose = Purpose::Training { dropout: self.dropout.is_some(), runs: None, kept };
        let arithmetic = CpuArithmetic::new(self.precision, bf16_isa);
        let mut packed = PackedWeights::new(&scope, &self.model, purpose, arithmetic).unwrap();
        packed.pack(&self.model, &parameters);
        let capacity =
            Capacity { samples: count, edges: 0, run: if self.dense { count } else { 1 }, threads: self.threads };
        let mut workspace = ShardWorkspace::new(&scope, &self.model, capacity, purpose, arithmetic).unwrap();
        workspace.isa = isa;
        let run = 0..count;
        let runs = if self.dense { std::slice::from_ref(&run) } else { &[] };
        let shard = Shard { batch: &batch, samples: 0..count, runs, graph: None, carried: None, dropout: self.dropout };
        let weights = Weights { model: &self.model, parameters: &parameters, packed: &packed };
        let mut gradients = TensorSet::zeros(&scope, self.model.layout()).unwrap();
        // Twice, so that nothing of an earlier pass is left where it is read.
        for pass in 0..2 {
            gradients.clear();
            let finals = Finals::default();
            let sink = |gradients: FinalGradients<'_>| finals.take(gradients);
            // In one pass of both: the other has no receiver.
            let receiver = (pass == 1).then_some(BlockFinals { block: 7, sink: &sink });
            if self.threads > 1 {
                let shared = SharedGradients::new(&mut gradients, receiver);
                let run = workspace.run(weights, &shard, Some(shared));
                let mut graph = TaskGraph::default();
                run.push(&mut graph, |task| task);
                let threads = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
                graph.run(&threads, |task, team| run.work(task, team, |y, d_y| d_y.copy_from_slice(y)));
            } else {
                let (y, d_y) = workspace.forward(weights, &shard);
                d_y.copy_from_slice(y);
                workspace.backward(weights, &shard, &SharedGradients::new(&mut gradients, receiver));
            }
            if pass == 1 {
                finals.check(&self.model, &gradients, self.threads);
            }
        }
        gradients.values().iter().map(|x| x.to_bits()).collect()
    }
}

/// Cells of every kind.
pub(in crate::shard) fn cells() -> impl Strategy<Value = Cell> {
    prop_oneof![Just(Cell::Lstm), Just(Cell::Gru)]
}

pub(in crate::shard) fn windows() -> impl Strategy<Value = TimeframeWindows> {
    let sizes = (1usize..70, 1usize..20, prop_oneof![0usize..4, Just(25)]);
    sizes.prop_map(|(steps, features, stride)| TimeframeWindows { steps, features, stride })
}

/// The instruction sets for pairs that a model of so many units is computed with: twins take long.
pub(in crate::shard) fn bf16_isas(hidden: usize) -> impl Iterator<Item = Bf16Isa> {
    Bf16Isa::all().into_iter().filter(move |isa| hidden <= 12 || !isa.is_twin())
}

/// The distance of two vectors over the length of the second.
fn apart(found: &[u32], expected: &[u32]) -> f64 {
    let number = |bits: &u32| f64::from(f32::from_bits(*bits));
    let square = |terms: &mut dyn Iterator<Item = f64>| terms.map(|x| x * x).sum::<f64>();
    let apart = square(&mut found.iter().zip(expected).map(|(a, b)| number(a) - number(b)));
    (apart / square(&mut expected.iter().map(number))).sqrt()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gradients_are_those_of_the_full_backward_pass_to_the_bit(
        timeframes in prop::collection::vec(windows(), 1..3),
        (hidden, layers, count) in (4usize..36, 1usize..4, 1usize..34),
        drops in any::<bool>(),
        norm in any::<bool>(),
        pools in any::<bool>(),
        dense in any::<bool>(),
        bf16 in any::<bool>(),
        (keeps_cells, cell) in (any::<bool>(), cells()),
    ) {
        let samples = Samples::new(count, &timeframes);
        // A run is no longer in bars than in samples.
        let dense = dense && timeframes.iter().all(|timeframe| timeframe.stride <= 1);
        let config = ModelConfig {
            cell,
            hidden,
            layers,
            layer_norm: norm,
            pooling: if pools { Pooling::attention(hidden) } else { Pooling::Last },
            ..ModelConfig::default()
        };
        let case = Case {
            model: Model::new(samples.shape.clone(), config).unwrap(),
            precision: if bf16 { Precision::Bf16 } else { Precision::Fp32 },
            dropout: (drops && layers > 1).then(|| Dropout::for_step(0.3, 1, 2).unwrap()),
            dense,
            threads: 1,
            nudge: None,
        };
        let kept = if keeps_cells { CheckpointPolicy::HalfAndCells } else { CheckpointPolicy::Half };
        for isa in Isa::all() {
            let expected = case.gradients(isa, None, &samples, CheckpointPolicy::Everything);
            prop_assert!(case.gradients(isa, None, &samples, kept) == expected, "{}", isa.name());
        }
        for bf16_isa in bf16_isas(hidden).filter(|_| bf16) {
            let (isa, pairs) = (Isa::best(), Some(bf16_isa));
            let expected = case.gradients(isa, pairs, &samples, CheckpointPolicy::Everything);
            prop_assert!(case.gradients(isa, pairs, &samples, kept) == expected, "{}", bf16_isa.name());
        }
    }

    /// Both round what products read to within 2⁻⁹ of it, but not at the same places: the one packs
    /// states, gradients and their sums by bar, the other rounds them where they are formed. Few
    /// models amplify such errors, by layer norm and attention over few units: the bound is that of
    /// small changes of the parameters in float32. With fusion, rounding may also turn the sign
    /// before a ReLU, and with it a unit's whole gradient.
    #[test]
    fn gradients_of_pairs_are_near_those_of_rounded_operands(
        timeframes in prop::collection::vec(windows(), 1..3),
        (hidden, layers, count) in (4usize..70, 1usize..4, 1usize..34),
        drops in any::<bool>(),
        norm in any::<bool>(),
        pools in any::<bool>(),
        fuses in any::<bool>(),
        (dense, cell) in (any::<bool>(), cells()),
    ) {
        let samples = Samples::new(count, &timeframes);
        let config = ModelConfig {
            cell,
            hidden,
            layers,
            layer_norm: norm,
            pooling: if pools { Pooling::attention(hidden) } else { Pooling::Last },
            fusion: if fuses { Fusion::attention(hidden) } else { ModelConfig::default().fusion },
            ..ModelConfig::default()
        };
        let case = |precision| Case {
            model: Model::new(samples.shape.clone(), config).unwrap(),
            precision,
            dropout: (drops && layers > 1).then(|| Dropout::for_step(0.3, 1, 2).unwrap()),
            dense: dense && timeframes.iter().all(|timeframe| timeframe.stride <= 1),
            threads: 1,
            nudge: None,
        };
        let full = |nudge| {
            Case { nudge, ..case(Precision::Fp32) }.gradients(Isa::best(), None, &samples, CheckpointPolicy::Everything)
        };
        let exact = full(None);
        let amplified = (0..4).map(|seed| apart(&full(Some(seed)), &exact)).fold(0.0, f64::max);
        let sign_turns = if fuses { 0.2 } else { 0.0 };
        let bound = 1e-2 + 4.0 * amplified + sign_turns;
        let case = case(Precision::Bf16);
        let expected = case.gradients(Isa::best(), None, &samples, CheckpointPolicy::Everything);
        for bf16_isa in bf16_isas(hidden) {
            let found = case.gradients(Isa::best(), Some(bf16_isa), &samples, CheckpointPolicy::Everything);
            let apart = apart(&found, &expected);
            prop_assert!(apart < bound, "{}: {apart} beside {bound}", bf16_isa.name());
            if let Some(twin) = bf16_isa.twin().filter(|_| hidden <= 12) {
                let expected = case.gradients(Isa::best(), Some(twin), &samples, CheckpointPolicy::Everything);
                prop_assert!(found == expected, "{}: other bits than its twin's", bf16_isa.name());
            }
        }
    }
}
