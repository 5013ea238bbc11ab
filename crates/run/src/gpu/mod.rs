//! Utilisation of a GPU while it trains: one look at it, and gpu.csv, which keeps the looks.

#[cfg(any(test, feature = "conformance"))]
#[path = "tests/fixtures.rs"]
pub(crate) mod fixtures;
mod recorder;

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

pub(crate) use recorder::{Recorder, When};

/// Source of looks: NVIDIA's management library, or a test.
pub(crate) trait Sampler: Send {
    /// One look.
    ///
    /// # Errors
    /// Why there will be no more, as where the GPU has gone.
    fn sample(&mut self) -> Result<GpuSample, String>;
}

/// State of a GPU at one moment; `None` for values that it does not report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuSample {
    /// Share of the last moments, a sixth of a second to a second, in which a kernel ran, in
    /// percent.
    pub busy_percent: Option<f64>,
    /// By all programs.
    pub memory_used_bytes: Option<f64>,
    /// All memory of the GPU.
    pub memory_total_bytes: Option<f64>,
    /// Power that it takes.
    pub power_w: Option<f64>,
    /// Its temperature.
    pub celsius: Option<f64>,
    /// Clock of the multiprocessors.
    pub sm_mhz: Option<f64>,
    /// Clock of the memory.
    pub memory_mhz: Option<f64>,
}

/// A row of gpu.csv.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GpuRow {
    /// Seconds since 1970 UTC.
    pub(crate) time_s: f64,
    /// Optimizer steps done.
    pub(crate) step: u64,
    pub(crate) sample: GpuSample,
}

/// The first line of the file.
pub(crate) const HEADER: &str =
    "time_s,step,busy_percent,memory_used_bytes,memory_total_bytes,power_w,celsius,sm_mhz,memory_mhz";
/// More bytes than any row has.
const ROW_BYTES_MAX: u64 = 1024;

impl GpuSample {
    fn numbers(self) -> [Option<f64>; 7] {
        let GpuSample { busy_percent, memory_used_bytes, memory_total_bytes, power_w, celsius, sm_mhz, memory_mhz } =
            self;
        [busy_percent, memory_used_bytes, memory_total_bytes, power_w, celsius, sm_mhz, memory_mhz]
    }
}

impl GpuRow {
    /// The row without its end.
    fn to_line(self) -> String {
        let cell = |number: Option<f64>| number.map_or(String::new(), |number| number.to_string());
        let cells: Vec<String> = self.sample.numbers().into_iter().map(cell).collect();
        format!("{:.3},{},{}", self.time_s, self.step, cells.join(","))
    }

    /// None for the header, and for a line that a crash cut short.
    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.split(',').collect();
        let [time_s, step, numbers @ ..] = cells.as_slice() else { return None };
        let numbers: [&str; 7] = numbers.try_into().ok()?;
        let [busy_percent, memory_used_bytes, memory_total_bytes, power_w, celsius, sm_mhz, memory_mhz] =
            numbers.map(|cell| cell.parse::<f64>().ok());
        let sample =
            GpuSample { busy_percent, memory_used_bytes, memory_total_bytes, power_w, celsius, sm_mhz, memory_mhz };
        Some(GpuRow { time_s: time_s.parse().ok()?, step: step.parse().ok()?, sample })
    }
}

/// All rows of the file at `path`; none where there is no file.
pub(crate) fn rows(path: &Path) -> io::Result<Vec<GpuRow>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(whole(&text).filter_map(GpuRow::parse).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The last row, without reading those before it; none where there is no file.
pub(crate) fn last(path: &Path) -> io::Result<Option<GpuRow>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let offset = file.metadata()?.len().saturating_sub(ROW_BYTES_MAX);
    file.seek(SeekFrom::Start(offset))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let tail = String::from_utf8_lossy(&tail);
    // The first line may be the end of one, which has too few cells or another time: the last one
    // that is whole is asked for.
    Ok(whole(&tail).filter_map(GpuRow::parse).last())
}

/// The lines that have their end.
fn whole(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn rows_are_read_as_they_were_written() {
        let row = |step| GpuRow { time_s: 1_700_000_000.25, step, sample: fixtures::sample(97.0) };
        assert_eq!(row(12).to_line(), "1700000000.250,12,97,3000000000,80000000000,351.25,61,1980,");
        assert_eq!(row(12).to_line().matches(',').count(), HEADER.matches(',').count());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpu.csv");
        assert!(rows(&path).unwrap().is_empty() && last(&path).unwrap().is_none(), "there is no file");
        let lines: String = (0..100).map(|step| row(step).to_line() + "\n").collect();
        // The last row is not whole yet.
        fs::write(&path, format!("{HEADER}\n{lines}1700000000.250,12,9")).unwrap();
        assert_eq!(rows(&path).unwrap(), (0..100).map(row).collect::<Vec<_>>());
        assert_eq!(last(&path).unwrap(), Some(row(99)));
        fs::write(&path, format!("{HEADER}\n")).unwrap();
        assert_eq!(last(&path).unwrap(), None);
    }
}
