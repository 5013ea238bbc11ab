//! Weights of samples: from a column of the bars to the loss of training.

use crate::stage::{SMALL, Stage, dataset};

const RECIPE: &str = "--timeframes M1:8,M5:4 --features body,range --target log_return --horizon 2 --stride 8";

/// Bars of which each third one has weight 0, and others weigh 1 or 3.
fn weighted() -> Stage {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 8 --seed 5");
    let weight = |row: usize| ["", "1", "3"][row / 5 % 3];
    let rows = stage.text("bars.csv");
    let mut lines = rows.lines();
    let mut text = format!("{},w\n", lines.next().unwrap());
    lines.enumerate().for_each(|(row, line)| text.push_str(&format!("{line},{}\n", weight(row))));
    stage.write("bars.csv", &text);
    stage.succeeds(&format!("ingest bars.csv --out series.h5 --weight column:w {RECIPE}"));
    stage
}

#[test]
fn a_column_of_the_bars_is_the_weight_of_samples_in_training() {
    let stage = weighted();
    let (shape, weights) = dataset::<f32>(&stage.path("series.h5"), "samples/weight");
    assert_eq!(shape, dataset::<i64>(&stage.path("series.h5"), "samples/time").0);
    assert!([0.0, 1.0, 3.0].iter().all(|weight| weights.contains(weight)), "{weights:?}");
    stage.succeeds("leak series.h5 --samples 2");
    let plan = stage.said("plan --data series.h5");
    assert!(plan.contains("Note: the loss of training weights samples by /samples/weight: their mean is 1."), "{plan}");

    let train = |run: &str, more: &str| {
        stage.succeeds(&format!("train --data series.h5 --out {run} {SMALL} --max-steps 8 {more}"));
        stage.read(&format!("{run}/checkpoints/step-00000008/model.safetensors"))
    };
    let resident = train("resident", "--set data.residency=resident");
    assert!(resident == train("streamed", "--set data.residency=streamed"), "another model of a streamed series");
    assert!(resident != train("plain", "--set training.sample_weights=none"), "weights without an effect");

    // A run goes on with its weights, and says where they no longer have a part.
    stage.succeeds(&format!("train --data series.h5 --out cut {SMALL} --max-steps 4"));
    stage.succeeds("train --out cut --resume --max-steps 8");
    assert!(resident == stage.read("cut/checkpoints/step-00000008/model.safetensors"));

    // Windows keep them.
    stage.succeeds("convert series.h5 windows.h5 --to windows");
    assert_eq!(dataset::<f32>(&stage.path("windows.h5"), "samples/weight").1, weights);
    let plan = stage.said("plan --data windows.h5");
    assert!(plan.contains("weights samples by /samples/weight"), "{plan}");
}

#[test]
fn weights_that_are_none_are_refused_by_name() {
    let stage = weighted();
    let text = stage.text("bars.csv").replace(",3\n", ",-3\n");
    stage.write("bars.csv", &text);
    let [_, error] = stage.fails(&format!("ingest bars.csv --out other.h5 --weight column:w {RECIPE}"), 3);
    assert!(error.contains("has the weight -3 in the column w; expected a number from 0 on"), "{error}");

    stage.with_hdf5("series.h5", |path| {
        let file = hdf5::File::open_rw(path).unwrap();
        let weights = file.dataset("samples/weight").unwrap();
        weights.write_raw(&vec![0.0_f32; weights.size()]).unwrap();
    });
    let [_, error] = stage.fails(&format!("train --data series.h5 --out run {SMALL}"), 3);
    let advice = "training samples are 0; correct them, or training.sample_weights=none";
    assert!(error.contains("the weights of all") && error.contains(advice), "{error}");
}
