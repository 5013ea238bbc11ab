//! Account of the functions of a series, in its file and in reports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use megabatch_bars::{ContextReach, ContextTiming, FunctionProof, Timeframe};
use serde_json::{Value, json};

use super::context_timing::{CONTEXT, CONTEXT_TIMING, remedy_of_other_timing, timing_json};
use super::function_inputs::{changed_context, changed_functions};
use crate::adapters::context_account::ContextAccount;
use crate::error::{Error, Result};
use crate::text::{plural, utc};

/// Name of the numbers of bars of other instruments in the account of functions. Files of earlier
/// versions have none, nor has context in frames.
pub(super) const CONTEXT_BARS: &str = "context_bars";
/// Instruments that a report names one by one.
const NAMED_MAX: usize = 8;

/// Functions of a series, and the bars that their columns cost.
#[derive(Default)]
pub(crate) struct FunctionAccount {
    /// Columns of features, and the function of each.
    pub(super) columns: Vec<(String, String)>,
    /// Columns of targets, and whether the ends of labels come with them.
    pub(super) targets: Option<(Vec<String>, bool)>,
    /// Library of the frames in which they get bars.
    pub(super) frames: String,
    /// Fingerprints of the functions' sources, by name.
    pub(super) fingerprints: BTreeMap<String, String>,
    /// Timing of other instruments.
    pub(super) timing: ContextTiming,
    /// Bars of other instruments that are in files, by symbol.
    pub(super) context_bars: BTreeMap<String, usize>,
    /// Reach of other instruments.
    pub(super) context_reach: ContextAccount,
    /// The same by timeframe.
    pub(super) reach: Arc<BTreeMap<Timeframe, Vec<ContextReach>>>,
    /// Bars of the warm-up, by symbol.
    pub(super) warm_up: BTreeMap<String, usize>,
    /// Bars of the warm-up of each function, by symbol.
    pub(super) warm_up_by_function: BTreeMap<String, BTreeMap<String, usize>>,
    /// Bars that were dropped because a function gave no value.
    pub(super) without_value: BTreeMap<String, usize>,
    /// Replayed calls.
    pub(super) proof: FunctionProof,
}

impl FunctionAccount {
    /// Columns of features and targets.
    pub(super) fn names(&self) -> Vec<&str> {
        let features = self.columns.iter().map(|(name, _)| name.as_str());
        features.chain(self.targets.iter().flat_map(|(names, _)| names.iter().map(String::as_str))).collect()
    }

    /// Account of functions that a file keeps.
    pub(crate) fn provenance(&self) -> Value {
        let mut json =
            json!({ "frames": self.frames, "fingerprints": self.fingerprints, "warm_up_bars": self.warm_up });
        if self.fingerprints.keys().any(|name| name.starts_with(CONTEXT)) {
            json[CONTEXT_TIMING] = timing_json(&self.timing);
        }
        if !self.context_bars.is_empty() {
            json[CONTEXT_BARS] = json!(self.context_bars);
        }
        if !self.context_reach.is_empty() {
            json[ContextAccount::NAME] = json!(self.context_reach);
        }
        json
    }

    /// Functions whose source is another one than `provenance`, the account in a file, has.
    pub(crate) fn changed(&self, provenance: &Value) -> Vec<String> {
        changed_functions(provenance, &self.fingerprints)
    }

    /// Other instruments whose bars are others than those that the series with the account
    /// `provenance` was made with.
    pub(crate) fn changed_context(&self, provenance: &Value) -> BTreeSet<String> {
        changed_context(provenance, &self.fingerprints)
    }

    /// Refuses bars of other instruments that begin later than those of the series at `path`, whose
    /// account is `provenance`.
    ///
    /// # Errors
    /// A data error that asks for all their bars.
    pub(crate) fn require_whole_context(&self, provenance: &Value, path: &Path) -> Result<()> {
        let mut context: Vec<String> = self.changed_context(provenance).into_iter().collect();
        if context.is_empty() || !self.changed(provenance).is_empty() {
            return Ok(());
        }
        let then = &provenance["functions"]["warm_up_bars"];
        let is_more = |symbol: &str, bars: usize| then[symbol].as_u64().is_some_and(|then| bars as u64 > then);
        let begins_later = |(symbol, bars): &(&String, &usize)| is_more(symbol, **bars);
        let Some((symbol, &bars)) = self.warm_up.iter().find(begins_later) else { return Ok(()) };
        let warm_ups = self.warm_up_by_function.get(symbol);
        let is_late = |name: &String| {
            let own = warm_ups.and_then(|warm_ups| warm_ups.get(&format!("{CONTEXT}{name}")));
            own.is_some_and(|&bars| is_more(symbol, bars))
        };
        if context.iter().any(is_late) {
            context.retain(is_late);
        }
        let other_times = context.iter().find_map(|symbol| self.other_times(symbol, provenance));
        let remedy = self.remedy_of_other_timing(provenance).or(other_times).unwrap_or_else(|| {
            "give all bars of the other instrument, those of then too, and not only new ones; where these are all, write their times on the clock of then".to_owned()
        });
        Err(Error::data(format!(
            "{CONTEXT}{}: with these bars the first {} of {symbol} have no features, and fewer had none when {} was made; nothing was written: {remedy}",
            context.join(", "),
            plural(bars, "bar"),
            path.display()
        )))
    }

