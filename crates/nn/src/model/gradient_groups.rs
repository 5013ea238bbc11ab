//! Parameters in the order in which a backward pass is done with their gradients.

use std::cmp::Reverse;
use std::ops::Range;

use super::Model;
use super::recurrent::LayerSlots;
use super::tensor::Layout;

impl Model {
    /// Places of all parameters in groups, in the order in which a backward pass is done with their
    /// gradients: the layers above the encoder, then timeframe by timeframe the pooling and the
    /// recurrent layers, the top one first.
    ///
    /// The order is a matter of the model alone.
    pub fn gradient_groups(&self) -> Vec<Range<usize>> {
        let mut groups = vec![self.decoder_range()];
        for k in self.backward_order() {
            groups.extend(self.pooling_range(k));
            groups.extend(self.recurrent_layers()[k].layers.iter().rev().map(|layer| layer.range(&self.layout)));
        }
        groups.retain(|group| !group.is_empty());
        groups
    }

    /// Timeframes in the order in which a backward pass goes through them: the one with the most
    /// work first.
    pub fn backward_order(&self) -> Vec<usize> {
        let work = |k: usize| {
            let sizes = self.recurrent_layers()[k].sizes;
            sizes.steps * (0..sizes.layers).map(|l| sizes.input(l) + sizes.hidden).sum::<usize>()
        };
        let mut order: Vec<usize> = (0..self.recurrent_layers().len()).collect();
        order.sort_by_key(|&k| Reverse(work(k)));
        order
    }

    /// Element range of the parameters above the encoder.
    pub fn decoder_range(&self) -> Range<usize> {
        let layers = self
            .recurrent_layers()
            .iter()
            .flat_map(|recurrent| &recurrent.layers)
            .map(|layer| layer.range(&self.layout).end);
        let poolings = (0..self.poolings().len()).filter_map(|k| self.pooling_range(k)).map(|range| range.end);
        layers.chain(poolings).max().unwrap_or(0)..self.layout.len()
    }

    /// Element range of the pooling of timeframe `k`; `None` without attention pooling.
    pub fn pooling_range(&self, k: usize) -> Option<Range<usize>> {
        let pooling = self.poolings().get(k)?;
        Some(pooling.start(&self.layout)..self.layout.range(pooling.out_bias).end)
    }
}

impl LayerSlots {
    /// Element range of the layer's parameters, which are contiguous.
    pub fn range(&self, layout: &Layout) -> Range<usize> {
        let bias = self.bias.map(|[_, bias_hh]| bias_hh);
        let last = self.norm.map(|norm| norm.bias).or(bias).unwrap_or(self.weight_hh);
        layout.range(self.weight_ih).start..layout.range(last).end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Encoder, Fusion, ModelConfig, Pooling, SampleShape, Timeframe};

    fn shape(steps: &[usize]) -> SampleShape {
        let timeframe = |(k, &steps)| Timeframe { name: format!("T{k}"), steps, features: 3 };
        SampleShape { timeframes: steps.iter().enumerate().map(timeframe).collect(), outputs: 2 }
    }

    #[test]
    fn groups_have_every_parameter_once() {
        let base = ModelConfig { hidden: 8, layers: 2, ..ModelConfig::default() };
        for config in [
            base,
            ModelConfig { bias: false, ..base },
            ModelConfig { layer_norm: true, pooling: Pooling::attention(8), ..base },
            ModelConfig { fusion: Fusion::attention(8), bias: false, pooling: Pooling::attention(8), ..base },
            ModelConfig { encoder: Encoder::LastBar, ..base },
        ] {
            let model = Model::new(shape(&[4, 9, 2]), config).unwrap();
            let mut groups = model.gradient_groups();
            groups.sort_by_key(|group| group.start);
            let mut ends = groups.iter().map(|group| group.end);
            let starts = std::iter::once(0).chain(ends.clone());
            assert!(groups.iter().map(|group| group.start).eq(starts.take(groups.len())), "{groups:?}");
            assert_eq!(ends.next_back(), Some(model.layout().len()));
        }
    }

    #[test]
    fn the_head_comes_first_and_the_top_layer_of_the_longest_windows_next() {
        let config = ModelConfig { hidden: 8, layers: 2, ..ModelConfig::default() };
        let model = Model::new(shape(&[4, 9]), config).unwrap();
        let first = |group: &Range<usize>| model.layout().element(group.start).0.to_owned();
        let names: Vec<String> = model.gradient_groups().iter().map(first).collect();
        let expected = [
            "head.weight",
            "lstm.T1.weight_ih_l1",
            "lstm.T1.weight_ih_l0",
            "lstm.T0.weight_ih_l1",
            "lstm.T0.weight_ih_l0",
        ];
        assert_eq!(names, expected);
    }
}
