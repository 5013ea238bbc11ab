//! Clocks of files that are read together.

use std::collections::BTreeMap;

use crate::clean::weekly_close::{WeekEnds, ZoneChoice};
use crate::parse::bar_file::BarFile;
use crate::parse::format_name::FormatName;
use crate::parse::options::ReadOptions;
use crate::time::timeframe::Timeframe;

/// One clock a file. Files of one format come from one vendor, and a short file alone does not
/// reveal its clock. So all files of a format share one clock, except those that clearly show
/// another. The zone of the options was stated, or is chosen for the reason `zone_why`; a zone in a
/// header counts before one that is chosen.
pub(super) fn choose_zones(
    sources: &[BarFile],
    options: &ReadOptions,
    close_delay_ns: i64,
    base: Timeframe,
    zone_why: Option<&str>,
) -> Vec<ZoneChoice> {
    let stated = options.zone_or_fallback();
    let week_ends = |source: &BarFile| {
        let mut ends = WeekEnds::new(base);
        ends.add(source.rows.stamps().filter(|stamp| !source.quiet.contains(*stamp)), close_delay_ns);
        FormatWeekEnds { format: source.format.name, ends }
    };
    let files: Vec<FormatWeekEnds> = sources.iter().map(week_ends).collect();
    let common = common_choices(files.iter(), options, base);
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
    let mut common = common_choices(others, options, base);
    if let Some(why) = zone_why {
        common.values_mut().for_each(|choice| why.clone_into(&mut choice.why));
    }
    own.into_iter().zip(&files).map(|(own, file)| own.unwrap_or_else(|| common[&file.format].clone())).collect()
}

/// The weekends of one file.
struct FormatWeekEnds {
    format: FormatName,
    ends: WeekEnds,
}

/// The clock of the files of each format.
fn common_choices<'a>(
    files: impl Iterator<Item = &'a FormatWeekEnds>,
    options: &ReadOptions,
    base: Timeframe,
) -> BTreeMap<FormatName, ZoneChoice> {
    let mut together: BTreeMap<FormatName, WeekEnds> = BTreeMap::new();
    for file in files {
        together.entry(file.format).or_insert_with(|| WeekEnds::new(base)).extend(&file.ends);
    }
    let choice = |format: FormatName, ends: &WeekEnds| {
        ends.choose_after(format, options.zone_or_fallback(), options.known_zones.get(&format))
    };
    together.into_iter().map(|(format, ends)| (format, choice(format, &ends))).collect()
}