    /// The remedy where bars of `symbol` go on beyond the last one that the series with the account
    /// `provenance` had, and none of them closes with it.
    fn other_times(&self, symbol: &str, provenance: &Value) -> Option<String> {
        let then = ContextAccount::read(provenance).last_close_time(symbol)?;
        let own: Vec<&ContextReach> = self.reach.values().flatten().filter(|own| own.symbol() == symbol).collect();
        let goes_on = own.iter().any(|own| own.first_open_time().is_some_and(|first| first < then));
        (goes_on && !own.iter().any(|own| own.closes_at(then))).then(|| {
            format!(
                "the last bar of {symbol} closed at {}, and no bar closes then now: write its times on the clock of then",
                utc(then)
            )
        })
    }

    /// The remedy where other instruments have another timing than in the series with the account
    /// `provenance`.
    pub(crate) fn remedy_of_other_timing(&self, provenance: &Value) -> Option<String> {
        remedy_of_other_timing(provenance, &self.timing)
    }

    /// Functions, their columns and dropped bars, as a report has them.
    pub(crate) fn facts(&self) -> Value {
        let mut columns: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, function) in &self.columns {
            columns.entry(function).or_default().push(name);
        }
        json!({ "columns": columns, "targets": self.targets.as_ref().map(|(names, _)| names), "warm_up_bars": self.warm_up, "dropped_bars": self.without_value })
    }

    /// The same in words.
    pub(crate) fn text(&self) -> String {
        let is_context = |(_, function): &&(String, String)| function.starts_with(CONTEXT);
        let context = self.columns.iter().filter(is_context).map(|(name, _)| name.as_str());
        let context: Vec<&str> = context.collect();
        let own: Vec<&str> = self.names().into_iter().filter(|name| !context.contains(name)).collect();
        let mut text = String::new();
        for (what, names) in [("columns of functions", own), ("features of other instruments", context)] {
            if !names.is_empty() {
                text.push_str(&format!("{what}: {}\n", names.join(", ")));
            }
        }
        for (what, bars) in [("their warm-up", &self.warm_up), ("without a value", &self.without_value)] {
            let mut some: Vec<String> = bars
                .iter()
                .filter(|(_, count)| **count > 0)
                .map(|(symbol, count)| format!("{symbol} {count}"))
                .collect();
            let more = some.len().saturating_sub(NAMED_MAX);
            some.truncate(NAMED_MAX);
            some.extend((more > 0).then(|| format!("and of {more} more")));
            if !some.is_empty() {
                text.push_str(&format!("bars dropped as {what}: {}\n", some.join(", ")));
            }
        }
        text
    }

    /// Columns and replayed calls, as a proof has them.
    pub(crate) fn proven_facts(&self) -> Value {
        json!({ "columns": self.names(), "calls": self.proof.calls, "cuts": self.proof.cuts })
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::text::DAY_NS;

    /// Missing bars were blamed for times on another clock.
    #[test]
    fn a_context_on_another_clock_is_told_from_a_part_of_it() {
        let reach = |days: Range<i64>, later: i64| {
            let opens: Vec<i64> = days.map(|day| day * DAY_NS + later).collect();
            let closes = opens.iter().map(|time| time + DAY_NS).collect();
            ContextReach::new("DXY".to_owned(), closes, opens)
        };
        let mut then = ContextAccount::default();
        then.add(&reach(0..5, 0));
        let provenance = json!({ "functions": { "context_reach": then } });
        let remedy = |own: ContextReach| {
            let reach = Arc::new(BTreeMap::from([(Timeframe::D1, vec![own])]));
            FunctionAccount { reach, ..FunctionAccount::default() }.other_times("DXY", &provenance)
        };
        assert_eq!([reach(0..9, 0), reach(5..9, 0)].map(remedy), [None, None]);
        let told = remedy(reach(0..9, DAY_NS / 2)).unwrap();
        assert!(told.starts_with("the last bar of DXY closed at 1970-01-06"), "{told}");
        assert!(told.ends_with("no bar closes then now: write its times on the clock of then"), "{told}");
    }
}
