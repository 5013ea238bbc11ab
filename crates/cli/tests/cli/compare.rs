//! Several runs side by side: what differs, what came of each, and which are on other data.

use crate::stage::{SMALL, Stage, numbers};

#[test]
fn runs_are_compared_in_text_in_json_and_on_a_page() {
    let stage = Stage::with_run();
    stage.succeeds(&format!("train --data series.h5 --out wide {SMALL} --set training.epochs=2 --set model.hidden=8"));
    stage.succeeds(&format!("train --data series.h5 --out short {SMALL} --max-steps 3 --set data.split=[0.5,0.3,0.2]"));
    let line = "compare run wide short --out page.html";
    let answer = stage.succeeds(line);
    let runs = answer["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(|run| run["samples"].as_str().unwrap()).collect::<String>(), "AAB");
    assert_eq!(answer["same_samples"], false);
    assert_eq!([&runs[0]["steps"], &runs[1]["steps"], &runs[2]["steps"]], [9, 18, 3]);
    let hidden = answer["differences"].as_array().unwrap().iter().find(|row| row["key"] == "model.hidden").unwrap();
    assert_eq!(hidden["values"], serde_json::json!(["4", "8", "4"]));
    let rmse = numbers(&stage.succeeds("eval --run run")["rmse"]);
    let mean = rmse.iter().sum::<f64>() / rmse.len() as f64;
    assert!((runs[0]["evaluation"]["model"]["rmse"].as_f64().unwrap() - mean).abs() < 1e-12);

    let text = stage.said(line);
    for part in ["A: run, wide: ", "B: short: ", "same letter only", "model.hidden", "9 of 9", "no change", "page.html"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let page = stage.text("page.html");
    for part in ["id=\"learning\"", "id=\"horizons\"", "id=\"time\"", "wide, forward: ", "samples B"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script") && !page.contains("NaN"));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let stage = Stage::with_run();
    let [message, _] = stage.fails("compare run", 2);
    assert!(message.contains("two runs or more"), "{message}");
    let [message, _] = stage.fails("compare run nowhere", 2);
    assert!(message.contains("nowhere: not a run folder"), "{message}");
    let [message, _] = stage.fails("compare run run --out page.txt", 2);
    assert!(message.contains("expected .html"), "{message}");
}

/// `compare run walk` was refused where `walk` walks forward.
#[test]
fn folds_are_compared_by_their_means() {
    let stage = Stage::with_run();
    let walk = "--set data.walk_forward=2 --set training.epochs=1 --set data.purge=0s";
    stage.succeeds(&format!("train --data series.h5 --out walk {walk} {SMALL}"));
    let answer = stage.succeeds("compare run walk --out page.html");
    let saved: serde_json::Value = serde_json::from_str(&stage.text("walk/walk-forward.json")).unwrap();
    let rmse = saved["folds"].as_array().unwrap().iter().map(|fold| {
        let rmse = numbers(&fold["evaluation"]["rmse"]);
        rmse.iter().sum::<f64>() / rmse.len() as f64
    });
    let mean = rmse.sum::<f64>() / 2.0;
    let walk = &answer["runs"][1];
    assert!((walk["evaluation"]["model"]["rmse"].as_f64().unwrap() - mean).abs() < 1e-12, "{walk}");
    assert!(walk["evaluation"]["deviations"]["rmse"].is_number(), "{walk}");
    assert_eq!((&walk["folds"], &answer["runs"][0]["folds"]), (&2.into(), &serde_json::Value::Null));
    let differences = answer["differences"].as_array().unwrap();
    assert!(differences.iter().all(|row| row["key"] != "training.loss"), "auto is mse: {differences:?}");
    let text = stage.said("compare run walk");
    assert!(text.contains(" ± ") && text.contains("in 2 folds"), "{text}");
    assert!(!stage.text("page.html").contains("NaN"));
}
