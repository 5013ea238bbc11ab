pub(crate) mod bar_doubts;
pub(crate) mod bar_lines;
mod by_timeframe;
pub(crate) mod compared;
pub(crate) mod event_count;
mod joined;
pub(crate) mod later_weeks;
mod line_clock;
mod own_bars;
pub(crate) mod pair;
pub(crate) mod profile;
pub(crate) mod summary;
pub(crate) mod universe;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::bar_source::BarSource;
use crate::bars::Bars;
use crate::clean::fillers::drop_fillers;
use crate::clean::jumps::Jump;
use crate::clean::midnights::settle_days;
use crate::clean::order::{RowClock, in_order};
use crate::clean::sessions::{LiveWeek, RowDays};
use crate::clean::spacing::Spacings;
use crate::clean::spread;
use crate::clean::weekly_close::ZoneChoice;
use crate::error::row_error::RowError;
use crate::error::{Error, Result};
use crate::parse::adjustment::Adjustments;
use crate::parse::bar_file::BarFile;
use crate::parse::options::{Overlaps, ReadOptions};
use crate::parse::own_zone::OwnZone;
use crate::parse::symbol_column::LikelySymbols;
use crate::parse::symbol_rows::SymbolRows;
use crate::place::{ObserveBytes, ReadPlace, StoredBars, for_each_bar};
use crate::read::by_timeframe::{ByTimeframe, SpacedFile, check_dates};
use crate::read::compared::ComparedFiles;
use crate::read::joined::{RowLines, join_equal};
use crate::read::profile::BarProfile;
use crate::read::summary::{FileSummary, OwnBars, ReadSummary};
use crate::read::zones::choose_zones;
use crate::spool::{SpoolWriter, SpooledBars};
use crate::ticks::file::TickForm;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{RowTime, counted, display_utc, listed};
use crate::time::zone::Zone;

/// Most jumps that are listed; further ones are counted.
const JUMPS_TOLD: usize = 3;

/// The bars of one symbol, and an account of how they were read.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The symbol.
    pub symbol: String,
    /// The bars.
    pub bars: Bars,
    /// Summary of reading.
    pub summary: ReadSummary,
}

/// Reads the bars of one symbol from one or more CSV files and joins them in order of time.
///
/// The files are text, plain or compressed with gzip, in UTF-8 or UTF-16, or Parquet. Gaps are
/// counted and never filled. Of files in several timeframes the shortest are read, and the others
/// are compared with what these make. Beside a stated timeframe those are compared whose bars are
/// evidently longer or shorter, by their spacing or by the file's name; all others are read.
///
/// # Errors
/// [`Error::Open`], [`Error::Read`], [`Error::TooManyRows`], [`Error::UnknownFormat`],
/// [`Error::UnknownDateOrder`], [`Error::Columns`], [`Error::Unsorted`]; [`Error::BadRow`] for a
/// row that cannot be used as it stands, under [`OnError::Fail`](crate::OnError::Fail);
/// [`Error::NothingLeft`], [`Error::EmptyColumns`], [`Error::UnknownBase`], [`Error::WrongBase`],
/// [`Error::ShorterBars`], [`Error::LongerBars`]; [`Error::Overlap`], [`Error::UnlikeBars`],
/// [`Error::MixedSymbols`] and [`Error::NoFiles`].
pub fn read<P: AsRef<Path>>(paths: &[P], options: &ReadOptions) -> Result<Recording> {
    read_in(paths, options, &SymbolRows::default(), &ReadPlace::MEMORY).map(StoredRecording::in_memory)
}

/// The bars of one symbol in a file, and an account of how they were read.
#[derive(Debug)]
pub struct SpooledRecording {
    /// The symbol.
    pub symbol: String,
    /// The bars.
    pub bars: SpooledBars,
    /// Bars of longer timeframes from files of their own, shortest first, which
    /// [`ReadOptions::own_bars`] asked for.
    pub own: Vec<SpooledBars>,
    /// Summary of reading.
    pub summary: ReadSummary,
}

impl SpooledRecording {
    /// Place of its own bars of `timeframe`, where its bars are at `spool`.
    pub fn own_path(spool: &Path, timeframe: Timeframe) -> PathBuf {
        let stem = spool.file_stem().unwrap_or_default().to_string_lossy();
        spool.with_file_name(format!("{stem}-{timeframe}.bars"))
    }
}

