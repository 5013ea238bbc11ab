//! Strings and attributes. All string types are read: variable-length and fixed, ASCII and UTF-8.

use std::fmt;

use hdf5::types::{FixedAscii, FixedUnicode, TypeDescriptor, VarLenAscii, VarLenUnicode};
use hdf5::{Container, Location};
use serde::Serialize;

use crate::heap_references::check_heaps;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum AttributeValue {
    /// Any integer type; a boolean is 0 or 1.
    Int(i64),
    /// Any floating-point type.
    Float(f64),
    /// Any string type; bytes that are not UTF-8 are replaced.
    Text(String),
    /// Anything else, as the name of its type and its shape; never written.
    Other(String),
}

impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttributeValue::Int(value) => value.fmt(f),
            AttributeValue::Float(value) => value.fmt(f),
            AttributeValue::Text(value) | AttributeValue::Other(value) => value.fmt(f),
        }
    }
}

impl From<i64> for AttributeValue {
    fn from(value: i64) -> Self {
        AttributeValue::Int(value)
    }
}

impl From<f64> for AttributeValue {
    fn from(value: f64) -> Self {
        AttributeValue::Float(value)
    }
}

impl From<&str> for AttributeValue {
    fn from(value: &str) -> Self {
        AttributeValue::Text(value.to_owned())
    }
}

impl From<String> for AttributeValue {
    fn from(value: String) -> Self {
        AttributeValue::Text(value)
    }
}

/// The attribute `name` of `location`; `None` if there is none.
pub(crate) fn read_attribute(location: &Location, name: &str) -> hdf5::Result<Option<AttributeValue>> {
    if !location.attr_names()?.iter().any(|present| present == name) {
        return Ok(None);
    }
    let attribute = location.attr(name)?;
    let scalar = attribute.space()?.size() == 1;
    let value = match attribute.dtype()?.to_descriptor() {
        Ok(TypeDescriptor::Boolean) if scalar => AttributeValue::Int(attribute.read_raw::<bool>()?[0].into()),
        Ok(TypeDescriptor::Integer(_) | TypeDescriptor::Unsigned(_)) if scalar => {
            AttributeValue::Int(attribute.read_raw::<i64>()?[0])
        }
        Ok(TypeDescriptor::Float(_)) if scalar => AttributeValue::Float(attribute.read_raw::<f64>()?[0]),
        Ok(kind) if scalar && is_text(&kind) => AttributeValue::Text(read_texts(&attribute)?.swap_remove(0)),
        Ok(kind) => AttributeValue::Other(format!("{kind} {:?}", attribute.shape())),
        Err(_) => AttributeValue::Other("a type without a name here".to_owned()),
    };
    Ok(Some(value))
}

/// Writes the attribute `name`: 64-bit numbers and variable-length UTF-8 text, all scalar.
pub(crate) fn write_attribute(location: &Location, name: &str, value: &AttributeValue) -> hdf5::Result<()> {
    match value {
        AttributeValue::Int(value) => location.new_attr::<i64>().create(name)?.write_scalar(value),
        AttributeValue::Float(value) => location.new_attr::<f64>().create(name)?.write_scalar(value),
        AttributeValue::Text(text) => location.new_attr::<VarLenUnicode>().create(name)?.write_scalar(&unicode(text)?),
        AttributeValue::Other(_) => Ok(()),
    }
}

pub(crate) fn unicode(text: &str) -> hdf5::Result<VarLenUnicode> {
    text.parse()
        .map_err(|_| hdf5::Error::from(format!("the text {text:?} has a zero byte, which no HDF5 string can hold")))
}

pub(crate) fn is_text(kind: &TypeDescriptor) -> bool {
    use TypeDescriptor as Type;
    matches!(kind, Type::VarLenUnicode | Type::VarLenAscii | Type::FixedUnicode(_) | Type::FixedAscii(_))
}

/// Room for a fixed-length string; HDF5 cuts longer ones off.
const FIXED_BYTES: usize = 4_096;
/// Most bytes of fixed-length strings read at once: a file may claim any number.
const FIXED_BYTES_IN_ALL: usize = 1 << 28;

/// The strings of a dataset or attribute. They are read as bytes: a file's strings need not be
/// UTF-8, whatever their type says.
pub(crate) fn read_texts(container: &Container) -> hdf5::Result<Vec<String>> {
    check_heaps(container)?;
    let kind = container.dtype()?.to_descriptor()?;
    let count = container.space()?.size();
    if matches!(kind, TypeDescriptor::FixedUnicode(_) | TypeDescriptor::FixedAscii(_))
        && count.checked_mul(FIXED_BYTES).is_none_or(|bytes| bytes > FIXED_BYTES_IN_ALL)
    {
        return Err(hdf5::Error::from(format!("{count} strings of fixed length are too many")));
    }
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(match kind {
        TypeDescriptor::VarLenUnicode => {
            container.read_raw::<VarLenUnicode>()?.iter().map(|text| lossy(text.as_bytes())).collect()
        }
        TypeDescriptor::VarLenAscii => {
            container.read_raw::<VarLenAscii>()?.iter().map(|text| lossy(text.as_bytes())).collect()
        }
        TypeDescriptor::FixedUnicode(_) => {
            container.read_raw::<FixedUnicode<FIXED_BYTES>>()?.iter().map(|text| lossy(text.as_bytes())).collect()
        }
        TypeDescriptor::FixedAscii(_) => {
            container.read_raw::<FixedAscii<FIXED_BYTES>>()?.iter().map(|text| lossy(text.as_bytes())).collect()
        }
        other => return Err(hdf5::Error::from(format!("{other} is no string type"))),
    })
}
