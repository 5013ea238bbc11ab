//! Bars as text become aligned multi-timeframe series in one HDF5 file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use megabatch_bars::{AlignedSeries, RowError, listed};
use megabatch_chunk_io::{Storage, WriteOptions, write_series};
use serde_json::{Value, json};

use super::provenance::account;
use super::{Recipe, Recordings, universe};
use crate::adapters::series::{Origin, series_file};
use crate::error::{Error, Result};
use crate::findings::Findings;
use crate::output;
use crate::text::{bytes, shown, utc};

/// Reads bars and writes aligned series to `out`: closed bars only, features, targets, scaled on
/// the training span.
///
/// # Errors
/// [`Kind::Usage`](crate::Kind::Usage) for a recipe that contradicts itself or an output that
/// cannot be written, [`Kind::Data`](crate::Kind::Data) for bars that cannot be used.
pub fn ingest(recipe: &Recipe, out: &Path) -> Result<Findings> {
    let start = Instant::now();
    output::require_ending(out, &["h5", "hdf5"])?;
    recipe.check()?;
    let recipe = recipe.clone().with_files_of_folders()?;
    output::check(out, &recipe.files())?;
    for file in recipe.files() {
        require_text(file, "the account of its bars that the series file keeps")?;
    }
    let mut recordings = recipe.read()?;
    let spec = recipe.spec();
    let aligned = recordings.align(&recipe)?;
    let source = account(&recipe, &recordings, &aligned)?;
    let mut findings = SeriesFindings::new(out, &recordings, &aligned);
    findings.json["source"] = source.clone();
    let series =
        series_file(aligned, Origin { spec: &spec, pip_sizes: &recordings.pip_sizes, source: source.to_string() });
    // Bars are small and read whole: without compression they are read at the speed of the disk.
    write_series(out, &series, &WriteOptions { storage: Storage::Contiguous })?;
    findings.finish(start, std::fs::metadata(out)?.len());
    Ok(Findings::new(findings.text, &findings.json))
}

struct SeriesFindings {
    text: String,
    json: Value,
}

impl SeriesFindings {
    fn new(out: &Path, recordings: &Recordings, aligned: &AlignedSeries) -> Self {
        let (first, last) = (aligned.sample_time.iter().min(), aligned.sample_time.iter().max());
        let (first, last) = (first.copied().unwrap_or_default(), last.copied().unwrap_or_default());
        let universe = &recordings.universe;
        let mut text = universe::describe(universe);
        let of_files = universe.recordings.iter().flat_map(|recording| recording.summary.warnings.iter().cloned());
        let mut warnings: Vec<String> = of_files.collect();
        // The universe's text has the warnings of its files in it.
        let others: Vec<String> =
            few_kept(recordings).into_iter().chain(alone(aligned)).chain(aligned.warnings.iter().cloned()).collect();
        others.iter().for_each(|warning| text.push_str(&format!("warning: {warning}\n")));
        warnings.extend(others);
        for timeframe in &aligned.timeframes {
            text.push_str(&format!(
                "{:>4}: {} bars, windows of {}, {}\n",
                timeframe.timeframe.name(),
                timeframe.close_time.len(),
                timeframe.seq_len,
                counted(timeframe.features.len(), "feature")
            ));
        }
        text.push_str(&format!("{} from {} to {}", counted(aligned.len(), "sample"), utc(first), utc(last)));
        let instants = aligned.sample_time.iter().collect::<BTreeSet<_>>().len();
        match aligned.instruments.len() {
            1 => {}
            count if count > universe::ONE_BY_ONE_MAX => {
                text.push_str(&format!(" of {count} instruments at {instants} instants"));
            }
            _ => text.push_str(&format!(" of {}", aligned.instruments.join(", "))),
        }
        let mut json = json!({
            "out": shown(out),
            "symbols": aligned.instruments,
            "samples": aligned.len(),
            "instants": instants,
            "first_sample_time_ns": first,
            "last_sample_time_ns": last,
            "warnings": warnings,
        });
        json["universe"] = universe::facts(universe);
        SeriesFindings { text, json }
    }

