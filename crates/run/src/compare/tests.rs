use std::num::NonZeroUsize;

use megabatch_chunk_io::{NonFinite, remove_mark};
use megabatch_gpu_core::Device;
use megabatch_nn::model::{GraphConfig, ModelConfig};

use super::*;
use crate::adapters::samples::SourceSamples;
use crate::synth::{SampleOptions, make_samples};

fn step(step: u64, loss: f64) -> Value {
    json!({
        "event": "step", "step": step, "epoch": 0, "samples": 10, "loss": loss, "samples_per_s": 20.0, "forward_s": 0.25,
        "backward_s": 0.125, "optimizer_s": 0.0625, "data_wait_s": 0.0, "allocated_bytes": 5_000,
    })
}

/// A run that has done two steps and a validation.
fn side(label: &str, fingerprint: &str, loss: f64) -> Side {
    let path = "data/<series>.h5";
    Side {
        folder: label.into(),
        label: label.to_owned(),
        samples: 'A',
        settings: [("training.lr", loss.to_string()), ("training.loss", "mse".to_owned())].into(),
        plan: json!({
            "data": { "path": path, "fingerprint": fingerprint }, "split": { "train": 70, "validation": 20, "test": 10 },
            "steps": 4, "parameters": 1234, "memory": { "total_bytes": 9_000 },
        }),
        metrics: vec![
            step(1, 2.0 * loss),
            step(2, loss),
            json!({ "event": "validation", "step": 2, "epoch": 0, "loss": loss, "validation_s": 0.5 }),
        ],
        evaluations: vec![Value::Null],
        folds: None,
    }
}

fn judged(mut side: Side, rmse: f64) -> Side {
    side.evaluations = vec![json!({
        "split": "test", "samples": 10, "step": 2, "rmse": [rmse], "mae": [rmse], "direction_accuracy": [0.5],
        "baselines": { "no_change": { "rmse": [7.5], "mae": [7.0], "direction_accuracy": [0.0] } },
    })];
    side
}

fn cells(comparison: &Comparison, name: &str) -> Vec<String> {
    let rows = comparison.results_table().rows;
    rows.into_iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no row {name}"))[1..].to_vec()
}

#[test]
fn runs_on_the_same_samples_are_ranked_and_an_unfinished_one_has_no_errors() {
    let comparison =
        Comparison { sides: vec![side("a", "x", 1.0), judged(side("b", "x", 0.5), 3.0)], ..Comparison::default() };
    let sentences = comparison.sentences();
    assert_eq!(sentences.len(), 2, "{sentences:?}");
    let expected = "A: b has the lowest validation loss, 0.5000 at step 2; that of a, the next one, is 100.0 % higher.";
    assert_eq!(sentences[1], expected);
    assert_eq!(cells(&comparison, "steps"), ["2 of 4", "2 of 4"]);
    assert_eq!(cells(&comparison, "RMSE"), ["-", "3.000"]);
    assert_eq!(cells(&comparison, "  no change"), ["-", "7.500"]);
    assert_eq!(cells(&comparison, "signs predicted"), ["-", "50.0 %"]);
    let no_change = comparison.results_table().rows.into_iter().filter(|row| row[0] == "  no change").count();
    assert_eq!(no_change, 2, "it has an RMSE and an MAE, and predicts no sign");
    assert_eq!(cells(&comparison, "samples/s in steps"), ["20", "20"]);
    assert_eq!(cells(&comparison, "time"), ["1.50 s", "1.50 s"]);
    assert_eq!(cells(&comparison, "  forward"), ["500 ms (33.3 %)"; 2]);
    let differences: Vec<&str> = comparison.differences().iter().map(|difference| difference.key).collect();
    assert_eq!(differences, ["training.lr"]);
    let text = comparison.to_text();
    assert!(text.contains("training.lr  1  0.5\n") && !text.contains("reserved"), "{text}");
}

/// The loss of one was said to be 0.0 % higher.
#[test]
fn equal_losses_are_said_to_be_equal() {
    let comparison = Comparison { sides: vec![side("a", "x", 0.5), side("b", "x", 0.5)], ..Comparison::default() };
    let expected = "A: a and b have the same lowest validation loss, 0.5000, a at step 2 and b at step 2.";
    assert_eq!(comparison.sentences()[1], expected);
}

