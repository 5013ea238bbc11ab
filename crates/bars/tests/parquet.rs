//! A Parquet file of bars or ticks is read as the CSV of its table.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use megabatch_bars::{ReadOptions, Timeframe, estimated_rows, read};
use parquet::basic::Compression;
use parquet::data_type::{DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

const SCHEMA: &str = "message bars { required int64 Datetime (TIMESTAMP(MICROS, false)); required double Open;
    required double High; required double Low; required double Close; required int64 Volume; }";
/// 2018-07-02 00:00, a Monday.
const MONDAY_MINUTES: i64 = 25_508_160;

struct Row {
    minute: i64,
    prices: [f64; 4],
    volume: i64,
}

/// Minutes of two weeks without their weekends.
fn rows() -> Vec<Row> {
    let row = |minute: i64| {
        let close = (110_000 + minute * 7_919 % 613) as f64 / 100_000.0;
        let (high, low) = ((close + 0.0003) * 1e5, (close - 0.0002) * 1e5);
        Row { minute, prices: [close, high.round() / 1e5, low.round() / 1e5, close], volume: 1 + minute % 40 }
    };
    (0..14 * 1440).filter(|minute| minute / 1440 % 7 < 5).map(row).collect()
}

fn csv(rows: &[Row]) -> String {
    let mut text = "Datetime,Open,High,Low,Close,Volume\n".to_owned();
    for Row { minute, prices: [open, high, low, close], volume } in rows {
        let (day, hour, minute) = (2 + minute / 1440, minute / 60 % 24, minute % 60);
        writeln!(text, "2018-07-{day:02} {hour:02}:{minute:02}:00,{open},{high},{low},{close},{volume}").unwrap();
    }
    text
}

fn push<T: DataType>(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, values: &[T::T]) {
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, None, None).unwrap();
    column.close().unwrap();
}

fn parquet(rows: &[Row]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    for rows in rows.chunks(5000) {
        let mut group = file.next_row_group().unwrap();
        let times: Vec<i64> = rows.iter().map(|row| (MONDAY_MINUTES + row.minute) * 60_000_000).collect();
        push::<Int64Type>(&mut group, &times);
        for price in 0..4 {
            push::<DoubleType>(&mut group, &rows.iter().map(|row| row.prices[price]).collect::<Vec<_>>());
        }
        push::<Int64Type>(&mut group, &rows.iter().map(|row| row.volume).collect::<Vec<_>>());
        group.close().unwrap();
    }
    file.into_inner().unwrap()
}

fn written(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn options() -> ReadOptions {
    ReadOptions { zone: Some("new-york+7".parse().unwrap()), ..ReadOptions::default() }
}

#[test]
fn its_bars_are_those_of_the_csv() {
    let folder = tempfile::tempdir().unwrap();
    let rows = rows();
    let text = written(folder.path(), "EURUSD.csv", csv(&rows).as_bytes());
    let table = written(folder.path(), "EURUSD.parquet", &parquet(&rows));
    let (expected, found) = (read(&[&text], &options()).unwrap(), read(&[&table], &options()).unwrap());
    assert_eq!((found.bars.len(), found.bars.timeframe), (rows.len(), Timeframe::M1));
    assert_eq!(found.bars, expected.bars);
    let rows_told = estimated_rows(&table).unwrap();
    assert!((rows_told as f64 / rows.len() as f64 - 1.0).abs() < 0.01, "{rows_told}");
}

#[test]
fn a_refusal_names_the_line_of_the_row() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = rows();
    rows[6000].prices[1] = -1.0;
    let table = written(folder.path(), "EURUSD.parquet", &parquet(&rows));
    let error = read(&[&table], &options()).unwrap_err().to_string();
    assert!(error.contains("EURUSD.parquet: line 6002: "), "{error}");
    let cut = &parquet(&rows)[..5000];
    let error = read(&[written(folder.path(), "CUT.parquet", cut)], &options()).unwrap_err().to_string();
    assert!(error.contains("CUT.parquet: cannot be opened: the Parquet file is damaged: "), "{error}");
}
