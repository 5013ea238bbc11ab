//! A prediction for each bar as it comes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use megabatch_bars::{
    Bar, BarLines, Bars, Error as BarsError, KnownBars, Result as BarsResult, SeriesStep, likely_symbol, named_pair,
};
use megabatch_gpu_core::Device;
use megabatch_nn_cpu::StreamingPredictor;
use serde_json::json;

use super::bar_stream::{BarStream, Streaming};
use super::forecast_lines::{ForecastLines, LineForm, LineOutcome};
use super::output_lock::OutputLock;
use super::stream_progress::{StreamProgress, StreamTotals, needed_text};
use super::streaming_model::{FollowRequest, History, StreamingModel, refuse};
use super::tail::{AtEnd, BarSource, Tail};
use crate::command_report::CommandReport;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::ingest::taken_for;
use crate::output;
use crate::setup::computing::DeviceRequest;
use crate::setup::settings::loss;
use crate::text::{plural, utc};

/// Destination of predictions, a line for each bar.
pub enum LineOutput<'a> {
    /// A file: CSV, or JSON if its name ends in `.jsonl`. Predictions that it has stay, and those
    /// of later bars follow them, those of the history first. That of its last bar is replaced if
    /// the bar is another one now. One process writes it at a time.
    File(&'a Path),
    /// Anything else.
    Writer {
        /// Each line is flushed.
        writer: Box<dyn Write + 'a>,
        /// Format of a line.
        form: LineForm,
    },
}

/// Predicts each bar of `source` as it comes, until there are no more.
///
/// # Errors
/// A usage error for a model that cannot follow bars, and for a file of other contents than its
/// predictions; a data error for lines that cannot be used.
pub fn follow(
    request: &FollowRequest,
    source: BarSource<'_>,
    output: LineOutput<'_>,
    host: &Host<'_>,
) -> Result<CommandReport> {
    let line_form = match &output {
        LineOutput::File(out) => LineForm::from_path(out)?,
        LineOutput::Writer { form, .. } => *form,
    };
    if let Some(gpu) = DeviceRequest::select(&request.device, host)?.gpu() {
        return Err(refuse(&format!(
            "--device {gpu}: states go on by one step a bar, which the CPU takes; leave --device out, or give cpu"
        )));
    }
    source.require_file()?;
    let subject = StreamingModel::open(request, source.name(), host)?;
    require_own_name(source.name(), &subject, request, host)?;
    let file = match &source {
        // What is read of a pipe does not come again.
        BarSource::File { path, .. } => Some(*path).filter(|path| path.is_file()),
        BarSource::Lines { .. } => None,
    };
    let options = subject.line_options(request);
    let mut tail = Tail::open(source)?;
    let (mut bars, summary) = subject.history(&request.history)?;
    let (name, known_until) = (tail.name().to_owned(), bars.open_time.last().copied());
    let bar_lines = || {
        let lines = BarLines::new(&name, &options, subject.base, known_until);
        let lines = match &summary {
            Some(summary) => lines.following(summary),
            None => lines,
        };
        let lines = if subject.has_volume() { lines.following_volumes() } else { lines };
        let lines = if subject.needs_volume() { lines.requiring_volume() } else { lines };
        match file {
            Some(path) => lines.in_file(path),
            None => lines,
        }
    };
    let mut lines = bar_lines().comparing_with(KnownBars::new(&bars));
    let mut first = Ok(Vec::new());
    if file.is_some() {
        let passed = PassedLines::read(&mut tail, &mut lines, host)?;
        first = passed.next;
        if let Some(bar) = passed.finished {
            replace_last(&mut bars, bar, &subject.symbol, host);
            lines = lines.comparing_with(KnownBars::new(&bars));
        }
    }
    let (mut live, history) = begin(&subject, &bars, &request.history, host)?;
    if let Some(path) = file {
        require_timeframe(path, bar_lines())?;
    }
    let (writer, lock): (Box<dyn Write + '_>, Option<(&Path, OutputLock)>) = match output {
        LineOutput::File(out) => {
            let mut inputs = subject.recipe.files();
            inputs.extend([tail.name(), &subject.data]);
            output::check(out, &inputs)?;
            let file = File::options().append(true).create(true).open(out)?;
            (Box::new(file.try_clone()?), Some((out, OutputLock::take(out, file)?)))
        }
        LineOutput::Writer { writer, .. } => (writer, None),
    };
    let (horizons, outputs) = subject.outputs();
    let loss = loss(&subject.config, horizons)?;
    let mut forecasts = ForecastLines::new(writer, line_form, loss, horizons, outputs, subject.name_told());
    let mut continued = None;
    if let Some((out, lock)) = lock {
        forecasts = forecasts.locked(lock);
        if std::fs::metadata(out).is_ok_and(|found| found.len() > 0) {
            forecasts.continue_file(out)?;
            continued = Some(out);
        }
    }
    host.observer.note(&greeting(&subject, &history, tail.name()));
    let mut without_lines = Vec::new();
    if let Some(last) = forecasts.last_time()
        && let Some(closes) = history.closes.filter(|closes| last < *closes)
    {
        let begins = (0..bars.len()).find(|&k| bars.close_time(k) >= last).unwrap_or(bars.len());
        // What functions give at bars of the past is not asked for again.
        let can_be_written = begins > 0 && host.functions.is_none();
        host.observer.note(&history_after_output(&subject.symbol, last, closes, can_be_written));
        if can_be_written {
            without_lines = (begins..bars.len()).map(|k| bars.bar(k)).collect();
            bars.truncate(begins);
            (live, _) = begin(&subject, &bars, &request.history, host)?;
        }
    }
    drop(bars);
    let mut progress = StreamProgress::new(&subject.symbol, host.observer);
    let totals = StreamTotals::default();
    let mut stream = Stream {
        live: &mut live,
        lines: &mut lines,
        progress: &mut progress,
        totals,
        after_finished: &|bar| {
            let (mut bars, _) = subject.history(&request.history)?;
            replace_last(&mut bars, bar, &subject.symbol, host);
            begin(&subject, &bars, &request.history, host)
        },
    };
    if without_lines.is_empty() {
        stream.renew_last(&history, &mut forecasts, host)?;
    } else {
        let lacking = stream.catch_up(&without_lines, &mut forecasts, host)?;
        if lacking > 0 {
            host.observer.note(&still_without_lines(&subject.symbol, lacking));
        }
    }
    drop(without_lines);
    // Lines of followed bars are counted apart.
    let history_predictions = std::mem::take(&mut stream.totals).predictions;
    stream.totals.history_predictions = history_predictions;
    if let Some(out) = continued.filter(|_| history_predictions > 0) {
        // The last line is another one now.
        forecasts.continue_file(out)?;
    }
    stream.progress.begin(stream.live);
    match stream.run(first, &mut tail, &mut forecasts, host) {
        // A reader that went away, as `head` does, is no error.
        Err(error) if error.find::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) => {}
        done => done?,
    }
    let totals = stream.totals;
    Ok(report(&subject, &history, tail.name(), &totals, lines.passed_over(), &live.bars_needed()))
}

