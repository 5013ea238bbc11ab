//! Memory at a moment, as text, as a picture, or for PyTorch's viewer.

use std::fs;
use std::path::{Path, PathBuf};

use megabatch_atomic_file as atomic_file;
use megabatch_gpu_core::snapshot::{OwnerBytes, Reason, Snapshot, Summary};
use serde_json::{Value, json};

use crate::command_report::CommandReport;
use crate::error::{Context as _, Error, Result};
use crate::output;
use crate::report::map_file;
use crate::run_folder::RunFolder;
use crate::text::{bytes, utc};

/// Owners and free blocks that the text lists.
const LISTED: usize = 12;

/// Pictures of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct SnapshotOptions {
    /// File for PyTorch's memory viewer.
    pub pickle: Option<PathBuf>,
    /// File for the memory map as a picture.
    pub svg: Option<PathBuf>,
}

/// Shows a snapshot of memory (`memory.json` or `oom-N.json`), or the latest in the folder of a
/// run: owners, free blocks and fragmentation.
///
/// # Errors
/// A usage error for a run without snapshots, a data error for another file.
pub fn snapshot(path: &Path, options: &SnapshotOptions) -> Result<CommandReport> {
    let (path, snapshot) = open(path)?;
    for out in options.pickle.iter().chain(&options.svg) {
        output::check(out, &[&path])?;
    }
    if let Some(out) = &options.pickle {
        atomic_file::write(out, &snapshot.to_pickle())?;
    }
    if let Some(out) = &options.svg {
        let picture = map_file(&snapshot);
        let picture = picture.ok_or_else(|| Error::data(format!("{}: nothing is mapped in it", path.display())))?;
        atomic_file::write(out, picture.as_bytes())?;
    }
    let summary = Summary::new(&snapshot);
    let mut text = describe(&path, &snapshot, &summary);
    text.extend(options.pickle.iter().chain(&options.svg).map(|out| format!("\nwritten: {}", out.display())));
    Ok(CommandReport::new(text, &to_json(&path, &snapshot, &summary)?))
}

/// The snapshot that `path` is, or the latest in the run's folder that it is.
fn open(path: &Path) -> Result<(PathBuf, Snapshot)> {
    if !path.is_dir() {
        return Ok((path.to_owned(), read(path)?));
    }
    let run = RunFolder::open(path)?;
    let found = files(&run).into_iter().map(|path| read(&path).map(|snapshot| (path, snapshot)));
    let found = found.collect::<Result<Vec<_>>>()?;
    found.into_iter().max_by_key(|(_, snapshot)| snapshot.time_us).ok_or_else(|| without_snapshot(&run))
}

/// The snapshot of a run's end and that of its last shortage, those that are there.
fn files(run: &RunFolder) -> Vec<PathBuf> {
    let shortages = (1..).map(|n| run.shortage_file(n)).take_while(|path| path.exists());
    std::iter::once(run.memory_file()).filter(|path| path.exists()).chain(shortages.last()).collect()
}

/// The error of a run without snapshots, which names the folds that have some.
fn without_snapshot(run: &RunFolder) -> Error {
    let with_files = run.begun_folds().filter(|fold| !files(fold).is_empty());
    let folds: Vec<String> = with_files.map(|fold| fold.root().display().to_string()).collect();
    let path = run.root().display();
    if folds.is_empty() {
        return Error::usage(format!(
            "{path}: there is no snapshot of memory in this run: it has not ended, or gpu_optimization.record_memory was off"
        ));
    }
    Error::usage(format!(
        "{path}: this run has several folds, each with its own snapshot of memory: name the folder of one of them: {}",
        folds.join(", ")
    ))
}

fn read(path: &Path) -> Result<Snapshot> {
    let text = fs::read_to_string(path).map_err(|error| Error::data(format!("{}: {error}", path.display())))?;
    Snapshot::from_json(&text).with_context(|| path.display().to_string())
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Asked => "when it was asked for",
        Reason::Peak => "at its peak",
        Reason::Shortage => "when a request failed",
    }
}

fn to_json(path: &Path, snapshot: &Snapshot, summary: &Summary) -> Result<Value> {
    let mut json = serde_json::to_value(summary)?;
    json["snapshot"] = json!(path);
    json["device"] = json!(snapshot.device);
    json["reason"] = json!(snapshot.reason);
    json["time_us"] = json!(snapshot.time_us);
    json["granule_bytes"] = json!(snapshot.granule_bytes);
    json["shortage"] = json!(snapshot.shortage);
    json["events"] = json!(snapshot.events.len());
    json["events_dropped"] = json!(snapshot.events_dropped);
    Ok(json)
}

fn describe(path: &Path, snapshot: &Snapshot, summary: &Summary) -> String {
    let totals = &summary.totals;
    let when = utc(i64::try_from(snapshot.time_us.saturating_mul(1000)).unwrap_or(i64::MAX));
    let mut text = format!("{}: memory of {} {}, {when}\n", path.display(), snapshot.device, reason(snapshot.reason));
    if let Some(shortage) = &snapshot.shortage {
        text.push_str(&format!("{}\n", shortage.message));
    }
    let with_peak = |now: usize, peak: usize| format!("{:>12}, {} at most", bytes(now), bytes(peak));
    let free = format!(
        "{:>12} in {} blocks, the largest {}: fragmentation {:.1} %",
        bytes(totals.free_bytes),
        summary.free_blocks_bytes.len(),
        bytes(totals.largest_free_block_bytes),
        100.0 * summary.fragmentation
    );
    let segments = format!(
        "{:>12}, and {} views with {} lent to them",
        summary.home_segments,
        summary.view_segments,
        bytes(summary.lent_bytes)
    );
    for (name, value) in [
        ("capacity", format!("{:>12}", bytes(totals.capacity_bytes))),
        ("reserved", with_peak(totals.reserved_bytes, totals.reserved_bytes_peak)),
        ("allocated", with_peak(totals.allocated_bytes, totals.allocated_bytes_peak)),
        ("asked for", with_peak(totals.requested_bytes, totals.requested_bytes_peak)),
        ("inactive split", with_peak(totals.inactive_split_bytes, totals.inactive_split_bytes_peak)),
        ("free", free),
        ("segments", segments),
    ] {
        text.push_str(&format!("  {name:<16}{value}\n"));
    }
    text + &owners(&summary.owners) + &free_blocks(&summary.free_blocks_bytes)
}

fn owners(owners: &[OwnerBytes]) -> String {
    let width = owners.iter().take(LISTED).map(|owned| owned.owner.chars().count()).max().unwrap_or(0);
    let line = |OwnerBytes { owner, bytes: size, blocks }: &OwnerBytes| {
        format!("  {owner:<width$}{:>12} in {blocks} block{}\n", bytes(*size), if *blocks == 1 { "" } else { "s" })
    };
    let mut text = "\nowners\n".to_owned();
    text.extend(owners.iter().take(LISTED).map(line));
    if owners.len() > LISTED {
        let rest: usize = owners[LISTED..].iter().map(|owned| owned.bytes).sum();
        text.push_str(&format!("  and {} more with {}\n", owners.len() - LISTED, bytes(rest)));
    }
    text
}

fn free_blocks(sizes: &[usize]) -> String {
    let listed: Vec<String> = sizes.iter().take(LISTED).map(|&size| bytes(size)).collect();
    let rest = if sizes.len() > LISTED { format!(" and {} smaller ones", sizes.len() - LISTED) } else { String::new() };
    if listed.is_empty() {
        "\nno free block\n".to_owned()
    } else {
        format!("\nlargest free blocks\n  {}{rest}\n", listed.join(", "))
    }
}
