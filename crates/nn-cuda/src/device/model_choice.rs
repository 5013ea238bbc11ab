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