/// Refuses bars that are named after another currency pair, unless the symbol is stated.
fn require_own_name(name: &Path, subject: &StreamingModel, request: &FollowRequest, host: &Host<'_>) -> Result<()> {
    let symbol = &subject.symbol;
    let Some(pair) = named_pair(name).filter(|pair| !is_of_pair(symbol, pair)) else { return Ok(()) };
    if request.symbol.is_some() {
        host.observer.note(&format!("warning: {}", taken_for(name, &pair, symbol)));
        return Ok(());
    }
    Err(Error::data(format!(
        "{}: bars of {pair} by its name, and {} has {symbol}; if bars of {symbol} are meant, add `--symbol {symbol}`",
        name.display(),
        subject.data.display()
    )))
}

/// True if `symbol` is the `pair` in any form, a broker's ending among them.
fn is_of_pair(symbol: &str, pair: &str) -> bool {
    likely_symbol(pair, &[symbol.to_owned()]).is_some() || named_pair(Path::new(symbol)).as_deref() == Some(pair)
}

/// The lines of a file up to the first that is not passed over, as far as they are there. One that
/// has begun is waited for: the history may have its bar as it was.
struct PassedLines {
    /// Bars of the last of them, or why it cannot be read.
    next: BarsResult<Vec<Bar>>,
    /// The last bar of the history, if the file has more of it.
    finished: Option<Bar>,
}

impl PassedLines {
    fn read(tail: &mut Tail<'_>, lines: &mut BarLines, host: &Host<'_>) -> Result<Self> {
        let mut passed = PassedLines { next: Ok(Vec::new()), finished: None };
        let mut line = Vec::new();
        while passed.finished.is_none() && passed.next.as_ref().is_ok_and(Vec::is_empty) {
            if !tail.next_ready(&mut line)? {
                if !tail.has_begun_line() {
                    break;
                }
                let name = tail.name().display();
                host.observer.note(&format!("{name}: its last line has no end yet, and is waited for"));
                tail.next_into(&mut line)?;
            }
            passed = PassedLines { next: push(lines, &line, tail), finished: lines.take_finished_bar() };
        }
        Ok(passed)
    }
}