/// A run without an epoch's end showed the memory of a step as the peak.
#[test]
fn the_peak_is_that_which_the_log_has() {
    let mut ended = side("b", "x", 0.5);
    ended.metrics.push(json!({ "event": "epoch", "step": 2, "epoch": 0, "allocated_bytes_peak": 7_000 }));
    let comparison = Comparison { sides: vec![side("a", "x", 1.0), ended], ..Comparison::default() };
    assert_eq!(cells(&comparison, "allocated, peak"), ["-", "7.00 kB"]);
    let peaks: Vec<Value> =
        comparison.sides.iter().map(|side| side.to_json()["allocated_bytes_peak"].clone()).collect();
    assert_eq!(peaks, [Value::Null, json!(7_000)]);
}

/// `compare` named neither a model with a graph nor one without, and was silent on their tests.
#[test]
fn a_model_with_a_graph_is_told_from_one_without_and_so_are_their_samples() {
    let sides = |begins: [i64; 2]| {
        let run = |label: &str, samples: char, unit: &str, begin: i64| {
            let mut side = Side { samples, ..judged(side(label, "x", 1.0), 3.0) };
            side.plan["data"]["unit"] = json!(unit);
            side.plan["data"]["files"] = json!([{ "path": "shares.h5", "fingerprint": "x" }]);
            side.plan["split"]["test_start_ns"] = json!(begin);
            side.plan["model"] = json!(ModelConfig { hidden: 8, ..ModelConfig::default() });
            side
        };
        let [alone, mut over_graph] =
            [run("alone", 'A', "sample", begins[0]), run("graph", 'B', "cross-section", begins[1])];
        let graph = Some(GraphConfig { hidden: 16, ..GraphConfig::default() });
        over_graph.plan["model"] = json!(ModelConfig { hidden: 8, graph, ..ModelConfig::default() });
        over_graph.settings.insert("model.graph", "/data/correlation.mbg".to_owned());
        Comparison { sides: vec![alone, over_graph], ..Comparison::default() }
    };
    let same = sides([0, 0]);
    assert_eq!(cells(&same, "model"), ["LSTM, 1 layer of 8", "LSTM, 1 layer of 8; GAT, 2 layers of 4 heads of 16"]);
    assert_eq!(cells(&same, "  graph"), ["-", "correlation.mbg"]);
    assert_eq!(cells(&same, "  samples"), ["10", "10"]);
    let units = "A by samples and B by cross-sections: one file, and ";
    let sentence = |comparison: &Comparison| {
        let sentences = comparison.sentences();
        sentences.iter().find_map(|text| text.strip_prefix(units)).unwrap_or_else(|| panic!("{sentences:?}")).to_owned()
    };
    let expected =
        "the same test, 10 samples from the same time on: their errors compare too, and their losses do not.";
    assert_eq!(sentence(&same), expected);
    let expected = "not the same test: that of A of 10 samples from 1970-01-01 00:00 UTC on, that of B of 10 samples from 1970-01-02 00:00 UTC on.";
    assert_eq!(sentence(&sides([0, 86_400_000_000_000])), expected);
    // Before one of them was tested, and of an estimate, they were said to be other tests.
    for evaluation in [Value::Null, json!({ "split": "test", "samples": 5, "drawn": 5, "rmse": [1.0] })] {
        let evaluated = |begins| {
            let mut comparison = sides(begins);
            comparison.sides[1].evaluations = vec![evaluation.clone()];
            comparison
        };
        let sentences = evaluated([0, 0]).sentences();
        assert!(!sentences.iter().any(|text| text.contains("one file")), "{sentences:?}");
        let expected = "not the same test: that of A of 10 samples from 1970-01-01 00:00 UTC on, that of B from 1970-01-02 00:00 UTC on.";
        assert_eq!(sentence(&evaluated([0, 86_400_000_000_000])), expected);
    }
}

