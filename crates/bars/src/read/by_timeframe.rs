//! Files of one symbol, sorted by the timeframe of their bars.

use std::collections::BTreeMap;

use crate::clean::grid::settle_off_grid;
use crate::clean::midnights::Midnights;
use crate::clean::spacing::Spacings;
use crate::error::{Error, Result};
use crate::parse::bar_file::BarFile;
use crate::parse::symbol::timeframe_of;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{RowTime, display_duration};

/// A warning of a date alone, which may be that of a day.
pub(super) fn date_taken_for_midnight(line: u64, base: Timeframe) -> String {
    format!(
        "line {line} has a date without a time of day: it is taken for the {base} bar at 00:00, and not for that of the day"
    )
}

/// A file and the distances of its rows.
pub(super) struct SpacedFile {
    pub(super) file: BarFile,
    pub(super) spacings: Spacings,
    /// Timeframe in the file's name.
    named: Option<Timeframe>,
}

impl SpacedFile {
    fn new(file: BarFile, symbol: &str) -> Self {
        let mut spacings = Spacings::default();
        spacings.add(&file.rows);
        let are_days = spacings.base(None).is_ok_and(|base| base == Timeframe::D1);
        // Days of which one carries a time of day are days all the same.
        if are_days
            && !spacings.are_multiples_of(Timeframe::D1)
            && let Some(midnights) = Midnights::told_by(|| file.rows.stamps())
        {
            spacings = Spacings::default();
            spacings.add_times(midnights.day_times(file.rows.iter()));
        }
        let named = timeframe_of(&file.path, symbol);
        SpacedFile { file, spacings, named }
    }

    /// Timeframe of the bars, where they are evidently not of `base`, by their spacing or the
    /// file's name.
    fn other_than(&self, base: Timeframe) -> Result<Option<Timeframe>> {
        let Some(spacing_ns) = self.spacings.evidently_shorter(base) else { return Ok(self.longer_than(base)) };
        match Timeframe::from_duration_ns(spacing_ns) {
            Some(shorter) if base.is_multiple_of(shorter) => Ok(Some(shorter)),
            _ => Err(self.shorter_than(base)),
        }
    }

    /// Timeframe of the bars, where they are evidently longer than `base`, by their spacing or the
    /// file's name.
    fn longer_than(&self, base: Timeframe) -> Option<Timeframe> {
        let is_other = |named: &Timeframe| *named != base && self.spacings.fits(*named);
        self.spacings.evidently_longer(base).or_else(|| self.named.filter(is_other))
    }

    /// Refuses bars of months among shorter ones of `base`.
    fn refuse_months(&self, base: Timeframe) -> Result<()> {
        let is_named = self.named.is_some_and(Timeframe::is_calendar_month);
        // Weeks with holes may be a month apart.
        let longest = if is_named { Timeframe::MN1 } else { Timeframe::W1 };
        let are_months = self.spacings.may_be_months(is_named) && base < longest;
        match self.file.rows.iter().next().filter(|_| are_months) {
            Some(row) => Err(Error::LongerBars {
                path: self.file.path.clone(),
                line: row.line,
                found: "its bars are of months",
                base,
                fix: "leave the file out, and have months made of shorter bars",
            }),
            None => Ok(()),
        }
    }

    /// Leaves the timeframe of days or weeks of which most are a month apart to the file's name.
    fn believe_name(&mut self) {
        let is_told =
            |named: Timeframe| matches!(named, Timeframe::D1 | Timeframe::W1) && self.spacings.may_be_few_of(named);
        if self.named.is_some_and(is_told) {
            self.spacings = Spacings::default();
        }
    }

    /// Time of the row that is the only one of its file, and a date alone.
    fn only_date(&self) -> Option<RowTime> {
        let date = self.file.midnight_form.first_date.map(|(date, _)| date);
        date.filter(|_| self.file.rows.len() == 1)
    }

    /// Refuses dates alone that are no midnights of `series`. A warning of a single one that may be
    /// a day.
    fn check_dates(&self, series: &SeriesMidnights, base: Timeframe) -> Result<Option<String>> {
        let (path, form) = (&self.file.path, &self.file.midnight_form);
        let Some((date, line)) = form.first_date else { return Ok(None) };
        if !form.has_times_of_day && !self.only_date().is_some_and(|own| series.go_on_with(own)) {
            return Err(Error::dates_alone(path, line, base));
        }
        if form.has_written_midnights {
            return Err(Error::date_beside_midnights(path, line, base));
        }
        let next_ns = date.ns() + base.duration_ns();
        let is_next = |stamp: RowTime| stamp.is_on_the_clock_of(date) && stamp.ns() == next_ns;
        if form.dates > 1 || self.file.rows.stamps().any(is_next) {
            return Ok(None);
        }
        if series.are_written {
            return Err(Error::date_beside_midnights(path, line, base));
        }
        Ok(Some(format!("{}: {}", path.display(), date_taken_for_midnight(line, base))))
    }

    /// The file without single rows off the grid of `base`.
    pub(super) fn on_grid(mut self, base: Timeframe) -> Result<Self> {
        if !self.spacings.are_multiples_of(base) && settle_off_grid(&mut self.file, base)? {
            self.spacings = Spacings::default();
            self.spacings.add(&self.file.rows);
        }
        Ok(self)
    }