/// Bars of `line`, the last one that `tail` gave.
fn push(lines: &mut BarLines, line: &[u8], tail: &Tail<'_>) -> BarsResult<Vec<Bar>> {
    if tail.has_end() { lines.push(line) } else { lines.push_without_end(line) }
}

/// Puts `bar`, of which the history has a part, in its place as the last of `bars`. A file of the
/// history that was read again may have later ones.
fn replace_last(bars: &mut Bars, bar: Bar, symbol: &str, host: &Host<'_>) {
    host.observer.note(&format!(
        "{symbol}: the bar that opens at {} was unfinished in the bars before; it is as the followed bars have it now",
        utc(bar.open_time)
    ));
    let place = bars.open_time.partition_point(|&open_time| open_time < bar.open_time);
    // Spreads of lines may have another unit.
    let spread = if place < bars.len() { bars.bar(place).spread } else { 0.0 };
    bars.truncate(place);
    bars.push(Bar { spread, ..bar });
}

/// Refuses a file that evidently begins with bars of another timeframe, before one of them has a
/// prediction. `lines` reads them; other faults are told when they are followed.
fn require_timeframe(path: &Path, mut lines: BarLines) -> Result<()> {
    let Ok(mut tail) = Tail::open(BarSource::File { path, at_end: AtEnd::Wait }) else { return Ok(()) };
    let (mut line, mut read_bytes) = (Vec::new(), 0);
    while read_bytes < FIRST_BYTES && matches!(tail.next_ready(&mut line), Ok(true)) {
        read_bytes += line.len();
        match lines.push(&line) {
            Ok(_) => {}
            Err(error @ (BarsError::OtherTimeframe { .. } | BarsError::LongerBars { .. })) => return Err(error.into()),
            Err(_) => break,
        }
    }
    Ok(())
}

/// Bytes of a file in which its timeframe shows: some thousand bars.
const FIRST_BYTES: usize = 1 << 16;

/// The bars of the history.
struct SeenBars {
    bars: usize,
    /// When the last of them closes.
    closes: Option<i64>,
    /// The step of the last of them.
    last: Option<SeriesStep>,
}

/// The model with the states after its history.
fn begin<'a>(
    subject: &StreamingModel,
    bars: &Bars,
    history: &History,
    host: &Host<'a>,
) -> Result<(BarStream<'a>, SeenBars)> {
    let widened = host.functions.map(|given| subject.with_functions(bars, history, given)).transpose()?;
    let (with_columns, functions) = widened.unzip();
    let bars = with_columns.as_ref().unwrap_or(bars);
    let series = subject.series(bars.timeframe)?;
    subject.require_same_windows(&series)?;
    let follower =
        StreamingPredictor::open_in(subject.precision(), &Device::cpu(), subject.model()?, &subject.weights)?;
    let mut live = BarStream::new(series, follower, subject.streaming()).with_functions(functions);
    let last = live.replay(bars, subject.spec.holes)?;
    let closes = bars.len().checked_sub(1).map(|last| bars.close_time(last));
    Ok((live, SeenBars { bars: bars.len(), closes, last }))
}

fn greeting(subject: &StreamingModel, history: &SeenBars, name: &Path) -> String {
    let (symbol, base, name) = (&subject.symbol, subject.base, name.display());
    let way = match subject.streaming() {
        Streaming::Carried => "",
        Streaming::Windows => "; windows are computed anew at each bar, as the model carries no states",
    };
    match history.closes {
        Some(closes) => {
            format!(
                "{symbol}: continues with {name} after {} {base} bars, of which the last closed at {}{way}",
                history.bars,
                utc(closes)
            )
        }
        None => format!(
            "{symbol}: begins with the first {base} bar of {name}; the first prediction comes when all windows are full{way}"
        ),
    }
}

/// A model that follows bars.
struct Stream<'s, 'o> {
    live: &'s mut BarStream<'o>,
    lines: &'s mut BarLines,
    progress: &'s mut StreamProgress<'o>,
    totals: StreamTotals,
    /// The model after the history with this bar in the place of its last one.
    after_finished: &'s dyn Fn(Bar) -> Result<(BarStream<'o>, SeenBars)>,
}

