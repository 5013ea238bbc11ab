use std::cell::Cell;
use std::io::{Read as _, Seek as _, Write as _};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, FixedLenByteArray, Int96};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::*;
use crate::place::Stopped;

/// Values of a column, without those that are missing, and the levels that say which are.
enum Values {
    Bool(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Int96(Vec<Int96>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
    Fixed(Vec<FixedLenByteArray>),
}

/// The columns of a row group: each has its values and, if some are missing, its levels.
type Group = Vec<(Values, Option<Vec<i16>>)>;

/// A file of row groups.
fn written(schema: &str, pandas: Option<&str>, compression: Compression, groups: &[Group]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let metadata = pandas.map(|text| vec![KeyValue::new("pandas".to_owned(), text.to_owned())]);
    let properties = WriterProperties::builder().set_compression(compression).set_key_value_metadata(metadata).build();
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    for columns in groups {
        let mut group = file.next_row_group().unwrap();
        for (values, levels) in columns {
            let levels = levels.as_deref();
            let mut writer = group.next_column().unwrap().unwrap();
            match (writer.untyped(), values) {
                (ColumnWriter::BoolColumnWriter(to), Values::Bool(values)) => to.write_batch(values, levels, None),
                (ColumnWriter::Int32ColumnWriter(to), Values::Int32(values)) => to.write_batch(values, levels, None),
                (ColumnWriter::Int64ColumnWriter(to), Values::Int64(values)) => to.write_batch(values, levels, None),
                (ColumnWriter::Int96ColumnWriter(to), Values::Int96(values)) => to.write_batch(values, levels, None),
                (ColumnWriter::FloatColumnWriter(to), Values::Float(values)) => to.write_batch(values, levels, None),
                (ColumnWriter::DoubleColumnWriter(to), Values::Double(values)) => to.write_batch(values, levels, None),
                (ColumnWriter::ByteArrayColumnWriter(to), Values::Bytes(values)) => {
                    to.write_batch(values, levels, None)
                }
                (ColumnWriter::FixedLenByteArrayColumnWriter(to), Values::Fixed(values)) => {
                    to.write_batch(values, levels, None)
                }
                _ => panic!("values of another type than the schema's"),
            }
            .unwrap();
            writer.close().unwrap();
        }
        group.close().unwrap();
    }
    file.into_inner().unwrap()
}

fn text_observed(bytes: &[u8], observe: ObserveBytes<'_>) -> io::Result<String> {
    let mut file = tempfile::tempfile()?;
    file.write_all(bytes)?;
    file.rewind()?;
    let mut text = String::new();
    ParquetText::open(file, observe)?.read_to_string(&mut text)?;
    Ok(text)
}

fn text(bytes: &[u8]) -> io::Result<String> {
    text_observed(bytes, &|_| ControlFlow::Continue(()))
}

/// Rows of prices, in groups of these sizes.
fn prices(groups: &[usize], compression: Compression) -> Vec<u8> {
    let schema = "message bars { required int64 time (TIMESTAMP(MICROS, false)); required double close; }";
    let next = Cell::new(0_i64);
    let group = |&rows: &usize| {
        let numbers: Vec<i64> = (0..rows as i64).map(|row| next.get() + row).collect();
        next.set(next.get() + rows as i64);
        let closes = numbers.iter().map(|&number| 1.0 + number as f64 / 64.0).collect();
        let times = numbers.iter().map(|number| number * 60_000_000).collect();
        vec![(Values::Int64(times), None), (Values::Double(closes), None)]
    };
    written(schema, None, compression, &groups.iter().map(group).collect::<Vec<_>>())
}

#[test]
fn each_type_has_the_text_that_a_csv_would_have() {
    let schema = "message table {
        required boolean flag; optional int32 small (INTEGER(8, true)); required int32 most (INTEGER(32, false));
        required int64 all (INTEGER(64, false)); required int32 day (DATE); required int32 clock (TIME(MILLIS, true));
        required int64 utc (TIMESTAMP(MILLIS, true)); required int64 own (TIMESTAMP(NANOS, false)); required int96 old;
        required float single; required double double; required int64 cents (DECIMAL(18, 2));
        required fixed_len_byte_array(3) thousandths (DECIMAL(6, 3)); required binary name (STRING); required binary raw;
    }";
    let old = |days: u32, nanoseconds: u64| {
        let mut value = Int96::new();
        value.set_data(nanoseconds as u32, (nanoseconds >> 32) as u32, 2_440_588 + days);
        value
    };
    let columns = vec![
        (Values::Bool(vec![true, false]), None),
        (Values::Int32(vec![-3]), Some(vec![0, 1])),
        (Values::Int32(vec![-1, 7]), None),
        (Values::Int64(vec![-1, 7]), None),
        (Values::Int32(vec![17_532, -1]), None),
        (Values::Int32(vec![1, 61_200_000]), None),
        (Values::Int64(vec![1_514_826_000_000, -1]), None),
        (Values::Int64(vec![1_514_826_000_123_456_789, i64::MIN]), None),
        (Values::Int96(vec![old(17_532, 61_200_000_000_000), old(0, 1)]), None),
        (Values::Float(vec![0.5, 0.1]), None),
        (Values::Double(vec![f64::NAN, 1.0e300]), None),
        (Values::Int64(vec![-5, 123_456]), None),
        (Values::Fixed(vec![vec![0xff, 0xff, 0xff].into(), vec![0, 4, 210].into()]), None),
        (Values::Bytes(vec!["a,\"b\"".into(), "EURUSD".into()]), None),
        (Values::Bytes(vec!["x\ny".into(), "".into()]), None),
    ];
    let found = text(&written(schema, None, Compression::UNCOMPRESSED, &[columns])).unwrap();
    let expected = "flag,small,most,all,day,clock,utc,own,old,single,double,cents,thousandths,name,raw\n\
        true,,4294967295,18446744073709551615,2018-01-01,00:00:00.001,2018-01-01T17:00:00+00:00,\
        2018-01-01T17:00:00.123456789,2018-01-01T17:00:00,0.5,NaN,-0.05,-0.001,\"a,\"\"b\"\"\",\"x y\"\n\
        false,-3,7,7,1969-12-31,17:00:00,1969-12-31T23:59:59.999+00:00,1677-09-21T00:12:43.145224192,\
        1970-01-01T00:00:00.000000001,0.10000000149011612,1e300,1234.56,1.234,EURUSD,\n";
    assert_eq!(found, expected);
}

#[test]
fn what_is_no_scalar_is_left_out() {
    let schema = "message table { required int64 time; optional group pair { required double first; }
        required fixed_len_byte_array(16) id (UUID); }";
    let id = || FixedLenByteArray::from(vec![0_u8; 16]);
    let columns = vec![
        (Values::Int64(vec![5]), None),
        (Values::Double(vec![]), Some(vec![0])),
        (Values::Fixed(vec![id()]), None),
    ];
    assert_eq!(text(&written(schema, None, Compression::UNCOMPRESSED, &[columns])).unwrap(), "time\n5\n");
    let none = "message table { required fixed_len_byte_array(16) id (UUID); }";
    let file = written(none, None, Compression::UNCOMPRESSED, &[vec![(Values::Fixed(vec![id()]), None)]]);
    assert!(text(&file).unwrap_err().to_string().contains("no column of numbers, times or text"));
}

