//! Targets that are not known, several quantiles, and classes, from the data file to the
//! predictions.

use serde_json::json;

use crate::stage::{SERIES, SMALL, Stage, dataset, numbers, without_targets};

/// `series.h5` with targets that `change` makes of its own [200, 2].
fn with_targets(change: impl Fn(usize, f32) -> f32) -> Stage {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    stage.with_hdf5("series.h5", |path| {
        let file = hdf5::File::open_rw(path).unwrap();
        let targets = file.dataset("targets").unwrap();
        let values: Vec<f32> = targets.read_raw().unwrap();
        let values: Vec<f32> = values.into_iter().enumerate().map(|(i, target)| change(i, target)).collect();
        targets.write_raw(&values).unwrap();
        file.close().unwrap();
    });
    stage
}

#[test]
fn targets_that_are_not_known_count_nowhere() {
    // Every third second target, and a stretch of samples to train on without any.
    let stage = with_targets(|i, target| if i % 6 == 1 || (40..120).contains(&i) { f32::NAN } else { target });
    let problems = stage.succeeds("inspect series.h5")["problems"].clone();
    assert_eq!(problems[0]["severity"], "note", "{problems}");
    stage.succeeds(&format!("train --data series.h5 --out run --set training.epochs=2 {SMALL}"));
    let steps = stage.metrics("run", "step");
    let terms: Vec<u64> = steps.iter().filter_map(|step| step["loss_terms"].as_u64()).collect();
    assert_eq!(terms.len(), steps.len(), "every step has a target that is not known");
    assert!(steps.iter().all(|step| step["loss"].is_number()) && terms.iter().sum::<u64>() < 2 * 2 * 140);

    let answer = stage.succeeds("eval --run run");
    let known = numbers(&answer["known_targets"]);
    assert_eq!(known[0], answer["samples"].as_f64().unwrap());
    assert!(known[1] < known[0] && numbers(&answer["rmse"]).len() == 2, "{answer}");
}

#[test]
fn several_quantiles_are_trained_evaluated_and_predicted() {
    let stage = Stage::with_series();
    let loss = "--set training.loss=quantile --set training.quantiles=[0.1,0.5,0.9]";
    stage.succeeds(&format!("train --data series.h5 --out run --set training.epochs=2 {SMALL} {loss}"));
    let answer = stage.succeeds("eval --run run");
    assert_eq!(numbers(&answer["quantiles"]["levels"]), [0.1, 0.5, 0.9]);
    for key in ["pinball_loss", "coverage"] {
        let by_level = answer["quantiles"][key].as_array().unwrap();
        assert!(by_level.len() == 3 && by_level.iter().all(|losses| numbers(losses).len() == 2), "{answer}");
    }
    // Half the mean absolute error is the median's pinball loss.
    let (mae, median) = (numbers(&answer["mae"]), numbers(&answer["quantiles"]["pinball_loss"][1]));
    assert!(mae.iter().zip(median).all(|(mae, median)| (mae - 2.0 * median).abs() < 1e-9), "{answer}");

    let predicted = stage.succeeds("predict --run run --samples 3..8 --out p.h5");
    assert_eq!(predicted["named"], json!(["q0.1", "q0.5", "q0.9"]));
    let table = |name: &str| dataset::<f32>(&stage.path("p.h5"), name);
    assert_eq!(table("predictions"), table("predictions_q0.5"));
    assert_eq!(table("predictions_q0.9").0, [5, 2]);
    stage.succeeds("predict --run run --samples 3..8 --out p.csv");
    let csv = stage.text("p.csv");
    assert!(
        csv.starts_with("sample,time,h1,h2,h1_q0.1,h2_q0.1,h1_q0.5,h2_q0.5,h1_q0.9,h2_q0.9,target1,target2\n"),
        "{csv}"
    );

    let [message, _] = stage.fails("train --data series.h5 --out other --set training.quantile=[0.9,0.1]", 2);
    assert!(message.contains("in ascending order, such as [0.1, 0.5, 0.9]"), "{message}");
    let other = "train --out run --resume --max-steps 30 --set training.quantile=[0.1,0.5]";
    let [message, _] = stage.fails(other, 2);
    assert!(message.contains("training.quantile 0.1, 0.5, 0.9, but this run has 0.1, 0.5"), "{message}");
}