    fn finish(&mut self, start: Instant, size: u64) {
        let seconds = start.elapsed().as_secs_f64();
        let out = self.json["out"].as_str().unwrap_or("-");
        self.text.push_str(&format!("\n{out}: {} in {seconds:.2} s", bytes(size as usize)));
        self.json["bytes"] = size.into();
        self.json["seconds"] = seconds.into();
    }
}

/// `path` as text, to be kept in `holder`, which another process takes it from.
///
/// # Errors
/// A usage failure where the path is not UTF-8.
fn require_text<'p>(path: &'p Path, holder: &str) -> Result<&'p str> {
    path.to_str().ok_or_else(|| {
        Error::usage(format!(
            "{}: this path is not UTF-8, and {holder} can hold text only; rename it, or give another path to it",
            path.display()
        ))
    })
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A warning where so many rows were dropped that the files are probably not what their reader
/// takes them for. Copies of rows are no sign of that.
fn few_kept(recordings: &Recordings) -> Vec<String> {
    let few = recordings.universe.recordings.iter().filter_map(|recording| {
        let summary = &recording.summary;
        let (rows, kept) = (summary.rows() - summary.dropped(RowError::Copy), summary.kept());
        (kept < rows - rows / 20).then(|| {
            format!(
                "{}: only {kept} of {rows} rows were kept; are these files of bars of one symbol?",
                recording.symbol
            )
        })
    });
    few.collect()
}

/// Instants of one instrument alone, as a share of all instants, that are worth a warning where
/// there are several instruments.
const ALONE_SHARE_MIN: f64 = 0.01;
/// Fewest instruments of which one alone is an exception.
const ALONE_OF_MIN: usize = 3;

/// A warning where instruments have samples at instants at which no other has one: a graph has a
/// single node there.
fn alone(aligned: &AlignedSeries) -> Option<String> {
    let mut of_instant: BTreeMap<i64, Vec<i32>> = BTreeMap::new();
    for (time, instrument) in aligned.sample_time.iter().zip(&aligned.sample_instrument) {
        of_instant.entry(*time).or_default().push(*instrument);
    }
    let mut instants = vec![0_usize; aligned.instruments.len()];
    of_instant.values().filter(|present| present.len() == 1).for_each(|present| instants[present[0] as usize] += 1);
    let all: usize = instants.iter().sum();
    if instants.len() < ALONE_OF_MIN || (all as f64) < ALONE_SHARE_MIN * of_instant.len() as f64 || all == 0 {
        return None;
    }
    let mut places: Vec<usize> = (0..instants.len()).filter(|&place| instants[place] > 0).collect();
    places.sort_by_key(|&place| std::cmp::Reverse(instants[place]));
    let named: Vec<String> =
        places.iter().map(|&place| format!("{} {}", aligned.instruments[place], instants[place])).collect();
    Some(format!(
        "{all} of {} instants have a sample of one instrument alone ({}): it trades at other times than the others, or its bars begin or end apart from theirs, and a model over graphs sees a single node there; keep the common times with `--calendar common`, or leave its file out",
        of_instant.len(),
        listed(&named)
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use megabatch_bars::Feature;

    #[test]
    fn the_page_of_features_lists_them_all_and_marks_the_defaults() {
        let page = include_str!("../../../../docs/reference/features.md");
        // Below the features stands a table of targets.
        let rows = page.lines().filter(|line| line.starts_with("| `") && !line.starts_with("| `--"));
        let (mut listed, mut default) = (BTreeSet::new(), BTreeSet::new());
        for row in rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            for name in cells[1].split(',').map(|name| name.trim().trim_matches('`')) {
                listed.insert(name);
                if cells[2] == "yes" {
                    default.insert(name);
                }
            }
        }
        assert_eq!(listed, Feature::ALL.map(Feature::name).into());
        assert_eq!(default, Feature::DEFAULT.map(Feature::name).into());
    }
}
