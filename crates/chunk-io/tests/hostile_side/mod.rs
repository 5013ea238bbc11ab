//! A process of its own that reads files, so that one that crashes or hangs the HDF5 library ends
//! that process and no test.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use megabatch_chunk_io::{SampleBlock, Source, SourceOptions, TimeframeShape};
use megabatch_gpu_core::Device;

/// Set in the process that reads.
const CHILD: &str = "MEGABATCH_HOSTILE_CHILD";
/// Marks its answers among what the test harness prints.
const MARK: &str = "@answer ";
/// A file that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// Values that are read of a file, whatever it says it has.
const VALUES_MAX: usize = 1 << 22;

/// Outcome of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ending {
    /// Read: as the library reads it, or as it was written.
    Read,
    Refused(String),
    /// Read, but as something else.
    Differs(String),
    Crashed(String),
    Hung,
}

/// Cost of the outcome.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) ending: Ending,
    pub(crate) cpu_s: f64,
    pub(crate) peak_bytes: u64,
}

/// Reads files in another process, started anew after each that ended it.
pub(crate) struct Reader {
    test: &'static str,
    process: Option<(Child, Receiver<String>)>,
}

impl Reader {
    /// `test` is the name of the test of this binary that calls [`serve`].
    pub(crate) fn new(test: &'static str) -> Self {
        Reader { test, process: None }
    }

    pub(crate) fn read(&mut self, path: &Path) -> Outcome {
        let test = self.test;
        let (child, answers) = self.process.get_or_insert_with(|| start(test));
        let mut input = child.stdin.as_ref().expect("the input is piped");
        let ending = match writeln!(input, "{}", path.display()).map(|()| answers.recv_timeout(PATIENCE)) {
            Ok(Ok(line)) => return parse(&line),
            Ok(Err(RecvTimeoutError::Timeout)) => Ending::Hung,
            Ok(Err(RecvTimeoutError::Disconnected)) | Err(_) => Ending::Crashed(String::new()),
        };
        let (mut child, _) = self.process.take().expect("it was started above");
        child.kill().unwrap();
        let status = child.wait().unwrap();
        let ending = if ending == Ending::Hung { ending } else { Ending::Crashed(status.to_string()) };
        Outcome { ending, cpu_s: 0.0, peak_bytes: 0 }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.process.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

fn start(test: &str) -> (Child, Receiver<String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().expect("the output is piped"));
    let (sender, answers) = channel();
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            // The harness does not end its own line before a test prints.
            if let Some((_, answer)) = line.split_once(MARK) {
                let _ = sender.send(answer.to_owned());
            }
        }
    });
    (child, answers)
}

fn parse(line: &str) -> Outcome {
    let mut parts = line.splitn(4, '\t');
    let mut part = || parts.next().unwrap_or_default().to_owned();
    let (kind, cpu_s, peak_bytes, text) = (part(), part(), part(), part());
    let ending = match kind.as_str() {
        "read" => Ending::Read,
        "refused" => Ending::Refused(text),
        _ => Ending::Differs(text),
    };
    Outcome { ending, cpu_s: cpu_s.parse().unwrap(), peak_bytes: peak_bytes.parse().unwrap() }
}

/// Answers for each file named on standard input, if this is the process that reads; nothing
/// otherwise.
pub(crate) fn serve() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    for path in std::io::stdin().lines().map_while(Result::ok) {
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let (cpu_before, bytes_before) = (cpu_s(), peak_bytes());
        let (kind, text) = read(Path::new(&path));
        let (cpu, bytes) = (cpu_s() - cpu_before, peak_bytes().saturating_sub(bytes_before));
        println!("{MARK}{kind}\t{cpu}\t{bytes}\t{}", text.replace('\n', " "));
    }
}

fn read(path: &Path) -> (&'static str, String) {
    let options = SourceOptions { resident_bytes_max: 0, threads: 2, ..SourceOptions::default() };
    let mut refused = String::new();
    let ours = read_ours(path, options).map_err(|error| refused = error.to_string()).ok();
    let Some((objects, ours)) = ours else { return ("refused", refused) };
    for (object, ours) in objects.iter().zip(&ours) {
        let Some(library) = read_by_library(path, object, ours.len()) else { continue };
        let differs = |place: &usize| ours[*place].to_bits() != library[*place].to_bits();
        // Where the library no longer finds a chunk, it makes up zeros: what was written is as
        // good.
        let wrong = |place: &usize| differs(place) && ours[*place] != written(object, *place);
        if let Some(place) = (0..ours.len()).find(wrong) {
            return ("differs", format!("{object} at value {place}: {} and {}", ours[place], library[place]));
        }
    }
    ("read", String::new())
}

/// Content of the good files.
pub(crate) fn written(object: &str, place: usize) -> f32 {
    if object == "/features" { (place % 23) as f32 * 0.5 } else { 0.25 }
}

/// As many samples as are few enough, by a range and by a list; features by timeframe, then
/// targets.
fn read_ours(path: &Path, options: SourceOptions) -> Result<(Vec<String>, Vec<Vec<f32>>), megabatch_chunk_io::Error> {
    let source = Source::open_with(path, &Device::cpu().scope("data"), options)?;
    let objects = source.storage()?.into_iter().map(|dataset| dataset.object).collect();
    let shape = source.shape();
    let sample_len = shape.timeframes.iter().map(TimeframeShape::window_len).sum::<usize>() + shape.horizons;
    let samples = shape.samples.min(VALUES_MAX / sample_len);
    let mut block = SampleBlock::zeros(shape, samples);
    source.read(0..samples, block.slices())?;
    let list: Vec<usize> = (0..samples.min(3)).rev().chain(0..samples.min(1)).collect();
    let mut some = SampleBlock::zeros(shape, list.len());
    source.gather(&list, some.slices())?;
    block.features.push(block.targets);
    Ok((objects, block.features))
}

/// The first `len` values of a dataset as HDF5 itself reads them, `None` if it does not.
fn read_by_library(path: &Path, object: &str, len: usize) -> Option<Vec<f32>> {
    let dataset = hdf5::File::open(path).ok()?.dataset(object).ok()?;
    if dataset.size() != len {
        return None;
    }
    match dataset.dtype().ok()?.size() {
        8 => Some(dataset.read_raw::<f64>().ok()?.into_iter().map(|value| value as f32).collect()),
        4 => dataset.read_raw::<f32>().ok(),
        _ => None,
    }
}

fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
