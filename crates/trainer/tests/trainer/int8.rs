//! Predicting with weights in eight bits.

use megabatch_amp::{Accuracy, QuantizedMatrix};
use megabatch_gpu_core::Device;
use megabatch_nn::model::{
    Cell, Model, ModelConfig, Pooling, SampleShape, TensorSet, Timeframe, load_weights, save_weights,
};
use megabatch_nn_cpu::Compute;
use megabatch_trainer::{Error, Predictor, SampleRanges, Selection, SeriesInMemory};

/// Two timeframes of ninety samples that follow one another, and bars of which one feature is much
/// larger than the others.
fn samples() -> SeriesInMemory {
    let timeframe = |name: &str, steps, features| Timeframe { name: name.to_owned(), steps, features };
    let shape = SampleShape { timeframes: vec![timeframe("M1", 21, 19), timeframe("H1", 9, 5)], outputs: 3 };
    let series = shape.timeframes.iter().map(|timeframe| {
        let number = |i: usize| (i as f32 * 0.37).sin() * if i % timeframe.features == 1 { 20.0 } else { 1.0 };
        let values = (0..(90 + timeframe.steps) * timeframe.features).map(number).collect();
        (values, (0..90).map(|n| (n + timeframe.steps - 1) as i64).collect())
    });
    let series = series.collect();
    SeriesInMemory::new(shape, series, vec![0.0; 270]).unwrap()
}

/// A model with the weights that training begins with, of so many units, beside a file of them.
struct Stage {
    folder: tempfile::TempDir,
    config: ModelConfig,
    samples: SeriesInMemory,
}

impl Stage {
    fn new(config: ModelConfig) -> Self {
        let stage = Stage { folder: tempfile::tempdir().unwrap(), config, samples: samples() };
        save_weights(&stage.file("exact"), &stage.initial()).unwrap();
        stage
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(format!("{name}.safetensors"))
    }

    fn model(&self) -> Model {
        Model::new(megabatch_trainer::Samples::shape(&self.samples).clone(), self.config).unwrap()
    }

    fn initial(&self) -> TensorSet {
        self.model().initial_parameters(&Device::cpu().scope("initial"), 3).unwrap()
    }

    fn predictor(&self, name: &str, threads: usize, batch_size: usize) -> Predictor {
        let compute = Compute { threads, batch_size };
        Predictor::open(&Device::cpu(), self.model(), &self.file(name), compute).unwrap()
    }

    fn predictions(&self, mut predictor: Predictor) -> Vec<f32> {
        let indices = SampleRanges::from(0..90);
        let mut all = Vec::new();
        let selection = Selection { samples: &self.samples, indices: &indices };
        predictor
            .predict(selection, |_, outputs| {
                all.extend_from_slice(outputs);
                Ok::<(), Error>(())
            })
            .unwrap();
        all
    }

    fn int8(&self, threads: usize, batch_size: usize) -> Vec<f32> {
        self.predictions(self.predictor("exact", threads, batch_size).with_int8().unwrap())
    }
}

fn configs() -> [ModelConfig; 4] {
    let config = ModelConfig { hidden: 37, layers: 2, ..ModelConfig::default() };
    let attention = ModelConfig { pooling: Pooling::Attention { heads: 1 }, layer_norm: true, ..config };
    [config, ModelConfig { layers: 1, bias: false, ..config }, attention, ModelConfig { cell: Cell::Gru, ..config }]
}

/// Weights in eight bits and nothing else: the same model with weights that were rounded to them,
/// in single precision, predicts the same but for the fourteen bits of what they are multiplied
/// with.
#[test]
fn the_error_is_that_of_the_weights() {
    for config in configs() {
        let stage = Stage::new(config);
        let mut rounded = stage.initial();
        load_weights(&stage.file("exact"), &mut rounded).unwrap();
        let names: Vec<(String, Vec<usize>)> =
            rounded.layout().tensors().map(|(name, shape)| (name.to_owned(), shape.to_vec())).collect();
        let matrices = names.iter().filter(|(name, shape)| name.contains("weight_") && shape.len() == 2);
        for (name, shape) in matrices.clone() {
            let weights = rounded.get_mut(name).unwrap();
            let matrix = QuantizedMatrix::quantize(weights, shape[0], shape[1]).unwrap();
            weights.copy_from_slice(&matrix.dequantized());
        }
        save_weights(&stage.file("rounded"), &rounded).unwrap();

        let int8 = stage.predictor("exact", 1, 32).with_int8().unwrap();
        let names: Vec<&str> = int8.weight_errors().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, matrices.map(|(name, _)| name.as_str()).collect::<Vec<_>>());
        assert!(int8.weight_errors().iter().all(|(_, errors)| (35.0..55.0).contains(&errors.sqnr_db)));

        let exact = stage.predictions(stage.predictor("exact", 1, 32));
        let found = stage.predictions(int8);
        let rounded_weights = stage.predictions(stage.predictor("rounded", 1, 32));
        let (all, activations) = (Accuracy::new(&exact, &found), Accuracy::new(&rounded_weights, &found));
        assert!(all.sqnr_db > 30.0 && all.max_error > 0.0, "{config:?}: {all}");
        assert!(activations.rms_error < 0.1 * all.rms_error, "{config:?}: {activations} of {all}");
    }
}

#[test]
fn threads_change_nothing_and_batches_no_more_than_rounding() {
    for config in configs() {
        let stage = Stage::new(config);
        let expected = stage.int8(1, 40);
        for threads in [2, 3] {
            assert_eq!(stage.int8(threads, 40), expected, "{config:?}, {threads} threads");
        }
        // Few windows take another way than many, in eight bits and in single precision.
        let exact = stage.predictions(stage.predictor("exact", 1, 40));
        for batch in [1, 3, 7] {
            let alone = Accuracy::new(&expected, &stage.int8(2, batch));
            assert!(alone.max_error < 1e-6, "{config:?}, batches of {batch}: {alone}");
            let alone = Accuracy::new(&exact, &stage.predictions(stage.predictor("exact", 2, batch)));
            assert!(alone.max_error < 1e-6, "{config:?}, batches of {batch} in single precision: {alone}");
        }
    }
}

#[test]
fn carried_state_goes_on_in_eight_bits() {
    let stage = Stage::new(configs()[0]);
    let streamed = |predictor: Predictor| stage.predictions(predictor.with_carried_state());
    let exact = streamed(stage.predictor("exact", 2, 16));
    let found = streamed(stage.predictor("exact", 2, 16).with_int8().unwrap());
    let accuracy = Accuracy::new(&exact, &found);
    assert!(accuracy.sqnr_db > 30.0 && accuracy.max_error > 0.0, "{accuracy}");
}
