//! The clock of the bins of longer timeframes: one by name, or that of the files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use megabatch_bars::{BinClock, FormatName, ReadSummary, Recording, UnknownName, Zone, listed as listed_names};
use serde_json::Value;

use super::Recipe;
use crate::error::{Error, Result};
use crate::ingest::provenance::{LISTS, listed};

/// Name of [`Bins::Exchange`].
const EXCHANGE: &str = "exchange";

/// Clock at whose multiples of a timeframe bars start that are made from shorter ones.
#[derive(Clone, Debug, PartialEq)]
pub enum Bins {
    /// A clock, whatever that of the files is.
    Clock(BinClock),
    /// The clock of the files, which is known once they are read. No series file has it.
    Exchange,
}

impl Bins {
    /// The clock for bars or ticks whose times are in the stated `zone`.
    ///
    /// # Errors
    /// A usage error for the clock of the files where no zone is stated.
    pub fn in_zone(&self, zone: Option<&Zone>) -> Result<BinClock> {
        match (self, zone) {
            (Bins::Clock(clock), _) => Ok(clock.clone()),
            (Bins::Exchange, Some(zone)) => Ok(zone.to_string().parse()?),
            (Bins::Exchange, None) => Err(no_clock("no zone is stated")),
        }
    }

    /// The clock; UTC for that of files, until it is known.
    pub(super) fn clock(&self) -> BinClock {
        match self {
            Bins::Clock(clock) => clock.clone(),
            Bins::Exchange => BinClock::default(),
        }
    }
}

impl Default for Bins {
    fn default() -> Self {
        Bins::Clock(BinClock::default())
    }
}

impl fmt::Display for Bins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bins::Clock(clock) => clock.fmt(f),
            Bins::Exchange => f.write_str(EXCHANGE),
        }
    }
}

impl FromStr for Bins {
    type Err = UnknownName;

    /// Reads `exchange`, and what [`BinClock`] reads.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        if name.eq_ignore_ascii_case(EXCHANGE) {
            return Ok(Bins::Exchange);
        }
        name.parse().map(Bins::Clock).map_err(|mut error: UnknownName| {
            error.expected.push_str(", or exchange, the clock of the bars' times");
            error
        })
    }
}

/// The error of bins of an exchange whose clock is not known.
fn no_clock(fault: &str) -> Error {
    let fix = "state the zone of the exchange, such as America/New_York, or name a clock in place of exchange, such as new-york+7";
    Error::usage(format!("bins={EXCHANGE}: {fault}; {fix}")).with_field("key", "bins")
}

/// The clocks by which files of bars were read; `None` for times with offsets of their own.
pub(super) type FileClocks = BTreeSet<Option<String>>;

/// The clocks of the files that were read.
pub(super) fn file_clocks<'a>(summaries: impl Iterator<Item = &'a ReadSummary>) -> FileClocks {
    let files = summaries.flat_map(|summary| &summary.files);
    files.map(|file| file.zone.as_ref().map(ToString::to_string)).collect()
}

/// The one clock of all files of a series, by the account of its bars. `None` where these have
/// several, or offsets with their times.
pub(in crate::ingest) fn recorded_clock(provenance: &Value) -> Option<String> {
    let clocks = recorded_clocks(provenance);
    clocks.first().cloned().flatten().filter(|_| clocks.len() == 1)
}

/// The clocks of the files of a series, by the account of its bars.
fn recorded_clocks(provenance: &Value) -> FileClocks {
    read_files(provenance).map(|file| file["zone"].as_str().map(str::to_owned)).collect()
}

/// The clock of the files of each format, by the account of a series. A format whose files have
/// several clocks has none here. Files whose times have offsets do not count.
pub(super) fn recorded_zones(provenance: &Value) -> BTreeMap<FormatName, Zone> {
    let mut clocks: BTreeMap<FormatName, BTreeSet<&str>> = BTreeMap::new();
    for file in read_files(provenance) {
        let format: Option<FormatName> = file["format"].as_str().and_then(|name| name.parse().ok());
        if let (Some(format), Some(zone)) = (format, file["zone"].as_str()) {
            clocks.entry(format).or_default().insert(zone);
        }
    }
    let only = |(format, zones): (FormatName, BTreeSet<&str>)| {
        let zone: Zone = zones.first().filter(|_| zones.len() == 1)?.parse().ok()?;
        Some((format, zone))
    };
    clocks.into_iter().filter_map(only).collect()
}

/// The files whose bars are those of the instruments, in the account of a series.
fn read_files(provenance: &Value) -> impl Iterator<Item = &Value> {
    listed(provenance, LISTS[0]).flat_map(|instrument| listed(instrument, "files"))
}

