//! Messages while bars are followed: holes, incomplete windows, progress.

use std::time::{Duration, Instant};

use megabatch_bars::SeriesStep;

use super::bar_stream::BarStream;
use crate::host::Observer;
use crate::text::utc;

/// Least interval of progress messages.
const INTERVAL: Duration = Duration::from_secs(5);

/// Totals of a stream.
#[derive(Default)]
pub(super) struct StreamTotals {
    pub(super) bars: u64,
    pub(super) predictions: u64,
    /// Predictions for bars of the history that the output lacked.
    pub(super) history_predictions: u64,
    /// Predictions that the output had before.
    pub(super) already_written: u64,
    /// Lines that were dropped.
    pub(super) dropped: usize,
    /// Refused lines, each reported once.
    pub(super) refused: usize,
    /// Holes at which the states began anew.
    pub(super) holes: u64,
}

/// Progress of a stream.
pub(super) struct StreamProgress<'s> {
    symbol: &'s str,
    observer: &'s dyn Observer,
    /// True if the last bar had a prediction.
    predicts: bool,
    last_line: Instant,
    bars_at_last_line: u64,
}

impl<'s> StreamProgress<'s> {
    /// Before the first bar of `symbol`.
    pub(super) fn new(symbol: &'s str, observer: &'s dyn Observer) -> Self {
        StreamProgress { symbol, observer, predicts: true, last_line: Instant::now(), bars_at_last_line: 0 }
    }

    /// Says how many bars are needed before the first prediction, where there are any.
    pub(super) fn begin(&mut self, live: &BarStream<'_>) {
        let needed = live.bars_needed();
        self.predicts = needed.is_empty();
        if !self.predicts {
            self.say(&needed_text(&needed));
        }
    }

    /// Counts a bar, after its prediction.
    pub(super) fn see(&mut self, step: SeriesStep, live: &BarStream<'_>, tally: &StreamTotals) {
        if let Some(hole) = step.hole {
            let (from, to) = (utc(hole.from), utc(hole.to));
            let needed = needed_text(&live.bars_needed());
            self.say(&format!(
                "no bars from {from} to {to}, a hole that no window may span: the states begin anew; {needed}"
            ));
        } else if step.has_full_windows && !self.predicts {
            self.say(&format!("windows are full at {}: predictions begin", utc(step.close_time)));
        }
        self.predicts = step.has_full_windows;
        // One line a bar would be no help: bars come faster than that, or their predictions are
        // seen.
        let is_news = tally.bars > self.bars_at_last_line + 1 || !self.predicts;
        if is_news && self.last_line.elapsed() >= INTERVAL {
            let mut text =
                format!("{} bars up to {}, {} predictions", tally.bars, utc(step.close_time), tally.predictions);
            if !self.predicts {
                text.push_str(&format!("; {}", needed_text(&live.bars_needed())));
            }
            self.say(&text);
            (self.last_line, self.bars_at_last_line) = (Instant::now(), tally.bars);
        }
    }

    fn say(&self, text: &str) {
        self.observer.note(&format!("{}: {text}", self.symbol));
    }
}

/// The bars that must close before predictions go on.
pub(super) fn needed_text(needed: &[(String, usize)]) -> String {
    let each: Vec<String> = needed.iter().map(|(timeframe, bars)| format!("{bars} of {timeframe}")).collect();
    match each.is_empty() {
        true => "all windows are full".to_owned(),
        false => format!("bars needed before the next prediction: {}", each.join(", ")),
    }
}
