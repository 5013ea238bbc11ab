//! A cross-section of shares: does a graph of who moves with whom help to rank tomorrow's returns?

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::runner::{Runner, mean_and_deviation, number};
use crate::limits::succeed;

const ARCHIVE: &str = "stocks/pooksoft_sp500_daily_2016-2021.tar.gz";
/// Seeds of initial weights and of the order of days.
const SEEDS: u64 = 5;

/// Features that do not depend on the level of prices, which adjusted prices do not tell.
const FEATURES: &str =
    "log_return,body,range,upper_shadow,lower_shadow,volatility_20,rsi_14,macd_histogram,relative_volume";

/// Twenty days a sample, the next five to predict.
const INGEST: &[&str] = &[
    "--on-error",
    "skip",
    "--timeframes",
    "D1:20",
    "--target",
    "log_return",
    "--horizon",
    "5",
    "--features",
    FEATURES,
];

const GRAPHS: &[&str] = &["--kind", "correlation", "--lookback", "60", "--k", "10"];

/// A batch is eight days, each of which is ranked by itself.
const MODEL: &[&str] = &[
    "model.hidden=16",
    "model.graph_heads=4",
    "model.graph_hidden=8",
    "model.graph_dropout=0.1",
    "training.loss=rank_pairwise",
    "training.lr=0.001",
    "training.epochs=5",
    "gpu_optimization.batch_size=8",
];

/// Contenders: name, file of graphs, and number of layers that look at it.
const CONTENDERS: [(&str, &str, usize); 3] = [
    ("no graph", "correlation.mbg", 0),
    ("random graph", "random.mbg", 1),
    ("correlation graph", "correlation.mbg", 1),
];

/// Horizons that have a table, by their places: the next day, and the next five days.
const HORIZONS: [usize; 2] = [0, 4];

/// Coefficients of one contender on the test split, a value a seed.
#[derive(Default)]
struct Coefficients {
    ic: Vec<f64>,
    ic_t: Vec<f64>,
    rank_ic: Vec<f64>,
    rank_ic_t: Vec<f64>,
}

impl Coefficients {
    /// Adds those of the horizon in place `horizon`, of what an answer says at `place`.
    fn add(&mut self, answer: &Value, place: &str, horizon: usize) -> Result<()> {
        let columns = [
            ("ic", &mut self.ic),
            ("ic_t", &mut self.ic_t),
            ("rank_ic", &mut self.rank_ic),
            ("rank_ic_t", &mut self.rank_ic_t),
        ];
        for (name, values) in columns {
            values.push(number(answer, &format!("{place}/{name}/{horizon}"))?);
        }
        Ok(())
    }

    fn row(&self, name: &str) -> String {
        let [ic, rank_ic] = [&self.ic, &self.rank_ic].map(|values| mean_and_deviation(values, 100.0));
        let [ic_t, rank_ic_t] = [&self.ic_t, &self.rank_ic_t].map(|values| mean_and_deviation(values, 1.0));
        format!("| {name} | {ic} | {ic_t} | {rank_ic} | {rank_ic_t} |\n")
    }
}

/// IC and rank IC of the returns of the next day and of the next five, on the last days, over
/// seeds: without a graph, with a random one, and with
/// that of correlations.
pub(super) fn sp500(runner: &Runner) -> Result<String> {
    let shares = runner.file("shares");
    unpack(&runner.data(ARCHIVE), &shares)?;
    let series = runner.file("sp500.h5");
    let ingested = runner.ask(&[&["ingest", &shares, "--out", &series], INGEST].concat())?;
    for (file, more) in [("correlation.mbg", &[][..]), ("random.mbg", &["--rewire", "1"])] {
        let out = runner.file(file);
        runner.ask(&[&["graph", "build", &shares, "--out", &out], GRAPHS, more].concat())?;
    }
    let mut rows = HORIZONS.map(|_| String::new());
    let mut linear = HORIZONS.map(|_| Coefficients::default());
    let mut lags = HORIZONS.map(|_| 0.0);
    for (name, graphs, layers) in CONTENDERS {
        let mut coefficients = HORIZONS.map(|_| Coefficients::default());
        for seed in 0..SEEDS {
            let own = [
                format!("model.graph={}", runner.file(graphs)),
                format!("model.graph_layers={layers}"),
                format!("training.seed={seed}"),
            ];
            let settings = [MODEL, &own.each_ref().map(String::as_str)].concat();
            let run = format!("{}-{seed}", name.replace(' ', "-"));
            let answer = runner.train(&series, &run, &settings)?;
            for (k, horizon) in HORIZONS.into_iter().enumerate() {
                coefficients[k].add(&answer, "/evaluation", horizon)?;
                lags[k] = number(&answer, &format!("/evaluation/ic_lags/{horizon}"))?;
                if linear[k].ic.is_empty() {
                    linear[k].add(&answer, "/evaluation/baselines/linear", horizon)?;
                }
            }
        }
        rows.iter_mut().zip(&coefficients).for_each(|(rows, coefficients)| rows.push_str(&coefficients.row(name)));
    }
    let mut text = format!(
        "S&P 500: {} samples of {} shares on {} days; test split, mean ± deviation over {SEEDS} seeds, coefficients in hundredths\n",
        ingested["samples"], ingested["universe"]["instruments"], ingested["instants"]
    );
    for (k, horizon) in HORIZONS.into_iter().enumerate() {
        let baseline = linear[k].row("linear in the last day's features");
        text.push_str(&format!(
            "\nHorizon {}, t by Newey-West with lag {}\n\n| | IC | t | rank IC | t |\n| --- | --- | --- | --- | --- |\n{}{baseline}",
            horizon + 1,
            lags[k],
            rows[k]
        ));
    }
    Ok(text)
}

/// The files of an archive, in a new folder.
fn unpack(archive: &str, folder: &str) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {folder}"))?;
    anyhow::ensure!(Path::new(archive).is_file(), "{archive}: no such file");
    succeed(Command::new("tar").args(["-xzf", archive, "-C", folder]))
}