#[test]
fn the_index_and_the_levels_of_a_frame_are_those_of_its_csv() {
    let schema = "message schema { optional double ('Open', 'A'); optional double ('Open', \"B's\");
        optional int64 Date (TIMESTAMP(MICROS, true)); }";
    let pandas = r#"{"index_columns": ["Date"], "column_indexes": [{"name": "Price"}, {"name": "Ticker"}], "columns": [
        {"field_name": "('Open', 'A')", "metadata": null},
        {"field_name": "Date", "metadata": {"timezone": "America/New_York"}}]}"#;
    // The parser of schemas splits names at commas and spaces: the names are put in afterwards.
    let plain = schema.replace("('Open', 'A')", "first").replace("('Open', \"B's\")", "second");
    let values = || {
        vec![
            (Values::Double(vec![1.5]), Some(vec![1])),
            (Values::Double(vec![]), Some(vec![0])),
            (Values::Int64(vec![1_514_869_200_000_000]), Some(vec![1])),
        ]
    };
    let row = "2018-01-02T00:00:00-05:00,1.5,\n";
    let file = written(&plain, Some(pandas), Compression::UNCOMPRESSED, &[values()]);
    assert_eq!(text(&file).unwrap(), format!("Date,first,second\n{row}"), "names of one level");
    // London's clock in winter has dates of its own.
    for (zone, name) in [("Europe/London", "[local]"), ("Etc/UTC", "")] {
        let pandas = pandas.replace("America/New_York", zone);
        let file = written(&plain, Some(&pandas), Compression::UNCOMPRESSED, &[values()]);
        let expected = format!("Date,first,second\n2018-01-02T05:00:00+00:00{name},1.5,\n");
        assert_eq!(text(&file).unwrap(), expected, "{zone}");
    }

    let table: PandasTable = serde_json::from_str(pandas).unwrap();
    let header = table.header(&["Date", "('Open', 'A')", "('Open', \"B's\")"]);
    assert_eq!(String::from_utf8(header).unwrap(), "Price,Open,Open\nTicker,A,B's\nDate,,\n");

    let unnamed = r#"{"index_columns": ["__index_level_0__"], "column_indexes": [{"name": null}], "columns": []}"#;
    let plain = plain.replace("Date", "__index_level_0__");
    let file = written(&plain, Some(unnamed), Compression::UNCOMPRESSED, &[values()]);
    assert_eq!(text(&file).unwrap(), ",first,second\n2018-01-02T05:00:00+00:00,1.5,\n");

    let range =
        r#"{"index_columns": [{"kind": "range", "name": null}], "column_indexes": [{"name": null}], "columns": []}"#;
    let file = written(&plain, Some(range), Compression::UNCOMPRESSED, &[values()]);
    assert!(text(&file).unwrap().starts_with("first,second,__index_level_0__\n"));
}

