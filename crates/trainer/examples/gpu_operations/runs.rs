//! Whole runs on a device beside the same on the CPU: the losses of every step, and those of
//! validations.

use std::error::Error;
use std::ops::ControlFlow;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::batch::LossOn;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{
    AttentionKind, Fusion, GraphConfig, GraphOutput, ModelConfig, Pooling, Readout, SampleShape, Timeframe,
};
use megabatch_nn_cuda::Tuning;
use megabatch_trainer::{Config, Event, InMemory, Run, SampleRanges, Samples, SeriesInMemory, Trainer};

use crate::made_up::market;

/// A run by what is special of it; it tells how far the device was off.
pub(crate) type Case = (&'static str, fn(&Device) -> Result<String, Box<dyn Error>>);

/// The cases.
pub(crate) const CASES: &[Case] = &[
    ("a run in fp32 is the CPU's", |device| same(device, &run_config(Precision::Fp32), &series())),
    ("a run in TF32 is the CPU's", |device| {
        same(device, &Config { tf32: true, ..run_config(Precision::Fp32) }, &series())
    }),
    ("a run in bf16 is the CPU's", |device| same(device, &run_config(Precision::Bf16), &series())),
    ("a run in fp16 is the CPU's", |device| same(device, &run_config(Precision::Fp16), &series())),
    ("a run over windows that are stored is the CPU's", |device| {
        same(device, &run_config(Precision::Bf16), &windows())
    }),
    ("a run whose kernels are chosen by measurement is the CPU's", |device| {
        same(device, &Config { autotune: Tuning::Fast, ..run_config(Precision::Bf16) }, &series())
    }),
    ("a run of two layers with dropout, norms, pooling and fusion by attention is the CPU's", |device| {
        same(device, &whole(), &series())
    }),
    ("a run whose layers share the memory of gates is the CPU's", |device| {
        same(device, &Config { gradient_checkpointing: true, ..whole() }, &series())
    }),
    ("a dense run is the CPU's", |device| {
        let config = Config { loss_on: LossOn::EveryStep, run_length: Some(16), ..run_config(Precision::Bf16) };
        same(device, &config, &series())
    }),
    ("a run whose windows start from carried states is the CPU's", |device| {
        let config = Config { carry_state: true, ..run_config(Precision::Bf16) };
        same(device, &config, &series())?;
        let dense = Config { loss_on: LossOn::EveryStep, run_length: Some(16), ..config };
        same(device, &dense, &series())
    }),
    ("a run over graphs by GAT, with dropout everywhere, is the CPU's", |device| {
        same(device, &over_graphs(AttentionKind::Gat, Readout::Node), &market(SAMPLES))
    }),
    ("a run over graphs by GATv2, read out and ranked, is the CPU's", |device| {
        let config = over_graphs(AttentionKind::GatV2, Readout::Node);
        same(device, &Config { loss: Loss::RankPairwise, ..config }, &market(SAMPLES))?;
        let mut graphs = market(SAMPLES);
        graphs.label_graphs();
        same(device, &over_graphs(AttentionKind::GatV2, Readout::Max), &graphs)
    }),
    ("a run of a layer of 130 units is the CPU's", |device| {
        let config = run_config(Precision::Bf16);
        same(device, &Config { model: ModelConfig { hidden: 130, ..config.model }, ..config }, &series())
    }),
];

const SAMPLES: usize = 200;

fn shape() -> SampleShape {
    let timeframe = |name: &str, steps, features| Timeframe { name: name.to_owned(), steps, features };
    SampleShape { timeframes: vec![timeframe("M1", 12, 5), timeframe("M5", 6, 3)], outputs: 2 }
}

fn wave(len: usize, pace: f32) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * pace).sin()).collect()
}

/// Samples one bar of M1 apart, five of which share a window of M5.
fn series() -> SeriesInMemory {
    let timeframe_series = |(timeframe, bars): (&Timeframe, usize)| {
        let ends: Vec<i64> = (0..SAMPLES).map(|n| (timeframe.steps - 1 + n / bars) as i64).collect();
        (wave((ends[SAMPLES - 1] as usize + 1) * timeframe.features, 0.7), ends)
    };
    let series = shape().timeframes.iter().zip([1, 5]).map(timeframe_series).collect();
    SeriesInMemory::new(shape(), series, wave(2 * SAMPLES, 0.03)).expect("the arrays have the shape's sizes")
}

