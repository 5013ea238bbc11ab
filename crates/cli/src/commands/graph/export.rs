//! `megabatch graph export`: graphs of a file in the formats of others.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;
use megabatch_graph_cache::import::Text;
use megabatch_graph_cache::{Builder as _, Error, GraphFile, export};
use megabatch_trainer::write_atomically;
use serde_json::json;

use super::counted;
use super::stored::Stored;
use crate::answer::{Answer, shown};
use crate::byte_sizes::bytes;
use crate::failure::Failure;
use crate::output;

/// Write graphs for other programs, in formats that `graph build` reads
///
/// A format that has no place for what the graphs hold refuses them, and says which has. What was
/// imported from a format and exported to it is imported again as the same graphs.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch graph export shares.mbg --format edge-index --out shares.safetensors
  megabatch graph export shares.mbg --key 2021-04-21 --format edge-list --out day/
  megabatch graph export mutag.mbg --format tu --out MUTAG/
  megabatch graph export gdb1k.mbg --key 1 --key 2 --format sdf --out two.sdf")]
pub(super) struct Args {
    /// The file of graphs
    file: PathBuf,
    /// What to write
    #[arg(long, value_enum)]
    format: Format,
    /// The file, .safetensors or .sdf; of tu and edge-list the folder, which is made where it is
    /// missing
    #[arg(long)]
    out: PathBuf,
    /// A graph to write; may be given several times [default: all graphs]
    #[arg(long, value_name = "KEY")]
    key: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A folder with a TU dataset, which has the name of the folder; keys, names of nodes and known
    /// times have no place in it
    Tu,
    /// A folder with one graph, or the parts of a split, as edges.csv, features.csv and labels.csv
    /// or targets.csv
    EdgeList,
    /// Molecules in an SDF file, version V2000; nodes need their positions (`graph build --kind sdf
    /// --positions`)
    Sdf,
    /// Tensors as in PyTorch Geometric, in a safetensors file; keeps everything
    EdgeIndex,
}

pub(super) fn run(args: &Args) -> Result<Answer> {
    match args.format {
        Format::Tu | Format::EdgeList => output::check_folder(&args.out)?,
        Format::Sdf => output::require_ending(&args.out, &["sdf"])?,
        Format::EdgeIndex => output::require_ending(&args.out, &["safetensors"])?,
    }
    if matches!(args.format, Format::Sdf | Format::EdgeIndex) {
        output::check(&args.out, &[&args.file])?;
    }
    if let Some(key) = args.key.iter().enumerate().find_map(|(at, key)| args.key[..at].contains(key).then_some(key)) {
        return Err(Failure::usage(format!("--key {key} is given twice; a graph is written once")));
    }
    let file = GraphFile::open(&args.file)?;
    let stored = if args.key.is_empty() { Stored::all(&file) } else { Stored::of(&file, &args.key)? };
    let written = write(args, &stored)?;
    Ok(answer(args, &stored, &written))
}

/// A file that was written.
struct Written {
    path: PathBuf,
    bytes: usize,
}

fn write(args: &Args, stored: &Stored<'_>) -> Result<Vec<Written>> {
    let one = |bytes: &[u8]| -> Result<Vec<Written>> {
        write_atomically(&args.out, bytes)?;
        Ok(vec![Written { path: args.out.clone(), bytes: bytes.len() }])
    };
    match args.format {
        Format::Sdf => one(export::sdf(stored)?.bytes()),
        Format::EdgeIndex => one(&export::edge_index(stored, &(0..stored.len()).collect::<Vec<_>>())?),
        Format::Tu => write_folder(&args.out, &export::tu(stored, &dataset(&args.out))?),
        Format::EdgeList => write_folder(&args.out, &export::edge_list(stored)?),
    }
}

/// The name of a TU dataset in a folder.
fn dataset(folder: &Path) -> String {
    folder.file_name().map_or_else(|| "graphs".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn write_folder(folder: &Path, texts: &[Text]) -> Result<Vec<Written>> {
    refuse_others(folder, texts)?;
    export::write(folder, texts)?;
    let written = |text: &Text| Written { path: folder.join(text.path()), bytes: text.bytes().len() };
    Ok(texts.iter().map(written).collect())
}

/// Refuses a folder that holds anything but earlier forms of `texts`: who reads the folder would
/// take it for a part of them.
fn refuse_others(folder: &Path, texts: &[Text]) -> Result<()> {
    let unreadable = |source| Error::Io { path: folder.to_owned(), action: "list the folder", source };
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        if !texts.iter().any(|text| text.path() == Path::new(&name)) {
            return Err(Failure::usage(format!(
                "{}: cannot write here: {} is in it, which would be read with what is written; name another folder",
                folder.display(),
                name.to_string_lossy()
            )));
        }
    }
    Ok(())
}

fn answer(args: &Args, stored: &Stored<'_>, written: &[Written]) -> Answer {
    let (nodes, edges) = stored.sizes();
    let total: usize = written.iter().map(|file| file.bytes).sum();
    let mut text = format!(
        "{}: {}, {}, {}, {}",
        args.out.display(),
        counted(stored.len(), "graph"),
        counted(nodes, "node"),
        counted(edges, "edge"),
        bytes(total)
    );
    if written.len() > 1 {
        written.iter().for_each(|file| text.push_str(&format!("\n  {}", file.path.display())));
    }
    let format = args.format.to_possible_value().expect("no format is hidden").get_name().to_owned();
    let json = json!({
        "out": shown(&args.out),
        "format": format,
        "graphs": stored.len(),
        "keys": stored.keys(),
        "nodes": nodes,
        "edges": edges,
        "bytes": total,
        "files": written.iter().map(|file| &file.path).collect::<Vec<_>>(),
    });
    Answer::new(text, &json)
}
