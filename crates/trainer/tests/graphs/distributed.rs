//! Several ranks over graphs, each of which is a block of its step.

use std::ops::ControlFlow;

use megabatch_gpu_core::Device;
use megabatch_trainer::{Config, Event, Faults, IdleRanks, Run, ThreadPeers, Trainer};
use proptest::prelude::*;

use crate::made_up::{bits, market, trained};
use crate::training::{LOSSES, all, config, with_targets_for};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranks_learn_what_one_process_does(
        loss in 0usize..LOSSES.len(), world in 1usize..10, batch_size in 1usize..9, accumulation_steps in 1usize..4,
    ) {
        let loss = LOSSES[loss];
        let samples = with_targets_for(loss, market(23));
        let config = Config { loss, batch_size, accumulation_steps, epochs: 2, ..config() };
        let train = all(&samples);
        let (alone, losses) = trained(&config, &samples, &train);
        let found = ThreadPeers::run(world, &Faults::default(), |peers| {
            let own = std::mem::replace(peers, ThreadPeers::world_of(1, &Faults::default()).remove(0));
            let mut trainer = Trainer::new(&Device::cpu(), config.clone(), megabatch_trainer::Samples::shape(&samples).clone())?;
            trainer.join(Box::new(own), IdleRanks::Allow)?;
            let mut losses = Vec::new();
            let run = Run { samples: &samples, train: &train, validation: &[], checkpoints: None };
            trainer.train(&run, &mut |event| {
                if let Event::Step(step) = event {
                    losses.push(step.loss);
                }
                ControlFlow::Continue(())
            })?;
            Ok::<_, megabatch_trainer::Error>((bits(&trainer), losses))
        });
        for told in found {
            prop_assert!(told == (bits(&alone), losses.clone()), "{loss:?}, {world} ranks");
        }
    }
}
