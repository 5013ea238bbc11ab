//! The cases and what PyTorch computed for them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;

use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Cell, Fusion, ModelConfig, Pooling, SampleShape, TensorSet, Timeframe};
use megabatch_trainer::{Config, OptimizerConfig};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

/// A file of all cases in one precision.
pub(crate) struct File {
    pub(crate) metadata: HashMap<String, String>,
    cases: BTreeMap<String, Case>,
    tensors: BTreeMap<String, Vec<f64>>,
}

/// A case as the file's metadata describe it.
#[derive(Deserialize)]
struct Case {
    samples: usize,
    /// T and F by name.
    timeframes: BTreeMap<String, [usize; 2]>,
    outputs: usize,
    model: Arguments,
}

/// The arguments of the module.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default)]
    cell: Cell,
    hidden: usize,
    #[serde(default = "one")]
    layers: usize,
    #[serde(default = "yes")]
    bias: bool,
    #[serde(default)]
    layer_norm: bool,
    pooling_heads: Option<usize>,
    fusion_heads: Option<usize>,
    #[serde(default = "four")]
    fusion_feed_forward: usize,
}

fn one() -> usize {
    1
}

fn four() -> usize {
    4
}

fn yes() -> bool {
    true
}

pub(crate) fn read(precision: &str) -> File {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/weights/torch_{precision}.safetensors"));
    let bytes = fs::read(path).unwrap();
    let metadata = SafeTensors::read_metadata(&bytes).unwrap().1.metadata().clone().unwrap();
    let values = |dtype, data: &[u8]| match dtype {
        Dtype::F64 => data.chunks_exact(8).map(|x| f64::from_le_bytes(x.try_into().unwrap())).collect(),
        _ => data.chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap()).into()).collect(),
    };
    let tensors = SafeTensors::deserialize(&bytes).unwrap().tensors().into_iter();
    File {
        cases: serde_json::from_str(&metadata["cases"]).unwrap(),
        tensors: tensors.map(|(name, view)| (name, values(view.dtype(), view.data()))).collect(),
        metadata,
    }
}

impl File {
    pub(crate) fn cases(&self) -> impl Iterator<Item = &str> {
        self.cases.keys().map(String::as_str)
    }

    fn number(&self, name: &str) -> f64 {
        self.metadata[name].parse().unwrap()
    }
}

/// The largest error allowed, as a share of the tensor's largest magnitude, in outputs, gradients
/// and weights after the steps.
///
/// In single precision a rounding is 6e-8: up to 20 steps feed each other, gradients are sums over
/// them and pass through them twice, and through norms, which divide by a spread of a tenth, and
/// AdamW with ε = 1e-3 turns the error of a gradient of 1e-3 into one of a tenth of its step of
/// 1e-2.
const TOLERANCES: [f64; 3] = [2e-6, 3e-5, 1e-5];

/// Compared values.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Outputs,
    Gradients,
    Weights,
}

/// One case, and the comparison with it.
pub(crate) struct Fixture<'a> {
    file: &'a File,
    name: &'a str,
    case: &'a Case,
    seen: BTreeSet<String>,
    pub(crate) worst: [f64; 3],
}

impl<'a> Fixture<'a> {
    pub(crate) fn new(file: &'a File, name: &'a str) -> Self {
        Fixture { file, name, case: &file.cases[name], seen: BTreeSet::new(), worst: [0.0; 3] }
    }

    /// B.
    pub(crate) fn samples(&self) -> usize {
        self.case.samples
    }

    /// Optimizer steps.
    pub(crate) fn steps(&self) -> usize {
        self.file.number("steps") as usize
    }

    /// The timeframes in the order of the module, shortest first.
    pub(crate) fn shape(&self) -> SampleShape {
        let all = ["", "M1", "M5", "M15", "H1", "H4"];
        let timeframe = |name: &str| {
            let &[steps, features] = self.case.timeframes.get(name)?;
            Some(Timeframe { name: name.to_owned(), steps, features })
        };
        SampleShape { timeframes: all.into_iter().filter_map(timeframe).collect(), outputs: self.case.outputs }
    }

    /// A run as PyTorch did it, in one batch.
    pub(crate) fn config(&self) -> Config {
        let &Arguments { cell, hidden, layers, bias, layer_norm, pooling_heads, fusion_heads, fusion_feed_forward } =
            &self.case.model;
        let feed_forward = fusion_feed_forward;
        let fusion = fusion_heads.map_or(Fusion::Concat, |heads| Fusion::Attention { heads, feed_forward });
        let pooling = pooling_heads.map_or(Pooling::Last, |heads| Pooling::Attention { heads });
        let optimizer = OptimizerConfig {
            lr: self.file.number("lr"),
            weight_decay: self.file.number("weight_decay"),
            epsilon: self.file.number("epsilon"),
            ..OptimizerConfig::default()
        };
        Config {
            model: ModelConfig { cell, hidden, layers, bias, layer_norm, pooling, fusion, ..ModelConfig::default() },
            optimizer,
            clip_norm: None,
            loss: Loss::Mse,
            max_steps: Some(self.steps() as u64),
            batch_size: self.case.samples,
            threads: 1,
            ..Config::default()
        }
    }

    /// The tensor `name`, rounded to single precision.
    pub(crate) fn input(&mut self, name: &str) -> Vec<f32> {
        self.tensor(name).iter().map(|&x| x as f32).collect()
    }

    pub(crate) fn compare<T: Copy + Into<f64>>(&mut self, kind: Kind, name: &str, got: &[T]) {
        let got: Vec<f64> = got.iter().copied().map(Into::into).collect();
        let (tolerance, expected) = (TOLERANCES[kind as usize], self.tensor(name));
        assert_eq!(got.len(), expected.len(), "{}: {name}", self.name);
        let largest = expected.iter().fold(f64::MIN_POSITIVE, |m: f64, x| m.max(x.abs()));
        let error = got.iter().zip(expected).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max) / largest;
        assert!(got.iter().all(|x| x.is_finite()), "{}: {name}", self.name);
        assert!(error <= tolerance, "{}: {name} is off by {error:.1e} of {largest:e}", self.name);
        self.worst[kind as usize] = self.worst[kind as usize].max(error);
    }

    pub(crate) fn compare_set(&mut self, kind: Kind, prefix: &str, set: &TensorSet) {
        for (name, _, values) in set.tensors() {
            self.compare(kind, &format!("{prefix}.{name}"), values);
        }
    }

    fn tensor(&mut self, name: &str) -> &'a [f64] {
        let name = format!("{}/{name}", self.name);
        let tensor = self.file.tensors.get(&name).unwrap_or_else(|| panic!("the fixture has no {name}"));
        self.seen.insert(name);
        tensor
    }

    pub(crate) fn check_that_all_was_seen(&self) {
        let own = self.file.tensors.keys().filter(|name| name.starts_with(&format!("{}/", self.name)));
        let left: Vec<_> = own.filter(|name| !self.seen.contains(*name)).collect();
        assert!(left.is_empty(), "never compared: {left:?}");
    }
}
