//! Tensors in safetensors files: written atomically, and read only if all of them fit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::error::{Error, Result};
use crate::model::tensor::{Layout, NamedTensor, TensorSet};

/// Writes `parameters` to `path` under PyTorch's names. The file appears whole or not at all: it is
/// written beside its place, flushed to the disk, and renamed.
///
/// # Errors
/// [`Error::File`] when the file system refuses; what `path` held before is then still there.
pub fn save_weights(path: &Path, parameters: &TensorSet) -> Result<()> {
    let bytes = encode(path, parameters.named(""))?;
    Ok(megabatch_atomic_file::write(path, &bytes)?)
}

/// Reads the tensors of `parameters` from a safetensors file with PyTorch's names: f64, f32, f16 or
/// bf16, rounded to `S`. A model whose timeframe has no name takes weights of any one timeframe,
/// and a model of one timeframe takes weights that name none.
///
/// # Errors
/// [`Error::Weights`] listing every tensor that is missing, unknown, misshapen or of another type;
/// [`Error::WeightsNotFinite`], [`Error::Safetensors`], [`Error::File`]. `parameters` are then as
/// before.
pub fn load_weights(path: &Path, parameters: &mut TensorSet) -> Result<()> {
    let mut file = TensorFile::open(path)?;
    if let Some(bytes) = file.without_timeframe(parameters.layout())? {
        file.bytes = bytes;
    }
    if let Some(bytes) = file.with_timeframe(parameters.layout())? {
        file.bytes = bytes;
    }
    file.check(&[("", parameters.layout())])?;
    file.require_finite(parameters.layout())?;
    file.copy("", parameters);
    Ok(())
}

/// The bytes of a safetensors file with `tensors`. `path` is named in errors.
///
/// # Errors
/// [`Error::Safetensors`] for two tensors of one name.
pub fn encode<'a>(path: &Path, tensors: impl Iterator<Item = NamedTensor<'a>>) -> Result<Vec<u8>> {
    let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let data: Vec<_> = tensors.map(|(name, shape, values)| (name, shape, bytes(&values))).collect();
    let view = |shape: &[usize], bytes| {
        TensorView::new(Dtype::F32, shape.to_vec(), bytes).expect("the bytes are those of the shape")
    };
    let views = data.iter().map(|(name, shape, bytes)| (name, view(shape, bytes)));
    safetensors::serialize(views, None)
        .map_err(|error| Error::Safetensors { path: path.to_owned(), reason: error.to_string() })
}

/// A safetensors file in memory whose header is known to be sound.
pub struct TensorFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl TensorFile {
    /// The file at `path`.
    ///
    /// # Errors
    /// [`Error::Safetensors`], [`Error::File`].
    pub fn open(path: &Path) -> Result<Self> {
        TensorFile::new(path, fs::read(path).map_err(Error::file(path, "read"))?)
    }

