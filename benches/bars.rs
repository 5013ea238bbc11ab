//! Text bars to aligned series.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use megabatch_bars::{Error, ReadOptions, SeriesPiece, SeriesPlan, SeriesSpec, StreamedInstrument, read};

const BARS: usize = 50_000;

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

criterion_group!(benches, reading);
criterion_main!(benches);
