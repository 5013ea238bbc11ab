//! `report.html`: the results of a run on a single page.

mod attention;
pub(crate) mod chart;
mod classes;
mod data;
mod day;
mod folds;
mod forecasts;
mod gpu;
mod horizons;
pub(crate) mod html;
mod information;
mod json;
pub(crate) mod learning;
mod machine;
mod memory;
mod settings;
mod split;
pub(crate) mod time;

use megabatch_nn::model::Timeframe;
use serde_json::Value;

use crate::config::{self, Config};
use crate::evaluate::attention::Attention;
use crate::evaluate::forecasts::Forecasts;
use crate::evaluate::{Evaluation, mean};
use crate::gpu::GpuRow;
use crate::plan::Plan;
use crate::setup::settings::loss;
use crate::text::number::{fixed, grouped, percent, plural, significant};

pub(crate) use data::DataFacts;
pub(crate) use day::DayGraph;
pub(crate) use folds::folds_page;
use html::{Section, escape, page};
pub(crate) use machine::Machine;
pub(crate) use memory::{MemoryFacts, Peaks, map_file};
pub(crate) use split::SplitFacts;

/// Inputs of the page.
pub(crate) struct Report<'a> {
    pub(crate) run_name: &'a str,
    pub(crate) plan: &'a Plan,
    /// The lines of metrics.jsonl.
    pub(crate) metrics: &'a [Value],
    /// Name of the loss of training and validation.
    pub(crate) loss_name: &'a str,
    /// Absent, like the forecasts, for a run that was stopped.
    pub(crate) evaluation: Option<&'a Evaluation>,
    pub(crate) forecasts: Option<&'a Forecasts>,
    /// Absent also for a model without attention pooling.
    pub(crate) attention: Option<&'a Attention>,
    /// The graph of the last day that was predicted, for a model over graphs between instruments.
    pub(crate) day: Option<&'a DayGraph>,
    pub(crate) data: &'a DataFacts,
    pub(crate) split: &'a SplitFacts,
    pub(crate) memory: &'a MemoryFacts,
    /// Samples of the GPU; empty on the CPU.
    pub(crate) gpu: &'a [GpuRow],
    pub(crate) machine: &'a Machine,
    pub(crate) config: &'a Config,
}

