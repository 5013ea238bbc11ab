#![forbid(unsafe_code)]

//! Agreement with PyTorch on every file of `fixtures/torch`, which hold a case each: inputs, weights, outputs, gradients and
//! three optimizer steps as PyTorch computed them, in double and in single precision.
//!
//! Names there map to ours: `fc.*` is `head.*`, `lstms.{k}.*` is `lstm.<TF>.*` with the k-th timeframe.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use megabatch_gpu_core::{Device, Scope};
use megabatch_trainer::{
    InputGradients, Loss, Model, ModelConfig, Optimizer, OptimizerConfig, OptimizerKind, Pass, SampleShape, Scalar,
    TensorSet, Timeframe, clip_by_norm, global_norm,
};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

const TIMEFRAMES: [&str; 5] = ["M1", "M5", "M15", "H1", "H4"];

/// The largest error allowed, as a share of the tensor's largest magnitude.
///
/// Double precision leaves only the order of sums, which differs from PyTorch's. In single precision a rounding is 6e-8.
#[derive(Clone, Copy)]
struct Tolerances {
    /// Outputs and states: up to 60 steps feed each other, but the gates' slopes of at most 1/4 damp what they pass on.
    outputs: f64,
    /// Mean of squares of a difference: twice the outputs' share, and outputs may cancel against targets.
    loss: f64,
    /// Sums over up to 960 steps and samples of products that pass through up to 60 steps twice.
    gradients: f64,
    /// The root of a sum of squares averages the gradients' errors.
    norm: f64,
    /// Adam moves every weight by about the learning rate, whatever its gradient's size, so that where a gradient is near ε its
    /// error shows in full: up to a hundredth of lr = 1e-3, beside weights of 0.2 and more.
    weights: f64,
    /// First moments are gradients' means.
    first_moments: f64,
    /// Second moments are squares, which double a relative error.
    second_moments: f64,
}

impl Tolerances {
    const DOUBLE: Tolerances = Tolerances {
        outputs: 1e-9,
        loss: 1e-9,
        gradients: 1e-9,
        norm: 1e-9,
        weights: 1e-9,
        first_moments: 1e-9,
        second_moments: 1e-9,
    };
    const SINGLE: Tolerances = Tolerances {
        outputs: 1e-6,
        loss: 1e-6,
        gradients: 5e-6,
        norm: 2e-6,
        weights: 4e-5,
        first_moments: 5e-6,
        second_moments: 1e-5,
    };
}

/// A case as the fixtures' metadata describe it.
#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
struct Case {
    b: usize,
    t: usize,
    f: usize,
    h: usize,
    l: usize,
    o: usize,
    #[serde(rename = "clip")]
    clip: f64,
    #[serde(rename = "lr")]
    lr: f64,
    #[serde(rename = "wd")]
    weight_decay: f64,
    #[serde(rename = "opt")]
    optimizer: OptimizerKind,
    #[serde(rename = "steps")]
    steps: usize,
    #[serde(rename = "tfs")]
    timeframes: Option<Vec<usize>>,
    #[serde(rename = "bias")]
    bias: u8,
    #[serde(rename = "carry")]
    carry: u8,
}

impl Case {
    fn model(&self) -> Model {
        let timeframe = |(name, &steps): (&str, &usize)| Timeframe { name: name.to_owned(), steps, features: self.f };
        let timeframes = match &self.timeframes {
            None => vec![timeframe(("", &self.t))],
            Some(lengths) => TIMEFRAMES.into_iter().zip(lengths).map(timeframe).collect(),
        };
        let config = ModelConfig { hidden: self.h, layers: self.l, bias: self.bias == 1 };
        Model::new(SampleShape { timeframes, outputs: self.o }, config).unwrap()
    }

    fn optimizer<S: Scalar>(&self, scope: &Scope, parameters: &TensorSet<S>) -> Optimizer<S> {
        let &Case { optimizer: kind, lr, weight_decay, .. } = self;
        Optimizer::new(scope, OptimizerConfig { kind, lr, weight_decay, ..OptimizerConfig::default() }, parameters)
            .unwrap()
    }

    /// The fixture's name of what belongs to timeframe `k`.
    fn of_timeframe(&self, name: &str, k: usize) -> String {
        if self.timeframes.is_some() { format!("{name}.{k}") } else { name.to_owned() }
    }
}

