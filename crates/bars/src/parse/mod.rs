//! Text to rows: encodings, lines, columns, dates, prices, and the errors of rows.

pub(crate) mod adjusted_column;
pub(crate) mod adjustment;
mod archive;
pub(crate) mod assumed_volume;
pub(crate) mod bar_file;
pub(crate) mod column_order;
pub(crate) mod columns;
pub(crate) mod date_order;
pub(crate) mod digits;
pub(crate) mod encoding;
pub(crate) mod fields;
pub(crate) mod format;
pub(crate) mod format_name;
pub(crate) mod header;
pub(crate) mod ledger;
pub(crate) mod lines;
pub(crate) mod open_close;
pub(crate) mod options;
pub(crate) mod own_columns;
pub(crate) mod own_zone;
pub(crate) mod parquet_text;
pub(crate) mod quiet;
pub(crate) mod row;
pub(crate) mod row_store;
pub(crate) mod symbol;
pub(crate) mod symbol_column;
pub(crate) mod symbol_pattern;
