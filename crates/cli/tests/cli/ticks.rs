//! Ticks become bars, and bars a series.

use std::fs;

use crate::stage::Stage;

const QUOTES: &str = "<DATE>\t<TIME>\t<BID>\t<ASK>\t<LAST>\t<VOLUME>\t<FLAGS>\r\n\
    2018.01.02\t00:00:00.100\t1.20037\t1.20040\t\t\t6\r\n\
    2018.01.02\t00:00:30.000\t\t1.20043\t\t\t4\r\n\
    2018.01.02\t00:01:00.000\t1.20039\t\t\t\t2\r\n";

#[test]
fn quotes_become_bars_with_the_spread() {
    let stage = Stage::new();
    stage.write("EURUSD.csv", QUOTES);
    let [_, error] = stage.fails("ticks EURUSD.csv --out bars.csv", 2);
    assert!(error.contains("use `--zone`, which is new-york+7 for most brokers"), "{error}");
    let answer = stage.succeeds("ticks EURUSD.csv --out bars.csv --zone new-york+7");
    assert_eq!(
        stage.text("bars.csv"),
        "time,open,high,low,close,volume,spread\n\
         2018-01-01T22:00:00Z,1.200385,1.2004,1.200385,1.2004,2,0.00006\n\
         2018-01-01T22:01:00Z,1.20041,1.20041,1.20041,1.20041,1,0.00004\n"
    );
    assert_eq!((&answer["ticks"], &answer["bars"], &answer["format"]), (&3.into(), &2.into(), &"metatrader".into()));
    assert_eq!((&answer["price"], &answer["volume"]), (&"mid".into(), &"ticks".into()));
    stage.succeeds("ticks EURUSD.csv --out two.csv --zone new-york+7 --bars ticks:2 --price bid");
    assert_eq!(
        stage.text("two.csv"),
        "time,open,high,low,close,volume,spread,close_time\n\
         2018-01-01T22:00:00.1Z,1.20037,1.20037,1.20037,1.20037,2,0.00006,2018-01-01T22:00:30Z\n"
    );
    for bins in ["new-york+7", "exchange"] {
        stage.succeeds(&format!("ticks EURUSD.csv --out {bins}.csv --zone new-york+7 --bars D1 --bins {bins}"));
    }
    assert_eq!(stage.text("new-york+7.csv"), stage.text("exchange.csv"));
    let [_, error] = stage.fails("ticks EURUSD.csv --out bars.csv --bins exchange", 2);
    assert!(error.contains("bins=exchange: no zone is stated; state the zone"), "{error}");
    // A failure leaves the file of before.
    let [_, error] = stage.fails("ticks EURUSD.csv --out two.csv --zone UTC --bars ticks:9", 3);
    assert!(error.contains("not one bar of ticks:9 is full after 3 ticks"), "{error}");
    assert!(stage.text("two.csv").starts_with("time,"));
}

#[test]
fn defects_are_named_or_counted() {
    let stage = Stage::new();
    stage.write("a.csv", "time,bid,ask\n2018-01-01 00:00:00,1,2\n2018-01-01 00:00:01,3,2\n2018-01-01 00:00:02,1,2\n");
    let [_, error] = stage.fails("ticks a.csv --out bars.csv", 3);
    assert!(error.contains("a.csv: line 3: inconsistent prices: expected an ask not below the bid"), "{error}");
    assert!(error.contains("`--on-error skip` drops such ticks"), "{error}");
    assert!(!stage.path("bars.csv").exists());
    let answer = stage.succeeds("ticks a.csv --out bars.csv --on-error skip");
    let dropped = serde_json::json!([{ "kind": "inconsistent prices", "rows": 1, "file": "a.csv", "first_line": 3 }]);
    assert_eq!((&answer["dropped"], &answer["ticks"], &answer["mean_spread"]), (&dropped, &2.into(), &1.0.into()));
    for (options, text) in [
        ("--out bars.txt", "expected .csv"),
        ("--out a.csv", "this is the file that is read"),
        ("--out bars.csv --point 0", "the price of a point"),
        ("--out bars.csv --price last", "use `--price`"),
        ("--out bars.csv --volume sum", "use `--volume ticks`"),
    ] {
        let [_, error] = stage.fails(&format!("ticks a.csv {options}"), 2);
        assert!(error.contains(text), "{options}: {error}");
    }
}

/// Quotes of ten hours, two or three a minute.
fn quotes() -> String {
    let quote = |place: i64| {
        let (second, bid) = (place * 25, 1.2 + (place % 97) as f64 * 1e-5);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("2018-01-01T{hour:02}:{minute:02}:{second:02}.5Z,{bid:.5},{:.5}\n", bid + 2e-5)
    };
    "time,bid,ask\n".to_owned() + &(0..1440).map(quote).collect::<String>()
}

#[test]
fn ingest_reads_bars_of_a_timeframe_and_refuses_ticks() {
    let stage = Stage::new();
    stage.write("EURUSD.csv", &quotes());
    let recipe = "--timeframes M1:8,M5:4 --features log_return,spread_pips --horizon 2";
    let [_, error] = stage.fails(&format!("ingest EURUSD.csv --out series.h5 {recipe}"), 3);
    assert!(error.contains("these are ticks (csv), not bars; `megabatch ticks` makes bars of them"), "{error}");
    stage.succeeds("ticks EURUSD.csv --out EURUSD-M1.csv");
    let answer = stage.succeeds(&format!("ingest EURUSD-M1.csv --out series.h5 {recipe}"));
    assert!(answer["samples"].as_u64().unwrap() > 500, "{answer}");
    stage.succeeds("ticks EURUSD.csv --out EURUSD-ticks.csv --bars ticks:7");
    let [_, error] = stage.fails(&format!("ingest EURUSD-ticks.csv --out other.h5 {recipe}"), 3);
    assert!(error.contains("bars of a number of ticks or of a volume have none, and are not read"), "{error}");
    fs::write(stage.path("histdata.csv"), "20180101 170000123,1.20037,1.20100,0\n").unwrap();
    let [_, error] = stage.fails(&format!("ingest histdata.csv --out other.h5 {recipe}"), 3);
    assert!(error.contains("these are ticks (histdata), not bars"), "{error}");
}
