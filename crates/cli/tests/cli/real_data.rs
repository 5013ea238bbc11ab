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
    // Machines that run tests are busy; the figure of an idle one stands in docs/eurusd-2018.md.
    assert!(answer["seconds"].as_f64().unwrap() < 20.0, "{answer}");
    assert_eq!(answer["bytes"].as_u64().unwrap(), stage.path("series.h5").metadata().unwrap().len());
}
