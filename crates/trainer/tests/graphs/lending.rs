//! Graphs of samples that load themselves ahead: the same run as with samples that are gathered.

use std::error::Error as StdError;

use megabatch_gpu_core::Device;
use megabatch_nn::graph::Graphs;
use megabatch_nn::model::{GraphConfig, ModelConfig, Readout, SampleShape};
use megabatch_trainer::{
    Batch, BatchLists, BorrowedBatch, Chunking, Config, LoadedBatches, PrefetchingSource, SampleRanges, Samples,
    Selection, Waits,
};

use crate::made_up::{GraphSamples, bits, market, trained};

/// Samples that read lists ahead and lend one batch at a time.
struct Lending(GraphSamples);

struct Lent<'a> {
    samples: &'a GraphSamples,
    lists: Vec<Vec<usize>>,
    batch: Batch,
    next: usize,
}

impl Samples for Lending {
    fn shape(&self) -> &SampleShape {
        self.0.shape()
    }

    fn len(&self) -> usize {
        Samples::len(&self.0)
    }

    fn gather(&self, _: &[usize], _: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        panic!("what loads itself ahead is not gathered");
    }

    fn load_ahead(&self) -> Option<&dyn PrefetchingSource> {
        Some(self)
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        Some(&self.0)
    }
}

impl PrefetchingSource for Lending {
    fn load<'a>(
        &'a self,
        lists: BatchLists<'a>,
        _: Chunking,
    ) -> Result<Box<dyn LoadedBatches + 'a>, Box<dyn StdError + Send + Sync>> {
        let batch = Batch::new(&Device::cpu().scope("lent"), self.shape(), 40)?;
        Ok(Box::new(Lent { samples: &self.0, lists: lists.collect(), batch, next: 0 }))
    }
}

impl LoadedBatches for Lent<'_> {
    fn next(&mut self, _: &dyn Fn() -> bool) -> Result<Option<BorrowedBatch<'_>>, Box<dyn StdError + Send + Sync>> {
        let Some(samples) = self.lists.get(self.next) else { return Ok(None) };
        self.next += 1;
        self.batch.resize(samples.len());
        self.samples.gather(samples, &mut self.batch)?;
        let view = self.batch.view();
        let features = (0..view.shape().timeframes.len()).map(|k| view.features(k)).collect();
        Ok(Some(BorrowedBatch { samples, features, targets: view.targets() }))
    }

    fn waits(&self) -> Waits {
        Waits::default()
    }
}

#[test]
fn graphs_of_samples_that_load_themselves_are_trained_and_evaluated_alike() {
    let graph = Some(GraphConfig { heads: 2, hidden: 3, dropout: 0.3, ..GraphConfig::default() });
    let model = ModelConfig { hidden: 4, graph, readout: Some(Readout::Node), ..ModelConfig::default() };
    let config = Config { model, batch_size: 5, threads: 2, epochs: 2, ..Config::default() };
    let indices = SampleRanges::from(0..18);
    let trained = |samples: &dyn Samples| {
        let (mut trainer, losses) = trained(&config, samples, &indices);
        (bits(&trainer), losses, trainer.evaluate(Selection { samples, indices: &indices }, None).unwrap())
    };
    assert_eq!(trained(&Lending(market(18))), trained(&market(18)));
}
