//! `megabatch predict --follow`: a prediction for each bar as it comes, from states that go on by
//! one step a bar.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use megabatch_bars::{BarLines, DateOrder, FormatName, OnError, SeriesStream, Zone};
use megabatch_gpu_core::Device;
use megabatch_trainer::StreamingPredictor;
use serde_json::json;

use super::Args;
use super::forecast_lines::{ForecastLines, LineForm};
use super::stream_progress::{StreamProgress, needed_text};
use super::streaming_model::StreamingModel;
use super::tail::{AtEnd, Tail};
use crate::adapt::split::utc;
use crate::answer::{Answer, Form};
use crate::computing::DeviceRequest;
use crate::failure::Failure;
use crate::output;
use crate::settings::{form as model_form, loss};
use crate::streaming::{BarStream, Streaming};

/// Options of following: source, start, format.
#[derive(clap::Args)]
#[command(next_help_heading = "Following bars")]
pub(super) struct Options {
    /// Predict for each bar as it comes: a file that grows, or standard input (-), with a line for
    /// each bar that has closed. Predictions are lines of CSV, or of JSON with --json or --out
    /// FILE.jsonl, and go to standard output if --out names no file. A model with
    /// training.carry_state or training.loss_on: every_step takes a step a bar; any other computes
    /// its windows anew at each
    #[arg(long, value_name = "BARS", conflicts_with = "samples")]
    follow: Option<PathBuf>,
    /// Bars before those that come, from whose states it goes on; those that the data file was made
    /// of if not given
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "follow", conflicts_with = "cold")]
    pub(super) history: Vec<PathBuf>,
    /// Begin with nothing: predictions begin once features have warmed up and windows are full
    #[arg(long, requires = "follow")]
    pub(super) cold: bool,
    /// Whose bars they are, where the data file has several instruments
    #[arg(long, requires = "follow")]
    pub(super) symbol: Option<String>,
    /// Format of the lines; that of the files that the data file was made of if not given
    #[arg(long, requires = "follow")]
    pub(super) format: Option<FormatName>,
    /// Order of day and month where the year comes last
    #[arg(long, requires = "follow")]
    pub(super) date_order: Option<DateOrder>,
    /// Zone of the timestamps; that of the files that the data file was made of if not given
    #[arg(long, requires = "follow", allow_hyphen_values = true)]
    pub(super) zone: Option<Zone>,
    /// What happens to lines that cannot be used: fail, skip or repair, as in `ingest`; as the data
    /// file was made if not given
    #[arg(long, requires = "follow")]
    pub(super) on_error: Option<OnError>,
    /// End at the end of the file instead of waiting for more
    #[arg(long, requires = "follow")]
    stop_at_end: bool,
}

impl Options {
    pub(super) fn is_wanted(&self) -> bool {
        self.follow.is_some()
    }
}

/// Totals of a stream.
#[derive(Default)]
pub(super) struct StreamTotals {
    pub(super) bars: u64,
    pub(super) predictions: u64,
    /// Lines that were dropped.
    dropped: usize,
    /// Holes at which the states began anew.
    holes: u64,
}

/// A file whose old contents go when the first of the new come: not before it is known that what is
/// followed has bars.
struct EmptiedLate {
    file: File,
    is_old: bool,
}

impl EmptiedLate {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        Ok(EmptiedLate { file, is_old: true })
    }
}