    /// Names and shapes of the tensors.
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.tensors().iter().map(|(name, view)| (name.to_owned(), view.shape().to_vec())).collect()
    }

    /// The file of these bytes; `path` is where they come from.
    pub fn new(path: &Path, bytes: Vec<u8>) -> Result<Self> {
        let file = TensorFile { path: path.to_owned(), bytes };
        match SafeTensors::deserialize(&file.bytes) {
            Ok(_) => Ok(file),
            Err(error) => Err(Error::Safetensors { path: path.to_owned(), reason: error.to_string() }),
        }
    }

    /// True if the file holds exactly the tensors of `sets`, each under its prefix.
    pub fn check(&self, sets: &[(&str, &Layout)]) -> Result<()> {
        let file = self.tensors();
        let expected = || {
            let tensors = |(prefix, layout): &'_ (&str, &Layout)| {
                let named = |(name, shape): (&str, &[usize])| (format!("{prefix}{name}"), shape.to_vec());
                layout.tensors().map(named).collect::<Vec<_>>()
            };
            sets.iter().flat_map(tensors)
        };
        let mut problems: Vec<String> = expected()
            .filter_map(|(name, shape)| match file.tensor(&name) {
                Err(_) => Some(format!("  {name}: missing, expected {shape:?}")),
                Ok(found) if found.shape() != shape => {
                    Some(format!("  {name}: expected {shape:?}, found {:?}", found.shape()))
                }
                Ok(found) if decoder(found.dtype()).is_none() => {
                    Some(format!("  {name}: expected F32, F64, F16 or BF16, found {:?}", found.dtype()))
                }
                Ok(_) => None,
            })
            .collect();
        let known: Vec<String> = expected().map(|(name, _)| name).collect();
        let mut unknown: Vec<_> = file.tensors().into_iter().filter(|(name, _)| !known.contains(name)).collect();
        unknown.sort_by(|a, b| a.0.cmp(&b.0));
        problems.extend(unknown.iter().map(|(name, found)| format!("  {name}: not known, found {:?}", found.shape())));
        if problems.is_empty() { Ok(()) } else { Err(Error::Weights { path: self.path.clone(), problems }) }
    }

    /// The bytes of the file with the names that `layout` has, such as `lstm.weight_ih_l0`, in
    /// place of those with a timeframe, `lstm.M1.weight_ih_l0`; `None` if the file does not have
    /// exactly one such timeframe.
    fn without_timeframe(&self, layout: &Layout) -> Result<Option<Vec<u8>>> {
        let file = self.tensors();
        let is_missing = |name: &str| file.tensor(name).is_err() && layout.tensors().any(|(known, _)| known == name);
        let unnamed = |name: &str| split_timeframe(name).filter(|(_, unnamed)| is_missing(unnamed));
        let mut timeframes = BTreeSet::new();
        let mut tensors = Vec::new();
        for (name, tensor) in file.tensors() {
            let unnamed = unnamed(&name).map(|(timeframe, unnamed)| {
                timeframes.insert(timeframe);
                unnamed
            });
            tensors.push((unnamed.unwrap_or(name), tensor));
        }
        if timeframes.len() != 1 {
            return Ok(None);
        }
        self.serialized(tensors).map(Some)
    }

    /// The bytes of the file with the names that `layout` has, such as `lstm.M1.weight_ih_l0`, in
    /// place of those without a timeframe, `lstm.weight_ih_l0`; `None` if none has such a name, or
    /// if the model has several timeframes that they may be of.
    fn with_timeframe(&self, layout: &Layout) -> Result<Option<Vec<u8>>> {
        let file = self.tensors();
        let is_unknown = |name: &str| layout.tensors().all(|(known, _)| known != name);
        let mut timeframes = BTreeSet::new();
        let mut names = BTreeMap::new();
        for (name, _) in layout.tensors() {
            let Some((timeframe, unnamed)) = split_timeframe(name) else { continue };
            if file.tensor(&unnamed).is_err() || !is_unknown(&unnamed) {
                continue;
            }
            timeframes.insert(timeframe);
            if file.tensor(name).is_err() {
                names.insert(unnamed, name.to_owned());
            }
        }
        if timeframes.len() != 1 || names.is_empty() {
            return Ok(None);
        }
        let mut tensors = Vec::new();
        for (name, tensor) in file.tensors() {
            tensors.push((names.get(&name).cloned().unwrap_or(name), tensor));
        }
        self.serialized(tensors).map(Some)
    }

    fn serialized(&self, tensors: Vec<(String, TensorView<'_>)>) -> Result<Vec<u8>> {
        let failed = |error: SafeTensorError| Error::Safetensors { path: self.path.clone(), reason: error.to_string() };
        safetensors::serialize(tensors, None).map_err(failed)
    }

    /// Refuses tensors with numbers that are NaN or infinite, or too large for an f32; all are
    /// there, as [`TensorFile::check`] found.
    fn require_finite(&self, layout: &Layout) -> Result<()> {
        let file = self.tensors();
        let problem = |(name, _): (&str, &[usize])| {
            let view = file.tensor(name).expect("the file was checked");
            let (width, decode) = decoder(view.dtype()).expect("the file was checked");
            let numbers = view.data().chunks_exact(width).map(decode);
            let mut bad = numbers.enumerate().filter(|(_, number)| !(*number as f32).is_finite());
            let (index, number) = bad.next()?;
            let count = 1 + bad.count();
            // Large numbers with an exponent.
            Some(format!("  {name}: expected finite numbers, found {number:?} at index {index} ({count} in all)"))
        };
        let problems: Vec<String> = layout.tensors().filter_map(problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(Error::WeightsNotFinite { path: self.path.clone(), problems }) }
    }

    /// Fills `set` from the tensors under `prefix`, which [`TensorFile::check`] found to be there.
    pub fn copy(&self, prefix: &str, set: &mut TensorSet) {
        for (name, _, values) in set.tensors_mut() {
            self.read(&format!("{prefix}{name}"), values);
        }
    }

    /// Fills `values` from the tensor `name`, which [`TensorFile::check`] found to be there, of
    /// their length.
    pub fn read(&self, name: &str, values: &mut [f32]) {
        let file = self.tensors();
        let view = file.tensor(name).expect("the file was checked");
        let (width, decode) = decoder(view.dtype()).expect("the file was checked");
        for (value, bytes) in values.iter_mut().zip(view.data().chunks_exact(width)) {
            *value = (decode(bytes)) as f32;
        }
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).expect("the header was sound when the file was opened")
    }
}

