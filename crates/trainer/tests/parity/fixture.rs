//! The cases and what PyTorch computed for them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use megabatch_nn::model::{Model, ModelConfig, SampleShape, TensorSet, Timeframe};
use megabatch_trainer::{OptimizerConfig, OptimizerKind};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use crate::tolerances::Tolerances;

const TIMEFRAMES: [&str; 5] = ["M1", "M5", "M15", "H1", "H4"];

/// All fixtures, by name.
pub(crate) fn files() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/torch");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "safetensors")).collect();
    files.sort();
    assert_eq!(files.len(), 32, "the fixtures are 16 cases in two precisions");
    files
}

/// A case as the fixtures' metadata describe it.
#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) struct Case {
    pub(crate) b: usize,
    pub(crate) t: usize,
    pub(crate) f: usize,
    pub(crate) h: usize,
    pub(crate) l: usize,
    pub(crate) o: usize,
    #[serde(rename = "clip")]
    pub(crate) clip: f64,
    #[serde(rename = "lr")]
    pub(crate) lr: f64,
    #[serde(rename = "wd")]
    pub(crate) weight_decay: f64,
    #[serde(rename = "opt")]
    pub(crate) optimizer: OptimizerKind,
    #[serde(rename = "steps")]
    pub(crate) steps: usize,
    #[serde(rename = "tfs")]
    pub(crate) timeframes: Option<Vec<usize>>,
    #[serde(rename = "bias")]
    pub(crate) bias: u8,
    #[serde(rename = "carry")]
    pub(crate) carry: u8,
}

impl Case {
    pub(crate) fn model(&self) -> Model {
        let timeframe = |(name, &steps): (&str, &usize)| Timeframe { name: name.to_owned(), steps, features: self.f };
        let timeframes = match &self.timeframes {
            None => vec![timeframe(("", &self.t))],
            Some(lengths) => TIMEFRAMES.into_iter().zip(lengths).map(timeframe).collect(),
        };
        let config = ModelConfig { hidden: self.h, layers: self.l, bias: self.bias == 1, ..ModelConfig::default() };
        Model::new(SampleShape { timeframes, outputs: self.o }, config).unwrap()
    }

    pub(crate) fn optimizer(&self) -> OptimizerConfig {
        let &Case { optimizer: kind, lr, weight_decay, .. } = self;
        OptimizerConfig { kind, lr, weight_decay, ..OptimizerConfig::default() }
    }

    /// The fixture's name of what belongs to timeframe `k`.
    pub(crate) fn timeframe_name(&self, name: &str, k: usize) -> String {
        if self.timeframes.is_some() { format!("{name}.{k}") } else { name.to_owned() }
    }
}

/// PyTorch's name in the fixtures of our parameter `name`.
pub(crate) fn torch_name(name: &str) -> String {
    if let Some(rest) = name.strip_prefix("head.") {
        return format!("fc.{rest}");
    }
    let mut parts = name.splitn(3, '.');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("lstm"), Some(timeframe), Some(rest)) => {
            let k = TIMEFRAMES.iter().position(|name| *name == timeframe).unwrap();
            format!("lstms.{k}.{rest}")
        }
        _ => name.to_owned(),
    }
}

/// PyTorch's results, and the comparison with them.
pub(crate) struct Fixture {
    file: String,
    tensors: BTreeMap<String, Vec<f64>>,
    tolerances: Tolerances,
    /// Names compared or read, so that nothing in the file is overlooked.
    seen: Vec<String>,
    /// Largest error by kind as a share of its tolerance, for the summary.
    pub(crate) worst: BTreeMap<&'static str, f64>,
}

impl Fixture {
    pub(crate) fn read(path: &Path, tolerances: Tolerances) -> (Self, Case, Dtype) {
        let bytes = fs::read(path).unwrap();
        let metadata = SafeTensors::read_metadata(&bytes).unwrap().1.metadata().clone().unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let dtype = if metadata["dtype"] == "float64" { Dtype::F64 } else { Dtype::F32 };
        let values = |data: &[u8]| match dtype {
            Dtype::F64 => data.chunks_exact(8).map(|x| f64::from_le_bytes(x.try_into().unwrap())).collect(),
            _ => data.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap()).into()).collect(),
        };
        let fixture = Fixture {
            file: path.file_name().unwrap().to_string_lossy().into_owned(),
            tensors: file.tensors().into_iter().map(|(name, view)| (name, values(view.data()))).collect(),
            tolerances,
            seen: Vec::new(),
            worst: BTreeMap::new(),
        };
        (fixture, serde_json::from_str(&metadata["case"]).unwrap(), dtype)
    }

    /// The tensor `name` in the fixture's precision.
    pub(crate) fn input(&mut self, name: &str) -> &[f64] {
        self.seen.push(name.to_owned());
        &self.tensors[name]
    }

    /// The tensor `name`, rounded to single precision.
    pub(crate) fn rounded(&mut self, name: &str) -> Vec<f32> {
        self.input(name).iter().map(|&x| x as f32).collect()
    }

    pub(crate) fn compare<T: Copy + Into<f64>>(&mut self, kind: &'static str, name: &str, got: &[T]) {
        let got: Vec<f64> = got.iter().copied().map(Into::into).collect();
        let tolerance = self.tolerances.get(kind);
        let expected = &self.tensors[name];
        assert_eq!(got.len(), expected.len(), "{}: {name}", self.file);
        let largest = expected.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        let error = got.iter().zip(expected).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        assert!(got.iter().all(|x| x.is_finite()), "{}: {name}", self.file);
        assert!(error <= tolerance * largest, "{}: {name} is off by {:.1e} of {largest:e}", self.file, error / largest);
        let worst = self.worst.entry(kind).or_default();
        *worst = worst.max(if largest > 0.0 { error / largest } else { 0.0 });
        self.seen.push(name.to_owned());
    }

    pub(crate) fn compare_set(&mut self, kind: &'static str, prefix: &str, set: &TensorSet) {
        for (name, _, values) in set.tensors() {
            self.compare(kind, &format!("{prefix}.{}", torch_name(name)), values);
        }
    }

    /// Refuses tensors that were neither read nor compared, but for those whose names begin with
    /// one of `except`.
    pub(crate) fn check_that_all_was_seen(&mut self, except: &[&str]) {
        self.seen.sort();
        let is_left = |name: &&String| {
            self.seen.binary_search(name).is_err() && !except.iter().any(|start| name.starts_with(start))
        };
        let left: Vec<_> = self.tensors.keys().filter(is_left).collect();
        assert!(left.is_empty(), "{}: never compared: {left:?}", self.file);
    }
}