/// Reads as [`read`] does, and leaves the bars in a new file at `spool` instead of memory.
/// Temporary files without names lie beside it. `observe` gets the number of bytes of every read
/// and may end the reading.
///
/// In memory are, for bars of any number: at most 16 bytes a row of days, 8 a row of files whose
/// rows are not in order of time, 16 a row that repairs put in order, and 50 a row of files with
/// adjusted prices.
///
/// # Errors
/// As [`read`]; [`Error::Spool`] and [`Error::Interrupted`].
pub fn read_spooled<P: AsRef<Path>>(
    paths: &[P],
    options: &ReadOptions,
    spool: &Path,
    observe: ObserveBytes<'_>,
) -> Result<SpooledRecording> {
    SymbolRows::default().read_spooled(paths, options, spool, observe)
}

impl SymbolRows {
    /// Reads as [`read_spooled`] does. The rows of the symbol that `options` state are taken from
    /// here, where they are kept, and not from their file.
    ///
    /// # Errors
    /// As [`read_spooled`].
    pub fn read_spooled<P: AsRef<Path>>(
        &self,
        paths: &[P],
        options: &ReadOptions,
        spool: &Path,
        observe: ObserveBytes<'_>,
    ) -> Result<SpooledRecording> {
        read_in(paths, options, self, &place_beside(spool, observe)?)?.spooled(spool)
    }
}

/// Temporary files beside `spool`.
fn place_beside<'a>(spool: &'a Path, observe: ObserveBytes<'a>) -> Result<ReadPlace<'a>> {
    let folder = spool.parent().filter(|folder| !folder.as_os_str().is_empty());
    ReadPlace::in_folder(folder.unwrap_or(Path::new(".")), observe)
}

/// The bars of one symbol, wherever they are.
pub(crate) struct StoredRecording {
    pub(crate) symbol: String,
    pub(crate) bars: StoredBars,
    /// Bars of longer timeframes from files of their own.
    pub(crate) own: Vec<StoredBars>,
    pub(crate) summary: ReadSummary,
}

impl StoredRecording {
    fn in_memory(self) -> Recording {
        let StoredRecording { symbol, bars, summary, .. } = self;
        match bars {
            StoredBars::Memory(bars) => Recording { symbol, bars, summary },
            StoredBars::File(_) => unreachable!("bars are read into memory"),
        }
    }

    /// The recording with its bars in a file at `path`.
    fn spooled(self, path: &Path) -> Result<SpooledRecording> {
        let write = |bars: &StoredBars, path: &Path| -> Result<SpooledBars> {
            let mut writer = SpoolWriter::create(path, bars.timeframe(), bars.columns())?;
            for_each_bar(bars, |bar| writer.push(bar))?;
            writer.finish()
        };
        let own = self.own.iter().map(|own| write(own, &SpooledRecording::own_path(path, own.timeframe())));
        let own = own.collect::<Result<_>>()?;
        Ok(SpooledRecording { symbol: self.symbol, bars: write(&self.bars, path)?, own, summary: self.summary })
    }

    /// Takes the bars of a longer timeframe, which were read from files of their own.
    fn take_own(&mut self, bars: StoredBars, summary: ReadSummary) {
        // The shorter bars have their jumps too.
        let is_jump = |warning: &String| summary.jumps.iter().any(|jump| jump.is_told_by(warning));
        let others = summary.warnings.iter().filter(|warning| !is_jump(warning));
        self.summary.warnings.extend(others.map(|warning| format!("{}: {warning}", summary.base)));
        self.summary.own.push(OwnBars::unplaced(summary, self.bars.timeframe()));
        self.own.push(bars);
    }
}

/// The error of a file that is not recognised; that of ticks, if it has some.
fn or_ticks(error: Error, path: &Path) -> Error {
    let format = if let Error::UnknownFormat { .. } = error { TickForm::format_of_file(path) } else { None };
    format.map_or(error, |format| Error::Ticks { path: path.to_owned(), format: format.name() })
}