impl Write for EmptiedLate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if std::mem::take(&mut self.is_old) {
            self.file.set_len(0)?;
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

pub(super) fn run(args: &Args, form: Form) -> Result<Answer> {
    let options = &args.following;
    let follow = options.follow.as_deref().expect("--out or --follow is required");
    let line_form = LineForm::of(args.out.as_deref(), form)?;
    if let Some(gpu) = DeviceRequest::select(&args.device)?.gpu() {
        return Err(refuse(&format!(
            "--device {gpu}: states go on by one step a bar, which the CPU takes; leave --device out, or give cpu"
        )));
    }
    let subject = StreamingModel::open(args)?;
    let (mut live, history) = begin(&subject, options)?;
    let mut tail = Tail::open(follow, if options.stop_at_end { AtEnd::Stop } else { AtEnd::Wait })?;
    let mut lines = BarLines::new(tail.name(), &subject.line_options(options), subject.base, history.until);
    let to: Box<dyn Write> = match &args.out {
        Some(out) => {
            output::check(out, &[follow, &subject.data])?;
            Box::new(EmptiedLate::open(out)?)
        }
        None => Box::new(io::stdout().lock()),
    };
    eprintln!("{}", greeting(&subject, &history, tail.name()));
    let mut course = StreamProgress::new(&subject.symbol);
    course.begin(&live);
    let (horizons, outputs) = subject.outputs();
    let loss = loss(&subject.config, horizons)?;
    let mut forecasts = ForecastLines::new(to, line_form, loss, horizons, outputs, subject.name_told());
    let mut tally = StreamTotals::default();
    match go(&mut live, &mut tail, &mut lines, &mut forecasts, &mut course, &mut tally) {
        // A reader that went away, as `head` does, is no error.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) => {}
        done => done?,
    }
    let answer = answer(&subject, &history, tail.name(), &tally, lines.passed_over(), &live.bars_needed());
    Ok(if args.out.is_none() { answer.aside() } else { answer })
}

/// The bars that the states have seen before the first one that is followed.
struct History {
    bars: usize,
    /// When the last of them opens.
    until: Option<i64>,
    closes: Option<i64>,
}

/// The model with the states after its history.
fn begin(subject: &StreamingModel, options: &Options) -> Result<(BarStream, History)> {
    let bars = subject.history(options)?;
    let series = SeriesStream::new(subject.instrument(&bars), &subject.spec, &subject.scalers)?;
    subject.require_same_windows(&series)?;
    let follower =
        StreamingPredictor::open(&Device::cpu(), subject.model()?, &subject.weights, model_form(&subject.config))?;
    let mut live = BarStream::new(series, follower, subject.streaming());
    live.replay(&bars, subject.spec.holes)?;
    let closes = bars.len().checked_sub(1).map(|last| bars.close_time(last));
    Ok((live, History { bars: bars.len(), until: bars.open_time.last().copied(), closes }))
}

fn greeting(subject: &StreamingModel, history: &History, name: &Path) -> String {
    let (symbol, base, name) = (&subject.symbol, subject.base, name.display());
    let way = match subject.streaming() {
        Streaming::Carried => "",
        Streaming::Windows => "; windows are computed anew at each bar, as the model carries no states",
    };
    match history.closes {
        Some(closes) => format!(
            "megabatch: {symbol}: the states of {} {base} bars up to {} go on with {name}{way}",
            history.bars,
            utc(closes)
        ),
        None => format!(
            "megabatch: {symbol}: begins with the first {base} bar of {name}; predictions follow once every window is full{way}"
        ),
    }
}

/// Reads, predicts and writes, until there are no more lines.
fn go(
    live: &mut BarStream,
    tail: &mut Tail,
    lines: &mut BarLines,
    forecasts: &mut ForecastLines,
    course: &mut StreamProgress<'_>,
    tally: &mut StreamTotals,
) -> Result<()> {
    let mut text = Vec::new();
    while tail.next_into(&mut text)? {
        for bar in lines.push(&text)? {
            let step = live.close(&bar)?;
            tally.bars += 1;
            tally.holes += u64::from(step.hole.is_some());
            if let Some(outputs) = live.predict(step) {
                forecasts.write(step.close_time, &outputs)?;
                tally.predictions += 1;
            }
            course.see(step, live, tally);
        }
        for complaint in lines.take_complaints() {
            eprintln!("megabatch: {complaint}");
            tally.dropped += 1;
        }
    }
    lines.finish()?;
    Ok(forecasts.finish()?)
}

fn answer(
    subject: &StreamingModel,
    history: &History,
    name: &Path,
    tally: &StreamTotals,
    passed_over: u64,
    needed: &[(String, usize)],
) -> Answer {
    let StreamTotals { bars, predictions, dropped, holes } = *tally;
    let mut text = format!("{}: {predictions} predictions for {bars} bars of {}", name.display(), subject.symbol);
    if passed_over > 0 {
        text.push_str(&format!("; {passed_over} rows of bars that the states had seen were passed over"));
    }
    if dropped > 0 {
        text.push_str(&format!("; {dropped} rows were dropped"));
    }
    if holes > 0 {
        let plural = if holes == 1 { "" } else { "s" };
        text.push_str(&format!("; the states began anew after {holes} hole{plural}"));
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
        "passed_over": passed_over,
        "dropped": dropped,
        "holes": holes,
        "bars_needed": needed.iter().cloned().collect::<BTreeMap<_, _>>(),
        "streaming": match subject.streaming() {
            Streaming::Carried => "carried",
            Streaming::Windows => "windows",
        },
    });
    Answer::new(text, &json)
}

/// Refuses what cannot be followed, with the reason and what to do.
pub(super) fn refuse(reason: &str) -> anyhow::Error {
    Failure::usage(format!("--follow: {reason}"))
}
