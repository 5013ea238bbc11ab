//! Training on cross-sections of shares: a series of several, with a graph between their samples.

use std::fs;

use safetensors::SafeTensors;
use serde_json::{Value, json};

use crate::graph_training::MODEL;
use crate::stage::Stage;

/// Shares as series and graphs, and a run on both.
pub(crate) fn with_cross_sections() -> Stage {
    let stage = Stage::new();
    stage.succeeds("synth shares --shares 6 --days 200");
    let features = "--features log_return,range --target log_return --horizon 2";
    stage.succeeds(&format!("ingest shares --out shares.h5 --timeframes D1:5 {features}"));
    stage.succeeds("graph build shares --kind correlation --lookback 20 --min-observations 10 --k 2 --out shares.mbg");
    stage.succeeds(&format!(
        "train --data shares.h5 --out run --max-steps 6 --set model.graph=shares.mbg --set gpu_optimization.batch_size=8 {MODEL}"
    ));
    stage
}

#[test]
fn cross_sections_are_trained_on_evaluated_and_predicted_by_sample() {
    let stage = with_cross_sections();
    let plan: Value = serde_json::from_str(&stage.text("run/plan.json")).unwrap();
    assert_eq!((&plan["data"]["unit"], &plan["model"]["readout"]), (&json!("cross-section"), &json!("node")));
    let (units, samples) = (plan["data"]["units"].as_u64().unwrap(), plan["data"]["samples"].as_u64().unwrap());
    assert!(units < samples / 5, "{units} of {samples}");

    let evaluation = stage.succeeds("eval --run run");
    assert_eq!(evaluation["ic"].as_array().unwrap().len(), 2);
    assert_eq!(evaluation["ic_graphs"][0], plan["split"]["test"]);
    assert_eq!(evaluation["samples"].as_u64().unwrap(), 6 * plan["split"]["test"].as_u64().unwrap());
    let text = stage.said("eval --run run");
    assert!(text.contains("rank IC linear") && text.contains("at the first horizon, mean over"), "{text}");

    // Each day has its correlations and its time, and the report shows them with the graph of the
    // last day.
    let days = evaluation["graphs"].as_array().unwrap();
    assert_eq!(days.len() as u64, plan["split"]["test"].as_u64().unwrap());
    let times: Vec<i64> = days.iter().map(|day| day["time_ns"].as_i64().unwrap()).collect();
    assert!(times.is_sorted() && times[0] >= plan["split"]["test_start_ns"].as_i64().unwrap(), "{times:?}");
    let ics: Vec<f64> = days.iter().filter_map(|day| day["ic"][0].as_f64()).collect();
    let (mean, told) = (ics.iter().sum::<f64>() / ics.len() as f64, evaluation["ic"][0].as_f64().unwrap());
    assert!((mean - told).abs() < 1e-12, "{mean} is not {told}");
    // Two days of returns of neighbouring days share one: t was mean / deviation · √days, as if
    // they did not.
    assert_eq!(evaluation["ic_lags"], json!([0, 1]));
    for (k, lag) in [(0, 0), (1, 1)] {
        let ics: Vec<f64> = days.iter().map(|day| day["ic"][k].as_f64().unwrap()).collect();
        let (count, mean) = (ics.len() as f64, ics.iter().sum::<f64>() / ics.len() as f64);
        let product = |distance: usize| -> f64 {
            ics.iter().zip(&ics[distance..]).map(|(early, late)| (early - mean) * (late - mean)).sum()
        };
        let sum = product(0) + if lag == 1 { product(1) } else { 0.0 };
        let (t, found) = (mean / (sum / (count * (count - 1.0))).sqrt(), evaluation["ic_t"][k].as_f64().unwrap());
        assert!((t - found).abs() < 1e-9, "horizon {k}: {found} is not {t}");
    }
    let page = stage.text("run/report.html");
    for part in ["id=\"information\"", "Rank IC by day", "id=\"graph\"", "6 instruments", "A01: "] {
        assert!(page.contains(part), "{part}: {page}");
    }

    // What is predicted of a sample does not depend on which others are asked for.
    stage.succeeds("predict --run run --out all.csv");
    stage.succeeds("predict --run run --samples 40..45 --out some.csv");
    let (all, some) = (stage.text("all.csv"), stage.text("some.csv"));
    assert_eq!(all.lines().count() as u64, 1 + samples);
    assert_eq!(some.lines().skip(1).collect::<Vec<_>>(), all.lines().skip(41).take(5).collect::<Vec<_>>());
    assert!(some.lines().nth(1).unwrap().contains(",A01,"), "{some}");
    // Days before the first graph have no prediction. Their targets were blank too.
    let days: Vec<Vec<&str>> = all.lines().map(|line| line.split(',').collect()).collect();
    let place = |name: &str| days[0].iter().position(|column| *column == name).unwrap();
    let outside: Vec<_> = days[1..].iter().filter(|row| row[place("h1")] == "NaN").collect();
    assert!(!outside.is_empty() && outside.iter().all(|row| row[place("target2")] != "NaN"), "{outside:?}");
}

