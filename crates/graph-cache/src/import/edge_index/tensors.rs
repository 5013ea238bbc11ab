//! The tensors of a safetensors file as numbers of one type.

use std::collections::HashMap;
use std::path::Path;

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// A file's tensors and metadata.
pub(super) struct TensorReader<'b> {
    path: &'b Path,
    tensors: SafeTensors<'b>,
    metadata: HashMap<String, String>,
}

/// Values with their shape.
pub(super) struct TypedTensor<T> {
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<T>,
}

impl<T> TypedTensor<T> {
    /// Length of the first dimension, and the values in each of its rows.
    pub(super) fn rows(&self) -> (usize, usize) {
        // Of no rows, any width is stated at no cost.
        let width = self.shape.iter().skip(1).fold(1, |width: usize, &length| width.saturating_mul(length));
        (self.shape.first().copied().unwrap_or(1), width)
    }
}

impl<'b> TensorReader<'b> {
    pub(super) fn new(path: &'b Path, bytes: &'b [u8]) -> Result<Self> {
        let wrong = |error: safetensors::SafeTensorError| Error::Contradiction {
            path: path.to_owned(),
            found: format!("this is no safetensors file: {error}"),
            expected: "tensors as safetensors.torch.save_file writes them".to_owned(),
        };
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(wrong)?;
        let metadata = header.metadata().clone().unwrap_or_default();
        Ok(TensorReader { path, tensors: SafeTensors::deserialize(bytes).map_err(wrong)?, metadata })
    }

    pub(super) fn contradiction(&self, found: impl Into<String>, expected: impl Into<String>) -> Error {
        Error::Contradiction { path: self.path.to_owned(), found: found.into(), expected: expected.into() }
    }

    /// Names of the tensors, for a message.
    pub(super) fn list(&self) -> String {
        let mut names: Vec<&str> = self.tensors.names();
        names.sort_unstable();
        names.iter().take(20).map(|name| format!("`{name:.40}`")).collect::<Vec<_>>().join(", ")
    }

    /// True if the tensor holds integers; `None` where there is no such tensor.
    pub(super) fn is_of_integers(&self, name: &str) -> Option<bool> {
        let dtype = self.tensors.tensor(name).ok()?.dtype();
        Some(matches!(dtype, Dtype::I64 | Dtype::I32 | Dtype::I16 | Dtype::I8 | Dtype::U8 | Dtype::BOOL))
    }

    pub(super) fn integers(&self, name: &str) -> Result<Option<TypedTensor<i64>>> {
        let Ok(view) = self.tensors.tensor(name) else { return Ok(None) };
        let data = view.data();
        let values = match view.dtype() {
            Dtype::I64 => each(data, i64::from_le_bytes),
            Dtype::I32 => each(data, |bytes| i32::from_le_bytes(bytes).into()),
            Dtype::I16 => each(data, |bytes| i16::from_le_bytes(bytes).into()),
            Dtype::I8 => each(data, |bytes| i8::from_le_bytes(bytes).into()),
            Dtype::U8 | Dtype::BOOL => each(data, |[byte]| byte.into()),
            other => return Err(self.contradiction(format!("`{name}` is of {other:?}"), "int64 or other integers")),
        };
        Ok(Some(TypedTensor { shape: view.shape().to_vec(), values }))
    }

    pub(super) fn floats(&self, name: &str) -> Result<Option<TypedTensor<f32>>> {
        let Ok(view) = self.tensors.tensor(name) else { return Ok(None) };
        let data = view.data();
        let values = match view.dtype() {
            Dtype::F32 => each(data, f32::from_le_bytes),
            Dtype::F64 => each(data, |bytes| f64::from_le_bytes(bytes) as f32),
            Dtype::F16 => each(data, |bytes| f16::from_le_bytes(bytes).to_f32()),
            Dtype::BF16 => each(data, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            other => return Err(self.contradiction(format!("`{name}` is of {other:?}"), "float32 or other floats")),
        };
        Ok(Some(TypedTensor { shape: view.shape().to_vec(), values }))
    }

    /// Metadata under a key, as JSON.
    pub(super) fn metadata<T: DeserializeOwned>(&self, key: &str, expected: &str) -> Result<Option<T>> {
        let Some(text) = self.metadata.get(key) else { return Ok(None) };
        let parsed = serde_json::from_str(text);
        parsed.map(Some).map_err(|error| self.contradiction(format!("`{key}` of the metadata: {error}"), expected))
    }
}

fn each<T, const WIDTH: usize>(data: &[u8], value: impl Fn([u8; WIDTH]) -> T) -> Vec<T> {
    data.as_chunks().0.iter().map(|&bytes| value(bytes)).collect()
}