/// A smaller `huber_delta` makes every loss smaller, and was said to be better.
#[test]
fn losses_that_settings_make_different_do_not_compare() {
    let with = |label: &str, settings: &[(&'static str, &str)]| {
        let mut side = side(label, "x", 1.0);
        side.settings.extend(settings.iter().map(|&(key, value)| (key, value.to_owned())));
        side
    };
    for (loss, key, compares) in [
        ("huber", "training.huber_delta", false),
        ("mse", "training.huber_delta", true),
        ("quantile", "training.quantile", false),
        ("cross_entropy", "training.thresholds", false),
        ("rank_pairwise", "training.rank_temperature", true),
        ("mse", "training.tasks", false),
    ] {
        let sides = ["a", "b"].map(|value| with(value, &[("training.loss", loss), (key, value)]));
        let comparison = Comparison { sides: sides.into(), ..Comparison::default() };
        let sentence = comparison.sentences().pop().unwrap();
        let says = format!("A: their losses are not the same ({key}): validation losses do not compare.");
        assert_eq!(sentence == says, !compares, "{loss}: {sentence}");
    }
}

/// Folders of runs that keep `plans`.
fn runs_of(folder: &Path, plans: &[Value]) -> Vec<PathBuf> {
    let run = |(k, plan): (usize, &Value)| {
        let run = folder.join(k.to_string());
        fs::create_dir(&run).unwrap();
        fs::write(run.join("config.yaml"), "").unwrap();
        fs::write(run.join("plan.json"), plan.to_string()).unwrap();
        run
    };
    plans.iter().enumerate().map(run).collect()
}

#[test]
fn other_data_and_another_split_are_other_samples() {
    let folder = tempfile::tempdir().unwrap();
    let mut plans = ["x", "x", "y", "x"].map(|fingerprint| side("run", fingerprint, 1.0).plan);
    plans[3]["split"]["test"] = json!(11);
    let runs = runs_of(folder.path(), &plans);
    let comparison = Comparison::open(&runs, &Host::silent()).unwrap();
    assert_eq!(comparison.sides.iter().map(|side| side.samples).collect::<String>(), "AABC");
    let sentences = comparison.sentences();
    assert!(sentences[0].starts_with("A: 0, 1: data/<series>.h5, 70 to train on"), "{sentences:?}");
    assert!(sentences[3].contains("same letter only"), "{sentences:?}");
    assert_eq!(comparison.to_json()["same_samples"], false);
}

/// Runs with the same weights were ranked by 18 %, as their validations took other samples, and the
/// control with a random graph was said to have other data.
#[test]
fn letters_are_of_the_samples_that_runs_are_judged_by() {
    let folder = tempfile::tempdir().unwrap();
    let whole = json!({
        "data": { "path": "shares.h5", "fingerprint": "all", "unit": "cross-section", "units": 100,
            "files": [{ "path": "shares.h5", "fingerprint": "x" }, { "path": "correlation.mbg", "fingerprint": "g" }] },
        "split": { "train": 70, "validation": 20, "test": 10, "purged": 0, "validation_start_ns": 7, "test_start_ns": 9 },
        "validation_samples": 20, "test_samples": 10, "steps": 4,
    });
    let with = |change: &dyn Fn(&mut Value)| {
        let mut plan = whole.clone();
        change(&mut plan);
        plan
    };
    let plans = [
        whole.clone(),
        with(&|plan| {
            plan["data"]["fingerprint"] = json!("other");
            plan["data"]["files"][1] = json!({ "path": "random.mbg", "fingerprint": "h" });
        }),
        with(&|plan| plan["split"]["train"] = json!(35)),
        with(&|plan| plan["validation_samples"] = json!(5)),
        with(&|plan| plan["test_samples"] = json!(5)),
        with(&|plan| plan["split"]["test_start_ns"] = json!(8)),
    ];
    let runs = runs_of(folder.path(), &plans);
    let comparison = Comparison::open(&runs, &Host::silent()).unwrap();
    assert_eq!(comparison.sides.iter().map(|side| side.samples).collect::<String>(), "AAABCD");
    let sentences = comparison.sentences();
    assert!(sentences[0].contains("35 or 70 to train on, 20 to validate, 10 to test"), "{sentences:?}");
    assert!(sentences[1].contains("20 to validate (5 of them taken)"), "{sentences:?}");
    // The choice that was made counts, and not the one that was planned.
    let taken = json!({ "split": "test", "rmse": [1.0], "samples": 5, "drawn": 5, "drawn_from": 10 });
    for run in [0, 4] {
        fs::write(runs[run].join("evaluation.json"), taken.to_string()).unwrap();
    }
    let comparison = Comparison::open(&[runs[0].clone(), runs[4].clone()], &Host::silent()).unwrap();
    assert_eq!(comparison.to_json()["same_samples"], true);
    assert_eq!(cells(&comparison, "judged on"), ["test, estimate from 5 of 10"; 2]);
}

/// Runs on one series, with its mark of verification and without, were shown as on other samples.
#[test]
fn data_with_a_mark_and_without_are_the_same_where_their_numbers_are() {
    let folder = tempfile::tempdir().unwrap();
    let data = ["marked.h5", "bare.h5", "other.h5"].map(|name| folder.path().join(name));
    let [marked, bare, other] = &data;
    let options = SampleOptions { samples: NonZeroUsize::new(20).unwrap(), ..SampleOptions::default() };
    make_samples(marked, &options).unwrap();
    make_samples(other, &SampleOptions { seed: 1, ..options }).unwrap();
    fs::copy(marked, bare).unwrap();
    for path in [bare, other] {
        remove_mark(path).unwrap();
    }
    let plan = |path: &Path| {
        let samples = SourceSamples::open_in_file(path, &Device::cpu(), NonFinite::Fail, &Host::silent()).unwrap();
        let fingerprint = samples.fingerprint(&Host::silent()).unwrap();
        let mut plan = side("run", &fingerprint, 1.0).plan;
        plan["data"]["path"] = json!(path);
        plan["data"]["files"] = json!([{ "path": path, "fingerprint": fingerprint }]);
        plan
    };
    let plans = [bare, marked, other, bare].map(|path| plan(path));
    let runs = runs_of(folder.path(), &plans);
    let letters = || {
        let comparison = Comparison::open(&runs, &Host::silent()).unwrap();
        let letters = comparison.sides.iter().map(|side| side.samples).collect::<String>();
        (letters, comparison.to_json()["same_samples"].clone(), comparison)
    };
    let same_of = |runs: &[PathBuf]| Comparison::open(runs, &Host::silent()).unwrap().to_json()["same_samples"].clone();
    assert_eq!(same_of(&runs[..2]), true);
    // Any of the files tells.
    for gone in [marked, bare] {
        let aside = folder.path().join("aside");
        fs::rename(gone, &aside).unwrap();
        let (letters, same, comparison) = letters();
        assert_eq!((letters.as_str(), same, comparison.unclear.len()), ("AABA", json!(false), 0), "{gone:?}");
        fs::rename(&aside, gone).unwrap();
    }
    // Other data lie in the places of both.
    for path in [marked, bare] {
        fs::copy(other, path).unwrap();
    }
    let (letters, same, comparison) = letters();
    assert_eq!((letters.as_str(), same), ("ABCA", json!(false)));
    assert_eq!(comparison.unclear, [['A', 'B']]);
    assert_eq!(same_of(&runs[..2]), Value::Null);
    let sentences = comparison.sentences();
    assert!(sentences.iter().any(|text| text.starts_with("A and B may be the same samples")), "{sentences:?}");
}

#[test]
fn losses_of_another_kind_do_not_compare() {
    let mut other = side("b", "x", 0.5);
    other.settings.insert("training.loss", "huber".to_owned());
    let sentences = Comparison { sides: vec![side("a", "x", 1.0), other], ..Comparison::default() }.sentences();
    assert!(sentences[1].contains("validation losses do not compare"), "{sentences:?}");
}

#[test]
fn labels_leave_out_the_folders_in_common() {
    for (folders, expected) in [
        (["runs/a", "runs/b"], ["a", "b"]),
        (["a", "runs/a"], ["a", "runs/a"]),
        (["/x/1/run", "/x/2/run"], ["1/run", "2/run"]),
        (["same", "same"], ["same", "same"]),
    ] {
        assert_eq!(labels(&folders.map(PathBuf::from)), expected, "{folders:?}");
    }
}

#[test]
fn the_page_needs_nothing_else_and_names_each_run() {
    let sides =
        vec![judged(side("<a>", "x", 1.0), 2.0), side("b", "x", 0.5), Side { samples: 'B', ..side("c", "y", 1.0) }];
    let html = Comparison { sides, ..Comparison::default() }.to_html();
    for part in ["&lt;a&gt;", "Validation loss by step, samples B", "no change", "b, forward: 500 ms", "training.lr"] {
        assert!(html.contains(part), "{part}: {html}");
    }
    for outside in ["http:", "https:", "<script", "src=", "url(", "@import", "NaN", "<a>"] {
        assert!(!html.contains(outside), "{outside}");
    }
    for link in html.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(html.contains(&format!("id=\"{link}\"")), "{link} leads nowhere");
    }
}
