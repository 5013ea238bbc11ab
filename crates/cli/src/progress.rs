//! Progress of long work: a bar with rate and time left on a terminal, a plain line now and then
//! elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use megabatch_run::{Progress, Work};

use crate::standard_error::tell;

/// Interval of lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Time before a bar is shown.
const SHOW_AFTER: Duration = Duration::from_millis(500);

/// Work of a known length under way, on standard error.
pub(crate) struct WorkDisplay {
    label: String,
    total: u64,
    first: u64,
    start: Instant,
    display: Display,
}

enum Display {
    Bar { bar: ProgressBar, is_shown: bool },
    Lines { last: Instant },
}

impl WorkDisplay {
    /// Work that begins.
    pub(crate) fn begin(work: Work<'_>) -> Self {
        let Work { label, total, unit } = work;
        let display = if std::io::stderr().is_terminal() {
            let template =
                format!("{label} [{{bar:30}}] {{human_pos}}/{{human_len}} {unit}  {{per_sec}}  {{eta}} left  {{msg}}");
            let style = ProgressStyle::with_template(&template).expect("the template is well-formed");
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
            Display::Bar { bar: bar.with_style(style.progress_chars("=> ")), is_shown: false }
        } else {
            Display::Lines { last: Instant::now() }
        };
        WorkDisplay { label: label.to_owned(), total, first: 0, start: Instant::now(), display }
    }

    /// Draws the bar from now on.
    fn show(&mut self) {
        if let Display::Bar { bar, is_shown } = &mut self.display
            && !std::mem::replace(is_shown, true)
        {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Progress for WorkDisplay {
    fn begin_at(&mut self, first: u64) {
        self.first = first;
        self.show();
        if let Display::Bar { bar, .. } = &self.display {
            bar.set_position(first);
            bar.reset_eta();
        }
    }

    fn at(&mut self, done: u64, message: &str) {
        if self.start.elapsed() >= SHOW_AFTER {
            self.show();
        }
        match &mut self.display {
            Display::Bar { bar, .. } => {
                bar.set_position(done);
                bar.set_message(message.to_owned());
            }
            Display::Lines { last } if last.elapsed() >= LINE_INTERVAL => {
                *last = Instant::now();
                let pace = Throughput { first: self.first, done, total: self.total, elapsed: self.start.elapsed() };
                tell(pace.line(&self.label, message));
            }
            Display::Lines { .. } => {}
        }
    }

    /// The line stands above the bar where there is one.
    fn note(&self, text: &str) {
        match &self.display {
            Display::Bar { bar, is_shown: true } => bar.println(text),
            Display::Bar { .. } | Display::Lines { .. } => tell(text),
        }
    }
}

impl Drop for WorkDisplay {
    fn drop(&mut self) {
        if let Display::Bar { bar, .. } = &self.display {
            bar.finish_and_clear();
        }
    }
}

/// Progress and rate of work.
struct Throughput {
    first: u64,
    done: u64,
    total: u64,
    elapsed: Duration,
}

impl Throughput {
    fn line(&self, label: &str, message: &str) -> String {
        let Throughput { first, done, total, elapsed } = *self;
        let rate = done.saturating_sub(first) as f64 / elapsed.as_secs_f64().max(1e-9);
        let left_s = total.saturating_sub(done) as f64 / rate;
        let left = if rate > 0.0 { format!("{left_s:.0} s left") } else { "time left unknown".to_owned() };
        format!("{label} {done}/{total}  {rate:.1}/s  {left}  {message}").trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_rate_and_time_left() {
        let line = |first, done, seconds, message: &str| {
            Throughput { first, done, total: 200, elapsed: Duration::from_secs(seconds) }.line("train", message)
        };
        assert_eq!(line(0, 50, 10, "loss 1"), "train 50/200  5.0/s  30 s left  loss 1");
        assert_eq!(line(100, 150, 10, ""), "train 150/200  5.0/s  10 s left");
        assert_eq!(line(0, 0, 1, ""), "train 0/200  0.0/s  time left unknown");
        assert_eq!(line(0, 300, 10, ""), "train 300/200  30.0/s  0 s left");
    }
}
