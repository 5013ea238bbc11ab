//! Provenance of a series made by a recipe.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use megabatch_bars::{Excluded, Segment};
use serde_json::{Value, json};

use crate::ingest::provenance::{
    CONTEXT_LIST, Fingerprints, KeptScaler, LAST_BAR, LISTS, LONGER_LISTS, bars_json, has_bytes, last_bar_json, listed,
    recorded_files,
};
use crate::ingest::{ContextFile, Recipe, Recordings};
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
        instrument[LAST_BAR] = last_bar_json(&recording.summary.last_bar);
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
    if !recipe.context.is_empty() {
        let context = recipe.context.iter().map(|file| context_json(file, fingerprints));
        provenance[CONTEXT_LIST] = context.collect::<io::Result<Value>>()?;
    }
    for file in files_mut(&mut provenance) {
        let path = file["file"].as_str().map(std::path::absolute).transpose()?;
        file["file"] = json!(path.map(|path| shown(&path)));
    }
    Ok(provenance)
}

/// Puts the present paths of files in place of the recorded ones, where the files were moved
/// together with the series at `series`, or are below the current folder as they were below
/// another. They have the recorded bytes, or begin with them.
pub(super) fn find_moved_files(series: &Path, provenance: &mut Value, recipe: &mut Recipe) {
    let missing: Vec<&mut PathBuf> = recipe.paths_mut().filter(|path| !path.exists()).collect();
    if missing.is_empty() {
        return;
    }
    let files = recorded_files(provenance).chain(listed(provenance, CONTEXT_LIST));
    let recorded: BTreeMap<&str, &Value> = files.filter_map(|file| Some((file["file"].as_str()?, file))).collect();
    let mut moved: BTreeMap<String, String> = BTreeMap::new();
    for path in missing {
        let was = shown(path);
        if let Some(found) = moved_file(series, path, recorded.get(was.as_str()).copied()) {
            moved.insert(was, shown(&found));
            *path = found;
        }
    }
    if moved.is_empty() {
        return;
    }
    let present = |(path, symbols): (PathBuf, Vec<String>)| match moved.get(&shown(&path)) {
        Some(found) => (PathBuf::from(found), symbols),
        None => (path, symbols),
    };
    recipe.file_symbols = std::mem::take(&mut recipe.file_symbols).into_iter().map(present).collect();
    for file in files_mut(provenance) {
        if let Some(found) = file["file"].as_str().and_then(|path| moved.get(path)) {
            file["file"] = json!(found);
        }
    }
}

/// The file of the name and the `recorded` bytes of one that is gone, below the folder of `series`
/// or the current one. Of several, the one in most of the same folders.
fn moved_file(series: &Path, path: &Path, recorded: Option<&Value>) -> Option<PathBuf> {
    let parts: Vec<Component<'_>> = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let folders = [series.parent()?, Path::new("")];
    let ends = (0..parts.len()).map(|start| parts[start..].iter().collect::<PathBuf>());
    let mut places = ends.flat_map(|end| folders.map(|folder| folder.join(&end)));
    let is_it = |place: &Path| recorded.is_none_or(|recorded| has_bytes(place, recorded).unwrap_or(false));
    let found = places.find(|place| place.is_file() && is_it(place))?;
    std::path::absolute(found).ok()
}

/// The files of a provenance, including those of longer timeframes and of other instruments.
fn files_mut(provenance: &mut Value) -> Vec<&mut Value> {
    let (mut files, mut instruments) = (Vec::new(), Vec::new());
    for (name, part) in provenance.as_object_mut().into_iter().flat_map(|all| all.iter_mut()) {
        let items = part.as_array_mut().into_iter().flatten();
        match name.as_str() {
            CONTEXT_LIST => files.extend(items),
            list if LISTS.contains(&list) => instruments.extend(items),
            _ => {}
        }
    }
    let owners = instruments.into_iter().filter_map(Value::as_object_mut);
    for (name, part) in owners.flat_map(|owner| owner.iter_mut()) {
        let items = part.as_array_mut().into_iter().flatten();
        match name.as_str() {
            "files" => files.extend(items),
            list if LONGER_LISTS.contains(&list) => {
                let longer = items.filter_map(|owner| owner.get_mut("files")?.as_array_mut());
                files.extend(longer.flatten());
            }
            _ => {}
        }
    }
    files
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

fn context_json(file: &ContextFile, fingerprints: &Fingerprints) -> io::Result<Value> {
    Ok(json!({ "symbol": file.symbol, "file": shown(&file.path), "xxh3_128": fingerprints.get(&file.path)? }))
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
