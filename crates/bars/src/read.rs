use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::adjustment::Adjustments;
use crate::bars::Bars;
use crate::error::{Error, Result};
use crate::far_bars;
use crate::format_name::FormatName;
use crate::gaps::Gaps;
use crate::jumps::Jump;
use crate::options::{ReadOptions, StampedAt};
use crate::order::{Clock, in_order};
use crate::source::Source;
use crate::spacing::Spacings;
use crate::spread;
use crate::summary::{BarCounts, FileSummary, ReadSummary};
use crate::timeframe::Timeframe;
use crate::timestamp::{Stamp, display_utc};
use crate::weekly_close::{WeekEnds, ZoneChoice};

/// Jumps that are warned of one by one; the others are counted.
const JUMPS_TOLD: usize = 3;

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

/// Reads the bars of one symbol from one or more CSV files and joins them in order of time.
///
/// The files are plain or compressed with gzip, in UTF-8 or UTF-16. Gaps are counted and never filled.
///
/// # Errors
/// [`Error::Open`], [`Error::Read`], [`Error::TooManyRows`], [`Error::UnknownFormat`], [`Error::UnknownDateOrder`],
/// [`Error::ColumnOrder`], [`Error::NoAdjustedClose`]; [`Error::BadRow`] for a row that cannot be used as it stands, under
/// [`OnError::Fail`](crate::OnError::Fail); [`Error::NothingLeft`]; [`Error::UnknownBase`], [`Error::WrongBase`];
/// [`Error::Overlap`], [`Error::MixedSymbols`] and [`Error::NoFiles`].
pub fn read<P: AsRef<Path>>(paths: &[P], options: &ReadOptions) -> Result<Recording> {
    let symbol = common_symbol(paths, options)?;
    let mut sources = paths.iter().map(|path| Source::read(path.as_ref(), options)).collect::<Result<Vec<_>>>()?;
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
    warnings.extend(sources.iter_mut().filter_map(spread::in_units_of_the_price));
    let mut pieces = Vec::with_capacity(sources.len());
    for source in sources {
        let choice = &zones[&source.format.name];
        let clock = Clock { zone: &choice.zone, base, stamp_delay_ns, repeats: options.repeats };
        pieces.push(Piece::of(source, choice, clock)?);
    }
    let (bars, files) = join(pieces, base)?;
    let summary = ReadSummary::of(&bars, files, symbol.clone(), warnings);
    Ok(Recording { symbol, bars, summary })
}

impl ReadSummary {
    /// What is in the bars, which are at least one.
    pub(crate) fn of(bars: &Bars, files: Vec<FileSummary>, symbol: String, mut warnings: Vec<String>) -> Self {
        let jumps = Jump::all(bars);
        warnings.extend(jumps.iter().take(JUMPS_TOLD).map(ToString::to_string));
        if jumps.len() > JUMPS_TOLD {
            warnings.push(format!("{} more such jumps", jumps.len() - JUMPS_TOLD));
        }
        // A pair has those of its sides already.
        let far = far_bars::warnings(bars).into_iter().filter(|warning| !warnings.contains(warning));
        warnings.extend(far.collect::<Vec<_>>());
        ReadSummary {
            symbol,
            base: bars.timeframe,
            first_open_time: bars.open_time[0],
            last_close_time: bars.close_time(bars.len() - 1),
            bars: BarCounts::of(bars),
            gaps: Gaps::of(bars, files.iter().filter_map(|file| file.zone.clone())),
            jumps,
            pair: None,
            files,
            warnings,
        }
    }
}

/// The bars of one file.
struct Piece {
    bars: Bars,
    summary: FileSummary,
}

impl Piece {
    fn of(source: Source, choice: &ZoneChoice, clock: Clock<'_>) -> Result<Self> {
        let on_a_wall_clock = source.rows.iter().any(|row| matches!(row.stamp, Stamp::Wall(_)));
        let (zone, zone_why) = match on_a_wall_clock {
            true => (Some(choice.zone.clone()), choice.why.clone()),
            false => (None, "each timestamp tells its own offset from UTC".to_owned()),
        };
        let Source { path, format, rows, row_count, preamble, newest_first, mut ledger, .. } = source;
        let bars = in_order(&rows, clock, &mut ledger)?;
        let (dropped, mended) = ledger.close();
        let adjusted = format.columns.adjusted.and_then(|_| Adjustments::of(&rows, &bars, |row| clock.open_time(row)));
        let (format, rows, kept) = (format.name, row_count, bars.len() as u64);
        let summary =
            FileSummary { path, format, zone, zone_why, rows, preamble, newest_first, kept, dropped, mended, adjusted };
        Ok(Piece { bars, summary })
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

fn refuse_nothing(sources: &[Source]) -> Result<()> {
    if sources.iter().any(|source| !source.rows.is_empty()) {
        return Ok(());
    }
    let first = sources.iter().find_map(|source| source.ledger.first_fault()).unwrap_or("no rows").to_owned();
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