pub(crate) fn read_in<P: AsRef<Path>>(
    paths: &[P],
    options: &ReadOptions,
    symbols: &SymbolRows,
    place: &ReadPlace<'_>,
) -> Result<StoredRecording> {
    let symbol = common_symbol(paths, options)?;
    let read_file = |path: &P| {
        let path = path.as_ref();
        let mut source = BarFile::read(path, options, symbols, place).map_err(|error| or_ticks(error, path))?;
        if paths.len() > 1 {
            source.rows.seal()?;
        }
        Ok(source)
    };
    let sources = paths.iter().map(read_file).collect::<Result<Vec<_>>>()?;
    refuse_nothing(&sources, &symbol)?;
    let ByTimeframe { series_files, others } = ByTimeframe::new(sources, &symbol, options.base)?;
    let mut recording =
        read_sources(symbol, series_files, options, false, None, symbols, place).map_err(with_likely_symbols)?;
    let base = recording.bars.timeframe();
    let found = |file: &FileSummary| Some((file.zone.clone()?, format!("that of the {base} bars: {}", file.zone_why)));
    let clock = recording.summary.files.iter().find_map(found);
    for (timeframe, mut sources) in others {
        let paths = sources.iter().map(|source| source.file.path.clone()).collect();
        // Their further columns are not read.
        sources.iter_mut().try_for_each(|source| source.file.forget_columns())?;
        let mut own_options = ReadOptions {
            base: Some(timeframe),
            columns: Vec::new(),
            known_zones: BTreeMap::new(),
            // Days have a bin by their dates. Those that close with later prices are refused.
            beside: (timeframe > Timeframe::D1).then_some(base),
            ..options.clone().without_targets()
        };
        let can_be_own = timeframe > recording.bars.timeframe() && !timeframe.is_calendar_month();
        let are_own = can_be_own && options.own_bars.contains(&timeframe);
        // The shorter bars tell the clock of both better. Days have dates.
        let takes_clock = are_own && own_options.zone.is_none() && timeframe < Timeframe::D1;
        let (zone, zone_why) = clock.clone().filter(|_| takes_clock).unzip();
        own_options.zone = own_options.zone.or(zone);
        let zone_why = zone_why.as_deref();
        let StoredRecording { bars, summary, .. } =
            read_sources(recording.symbol.clone(), sources, &own_options, are_own, zone_why, symbols, place)?;
        if are_own {
            recording.take_own(bars, summary);
            continue;
        }
        let shorter = if timeframe > recording.bars.timeframe() { &recording.summary } else { &summary };
        let clock = shorter.files.first().and_then(|file| file.zone.as_ref());
        let compared = ComparedFiles::new(paths, &bars, &recording.bars, clock)?;
        recording.summary.warnings.extend(compared.warning());
        recording.summary.compared.push(compared);
    }
    Ok(recording)
}