impl Stream<'_, '_> {
    /// Predicts the `first` bars, then reads, predicts and writes, until there are no more lines.
    fn run(
        &mut self,
        first: BarsResult<Vec<Bar>>,
        tail: &mut Tail<'_>,
        forecasts: &mut ForecastLines<'_>,
        host: &Host<'_>,
    ) -> Result<()> {
        let (mut next, mut text) = (first, Vec::new());
        // The last bar before, of which more may come until the next one.
        let mut finished = None;
        loop {
            let bars = match next {
                Err(error @ BarsError::BadRow { .. }) => {
                    tail.refuse(error.into())?;
                    self.totals.refused += 1;
                    Vec::new()
                }
                bars => bars?,
            };
            if let Some(bar) = self.lines.take_finished_bar() {
                let (name, opens) = (tail.name().display(), utc(bar.open_time));
                // Vendors correct volumes of bars that were finished.
                if self.lines.has_known_prices(&bar) {
                    host.observer.note(&format!(
                        "note: {name}: the last bar before, which opens at {opens}, has more volume in these bars; the one of before counts"
                    ));
                } else if self.totals.bars == 0 {
                    finished = Some(bar);
                } else {
                    return Err(Error::data(format!(
                        "{name}: the last bar before, which opens at {opens}, was unfinished, and these bars have more of it after later ones: append the finished bar to the data first"
                    )));
                }
            }
            for warning in self.lines.take_warnings() {
                host.observer.note(&format!("warning: {warning}"));
            }
            if !bars.is_empty()
                && let Some(bar) = finished.take()
            {
                let (live, history) = (self.after_finished)(bar)?;
                *self.live = live;
                self.renew_last(&history, forecasts, host)?;
            }
            for bar in bars {
                let step = self.live.close(&bar)?;
                self.totals.bars += 1;
                self.totals.holes += u64::from(step.hole.is_some());
                if let Some(outputs) = self.live.predict(step) {
                    self.write(step.close_time, &outputs, forecasts, host)?;
                }
                self.progress.see(step, self.live, &self.totals);
            }
            for note in self.lines.take_notes() {
                host.observer.note(&note);
            }
            for complaint in self.lines.take_complaints() {
                host.observer.note(&complaint);
                self.totals.dropped += 1;
            }
            if !tail.next_into(&mut text)? {
                break;
            }
            next = push(self.lines, &text, tail);
        }
        self.lines.finish()?;
        Ok(forecasts.finish()?)
    }

    /// Predicts the last `bars` of the history: the one that the output ends with, which may have
    /// been unfinished then, and those after it. Returns the number of those after it without a
    /// line, up to the next segment.
    fn catch_up(&mut self, bars: &[Bar], forecasts: &mut ForecastLines<'_>, host: &Host<'_>) -> Result<usize> {
        let ended = forecasts.last_time();
        let (mut lacking, mut begins_anew) = (0, false);
        for bar in bars {
            let step = self.live.close(bar)?;
            begins_anew |= step.begins_segment;
            match self.live.predict(step) {
                Some(outputs) => self.write(step.close_time, &outputs, forecasts, host)?,
                None if begins_anew || ended >= Some(step.close_time) => {}
                None => lacking += 1,
            }
        }
        Ok(lacking)
    }

    /// Predicts the last bar of the `history` anew, which may have been unfinished before, if the
    /// output ends with a prediction of it.
    fn renew_last(&mut self, history: &SeenBars, forecasts: &mut ForecastLines<'_>, host: &Host<'_>) -> Result<()> {
        if let Some(step) = history.last.filter(|step| forecasts.last_time() == Some(step.close_time))
            && let Some(outputs) = self.live.outputs(step)
        {
            self.write(step.close_time, &outputs, forecasts, host)?;
        }
        Ok(())
    }

    /// Writes the prediction of the bar that closed at `close_time`.
    fn write(
        &mut self,
        close_time: i64,
        outputs: &[f32],
        forecasts: &mut ForecastLines<'_>,
        host: &Host<'_>,
    ) -> Result<()> {
        let outcome = forecasts.write(close_time, outputs)?;
        match outcome {
            LineOutcome::Kept => self.totals.already_written += 1,
            LineOutcome::Written | LineOutcome::Replaced { .. } => self.totals.predictions += 1,
        }
        if outcome == (LineOutcome::Replaced { has_others: true }) {
            host.observer.note(&replaced_prediction(close_time));
        }
        Ok(())
    }
}

