//! A published year of minutes, found through `MEGABATCH_DATA`. Without it the test is reported as
//! skipped.

use megabatch_test_support::published_data;

use crate::stage::Stage;

#[test]
fn a_year_of_eurusd_minutes_is_ingested() {
    let Some(folder) = published_data("ingesting a published year") else { return };
    let bars = folder.join("forex_m1/DAT_ASCII_EURUSD_M1_2018.csv.gz");
    let stage = Stage::new();
    let answer = stage.succeeds(&format!("ingest {} --out series.h5", bars.display()));
    assert!(answer["samples"].as_u64().unwrap() > 300_000, "{answer}");
    assert_eq!(answer["symbols"], serde_json::json!(["EURUSD"]));
    assert_eq!(
        answer["source"]["instruments"][0]["files"][0]["zone"], "America/New_York",
        "inferred from the weekly closes"
    );
    // Machines that run tests are busy; the figure of an idle one stands in
    // docs/guide/eurusd-2018.md.
    assert!(answer["seconds"].as_f64().unwrap() < 20.0, "{answer}");
    assert_eq!(answer["bytes"].as_u64().unwrap(), stage.path("series.h5").metadata().unwrap().len());
}

/// `megabatch leak` of a series of H1 bars beside which H4 bars had been compared ended with "these
/// are not the bytes that series.h5 was made of".
#[test]
fn a_series_is_proven_whose_bars_were_compared_with_another_timeframe() {
    let Some(folder) = published_data("proving a series of several timeframes") else { return };
    let stage = Stage::new();
    let names = ["sillydev_EURUSD_H4.csv.gz", "sillydev_EURUSD_H1.csv.gz"];
    for name in names {
        std::fs::copy(folder.join("forex_multitf").join(name), stage.path(name)).unwrap();
    }
    stage.succeeds(&format!("ingest {} {} --out series.h5 --timeframes H1:24,H4:10", names[0], names[1]));
    stage.succeeds("leak series.h5 --samples 1");
    for name in names {
        std::fs::rename(stage.path(name), stage.path(&format!("moved-{name}"))).unwrap();
    }
    let moved = names.map(|name| format!("moved-{name}"));
    stage.succeeds(&format!("leak series.h5 --samples 1 --source {} --source {}", moved[0], moved[1]));
}
