//! Warnings about a collapsing loss scale in fp16, with advice.

use std::collections::VecDeque;

use megabatch_trainer::{Event, StepEvent};
use serde_json::{Value, json};

/// The smallest useful scale. A smaller one shrinks gradients before they are rounded.
const LEAST: f32 = 1.0;
/// Steps that are judged together, and how many of them may overflow. A settled scale overflows
/// once in 2,000 steps; a new one some ten times in a row.
const STEPS: usize = 100;
const OVERFLOWS_MAX: usize = 25;

/// Watches the loss scale. It warns once.
#[derive(Default)]
pub(super) struct ScaleWatch {
    /// True if each of the last steps overflowed.
    last: VecDeque<bool>,
    has_told: bool,
}

/// A loss scale that does not hold.
pub(super) struct Collapse {
    step: u64,
    scale: f32,
    /// Steps that changed nothing.
    overflows: usize,
    steps: usize,
    /// The gradient that was too large.
    overflow: String,
}

impl ScaleWatch {
    /// Counts `event`. Returns the warning that is due after it.
    pub(super) fn see(&mut self, event: &Event<'_>) -> Option<Collapse> {
        let Event::Step(StepEvent { step, loss_scale: Some(scale), overflow, .. }) = event else { return None };
        self.last.push_back(overflow.is_some());
        if self.last.len() > STEPS {
            self.last.pop_front();
        }
        let overflows = self.last.iter().filter(|&&overflowed| overflowed).count();
        let overflow = overflow.as_ref().filter(|_| *scale <= LEAST || overflows > OVERFLOWS_MAX)?.clone();
        let is_news = !std::mem::replace(&mut self.has_told, true);
        is_news.then_some(Collapse { step: *step, scale: *scale, overflows, steps: self.last.len(), overflow })
    }
}

impl Collapse {
    /// Its line in metrics.jsonl.
    pub(super) fn metric(&self) -> Value {
        let Collapse { step, scale, overflows, steps, overflow } = self;
        json!({
            "event": "loss_scale",
            "step": step,
            "loss_scale": scale,
            "overflows": overflows,
            "of_steps": steps,
            "overflow": overflow,
        })
    }

    /// Message for the user.
    pub(super) fn sentence(&self) -> String {
        let Collapse { scale, overflows, steps, overflow, .. } = self;
        format!(
            "the loss scale of fp16 does not hold: {overflows} of the last {steps} steps changed nothing, now at a scale of {scale} for \
             {overflow}; lower training.lr, raise training.warmup_steps, or take training.precision=bf16, whose range is that of fp32"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::fixtures::step;

    /// Messages of steps at these scales, of which every `period`-th overflows.
    fn told(steps: u64, scale: f32, period: u64) -> Vec<(u64, String)> {
        let mut watch = ScaleWatch::default();
        let event = |at: u64| {
            let overflow = at.is_multiple_of(period).then(|| "head.weight[3]".to_owned());
            Event::Step(StepEvent { loss_scale: Some(scale), overflow, ..step(at) })
        };
        (1..=steps).filter_map(|at| watch.see(&event(at))).map(|found| (found.step, found.sentence())).collect()
    }

    #[test]
    fn a_collapse_is_told_once_with_its_tensor() {
        let found = told(300, 0.5, 50);
        let [(50, sentence)] = &found[..] else { panic!("{found:?}") };
        assert!(
            sentence.contains("1 of the last 50 steps changed nothing, now at a scale of 0.5 for head.weight[3]"),
            "{sentence}"
        );
        // Every third of a hundred steps is more than a quarter: known when the 26th of them has
        // overflowed.
        let found = told(300, 1024.0, 3);
        assert_eq!(found.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [78]);
    }

    #[test]
    fn a_scale_that_finds_its_place_is_not_told() {
        assert_eq!(told(300, 2.0, 4), []);
        assert_eq!(told(25, 65_536.0, 1), []);
        let mut watch = ScaleWatch::default();
        assert!((1..=200).all(|at| watch.see(&Event::Step(step(at))).is_none()), "fp32 has no scale");
        let low = |at| Event::Step(StepEvent { loss_scale: Some(0.25), ..step(at) });
        assert!((1..=200).all(|at| watch.see(&low(at)).is_none()), "a low scale that holds");
    }

    #[test]
    fn a_line_of_the_log_has_the_counts() {
        let event = StepEvent { loss_scale: Some(1.0), overflow: Some("head.bias[0]".to_owned()), ..step(7) };
        let line = ScaleWatch::default().see(&Event::Step(event)).unwrap().metric();
        let expected = json!({
            "event": "loss_scale", "step": 7, "loss_scale": 1.0, "overflows": 1, "of_steps": 1, "overflow": "head.bias[0]"
        });
        assert_eq!(line, expected);
    }
}