/// The timeframe in the name of a tensor, and the name without it.
fn split_timeframe(name: &str) -> Option<(String, String)> {
    let (part, rest) = name.split_once('.')?;
    let (timeframe, kind) = rest.split_once('.')?;
    Some((timeframe.to_owned(), format!("{part}.{kind}")))
}

/// The width of a type in bytes, and how a value of it is read.
type NumberDecoder = (usize, fn(&[u8]) -> f64);

/// Decoder of a type; `None` for one that is not a float of 16 bits or more.
fn decoder(dtype: Dtype) -> Option<NumberDecoder> {
    fn bytes<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().expect("a chunk of the type's width")
    }
    match dtype {
        Dtype::F64 => Some((8, |x| f64::from_le_bytes(bytes(x)))),
        Dtype::F32 => Some((4, |x| f32::from_le_bytes(bytes(x)).into())),
        Dtype::F16 => Some((2, |x| f16::from_le_bytes(bytes(x)).into())),
        Dtype::BF16 => Some((2, |x| bf16::from_le_bytes(bytes(x)).into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use megabatch_gpu_core::Device;

    use super::*;

    fn set(tensors: &[(&str, &[usize])]) -> TensorSet {
        let mut layout = Layout::default();
        for (name, shape) in tensors {
            layout.push((*name).to_owned(), shape);
        }
        TensorSet::zeros(&Device::cpu().scope("test"), &Arc::new(layout)).unwrap()
    }

    fn file(tensors: &[(&str, Dtype, &[usize], &[u8])], path: &Path) {
        let view = |(name, dtype, shape, bytes): &(&str, Dtype, &[usize], &'static [u8])| {
            ((*name).to_owned(), TensorView::new(*dtype, shape.to_vec(), bytes).unwrap())
        };
        let tensors: Vec<(&str, Dtype, &[usize], &'static [u8])> =
            tensors.iter().map(|&(n, d, s, b)| (n, d, s, &*Box::leak(b.to_vec().into_boxed_slice()))).collect();
        fs::write(path, safetensors::serialize(tensors.iter().map(view).collect::<Vec<_>>(), None).unwrap()).unwrap();
    }

    #[test]
    fn what_was_saved_is_loaded_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let mut saved = set(&[("a", &[2, 2]), ("b", &[1])]);
        saved.values_mut().copy_from_slice(&[1.0, -0.0, f32::MIN_POSITIVE / 3.0, f32::MAX, 0.1]);
        save_weights(&path, &saved).unwrap();
        save_weights(&path, &saved).unwrap();
        let mut loaded = set(&[("b", &[1]), ("a", &[2, 2])]);
        load_weights(&path, &mut loaded).unwrap();
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for name in ["a", "b"] {
            assert_eq!(bits(saved.get(name).unwrap()), bits(loaded.get(name).unwrap()));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "temporary files are left");
    }

    #[test]
    fn every_float_type_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        file(
            &[
                ("f16", Dtype::F16, &[1], &f16::from_f32(1.5).to_le_bytes()),
                ("bf16", Dtype::BF16, &[1], &bf16::from_f32(-2.0).to_le_bytes()),
                ("f64", Dtype::F64, &[1], &0.1f64.to_le_bytes()),
            ],
            &path,
        );
        let mut loaded = set(&[("f16", &[1]), ("bf16", &[1]), ("f64", &[1])]);
        load_weights(&path, &mut loaded).unwrap();
        assert_eq!(loaded.values(), [1.5, -2.0, 0.1]);
    }

    /// Weights of one timeframe did not fit data that do not name theirs.
    #[test]
    fn a_timeframe_without_a_name_takes_the_weights_of_the_only_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let mut saved = set(&[("lstm.M1.weight_ih_l0", &[2]), ("norm.M1.l0.weight", &[1]), ("head.bias", &[1])]);
        saved.values_mut().copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
        save_weights(&path, &saved).unwrap();
        let mut loaded = set(&[("lstm.weight_ih_l0", &[2]), ("norm.l0.weight", &[1]), ("head.bias", &[1])]);
        load_weights(&path, &mut loaded).unwrap();
        assert_eq!(loaded.values(), saved.values());

        save_weights(&path, &set(&[("lstm.H1.weight_ih_l0", &[2]), ("lstm.M1.weight_ih_l0", &[2])])).unwrap();
        let message = load_weights(&path, &mut set(&[("lstm.weight_ih_l0", &[2])])).unwrap_err().to_string();
        let lines: Vec<_> = message.lines().skip(1).map(|line| line.split_once(',').unwrap().0).collect();
        let [h1, m1] = ["H1", "M1"].map(|timeframe| format!("  lstm.{timeframe}.weight_ih_l0: not known"));
        assert_eq!(lines, ["  lstm.weight_ih_l0: missing", &h1, &m1]);
    }

    /// Weights that name no timeframe did not fit data that name their only one.
    #[test]
    fn the_only_timeframe_takes_weights_that_name_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let mut saved = set(&[("lstm.weight_ih_l0", &[2]), ("norm.l0.weight", &[1]), ("head.bias", &[1])]);
        saved.values_mut().copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
        save_weights(&path, &saved).unwrap();
        let mut loaded = set(&[("lstm.M1.weight_ih_l0", &[2]), ("norm.M1.l0.weight", &[1]), ("head.bias", &[1])]);
        load_weights(&path, &mut loaded).unwrap();
        assert_eq!(loaded.values(), saved.values());

        // Two timeframes may be meant, even where the other one has weights of its own.
        let unnamed = set(&[("lstm.weight_ih_l0", &[2])]);
        let with_other = set(&[("lstm.weight_ih_l0", &[2]), ("lstm.H1.weight_ih_l0", &[2])]);
        for saved in [unnamed, with_other] {
            save_weights(&path, &saved).unwrap();
            let mut several = set(&[("lstm.H1.weight_ih_l0", &[2]), ("lstm.M1.weight_ih_l0", &[2])]);
            let message = load_weights(&path, &mut several).unwrap_err().to_string();
            assert!(message.contains("  lstm.weight_ih_l0: not known"), "{message}");
        }
    }

    #[test]
    fn one_error_lists_every_tensor_that_does_not_fit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        file(
            &[("a", Dtype::F32, &[1], &[0; 4]), ("c", Dtype::I32, &[1], &[0; 4]), ("x", Dtype::F32, &[1], &[0; 4])],
            &path,
        );
        let mut loaded = set(&[("a", &[2]), ("b", &[3, 1]), ("c", &[1])]);
        let message = load_weights(&path, &mut loaded).unwrap_err().to_string();
        let lines: Vec<_> = message.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "  a: expected [2], found [1]",
                "  b: missing, expected [3, 1]",
                "  c: expected F32, F64, F16 or BF16, found I32",
                "  x: not known, found [1]",
            ]
        );
    }

    /// A NaN among the weights passed `import`, `predict` and ONNX, and `eval` said "NaN % worse".
    #[test]
    fn weights_that_are_not_finite_are_refused_by_name_and_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let bytes = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        file(
            &[
                ("a", Dtype::F32, &[3], &bytes(&[1.0, f32::NAN, f32::INFINITY])),
                ("b", Dtype::F32, &[1], &bytes(&[f32::MAX])),
                ("c", Dtype::F64, &[1], &1e39f64.to_le_bytes()),
            ],
            &path,
        );
        let mut loaded = set(&[("a", &[3]), ("b", &[1]), ("c", &[1])]);
        let message = load_weights(&path, &mut loaded).unwrap_err().to_string();
        let lines: Vec<_> = message.lines().skip(1).collect();
        assert_eq!(lines.len(), 2, "{message}");
        assert_eq!(lines[0], "  a: expected finite numbers, found NaN at index 1 (2 in all)");
        assert_eq!(lines[1], "  c: expected finite numbers, found 1e39 at index 0 (1 in all)");
        assert_eq!(loaded.values(), [0.0; 5], "the parameters are as before");
    }

    #[test]
    fn files_that_are_no_safetensors_name_themselves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let mut loaded = set(&[("a", &[2])]);
        assert!(matches!(load_weights(&path, &mut loaded), Err(Error::File { action: "read", .. })));
        save_weights(&path, &loaded).unwrap();
        let whole = fs::read(&path).unwrap();
        for bytes in [&[][..], b"not a tensor file", &whole[..whole.len() - 1], &u64::MAX.to_le_bytes()] {
            fs::write(&path, bytes).unwrap();
            let error = load_weights(&path, &mut loaded).unwrap_err();
            assert!(error.to_string().contains("w.safetensors: not a readable safetensors file"), "{error}");
        }
    }
}
