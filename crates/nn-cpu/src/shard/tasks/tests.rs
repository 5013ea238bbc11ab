//! A shard in tasks has the bits of one thread.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::model::pooling::Pooling;
use megabatch_nn::model::{Cell, Dropout, Model, ModelConfig};
use proptest::prelude::*;

use super::super::segments::tests::{Case, Samples, TimeframeWindows, bf16_isas, cells, windows};
use super::TaskKind;
use crate::arithmetic::CpuArithmetic;
use crate::compute::{Capacity, CheckpointPolicy, Purpose};
use crate::kernel::Isa;
use crate::schedule::TaskGraph;
use crate::shard::{PackedWeights, Shard, ShardWorkspace, Weights};

fn case(samples: &Samples, config: ModelConfig, precision: Precision) -> Case {
    Case {
        model: Model::new(samples.shape.clone(), config).unwrap(),
        precision,
        dropout: None,
        dense: false,
        threads: 1,
        nudge: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gradients_of_groups_are_those_of_all_windows_to_the_bit(
        timeframes in prop::collection::vec(windows(), 1..4),
        (hidden, layers, count) in (4usize..70, 1usize..4, 1usize..50),
        threads in prop_oneof![2usize..8, Just(16)],
        (dense, bf16, cell, isa) in (any::<bool>(), any::<bool>(), cells(), prop::sample::select(Isa::all())),
    ) {
        let samples = Samples::new(count, &timeframes);
        let dense = dense && timeframes.iter().all(|timeframe| timeframe.stride <= 1);
        let config = ModelConfig { cell, hidden, layers, ..ModelConfig::default() };
        let precision = if bf16 { Precision::Bf16 } else { Precision::Fp32 };
        let case = |threads| Case { threads, dense, ..case(&samples, config, precision) };
        let expected = case(1).gradients(isa, None, &samples, CheckpointPolicy::Everything);
        prop_assert!(case(threads).gradients(isa, None, &samples, CheckpointPolicy::Everything) == expected, "{}", isa.name());
        for bf16_isa in bf16_isas(hidden).filter(|_| bf16) {
            let (isa, pairs) = (Isa::best(), Some(bf16_isa));
            let expected = case(1).gradients(isa, pairs, &samples, CheckpointPolicy::Everything);
            let found = case(threads).gradients(isa, pairs, &samples, CheckpointPolicy::Everything);
            prop_assert!(found == expected, "{}", bf16_isa.name());
        }
    }

    #[test]
    fn gradients_of_timeframes_are_those_of_one_thread_to_the_bit(
        timeframes in prop::collection::vec(windows(), 1..4),
        (hidden, layers, count) in (4usize..36, 1usize..4, 1usize..34),
        (threads, cell) in (2usize..8, cells()),
        (drops, norm, pools, dense) in any::<(bool, bool, bool, bool)>(),
        kept in prop_oneof![Just(CheckpointPolicy::Everything), Just(CheckpointPolicy::Half), Just(CheckpointPolicy::HalfAndCells)],
    ) {
        let samples = Samples::new(count, &timeframes);
        let dense = dense && timeframes.iter().all(|timeframe| timeframe.stride <= 1);
        let pooling = if pools { Pooling::attention(hidden) } else { Pooling::Last };
        let config = ModelConfig { cell, hidden, layers, layer_norm: norm, pooling, ..ModelConfig::default() };
        let dropout = (drops && layers > 1).then(|| Dropout::for_step(0.3, 1, 2).unwrap());
        let case = |threads| Case { threads, dense, dropout, ..case(&samples, config, Precision::Fp32) };
        let expected = case(1).gradients(Isa::best(), None, &samples, kept);
        prop_assert!(case(threads).gradients(Isa::best(), None, &samples, kept) == expected);
    }
}

/// A short timeframe beside a long one has fewer groups than it has memory for, and its windows
/// cover as many bars as are projected by themselves.
#[test]
fn few_groups_project_all_bars() {
    let timeframe = |steps, stride| TimeframeWindows { steps, features: 3, stride };
    let samples = Samples::new(32, &[timeframe(62, 30), timeframe(300, 1)]);
    let config = ModelConfig { hidden: 8, layers: 1, ..ModelConfig::default() };
    for threads in [2, 4, 7, 16] {
        let with = |threads| {
            let case = Case { threads, ..case(&samples, config, Precision::Fp32) };
            case.gradients(Isa::best(), None, &samples, CheckpointPolicy::Everything)
        };
        assert!(with(threads) == with(1), "{threads} threads");
    }
}

/// Windows of two strides, in more groups than one: the sums by bar of a bar that windows of two
/// groups share.
#[test]
fn windows_that_share_bars_are_cut_between_them() {
    let timeframe = |steps, stride| TimeframeWindows { steps, features: 5, stride };
    let samples = Samples::new(32, &[timeframe(40, 1), timeframe(36, 0), timeframe(24, 3)]);
    let config = ModelConfig { hidden: 20, layers: 2, ..ModelConfig::default() };
    for threads in [2, 3, 7, 16, 64] {
        let with = |threads| {
            let case = Case { threads, ..case(&samples, config, Precision::Fp32) };
            case.gradients(Isa::best(), None, &samples, CheckpointPolicy::Everything)
        };
        assert!(with(threads) == with(1), "{threads} threads");
    }
}

/// Predictions of one window: their bits, by `threads` that share its units.
struct OneWindow {
    samples: Samples,
    model: Model,
    in_bytes: bool,
}

/// Order of the members of a recurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Members {
    /// Side by side, on as many threads.
    Together,
    /// Side by side, with other threads busy.
    Crowded,
    /// One after another, on one thread: the first does without the others.
    InTurn,
}