#[test]
fn classes_are_trained_evaluated_and_predicted() {
    let stage = Stage::with_series();
    let loss = "--set training.loss=cross_entropy --set training.thresholds=[-0.5,0.5]";
    stage.succeeds(&format!("train --data series.h5 --out run --set training.epochs=2 {SMALL} {loss}"));
    let answer = stage.succeeds("eval --run run");
    let samples = answer["samples"].as_f64().unwrap();
    for errors in [&answer, &answer["baselines"]["most_frequent"]] {
        for key in ["accuracy", "balanced_accuracy", "cross_entropy"] {
            assert_eq!(numbers(&errors["classes"][key]).len(), 2, "{errors}");
        }
        let counts = errors["classes"]["confusion"][0].as_array().unwrap().iter().flat_map(numbers);
        assert_eq!(counts.sum::<f64>(), samples);
    }
    assert_eq!(answer["baselines"].as_object().unwrap().len(), 1);
    let page = stage.text("run/report.html");
    assert!(page.contains("Accuracy by target") && page.contains("Accuracy by class, "), "{page}");
    assert_eq!(confusion_on(&page, "Confusion of target 1"), counted_on_test(&stage));

    stage.succeeds("predict --run run --samples 0..4 --out p.h5");
    let tables = ["predictions", "predictions_p0", "predictions_p1", "predictions_p2"];
    let [classes, shares @ ..] = tables.map(|name| dataset::<f32>(&stage.path("p.h5"), name).1);
    for (k, &class) in classes.iter().enumerate() {
        let own = shares.each_ref().map(|shares| shares[k]);
        assert!((own.iter().sum::<f32>() - 1.0).abs() < 1e-6, "{own:?}");
        assert!(own.iter().all(|&share| share <= own[class as usize]), "{class} of {own:?}");
    }
}

/// Counts of the table with this caption on a report, row after row.
fn confusion_on(page: &str, caption: &str) -> Vec<usize> {
    let (_, rest) = page.split_once(&format!("<caption>{caption}</caption>")).unwrap_or_else(|| panic!("{page}"));
    let table = rest.split("</table>").next().unwrap();
    let cells = table.split("<small>").map(|cell| cell.rsplit('>').next().unwrap());
    let counts: Vec<usize> = cells.filter_map(|count| count.parse().ok()).collect();
    assert_eq!(counts.len(), 9, "{table}");
    counts
}

/// The test samples by the true and by the predicted class of their first target, row after row.
fn counted_on_test(stage: &Stage) -> Vec<usize> {
    stage.succeeds("predict --run run --split test --out test.csv");
    let targets = dataset::<f32>(&stage.path("series.h5"), "targets").1;
    let mut counts = vec![0; 9];
    for line in stage.text("test.csv").lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let (sample, predicted): (usize, f32) = (fields[0].parse().unwrap(), fields[2].parse().unwrap());
        let target = targets[2 * sample];
        let class = usize::from(target > -0.5) + usize::from(target > 0.5);
        counts[3 * class + predicted as usize] += 1;
    }
    counts
}

