//! Fields of an error, for programs.

use std::error::Error as StdError;
use std::path::Path;

use megabatch_bars::{Error as BarsError, FunctionFault, TickError};
use megabatch_chunk_io::Error as FileError;
use megabatch_gpu_core::Error as DeviceError;
use megabatch_trainer::Error as TrainerError;
use serde_json::{Value, json};

use super::Error;
use super::keys::key_of;
use crate::config::ConfigError;

impl Error {
    /// The same error, with a field for programs.
    #[must_use]
    pub(crate) fn with_field(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// The values in the message by name, such as `file`, `object`, `line`, `key`, `needed_bytes`.
    /// The first error of the chain that has a field decides.
    pub fn fields(&self) -> Vec<(&'static str, Value)> {
        let mut fields = self.fields.clone();
        for (name, value) in self.causes().flat_map(cause_fields) {
            if fields.iter().all(|(other, _)| *other != name) {
                fields.push((name, value));
            }
        }
        fields
    }
}

type Fields = Vec<(&'static str, Value)>;

fn cause_fields(cause: &(dyn StdError + 'static)) -> Fields {
    if let Some(error) = cause.downcast_ref::<Error>() {
        return error.fields();
    }
    let config = || cause.downcast_ref().map(config_fields);
    let file = || cause.downcast_ref().map(file_fields);
    let bars = || cause.downcast_ref().map(bars_fields);
    let training = || cause.downcast_ref().map(training_fields);
    let device = || cause.downcast_ref().map(device_fields);
    config().or_else(file).or_else(bars).or_else(training).or_else(device).unwrap_or_default()
}

fn path(path: &Path) -> Value {
    path.display().to_string().into()
}

fn config_fields(error: &ConfigError) -> Fields {
    match error {
        ConfigError::Unreadable { file, .. } => vec![("file", path(file))],
        ConfigError::Yaml { file, line, .. } => vec![("file", path(file)), ("line", json!(line))],
        ConfigError::UnknownKey { path, nearest, .. } => vec![("key", json!(path)), ("nearest", json!(nearest))],
        ConfigError::BadValue { path, text, expected, .. } => {
            vec![("key", json!(path)), ("found", json!(text)), ("expected", json!(expected))]
        }
        _ => Vec::new(),
    }
}

fn file_fields(error: &FileError) -> Fields {
    match error {
        FileError::NotFound { path: file }
        | FileError::NotAFile { path: file }
        | FileError::NotHdf5 { path: file, .. }
        | FileError::Truncated { path: file, .. }
        | FileError::Locked { path: file }
        | FileError::BadRequest { path: file, .. }
        | FileError::NotWritable { path: file, .. }
        | FileError::Io { path: file, .. } => vec![("file", path(file))],
        FileError::Hdf5 { path: file, object, .. } => vec![("file", path(file)), ("object", json!(object))],
        FileError::Invalid { path: file, fault } => vec![
            ("file", path(file)),
            ("object", json!(fault.object)),
            ("index", json!(fault.index)),
            ("expected", json!(fault.expected)),
            ("found", json!(fault.found)),
            ("fix", json!(fault.fix)),
        ],
        FileError::Rows { source, .. } => file_fields(source),
        _ => Vec::new(),
    }
}

fn bars_fields(error: &BarsError) -> Fields {
    match error {
        BarsError::BadRow { path: file, line, kind, expected, text }
        | BarsError::Tick(TickError::BadRow { path: file, line, kind, expected, text }) => vec![
            ("file", path(file)),
            ("line", json!(line)),
            ("fault", json!(kind.to_string())),
            ("expected", json!(expected)),
            ("found", json!(text)),
        ],
        BarsError::Function { function, instrument, timeframe, fault } => {
            let mut fields = vec![
                ("function", json!(function)),
                ("instrument", json!(instrument)),
                ("timeframe", json!(timeframe.name())),
            ];
            fields.extend(matches!(**fault, FunctionFault::Failed(_)).then(|| ("failed", json!(true))));
            fields.extend(fault.column().map(|column| ("column", json!(column))));
            fields
        }
        BarsError::LongerBars { path: file, line, .. } => vec![("file", path(file)), ("line", json!(line))],
        BarsError::NotAFile { path: file, .. }
        | BarsError::Open { path: file, .. }
        | BarsError::UnknownFormat { path: file, .. }
        | BarsError::Ticks { path: file, .. }
        | BarsError::Tick(TickError::UnknownFormat { path: file, .. } | TickError::Bars { path: file, .. })
        | BarsError::Columns { path: file, .. }
        | BarsError::Unsorted { path: file, .. }
        | BarsError::NoRows { path: file, .. }
        | BarsError::EmptyColumns { path: file, .. }
        | BarsError::NothingLeft { path: file, .. } => vec![("file", path(file))],
        _ => Vec::new(),
    }
}

fn training_fields(error: &TrainerError) -> Fields {
    let TrainerError::Setting { setting, value, expected } = error else { return Vec::new() };
    let key = key_of(setting).unwrap_or_else(|| (*setting).to_owned());
    vec![("key", json!(key)), ("found", json!(value)), ("expected", json!(expected))]
}

fn device_fields(error: &DeviceError) -> Fields {
    match error {
        DeviceError::DriverAbsent { name, .. } | DeviceError::NoSuchDevice { name, .. } => {
            vec![("device", json!(name))]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SettingSources;

    fn field(error: &Error, name: &str) -> Option<Value> {
        error.fields().into_iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    #[test]
    fn fields_are_those_of_the_first_cause_that_has_them() {
        let missing = Error::from(megabatch_chunk_io::inspect("no/such.h5").unwrap_err()).context("training");
        assert_eq!(field(&missing, "file"), Some(json!("no/such.h5")));
        let sources = SettingSources { file: None, set: vec!["model.hiden=3".to_owned()] };
        let unknown = Error::from(sources.load(&[]).unwrap_err());
        assert_eq!(field(&unknown, "nearest"), Some(json!("model.hidden")));
        let short = Error::capacity("would not fit").with_field("needed_bytes", 7);
        let ported = Error::from_cause(megabatch_trainer::Error::PrefetchingSource { source: short.into() });
        assert_eq!(field(&ported, "needed_bytes"), Some(json!(7)));
        let fault = Box::new(megabatch_bars::ColumnFault::NoAdjustedClose);
        let columns = Error::from_cause(BarsError::Columns { path: "AAPL.csv".into(), fault });
        assert_eq!(field(&columns, "file"), Some(json!("AAPL.csv")));
        assert!(Error::failed("x").fields().is_empty());
    }
}
