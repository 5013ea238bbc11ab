//! The samples that the model was trained, validated and tested on, and those excluded between
//! them.

use megabatch_trainer::{SampleRanges, Split};

use super::chart::{Axis, Row, Span, Timeline, Words};
use super::html::{Section, Table, paragraph};
use crate::adapters::data::Data;
use crate::config::{Config, data};
use crate::error::Result;
use crate::plan::Plan;
use crate::text::number::{fixed, grouped, percent, plural};
use crate::text::utc;

/// The instants of each part of the split.
#[derive(Clone, Debug)]
pub(crate) struct PartSpan {
    pub(crate) name: &'static str,
    pub(crate) samples: usize,
    /// First and last sample, ns since 1970 UTC, or their places where the data have no times.
    pub(crate) ends: Option<(i64, i64)>,
}

/// The spans of training, validation and test.
#[derive(Clone, Debug)]
pub(crate) struct SplitFacts {
    pub(crate) parts: Vec<PartSpan>,
    pub(crate) has_times: bool,
}

impl SplitFacts {
    /// The spans of `split`, which is one of `data`.
    ///
    /// # Errors
    /// Times that cannot be read.
    pub(crate) fn new(split: &Split, data: &Data) -> Result<Self> {
        let has_times = data.has_times();
        let span = |samples: &SampleRanges| if has_times { data.time_span(samples) } else { Ok(places(samples)) };
        Ok(SplitFacts { parts: parts(split, span)?, has_times })
    }

    /// The places of the samples of `split`.
    #[cfg(test)]
    pub(crate) fn without_times(split: &Split) -> Self {
        let parts = parts(split, |samples| Ok(places(samples))).expect("places are not read");
        SplitFacts { parts, has_times: false }
    }

    fn end(&self, at: i64) -> String {
        if self.has_times { utc(at) } else { fixed(at as f64, 0) }
    }
}

/// The parts of `split`, each with its `span`.
fn parts(split: &Split, span: impl Fn(&SampleRanges) -> Result<Option<(i64, i64)>>) -> Result<Vec<PartSpan>> {
    let parts = [("train", &split.train), ("validation", &split.validation), ("test", &split.test)];
    let part = |(name, samples): (&'static str, &SampleRanges)| {
        Ok(PartSpan { name, samples: samples.len(), ends: span(samples)? })
    };
    parts.into_iter().map(part).collect()
}

/// First and last place of samples without times.
fn places(samples: &SampleRanges) -> Option<(i64, i64)> {
    let ends = samples.iter().min().zip(samples.iter().max());
    ends.map(|(first, last)| (first as i64, last as i64))
}

pub(crate) fn section(facts: &SplitFacts, plan: &Plan, config: &Config) -> Section {
    let mut body = paragraph(&rule(plan, config));
    if !plan.data.is_of_graphs() {
        body.push_str(&timeline(facts));
    }
    body.push_str(&table(facts, plan).to_html());
    Section { id: "split", title: "Split and purge", body }
}

/// The rule of the split, and of the purge where there is one.
fn rule(plan: &Plan, config: &Config) -> String {
    if plan.data.is_of_graphs() {
        return plan.split_rule.clone();
    }
    let purge = config.text(&data::PURGE.key);
    let is_fold = config.get(&data::WALK_FORWARD).is_some();
    let how = match (purge, is_fold) {
        ("auto", false) => {
            "the first of validation and of test: all that look back to before the last label of an earlier part ends"
                .to_owned()
        }
        ("auto", true) => {
            "the last of training and of validation: all whose labels end after a later part begins to look back"
                .to_owned()
        }
        (duration, false) => format!("what is less than {duration} later than an earlier part"),
        (duration, true) => format!("what is less than {duration} earlier than a later part"),
    };
    format!(
        "Split by time, at the same instants for everything in the file. The purge excludes {how}: {}, {} of all.",
        plural(plan.split.purged, plan.data.unit),
        percent(plan.split.purged as f64 / plan.data.units.max(1) as f64),
    )
}

fn table(facts: &SplitFacts, plan: &Plan) -> Table {
    let row = |part: &PartSpan| {
        let (from, to) =
            part.ends.map_or(("-".to_owned(), "-".to_owned()), |(from, to)| (facts.end(from), facts.end(to)));
        let share = percent(part.samples as f64 / plan.data.units.max(1) as f64);
        vec![part.name.to_owned(), grouped(part.samples as u64), share, from, to]
    };
    let purged = vec![
        "left out".to_owned(),
        grouped(plan.split.purged as u64),
        percent(plan.split.purged as f64 / plan.data.units.max(1) as f64),
        "-".to_owned(),
        "-".to_owned(),
    ];
    // Graphs have neither an order nor neighbours to be purged.
    let columns = if plan.data.is_of_graphs() { 3 } else { 5 };
    let purged = (!plan.data.is_of_graphs()).then_some(purged);
    let cut = |row: Vec<String>| row.into_iter().take(columns).collect::<Vec<_>>();
    let caption = format!("Parts of {}", plural(plan.data.units, plan.data.unit));
    let head = ["part", "size", "share", "first", "last"].into_iter().take(columns);
    Table::new(caption, head, facts.parts.iter().map(row).chain(purged).map(cut))
}

fn timeline(facts: &SplitFacts) -> String {
    let row = |(color, part): (usize, &PartSpan)| {
        let span = part.ends.map(|(from, to)| Span {
            from: from as f64,
            to: to as f64,
            color,
            text: format!("{} from {} to {}", part.name, facts.end(from), facts.end(to)),
        });
        Row { name: part.name.to_owned(), spans: span.into_iter().collect() }
    };
    Timeline {
        words: Words::new("Parts over time", "One row a part of the split."),
        x: if facts.has_times { Axis::time("") } else { Axis::count("") },
        rows: facts.parts.iter().enumerate().map(row).collect(),
        legend: Vec::new(),
    }
    .to_html()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_times_of_their_samples() {
        let split =
            Split { train: [0, 1, 4].into_iter().collect(), test: SampleRanges::from(2..3), ..Split::default() };
        let ends = |parts: Vec<PartSpan>| parts.into_iter().map(|part| part.ends).collect::<Vec<_>>();
        assert_eq!(ends(SplitFacts::without_times(&split).parts), [Some((0, 4)), None, Some((2, 2))]);
        let times = [5, 90, 30, 40, 10];
        let span = |samples: &SampleRanges| Ok(places(&samples.iter().map(|n| times[n]).collect()));
        assert_eq!(ends(super::parts(&split, span).unwrap()), [Some((5, 90)), None, Some((30, 30))]);
    }
}