#[test]
fn rows_follow_each_other_through_groups_and_compressions() {
    let whole = text(&prices(&[3000], Compression::UNCOMPRESSED)).unwrap();
    assert_eq!(whole.lines().count(), 3001);
    assert_eq!(whole.lines().nth(3000), Some("1970-01-03T01:59:00,47.859375"));
    let gzip = Compression::GZIP(Default::default());
    for compression in [gzip, Compression::SNAPPY, Compression::ZSTD(Default::default()), Compression::LZ4_RAW] {
        assert_eq!(text(&prices(&[1, 1023, 0, 1025, 951], compression)).unwrap(), whole, "{compression}");
    }
    assert_eq!(text(&prices(&[], Compression::SNAPPY)).unwrap(), "time,close\n");
}

#[test]
fn the_observer_sees_the_length_of_the_file_and_may_stop() {
    let file = prices(&[3000, 700], Compression::SNAPPY);
    let seen = AtomicU64::new(0);
    let count = |bytes| {
        seen.fetch_add(bytes, Relaxed);
        ControlFlow::Continue(())
    };
    text_observed(&file, &count).unwrap();
    assert_eq!(seen.load(Relaxed), file.len() as u64);
    let stopped = text_observed(&file, &|_| ControlFlow::Break(())).unwrap_err();
    assert!(stopped.get_ref().unwrap().is::<Stopped>());
}

// Pages have checksums only where a writer was told to add them, so that a flipped bit of a number
// can be another number, as in text.
#[test]
fn a_cut_file_is_an_error_and_no_damage_a_panic() {
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(Default::default())] {
        let whole = prices(&[500, 300], compression);
        for length in (4..whole.len()).step_by(61) {
            assert!(text(&whole[..length]).is_err(), "{length} of {}", whole.len());
        }
        for place in (4..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[place] ^= 1 << (place % 8);
            let _ = text(&damaged);
        }
    }
}
