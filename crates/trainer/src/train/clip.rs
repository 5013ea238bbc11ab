#![forbid(unsafe_code)]

use megabatch_amp::{Threads, unscale_and_check};
use megabatch_nn::model::TensorSet;

/// The square root of the sum of the squares of all elements, summed in double precision.
pub fn global_norm(gradients: &TensorSet) -> f64 {
    unscale_and_check(&[gradients.values()], 1.0, Threads::Caller).norm
}

/// Scales all gradients by clip / (norm + 1e-6) where that is below 1, as
/// `torch.nn.utils.clip_grad_norm_` does.
pub fn clip_by_norm(gradients: &mut TensorSet, norm: f64, clip_norm: f64) {
    let coefficient = clip_norm / (norm + 1e-6);
    if coefficient < 1.0 {
        let coefficient = coefficient as f32;
        gradients.values_mut().iter_mut().for_each(|g| *g *= coefficient);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use megabatch_gpu_core::Device;
    use megabatch_nn::model::Layout;

    use super::*;

    #[test]
    fn gradients_above_the_limit_are_scaled_to_it() {
        for (clip, expected) in [(5.0, [3.0, 4.0]), (100.0, [3.0, 4.0]), (0.5, [0.3, 0.4])] {
            let mut layout = Layout::default();
            layout.push("g".to_owned(), &[2]);
            let mut gradients = TensorSet::zeros(&Device::cpu().scope("test"), &Arc::new(layout)).unwrap();
            gradients.values_mut().copy_from_slice(&[3.0, 4.0]);
            assert_eq!(global_norm(&gradients), 5.0);
            clip_by_norm(&mut gradients, 5.0, clip);
            // The 1e-6 in the denominator changes the result by a relative 2e-7.
            let close = gradients.values().iter().zip(expected).all(|(got, want)| (got - want).abs() <= 1e-6 * want);
            assert!(close, "clip {clip}: {:?}", gradients.values());
        }
    }
}
