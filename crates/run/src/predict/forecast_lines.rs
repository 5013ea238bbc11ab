//! Predictions as lines, one a bar, each flushed at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use megabatch_nn::loss::Loss;
use serde::Serialize;
use serde_json::Value;

use super::output_file::csv_field;
use super::output_lock::OutputLock;
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
    /// The lock of the file of the lines, if they are in one.
    lock: Option<OutputLock>,
    /// The file to which lines are appended, if it had some before.
    file: Option<File>,
    /// The last line that the output had before.
    last: Option<EarlierLine>,
    loss: Loss,
    horizons: usize,
    /// Predictions of a line, and numbers of each name: one a horizon, or one class in all.
    width: usize,
    /// Name of the instrument in each line, if there are several.
    instrument: Option<String>,
    /// Names of the numbers beside the predictions.
    names: Vec<String>,
}

/// A line that the output had before.
struct EarlierLine {
    time_ns: i64,
    /// False for a line of another instrument.
    is_own: bool,
    /// Predictions of this instrument.
    predictions: Vec<f32>,
    /// The line without its end.
    text: String,
    /// Bytes of the file that the line and its end take.
    place: Range<u64>,
}

/// Treatment of a line that was to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineOutcome {
    /// The line is new.
    Written,
    /// The output had the line before, or one of a later bar.
    Kept,
    /// The line is in the place of the last one that the output had before.
    Replaced {
        /// False if both differ by rounding alone.
        has_others: bool,
    },
}

/// Largest difference of two equal predictions, by the largest of their line: that of rounding.
const ROUNDING: f32 = 1e-3;

