use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::bars::Bars;
use crate::error::{Error, Result};
use crate::format::FormatName;
use crate::gaps::Gaps;
use crate::source::{Clock, Source};
use crate::spacing::Spacings;
use crate::summary::{FileSummary, ReadSummary};
use crate::symbol::symbol_of;
use crate::timeframe::Timeframe;
use crate::timestamp::{Stamp, display_utc};
use crate::trouble::OnError;
use crate::weekly_close::{WeekEnds, ZoneChoice};
use crate::zone::Zone;

/// Closes of neighbouring bars that differ by this factor look like a share split that prices were not adjusted for.
const JUMP_FACTOR_MIN: f64 = 1.5;

/// Which end of its bar a timestamp stands for. Every known format stamps the open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StampedAt {
    /// The bar opens at its timestamp.
    #[default]
    Open,
    /// The bar closes at its timestamp.
    Close,
}

/// How files are read. By default everything is told from their content.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The format; recognised when `None`.
    pub format: Option<FormatName>,
    /// The clock of timestamps without offset. When `None`: UTC for ISO timestamps; for the other formats the clock on
    /// which the weeks close on Friday at 17:00 in New York. An offset in the file always counts.
    pub zone: Option<Zone>,
    /// Which end of the bar is stamped.
    pub stamped_at: StampedAt,
    /// The timeframe of the bars; the commonest spacing when `None`.
    pub base: Option<Timeframe>,
    /// What to do with rows that cannot be used.
    pub on_error: OnError,
    /// The symbol; told from the files' names when `None`.
    pub symbol: Option<String>,
}

/// The bars of one symbol, and an account of how they were read.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The symbol.
    pub symbol: String,
    /// The bars.
    pub bars: Bars,
    /// How they were read.
    pub summary: ReadSummary,
}

/// Reads the bars of one symbol from one or more CSV files, plain or compressed with gzip, and joins them in order of time.
///
/// Gaps are counted and never filled.
///
/// # Errors
/// [`Error::Open`], [`Error::Read`], [`Error::UnknownFormat`]; [`Error::BadRow`] for the first row that cannot be used,
/// under [`OnError::Fail`]; [`Error::NothingLeft`]; [`Error::UnknownBase`], [`Error::WrongBase`]; [`Error::Overlap`],
/// [`Error::MixedSymbols`] and [`Error::NoFiles`].
pub fn read<P: AsRef<Path>>(paths: &[P], options: &ReadOptions) -> Result<Recording> {
    let symbol = common_symbol(paths, options)?;
    let sources = paths
        .iter()
        .map(|path| Source::read(path.as_ref(), options.format, options.on_error))
        .collect::<Result<Vec<_>>>()?;
    refuse_nothing(&sources)?;

    let mut spacings = Spacings::default();
    sources.iter().for_each(|source| spacings.add(&source.rows));
    let base = spacings.base(options.base)?;
    let stamp_delay_ns = match options.stamped_at {
        StampedAt::Open => 0,
        StampedAt::Close => base.duration_ns(),
    };
    let zones = choose_zones(&sources, options, base.duration_ns() - stamp_delay_ns, base);

    let mut warnings = spacings.warnings(base);
    warnings.extend(zones.values().filter_map(|choice| choice.warning.clone()));
    warnings.extend(sources.iter().filter_map(|source| source_warning(source, options)));
    let mut pieces = Vec::with_capacity(sources.len());
    for source in sources {
        let choice = &zones[&source.format.name];
        pieces.push(Piece::of(source, choice, &Clock { zone: &choice.zone, base, stamp_delay_ns })?);
    }
    let (bars, files) = join(pieces, base)?;
    warnings.extend(jump_warning(&bars));
    let summary = ReadSummary {
        symbol: symbol.clone(),
        base,
        files,
        first_open_time: bars.open_time[0],
        last_close_time: bars.close_time(bars.len() - 1),
        gaps: Gaps::of(&bars),
        warnings,
    };
    Ok(Recording { symbol, bars, summary })
}

/// The bars of one file.
struct Piece {
    bars: Bars,
    summary: FileSummary,
}

