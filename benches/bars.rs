//! Text bars to aligned series.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use megabatch_bars::{
    Bars, ColumnFeature, ColumnRule, Error, Feature, ReadOptions, SeriesPiece, SeriesPlan, SeriesSpec,
    StreamedInstrument, Timeframe, Window, read,
};

const BARS: usize = 50_000;

/// Further columns of a row.
const COLUMNS: usize = 10;

/// Rows of an export in UTC, with `columns` further columns of six decimals each.
fn rows_with_columns(bars: &Bars, columns: usize) -> String {
    let mut text = "time,open,high,low,close".to_owned();
    (0..columns).for_each(|k| text.push_str(&format!(",c{k}")));
    for index in 0..bars.len() {
        let bar = bars.bar(index);
        let minute = bar.open_time / 60_000_000_000;
        let (day, hour, minute) = (1 + minute / 1440, minute / 60 % 24, minute % 60);
        let (month, day) = if day > 31 { (2, day - 31) } else { (1, day) };
        let (open, high, low, close) = (bar.open, bar.high, bar.low, bar.close);
        write!(text, "\n1970-{month:02}-{day:02} {hour:02}:{minute:02}:00,{open:.5},{high:.5},{low:.5},{close:.5}")
            .expect("a String takes text");
        let number = |k: usize| (index * (k + 3)) as f64 * 0.618 % 2.0 - 1.0;
        (0..columns).for_each(|k| write!(text, ",{:.6}", number(k)).expect("a String takes text"));
    }
    text.push('\n');
    text
}

/// Bars to a series of three timeframes, with and without columns that are features.
fn columns(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bars = megabatch_benches::bars(BARS);
    let mut group = criterion.benchmark_group("columns");
    group.throughput(Throughput::Elements(BARS as u64));
    for count in [0, COLUMNS] {
        let file = folder.path().join(format!("EURUSD-{count}.csv"));
        std::fs::write(&file, rows_with_columns(&bars, count)).expect("the temporary folder takes a file");
        let names: Vec<String> = (0..count).map(|k| format!("c{k}")).collect();
        let options = ReadOptions { columns: names.clone(), ..ReadOptions::default() };
        let own = names.iter().map(|name| Feature::Column(ColumnFeature::new(name, ColumnRule::Last)));
        let windows = [(Timeframe::M1, 60), (Timeframe::M5, 48), (Timeframe::H1, 24)];
        let spec = SeriesSpec {
            windows: windows.map(|(timeframe, seq_len)| Window { timeframe, seq_len }).to_vec(),
            features: Feature::DEFAULT.iter().cloned().chain(own).collect(),
            stride: 15,
            ..SeriesSpec::default()
        };
        group.bench_function(format!("rows with {count} columns to a series"), |bencher| {
            let go_on = |_| ControlFlow::Continue(());
            bencher.iter(|| {
                let read = read(&[&file], &options).expect("the bars are sound");
                let eurusd =
                    StreamedInstrument { name: "EURUSD", bars: &read.bars, pip_size: 1e-4, fitted_until: None };
                let plan =
                    SeriesPlan::new(&[eurusd], &spec, None, folder.path(), &go_on).expect("there are bars enough");
                let header = plan.fit(&go_on).expect("the folder takes temporary files");
                plan.write(&header, &go_on, &|_: &SeriesPiece| Ok::<(), Error>(())).expect("nothing interrupts it");
            });
        });
    }
    group.finish();
}

fn reading(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("EURUSD.csv");
    let bars = megabatch_benches::bars(BARS);
    let mut text = String::new();
    for k in 0..BARS {
        let bar = bars.bar(k);
        let minute = bar.open_time / 60_000_000_000;
        let (day, hour, minute) = (1 + minute / 1440, minute / 60 % 24, minute % 60);
        // Days of one long January and February: the calendar needs no more here.
        let (month, day) = if day > 31 { (2, day - 31) } else { (1, day) };
        let (open, high, low, close) = (bar.open, bar.high, bar.low, bar.close);
        writeln!(text, "1970{month:02}{day:02} {hour:02}{minute:02}00;{open:.5};{high:.5};{low:.5};{close:.5};0")
            .expect("a String takes text");
    }
    std::fs::write(&file, text).expect("the temporary folder takes a file");
    let mut group = criterion.benchmark_group("bars");
    group.throughput(Throughput::Elements(BARS as u64));
    group.bench_function("read 50,000 HistData rows", |bencher| {
        bencher.iter(|| read(&[&file], &ReadOptions::default()).expect("the bars are sound"));
    });
    group.bench_function("align five timeframes, 16 features", |bencher| {
        let (spec, go_on) = (SeriesSpec::default(), |_| ControlFlow::Continue(()));
        let eurusd = StreamedInstrument { name: "EURUSD", bars: &bars, pip_size: 1e-4, fitted_until: None };
        bencher.iter(|| {
            let plan = SeriesPlan::new(&[eurusd], &spec, None, folder.path(), &go_on).expect("there are bars enough");
            let header = plan.fit(&go_on).expect("the folder takes temporary files");
            plan.write(&header, &go_on, &|_: &SeriesPiece| Ok::<(), Error>(())).expect("nothing interrupts it");
        });
    });
    group.finish();
}

criterion_group!(benches, reading, columns);
criterion_main!(benches);
