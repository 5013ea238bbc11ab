//! The report of a run: all its parts, from what the run left, on a page that needs nothing else.

use crate::stage::{SERIES, SMALL, Stage, numbers};

/// The parts of every report.
const PARTS: [&str; 8] = [
    "id=\"loss\"",
    "id=\"data\"",
    "id=\"split\"",
    "id=\"time\"",
    "id=\"memory\"",
    "id=\"machine\"",
    "id=\"configuration\"",
    "<nav aria-label=\"Contents\">",
];
/// The parts of the report of a run that has ended.
const PARTS_AT_THE_END: [&str; 2] = ["id=\"horizons\"", "id=\"forecasts\""];

fn require(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "{part}: {page}");
    }
    for outside in ["<script", " src=", "url(", "@import", "http:", "https:", "NaN", ">inf"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn bars_with_troubles_are_told_of_beside_what_was_learnt() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 15");
    // A bar of which the high lies below the low.
    let mut rows: Vec<String> = stage.text("bars.csv").lines().map(str::to_owned).collect();
    let mut cells: Vec<&str> = rows[700].split(',').collect();
    cells.swap(2, 3);
    rows[700] = cells.join(",");
    // Four days are missing.
    rows.drain(3_000..3_000 + 4 * 1440);
    stage.write("bars.csv", &rows.join("\n"));
    let ingest = "ingest bars.csv --out series.h5 --symbol EURUSD --on-error repair --stride 15 --horizon 5";
    stage.succeeds(&format!("{ingest} --timeframes M1:16,M15:8"));
    stage.succeeds(&format!("train --data series.h5 --out run --set training.epochs=3 {SMALL}"));

    let page = stage.text("run/report.html");
    require(&page, &PARTS);
    require(&page, &PARTS_AT_THE_END);
    require(
        &page,
        &[
            "Bars over time",
            "1 gap longer than 80 h",
            "bars.csv",
            "first line",
            "correlation",
            "5 bars of M1 ahead",
            "predicted, pips",
            "samples in a row",
            "Parts over time",
            "epoch 3, backward: ",
            "epoch 3, validation: ",
            "epoch 3, saving: ",
            "model.hidden",
        ],
    );
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
}

#[test]
fn predictions_drawn_are_those_that_were_judged() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 12");
    stage.succeeds("ingest bars.csv --out series.h5 --symbol EURUSD --stride 15 --horizon 5 --timeframes M1:16,M15:8");
    for (run, carry_state) in [("carried", true), ("anew", false)] {
        let settings = format!("--set training.carry_state={carry_state} --set training.epochs=2");
        let answer = stage.succeeds(&format!("train --data series.h5 --out {run} {settings} {SMALL}"));
        let judged = numbers(&answer["evaluation"]["rmse"]);
        let page = stage.text(&format!("{run}/report.html"));
        for horizon in [1, 2, 3, 5] {
            let bars = if horizon == 1 { "bar" } else { "bars" };
            let title = format!("<figcaption>{horizon} {bars} of M1 ahead: correlation ");
            let rest = page.split(&title).nth(1).unwrap_or_else(|| panic!("{title}"));
            let drawn: f64 = rest.split("RMSE ").nth(1).unwrap().split('<').next().unwrap().parse().unwrap();
            // Four digits are shown.
            assert!((drawn / judged[horizon - 1] - 1.0).abs() < 1e-3, "{run}: {drawn} drawn, {judged:?} judged");
        }
    }
}

#[test]
fn a_file_of_windows_and_a_run_without_test_split_have_a_report_too() {
    let stage = Stage::new();
    stage.succeeds(&format!("{SERIES} --layout windows"));
    let settings = "--set data.split=[1,0,0] --max-steps 3";
    stage.succeeds(&format!("train --data series.h5 --out run {settings} {SMALL}"));
    let page = stage.text("run/report.html");
    require(&page, &PARTS);
    require(&page, &PARTS_AT_THE_END);
    require(
        &page,
        &["The file holds samples and not bars", "(all), which the model was trained on", "Nothing was validated"],
    );
}

#[test]
fn attention_is_shown_over_bars_and_among_timeframes() {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    for (run, carry_state, fusion) in
        [("carried", true, "attention"), ("anew", false, "attention"), ("side", false, "concat")]
    {
        let model = format!(
            "--set model.pooling=attention --set model.fusion={fusion} --set training.carry_state={carry_state}"
        );
        stage.succeeds(&format!("train --data series.h5 --out {run} --max-steps 3 {model} {SMALL}"));
        let page = stage.text(&format!("{run}/report.html"));
        require(
            &page,
            &["id=\"attention\"", "M1: half of the weight on the last", "M5: half of the weight on the last"],
        );
        assert_eq!(page.contains("M5 looks at M1: "), fusion == "attention", "{run}");
    }
}