/// PyTorch's name in the fixtures of our parameter `name`.
fn torch_name(name: &str) -> String {
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

/// What PyTorch computed, and the comparison with it.
struct Fixture {
    file: String,
    tensors: BTreeMap<String, Vec<f64>>,
    tolerances: Tolerances,
    /// Names compared or read, so that nothing in the file is overlooked.
    seen: Vec<String>,
    /// Largest error by kind as a share of its tolerance, for the summary.
    worst: BTreeMap<&'static str, f64>,
}

impl Fixture {
    fn read(path: &Path) -> (Self, Case, Dtype) {
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
            tolerances: if dtype == Dtype::F64 { Tolerances::DOUBLE } else { Tolerances::SINGLE },
            seen: Vec::new(),
            worst: BTreeMap::new(),
        };
        (fixture, serde_json::from_str(&metadata["case"]).unwrap(), dtype)
    }

    fn input<S: Scalar>(&mut self, name: &str) -> Vec<S> {
        self.seen.push(name.to_owned());
        self.tensors[name].iter().map(|&x| S::from_f64(x)).collect()
    }

    fn compare<S: Scalar>(&mut self, kind: &'static str, name: &str, got: &[S]) {
        let Tolerances { outputs, loss, gradients, norm, weights, first_moments, second_moments } = self.tolerances;
        let tolerance = match kind {
            "outputs" => outputs,
            "loss" => loss,
            "gradients" => gradients,
            "norm" => norm,
            "weights" => weights,
            "first moments" => first_moments,
            "second moments" => second_moments,
            _ => panic!("no tolerance for {kind}"),
        };
        let expected = &self.tensors[name];
        assert_eq!(got.len(), expected.len(), "{}: {name}", self.file);
        let largest = expected.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        let error = got.iter().zip(expected).map(|(x, y)| (x.to_f64() - y).abs()).fold(0.0, f64::max);
        assert!(got.iter().all(|x| x.is_finite()), "{}: {name}", self.file);
        assert!(error <= tolerance * largest, "{}: {name} is off by {:.1e} of {largest:e}", self.file, error / largest);
        let worst = self.worst.entry(kind).or_default();
        *worst = worst.max(if largest > 0.0 { error / largest } else { 0.0 });
        self.seen.push(name.to_owned());
    }

    fn compare_set<S: Scalar>(&mut self, kind: &'static str, prefix: &str, set: &TensorSet<S>) {
        for (name, _, values) in set.tensors() {
            self.compare(kind, &format!("{prefix}.{}", torch_name(name)), values);
        }
    }

    fn check_that_all_was_seen(&mut self) {
        self.seen.sort();
        let left: Vec<_> = self.tensors.keys().filter(|name| self.seen.binary_search(name).is_err()).collect();
        assert!(left.is_empty(), "{}: never compared: {left:?}", self.file);
    }
}

/// [T, B, W] as [B, T, W].
fn batch_first<S: Copy>(values: &[S], [steps, samples, width]: [usize; 3]) -> Vec<S> {
    let rows = (0..samples).flat_map(|b| (0..steps).map(move |t| (t * samples + b) * width));
    rows.flat_map(|start| values[start..start + width].iter().copied()).collect()
}