    /// Refusal of bars that are shorter than `stated`.
    fn shorter_than(&self, stated: Timeframe) -> Error {
        let found = match self.spacings.evidently_shorter(stated) {
            Some(spacing_ns) => {
                format!("most of its bars are less than {stated} apart, such as {}", display_duration(spacing_ns))
            }
            None => "its name has a shorter timeframe".to_owned(),
        };
        Error::ShorterBars { path: self.file.path.clone(), found, stated }
    }
}

/// Midnights of the files of one series.
struct SeriesMidnights {
    /// True if a midnight is written with a time of day.
    are_written: bool,
    /// Dates alone that are the only rows of their files and go on with the series.
    going_on: Vec<RowTime>,
}

impl SeriesMidnights {
    /// The midnights of `sources`, whose distances are `spacings`. A date that is the only row of
    /// its file goes on with the series where two of its bars have the time between them that lies
    /// between the date and the bar before it. Some programs write its time as a date alone.
    fn new(sources: &[SpacedFile], spacings: &Spacings) -> Self {
        let are_written = sources.iter().any(|source| source.file.midnight_form.has_written_midnights);
        let mut going_on: Vec<RowTime> = Vec::new();
        for clock in [RowTime::Wall(0), RowTime::Utc(0)] {
            let on_clock = |stamp: &RowTime| stamp.is_on_the_clock_of(clock);
            let dates = sources.iter().filter_map(SpacedFile::only_date).filter(on_clock);
            let mut dates: Vec<RowTime> = dates.collect();
            dates.sort_unstable_by_key(|date| date.ns());
            if dates.is_empty() {
                continue;
            }
            // The last row before each date, and behind the date before it.
            let mut before: Vec<Option<i64>> = vec![None; dates.len()];
            for stamp in sources.iter().flat_map(|source| source.file.rows.stamps()).filter(on_clock) {
                let place = dates.partition_point(|date| date.ns() <= stamp.ns());
                if let Some(last) = before.get_mut(place) {
                    *last = (*last).max(Some(stamp.ns()));
                }
            }
            let goes_on = |(date, before): &(RowTime, Option<i64>)| {
                before.is_some_and(|before| spacings.have(date.ns() - before))
            };
            let pairs = dates.into_iter().zip(before).filter(goes_on);
            going_on.extend(pairs.map(|(date, _)| date));
        }
        going_on.sort_unstable_by_key(|date| date.ns());
        SeriesMidnights { are_written, going_on }
    }

    /// True if the series goes on with `date`.
    fn go_on_with(&self, date: RowTime) -> bool {
        let first = self.going_on.partition_point(|other| other.ns() < date.ns());
        let same = self.going_on[first..].iter().take_while(|other| other.ns() == date.ns());
        same.copied().any(|other| other.is_on_the_clock_of(date))
    }
}

/// Refuses dates alone among bars of `base` where these are shorter than a day, unless they are
/// midnights, and warns of a single one. The distances of all bars are `spacings`.
pub(super) fn check_dates(sources: &mut [SpacedFile], spacings: &Spacings, base: Timeframe) -> Result<()> {
    if base >= Timeframe::D1 {
        return Ok(());
    }
    let series = SeriesMidnights::new(sources, spacings);
    for source in sources {
        let warning = source.check_dates(&series, base)?;
        source.file.warnings.extend(warning);
    }
    Ok(())
}

/// The files of one symbol by the timeframe of their bars.
pub(super) struct ByTimeframe {
    /// Files of the series' bars, and those of unknown timeframe.
    pub(super) series_files: Vec<SpacedFile>,
    pub(super) others: BTreeMap<Timeframe, Vec<SpacedFile>>,
}

impl ByTimeframe {
    /// Sorts files of `symbol` by timeframe; that of the series is the stated one, or the shortest
    /// of the files'. A file that may have bars of a stated one is taken to have them.
    pub(super) fn new(sources: Vec<BarFile>, symbol: &str, stated: Option<Timeframe>) -> Result<Self> {
        let mut sources: Vec<SpacedFile> = sources.into_iter().map(|file| SpacedFile::new(file, symbol)).collect();
        let base = stated.or_else(|| sources.iter().filter_map(|source| source.spacings.only()).min());
        if base.is_some() && sources.iter().any(|source| source.spacings.only() == base) {
            sources.iter_mut().for_each(SpacedFile::believe_name);
        }
        if let Some(base) = base.filter(|_| sources.len() > 1) {
            sources.iter().try_for_each(|source| source.refuse_months(base))?;
        }
        let own_of = |source: &SpacedFile| match (stated, base) {
            (Some(base), _) => source.other_than(base),
            (None, Some(base)) => Ok(source.longer_than(base)),
            (None, None) => Ok(None),
        };
        let own = sources.iter().map(own_of).collect::<Result<Vec<_>>>()?;
        let mut by_timeframe = ByTimeframe { series_files: Vec::new(), others: BTreeMap::new() };
        for (source, own) in sources.into_iter().zip(own) {
            match own.filter(|own| Some(*own) != base) {
                Some(other) => by_timeframe.others.entry(other).or_default().push(source),
                None => by_timeframe.series_files.push(source),
            }
        }
        if by_timeframe.series_files.is_empty() {
            let others = std::mem::take(&mut by_timeframe.others);
            if let (Some(stated), Some((shortest, sources))) = (stated, others.first_key_value())
                && *shortest < stated
            {
                return Err(sources[0].shorter_than(stated));
            }
            // Longer bars alone are refused by their spacing when they are read.
            by_timeframe.series_files = others.into_values().flatten().collect();
        }
        Ok(by_timeframe)
    }
}
