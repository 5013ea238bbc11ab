//! Time of a step by layer, for runs that ask for it: see
//! [`Config::profile`](crate::Config::profile).

use std::time::{Duration, Instant};

use megabatch_nn::model::Model;
use serde::Serialize;

/// The time of one step by timeframe and layer, in seconds of all threads together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Profile {
    /// Layer by layer, one timeframe after another.
    pub layers: Vec<LayerTimes>,
    /// Attention pooling of each timeframe; none without it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pooling: Vec<PoolingTimes>,
    /// Fusion, the head and what else follows the encoder.
    pub decoder: PassTimes,
}

/// The time of one recurrent layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LayerTimes {
    /// Its timeframe.
    pub timeframe: String,
    /// Its place, from 0.
    pub layer: usize,
    /// Products of what it reads with W_ih, forward.
    pub projection_s: f64,
    /// The recurrence, forward.
    pub recurrence_s: f64,
    /// The recurrence and the gradient of what it reads, backward; with gradient checkpointing what
    /// is computed again, too.
    pub backward_s: f64,
    /// Gradients of the weights.
    pub weight_gradients_s: f64,
}

/// The time of attention pooling in one timeframe.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PoolingTimes {
    /// The timeframe.
    pub timeframe: String,
    /// Both passes.
    #[serde(flatten)]
    pub passes: PassTimes,
}

/// The time of a forward and a backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PassTimes {
    /// Forward.
    pub forward_s: f64,
    /// Backward.
    pub backward_s: f64,
}

/// Parts of a layer's time, in the order of [`LayerTimes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Projection,
    Recurrence,
    Backward,
    WeightGradients,
}

/// The time of one kind of work after another, added up in its place. Off, it never looks at the
/// clock.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    pub on: bool,
    spent: Vec<Duration>,
}

impl Clock {
    /// The time now, for [`Clock::stop`].
    pub fn start(&self) -> Option<Instant> {
        self.on.then(Instant::now)
    }

    /// Adds the time since `start` to that of `place`.
    pub fn stop(&mut self, start: Option<Instant>, place: usize) {
        let Some(start) = start else { return };
        if self.spent.len() <= place {
            self.spent.resize(place + 1, Duration::ZERO);
        }
        self.spent[place] += start.elapsed();
    }

    /// The same, of a layer's work.
    pub fn stop_layer(&mut self, start: Option<Instant>, layer: usize, work: Work) {
        self.stop(start, 4 * layer + work as usize);
    }

    /// Adds the times of `other`, which has none afterwards.
    pub fn take_from(&mut self, other: &mut Clock) {
        if self.spent.len() < other.spent.len() {
            self.spent.resize(other.spent.len(), Duration::ZERO);
        }
        for (own, time) in self.spent.iter_mut().zip(&mut other.spent) {
            *own += std::mem::take(time);
        }
    }

    /// The seconds of `place` since they were taken last.
    fn take(&mut self, place: usize) -> f64 {
        self.spent.get_mut(place).map(std::mem::take).unwrap_or_default().as_secs_f64()
    }
}

impl Profile {
    /// Nothing yet, for a step of `model`.
    pub fn for_model(model: &Model) -> Self {
        let timeframes = &model.shape().timeframes;
        let layer =
            |timeframe: &str, layer| LayerTimes { timeframe: timeframe.to_owned(), layer, ..LayerTimes::default() };
        let layers = if model.recurrent_layers().is_empty() { 0 } else { model.config().layers };
        let pooled = timeframes.iter().take(model.poolings().len());
        Profile {
            layers: timeframes.iter().flat_map(|tf| (0..layers).map(|l| layer(&tf.name, l))).collect(),
            pooling: pooled.map(|tf| PoolingTimes { timeframe: tf.name.clone(), ..PoolingTimes::default() }).collect(),
            decoder: PassTimes::default(),
        }
    }

    /// Adds what the clocks of a thread have: one a timeframe, and one of the decoder and, after
    /// it, pooling in each timeframe.
    pub fn add<'a>(&mut self, clocks: impl Iterator<Item = &'a mut Clock>, behind: &mut Clock) {
        let layers = self.layers.iter().map(|times| times.layer + 1).max().unwrap_or(0);
        for (own, clock) in self.layers.chunks_mut(layers.max(1)).zip(clocks) {
            for (l, times) in own.iter_mut().enumerate() {
                times.projection_s += clock.take(4 * l);
                times.recurrence_s += clock.take(4 * l + 1);
                times.backward_s += clock.take(4 * l + 2);
                times.weight_gradients_s += clock.take(4 * l + 3);
            }
        }
        let passes = std::iter::once(&mut self.decoder).chain(self.pooling.iter_mut().map(|times| &mut times.passes));
        for (k, passes) in passes.enumerate() {
            passes.forward_s += behind.take(2 * k);
            passes.backward_s += behind.take(2 * k + 1);
        }
    }
}
