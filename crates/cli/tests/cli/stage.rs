//! A folder in which commands are run, what they answer, and the files that they leave.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use assert_cmd::assert::Assert;
use assert_cmd::cargo::cargo_bin;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use tempfile::TempDir;

/// A temporary folder. Commands run in it, so that they name files by their bare names.
pub(crate) struct Stage {
    folder: TempDir,
}

/// The synthetic series that most tests train on: 140 samples to train on, 9 steps of 16 an epoch.
pub(crate) const SERIES: &str = "synth series.h5 --samples 200 --timeframes M1:4,M5:3 --features 3 --targets 2";
/// A model that learns from it in a few milliseconds.
pub(crate) const SMALL: &str = "--set model.hidden=4 --set gpu_optimization.batch_size=16 --set training.lr=0.02";

impl Stage {
    /// An empty folder.
    pub(crate) fn new() -> Self {
        Stage { folder: tempfile::tempdir().unwrap() }
    }

    /// A folder that holds `series.h5`.
    pub(crate) fn with_series() -> Self {
        let stage = Stage::new();
        stage.succeeds(SERIES);
        stage
    }

    /// A folder that holds `series.h5` and `run`, a small model trained on it for an epoch.
    pub(crate) fn with_run() -> Self {
        let stage = Stage::with_series();
        stage.succeeds(&format!("train --data series.h5 --out run --set training.epochs=1 {SMALL}"));
        stage
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        let path = self.path(name);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).unwrap()
    }

    /// Lets `write` make or change the HDF5 file `name`. Processes that other tests start meanwhile
    /// inherit HDF5's open files with their locks; hence it writes elsewhere, and a copy, which
    /// nobody has open, comes to the name. A series loses its mark of verification, as it does
    /// where a change is meant.
    pub(crate) fn with_hdf5(&self, name: &str, write: impl FnOnce(&Path)) {
        self.damage(name, |draft| {
            write(draft);
            let is_marked = hdf5::File::open(draft).is_ok_and(|file| file.link_exists("checksums"));
            if is_marked {
                hdf5::File::open_rw(draft).unwrap().unlink("checksums").unwrap();
            }
        });
    }

    /// As [`Stage::with_hdf5`]; the file keeps its mark of verification, which shows what changed.
    pub(crate) fn damage(&self, name: &str, write: impl FnOnce(&Path)) {
        let elsewhere = tempfile::tempdir().unwrap();
        let draft = elsewhere.path().join(name);
        if self.path(name).exists() {
            fs::copy(self.path(name), &draft).unwrap();
        }
        write(&draft);
        fs::copy(&draft, self.path(name)).unwrap();
    }

    /// `megabatch LINE`, the words of the line being parted by blanks; settings of the developer's
    /// environment have no say.
    pub(crate) fn command(&self, line: &str) -> std::process::Command {
        let mut command = std::process::Command::new(cargo_bin!("megabatch"));
        command.args(line.split_whitespace()).current_dir(self.folder.path());
        let settings = std::env::vars_os().map(|(name, _)| name);
        for setting in settings.filter(|name| name.to_string_lossy().starts_with("MEGABATCH_")) {
            command.env_remove(setting);
        }
        command
    }

    /// Starts `megabatch LINE` and kills it after `life`; how it ended, if it did before.
    pub(crate) fn kill_after(&self, line: &str, life: Duration) -> Option<ExitStatus> {
        let mut process = self.command(line).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut stdout = process.stdout.take().unwrap();
        let (tell, ended) = channel();
        let reader = thread::spawn(move || {
            let mut answer = String::new();
            stdout.read_to_string(&mut answer).unwrap();
            // The test may have stopped waiting, after it killed the process.
            let _ = tell.send(());
        });
        let lives = ended.recv_timeout(life) == Err(RecvTimeoutError::Timeout);
        if lives {
            process.kill().unwrap();
        }
        let status = process.wait().unwrap();
        reader.join().unwrap();
        (!lives || status.success()).then_some(status)
    }

    /// Runs `megabatch LINE` to its end.
    pub(crate) fn run(&self, line: &str) -> Assert {
        assert_cmd::Command::from_std(self.command(line)).assert().append_context("line", line.to_owned())
    }

    /// Runs `megabatch LINE`, which must succeed; what it answers as text.
    pub(crate) fn said(&self, line: &str) -> String {
        String::from_utf8(self.run(line).success().get_output().stdout.clone()).unwrap()
    }

    /// Runs `megabatch LINE`, which must succeed; what it tells on standard error.
    pub(crate) fn told(&self, line: &str) -> String {
        String::from_utf8(self.run(line).success().get_output().stderr.clone()).unwrap()
    }

    /// Runs `megabatch LINE --json`, which must succeed; the answer.
    pub(crate) fn succeeds(&self, line: &str) -> Value {
        self.answers(line, 0)
    }

    /// Runs `megabatch LINE --json`, which must answer and end with `exit_code`; the answer.
    pub(crate) fn answers(&self, line: &str, exit_code: i32) -> Value {
        let assert = self.run(&format!("{line} --json")).code(exit_code);
        serde_json::from_slice(&assert.get_output().stdout).expect("standard output is one JSON value")
    }

    /// Runs `megabatch LINE`, which must fail with `exit_code` and answer nothing, as text and as
    /// JSON; both messages.
    pub(crate) fn fails(&self, line: &str, exit_code: i32) -> [String; 2] {
        let stderr = |line: &str| {
            let assert = self.run(line).code(exit_code).stdout("");
            String::from_utf8(assert.get_output().stderr.clone()).unwrap()
        };
        let text = stderr(line);
        let text = text.strip_prefix("megabatch: ").unwrap_or_else(|| panic!("`{line}` says {text}"));
        let json: Value =
            serde_json::from_str(&stderr(&format!("{line} --json"))).expect("an error is one JSON object");
        assert_eq!(json["exit_code"], exit_code, "{line}: {json}");
        [text.to_owned(), json["error"].as_str().expect("a message").to_owned()]
    }

    /// Every file and folder below this one with its bytes, to compare before and after.
    pub(crate) fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.contents_of("")
    }

    /// Every file and folder below `name` with its bytes.
    pub(crate) fn contents_of(&self, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut contents = BTreeMap::new();
        collect(&self.path(name), &mut contents);
        contents
    }

    /// True once a running command has begun a file. The file may be gone before it could be read.
    pub(crate) fn has_temporary_file(&self) -> bool {
        let mut entries = fs::read_dir(self.path("")).unwrap();
        entries.any(|entry| entry.unwrap().path().extension().is_some_and(|ending| ending == "tmp"))
    }

    /// The lines of `RUN/metrics.jsonl` about `event`.
    pub(crate) fn metrics(&self, run: &str, event: &str) -> Vec<Value> {
        let text = self.text(&format!("{run}/metrics.jsonl"));
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is one JSON object"));
        lines.filter(|metric| metric["event"] == event).collect()
    }

    /// The weights and the optimizer's moments of `RUN` after `step` steps, byte for byte.
    pub(crate) fn checkpoint(&self, run: &str, step: u64) -> [Vec<u8>; 2] {
        ["model", "optimizer"].map(|part| self.read(&format!("{run}/checkpoints/step-{step:08}/{part}.safetensors")))
    }
}