impl Report<'_> {
    /// The page as HTML.
    pub(crate) fn to_html(&self) -> String {
        let (bar, unit) = (self.data.bar.as_str(), self.data.unit);
        let names = self.evaluation.map(|evaluation| evaluation.target_names.as_slice()).unwrap_or_default();
        let learning = learning::section(self.metrics, self.loss_name, self.config.get(&config::training::CLIP_NORM));
        let sections = [
            Some(learning),
            // Outputs of a model of ranks have no unit, and rows with one class have no targets.
            self.evaluation
                .filter(|it| !it.ranks && it.model.accuracy.is_none())
                .map(|evaluation| horizons::section(evaluation, bar, unit)),
            self.classes(),
            self.evaluation.and_then(information::section),
            self.forecasts.map(|forecasts| forecasts::section(forecasts, bar, unit, names)),
            self.attention.map(attention::section),
            self.day.map(day::section),
            Some(data::section(self.data)),
            Some(split::section(self.split, self.plan, self.config)),
            Some(time::section(self.metrics)),
            gpu::section(self.gpu),
            Some(memory::section(&self.plan.memory, self.memory, self.metrics)),
            Some(self.machine.section()),
            Some(settings::section(self.config, &self.plan.notes)),
        ];
        let sections: Vec<_> = sections.into_iter().flatten().collect();
        page(&format!("megabatch: {}", self.run_name), &self.head(), &sections)
    }

    /// The section on classes, where some are predicted.
    fn classes(&self) -> Option<Section> {
        let loss = loss(self.config, self.plan.shape.outputs).ok()?;
        classes::section(self.evaluation?, loss, self.data.unit, &self.data.classes)
    }

    /// Summary for a reader in a hurry.
    fn head(&self) -> String {
        let mut head = format!("<p class=\"over\">Training run</p>\n<h1>{}</h1>\n", escape(self.run_name));
        let verdict = match self.evaluation {
            Some(evaluation) => format!("On the {} split: {}", evaluation.split.name(), evaluation.verdict()),
            None => format!("Stopped after {} of {} steps; --resume goes on.", self.last_step(), self.plan.steps),
        };
        head.push_str(&format!("<p class=\"verdict\">{}</p>\n", escape(&verdict)));
        head.extend(self.plan.warnings.iter().map(|warning| html::paragraph(&format!("Warning: {warning}."))));
        head.push_str(&html::paragraph(&self.subject()));
        let cards = self.facts().into_iter().map(|(name, value, note)| {
            format!("<div><dt>{name}</dt><dd>{}<small>{}</small></dd></div>", escape(&value), escape(&note))
        });
        head.push_str(&format!("<dl class=\"facts\">{}</dl>\n", cards.collect::<String>()));
        head
    }

    /// The data and the shape of a sample, in a sentence.
    fn subject(&self) -> String {
        let timeframe = |timeframe: &Timeframe| {
            let name = if timeframe.name.is_empty() { "windows" } else { &timeframe.name };
            format!("{name} {} × {}", timeframe.steps, timeframe.features)
        };
        if self.plan.data.is_of_graphs() {
            let (graphs, nodes) = (plural(self.plan.data.units, "graph"), plural(self.plan.data.samples, "node"));
            let path = self.plan.data.path.display();
            return format!("{graphs} of {path}, {nodes} in all. {}.", self.plan.sample());
        }
        let windows: Vec<String> = self.plan.shape.timeframes.iter().map(timeframe).collect();
        format!(
            "{} of {}. A sample is bars × features of {}, and {} to predict.",
            plural(self.plan.data.samples, "sample"),
            self.plan.data.path.display(),
            windows.join(", "),
            plural(self.plan.shape.outputs, "value")
        )
    }

    fn last_step(&self) -> u64 {
        self.metrics.iter().rev().find_map(|metric| metric["step"].as_u64()).unwrap_or(0)
    }

    /// Name, value and note of the numbers at the top.
    fn facts(&self) -> Vec<(&'static str, String, String)> {
        let mut facts = Vec::new();
        let validations = learning::points(self.metrics, "validation", "loss");
        if let Some(best) = validations.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)) {
            facts.push(("Best validation loss", significant(best.1, 4), format!("at step {}", grouped(best.0 as u64))));
        }
        if let Some(evaluation) = self.evaluation.filter(|evaluation| evaluation.tasks.is_empty()) {
            let horizons = plural(evaluation.model.rmse.len(), evaluation.unit_names.target);
            facts.extend(match &evaluation.model.classes {
                Some(classes) => {
                    let note =
                        format!("{}mean of {horizons}", estimate(evaluation, &evaluation.accuracy_error(), " %"));
                    Some(("Accuracy", percent(mean(&classes.accuracy)), note))
                }
                None if evaluation.ranks => rank_fact(evaluation),
                None if evaluation.model.accuracy.is_some() => evaluation.model.accuracy.map(accuracy_fact(evaluation)),
                None => {
                    let rmse = significant(mean(&evaluation.model.rmse), 4);
                    let note = estimate(evaluation, &evaluation.rmse_error(), "");
                    Some(("RMSE", rmse, format!("{note}{}, mean of {horizons}", self.data.unit)))
                }
            });
            let shares: Vec<f64> = evaluation.model.direction_accuracy.iter().flatten().copied().collect();
            if !shares.is_empty() && !evaluation.ranks {
                facts.push(("Signs predicted", percent(mean(&shares)), "mean of the horizons".to_owned()));
            }
        }
        let epochs = self.last_step().div_ceil(self.plan.steps_per_epoch.max(1));
        facts.push(("Steps", grouped(self.last_step()), format!("in {}", plural(epochs as usize, "epoch"))));
        facts.push((
            "To train on",
            plural(self.plan.split.train, self.plan.data.unit),
            format!("of {}", grouped(self.plan.data.units as u64)),
        ));
        facts.push(("Weights", grouped(self.plan.parameters as u64), String::new()));
        facts
    }
}