impl Recipe {
    /// The clock of the bins of bars whose files have `clocks`. That of an exchange is the zone
    /// that was stated, else the one clock of all files.
    ///
    /// # Errors
    /// A usage error where these have several, or none but UTC.
    pub(super) fn bin_clock(&self, clocks: &FileClocks) -> Result<BinClock> {
        if self.bins != Bins::Exchange || self.zone.is_some() {
            return self.bins.in_zone(self.zone.as_ref());
        }
        let told: Vec<String> = clocks.iter().flatten().filter(|clock| *clock != "UTC").cloned().collect();
        let fault = match &told[..] {
            [only] if clocks.len() == 1 => return Ok(only.parse()?),
            [] => "the files tell no clock: their times are UTC, or have offsets of their own".to_owned(),
            [only] => {
                format!("times of some files are {only}, and those of others are UTC or have offsets of their own")
            }
            several => format!("the files have several clocks ({})", listed_names(several)),
        };
        Err(no_clock(&fault))
    }

    /// The recipe with the clock of its bins, of the bars of `recordings`.
    ///
    /// # Errors
    /// As [`Recipe::bin_clock`].
    pub(in crate::ingest) fn with_known_bins(&self, recordings: &[Recording]) -> Result<Self> {
        let clocks = file_clocks(recordings.iter().map(|recording| &recording.summary));
        Ok(Recipe { bins: Bins::Clock(self.bin_clock(&clocks)?), ..self.clone() })
    }

    /// The bins that `given` names for bars beside those of this recipe, of which `provenance` is
    /// the account.
    ///
    /// # Errors
    /// As [`Recipe::bin_clock`].
    pub(in crate::ingest) fn named_bins(&self, given: &Recipe, provenance: &Value) -> Result<Bins> {
        let named = Recipe { bins: given.bins.clone(), ..self.clone() };
        Ok(Bins::Clock(named.bin_clock(&recorded_clocks(provenance))?))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn clock(zone: Option<&str>, files: &[Option<&str>]) -> Result<BinClock> {
        let zone = zone.map(|zone| zone.parse().unwrap());
        let recipe = Recipe { bins: Bins::Exchange, zone, ..Recipe::default() };
        recipe.bin_clock(&files.iter().map(|file| file.map(str::to_owned)).collect())
    }

    #[test]
    fn bins_of_an_exchange_have_the_clock_of_its_files() {
        type Clocks = &'static [Option<&'static str>];
        let cases: [(Option<&str>, Clocks, &str); 5] = [
            (None, &[Some("new-york+7")], "new-york+7"),
            (None, &[Some("Asia/Tokyo"), Some("Asia/Tokyo")], "Asia/Tokyo"),
            (Some("Europe/Berlin"), &[Some("Europe/Berlin")], "Europe/Berlin"),
            // Times that are instants, of an exchange whose zone is stated.
            (Some("chicago+7"), &[None], "chicago+7"),
            (Some("UTC"), &[Some("UTC")], "UTC"),
        ];
        for (zone, files, expected) in cases {
            assert_eq!(clock(zone, files).unwrap().to_string(), expected, "{zone:?} {files:?}");
        }
        let cases: [(Clocks, &str); 4] = [
            (&[None], "bins=exchange: the files tell no clock: their times are UTC, or"),
            (&[Some("UTC")], "the files tell no clock"),
            (&[Some("UTC"), Some("Asia/Tokyo")], "times of some files are Asia/Tokyo, and those of others are UTC"),
            (&[Some("Asia/Tokyo"), Some("Europe/Berlin")], "the files have several clocks (Asia/Tokyo, Europe/Berlin)"),
        ];
        for (files, expected) in cases {
            let error = clock(None, files).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("state the zone"), "{error}");
        }
    }

    #[test]
    fn each_format_has_the_one_clock_of_its_files() {
        let file = |format: &str, zone: Option<&str>| json!({ "format": format, "zone": zone });
        let first = [
            file("metatrader", Some("new-york+7")),
            file("histdata", Some("-05:00")),
            file("metatrader", None),
            file("year-last", None),
        ];
        let second = [
            file("metatrader", Some("new-york+7")),
            file("epoch", Some("UTC")),
            file("epoch", Some("+02:00")),
            file("", Some("UTC")),
        ];
        let zones = recorded_zones(&json!({ "instruments": [{ "files": first }, { "files": second }] }));
        let zones: Vec<(FormatName, String)> = zones.iter().map(|(&format, zone)| (format, zone.to_string())).collect();
        let expected = [(FormatName::HistData, "-05:00"), (FormatName::MetaTrader, "new-york+7")];
        assert_eq!(zones, expected.map(|(format, zone)| (format, zone.to_owned())));
        assert!(recorded_zones(&Value::Null).is_empty());
    }

    #[test]
    fn bins_read_back_as_they_are_named() {
        for name in ["UTC", "exchange", "new-york+7", "Europe/Berlin"] {
            assert_eq!(name.parse::<Bins>().unwrap().to_string(), name);
        }
        let error = "broker".parse::<Bins>().unwrap_err().to_string();
        assert!(error.ends_with(", or exchange, the clock of the bars' times"), "{error}");
    }
}