fn collect(folder: &Path, contents: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, contents);
            contents.insert(path, Vec::new());
        } else {
            let bytes = fs::read(&path).unwrap();
            contents.insert(path, bytes);
        }
    }
}

/// The numbers of a JSON array.
pub(crate) fn numbers(array: &Value) -> Vec<f64> {
    let array = array.as_array().unwrap_or_else(|| panic!("expected an array, found {array}"));
    array.iter().map(|number| number.as_f64().expect("a number")).collect()
}

/// The shape and the values of the f32 tensor `name` in the bytes of a safetensors file.
pub(crate) fn tensor(file: &[u8], name: &str) -> (Vec<usize>, Vec<f32>) {
    let tensors = SafeTensors::deserialize(file).unwrap();
    let tensor = tensors.tensor(name).unwrap_or_else(|error| panic!("{error}; there are {:?}", tensors.names()));
    assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
    let values = tensor.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    (tensor.shape().to_vec(), values.collect())
}

/// The shape and the values of the dataset `object` of an HDF5 file, read by nothing of ours.
pub(crate) fn dataset<T: hdf5::H5Type>(file: &Path, object: &str) -> (Vec<usize>, Vec<T>) {
    let dataset = hdf5::File::open(file).and_then(|file| file.dataset(object)).unwrap();
    (dataset.shape(), dataset.read_raw().unwrap())
}

/// A CSV of predictions without the columns of targets, which come last.
pub(crate) fn without_targets(csv: &str) -> String {
    let targets = csv.lines().next().unwrap().split(',').filter(|name| name.starts_with("target")).count();
    csv.lines().flat_map(|line| [line.rsplitn(targets + 1, ',').last().unwrap(), "\n"]).collect()
}

/// The bits of each number, which tell 0 from -0 and NaN from NaN.
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
