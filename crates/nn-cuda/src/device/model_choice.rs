//! The model on a device, and its memory, that a configuration asks for.

use half::{bf16, f16};
use megabatch_amp::Precision;
use megabatch_gpu_core::Scope;
use megabatch_nn::Result;
use megabatch_nn::memory::{LargestBatch, PlannedTensor};
use megabatch_nn::model::Model;

use super::bucketing::bucket_largest;
use super::device_model::DeviceModel;
use super::graphs::{self, GraphModel};
use super::lstm_model::{self, LstmModel};
use super::memory_estimate::{MemoryEstimate, MostRows};
use super::weights::Resident;
use crate::ComputeConfig;
use crate::tuning::Tuner;

/// The model of a run with `config`, on scopes below `scope`, whose kernels `tuner` chooses.
pub(super) fn device_model(
    scope: &Scope,
    model: &Model,
    config: &ComputeConfig,
    tuner: &Tuner,
) -> Result<Box<dyn DeviceModel>> {
    if model.config().is_over_graphs() {
        return Ok(Box::new(GraphModel::new(scope, model, config, tuner)?));
    }
    Ok(match config.precision {
        Precision::Fp32 => Box::new(LstmModel::<f32>::new(scope, model, config, tuner)?),
        Precision::Bf16 => Box::new(LstmModel::<bf16>::new(scope, model, config, tuner)?),
        Precision::Fp16 => Box::new(LstmModel::<f16>::new(scope, model, config, tuner)?),
    })
}

/// The tensors of a run with `config`, of which `batch` is the most that one brings.
pub fn tensors(model: &Model, config: &ComputeConfig, batch: &LargestBatch) -> Vec<PlannedTensor> {
    let batch = &*bucket_largest(model, config, batch);
    let learnt = batch.learnt();
    let (rows, rows_learnt) = (batch.rows(), learnt.rows());
    let rows = MostRows { all: &rows, learnt: &rows_learnt };
    let mut estimate = MemoryEstimate::new(model, config, batch, &learnt, rows);
    Resident::estimate(&mut estimate);
    match config.precision {
        _ if model.config().is_over_graphs() => graphs::estimate(&mut estimate),
        Precision::Fp32 => lstm_model::estimate::<f32>(&mut estimate),
        Precision::Bf16 => lstm_model::estimate::<bf16>(&mut estimate),
        Precision::Fp16 => lstm_model::estimate::<f16>(&mut estimate),
    }
    estimate.into_tensors()
}

#[cfg(test)]
mod tests {
    use megabatch_gpu_core::Device;
    use megabatch_nn::model::{ModelConfig, Pooling, SampleShape, Timeframe};

    use super::*;
    use crate::device::Accelerator;

    #[test]
    fn an_engine_takes_the_parameters_that_were_planned() {
        let timeframe = Timeframe { name: "M1".to_owned(), steps: 4, features: 3 };
        let shape = SampleShape { timeframes: vec![timeframe], outputs: 2 };
        let batch = LargestBatch { steps: vec![4], windows: vec![0], bars: vec![0], ..LargestBatch::default() };
        let pooling = Pooling::Attention { heads: 2 };
        let model = ModelConfig { hidden: 24, layers: 2, pooling, layer_norm: true, ..ModelConfig::default() };
        let model = Model::new(shape, model).unwrap();
        for precision in [Precision::Fp32, Precision::Bf16, Precision::Fp16] {
            let config = ComputeConfig { has_moments: true, ..ComputeConfig::for_prediction(precision) };
            let planned = tensors(&model, &config, &batch);
            let device = Device::planning();
            let _engine = Accelerator::new(&device, &model, &config).unwrap();
            for (part, label) in [("parameters", "gpu/model/parameters"), ("optimizer", "gpu/optimizer")] {
                let scopes = device.usage_by_scope().into_iter().filter(|(scope, _)| scope.starts_with(label));
                let taken: usize = scopes.map(|(_, usage)| usage.allocated_bytes).sum();
                let tensors = planned.iter().filter(|tensor| tensor.part == part);
                assert_eq!(tensors.map(|tensor| tensor.bytes).sum::<usize>(), taken, "{part} in {precision:?}");
            }
        }
    }
}