#[test]
fn several_tasks_are_trained_evaluated_and_predicted() {
    // The second target is not known of every third sample.
    let stage = with_targets(|i, target| if i % 6 == 1 { f32::NAN } else { target });
    let tasks = "training:\n  epochs: 3\n  tasks:\n    - targets: 0\n      loss: huber\n      huber_delta: 0.5\n      weight: 0.7\n    \
                 - {targets: 1.., loss: cross_entropy, thresholds: [-0.5, 0.5], weight: 0.3}\n";
    stage.write("tasks.yaml", tasks);
    let line = format!("train --config tasks.yaml --data series.h5 --out run {SMALL}");
    let trained = stage.succeeds(&line);
    let answer = stage.succeeds("eval --run run");
    assert_eq!(answer, trained["evaluation"], "what is kept of the run reads as what it was begun with");
    let [numbers_of, classes] = [0, 1].map(|k| &answer["tasks"][k]);
    assert_eq!((&numbers_of["targets"], &classes["objective"]), (&json!([0, 1]), &json!("cross_entropy")));
    assert_eq!(numbers(&numbers_of["rmse"])[0], numbers(&answer["rmse"])[0]);
    assert!(numbers_of["baselines"]["linear"]["rmse"][0].is_number(), "{answer}");
    assert_eq!(numbers(&classes["baselines"]["most_frequent"]["classes"]["accuracy"]).len(), 1);
    assert!(answer["known_targets"][1].as_u64() < answer["known_targets"][0].as_u64(), "{answer}");
    assert_eq!((&answer["baselines"]["mean"]["rmse"][1], numbers(&answer["rmse"]).len()), (&json!(null), 2));
    let text = stage.said("eval --run run");
    assert!(text.contains("targets 0..1, huber, weight 0.700") && text.contains("accuracy most frequent"), "{text}");
    assert!(stage.text("run/report.html").contains("targets 1..2, cross_entropy, weight 0.300"));

    let predicted = stage.succeeds("predict --run run --samples 3..8 --out p.h5");
    assert_eq!(predicted["named"], json!(["t1-2_p0", "t1-2_p1", "t1-2_p2"]));
    let shares = [0, 1, 2].map(|class| dataset::<f32>(&stage.path("p.h5"), &format!("predictions_t1-2_p{class}")).1);
    let (shape, values) = dataset::<f32>(&stage.path("p.h5"), "predictions");
    assert_eq!(shape, [5, 2]);
    for (row, values) in values.chunks(2).enumerate() {
        let own = shares.each_ref().map(|shares| shares[2 * row + 1]);
        assert!((own.iter().sum::<f32>() - 1.0).abs() < 1e-6 && shares[0][2 * row].is_nan(), "{own:?}");
        assert!(own.iter().all(|&share| share <= own[values[1] as usize]), "{values:?} of {own:?}");
    }
    stage.succeeds("predict --run run --samples 3..8 --out p.csv");
    let csv = stage.text("p.csv");
    let head = "sample,time,h1,h2,h2_t1-2_p0,h2_t1-2_p1,h2_t1-2_p2,target1,target2,target1_value,target2_value\n";
    assert!(csv.starts_with(head) && !without_targets(&csv).contains("NaN"), "{csv}");

    let whole = tasks.replace("1..", "1..5");
    stage.write("wrong.yaml", &whole);
    let [message, _] = stage.fails(&line.replace("tasks.yaml", "wrong.yaml").replace("out run", "out other"), 2);
    assert!(message.contains("training.tasks[1].targets is ..5: expected 2 as its end"), "{message}");
    stage.write("wrong.yaml", &tasks.replace("0.7", "0.8"));
    let [message, _] = stage.fails(&line.replace("tasks.yaml", "wrong.yaml").replace("out run", "out other"), 2);
    assert!(message.contains("training.tasks: the sum of all weights is 1.1"), "{message}");
    stage.write("wrong.yaml", &tasks.replace("huber_delta", "delta"));
    let [message, _] = stage.fails(&line.replace("tasks.yaml", "wrong.yaml").replace("out run", "out other"), 2);
    assert!(
        message.contains("wrong.yaml, line") && message.contains("training.tasks[0].delta to be a key"),
        "{message}"
    );
}

#[test]
fn what_names_no_class_is_refused() {
    let stage = with_targets(|i, _| (i % 4) as f32);
    let train = format!("train --data series.h5 --out run {SMALL} --set training.loss=cross_entropy");
    let [message, _] = stage.fails(&train, 2);
    assert!(message.contains("training.thresholds or training.classes beside it"), "{message}");
    let [message, _] = stage.fails(&format!("{train} --set training.classes=4 --set training.thresholds=1"), 2);
    assert!(message.contains("keep one"), "{message}");
    stage.succeeds(&format!("{train} --set training.classes=4 --set training.epochs=1"));
    let other = train.replace("--out run", "--out other");
    let assert = stage.run(&format!("{other} --set training.classes=3")).code(3);
    let message = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(message.contains("a target is 3: expected a whole number from 0 to 2"), "{message}");
}