/// The remark on an output that ended at `last`, where the bars of the history go on to `closes`.
fn history_after_output(symbol: &str, last: i64, closes: i64, can_be_written: bool) -> String {
    let (last, closes) = (utc(last), utc(closes));
    match can_be_written {
        true => format!(
            "{symbol}: the output ended at {last}, and the bars before go on to {closes}: lines of those between with full windows come first"
        ),
        false => format!(
            "warning: {symbol}: the output ended at {last}, and the bars before go on to {closes}: those between get no line; `predict` gives theirs from the data"
        ),
    }
}

/// The remark on bars of the history that have no line, as their windows are not full.
fn still_without_lines(symbol: &str, count: usize) -> String {
    format!(
        "warning: {symbol}: {} between get no line, as the bars before do not fill their windows; `predict` gives theirs from the data",
        plural(count, "bar")
    )
}

/// The remark on the last prediction that an output had before, of the bar that closed at
/// `close_time`.
fn replaced_prediction(close_time: i64) -> String {
    format!(
        "warning: the output had another prediction at {} than the model gives now, which is in its place: that bar was unfinished, or all lines before are of another model or history; for all anew, write to a new file",
        utc(close_time)
    )
}

fn report(
    subject: &StreamingModel,
    history: &SeenBars,
    name: &Path,
    tally: &StreamTotals,
    passed_over: u64,
    needed: &[(String, usize)],
) -> CommandReport {
    let StreamTotals { bars, predictions, history_predictions, already_written, dropped, refused, holes } = *tally;
    let mut text = format!("{}: {predictions} predictions for {bars} bars of {}", name.display(), subject.symbol);
    if history_predictions > 0 {
        let lines = plural(history_predictions as usize, "prediction");
        text.push_str(&format!("; {lines} for bars before them came first"));
    }
    if already_written > 0 {
        text.push_str(&format!("; {already_written} more are in the output already"));
    }
    if passed_over > 0 {
        let rows = plural(passed_over as usize, "row");
        let were = was_or_were(passed_over as usize);
        text.push_str(&format!("; {rows} of bars that the states had seen {were} passed over"));
    }
    if dropped > 0 {
        text.push_str(&format!("; {} {} dropped", plural(dropped, "row"), was_or_were(dropped)));
    }
    if refused > 0 {
        text.push_str(&format!("; {} {} refused", plural(refused, "row"), was_or_were(refused)));
    }
    if holes > 0 {
        text.push_str(&format!("; the states began anew after {}", plural(holes as usize, "hole")));
    }
    if !needed.is_empty() {
        text.push_str(&format!("; {}", needed_text(needed)));
    }
    let json = json!({
        "symbol": subject.symbol,
        "step": subject.step,
        "history_bars": history.bars,
        "bars": bars,
        "predictions": predictions,
        "history_predictions": history_predictions,
        "already_written": already_written,
        "passed_over": passed_over,
        "dropped": dropped,
        "refused": refused,
        "holes": holes,
        "bars_needed": needed.iter().cloned().collect::<BTreeMap<_, _>>(),
        "streaming": match subject.streaming() {
            Streaming::Carried => "carried",
            Streaming::Windows => "windows",
        },
    });
    CommandReport::new(text, &json)
}

/// The verb of a sentence about `count` things.
fn was_or_were(count: usize) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

#[cfg(test)]
mod tests {
    use megabatch_bars::Timeframe;

    use super::*;

    /// A file that grew between the start and the finished bar ended the process.
    #[test]
    fn a_finished_bar_is_the_last_of_a_history_that_grew() {
        let minute = |minutes: i64, close: f64| Bar { open_time: minutes * 60_000_000_000, close, ..Bar::default() };
        for count in [2, 3] {
            let mut bars = Bars::with_capacity(Timeframe::M1, 0);
            (0..count).for_each(|minutes| bars.push(minute(minutes, 1.0)));
            replace_last(&mut bars, minute(1, 2.0), "EURUSD", &Host::silent());
            assert_eq!((bars.len(), &bars.close[..]), (2, &[1.0, 2.0][..]), "{count}");
        }
    }

    /// A file named after EURUSD was refused for EURUSD.pro.
    #[test]
    fn a_pair_with_an_ending_is_that_pair() {
        for (symbol, expected) in [
            ("EURUSD", true),
            ("eur/usd", true),
            ("EURUSD.pro", true),
            ("EURUSD_ecn", true),
            ("GBPUSD.pro", false),
            ("BARS", false),
        ] {
            assert_eq!(is_of_pair(symbol, "EURUSD"), expected, "{symbol}");
        }
    }
}
