//! A column of symbols: a file has bars of one.

use std::path::Path;

use crate::error::{Error, Result};
use crate::parse::fields::RowFields;
use crate::parse::format::RowFormat;

/// Most symbols that are told apart.
const SYMBOLS_MAX: usize = 64;

/// Symbols that the rows of a file name.
#[derive(Clone, Debug, Default)]
pub(crate) struct SymbolColumn {
    symbols: Vec<String>,
    /// Line number, from 1, of the first row of a second symbol.
    second_line: u64,
}

impl SymbolColumn {
    /// Takes a row into account.
    pub(crate) fn add(&mut self, fields: &RowFields<'_>, format: &RowFormat, line: u64) {
        let Some(symbol) = format.columns.symbol.and_then(|column| fields.get(column)) else { return };
        let is_known = self.symbols.iter().any(|known| known.as_bytes() == symbol);
        if symbol.is_empty() || is_known || self.symbols.len() == SYMBOLS_MAX {
            return;
        }
        self.symbols.push(String::from_utf8_lossy(symbol).into_owned());
        if self.symbols.len() == 2 {
            self.second_line = line;
        }
    }

    /// Refuses rows of several symbols.
    pub(crate) fn check(&self, path: &Path, header: &[u8], format: &RowFormat) -> Result<()> {
        if self.symbols.len() < 2 {
            return Ok(());
        }
        let names = RowFields::split(header, format.delimiter);
        let name = format.columns.symbol.and_then(|column| names.get(column)).unwrap_or(b"symbol");
        Err(Error::SymbolRows {
            path: path.to_owned(),
            line: self.second_line,
            column: String::from_utf8_lossy(name).into_owned(),
            symbols: self.symbols.clone(),
        })
    }
}
