//! Provenance of a series as JSON, in the answer of `ingest` and in the file's attribute `source`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use megabatch_bars::{Adjustments, ComparedFiles, Excluded, FileSummary, Gap, ReadSummary, RowCount, Segment};
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::Xxh3;

use crate::ingest::{Recipe, Recordings};
use crate::text::shown;

/// Facts of a series for its provenance.
#[derive(Clone, Copy)]
pub(crate) struct SeriesProvenance<'a> {
    pub(crate) segments: &'a [Segment],
    pub(crate) excluded: &'a [Segment],
    pub(crate) warnings: &'a [String],
    /// Span that kept scalers were fitted on.
    pub(crate) kept_scaler: Option<&'a KeptScaler>,
}

/// Span that the scalers of a series were fitted on, which are kept when bars are appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptScaler {
    pub(crate) fit_end_time: i64,
    /// Close of the last bar at that time, for each instrument whose bars ended before
    /// `fit_end_time`.
    pub(crate) fitted_until: BTreeMap<String, i64>,
}

impl KeptScaler {
    /// The span recorded in a series to which bars were appended.
    pub(crate) fn recorded(provenance: &Value) -> Option<Self> {
        let kept = &provenance["kept_scaler"];
        let ends = kept["fitted_until_ns"].as_object().into_iter().flatten();
        Some(KeptScaler {
            fit_end_time: kept["fit_end_time_ns"].as_i64()?,
            fitted_until: ends.filter_map(|(symbol, time)| Some((symbol.clone(), time.as_i64()?))).collect(),
        })
    }

    /// Span of a series to which bars are about to be appended, from its provenance. Its scalers
    /// were fitted up to `fit_end_time`.
    pub(crate) fn read(provenance: &Value, fit_end_time: i64) -> Self {
        let fit_end = |instrument: &Value| {
            let close_time = instrument["last_close_time_ns"].as_i64().filter(|&time| time < fit_end_time)?;
            Some((instrument["symbol"].as_str()?.to_owned(), close_time))
        };
        let first_append =
            || KeptScaler { fit_end_time, fitted_until: listed(provenance, LISTS[0]).filter_map(fit_end).collect() };
        KeptScaler::recorded(provenance).unwrap_or_else(first_append)
    }

    fn to_json(&self) -> Value {
        let mut kept = json!({ "fit_end_time_ns": self.fit_end_time });
        if !self.fitted_until.is_empty() {
            kept["fitted_until_ns"] = json!(self.fitted_until);
        }
        kept
    }
}

/// Lists of instruments in a provenance: those in the series, and those left out.
pub(crate) const LISTS: [&str; 2] = ["instruments", "left_out"];

/// The items of the list `name` in a provenance or a part of it; none without such a list.
pub(crate) fn listed<'a>(part: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    part[name].as_array().into_iter().flatten()
}

/// The files of a provenance, including those that were only compared with others.
pub(crate) fn recorded_files(provenance: &Value) -> impl Iterator<Item = &Value> {
    let instruments = LISTS.into_iter().flat_map(|list| listed(provenance, list));
    let owners = instruments.flat_map(|instrument| std::iter::once(instrument).chain(listed(instrument, "compared")));
    owners.flat_map(|owner| listed(owner, "files"))
}

/// The provenance of the instrument `symbol`.
pub(crate) fn instrument<'a>(provenance: &'a Value, symbol: &str) -> Option<&'a Value> {
    listed(provenance, LISTS[0]).find(|instrument| instrument["symbol"] == symbol)
}

/// Fingerprints of files, some of them known.
#[derive(Default)]
pub(crate) struct Fingerprints(BTreeMap<PathBuf, String>);

impl Fingerprints {
    pub(crate) fn known(known: BTreeMap<PathBuf, String>) -> Self {
        Fingerprints(known)
    }

    fn get(&self, path: &Path) -> io::Result<String> {
        self.0.get(path).map_or_else(|| fingerprint(path), |known| Ok(known.clone()))
    }
}

/// The account of a series file.
pub(crate) fn provenance_json(
    recipe: &Recipe,
    recordings: &Recordings,
    series: SeriesProvenance<'_>,
    fingerprints: &Fingerprints,
) -> io::Result<Value> {
    let all = &recordings.universe.recordings;
    let uses_pips = recipe.spec().uses_pips();
    let mut instruments = Vec::with_capacity(all.len());
    for (place, (recording, pip_size)) in all.iter().zip(&recordings.pip_sizes).enumerate() {
        let mut instrument = bars_json(&recording.summary, fingerprints)?;
        instrument["pip_size"] = json!(uses_pips.then_some(pip_size));
        instrument["segments"] = segments_json(place, series);
        instruments.push(instrument);
    }
    let mut provenance =
        json!({ "recipe": recipe.to_words(), "instruments": instruments, "warnings": series.warnings });
    if let Some(kept) = series.kept_scaler {
        provenance["kept_scaler"] = kept.to_json();
    }
    if !recordings.universe.excluded.is_empty() {
        let left_out = recordings.universe.excluded.iter().map(|left_out| left_out_json(recipe, left_out));
        provenance["left_out"] = left_out.collect::<io::Result<Value>>()?;
    }
    Ok(provenance)
}

fn left_out_json(recipe: &Recipe, Excluded { symbol, reason }: &Excluded) -> io::Result<Value> {
    let file = |path: &Path| Ok(json!({ "file": shown(path), "xxh3_128": fingerprint(path)? }));
    let files = recipe.files_of(symbol).map(file).collect::<io::Result<Value>>()?;
    Ok(json!({ "symbol": symbol, "reason": reason.to_string(), "files": files }))
}

