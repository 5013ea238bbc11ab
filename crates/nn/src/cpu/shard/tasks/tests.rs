//! A shard in tasks has the bits of one thread.

use megabatch_amp::Precision;
use proptest::prelude::*;

use super::super::segments::tests::{Case, Samples, TimeframeWindows, pair_isas, windows};
use crate::cpu::kernel::Isa;
use crate::cpu::step::Kept;
use crate::model::dropout::Dropout;
use crate::model::pooling::Pooling;
use crate::model::{Model, ModelConfig};

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
        dense in any::<bool>(),
        bf16 in any::<bool>(),
    ) {
        let samples = Samples::new(count, &timeframes);
        let dense = dense && timeframes.iter().all(|of| of.stride <= 1);
        let config = ModelConfig { hidden, layers, ..ModelConfig::default() };
        let precision = if bf16 { Precision::Bf16 } else { Precision::Fp32 };
        let case = |threads| Case { threads, dense, ..case(&samples, config, precision) };
        for isa in Isa::all() {
            let expected = case(1).gradients(isa, None, &samples, Kept::Everything);
            prop_assert!(case(threads).gradients(isa, None, &samples, Kept::Everything) == expected, "{}", isa.name());
        }
        for pair_isa in pair_isas(hidden).filter(|_| bf16) {
            let (isa, pairs) = (Isa::best(), Some(pair_isa));
            let expected = case(1).gradients(isa, pairs, &samples, Kept::Everything);
            let found = case(threads).gradients(isa, pairs, &samples, Kept::Everything);
            prop_assert!(found == expected, "{}", pair_isa.name());
        }
    }

    #[test]
    fn gradients_of_timeframes_are_those_of_one_thread_to_the_bit(
        timeframes in prop::collection::vec(windows(), 1..4),
        (hidden, layers, count) in (4usize..36, 1usize..4, 1usize..34),
        threads in 2usize..8,
        (drops, norm, pools, dense) in any::<(bool, bool, bool, bool)>(),
        kept in prop_oneof![Just(Kept::Everything), Just(Kept::Half), Just(Kept::HalfAndCells)],
    ) {
        let samples = Samples::new(count, &timeframes);
        let dense = dense && timeframes.iter().all(|of| of.stride <= 1);
        let pooling = if pools { Pooling::attention(hidden) } else { Pooling::Last };
        let config = ModelConfig { hidden, layers, layer_norm: norm, pooling, ..ModelConfig::default() };
        let dropout = (drops && layers > 1).then(|| Dropout::of_step(0.3, 1, 2).unwrap());
        let case = |threads| Case { threads, dense, dropout, ..case(&samples, config, Precision::Fp32) };
        let expected = case(1).gradients(Isa::best(), None, &samples, kept);
        prop_assert!(case(threads).gradients(Isa::best(), None, &samples, kept) == expected);
    }
}

/// A short timeframe beside a long one has fewer groups than it has memory for, and its windows
/// cover as many bars as are projected by themselves.
#[test]
fn few_groups_project_all_bars() {
    let of = |steps, stride| TimeframeWindows { steps, features: 3, stride };
    let samples = Samples::new(32, &[of(62, 30), of(300, 1)]);
    let config = ModelConfig { hidden: 8, layers: 1, ..ModelConfig::default() };
    for threads in [2, 4, 7, 16] {
        let with = |threads| {
            let case = Case { threads, ..case(&samples, config, Precision::Fp32) };
            case.gradients(Isa::best(), None, &samples, Kept::Everything)
        };
        assert!(with(threads) == with(1), "{threads} threads");
    }
}

/// Windows of two strides, in more groups than one: the sums by bar of a bar that windows of two
/// groups share.
#[test]
fn windows_that_share_bars_are_cut_between_them() {
    let of = |steps, stride| TimeframeWindows { steps, features: 5, stride };
    let samples = Samples::new(32, &[of(40, 1), of(36, 0), of(24, 3)]);
    let config = ModelConfig { hidden: 20, layers: 2, ..ModelConfig::default() };
    for threads in [2, 3, 7, 16, 64] {
        let with = |threads| {
            let case = Case { threads, ..case(&samples, config, Precision::Fp32) };
            case.gradients(Isa::best(), None, &samples, Kept::Everything)
        };
        assert!(with(threads) == with(1), "{threads} threads");
    }
}
