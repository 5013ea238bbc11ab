//! Several ranks over graphs, each of which is a block of its step.

use std::ops::ControlFlow;

use megabatch_gpu_core::Device;
use megabatch_trainer::{Config, Event, IdleRanks, Relay, Run, SampleRanges, Trainer};
use proptest::prelude::*;

use crate::made_up::{bits, market};
use crate::thread_peers::{Faults, ThreadPeers};
use crate::training::{LOSSES, all, config, with_targets_for};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranks_learn_what_one_process_does(
        loss in 0usize..LOSSES.len(), world in 1usize..10, batch_size in 1usize..9,
        gradient_accumulation_steps in 1usize..4,
        piece_len in prop_oneof![Just(7), Just(100), Just(1 << 16)], overlaps in any::<bool>(), threads in 1usize..4,
    ) {
        let loss = LOSSES[loss];
        let samples = with_targets_for(loss, market(23));
        let config = Config { loss, batch_size, gradient_accumulation_steps, threads, epochs: 2, ..config() };
        let (train, validation) = all(&samples).iter().partition::<SampleRanges, _>(|graph| graph % 4 < 3);
        let run = Run { samples: &samples, train: &train, validation: &validation, checkpoints: None };
        let told = |mut trainer: Trainer| {
            let (mut losses, mut validations) = (Vec::new(), Vec::new());
            trainer.train(&run, &mut |event| {
                match event {
                    Event::Step(step) => losses.push(step.loss),
                    Event::Validation(validation) => validations.push(format!("{validation:?}")),
                    _ => {}
                }
                ControlFlow::Continue(())
            })?;
            Ok::<_, megabatch_trainer::Error>((bits(&trainer), losses, validations))
        };
        let new = || Trainer::new(&Device::cpu(), config.clone(), megabatch_trainer::Samples::shape(&samples).clone());
        let alone = told(new().unwrap()).unwrap();
        prop_assert_eq!(alone.2.len(), 2);
        let found = ThreadPeers::run(world, &Faults::default(), |peers| {
            let mut trainer = new()?;
            trainer.join(Box::new(peers), IdleRanks::Allow)?;
            trainer.set_relay(Relay { piece_len, overlaps });
            told(trainer)
        });
        for told in found {
            prop_assert!(told == alone, "{loss:?}, {world} ranks");
        }
    }
}