/// As many that share nothing.
fn windows() -> InMemory {
    let windows = |timeframe: &Timeframe| wave(SAMPLES * timeframe.steps * timeframe.features, 0.7);
    let features = shape().timeframes.iter().map(windows).collect();
    InMemory::new(shape(), features, wave(2 * SAMPLES, 0.03)).expect("the arrays have the shape's sizes")
}

/// Two epochs and some of samples in short runs, so that batches are of several shapes and most
/// come again.
fn run_config(precision: Precision) -> Config {
    let model = ModelConfig { hidden: 20, layers: 1, ..ModelConfig::default() };
    let mut config = Config { model, precision, batch_size: 32, threads: 1, seed: 11, ..Config::default() };
    (config.max_steps, config.run_length, config.optimizer.lr) = (Some(14), Some(4), 0.02);
    config.autotune = Tuning::Off;
    config
}

fn whole() -> Config {
    let mut config = run_config(Precision::Bf16);
    config.dropout = 0.2;
    // The bias of keys has no gradient but what rounding leaves, of which AdamW would follow the
    // sign.
    config.optimizer.epsilon = 1e-4;
    let attention = Fusion::Attention { heads: 4, feed_forward: 2 };
    let model = ModelConfig { layers: 2, layer_norm: true, fusion: attention, ..config.model };
    Config { model: ModelConfig { pooling: Pooling::Attention { heads: 2 }, ..model }, ..config }
}

/// Two layers of attention with two attributes an edge.
fn over_graphs(attention: AttentionKind, readout: Readout) -> Config {
    let mut config = run_config(Precision::Fp32);
    config.dropout = 0.2;
    config.optimizer.epsilon = 1e-4;
    let graph = GraphConfig {
        attention,
        heads: 2,
        hidden: 5,
        dropout: 0.2,
        attention_dropout: 0.3,
        residual: true,
        output: GraphOutput::Attention,
        ..GraphConfig::default()
    };
    let model = ModelConfig { graph: Some(graph), graph_edge_attributes: 2, readout: Some(readout), ..config.model };
    Config { model, batch_size: 8, run_length: Some(1), ..config }
}

/// By how much a loss may be off, of the largest: by the order of sums and the GPU's exponentials
/// in single precision, in 16 bits by what rounding on either side of a middle makes of numbers
/// with 11 significant bits or with 8; TF32 has 11, too.
fn tolerance(config: &Config) -> f64 {
    match config.precision {
        Precision::Fp32 if config.tf32 => 2e-2,
        Precision::Fp32 => 1e-3,
        Precision::Fp16 => 2e-2,
        Precision::Bf16 => 6e-2,
    }
}

fn same(device: &Device, config: &Config, samples: &dyn Samples) -> Result<String, Box<dyn Error>> {
    let shape = || samples.shape().clone();
    let expected = losses(&mut Trainer::new(&Device::cpu(), config.clone(), shape())?, samples)?;
    let found = losses(&mut Trainer::on_gpu(device, &Device::cpu(), config.clone(), shape())?, samples)?;
    let most = expected.iter().fold(0.0f64, |most, loss| most.max(loss.abs()));
    let off = |(found, expected): (&f64, &f64)| (found - expected).abs() / most;
    let farthest = found.iter().zip(&expected).map(off).fold(0.0, f64::max);
    let text = format!("losses within {farthest:.1e} of the CPU's");
    // A loss that is NaN is off, too.
    if found.len() == expected.len() && found.iter().all(|loss| loss.is_finite()) && farthest <= tolerance(config) {
        return Ok(text);
    }
    Err(format!("{text}, not {:.0e}: {found:?} where {expected:?} is right", tolerance(config)).into())
}

/// Losses of steps and of validations, in their order.
fn losses(trainer: &mut Trainer, samples: &dyn Samples) -> Result<Vec<f64>, Box<dyn Error>> {
    let train = SampleRanges::from(0..180);
    let run = Run { samples, train: &train, validation: &SampleRanges::from_iter([185, 190, 199]), checkpoints: None };
    let mut losses = Vec::new();
    trainer.train(&run, &mut |event| {
        match event {
            Event::Step(step) => losses.push(step.loss),
            Event::Validation(validation) => losses.push(validation.loss),
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    Ok(losses)
}