#[derive(Serialize)]
struct JsonLine<'a> {
    time: String,
    time_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    instrument: Option<&'a str>,
    /// `[K]`, or one class.
    predictions: &'a [f32],
    /// Quantiles or probabilities of classes, as many each.
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
        let (values, named) = by_name(loss, &vec![0.0; outputs], horizons);
        let names = named.into_iter().map(|(name, _)| name).collect();
        let width = values.len();
        ForecastLines {
            to,
            form,
            has_begun: false,
            lock: None,
            file: None,
            last: None,
            loss,
            horizons,
            width,
            instrument,
            names,
        }
    }

    /// The lines, which fail once the file of `lock` is not in its place any longer.
    #[must_use]
    pub(super) fn locked(self, lock: OutputLock) -> Self {
        ForecastLines { lock: Some(lock), ..self }
    }

    /// Goes on after the lines in the file at `path`, to which lines are appended. A last line that
    /// was cut off when it was written is removed.
    ///
    /// # Errors
    /// A usage error for lines that are no predictions of this form.
    pub(super) fn continue_file(&mut self, path: &Path) -> Result<()> {
        let cannot_be = |done: &str| format!("{}: cannot be {done}", path.display());
        let file = File::options().read(true).write(true).open(path).with_context(|| cannot_be("opened"))?;
        let mut reader = BufReader::new(file);
        let (mut line, mut whole_bytes, mut count) = (Vec::new(), 0, 0);
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).with_context(|| cannot_be("read"))?;
            if read == 0 {
                break;
            }
            let is_whole = line.ends_with(b"\n");
            if !is_whole && count > 0 {
                reader.get_ref().set_len(whole_bytes).with_context(|| cannot_be("written"))?;
                break;
            }
            count += 1;
            let place = whole_bytes..whole_bytes + read as u64;
            if !is_whole || !self.take_line(str::from_utf8(&line).unwrap_or_default().trim_end(), count, place) {
                return Err(Error::usage(format!(
                    "{}: line {count} is no prediction as this model gives them; write to a new file, or to one with its predictions",
                    path.display()
                )));
            }
            whole_bytes += read as u64;
        }
        self.file = Some(reader.into_inner());
        self.has_begun = true;
        Ok(())
    }

    /// Takes the `count`-th line of a file, if it is of this instrument. False for a line of
    /// another form.
    fn take_line(&mut self, line: &str, count: u64, place: Range<u64>) -> bool {
        if self.form == LineForm::Csv && count == 1 {
            return line == self.header();
        }
        let Some(line) = self.parse_line(line, place) else { return false };
        if line.is_own && self.last.as_ref().is_none_or(|last| last.time_ns < line.time_ns) {
            self.last = Some(line);
        }
        true
    }

    /// The parts of a line; `None` for one of another form.
    fn parse_line(&self, line: &str, place: Range<u64>) -> Option<EarlierLine> {
        let text = line.to_owned();
        match self.form {
            LineForm::Csv => {
                let (time, rest) = line.split_once(',')?;
                let time: jiff::Timestamp = time.parse().ok()?;
                let time_ns = i64::try_from(time.as_nanosecond()).ok()?;
                let own = match &self.instrument {
                    Some(name) => rest.strip_prefix(&format!("{},", csv_field(name))),
                    None => Some(rest),
                };
                let Some(own) = own else {
                    return Some(EarlierLine { time_ns, is_own: false, predictions: Vec::new(), text, place });
                };
                let mut predictions = own.split(',').map(|number| number.parse().ok()).collect::<Option<Vec<f32>>>()?;
                let is_alike = predictions.len() == self.width * (1 + self.names.len());
                predictions.truncate(self.width);
                is_alike.then_some(EarlierLine { time_ns, is_own: true, predictions, text, place })
            }
            LineForm::Json => {
                let line: Value = serde_json::from_str(line).ok()?;
                let numbers = |name: &str| line[name].as_array().filter(|all| all.len() == self.width);
                let instrument = line["instrument"].as_str();
                let is_alike = self.names.iter().all(|name| numbers(name.as_str()).is_some())
                    && instrument.is_some() == self.instrument.is_some();
                let time_ns = line["time_ns"].as_i64().filter(|_| is_alike)?;
                // NaN is null.
                let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN) as f32;
                let predictions = numbers("predictions")?.iter().map(number).collect();
                let is_own = instrument == self.instrument.as_deref();
                Some(EarlierLine { time_ns, is_own, predictions, text, place })
            }
        }
    }

    /// When the bar closed that the last line is of which the output had before.
    pub(super) fn last_time(&self) -> Option<i64> {
        self.last.as_ref().map(|last| last.time_ns)
    }

    /// True if a line has other predictions than the model's `outputs` [K, M].
    fn has_others(&self, line: &EarlierLine, outputs: &[f32]) -> bool {
        let (values, _) = by_name(self.loss, outputs, self.horizons);
        let all = values.iter().chain(&line.predictions);
        let largest = all.fold(0.0_f32, |largest, value| largest.max(value.abs()));
        values.iter().zip(&line.predictions).any(|(now, then)| (now - then).abs() > ROUNDING * largest)
    }

    /// The column names of CSV.
    fn header(&self) -> String {
        let mut header = "time".to_owned();
        if self.instrument.is_some() {
            header.push_str(",instrument");
        }
        (1..=self.width).for_each(|horizon| header.push_str(&format!(",h{horizon}")));
        for name in &self.names {
            (1..=self.width).for_each(|horizon| header.push_str(&format!(",h{horizon}_{name}")));
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
        self.hand_over(&(self.header() + "\n"))
    }

    /// Writes the line of the bar that closed at `time_ns`, from the model's outputs [K, M]. If the
    /// output ended with another line of that bar before, as of one that was unfinished, the new
    /// one takes its place.
    pub(super) fn write(&mut self, time_ns: i64, outputs: &[f32]) -> io::Result<LineOutcome> {
        if self.last.as_ref().is_some_and(|last| time_ns < last.time_ns) {
            return Ok(LineOutcome::Kept);
        }
        self.require_in_place()?;
        let line = self.line(time_ns, outputs)?;
        if self.last.as_ref().is_some_and(|last| last.time_ns == time_ns && last.text == line) {
            return Ok(LineOutcome::Kept);
        }
        if let Some(last) = self.last.take_if(|last| last.time_ns == time_ns)
            && self.replace(&last, &line)?
        {
            return Ok(LineOutcome::Replaced { has_others: self.has_others(&last, outputs) });
        }
        self.begin()?;
        self.hand_over(&(line + "\n"))?;
        Ok(LineOutcome::Written)
    }

    /// Puts `line` in the place of `last`, behind the lines of other instruments that follow this
    /// one. A process that is killed meanwhile leaves one line that is cut, at most. False for a
    /// file that does not have `last` there any longer: another program has changed it.
    fn replace(&mut self, last: &EarlierLine, line: &str) -> io::Result<bool> {
        let Some(file) = &mut self.file else { return Ok(false) };
        let Range { start, end } = last.place;
        let mut found = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        file.read_to_end(&mut found)?;
        let Some((own, later)) = found.split_at_checked((end - start) as usize) else { return Ok(false) };
        if own.trim_ascii_end() != last.text.as_bytes() {
            return Ok(false);
        }
        let lines = [later, line.as_bytes(), b"\n"].concat();
        // Before the lines are written: what is left of old ones behind them would be no line.
        if lines.len() < found.len() {
            file.set_len(start + lines.len() as u64)?;
        }
        file.write_all_at(&lines, start)?;
        Ok(true)
    }

    /// The line of the bar that closed at `time_ns`, without its end.
    fn line(&self, time_ns: i64, outputs: &[f32]) -> io::Result<String> {
        let (values, named) = by_name(self.loss, outputs, self.horizons);
        let time = jiff::Timestamp::from_nanosecond(time_ns.into()).expect("64 bits of nanoseconds are a time");
        let instrument = self.instrument.as_deref();
        match self.form {
            LineForm::Json => {
                let named = named.iter().map(|(name, values)| (name.as_str(), values.as_slice())).collect();
                let line = JsonLine { time: time.to_string(), time_ns, instrument, predictions: &values, named };
                Ok(serde_json::to_string(&line)?)
            }
            LineForm::Csv => {
                let mut line = time.to_string();
                instrument.iter().for_each(|name| line.push_str(&format!(",{}", csv_field(name))));
                let all = values.iter().chain(named.iter().flat_map(|(_, values)| values));
                all.for_each(|value| line.push_str(&format!(",{value}")));
                Ok(line)
            }
        }
    }

    /// Ends the table; without predictions it is a table without rows.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.require_in_place()?;
        self.begin()
    }

    fn require_in_place(&self) -> io::Result<()> {
        self.lock.as_ref().map_or(Ok(()), OutputLock::require_in_place)
    }

    fn hand_over(&mut self, lines: &str) -> io::Result<()> {
        self.to.write_all(lines.as_bytes())?;
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_NS: i64 = 60_000_000_000;

    /// Lines at minutes from 0 on, with outputs [K, M] each, in a new file at `path`.
    fn write(path: &Path, form: LineForm, loss: Loss, horizons: usize, outputs: &[&[f32]]) {
        let to = Box::new(File::create(path).unwrap());
        let mut lines = ForecastLines::new(to, form, loss, horizons, outputs[0].len(), None);
        for (minute, outputs) in (0..).zip(outputs) {
            assert_eq!(lines.write(minute * MINUTE_NS, outputs).unwrap(), LineOutcome::Written);
        }
        lines.finish().unwrap();
    }

    /// Lines that go on after those at `path`.
    fn going_on(path: &Path, form: LineForm, loss: Loss, instrument: Option<&str>) -> ForecastLines<'static> {
        let to = Box::new(File::options().append(true).open(path).unwrap());
        let mut lines = ForecastLines::new(to, form, loss, 3, 3, instrument.map(str::to_owned));
        lines.continue_file(path).unwrap();
        lines
    }

    /// The line of a bar that was unfinished stayed beside the bar as it was later.
    #[test]
    fn the_last_line_of_a_file_is_replaced_by_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, replaced) = (LineOutcome::Kept, |has_others| LineOutcome::Replaced { has_others });
        for (form, name) in [(LineForm::Csv, "out.csv"), (LineForm::Json, "out.jsonl")] {
            // A model of `cross_entropy` has one class a line, and its own lines were refused.
            for (loss, last, expected) in [
                (Loss::Mse, [2.0, f32::NAN, -1.0], kept),
                (Loss::Mse, [2.0, 1.0, -0.9], replaced(true)),
                (Loss::Mse, [2.0, f32::NAN, -1.000_1], replaced(false)),
                (Loss::CrossEntropy, [2.0, f32::NAN, -1.0], kept),
            ] {
                let [path, whole] = [name.to_owned(), format!("whole-{name}")].map(|name| folder.path().join(name));
                let first: &[f32] = &[0.0, 1.0, 2.0];
                write(&path, form, loss, 3, &[first, &[2.0, f32::NAN, -1.0]]);
                write(&whole, form, loss, 3, &[first, &last, first]);
                let mut lines = going_on(&path, form, loss, None);
                assert_eq!(lines.last_time(), Some(MINUTE_NS));
                let outcomes = [[2.0, 1.0, 0.0], last, [0.0, 1.0, 2.0]];
                let outcomes =
                    [0, 1, 2].map(|minute| lines.write(minute as i64 * MINUTE_NS, &outcomes[minute]).unwrap());
                assert_eq!(outcomes, [kept, expected, LineOutcome::Written], "{loss:?} {last:?}");
                let [found, whole] = [&path, &whole].map(|path| std::fs::read_to_string(path).unwrap());
                assert_eq!(found, whole, "{loss:?} {last:?}");
            }
        }
    }

    #[test]
    fn lines_of_other_instruments_stay_where_one_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        let times = ["1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z"];
        let line = |time: usize, name: &str, value: u32| format!("{},{name},{value},{value},{value}\n", times[time]);
        let (header, others) = ("time,instrument,h1,h2,h3\n", line(0, "B", 2) + &line(1, "B", 3));
        std::fs::write(&path, [header, &line(0, "A", 1), &others].concat()).unwrap();
        let mut lines = going_on(&path, LineForm::Csv, Loss::Mse, Some("A"));
        assert_eq!(lines.write(0, &[9.0; 3]).unwrap(), LineOutcome::Replaced { has_others: true });
        assert_eq!(lines.write(MINUTE_NS, &[8.0; 3]).unwrap(), LineOutcome::Written);
        let expected = [header, &others, &line(0, "A", 9), &line(1, "A", 8)].concat();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    }

    /// A file that was emptied meanwhile was filled with zeros up to the place of the line, and one
    /// in which lines had moved was cut in the middle of one.
    #[test]
    fn a_line_that_is_not_in_its_place_any_longer_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        let (header, time) = ("time,instrument,h1,h2,h3\n", "1970-01-01T00:00:00Z");
        let line = |name: &str, values: &str| format!("{time},{name},{values}\n");
        let (own, new) = (line("A", "1,1,1"), line("A", "9,9,9"));
        let before = [header, &line("B", "2,2,2"), &own].concat();
        for changed in [String::new(), header.to_owned(), [header, &line("B", "0.25,2,2"), &own].concat()] {
            std::fs::write(&path, &before).unwrap();
            let mut lines = going_on(&path, LineForm::Csv, Loss::Mse, Some("A"));
            std::fs::write(&path, &changed).unwrap();
            assert_eq!(lines.write(0, &[9.0; 3]).unwrap(), LineOutcome::Written);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), changed + &new);
        }
    }

    /// Lines of other instruments were out of the file until they were written again.
    #[test]
    fn lines_of_other_instruments_stay_where_a_write_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        let (header, time) = ("time,instrument,h1,h2,h3\n", "1970-01-01T00:00:00Z");
        let text = format!("{header}{time},A,1,1,1\n{time},B,2,2,2\n");
        std::fs::write(&path, &text).unwrap();
        let mut lines = going_on(&path, LineForm::Csv, Loss::Mse, Some("A"));
        // As on a disk that is full: the file can be read alone.
        lines.file = Some(File::open(&path).unwrap());
        lines.write(0, &[0.125; 3]).unwrap_err();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    /// Lines with other numbers of fields were taken for predictions.
    #[test]
    fn lines_of_other_models_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        let begun = |instrument: Option<&str>, form| {
            ForecastLines::new(Box::new(io::sink()), form, Loss::Mse, 2, 2, instrument.map(str::to_owned))
        };
        for (text, has_all) in [
            ("time,h1,h2\n1970-01-01T00:00:00Z,1,2\n", true),
            ("time,h1,h2\r\n1970-01-01T00:00:00Z,1,NaN\r\n", true),
            ("time,h1,h2\n1970-01-01T00:00:00Z,1\n", false),
            ("time,h1,h2\n1970-01-01T00:00:00Z,1,2,3\n", false),
            ("time,h1,h2\n1970-01-01T00:00:00Z,1,\n", false),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(begun(None, LineForm::Csv).continue_file(&path).is_ok(), has_all, "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        write(&path, LineForm::Json, Loss::Mse, 2, &[&[1.0, 2.0]]);
        assert!(begun(None, LineForm::Json).continue_file(&path).is_ok());
        assert!(begun(Some("EURUSD"), LineForm::Json).continue_file(&path).is_err());
        let error = begun(None, LineForm::Csv).continue_file(&folder.path().join("absent.csv")).unwrap_err();
        assert!(error.to_string().contains("absent.csv: cannot be opened"), "{error}");
    }
}