impl Piece {
    fn of(source: Source, choice: &ZoneChoice, clock: &Clock<'_>) -> Result<Self> {
        let (path, format, rows) = (source.path.clone(), source.format.name, source.row_count);
        let on_a_wall_clock = source.rows.iter().any(|row| matches!(row.stamp, Stamp::Wall(_)));
        let (zone, zone_why) = match on_a_wall_clock {
            true => (Some(choice.zone.clone()), choice.why.clone()),
            false => (None, "each timestamp has its own offset".to_owned()),
        };
        let (bars, dropped) = source.into_bars(clock)?;
        let summary = FileSummary { path, format, zone, zone_why, rows, kept: bars.len() as u64, dropped };
        Ok(Piece { bars, summary })
    }
}

fn common_symbol<P: AsRef<Path>>(paths: &[P], options: &ReadOptions) -> Result<String> {
    let first = paths.first().ok_or(Error::NoFiles)?.as_ref();
    if let Some(symbol) = &options.symbol {
        return Ok(symbol.clone());
    }
    let symbol = symbol_of(first);
    match paths.iter().map(AsRef::as_ref).find(|path| symbol_of(path) != symbol) {
        None => Ok(symbol),
        Some(second) => Err(Error::MixedSymbols {
            first: first.to_owned(),
            first_symbol: symbol,
            second: second.to_owned(),
            second_symbol: symbol_of(second),
        }),
    }
}

fn refuse_nothing(sources: &[Source]) -> Result<()> {
    if sources.iter().any(|source| !source.rows.is_empty()) {
        return Ok(());
    }
    let first = sources.iter().find_map(|source| source.first_fault.clone()).unwrap_or_else(|| "no rows".to_owned());
    let rows = sources.iter().map(|source| source.row_count).sum();
    Err(Error::NothingLeft { path: sources[0].path.clone(), rows, first })
}

/// One clock a format: the files of a symbol come from one place, and a short file alone does not show its clock.
fn choose_zones(
    sources: &[Source],
    options: &ReadOptions,
    close_delay_ns: i64,
    base: Timeframe,
) -> BTreeMap<FormatName, ZoneChoice> {
    let mut week_ends: BTreeMap<FormatName, WeekEnds> = BTreeMap::new();
    for source in sources {
        let ends = week_ends.entry(source.format.name).or_insert_with(|| WeekEnds::new(base));
        ends.add(&source.rows, close_delay_ns);
    }
    week_ends.into_iter().map(|(format, ends)| (format, ends.choose(format, options.zone.as_ref()))).collect()
}

fn source_warning(source: &Source, options: &ReadOptions) -> Option<String> {
    let path = source.path.display();
    if source.newest_first {
        return Some(format!("{path} is written newest first and was turned round"));
    }
    let zone = options.zone.as_ref()?;
    let has_offset = source.rows.iter().any(|row| matches!(row.stamp, Stamp::Utc(_)));
    has_offset.then(|| {
        format!("the timestamps of {path} have their own offset; the stated zone {zone} was not used for them")
    })
}

fn join(mut pieces: Vec<Piece>, base: Timeframe) -> Result<(Bars, Vec<FileSummary>)> {
    pieces.sort_by_key(|piece| piece.bars.open_time.first().copied());
    let mut whole = Bars::with_capacity(base, pieces.iter().map(|piece| piece.bars.len()).sum());
    let mut files: Vec<FileSummary> = Vec::with_capacity(pieces.len());
    let mut last_path = PathBuf::new();
    for Piece { bars, summary } in pieces {
        if let (Some(&ends), Some(&begins)) = (whole.open_time.last(), bars.open_time.first())
            && begins <= ends
        {
            let (begins, ends) = (display_utc(begins), display_utc(ends));
            return Err(Error::Overlap { earlier: last_path, later: summary.path, begins, ends });
        }
        if !bars.is_empty() {
            last_path.clone_from(&summary.path);
        }
        (0..bars.len()).for_each(|index| whole.push(bars.bar(index)));
        files.push(summary);
    }
    Ok((whole, files))
}

fn jump_warning(bars: &Bars) -> Option<String> {
    let is_jump = |pair: &[f64]| pair[1].max(pair[0]) >= JUMP_FACTOR_MIN * pair[1].min(pair[0]);
    let mut jumps = bars.close.windows(2).enumerate().filter(|(_, pair)| is_jump(pair));
    let (index, pair) = jumps.next()?;
    let more = match jumps.count() {
        0 => String::new(),
        count => format!(" (and {count} more)"),
    };
    let when = display_utc(bars.open_time[index + 1]);
    Some(format!(
        "the price goes from {} to {} at {when}{more}: a split that prices were not adjusted for?",
        pair[0], pair[1]
    ))
}
