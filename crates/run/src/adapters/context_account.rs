//! How far samples reach back by bars of other instruments, as a series file tells it.

use std::collections::BTreeMap;

use megabatch_bars::ContextReach;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::text::number::seconds;
use crate::text::utc;

/// Reach of other instruments, by symbol.
#[derive(Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ContextAccount(BTreeMap<String, InstrumentReach>);

/// Reach of another instrument over all timeframes.
#[derive(Serialize, Deserialize)]
struct InstrumentReach {
    /// The longest time that a window reaches back by its features from the close of its first bar.
    longest_ns: i64,
    /// When its last bar closes, in the shortest timeframe.
    last_close_time_ns: i64,
}

impl ContextAccount {
    /// Its name in the account of functions.
    pub(crate) const NAME: &str = "context_reach";

    /// Reads `provenance`. Files of earlier versions have none.
    pub(crate) fn read(provenance: &Value) -> Self {
        Self::deserialize(&provenance["functions"][Self::NAME]).unwrap_or_default()
    }

    /// When the last bar of `symbol` closes, in the shortest timeframe.
    pub(crate) fn last_close_time(&self, symbol: &str) -> Option<i64> {
        self.0.get(symbol).map(|own| own.last_close_time_ns)
    }

    /// True without other instruments.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the reach of an instrument in one more timeframe.
    pub(crate) fn add(&mut self, reach: &ContextReach) {
        let (longest_ns, Some(last_close_time_ns)) = (reach.longest_ns(), reach.last_close_time()) else { return };
        let own = InstrumentReach { longest_ns, last_close_time_ns };
        let all = self.0.entry(reach.symbol().to_owned()).or_insert(own);
        all.longest_ns = all.longest_ns.max(longest_ns);
        all.last_close_time_ns = all.last_close_time_ns.min(last_close_time_ns);
    }

    /// A remark for each instrument that makes half or more of `reach_ns`, the longest reach of
    /// samples up to `last_ns`.
    pub(super) fn remarks(&self, reach_ns: i64, last_ns: i64) -> Vec<String> {
        let far = self.0.iter().filter(|(_, own)| own.longest_ns >= reach_ns / 2);
        far.map(|(symbol, own)| {
            let fix = if own.last_close_time_ns < last_ns { "; give newer bars of it" } else { "" };
            format!(
                "bars of the context {symbol}, whose last one closes at {}, are up to {} of that{fix}",
                utc(own.last_close_time_ns),
                seconds(own.longest_ns as f64 / 1e9)
            )
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DAY_NS: i64 = 86_400_000_000_000;

    #[test]
    fn instruments_that_reach_far_are_named() {
        let mut account = ContextAccount::default();
        for days in [[3, 4], [2, 6]] {
            let opens = days.map(|day| (day - 1) * DAY_NS).to_vec();
            account.add(&ContextReach::new("DXY".to_owned(), days.map(|day| day * DAY_NS).to_vec(), opens));
        }
        let provenance = json!({ "functions": { "context_reach": account } });
        let account = ContextAccount::read(&provenance);
        let said = "bars of the context DXY, whose last one closes at 1970-01-05 00:00 UTC, are up to 5 d 0 h of that";
        assert_eq!(account.remarks(10 * DAY_NS, 4 * DAY_NS), [said]);
        assert_eq!(account.remarks(10 * DAY_NS, 5 * DAY_NS), [format!("{said}; give newer bars of it")]);
        assert!(account.remarks(11 * DAY_NS, 5 * DAY_NS).is_empty());
        assert!(ContextAccount::read(&Value::Null).is_empty());
    }
}