/// The provenance of the bars of one instrument.
pub(crate) fn recording_json(summary: &ReadSummary) -> io::Result<Value> {
    bars_json(summary, &Fingerprints::default())
}

fn bars_json(summary: &ReadSummary, fingerprints: &Fingerprints) -> io::Result<Value> {
    let files = summary.files.iter().map(|file| file_json(file, fingerprints)).collect::<io::Result<Vec<Value>>>()?;
    let kinds: Map<String, Value> = summary
        .gaps
        .kinds
        .iter()
        .map(|gaps| (gaps.kind.to_string(), json!({ "count": gaps.count, "duration_ns": gaps.duration_ns })))
        .collect();
    let jumps = summary
        .jumps
        .iter()
        .map(|jump| json!({ "open_time_ns": jump.open_time, "from": jump.from, "to": jump.to, "split": jump.split }));
    let compared = summary
        .compared
        .iter()
        .map(|compared| compared_json(compared, fingerprints))
        .collect::<io::Result<Vec<Value>>>()?;
    let pair = summary.pair.map(|pair| {
        json!({ "bid_only": pair.bid_only.count, "ask_only": pair.ask_only.count, "crossed": pair.crossed.count })
    });
    Ok(json!({
        "symbol": summary.symbol,
        "base": summary.base.name(),
        "first_open_time_ns": summary.first_open_time,
        "last_close_time_ns": summary.last_close_time,
        "rows": summary.rows(),
        "kept": summary.kept(),
        "bars": {
            "all": summary.bars.all,
            "flat": summary.bars.flat,
            "without_volume": summary.bars.without_volume,
            "with_spread": summary.bars.with_spread,
        },
        "gaps": {
            "count": summary.gaps.count(),
            "weekends": summary.gaps.weekends(),
            "kinds": kinds,
            "longest": summary.gaps.longest.iter().map(gap_json).collect::<Vec<_>>(),
        },
        "jumps": jumps.collect::<Vec<_>>(),
        "pair": pair,
        "compared": compared,
        "files": files,
        "warnings": summary.warnings,
    }))
}

fn file_json(file: &FileSummary, fingerprints: &Fingerprints) -> io::Result<Value> {
    let mut json = json!({
        "file": shown(&file.path),
        "xxh3_128": fingerprints.get(&file.path)?,
        "format": file.format.name(),
        "zone": file.zone.as_ref().map(ToString::to_string),
        "zone_why": file.zone_why,
        "rows": file.rows,
        "kept": file.kept,
        "preamble": file.preamble,
        "dropped": tallies_json(&file.dropped),
        "repaired": tallies_json(&file.fixed),
    });
    if file.newest_first {
        json["newest_first"] = true.into();
    }
    if let Some(adjusted) = &file.adjusted {
        let Adjustments { first_factor, last_factor, splits, dividends, factor_changes, .. } = adjusted;
        let splits =
            splits.iter().map(|split| json!({ "open_time_ns": split.open_time, "coefficient": split.coefficient }));
        json["adjusted"] = json!({
            "first_factor": first_factor,
            "last_factor": last_factor,
            "splits": splits.collect::<Vec<_>>(),
            "dividends": dividends,
            "factor_changes": factor_changes,
        });
    }
    Ok(json)
}

/// Files of another timeframe, which are not in the series.
fn compared_json(compared: &ComparedFiles, fingerprints: &Fingerprints) -> io::Result<Value> {
    let file = |path: &PathBuf| Ok(json!({ "file": path, "xxh3_128": fingerprints.get(path)? }));
    Ok(json!({
        "timeframe": compared.timeframe.name(),
        "files": compared.paths.iter().map(file).collect::<io::Result<Value>>()?,
        "same": compared.same,
        "different": compared.different.count,
        "not_covered": compared.not_covered,
    }))
}

fn tallies_json<K: Display>(tallies: &[RowCount<K>]) -> Value {
    let entry =
        |tally: &RowCount<K>| (tally.kind.to_string(), json!({ "rows": tally.rows, "first_line": tally.first_line }));
    Value::Object(tallies.iter().map(entry).collect())
}

fn gap_json(gap: &Gap) -> Value {
    json!({ "from_ns": gap.from, "to_ns": gap.to })
}

fn segments_json(instrument: usize, series: SeriesProvenance<'_>) -> Value {
    let own = |segments: &[Segment]| -> Vec<Value> {
        let own = segments.iter().filter(|segment| segment.instrument as usize == instrument);
        own.map(|segment| {
            json!({
                "open_time_ns": segment.open_time,
                "close_time_ns": segment.close_time,
                "bars": segment.bars,
                "samples": segment.samples.len(),
            })
        })
        .collect()
    };
    json!({ "kept": own(series.segments), "left_out": own(series.excluded) })
}

/// A fingerprint of a file's bytes, 32 hexadecimal digits.
pub(crate) fn fingerprint(path: &Path) -> io::Result<String> {
    let mut hash = Xxh3::new();
    let mut file = std::fs::File::open(path)?;
    io::copy(&mut file, &mut Hashing(&mut hash))?;
    Ok(format!("{:032x}", hash.digest128()))
}

/// A hash as something to write to.
struct Hashing<'a>(&'a mut Xxh3);

impl io::Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
