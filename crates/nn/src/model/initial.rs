//! The parameters that a run begins with.

use megabatch_gpu_core::Scope;
use megabatch_order::random::{Stream, uniform};

use crate::error::Result;
use crate::model::Model;
use crate::model::fusion::Fusion;
use crate::model::tensor::TensorSet;

/// Initial distribution of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Distribution {
    Zero,
    One,
    /// Drawn evenly from between minus this and this.
    Uniform(f64),
}

impl Model {
    /// Parameters as PyTorch draws them by default: uniform in ±1/√H for recurrent layers and in
    /// ±1/√D for the head; for nn.MultiheadAttention uniform in ±√(6 / 4H) where states come in and
    /// in ±1/√H where they go out, with biases of zero; for nn.LayerNorm one and zero; for a linear
    /// map uniform in ±1/√(its inputs); as PyTorch Geometric does for graph attention. The query of
    /// attention pooling is uniform in ±1/√H.
    ///
    /// Element `i` of tensor `name` is a function of (`seed`, `name`, `i`) alone.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) when the device has no room.
    pub fn initial_parameters(&self, scope: &Scope, seed: u64) -> Result<TensorSet> {
        let mut parameters = TensorSet::zeros(scope, self.layout())?;
        if let Some(attention) = self.decoder().attention.as_ref() {
            attention.initial(seed, &mut parameters);
        }
        for (name, _) in self.layout().tensors().filter(|(name, _)| !name.starts_with("graph.")) {
            let values = parameters.get_mut(name).expect("the parameters have this layout");
            match self.initial(name) {
                Distribution::Zero => {}
                Distribution::One => values.fill(1.0),
                Distribution::Uniform(bound) => {
                    for (index, value) in (0..).zip(values) {
                        *value = (bound * (2.0 * uniform(Stream { seed, name }, index) - 1.0)) as f32;
                    }
                }
            }
        }
        Ok(parameters)
    }

    fn initial(&self, name: &str) -> Distribution {
        let hidden = self.config().hidden as f64;
        if name.starts_with("head.") {
            return Distribution::Uniform(1.0 / (self.decoder().widths.top as f64).sqrt());
        }
        if name.ends_with("in_proj_weight") {
            // Xavier's: 6 over the numbers that come in and the 3H that go out.
            return Distribution::Uniform((6.0 / (4.0 * hidden)).sqrt());
        }
        if name.ends_with("in_proj_bias") || name.ends_with("out_proj.bias") {
            return Distribution::Zero;
        }
        if name.contains("norm") {
            return if name.ends_with("weight") { Distribution::One } else { Distribution::Zero };
        }
        if let (Fusion::Attention { feed_forward, .. }, true) = (self.config().fusion, name.contains("linear2")) {
            return Distribution::Uniform(1.0 / (feed_forward as f64 * hidden).sqrt());
        }
        Distribution::Uniform(1.0 / hidden.sqrt())
    }
}

#[cfg(test)]
mod tests {
    use megabatch_gpu_core::Device;

    use super::*;
    use crate::model::pooling::Pooling;
    use crate::model::{ModelConfig, SampleShape, Timeframe};

    fn shape(names: &[&str]) -> SampleShape {
        let timeframe = |name: &&str| Timeframe { name: (*name).to_owned(), steps: 2, features: 3 };
        SampleShape { timeframes: names.iter().map(timeframe).collect(), outputs: 2 }
    }

    #[test]
    fn initial_parameters_fill_their_interval_and_depend_on_nothing_else() {
        let scope = Device::cpu().scope("test");
        let pooling = Pooling::Attention { heads: 2 };
        let fusion = Fusion::Attention { heads: 4, feed_forward: 2 };
        let config = ModelConfig { hidden: 16, layers: 1, layer_norm: true, pooling, fusion, ..ModelConfig::default() };
        let draw = |names: &[&str], seed| {
            let model = Model::new(shape(names), config).unwrap();
            model.initial_parameters(&scope, seed).unwrap()
        };
        let (two, one) = (draw(&["M1", "H1"], 7), draw(&["H1"], 7));
        assert_eq!(two.get("lstm.H1.weight_hh_l0"), one.get("lstm.H1.weight_hh_l0"));
        assert_ne!(two.values(), draw(&["M1", "H1"], 8).values());
        for (name, bound) in [
            ("lstm.M1.weight_hh_l0", 0.25),
            ("head.weight", 0.25),
            ("pooling.H1.query", 0.25),
            ("pooling.H1.attention.in_proj_weight", (6.0 / 64f32).sqrt()),
            ("pooling.H1.attention.out_proj.weight", 0.25),
            ("fusion.linear1.weight", 0.25),
            ("fusion.linear2.weight", 1.0 / 32f32.sqrt()),
            ("fusion.norm1.weight", 1.0),
            ("norm.M1.l0.weight", 1.0),
            ("norm.H1.l0.bias", 0.0),
            ("fusion.norm2.bias", 0.0),
            ("pooling.H1.attention.in_proj_bias", 0.0),
            ("pooling.H1.attention.out_proj.bias", 0.0),
        ] {
            let largest = two.get(name).unwrap().iter().fold(0.0, |m: f32, x| m.max(x.abs()));
            assert!(largest <= bound && largest >= 0.8 * bound, "{name}: {largest} of {bound}");
        }
    }
}
