//! Many instruments at once: a file that cannot be used excludes its own instrument only.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::excluded::{Excluded, ExcludedLines, refused};
use crate::error::row_error::OnError;
use crate::error::{Error, Result};
use crate::parse::bar_file::symbols_of_columns;
use crate::parse::lines::TextLines;
use crate::parse::options::ReadOptions;
use crate::parse::symbol_column::{symbols_in_rows, symbols_of_rows};
use crate::parse::symbol_pattern::{TABLE_ENDINGS, stem_of};
use crate::parse::symbol_rows::SymbolRows;
use crate::place::{ObserveBytes, ReadPlace};
use crate::read::{Recording, StoredRecording, read_in};

/// The recordings of several symbols.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Universe {
    /// One a symbol, in the order of the symbols.
    pub recordings: Vec<Recording>,
    /// The symbols that could not be read, in their order; none under [`OnError::Fail`].
    pub excluded: Vec<Excluded>,
}

impl Universe {
    /// The recordings that begin later than the first of all: shares that were listed later.
    pub fn listed_late(&self) -> impl Iterator<Item = &Recording> {
        let begin = self.recordings.iter().map(|recording| recording.summary.first_open_time).min();
        self.recordings.iter().filter(move |recording| Some(recording.summary.first_open_time) > begin)
    }

    /// The symbols that could not be read, a line each; those with the same fault in one line, and
    /// no more than ten lines.
    pub fn describe_excluded(&self) -> Vec<String> {
        ExcludedLines(&self.excluded).to_string().lines().map(|line| line.trim_start().to_owned()).collect()
    }

    /// The recordings that end earlier than the last of all: shares that are no longer listed, or
    /// that nobody recorded to the end.
    pub fn ended_early(&self) -> impl Iterator<Item = &Recording> {
        let end = self.recordings.iter().map(|recording| recording.summary.last_close_time).max();
        self.recordings.iter().filter(move |recording| Some(recording.summary.last_close_time) < end)
    }
}

/// Reads the bars of several symbols, each from one or more files: one recording a symbol, in the
/// order of their names. A file with rows of several symbols is read [once](SymbolRows).
///
/// Under [`OnError::Skip`] and [`OnError::Repair`] a symbol whose files cannot be used is excluded
/// and named; under [`OnError::Fail`] all such symbols are named in one error. A file that cannot
/// be opened is an error under all three.
///
/// # Errors
/// [`Error::NoFiles`], [`Error::UnlikeName`], [`Error::Open`]; those of
/// [`read`](crate::read::read) if one symbol cannot be used; [`Error::Several`] if several cannot.
/// If no symbol is left, the error names all, under every [`OnError`].
pub fn read_all<P: AsRef<Path>>(paths: &[P], options: &ReadOptions) -> Result<Universe> {
    let mut by_symbol: BTreeMap<String, Vec<&Path>> = BTreeMap::new();
    let mut rows = SymbolRows::in_memory();
    for path in paths.iter().map(AsRef::as_ref) {
        for symbol in rows.add(path, options, ReadPlace::MEMORY.observe)? {
            by_symbol.entry(symbol).or_default().push(path);
        }
    }
    let read = by_symbol.into_iter().map(|(symbol, paths)| {
        let own = ReadOptions { symbol: Some(symbol.clone()), ..options.clone() };
        let read = read_in(&paths, &own, &rows, &ReadPlace::MEMORY).map(StoredRecording::in_memory);
        SymbolRead { read, symbol }
    });
    let UsableSymbols { recordings, excluded } = usable(read, options.on_error)?;
    Ok(Universe { recordings, excluded })
}

impl ReadOptions {
    /// The symbols whose bars are read of a file: the one that is stated, or those that are stated
    /// for this file; those of its columns, if each of several symbols has its own; those that its
    /// rows name, if there are several; or what the file's name stands for.
    ///
    /// # Errors
    /// [`Error::UnlikeName`] for a name that does not fit the pattern; [`Error::LikeSymbols`].
    pub fn symbols_of(&self, path: &Path) -> Result<Vec<String>> {
        self.symbols_with(path, || Ok(symbols_of_rows(path, |name| self.wants(name))))
    }

    /// The symbols of a file, by those that its rows name.
    fn symbols_with(&self, path: &Path, in_rows: impl FnOnce() -> Result<Vec<String>>) -> Result<Vec<String>> {
        if self.symbol.is_none() {
            if let Some(stated) = self.file_symbols.get(path) {
                return Ok(stated.clone());
            }
            let in_columns = symbols_of_columns(path);
            let named = if in_columns.is_empty() { in_rows()? } else { in_columns };
            if !named.is_empty() {
                require_distinct(path, &named)?;
                return Ok(named);
            }
        }
        Ok(vec![self.symbol_of(path)?])
    }
}

/// The symbols that a file tells in itself, whatever its name: those of its columns, if each of
/// several symbols has its own, or those in its column of symbols. None for a file that cannot be
/// read: reading its bars gives the error.
pub fn symbols_in_file(path: &Path) -> Vec<String> {
    let in_columns = symbols_of_columns(path);
    if in_columns.is_empty() { symbols_in_rows(path) } else { in_columns }
}

/// Refuses symbols of a file that differ in the case of letters alone.
fn require_distinct(path: &Path, symbols: &[String]) -> Result<()> {
    let mut seen = HashMap::with_capacity(symbols.len());
    for symbol in symbols {
        if let Some(one) = seen.insert(symbol.to_lowercase(), symbol) {
            return Err(Error::LikeSymbols { path: path.to_owned(), one: one.clone(), other: symbol.clone() });
        }
    }
    Ok(())
}