/// Joins files of one timeframe into one recording. If they are own bars of a longer timeframe, the
/// last bar of each may be unfinished. The zone of the options was stated, or is chosen for the
/// reason `zone_why`.
fn read_sources(
    symbol: String,
    mut sources: Vec<SpacedFile>,
    options: &ReadOptions,
    are_own: bool,
    zone_why: Option<&str>,
    symbols: &SymbolRows,
    place: &ReadPlace<'_>,
) -> Result<StoredRecording> {
    let mut spacings = Spacings::default();
    sources.iter().for_each(|source| spacings.extend(&source.spacings));
    let base = spacings.base(options.base)?;
    let options = &options.for_bars(base);
    check_dates(&mut sources, &spacings, base)?;
    let sources = sources.into_iter().map(|source| source.on_grid(base));
    let sources: Vec<SpacedFile> = sources.collect::<Result<_>>()?;
    let mut spacings = Spacings::default();
    sources.iter().for_each(|source| spacings.extend(&source.spacings));
    let mut sources: Vec<BarFile> = sources.into_iter().map(|source| source.file).collect();
    sources.iter().try_for_each(|source| source.own_columns.check(&source.path))?;
    let midnights = settle_days(&mut sources, base, options.zone_or_fallback())?;
    let recent = midnights.recent();
    if recent.is_some() {
        spacings = Spacings::default();
        sources.iter().for_each(|source| spacings.add(&source.rows));
    }
    let stamp_delay_ns = options.stamped_at.delay_ns(base);
    let have_volume = sources.iter().any(|source| source.has_volume);
    let last_fillers = drop_fillers(&mut sources, base, have_volume)?;
    let zones = choose_zones(&sources, options, base.duration_ns() - stamp_delay_ns, base, zone_why);

    let mut warnings = spacings.warnings(base);
    let zone_warnings: BTreeSet<String> = zones.iter().filter_map(|choice| choice.warning.clone()).collect();
    warnings.extend(zone_warnings);
    if zone_why.is_none() {
        warnings.extend(sources.iter().filter_map(|source| source_warning(source, options)));
    }
    warnings.extend(sources.iter_mut().flat_map(|source| std::mem::take(&mut source.warnings)));
    for source in &mut sources {
        warnings.extend(spread::in_units_of_the_price(source)?);
    }
    let days = RowDays::told_by(base, || sources.iter().flat_map(|source| source.rows.stamps()));
    let days = match base {
        Timeframe::W1 => {
            let files: Vec<Vec<RowTime>> = sources.iter().map(|source| source.rows.stamps().collect()).collect();
            days.with_live_weeks(&files)
        }
        _ => vec![days; sources.len()],
    };
    let beside_shorter = options.has_shorter(base);
    if !beside_shorter {
        let live = sources.iter().zip(&days).filter_map(|(source, days)| Some((source, days.live_week()?)));
        warnings.extend(live.filter_map(|(source, live)| live_week_warning(source, live)));
    }
    let mut early_ns = 0;
    let mut pieces = Vec::with_capacity(sources.len());
    for ((source, choice), &days) in sources.into_iter().zip(&zones).zip(&days) {
        let (zone, repeats) = (&choice.zone, options.repeats);
        let clock = RowClock { zone, base, stamp_delay_ns, repeats, days, beside_shorter };
        if base >= Timeframe::D1 {
            // The row of a week that has not ended may be stamped days after its Monday.
            let is_whole = |stamp: &RowTime| days.live_week().is_none_or(|live| live.stamp != *stamp);
            let stamps = source.rows.stamps().filter(is_whole);
            early_ns = stamps.map(|stamp| clock.early_ns(stamp)).fold(early_ns, i64::max);
        }
        pieces.push(FileBars::new(source, choice, clock, place)?);
    }
    warnings.extend(pieces.iter().filter_map(|piece| mixed_symbols(&piece.summary)));
    let JoinedFiles { bars, files, last_times } = match options.overlaps {
        Overlaps::Refuse => join(pieces, base, place)?,
        Overlaps::EqualOnce => {
            let zones = zones.iter().map(|choice| choice.zone.clone()).collect();
            let lines = RowLines { zones, midnights, base, stamp_delay_ns, days, options, symbols, place };
            join_equal(pieces, are_own, &lines)?
        }
    };
    require_bars(&bars, &files)?;
    let summary = ReadSummary::new(&bars, files, symbol.clone(), warnings)?;
    let summary = ReadSummary { midnights: recent, last_fillers, last_times, early_ns, ..summary };
    Ok(StoredRecording { symbol, bars, own: Vec::new(), summary })
}

/// A warning of the row of a week that has not ended, which is that of its Monday.
fn live_week_warning(source: &BarFile, live: LiveWeek) -> Option<String> {
    let row = source.rows.iter().find(|row| row.stamp == live.stamp)?;
    Some(format!("{}: line {} is {}", source.path.display(), row.line, live.remark()))
}

/// The error of a row with the time of another one, with a column that may tell them apart.
fn with_likely_symbols(mut error: Error) -> Error {
    if let Error::BadRow { path, kind: RowError::Duplicate, expected, .. } = &mut error
        && let Some(LikelySymbols { name, texts, .. }) = LikelySymbols::find(path)
    {
        let apart = format!(
            "symbols apart, if the column `{name}` has them ({}): call it `symbol` in the header; or ",
            listed(&texts)
        );
        expected.insert_str(0, &apart);
    }
    error
}

/// A warning of rows that were dropped for the time of another one, where a column may tell them
/// apart.
fn mixed_symbols(file: &FileSummary) -> Option<String> {
    let repeated = file.dropped.iter().find(|count| count.kind == RowError::Duplicate)?;
    let LikelySymbols { name, texts, .. } = LikelySymbols::find(&file.path)?;
    Some(format!(
        "{}: {} have the time of another one and were dropped, and the column `{name}` has several names ({}): if they are symbols, call it `symbol` in the header",
        file.path.display(),
        counted(repeated.rows, "row", "rows"),
        listed(&texts)
    ))
}