/// The data of a run were found from any folder, and its graphs only from the one of training.
#[test]
fn a_run_on_cross_sections_is_found_from_any_folder() {
    let stage = with_cross_sections();
    fs::create_dir(stage.path("below")).unwrap();
    let output = stage.command("eval --run ../run").current_dir(stage.path("below")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    fs::rename(stage.path("shares.mbg"), stage.path("moved.mbg")).unwrap();
    for line in ["eval --run run", "train --out run --resume --max-steps 7"] {
        let [message, _] = stage.fails(line, 3);
        assert!(message.contains("shares.mbg: the graphs that run was trained with are not there"), "{message}");
    }
    stage.succeeds("train --out run --resume --max-steps 7 --set model.graph=moved.mbg");
    stage.succeeds("eval --run run");
}

/// Graphs that ended two years before the test were used for all of it, without a word.
#[test]
fn graphs_that_end_long_before_the_data_are_warned_of() {
    let stage = Stage::new();
    stage.succeeds("synth shares --shares 6 --days 200");
    fs::create_dir(stage.path("early")).unwrap();
    for name in ["A01", "A02", "B01", "B02", "C01", "D01"].map(|name| format!("{name}.csv")) {
        let whole = stage.text(&format!("shares/{name}"));
        let early: String = whole.lines().take(100).flat_map(|line| [line, "\n"]).collect();
        stage.write(&format!("early/{name}"), &early);
    }
    let features = "--features log_return,range --target log_return --horizon 2";
    stage.succeeds(&format!("ingest shares --out shares.h5 --timeframes D1:5 {features}"));
    stage.succeeds("graph build early --kind correlation --lookback 20 --min-observations 10 --k 2 --out early.mbg");
    let warning = "samples come long after the last graph of ";
    let settings = format!(
        "--data shares.h5 --max-steps 2 --set model.graph=early.mbg --set gpu_optimization.batch_size=8 {MODEL}"
    );
    let plan = stage.succeeds(&format!("plan {settings}"));
    assert!(plan["warnings"].to_string().contains(warning), "{plan}");
    let train = format!("train --out run {settings}");
    for line in [&train[..], "eval --run run", "predict --run run --out all.csv"] {
        let told = stage.told(line);
        assert!(told.contains(warning), "{line}: {told}");
    }
}

/// `eval` of an LSTM alone over shares had no IC, so that nothing told if its graph helps.
#[test]
fn a_model_without_a_graph_has_the_coefficients_of_each_day_too() {
    let stage = with_cross_sections();
    stage.succeeds("train --data shares.h5 --out alone --max-steps 6 --set model.hidden=4");
    let evaluation = stage.succeeds("eval --run alone");
    assert_eq!(
        (&evaluation["ic_lags"], &evaluation["graphs"][0]["ic"].as_array().unwrap().len()),
        (&json!([0, 1]), &2)
    );
    let times: Vec<i64> =
        evaluation["graphs"].as_array().unwrap().iter().map(|day| day["time_ns"].as_i64().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    assert_eq!(evaluation["samples"].as_u64().unwrap(), 6 * times.len() as u64);
    // In training and after it, alike.
    let in_training: Value = serde_json::from_str(&stage.text("alone/evaluation.json")).unwrap();
    assert_eq!(in_training["ic"], evaluation["ic"]);
    let text = stage.said("eval --run alone");
    assert!(text.contains("correlations of predictions and targets within each day"), "{text}");
    assert!(text.contains("mean, no change: the same for all instruments"), "{text}");
    assert!(stage.text("alone/report.html").contains("Rank IC by day"));
    stage.succeeds(
        "train --data shares.h5 --out streamed --max-steps 6 --set model.hidden=4 --set data.residency=streamed",
    );
    let text = stage.said("eval --run streamed");
    assert!(text.contains("\nno IC: correlations over the instruments need the series in memory"), "{text}");
    let compared = stage.said("compare alone run");
    for part in
        ["LSTM, 1 layer of 4; GAT, 1 layer of 2 heads of 4", "shares.mbg", "A by samples and B by cross-sections: "]
    {
        assert!(compared.contains(part), "{part}: {compared}");
    }
}

/// The ranks of the day that has just closed were not to be had: its targets lie ahead, so that it
/// was no sample. They are those that the day has once its targets are known.
#[test]
fn the_latest_days_are_predicted_as_once_their_targets_are_known() {
    let stage = Stage::new();
    stage.succeeds("synth shares --shares 6 --days 200");
    let names = ["A01", "A02", "B01", "B02", "C01", "D01"].map(|name| format!("{name}.csv"));
    fs::create_dir(stage.path("known")).unwrap();
    for name in &names {
        let whole = stage.text(&format!("shares/{name}"));
        // One share ends long before the others.
        let rows = whole.lines().count() - if name == "B01.csv" { 40 } else { 2 };
        let known: String = whole.lines().take(rows).flat_map(|line| [line, "\n"]).collect();
        fs::write(stage.path(&format!("known/{name}")), known).unwrap();
    }
    let features = "--features log_return,range --target log_return --horizon 2";
    stage.succeeds(&format!("ingest known --out shares.h5 --timeframes D1:5 {features}"));
    stage.succeeds("graph build known --kind correlation --lookback 20 --min-observations 10 --k 2 --out shares.mbg");
    let graph = format!("--set model.graph=shares.mbg --set gpu_optimization.batch_size=8 {MODEL}");
    stage.succeeds(&format!("train --data shares.h5 --out run --max-steps 6 {graph}"));
    stage.succeeds("train --data shares.h5 --out alone --max-steps 6 --set model.hidden=4");
    for run in ["run", "alone"] {
        let told = stage.succeeds(&format!("predict --run {run} --samples latest --out {run}-latest.csv"));
        assert_eq!(told["predictions"], 10, "two days of five shares: {told}");
        let notes = told["notes"].to_string();
        assert!(notes.contains("10 samples from ") && notes.contains("bars of B01 end earlier"), "{notes}");
    }
    for name in names.iter().filter(|name| *name != "B01.csv") {
        fs::copy(stage.path(&format!("shares/{name}")), stage.path(&format!("known/{name}"))).unwrap();
    }
    stage.succeeds("ingest --append known --out shares.h5");
    for run in ["run", "alone"] {
        stage.succeeds(&format!("predict --run {run} --force --out {run}.csv"));
        // Time, instrument and values.
        let rows = |file: &str| -> Vec<String> {
            let numbered = stage.text(file);
            numbered.lines().skip(1).map(|line| line.split_once(',').unwrap().1.to_owned()).collect()
        };
        let (latest, all) = (rows(&format!("{run}-latest.csv")), rows(&format!("{run}.csv")));
        assert_eq!(latest.len(), 10);
        // The targets, which are known now, come after them.
        let is_known = |row: &String| all.iter().any(|known| known.starts_with(&format!("{row},")));
        assert!(latest.iter().all(is_known), "{run}: {latest:?}");
    }
    let [message, _] = stage.fails("predict --run alone --samples latest --data shares.mbg --out x.csv", 2);
    assert!(message.contains("graphs have no bars after their samples"), "{message}");
}

/// Walk-forward of a loss of ranks printed RMSE alone, of which `eval` says that it means nothing.
#[test]
fn folds_of_a_loss_of_ranks_are_told_by_their_coefficients() {
    let stage = with_cross_sections();
    let settings = format!("--set model.graph=shares.mbg --set gpu_optimization.batch_size=8 {MODEL}");
    let walk = "--set training.loss=rank_pairwise --set data.walk_forward=2 --max-steps 3";
    let answer = stage.succeeds(&format!("train --data shares.h5 --out walk {settings} {walk}"));
    for key in ["ic", "rank_ic"] {
        assert!(answer["model"][key][0]["mean"].is_number(), "{key}: {answer}");
        assert!(answer["t_over_folds"][key][1].is_number(), "{key}: {answer}");
    }
    assert_eq!((&answer["over_days"][0]["lag"], &answer["over_days"][1]["lag"]), (&json!(0), &json!(1)));
    let text = stage.said("eval --run walk");
    for part in ["rank IC linear", "deviation", "Over the days of all tests: rank IC "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.to_lowercase().contains("rmse"), "{text}");
    let page = stage.text("walk/report.html");
    assert!(page.contains("rank IC by fold") && page.contains("Rank IC by day"), "{page}");
    let report = stage.text("walk/fold-1/report.html");
    assert!(report.contains("<dt>Rank IC</dt>") && !report.contains("RMSE"), "{report}");

    stage.succeeds(&format!(
        "train --data shares.h5 --out one {settings} --set training.loss=rank_pairwise --max-steps 3"
    ));
    let compared = stage.succeeds("compare one walk");
    assert_eq!(compared["runs"][0]["evaluation"]["model"].as_object().unwrap().len(), 2, "{compared}");
}

#[test]
fn a_run_on_cross_sections_goes_on_where_it_stopped() {
    let stage = with_cross_sections();
    let settings = format!("--set model.graph=shares.mbg --set gpu_optimization.batch_size=8 {MODEL}");
    stage.succeeds(&format!("train --data shares.h5 --out parts --max-steps 3 --set training.max_steps=3 {settings}"));
    stage.succeeds("train --out parts --resume --max-steps 6");
    let weights = |run: &str| {
        stage.succeeds(&format!("export --run {run} --checkpoint last --out {run}.safetensors"));
        stage.read(&format!("{run}.safetensors"))
    };
    let parts = weights("parts");
    assert_eq!(parts, weights("run"));
    let tensors = SafeTensors::deserialize(&parts).unwrap();
    assert!(tensors.names().iter().any(|name| name.starts_with("graph.0.")), "{:?}", tensors.names());

    // Other graphs are other data.
    stage.succeeds("graph build shares --kind correlation --lookback 20 --min-observations 10 --k 3 --out shares.mbg");
    let [message, _] = stage.fails("train --out parts --resume --max-steps 8", 3);
    assert!(message.contains("shares.mbg: not the data that the run in parts was trained on"), "{message}");
}

#[test]
fn graphs_that_do_not_belong_to_the_data_are_refused() {
    let stage = with_cross_sections();
    stage.succeeds("synth other.h5 --samples 60 --timeframes M1:4 --features 3 --targets 2");
    for (line, part) in [
        ("train --data other.h5 --out no --set model.graph=shares.mbg", "is no series of several instruments"),
        ("train --data shares.mbg --out no", "have 0 features a node and 0 targets"),
        ("train --data shares.h5 --out no --set model.graph=absent.mbg", "absent.mbg"),
        ("train --data shares.mbg --out no --set model.graph=shares.mbg", "leave model.graph at none"),
    ] {
        let output = stage.run(line).failure();
        let message = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
        assert!(message.contains(part), "{line}: {message}");
        assert!(!stage.path("no").exists(), "{line}");
    }
}

/// `training.rank_temperature` was 1, a hundred times the spread of log returns: the loss stayed at
/// ln 87 for 87 shares.
#[test]
fn the_temperature_of_ranks_is_the_spread_of_targets_by_default() {
    let stage = with_cross_sections();
    let settings = format!(
        "--set model.graph=shares.mbg --set gpu_optimization.batch_size=8 {MODEL} --set training.loss=rank_listwise"
    );
    let train = |run: &str, more: &str| {
        stage.succeeds(&format!(
            "train --data shares.h5 --out {run} {settings} --set training.lr=0.01 --max-steps 20 {more}"
        ))
    };
    let auto = train("auto", "");
    let config = stage.text("auto/config.yaml");
    let kept = config.lines().find_map(|line| line.trim().strip_prefix("rank_temperature: ")).unwrap();
    let temperature: f64 = kept.parse().unwrap();
    assert!((1e-4..0.2).contains(&temperature), "{temperature}");
    let told = auto["notes"].to_string();
    assert!(told.contains(&format!("training.rank_temperature is {kept}")), "{told}");
    stage.succeeds("train --out auto --resume --max-steps 21");
    assert_eq!(stage.succeeds("eval --run auto")["samples"], auto["evaluation"]["samples"]);

    let far = train("far", "--set training.rank_temperature=1000");
    let warning = far["warning"].as_str().unwrap();
    assert!(warning.contains("is no better than 1.79"), "{warning}");
    assert!(warning.contains("training.rank_temperature is 1000"), "{warning}");
}

/// `eval` and `predict` blamed the series where the graphs between its samples had changed, and
/// went on with exit code 0.
#[test]
fn a_changed_graph_file_is_named_and_not_evaluated_on() {
    let stage = with_cross_sections();
    stage.succeeds("graph build shares --kind correlation --lookback 20 --min-observations 10 --k 3 --out shares.mbg");
    for line in ["eval --run run", "eval --run run --data shares.h5", "predict --run run --out p.csv"] {
        let [message, _] = stage.fails(line, 3);
        assert!(message.contains("shares.mbg: changed since run was trained on it"), "{line}: {message}");
        assert!(message.contains("--force") && !message.contains("shares.h5"), "{line}: {message}");
        let told = stage.told(&format!("{line} --force"));
        assert!(told.contains("shares.mbg: changed since run was trained on it"), "{line}: {told}");
    }
    let [message, _] = stage.fails("train --out run --resume --max-steps 8", 3);
    assert!(message.contains("shares.mbg: not the data that the run in run was trained on"), "{message}");
}
