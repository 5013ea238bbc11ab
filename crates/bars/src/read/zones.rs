//! Clocks of files that are read together.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::clean::weekly_close::{WeekEnds, ZoneChoice};
use crate::parse::bar_file::BarFile;
use crate::parse::format_name::FormatName;
use crate::parse::options::ReadOptions;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::RowTime;

/// One clock a file. Files of one format come from one vendor, and a short file alone does not
/// reveal its clock. So all files of a format share one clock, which weekends between them show
/// too, except those that clearly show another. The zone of the options was stated, or is chosen
/// for the reason `zone_why`; a zone in a header counts before one that is chosen.
pub(super) fn choose_zones(
    sources: &[BarFile],
    options: &ReadOptions,
    close_delay_ns: i64,
    base: Timeframe,
    zone_why: Option<&str>,
) -> Vec<ZoneChoice> {
    let stated = options.zone_or_fallback();
    let week_ends = |source: &BarFile| {
        let mut span: Option<RangeInclusive<i64>> = None;
        let widen = |stamp: &RowTime| {
            if let RowTime::Wall(ns) = *stamp {
                span = Some(span.take().map_or(ns..=ns, |span| ns.min(*span.start())..=ns.max(*span.end())));
            }
        };
        let stamps = source.rows.stamps().filter(|stamp| !source.quiet.contains(*stamp));
        let mut ends = WeekEnds::new(base);
        ends.add(stamps.inspect(widen), close_delay_ns);
        FormatWeekEnds { format: source.format.name, ends, span }
    };
    let files: Vec<FormatWeekEnds> = sources.iter().map(week_ends).collect();
    let common = common_choices(files.iter(), options, close_delay_ns, base);
    let own: Vec<Option<ZoneChoice>> = files
        .iter()
        .zip(sources)
        .map(|(file, source)| match &source.own_zone {
            Some(own) if own.is_in_rows() || options.zone.is_none() || zone_why.is_some() => {
                let choice = file.ends.choose(file.format, Some(&own.zone));
                Some(ZoneChoice { why: own.why().to_owned(), ..choice })
            }
            _ if stated.is_some() => None,
            _ => file.ends.own_choice(file.format, &common[&file.format].zone),
        })
        .collect();
    let others = files.iter().zip(&own).filter(|(_, own)| own.is_none()).map(|(file, _)| file);
    let mut common = common_choices(others, options, close_delay_ns, base);
    if let Some(why) = zone_why {
        common.values_mut().for_each(|choice| why.clone_into(&mut choice.why));
    }
    own.into_iter().zip(&files).map(|(own, file)| own.unwrap_or_else(|| common[&file.format].clone())).collect()
}

/// The weekends of one file.
struct FormatWeekEnds {
    format: FormatName,
    ends: WeekEnds,
    /// First and last time of its rows on its clock; `None` for days and without such times.
    span: Option<RangeInclusive<i64>>,
}

/// The clock of the files of each format. Files are taken in order of time: a week may end between
/// two of them.
fn common_choices<'a>(
    files: impl Iterator<Item = &'a FormatWeekEnds>,
    options: &ReadOptions,
    close_delay_ns: i64,
    base: Timeframe,
) -> BTreeMap<FormatName, ZoneChoice> {
    let mut files: Vec<&FormatWeekEnds> = files.collect();
    files.sort_by_key(|file| file.span.as_ref().map(|span| *span.start()));
    let mut together: BTreeMap<FormatName, WeekEnds> = BTreeMap::new();
    let mut last_times: BTreeMap<FormatName, i64> = BTreeMap::new();
    for file in files {
        let ends = together.entry(file.format).or_insert_with(|| WeekEnds::new(base));
        if let Some(span) = &file.span {
            let last_ns = last_times.get(&file.format).copied();
            if let Some(last_ns) = last_ns {
                ends.add_pause_between_files(last_ns, *span.start(), close_delay_ns);
            }
            last_times.insert(file.format, last_ns.unwrap_or(i64::MIN).max(*span.end()));
        }
        ends.extend(&file.ends);
    }
    let choice = |format: FormatName, ends: &WeekEnds| {
        ends.choose_after(format, options.zone_or_fallback(), options.known_zones.get(&format))
    };
    together.into_iter().map(|(format, ends)| (format, choice(format, &ends))).collect()
}