/// The beginning of a note on a number that is an estimate, with its standard error; empty for one
/// that is not.
fn estimate(evaluation: &Evaluation, error: &str, unit: &str) -> String {
    let with_error = if error.is_empty() { String::new() } else { format!("{error}{unit}") };
    evaluation.draw().map_or(String::new(), |draw| format!("estimate from {draw}{with_error}; "))
}

/// The accuracy of a model that predicts one class a row, beside that of the most frequent one.
fn accuracy_fact(evaluation: &Evaluation) -> impl Fn(f64) -> (&'static str, String, String) + '_ {
    let beside = evaluation.baselines.get("most_frequent").and_then(|metrics| metrics.accuracy);
    move |accuracy| {
        let note = beside.map_or(String::new(), |share| format!("{} by the most frequent class", percent(share)));
        ("Accuracy", percent(accuracy), estimate(evaluation, &evaluation.accuracy_error(), " %") + &note)
    }
}

/// The rank IC at the first horizon.
fn rank_fact(evaluation: &Evaluation) -> Option<(&'static str, String, String)> {
    let information = evaluation.model.information.as_ref()?;
    let first = |values: &[Option<f64>]| values.first().copied().flatten();
    let t = first(&information.rank_ic_t).map_or(String::new(), |t| format!(", t = {t:.2}"));
    Some(("Rank IC", fixed(first(&information.rank_ic)?, 4), format!("first horizon{t}")))
}

#[cfg(test)]
mod tests {
    use megabatch_chunk_io::{ChunkPlan, Layout};
    use megabatch_nn::model::{ModelConfig, SampleShape, Timeframe};
    use megabatch_trainer as trainer;
    use megabatch_trainer::{Footprint, SampleRanges, Split};
    use serde_json::json;

    use super::*;
    use crate::evaluate::Part;
    use crate::evaluate::forecasts::Pairs;
    use crate::plan::{DataPlan, LossPlan, MemoryPlan, SplitPlan};

    fn plan() -> Plan {
        let timeframe = Timeframe { name: "M1".into(), steps: 4, features: 3 };
        let shape = SampleShape { timeframes: vec![timeframe], outputs: 1 };
        let settings =
            trainer::Config { model: ModelConfig { hidden: 4, ..ModelConfig::default() }, ..Default::default() };
        let training = Footprint::new(&settings, &shape, 5).unwrap();
        Plan {
            format_version: 1,
            data: DataPlan {
                path: "<b>.h5".into(),
                fingerprint: String::new(),
                files: Vec::new(),
                meaning: Default::default(),
                layout: Layout::Series.to_string(),
                unit: "cross-section",
                units: 100,
                samples: 700,
                windows_bytes: 1,
                resident_bytes: 1,
                chunks: ChunkPlan::resident(
                    &megabatch_chunk_io::Shape { samples: 100, timeframes: Vec::new(), horizons: 1 },
                    1,
                ),
                batches_per_chunk: 2,
                reads: Vec::new(),
                streamed: None,
            },
            split: SplitPlan {
                train: 70,
                validation: 10,
                test: 10,
                purged: 10,
                validation_start_ns: None,
                test_start_ns: None,
            },
            split_rule: "Split by time.".to_owned(),
            purge_basis: Some("Purge by /samples/label_end_time and /samples/reach_time.".to_owned()),
            loss: LossPlan { name: "mse", needs: vec!["a number".to_owned()] },
            model: settings.model,
            parameters: 1234,
            shape,
            batch_size: 64,
            accumulation_steps: 1,
            run_length: 1,
            run_length_reason: None,
            seed: 0,
            init: None,
            steps_per_epoch: 2,
            steps: 4,
            validation_samples: 20,
            test_samples: 20,
            warnings: vec![],
            notes: vec!["x has no effect".to_owned()],
            uses: Vec::new(),
            memory: MemoryPlan {
                data_bytes: 10,
                training,
                total_bytes: 10 + training.total_bytes(),
                reserved_bytes: 2 << 20,
                available_bytes: 1_000_000,
                phases: Vec::new(),
                step_phases: Vec::new(),
                tensors: Vec::new(),
            },
            gpu: None,
            distributed: None,
        }
    }

    fn report(evaluation: Option<&Evaluation>, forecasts: Option<&Forecasts>) -> String {
        let config = Config::load(None, &[], &["data.path=<b>.h5".to_owned()]).unwrap();
        let metrics = [
            json!({ "event": "step", "step": 1, "epoch": 0, "samples": 3, "loss": 2.0, "lr": 0.1, "grad_norm": 1.0, "forward_s": 0.5 }),
            json!({ "event": "step", "step": 2, "epoch": 0, "samples": 3, "loss": 1.0, "lr": 0.1, "grad_norm": 1.0, "forward_s": 0.5 }),
            json!({ "event": "validation", "step": 2, "epoch": 0, "loss": 1.5, "validation_s": 2.0 }),
        ];
        let split = Split { train: SampleRanges::from(0..70), ..Split::default() };
        Report {
            run_name: "a&b",
            plan: &plan(),
            metrics: &metrics,
            loss_name: "loss",
            evaluation,
            forecasts,
            attention: None,
            day: None,
            data: &DataFacts { unit: "pips", bar: "bars of M1".into(), ..DataFacts::default() },
            split: &SplitFacts::without_times(&split),
            memory: &MemoryFacts::default(),
            gpu: &[],
            machine: &Machine::describe(&megabatch_gpu_core::Device::cpu(), &trainer::Config::default()),
            config: &config,
        }
        .to_html()
    }

    #[test]
    fn a_page_holds_every_section_and_nothing_from_elsewhere() {
        let evaluation = Evaluation::with_one_horizon([("model", 1.0), ("no_change", 2.0)]);
        let pairs = Pairs { horizon: 1, predicted: vec![1.0, 2.0, 3.0], actual: vec![1.0, 2.0, 4.0] };
        let forecasts = Forecasts {
            part: Part::Test,
            indices: SampleRanges::from(1..4),
            times: None,
            instruments: None,
            pairs: vec![pairs],
        };
        let html = report(Some(&evaluation), Some(&forecasts));
        for part in [
            "megabatch: a&amp;b",
            "Loss by step",
            "Loss by epoch",
            "Error by horizon",
            "50.0 %",
            "correlation 0.982",
            "3 samples in a row",
            "<dt>To train on</dt><dd>70 cross-sections<small>of 100</small></dd>",
            "Data, gaps and repairs",
            "Split and purge",
            "Time by phase",
            "Allocated by step",
            "instruction set",
            "&lt;b&gt;.h5",
            "Note: x has no effect.",
        ] {
            assert!(html.contains(part), "{part}");
        }
        for outside in ["http:", "https:", "<script", "src=", "url(", "@import", "NaN", "inf\""] {
            assert!(!html.contains(outside), "{outside}");
        }
        for link in html.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert!(html.contains(&format!("id=\"{link}\"")), "{link} leads nowhere");
        }
    }

    #[test]
    fn a_run_that_was_stopped_says_so() {
        let html = report(None, None);
        assert!(html.contains("Stopped after 2 of 4 steps; --resume goes on.") && !html.contains("Error by horizon"));
    }
}
