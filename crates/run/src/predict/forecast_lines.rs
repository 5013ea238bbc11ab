//! Predictions as lines, one a bar, each flushed at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write};
use std::path::Path;

use megabatch_nn::loss::Loss;
use serde::Serialize;
use serde_json::Value;

use super::output_file::csv_field;
use super::samples::by_name;
use crate::error::{Context as _, Error, Result};
use crate::output;

/// Format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineForm {
    /// A time and numbers, below a line of names.
    Csv,
    /// An object.
    Json,
}

impl LineForm {
    /// Format by the file's ending.
    pub(super) fn from_path(out: &Path) -> Result<Self> {
        match out.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Ok(LineForm::Csv),
            Some("jsonl") => Ok(LineForm::Json),
            _ => output::require_ending(out, &["csv", "jsonl"]).map(|()| LineForm::Csv),
        }
    }
}

/// Output of predictions.
pub(super) struct ForecastLines<'o> {
    to: Box<dyn Write + 'o>,
    form: LineForm,
    /// True once the header is written.
    has_begun: bool,
    /// Time of the last line that the output had before.
    last_time_ns: Option<i64>,
    loss: Loss,
    horizons: usize,
    /// Name of the instrument in each line, if there are several.
    instrument: Option<String>,
    /// Names of the numbers beside the predictions.
    names: Vec<String>,
}

#[derive(Serialize)]
struct JsonLine<'a> {
    time: String,
    time_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    instrument: Option<&'a str>,
    /// `[K]`.
    predictions: &'a [f32],
    /// Quantiles or probabilities of classes, `[K]` each.
    #[serde(flatten)]
    named: BTreeMap<&'a str, &'a [f32]>,
}

impl<'o> ForecastLines<'o> {
    /// Lines of a model of `horizons` K with so many outputs [K, M].
    pub(super) fn new(
        to: Box<dyn Write + 'o>,
        form: LineForm,
        loss: Loss,
        horizons: usize,
        outputs: usize,
        instrument: Option<String>,
    ) -> Self {
        let (_, named) = by_name(loss, &vec![0.0; outputs], horizons);
        let names = named.into_iter().map(|(name, _)| name).collect();
        ForecastLines { to, form, has_begun: false, last_time_ns: None, loss, horizons, instrument, names }
    }

    /// Goes on after the lines in the file at `path`. A last line that was cut off when it was
    /// written is removed.
    ///
    /// # Errors
    /// A usage error for lines that are no predictions of this form.
    pub(super) fn continue_file(&mut self, path: &Path) -> Result<()> {
        let cannot_read = || format!("cannot read {}", path.display());
        let mut reader = BufReader::new(File::open(path).with_context(cannot_read)?);
        let (mut line, mut whole_bytes, mut count) = (Vec::new(), 0, 0);
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).with_context(cannot_read)?;
            if read == 0 {
                break;
            }
            let is_whole = line.ends_with(b"\n");
            if !is_whole && count > 0 {
                let file = File::options().write(true).open(path).with_context(cannot_read)?;
                file.set_len(whole_bytes).with_context(cannot_read)?;
                break;
            }
            count += 1;
            if !is_whole || !self.take_line(str::from_utf8(&line).unwrap_or_default().trim_end(), count) {
                return Err(Error::usage(format!(
                    "{}: line {count} is no prediction as this model gives them; write to a new file, or to one with its predictions",
                    path.display()
                )));
            }
            whole_bytes += read as u64;
        }
        self.has_begun = true;
        Ok(())
    }

    /// Takes the time of the `count`-th line of a file, if it is of this instrument. False for a
    /// line of another form.
    fn take_line(&mut self, line: &str, count: u64) -> bool {
        if self.form == LineForm::Csv && count == 1 {
            return line == self.header();
        }
        match self.parse_line(line) {
            Some((time_ns, is_own)) => {
                self.last_time_ns = Some(time_ns).filter(|_| is_own).max(self.last_time_ns);
                true
            }
            None => false,
        }
    }

    /// The time of a line, and whether it is of this instrument; `None` for one of another form.
    fn parse_line(&self, line: &str) -> Option<(i64, bool)> {
        match self.form {
            LineForm::Csv => {
                let (time, rest) = line.split_once(',')?;
                let time: jiff::Timestamp = time.parse().ok()?;
                let instrument = self.instrument.as_deref().map(|name| format!("{},", csv_field(name)));
                let is_own = instrument.is_none_or(|name| rest.starts_with(&name));
                Some((i64::try_from(time.as_nanosecond()).ok()?, is_own))
            }
            LineForm::Json => {
                let line: Value = serde_json::from_str(line).ok()?;
                let has_all = |name: &str| line[name].as_array().is_some_and(|all| all.len() == self.horizons);
                let is_alike = has_all("predictions") && self.names.iter().all(|name| has_all(name.as_str()));
                let time_ns = line["time_ns"].as_i64().filter(|_| is_alike)?;
                Some((time_ns, line["instrument"].as_str() == self.instrument.as_deref()))
            }
        }
    }

    /// True if the output had the line of the bar that closed at `time_ns`, or of a later one.
    pub(super) fn has(&self, time_ns: i64) -> bool {
        self.last_time_ns.is_some_and(|last| time_ns <= last)
    }

    /// The column names of CSV.
    fn header(&self) -> String {
        let mut header = "time".to_owned();
        if self.instrument.is_some() {
            header.push_str(",instrument");
        }
        (1..=self.horizons).for_each(|horizon| header.push_str(&format!(",h{horizon}")));
        for name in &self.names {
            (1..=self.horizons).for_each(|horizon| header.push_str(&format!(",h{horizon}_{name}")));
        }
        header
    }

    /// Writes the header once: the column names of CSV. It waits for the first line, so that input
    /// without bars gives its error alone.
    fn begin(&mut self) -> io::Result<()> {
        if self.has_begun || self.form == LineForm::Json {
            return Ok(());
        }
        self.has_begun = true;
        self.hand_over(self.header())
    }

    /// Writes the line of the bar that closed at `time_ns`, from the model's outputs [K, M].
    pub(super) fn write(&mut self, time_ns: i64, outputs: &[f32]) -> io::Result<()> {
        self.begin()?;
        let (values, named) = by_name(self.loss, outputs, self.horizons);
        let time = jiff::Timestamp::from_nanosecond(time_ns.into()).expect("64 bits of nanoseconds are a time");
        let instrument = self.instrument.as_deref();
        let line = match self.form {
            LineForm::Json => {
                let named = named.iter().map(|(name, values)| (name.as_str(), values.as_slice())).collect();
                let line = JsonLine { time: time.to_string(), time_ns, instrument, predictions: &values, named };
                serde_json::to_string(&line)?
            }
            LineForm::Csv => {
                let mut line = time.to_string();
                instrument.iter().for_each(|name| line.push_str(&format!(",{}", csv_field(name))));
                let all = values.iter().chain(named.iter().flat_map(|(_, values)| values));
                all.for_each(|value| line.push_str(&format!(",{value}")));
                line
            }
        };
        self.hand_over(line)
    }

    /// Ends the table; without predictions it is a table without rows.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.begin()
    }

    fn hand_over(&mut self, mut line: String) -> io::Result<()> {
        line.push('\n');
        self.to.write_all(line.as_bytes())?;
        self.to.flush()
    }
}
