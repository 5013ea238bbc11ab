//! The section on data: files, defects and gaps.

use std::ops::Range;

use megabatch_chunk_io::{AttributeValue, SeriesColumn, SeriesSource, Source};
use serde_json::Value;

use super::chart::{Axis, Row, Span, Timeline, Words};
use super::html::{Section, Table, paragraph};
use super::json;
use crate::adapters::data::Data;
use crate::error::{Error, Result};
use crate::text::number::{grouped, plural, seconds};
use crate::text::utc;
use crate::unit_names::UnitNames;

/// Facts about a data file.
#[derive(Debug, Default)]
pub(crate) struct DataFacts {
    /// JSON that `ingest` wrote; null where the file has none.
    pub(crate) source: Value,
    /// Other attributes, as text.
    pub(crate) attributes: Vec<(&'static str, String)>,
    /// Name, bars, window and features of each timeframe.
    pub(crate) timeframes: Vec<[String; 4]>,
    /// Each instrument's stretches of bars without a long gap: first and last close, ns.
    pub(crate) stretches: Vec<(String, Vec<(i64, i64)>)>,
    /// Unit of the targets.
    pub(crate) unit: &'static str,
    /// Unit of horizons.
    pub(crate) bar: String,
    /// The noun of a file of windows or of graphs; empty for bars.
    pub(crate) holds: &'static str,
    /// Names of the classes of graphs, or of their nodes, in a file that labels them.
    pub(crate) classes: Vec<String>,
}

/// A gap longer than this ends a stretch; weekends and holidays at their ends are shorter.
const LONG_GAP_NS: i64 = 80 * 3_600 * 1_000_000_000;
const ATTRIBUTES: [&str; 7] = ["symbol", "base", "target_kind", "horizon_bars", "pip_size", "builder", "layout"];
/// Rows of the timeline.
const INSTRUMENTS_MAX: usize = 24;
/// Rows of the table of gaps.
const GAPS_MAX: usize = 12;

impl DataFacts {
    /// The facts of `data`; empty for files of windows and of graphs.
    pub(crate) fn new(data: &Data) -> Result<Self> {
        let Some(series) = data.source().and_then(Source::series) else {
            let holds = UnitNames::for_data(data).unit;
            return Ok(DataFacts {
                unit: "units of the targets",
                bar: "steps".to_owned(),
                holds,
                classes: match data {
                    Data::Graphs(graphs) if graphs.targets_are_labels() => graphs.target_names().to_vec(),
                    _ => Vec::new(),
                },
                ..DataFacts::default()
            });
        };
        let file = series.file();
        let mut attributes = Vec::new();
        for name in ATTRIBUTES {
            attributes.extend(file.attribute(name)?.map(|value| (name, value.to_string())));
        }
        let json = match file.attribute("source")? {
            Some(AttributeValue::Text(text)) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            _ => Value::Null,
        };
        let has = |name: &str| attributes.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_str());
        let timeframes = file.timeframes();
        let base = has("base").map_or_else(|| timeframes[0].name().to_owned(), str::to_owned);
        Ok(DataFacts {
            unit: match has("target_kind") {
                Some("log_return") => "log return",
                Some("cumulative" | "increment") => "pips",
                _ => "units of the targets",
            },
            bar: format!("bars of {base}"),
            holds: "",
            classes: Vec::new(),
            timeframes: timeframes
                .iter()
                .enumerate()
                .map(|(k, timeframe)| {
                    let counts = [file.bars(k), timeframe.steps(), timeframe.feature_names().len()];
                    let [bars, steps, features] = counts.map(|count| grouped(count as u64));
                    [timeframe.name().to_owned(), bars, steps, features]
                })
                .collect(),
            stretches: stretches(series)?,
            source: json,
            attributes,
        })
    }
}

/// First and last close time of each stretch without a gap, by instrument.
type Stretches = Vec<(String, Vec<(i64, i64)>)>;

/// Each instrument's stretches, by the bars of the shortest timeframe.
fn stretches(series: &SeriesSource) -> Result<Stretches> {
    let file = series.file();
    let shortest = &file.timeframes()[0];
    let starts: Vec<usize> =
        shortest.instrument_starts().iter().filter_map(|&start| usize::try_from(start).ok()).collect();
    if file.instruments().is_empty() || starts.len() != file.instruments().len() + 1 {
        return Ok(vec![("bars".to_owned(), without_gaps(series, 0..file.bars(0))?)]);
    }
    let spans = file.instruments().iter().cloned().zip(starts.windows(2));
    spans.map(|(name, pair)| Ok((name, without_gaps(series, pair[0]..pair[1])?))).collect()
}

fn without_gaps(series: &SeriesSource, bars: Range<usize>) -> Result<Vec<(i64, i64)>> {
    let mut spans = Vec::new();
    series.file().scan_column(SeriesColumn::CloseTime(0), bars, |_, times| {
        add_without_gaps(&mut spans, times);
        Ok::<(), Error>(())
    })?;
    Ok(spans)
}