impl SymbolRows {
    /// The symbols whose bars a file holds, as [`ReadOptions::symbols_of`] has them. If its rows
    /// are of several symbols they are kept here. `observe` gets the number of bytes of every read
    /// and may end the reading.
    ///
    /// # Errors
    /// As [`ReadOptions::symbols_of`]; [`Error::Spool`] and [`Error::Interrupted`].
    pub fn add(&mut self, path: &Path, options: &ReadOptions, observe: ObserveBytes<'_>) -> Result<Vec<String>> {
        options.symbols_with(path, || self.split(path, options, observe))
    }
}

/// Result of reading the bars of one symbol.
#[derive(Debug)]
pub struct SymbolRead<T> {
    /// The symbol.
    pub symbol: String,
    /// Its bars, or why they cannot be read.
    pub read: Result<T>,
}

/// Recordings of the symbols that could be read, and the others.
#[derive(Debug)]
pub struct UsableSymbols<T> {
    /// One a symbol, in the order given.
    pub recordings: Vec<T>,
    /// The symbols that could not be read.
    pub excluded: Vec<Excluded>,
}

/// Sorts recordings from symbols that could not be read, as [`read_all`] does.
///
/// # Errors
/// As [`read_all`]; [`Error::Spool`] and [`Error::Interrupted`] of the first symbol that has them.
pub fn usable<T>(read: impl IntoIterator<Item = SymbolRead<T>>, on_error: OnError) -> Result<UsableSymbols<T>> {
    let (mut recordings, mut excluded) = (Vec::new(), Vec::new());
    for SymbolRead { symbol, read } in read {
        match read {
            Ok(recording) => recordings.push(recording),
            Err(slip @ (Error::Open { .. } | Error::Spool { .. } | Error::Interrupted)) => return Err(slip),
            Err(reason) => excluded.push(Excluded { symbol, reason }),
        }
    }
    let stops = recordings.is_empty() || on_error == OnError::Fail;
    match (excluded.is_empty(), recordings.is_empty()) {
        (true, true) => Err(Error::NoFiles),
        (false, _) if stops => Err(refused(recordings.len(), excluded)),
        _ => Ok(UsableSymbols { recordings, excluded }),
    }
}

/// Compressed or plain bytes from which the number of a file's rows is estimated.
const SAMPLED_BYTES: u64 = 1 << 19;

/// About as many rows as a file has, from the length of its first lines.
///
/// # Errors
/// [`Error::Open`] and [`Error::Read`].
pub fn estimated_rows(path: &Path) -> Result<u64> {
    let size = path.metadata().map_err(|source| Error::Open { path: path.to_owned(), source })?.len();
    let read = AtomicU64::new(0);
    let observe = |bytes| {
        read.fetch_add(bytes, Relaxed);
        ControlFlow::Continue(())
    };
    let mut lines = TextLines::observed(path, &observe)?;
    let (mut text, mut rows) = (Vec::new(), 0);
    while lines.read_into(&mut text)?.is_some() {
        rows += 1;
        if read.load(Relaxed) >= SAMPLED_BYTES {
            return Ok((rows as f64 * size as f64 / read.load(Relaxed) as f64) as u64);
        }
    }
    Ok(rows)
}

/// The files of bars that a path stands for: itself, or the files directly in a folder that end in
/// `.csv`, `.tsv` or `.txt`, perhaps with `.gz` behind it, or in `.zip`, `.parquet` or `.pq`, in
/// the order of their names. Hidden files are none of them, nor is an archive beside the file that
/// it has.
///
/// # Errors
/// [`Error::Open`] for a folder that cannot be listed; [`Error::EmptyFolder`] for one without such
/// files.
pub fn bar_files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let listed = || -> std::io::Result<Vec<PathBuf>> { path.read_dir()?.map(|entry| Ok(entry?.path())).collect() };
    let mut files = listed().map_err(|source| Error::Open { path: path.to_owned(), source })?;
    files.retain(|file| is_bar_file(file));
    let unpacked: Vec<PathBuf> =
        files.iter().filter(|file| !is_archive(file)).map(|file| without_ending(file)).collect();
    files.retain(|file| !is_archive(file) || !unpacked.contains(&without_ending(file)));
    files.sort_unstable();
    match files.is_empty() {
        true => Err(Error::EmptyFolder { path: path.to_owned() }),
        false => Ok(files),
    }
}

/// The folders directly in a folder that have files of bars, which [`bar_files`] passes over.
pub fn folders_with_bars(path: &Path) -> Vec<PathBuf> {
    let entries = path.read_dir().into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|own| own.is_dir() && bar_files(own).is_ok()).collect();
    folders.sort_unstable();
    folders
}

/// True if a file's name ends in `.csv`, `.tsv` or `.txt`, perhaps with `.gz` behind it, or in
/// `.zip`, `.parquet` or `.pq`. A hidden file or a folder is none.
pub fn is_bar_file(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let has_ending =
        name.rsplit_once('.').is_some_and(|(stem, ending)| !stem.is_empty() && TABLE_ENDINGS.contains(&ending));
    (has_ending || is_archive(file)) && !name.starts_with('.') && file.is_file()
}

fn is_archive(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("zip"))
}

/// The path of a file of bars without what tells its form: `a` of `a.csv`, `a.csv.gz`, `a.zip` and
/// `a.csv.zip`.
fn without_ending(file: &Path) -> PathBuf {
    file.with_file_name(stem_of(file))
}