/// Trains on a fixture's one batch as PyTorch did and compares everything on the way.
fn check<S: Scalar>(mut fixture: Fixture, case: &Case) -> BTreeMap<&'static str, f64> {
    let scope = Device::cpu().scope("parity");
    let model = case.model();
    let timeframes = model.shape().timeframes.len();
    let mut parameters = TensorSet::<S>::zeros(&scope, model.layout()).unwrap();
    for (name, _) in model.layout().tensors() {
        let values = fixture.input::<S>(&format!("param.{}", torch_name(name)));
        parameters.get_mut(name).unwrap().copy_from_slice(&values);
    }
    let windows: Vec<Vec<S>> = (0..timeframes).map(|k| fixture.input(&case.of_timeframe("input.x", k))).collect();
    let targets = fixture.input::<S>("input.target");
    let initial = (case.carry == 1).then(|| ["input.h0", "input.c0"].map(|name| fixture.input::<S>(name)));

    let mut pass = Pass::new(&scope, &model, case.b, InputGradients::Compute).unwrap();
    let mut gradients = TensorSet::zeros(&scope, model.layout()).unwrap();
    let mut optimizer = case.optimizer(&scope, &parameters);
    let mut norms = Vec::new();
    for step in 1..=case.steps {
        pass.load(case.b, windows.iter().map(Vec::as_slice));
        for (layer, state) in initial.iter().flat_map(|state| (0..case.l).zip(std::iter::repeat(state))) {
            let own = layer * case.b * case.h..(layer + 1) * case.b * case.h;
            pass.set_initial_state(0, layer, (&state[0][own.clone()], &state[1][own]));
        }
        model.forward(&parameters, &mut pass);
        let count = targets.len();
        let loss = Loss::Mse.sum(pass.outputs(), &targets) / count as f64;
        let (outputs, d_outputs) = pass.outputs_and_gradient_mut();
        Loss::Mse.gradient((outputs, &targets), count, d_outputs);
        gradients.clear();
        model.backward(&parameters, &mut pass, &mut gradients);

        fixture.compare("loss", &format!("step{step}.loss"), &[loss]);
        let norm = global_norm(&gradients);
        if step == 1 {
            fixture.compare("loss", "out.loss", &[loss]);
            compare_outputs(&mut fixture, case, &pass);
            compare_gradients(&mut fixture, case, &pass);
            fixture.compare_set("gradients", "grad", &gradients);
        }
        clip_by_norm(&mut gradients, norm, case.clip);
        if step == 1 {
            fixture.compare_set("gradients", "clipped", &gradients);
        }
        norms.push(norm);
        optimizer.update(&mut parameters, &gradients, case.lr);
        fixture.compare_set("weights", &format!("step{step}"), &parameters);
    }
    fixture.compare("norm", "grad_norm", &norms);
    let moments = optimizer.moments().unwrap();
    fixture.compare_set("first moments", "adam.m", &moments.exp_avg);
    fixture.compare_set("second moments", "adam.v", &moments.exp_avg_sq);
    fixture.check_that_all_was_seen();
    fixture.worst
}

fn compare_outputs<S: Scalar>(fixture: &mut Fixture, case: &Case, pass: &Pass<S>) {
    let states = |k: usize| (0..case.l).map(move |l| pass.last_state(k, l));
    let timeframes = case.timeframes.as_ref().map_or(1, Vec::len);
    let hidden: Vec<S> = (0..timeframes).flat_map(states).flat_map(|(hidden, _)| hidden.iter().copied()).collect();
    let cell: Vec<S> = (0..timeframes).flat_map(states).flat_map(|(_, cell)| cell.iter().copied()).collect();
    fixture.compare("outputs", "out.hn", &hidden);
    fixture.compare("outputs", "out.cn", &cell);
    fixture.compare("outputs", "out.y", pass.outputs());
    if case.timeframes.is_none() {
        fixture.compare("outputs", "out.seq", &batch_first(pass.sequence(0), [case.t, case.b, case.h]));
    }
}

fn compare_gradients<S: Scalar>(fixture: &mut Fixture, case: &Case, pass: &Pass<S>) {
    let lengths = case.timeframes.clone().unwrap_or_else(|| vec![case.t]);
    for (k, &steps) in lengths.iter().enumerate() {
        let gradient = batch_first(pass.input_gradient(k).unwrap(), [steps, case.b, case.f]);
        fixture.compare("gradients", &case.of_timeframe("grad.input.x", k), &gradient);
    }
    if case.carry == 1 {
        let gradients = || (0..case.l).map(|l| pass.initial_state_gradient(0, l));
        let hidden: Vec<S> = gradients().flat_map(|(hidden, _)| hidden.to_vec()).collect();
        let cell: Vec<S> = gradients().flat_map(|(_, cell)| cell.to_vec()).collect();
        fixture.compare("gradients", "grad.input.h0", &hidden);
        fixture.compare("gradients", "grad.input.c0", &cell);
    }
}

#[test]
fn every_fixture_agrees_with_pytorch() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/torch");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "safetensors")).collect();
    files.sort();
    assert_eq!(files.len(), 32, "the fixtures are 16 cases in two precisions");

    let mut worst: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for path in files {
        let (fixture, case, dtype) = Fixture::read(&path);
        let (precision, errors) = match dtype {
            Dtype::F64 => ("double", check::<f64>(fixture, &case)),
            _ => ("single", check::<f32>(fixture, &case)),
        };
        for (kind, error) in errors {
            let entry = worst.entry((precision, kind)).or_default();
            *entry = entry.max(error);
        }
    }
    for ((precision, kind), error) in worst {
        println!("{precision} {kind}: off by at most {error:.1e} of the tensor's largest magnitude");
    }
}