/// The files on either side of a jump, as the end of a sentence: those that end and begin with its
/// bars. Nothing where one file may have both.
fn between_files(jump: &Jump, files: &[FileSummary]) -> String {
    let Jump { previous_open_time: before, open_time: after, .. } = *jump;
    let begins_by = |file: &FileSummary, time: i64| file.first_open_time.is_some_and(|first| first <= time);
    let lasts_to = |file: &FileSummary, time: i64| file.last_open_time.is_some_and(|last| last >= time);
    if files.iter().any(|file| begins_by(file, before) && lasts_to(file, after)) {
        return String::new();
    }
    let earlier = files.iter().find(|file| file.last_open_time == Some(before));
    let later = files.iter().find(|file| file.first_open_time == Some(after));
    let Some((earlier, later)) = earlier.zip(later) else { return String::new() };
    format!(
        " ({} ends before it, and {} goes on after it: are both of one instrument?)",
        earlier.path.display(),
        later.path.display()
    )
}

impl ReadSummary {
    /// Summary of `bars`. There is at least one.
    pub(crate) fn new(
        bars: &dyn BarSource,
        files: Vec<FileSummary>,
        symbol: String,
        mut warnings: Vec<String>,
    ) -> Result<Self> {
        let profile = BarProfile::new(bars, &symbol, files.iter().filter_map(|file| file.zone.clone()))?;
        let jumps = profile.jumps;
        warnings.extend(jumps.iter().take(JUMPS_TOLD).map(|jump| format!("{jump}{}", between_files(jump, &files))));
        if jumps.len() > JUMPS_TOLD {
            warnings.push(format!("{} more such jumps", jumps.len() - JUMPS_TOLD));
        }
        // A pair has those of its sides already.
        let far = profile.far.into_iter().filter(|warning| !warnings.contains(warning));
        warnings.extend(far.collect::<Vec<_>>());
        Ok(ReadSummary {
            symbol,
            base: bars.timeframe(),
            first_open_time: profile.first_open_time,
            last_close_time: profile.last_close_time,
            last_bar: profile.last_bar,
            bars: profile.counts,
            gaps: profile.gaps,
            jumps,
            compared: Vec::new(),
            own: Vec::new(),
            pair: None,
            files,
            warnings,
            midnights: None,
            last_fillers: 0,
            last_times: Vec::new(),
            early_ns: 0,
        })
    }
}

/// The bars of one file.
struct FileBars {
    bars: StoredBars,
    summary: FileSummary,
}

impl FileBars {
    fn new(source: BarFile, choice: &ZoneChoice, clock: RowClock<'_>, place: &ReadPlace<'_>) -> Result<Self> {
        let on_a_wall_clock = source.rows.stamps().any(|stamp| matches!(stamp, RowTime::Wall(_)));
        let (zone, zone_why) = match on_a_wall_clock {
            true => (Some(choice.zone.clone()), choice.why.clone()),
            false => (None, "each timestamp tells its own offset from UTC".to_owned()),
        };
        let BarFile { path, format, rows, row_count, preamble, newest_first, mut ledger, own_columns, .. } = source;
        let mut sink = place.sink(clock.base, rows.width())?;
        let mut east_ns = 0;
        in_order(&rows, clock, &mut ledger, place.rows(), |row, bar| {
            east_ns = row.east_ns.unwrap_or_default().min(east_ns);
            sink.push(bar)
        })?;
        let bars = sink.finish()?;
        let (first_open_time, last_open_time) = (bars.first_open_time()?, bars.last_open_time()?);
        let (dropped, fixed) = ledger.close();
        let adjusted = match format.columns.adjusted {
            None => None,
            Some(_) => Adjustments::from_rows(rows.iter(), &bars, &format.columns, |row| clock.open_time(row))?,
        };
        let (format, rows, kept) = (format.name, row_count, bars.len() as u64);
        let summary = FileSummary {
            path,
            format,
            zone,
            offset: Zone::at_offset(east_ns).filter(|_| east_ns < 0),
            zone_why,
            rows,
            preamble,
            newest_first,
            kept,
            first_open_time,
            last_open_time,
            dropped,
            fixed,
            adjusted,
            unused_columns: own_columns.unused,
        };
        Ok(FileBars { bars, summary })
    }
}

