//! Looks at GPUs that are made up.

use super::*;

/// A GPU that is as busy as it is told to be, one look after the other, and has then gone.
#[cfg(test)]
pub(crate) struct FakeSampler(std::vec::IntoIter<f64>);

#[cfg(test)]
impl FakeSampler {
    pub(crate) fn busy(percents: &[f64]) -> Box<Self> {
        let percents = percents.to_vec();
        Box::new(FakeSampler(percents.into_iter()))
    }
}

#[cfg(test)]
impl Sampler for FakeSampler {
    fn sample(&mut self) -> Result<GpuSample, String> {
        self.0.next().map(sample).ok_or_else(|| "GPU is lost".to_owned())
    }
}

/// A look at a GPU.
pub fn sample(busy_percent: f64) -> GpuSample {
    GpuSample {
        busy_percent: Some(busy_percent),
        memory_used_bytes: Some(3e9),
        memory_total_bytes: Some(8e10),
        power_w: Some(351.25),
        celsius: Some(61.0),
        sm_mhz: Some(1980.0),
        memory_mhz: None,
    }
}