impl OneWindow {
    fn outputs(&self, threads: usize, members: Members) -> Vec<Vec<u32>> {
        let scope = Device::cpu().scope("test");
        let (batch, purpose) = (self.samples.batch(), Purpose::Prediction);
        let parameters = self.model.initial_parameters(&scope, 3).unwrap();
        let mut packed = PackedWeights::new(&scope, &self.model, purpose, CpuArithmetic::Fp32).unwrap();
        packed.pack(&self.model, &parameters);
        let capacity = Capacity { samples: 1, edges: 0, run: 1, threads };
        let mut workspace = ShardWorkspace::new(&scope, &self.model, capacity, purpose, CpuArithmetic::Fp32).unwrap();
        if self.in_bytes {
            packed.quantize(&scope, &self.model, &parameters).unwrap();
            workspace.ensure_int8_capacity(&scope).unwrap();
        }
        let weights = Weights { model: &self.model, parameters: &parameters, packed: &packed };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let one = |sample: usize| {
            let samples = sample..sample + 1;
            let shard = Shard { batch: &batch, samples, runs: &[], graph: None, carried: None, dropout: None };
            if members == Members::InTurn || threads == 1 {
                return workspace.forward(weights, &shard).0.iter().map(|y| y.to_bits()).collect();
            }
            let run = workspace.run(weights, &shard, None);
            let mut graph = TaskGraph::default();
            run.push(&mut graph, |task| task);
            let shares = graph.tasks().iter().filter(|task| matches!(task.kind, TaskKind::Share { .. })).count();
            assert!(shares > 0, "nothing is shared");
            let outputs = Mutex::new(Vec::new());
            graph.run(&pool, |task, team| {
                run.work(task, team, |y, _| *outputs.lock().unwrap() = y.iter().map(|y| y.to_bits()).collect());
            });
            outputs.into_inner().unwrap()
        };
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..if members == Members::Crowded { 4 } else { 0 } {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let outputs = (0..batch.len()).map(one).collect();
            is_done.store(true, Ordering::Relaxed);
            outputs
        })
    }
}

#[test]
fn a_window_whose_units_are_shared_has_the_outputs_of_one_thread() {
    let windows = |steps, features| TimeframeWindows { steps, features, stride: 1 };
    let one = vec![windows(170, 9)];
    let two = vec![windows(150, 9), windows(140, 20)];
    let attention = Pooling::attention(128);
    let cases = [
        (one.clone(), ModelConfig { hidden: 128, layers: 1, ..ModelConfig::default() }, false),
        (one.clone(), ModelConfig { hidden: 150, layers: 2, layer_norm: true, ..ModelConfig::default() }, false),
        (one.clone(), ModelConfig { hidden: 128, layers: 1, pooling: attention, ..ModelConfig::default() }, false),
        (one.clone(), ModelConfig { hidden: 130, layers: 2, ..ModelConfig::default() }, true),
        (one.clone(), ModelConfig { cell: Cell::Gru, hidden: 150, layers: 2, ..ModelConfig::default() }, false),
        (one, ModelConfig { cell: Cell::Gru, hidden: 130, layers: 2, ..ModelConfig::default() }, true),
        (two, ModelConfig { hidden: 128, layers: 2, ..ModelConfig::default() }, false),
    ];
    for (timeframes, config, in_bytes) in cases {
        let samples = Samples::new(2, &timeframes);
        let window = OneWindow { model: Model::new(samples.shape.clone(), config).unwrap(), samples, in_bytes };
        let expected = window.outputs(1, Members::Together);
        for threads in [4, 7].into_iter().chain((timeframes.len() == 1).then_some(2)) {
            for members in [Members::Together, Members::Crowded, Members::InTurn] {
                assert!(window.outputs(threads, members) == expected, "{threads} threads, {members:?}");
            }
        }
    }
}
