//! Provenance of a series made by a recipe.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use megabatch_bars::{Excluded, Segment};
use serde_json::{Value, json};

use crate::ingest::provenance::{Fingerprints, KeptScaler, LISTS, bars_json};
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

/// The provenance that a series file holds. Its paths are absolute: the files are found from any
/// folder.
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
    let words = recipe.with_absolute_paths()?.to_words();
    let mut provenance = json!({ "recipe": words, "instruments": instruments, "warnings": series.warnings });
    if let Some(kept) = series.kept_scaler {
        provenance["kept_scaler"] = kept.to_json();
    }
    if !recordings.universe.excluded.is_empty() {
        let files = recipe.files_by_symbol();
        let left_out = recordings.universe.excluded.iter();
        let left_out = left_out.map(|left_out| left_out_json(&files, fingerprints, left_out));
        provenance["left_out"] = left_out.collect::<io::Result<Value>>()?;
    }
    for list in LISTS {
        for owner in provenance.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            make_paths_absolute(owner)?;
            let compared = owner.get_mut("compared").and_then(Value::as_array_mut);
            compared.into_iter().flatten().try_for_each(make_paths_absolute)?;
        }
    }
    Ok(provenance)
}

/// Makes the paths of the files of `owner` absolute, an instrument or files that were compared with
/// it.
fn make_paths_absolute(owner: &mut Value) -> io::Result<()> {
    for file in owner.get_mut("files").and_then(Value::as_array_mut).into_iter().flatten() {
        let path = file["file"].as_str().map(std::path::absolute).transpose()?;
        file["file"] = json!(path.map(|path| shown(&path)));
    }
    Ok(())
}

fn left_out_json(
    files: &BTreeMap<String, Vec<PathBuf>>,
    fingerprints: &Fingerprints,
    Excluded { symbol, reason }: &Excluded,
) -> io::Result<Value> {
    let file = |path: &PathBuf| Ok(json!({ "file": shown(path), "xxh3_128": fingerprints.get(path)? }));
    let files = files.get(symbol).into_iter().flatten().map(file).collect::<io::Result<Value>>()?;
    Ok(json!({ "symbol": symbol, "reason": reason.to_string(), "files": files }))
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