fn add_without_gaps(spans: &mut Vec<(i64, i64)>, times: &[i64]) {
    for &time in times {
        match spans.last_mut().filter(|(_, last)| time - *last <= LONG_GAP_NS) {
            Some((_, last)) => *last = time,
            None => spans.push((time, time)),
        }
    }
}

pub(crate) fn section(facts: &DataFacts) -> Section {
    let mut body = String::new();
    if facts.timeframes.is_empty() {
        body.push_str(&paragraph(match facts.holds {
            "graph" => "The file holds graphs; `megabatch graph inspect` says what they were built from.",
            _ => "The file holds samples and not bars; it does not tell where they come from.",
        }));
    } else {
        body.push_str(&series_table(facts));
        body.push_str(&timeline(facts));
        body.push_str(&gaps_table(facts));
    }
    body.push_str(&match &facts.source {
        Value::Null if !facts.timeframes.is_empty() => {
            paragraph("The file does not say which bars it was made from, nor what was wrong with them.")
        }
        source => json::to_html("made from", source),
    });
    Section { id: "data", title: "Data, gaps and repairs", body }
}

fn series_table(facts: &DataFacts) -> String {
    let facts_rows =
        facts.attributes.iter().map(|(name, value)| vec![name.replace('_', " "), value.clone()]).collect::<Vec<_>>();
    let head = ["timeframe", "bars", "bars in a window", "features of a bar"];
    let series = Table::new("Series", head, facts.timeframes.iter().map(|row| row.to_vec())).to_html();
    if facts_rows.is_empty() {
        return series;
    }
    super::html::side_by_side(&[series, Table::new("The file", ["", ""], facts_rows).to_html()])
}

fn timeline(facts: &DataFacts) -> String {
    let span = |&(from, to): &(i64, i64)| Span {
        from: from as f64,
        to: to as f64,
        color: 0,
        text: format!("bars from {} to {}", utc(from), utc(to)),
    };
    let row =
        |(name, spans): &(String, Vec<(i64, i64)>)| Row { name: name.clone(), spans: spans.iter().map(span).collect() };
    let title = format!("Bars over time, with gaps longer than {} h left blank", LONG_GAP_NS / 3_600_000_000_000);
    let mut html = Timeline {
        words: Words { title, description: "One row an instrument.".to_owned() },
        x: Axis::time(""),
        rows: facts.stretches.iter().take(INSTRUMENTS_MAX).map(row).collect(),
        legend: Vec::new(),
    }
    .to_html();
    if facts.stretches.len() > INSTRUMENTS_MAX {
        html.push_str(&paragraph(&format!("The first {INSTRUMENTS_MAX} of {} instruments.", facts.stretches.len())));
    }
    html
}

fn gaps_table(facts: &DataFacts) -> String {
    let mut gaps: Vec<(i64, i64, &str)> = Vec::new();
    for (name, spans) in &facts.stretches {
        gaps.extend(spans.windows(2).map(|pair| (pair[0].1, pair[1].0, name.as_str())));
    }
    if gaps.is_empty() {
        return paragraph(&format!("No gap is longer than {}.", seconds(LONG_GAP_NS as f64 / 1e9)));
    }
    let count = gaps.len();
    gaps.sort_by_key(|&(from, to, _)| std::cmp::Reverse(to - from));
    gaps.truncate(GAPS_MAX);
    let row = |&(from, to, name): &(i64, i64, &str)| {
        vec![name.to_owned(), utc(from), utc(to), seconds((to - from) as f64 / 1e9)]
    };
    let shown = if count > GAPS_MAX { format!("; the longest {GAPS_MAX}") } else { String::new() };
    let caption = format!("{} longer than {} h{shown}", plural(count, "gap"), LONG_GAP_NS / 3_600_000_000_000);
    Table::new(caption, ["", "last close before", "first close after", "length"], gaps.iter().map(row)).to_html()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    #[test]
    fn stretches_end_at_long_gaps_only() {
        let times = [0, HOUR, 60 * HOUR, 61 * HOUR, 200 * HOUR];
        let mut spans = Vec::new();
        times.chunks(2).for_each(|piece| add_without_gaps(&mut spans, piece));
        assert_eq!(spans, [(0, 61 * HOUR), (200 * HOUR, 200 * HOUR)]);
    }

    #[test]
    fn gaps_and_what_was_read_are_told() {
        let facts = DataFacts {
            source: json!({ "gaps": { "count": 7, "weekends": 5 } }),
            attributes: vec![("symbol", "EURUSD".to_owned())],
            timeframes: vec![["M1", "1,000", "60", "8"].map(str::to_owned)],
            stretches: vec![("bars".to_owned(), vec![(0, HOUR), (200 * HOUR, 300 * HOUR)])],
            unit: "pips",
            holds: "",
            classes: Vec::new(),
            bar: "bars of M1".to_owned(),
        };
        let body = section(&facts).body;
        for part in ["EURUSD", "Bars over time", "1 gap longer than 80 h", "8 d 7 h", "weekends", "1,000"] {
            assert!(body.contains(part), "{part}: {body}");
        }
        assert!(section(&DataFacts::default()).body.contains("holds samples"));
    }
}
