//! Graphs that cannot be trained on are refused with the reason.

use std::error::Error as StdError;
use std::ops::ControlFlow;

use megabatch_gpu_core::Device;
use megabatch_nn::batch::LossOn;
use megabatch_nn::graph::{GraphView, Graphs};
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Encoder, GraphConfig, Model, ModelConfig, Readout, SampleShape};
use megabatch_nn_cpu::StreamingPredictor;
use megabatch_trainer::{Batch, Config, Run, SampleRanges, SampleWeighting, Samples, Trainer};

use crate::made_up::{GraphSamples, market};
use crate::weighted::Weighted;

fn config() -> Config {
    let graph = Some(GraphConfig { heads: 2, hidden: 3, ..GraphConfig::default() });
    let model = ModelConfig { hidden: 4, graph, readout: Some(Readout::Node), ..ModelConfig::default() };
    Config { model, batch_size: 4, threads: 2, ..Config::default() }
}

fn refusal(config: &Config, samples: &dyn Samples, train: &[usize]) -> String {
    let train = &train.iter().copied().collect();
    let run = Run { samples, train, validation: SampleRanges::NONE, checkpoints: None };
    let trained = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone())
        .and_then(|mut trainer| trainer.train(&run, &mut |_| ControlFlow::Continue(())));
    trained.unwrap_err().to_string()
}

#[test]
fn weights_of_samples_are_not_for_graphs() {
    let config = Config { sample_weights: SampleWeighting::Auto, ..config() };
    let market = market(8);
    let error = refusal(&config, &Weighted::by_turns(&market), &[0, 1]);
    assert_eq!(
        error,
        "`sample_weights` is auto: expected none, to train without the weights of samples, which a model over graphs does not use"
    );
}

#[test]
fn settings_that_do_not_go_together_are_named() {
    type Change = (fn(&mut Config), &'static str);
    let changes: [Change; 10] = [
        (|config| config.model.readout = None, "`graph` is gat: expected none without a readout"),
        (
            |config| (config.model.readout, config.model.graph) = (None, None),
            "`readout` is none: expected node, mean, sum or max for samples that are the nodes of graphs",
        ),
        (|config| config.model.graph_edge_attributes = 3, "`graph_edge_attributes` is 3: expected"),
        (|config| config.carry_state = true, "`carry_state` is true: expected false for a model over graphs"),
        (
            |config| config.loss_on = LossOn::EveryStep,
            "`loss_on` is every_step: expected last_step for a model over graphs",
        ),
        (
            |config| (config.model.readout, config.loss) = (Some(Readout::Sum), Loss::RankPairwise),
            "`loss` is rank_pairwise: expected a loss of one graph at a time",
        ),
        (
            |config| (config.model.readout, config.model.graph, config.loss) = (None, None, Loss::RankPairwise),
            "`loss` is rank_pairwise: expected mse, huber or quantile, as samples without a graph stand alone and have no ranks; set `graph`",
        ),
        (
            |config| (config.model.readout, config.model.graph, config.loss) = (None, None, Loss::CrossEntropy),
            "`loss` is cross_entropy: expected `thresholds` or `classes` beside it",
        ),
        (
            |config| config.loss = Loss::RankListwise { temperature: 0.0 },
            "`rank_temperature` is 0: expected a positive number",
        ),
        (
            |config| config.model.graph = Some(GraphConfig { heads: 0, ..GraphConfig::default() }),
            "`graph_heads` is 0: expected 1 or more",
        ),
    ];
    for (change, expected) in changes {
        let mut config = config();
        change(&mut config);
        let error = refusal(&config, &market(8), &[0, 1]);
        assert!(error.starts_with(expected), "{error}");
    }
    let samples = market(8);
    let error = refusal(&config(), &samples.inner, &[0, 1]);
    assert!(error.starts_with("`readout` is node: expected none for samples that are not nodes of"), "{error}");
    let last_bar = ModelConfig { encoder: Encoder::LastBar, ..ModelConfig::default() };
    for model in [config().model, last_bar] {
        let model = Model::new(samples.shape().clone(), model).unwrap();
        let weights = tempfile::NamedTempFile::new().unwrap();
        let error = StreamingPredictor::open(&Device::cpu(), model, weights.path()).unwrap_err().to_string();
        assert!(error.starts_with("`carry_state` is true: expected false"), "{error}");
    }
}

/// Graphs that are not what they say they are.
struct Faulty(GraphSamples, Answer);

/// Answer of a faulty source for a graph.
type Answer = fn(&GraphSamples, usize) -> Result<GraphView<'_>, Box<dyn StdError + Send + Sync>>;

impl Samples for Faulty {
    fn shape(&self) -> &SampleShape {
        self.0.shape()
    }

    fn len(&self) -> usize {
        Samples::len(&self.0)
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.0.gather(samples, batch)
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        Some(self)
    }
}

impl Graphs for Faulty {
    fn len(&self) -> usize {
        Graphs::len(&self.0)
    }

    fn nodes(&self, graph: usize) -> &[usize] {
        self.0.nodes(graph)
    }

    fn graph(&self, graph: usize) -> Result<GraphView<'_>, Box<dyn StdError + Send + Sync>> {
        (self.1)(&self.0, graph)
    }

    fn edge_attributes(&self) -> usize {
        2
    }

    fn largest(&self) -> (usize, usize) {
        self.0.largest()
    }

    fn total_edges(&self) -> usize {
        self.0.total_edges()
    }

    fn labelled(&self, graph: usize) -> usize {
        self.0.labelled(graph)
    }
}

#[test]
fn graphs_that_are_not_there_or_not_what_they_say_are_named() {
    let samples = market(8);
    assert_eq!(refusal(&config(), &samples, &[0, 8]), "graph 8 was asked for, but there are 8");

    let failing = Faulty(market(8), |_, graph| Err(format!("block {graph} is damaged").into()));
    assert_eq!(refusal(&config(), &failing, &[3]), "reading graph 3 failed: block 3 is damaged");
    let shortened = Faulty(market(8), |samples, graph| {
        let view = samples.graph(graph)?;
        Ok(GraphView { attributes: &view.attributes[1..], ..view })
    });
    let error = refusal(&config(), &shortened, &[6]);
    assert!(error.starts_with("graph 6 has 3 nodes") && error.contains("and 2 attributes of each"), "{error}");
    let others = Faulty(market(8), |samples, graph| samples.graph(graph + 1));
    let error = refusal(&config(), &others, &[2]);
    assert!(error.starts_with("graph 2 has 2 nodes, "), "{error}");
    assert!(error.contains("expected 4 nodes, up to"), "{error}");

    let mut empty = market(8);
    empty.graphs[2].nodes.clear();
    let error = refusal(&config(), &empty, &[2]);
    assert_eq!(error, "graph 2 has 0 nodes: expected 1 to 7 nodes; leave out graphs without nodes");
    let mut larger = market(8);
    larger.largest.0 = 3;
    assert!(refusal(&config(), &larger, &[2]).starts_with("graph 2 has 4 nodes: expected 1 to 3 nodes"));
}
