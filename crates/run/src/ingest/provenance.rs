//! Provenance of a series as JSON, in the answer of `ingest` and in the file's attribute `source`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use megabatch_bars::{Adjustments, Bar, ComparedFiles, FileSummary, OwnBars, ReadSummary, RowCount};
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::Xxh3;

use crate::text::shown;

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

    pub(super) fn to_json(&self) -> Value {
        let mut kept = json!({ "fit_end_time_ns": self.fit_end_time });
        if !self.fitted_until.is_empty() {
            kept["fitted_until_ns"] = json!(self.fitted_until);
        }
        kept
    }
}

/// Lists of instruments in a provenance: those in the series, and those left out.
pub(crate) const LISTS: [&str; 2] = ["instruments", "left_out"];

/// Lists of an instrument's files of longer timeframes: those that were only compared with its
/// bars, and those whose bars are used.
pub(crate) const LONGER_LISTS: [&str; 2] = ["compared", "own"];

/// List of the files of other instruments in a provenance, whose features stand beside those of the
/// series. Files of earlier versions have none.
pub(crate) const CONTEXT_LIST: &str = "context";

/// Name of an instrument's last bar in a provenance. Files of earlier versions have none.
pub(crate) const LAST_BAR: &str = "last_bar";

/// Name of the time at which the last own bar of a timeframe opens, in a provenance. Files of
/// earlier versions have none.
pub(crate) const LAST_OPEN_TIME: &str = "last_open_time_ns";

pub(super) fn last_bar_json(bar: &Bar) -> Value {
    let Bar { open_time, open, high, low, close, volume, .. } = bar;
    json!({ "open_time_ns": open_time, "open": open, "high": high, "low": low, "close": close, "volume": volume })
}

/// The last bar of an instrument in a provenance.
pub(super) fn last_bar(instrument: &Value) -> Option<Bar> {
    let bar = &instrument[LAST_BAR];
    Some(Bar {
        open_time: bar["open_time_ns"].as_i64()?,
        open: bar["open"].as_f64()?,
        high: bar["high"].as_f64()?,
        low: bar["low"].as_f64()?,
        close: bar["close"].as_f64()?,
        volume: bar["volume"].as_f64()?,
        ..Bar::default()
    })
}

/// The items of the list `name` in a provenance or a part of it; none without such a list.
pub(crate) fn listed<'a>(part: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    part[name].as_array().into_iter().flatten()
}

/// The files of a provenance, including those of longer timeframes.
pub(crate) fn recorded_files(provenance: &Value) -> impl Iterator<Item = &Value> {
    LISTS.into_iter().flat_map(|list| listed(provenance, list)).flat_map(files_of_instrument)
}

/// The files of an instrument in a provenance, including those of longer timeframes.
pub(crate) fn files_of_instrument(instrument: &Value) -> impl Iterator<Item = &Value> {
    let longer = LONGER_LISTS.into_iter().flat_map(move |list| listed(instrument, list));
    std::iter::once(instrument).chain(longer).flat_map(|owner| listed(owner, "files"))
}

/// The provenance of the instrument `symbol`.
pub(crate) fn instrument<'a>(provenance: &'a Value, symbol: &str) -> Option<&'a Value> {
    listed(provenance, LISTS[0]).find(|instrument| instrument["symbol"] == symbol)
}

/// The symbols of the instruments in the list `name` of a provenance.
pub(super) fn symbols_in(provenance: &Value, name: &str) -> Vec<String> {
    listed(provenance, name).filter_map(|instrument| instrument["symbol"].as_str().map(str::to_owned)).collect()
}

/// Fingerprints of files, some of them known.
#[derive(Default)]
pub(crate) struct Fingerprints(BTreeMap<PathBuf, String>);

impl Fingerprints {
    pub(crate) fn known(known: BTreeMap<PathBuf, String>) -> Self {
        Fingerprints(known)
    }

    /// The fingerprint of a file.
    pub(crate) fn get(&self, path: &Path) -> io::Result<String> {
        self.0.get(path).map_or_else(|| fingerprint(path), |known| Ok(known.clone()))
    }

    /// Adds fingerprints.
    pub(crate) fn extend(&mut self, known: BTreeMap<PathBuf, String>) {
        self.0.extend(known);
    }
}

/// The provenance of the bars of one instrument.
pub(crate) fn recording_json(summary: &ReadSummary) -> io::Result<Value> {
    bars_json(summary, &Fingerprints::default())
}

pub(super) fn bars_json(summary: &ReadSummary, fingerprints: &Fingerprints) -> io::Result<Value> {
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
    let longest = summary.gaps.longest.iter().map(|gap| json!({ "from_ns": gap.from, "to_ns": gap.to }));
    let mut json = json!({
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
            "longest": longest.collect::<Vec<_>>(),
        },
        "jumps": jumps.collect::<Vec<_>>(),
        "pair": pair,
        "compared": compared,
        "files": files,
        "warnings": summary.warnings,
    });
    if !summary.own.is_empty() {
        json["own"] = summary.own.iter().map(|own| own_json(own, fingerprints)).collect::<io::Result<Value>>()?;
    }
    Ok(json)
}

/// Bars of a longer timeframe that are taken from files of their own.
fn own_json(own: &OwnBars, fingerprints: &Fingerprints) -> io::Result<Value> {
    let files = own.summary.files.iter().map(|file| file_json(file, fingerprints)).collect::<io::Result<Value>>()?;
    Ok(json!({
        "timeframe": own.summary.base.name(),
        "files": files,
        LAST_OPEN_TIME: own.summary.last_bar.open_time,
        "used": own.used(),
        "same": own.same,
        "different": own.different.count,
        "made": own.made,
        "not_covered": own.not_covered,
        "unfinished": own.unfinished,
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

/// A fingerprint of a file's bytes, 32 hexadecimal digits.
pub(crate) fn fingerprint(path: &Path) -> io::Result<String> {
    let mut hash = Xxh3::new();
    let mut file = File::open(path)?;
    io::copy(&mut file, &mut Hashing(&mut hash))?;
    Ok(format!("{:032x}", hash.digest128()))
}

/// True if the file at `path` has the bytes of a recorded file, or begins with its lines.
pub(super) fn has_bytes(path: &Path, recorded: &Value) -> io::Result<bool> {
    let hash = recorded["xxh3_128"].as_str().unwrap_or_default();
    Ok(fingerprint(path)? == hash || begins_with(path, hash, recorded["rows"].as_u64().unwrap_or(0))?)
}

/// True if the file begins with lines of that fingerprint, at least `rows` of them.
pub(crate) fn begins_with(path: &Path, hash: &str, rows: u64) -> io::Result<bool> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
    let Ok(hash) = u128::from_str_radix(hash, 16) else { return Ok(false) };
    let (mut so_far, mut line, mut lines) = (Xxh3::new(), Vec::new(), 0);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(false);
        }
        lines += 1;
        // The last line of then may have had no end.
        let text = line.strip_suffix(b"\n").map_or(&line[..], |text| text.strip_suffix(b"\r").unwrap_or(text));
        for part in [text, &line[text.len()..]] {
            so_far.update(part);
            if lines >= rows && so_far.digest128() == hash {
                return Ok(true);
            }
        }
    }
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