fn common_symbol<P: AsRef<Path>>(paths: &[P], options: &ReadOptions) -> Result<String> {
    let first = paths.first().ok_or(Error::NoFiles)?.as_ref();
    let first_symbol = options.symbol_of(first)?;
    for second in paths.iter().map(AsRef::as_ref) {
        let second_symbol = options.symbol_of(second)?;
        if second_symbol != first_symbol {
            let (first, second) = (first.to_owned(), second.to_owned());
            return Err(Error::MixedSymbols { first, first_symbol, second, second_symbol });
        }
    }
    Ok(first_symbol)
}

fn refuse_nothing(sources: &[BarFile], symbol: &str) -> Result<()> {
    if sources.iter().any(|source| !source.rows.is_empty()) {
        return Ok(());
    }
    let path = sources[0].path.clone();
    let rows: u64 = sources.iter().map(|source| source.row_count).sum();
    let empty_rows: u64 = sources.iter().map(|source| source.empty_rows).sum();
    if rows == 0 && empty_rows > 0 {
        return Err(Error::EmptyColumns { path, symbol: symbol.to_owned(), rows: empty_rows });
    }
    let first = sources.iter().find_map(|source| source.ledger.first_fault()).unwrap_or("no rows").to_owned();
    Err(Error::NothingLeft { path, rows, first })
}

/// Refuses files of which no row became a bar.
fn require_bars(bars: &StoredBars, files: &[FileSummary]) -> Result<()> {
    if !bars.is_empty() {
        return Ok(());
    }
    let dropped = files.iter().flat_map(|file| file.dropped.iter().map(|count| (count.first_line, count.kind)));
    let first = dropped.min().map_or("no rows".to_owned(), |(line, kind)| format!("line {line}, {kind}"));
    Err(Error::NothingLeft { path: files[0].path.clone(), rows: files.iter().map(|file| file.rows).sum(), first })
}

fn source_warning(source: &BarFile, options: &ReadOptions) -> Option<String> {
    let path = source.path.display();
    let zone = options.zone.as_ref()?;
    let has_offset =
        source.own_zone.as_ref().is_some_and(OwnZone::is_in_rows) || source.rows.stamps().any(RowTime::is_utc);
    has_offset.then(|| {
        format!("the timestamps of {path} have their own offset; the stated zone {zone} was not used for them")
    })
}

/// Bars of several files.
struct JoinedFiles {
    bars: StoredBars,
    files: Vec<FileSummary>,
    /// As [`ReadSummary::last_times`].
    last_times: Vec<i64>,
}

fn join(pieces: Vec<FileBars>, base: Timeframe, place: &ReadPlace<'_>) -> Result<JoinedFiles> {
    let begins = |piece: FileBars| Ok((piece.bars.first_open_time()?, piece));
    let mut pieces = pieces.into_iter().map(begins).collect::<Result<Vec<_>>>()?;
    pieces.sort_by_key(|&(begins, _)| begins);
    let [(_, _)] = &pieces[..] else { return join_several(pieces, base, place) };
    let FileBars { bars, summary } = pieces.remove(0).1;
    let last_times = summary.last_open_time.into_iter().collect();
    Ok(JoinedFiles { bars, files: vec![summary], last_times })
}

fn join_several(pieces: Vec<(Option<i64>, FileBars)>, base: Timeframe, place: &ReadPlace<'_>) -> Result<JoinedFiles> {
    let columns = pieces.first().map_or(0, |(_, piece)| piece.bars.columns());
    let mut whole = place.sink(base, columns)?;
    let mut files: Vec<FileSummary> = Vec::with_capacity(pieces.len());
    let (mut last_path, mut last) = (PathBuf::new(), None);
    for (begins, FileBars { bars, summary }) in pieces {
        if let (Some(ends), Some(begins)) = (last, begins)
            && begins <= ends
        {
            let (begins, ends) = (display_utc(begins), display_utc(ends));
            return Err(Error::Overlap { earlier: last_path, later: summary.path, begins, ends });
        }
        if !bars.is_empty() {
            last_path.clone_from(&summary.path);
        }
        for_each_bar(&bars, |bar| {
            last = Some(bar.open_time);
            whole.push(bar)
        })?;
        files.push(summary);
    }
    let last_times = files.iter().filter_map(|file| file.last_open_time).collect();
    Ok(JoinedFiles { bars: whole.finish()?, files, last_times })
}
