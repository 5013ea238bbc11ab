//! Tensors of a fixture, and the comparison with them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use megabatch_gpu_core::Device;
use megabatch_nn::model::{Model, TensorSet};
use megabatch_reference::Reference;
use safetensors::{Dtype, SafeTensors};

/// The folder of the tests that keep the fixtures.
pub(crate) fn folder(crate_name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(crate_name).join("tests")
}

/// A file of safetensors.
pub(crate) struct File {
    pub(crate) metadata: HashMap<String, String>,
    tensors: BTreeMap<String, Vec<f64>>,
    seen: RefCell<BTreeSet<String>>,
}

impl File {
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let metadata = SafeTensors::read_metadata(&bytes).unwrap().1.metadata().clone().unwrap();
        let values = |dtype, data: &[u8]| match dtype {
            Dtype::F64 => data.chunks_exact(8).map(|x| f64::from_le_bytes(x.try_into().unwrap())).collect(),
            _ => data.chunks_exact(4).map(|x| f64::from(u32::from_le_bytes(x.try_into().unwrap()))).collect(),
        };
        let tensors = SafeTensors::deserialize(&bytes).unwrap().tensors().into_iter();
        let tensors = tensors.map(|(name, view)| (name, values(view.dtype(), view.data()))).collect();
        File { metadata, tensors, seen: RefCell::default() }
    }

    pub(crate) fn tensor(&self, name: &str) -> &[f64] {
        self.seen.borrow_mut().insert(name.to_owned());
        self.tensors.get(name).unwrap_or_else(|| panic!("the fixture has no {name}"))
    }

    /// Refuses an error beyond `tolerance` of the largest number of the tensor.
    pub(crate) fn compare(&self, name: &str, found: &[f64], tolerance: f64) {
        self.compare_beside(largest(self.tensor(name)), name, found, tolerance);
    }

    pub(crate) fn compare_beside(&self, largest: f64, name: &str, found: &[f64], tolerance: f64) {
        let expected = self.tensor(name);
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.iter().zip(expected) {
            let error = (found - expected).abs();
            assert!(error <= tolerance * largest, "{name}: {found} for {expected}, off by {error:.1e} of {largest:e}");
        }
    }

    /// Refuses tensors that were neither read nor compared, but for those whose names `is_left`
    /// knows.
    pub(crate) fn check_all_seen(&self, is_left: impl Fn(&str) -> bool) {
        let seen = self.seen.borrow();
        let left: Vec<&String> = self.tensors.keys().filter(|name| !seen.contains(*name) && !is_left(name)).collect();
        assert!(left.is_empty(), "never compared: {left:?}");
    }
}

/// The model with the parameters that `values` gives by name.
pub(crate) fn reference<'a>(model: &Model, values: impl Fn(&str) -> &'a [f64]) -> Reference {
    let zeros = TensorSet::zeros(&Device::cpu().scope("fixture"), model.layout()).unwrap();
    let mut reference = Reference::new(model, &zeros);
    for (name, _) in model.layout().tensors() {
        reference.parameter_mut(name).unwrap().copy_from_slice(values(name));
    }
    reference
}

pub(crate) fn largest(values: &[f64]) -> f64 {
    values.iter().fold(f64::MIN_POSITIVE, |most: f64, x| most.max(x.abs()))
}
