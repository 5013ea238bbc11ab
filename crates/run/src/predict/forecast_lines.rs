//! Predictions as lines, one a bar, each flushed at once.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use megabatch_nn::loss::Loss;
use serde::Serialize;

use super::output_file::csv_field;
use super::samples::by_name;
use crate::error::Result;
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
        ForecastLines { to, form, has_begun: false, loss, horizons, instrument, names }
    }

    /// Writes the header once: the column names of CSV. It waits for the first line, so that input
    /// without bars gives its error alone.
    fn begin(&mut self) -> io::Result<()> {
        if self.has_begun || self.form == LineForm::Json {
            return Ok(());
        }
        self.has_begun = true;
        let mut header = "time".to_owned();
        if self.instrument.is_some() {
            header.push_str(",instrument");
        }
        (1..=self.horizons).for_each(|horizon| header.push_str(&format!(",h{horizon}")));
        for name in &self.names {
            (1..=self.horizons).for_each(|horizon| header.push_str(&format!(",h{horizon}_{name}")));
        }
        self.hand_over(header)
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
