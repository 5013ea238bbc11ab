//! The measurement of one case, for the program and for a test of it on a fake driver.

pub(crate) mod roofline;
pub(crate) mod stack;

use std::time::Instant;

use half::{bf16, f16};
use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::{Error, Result};
use megabatch_nn_cuda::ops::Operand;
use serde::{Deserialize, Serialize};

use roofline::{Card, Times};
use stack::Stack;

/// Timed layers over windows that share nothing, each of its own bars, as nn.LSTM has them.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) hidden: usize,
    pub(crate) layers: usize,
    pub(crate) features: usize,
    pub(crate) batch: usize,
    pub(crate) steps: usize,
    pub(crate) precision: Precision,
    /// For how long runs of each part are repeated.
    pub(crate) budget_s: f64,
}

/// Measured times, or the reason for none. Times are of one step of the windows, of all layers.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Answer {
    pub(crate) device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Projections of the inputs and recurrence; and with the way back, to the gradients of all
    /// weights.
    #[serde(flatten)]
    pub(crate) layers: Times,
    /// The recurrence alone, forward; and forward and backward, to the gradients of gates.
    pub(crate) recurrence: Times,
    pub(crate) peak_allocated_bytes: usize,
    /// The least that a card of this name takes for recurrence and dW_hh:
    /// docs/measurements/gpu.md, "Roofline".
    pub(crate) floor: Option<Times>,
    /// The time of the same by a count of clocks.
    pub(crate) predicted: Option<Times>,
}

impl Answer {
    #[allow(dead_code, reason = "the test of this program expects answers")]
    pub(crate) fn failed(error: &Error) -> Self {
        Answer { error: Some(error.to_string()), ..Answer::default() }
    }
}

/// Measures a case.
///
/// # Errors
/// Errors of the device, such as that there is no memory.
pub(crate) fn measure(device: &Device, case: &Case) -> Result<Answer> {
    match case.precision {
        Precision::Fp32 => measure_in::<f32>(device, case),
        Precision::Bf16 => measure_in::<bf16>(device, case),
        Precision::Fp16 => measure_in::<f16>(device, case),
    }
}

fn measure_in<T: Operand>(device: &Device, case: &Case) -> Result<Answer> {
    device.reset_peak();
    let mut stack = Stack::<T>::new(device, case)?;
    let clock = Clock { device, budget_s: case.budget_s, steps: case.steps };
    let forward_us = clock.us_a_step(&mut || stack.forward())?;
    let both_us = clock.us_a_step(&mut || {
        stack.forward()?;
        stack.backward()
    })?;
    let recurrence_us = clock.us_a_step(&mut || stack.recur())?;
    let recurrences_us = clock.us_a_step(&mut || {
        stack.recur()?;
        stack.unwind()
    })?;
    let card = device.gpu().and_then(|gpu| Card::for_device(gpu.properties()));
    Ok(Answer {
        device: device.gpu().map_or_else(|| device.to_string(), |gpu| gpu.properties().name.clone()),
        error: None,
        layers: Times { forward_us, both_us },
        recurrence: Times { forward_us: recurrence_us, both_us: recurrences_us },
        peak_allocated_bytes: device.usage().allocated_bytes_peak,
        floor: card.as_ref().map(|card| card.floor(case)),
        predicted: card.as_ref().and_then(|card| card.predicted(case)),
    })
}

/// Repeats what it times.
struct Clock<'a> {
    device: &'a Device,
    budget_s: f64,
    steps: usize,
}

impl Clock<'_> {
    /// Microseconds a step of `run`, over as many runs as fill the time, submitted one behind the
    /// other. The first run, which loads what is loaded late, does not count, and the second tells
    /// how many there are to be.
    fn us_a_step(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        self.seconds(1, run)?;
        let once_s = self.seconds(1, run)?;
        let runs = (self.budget_s / once_s.max(1e-9)).clamp(1.0, 1e4) as u32;
        Ok(self.seconds(runs, run)? / f64::from(runs) / self.steps as f64 * 1e6)
    }

    /// Seconds from the moment before `runs` runs to that after them in the default stream, by the
    /// GPU's events; on the CPU, which does things at once, by its clock.
    fn seconds(&self, runs: u32, run: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        let Some(gpu) = self.device.gpu() else {
            let start = Instant::now();
            (0..runs).try_for_each(|_| run())?;
            return Ok(start.elapsed().as_secs_f64());
        };
        let (stream, start, end) = (gpu.default_stream(), gpu.event()?, gpu.event()?);
        start.record(&stream)?;
        (0..runs).try_for_each(|_| run())?;
        end.record(&stream)?;
        end.wait()?;
        Ok(f64::from(end.elapsed_ms_since(&start)?) / 1e3)
    }
}
