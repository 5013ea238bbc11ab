//! Finding memory that is never given back: live bytes by owner at the same point of successive
//! epochs.

use std::collections::BTreeMap;

use serde::Serialize;

/// Growth that counts as a leak.
///
/// Memory also grows while a run warms up: the optimizer's state is made in its first step, and
/// caches fill. But warm-up ends. Bytes count as growing over the latest
/// epochs in which they never fell, from the first rise on, if they rose in at least `rises_min` of
/// these epochs and in at least every second of them. The first epoch is not compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakRule {
    /// Growth in bytes, of all growing owners together, above which there is a warning.
    pub threshold_bytes: usize,
    /// Rises from one epoch to the next that make growth.
    pub rises_min: usize,
}

impl Default for LeakRule {
    /// More than 100 MB in 3 rises or more.
    fn default() -> Self {
        LeakRule { threshold_bytes: 100_000_000, rises_min: 3 }
    }
}

/// Memory that grew from epoch to epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leak {
    /// Growth of all owners together, in bytes.
    pub growth_bytes: usize,
    /// Owners whose memory grew, the largest growth first.
    pub owners: Vec<Growth>,
}

/// Growth of one owner's live bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Growth {
    /// The label of its scope.
    pub owner: String,
    /// Growth in bytes over all `epochs`.
    pub bytes: usize,
    /// Number of epochs over which it grew.
    pub epochs: usize,
}

impl Growth {
    /// Mean growth in bytes from one epoch to the next.
    pub fn bytes_per_epoch(&self) -> usize {
        self.bytes / self.epochs.max(1)
    }
}

/// Compares the live bytes of each owner from epoch to epoch.
#[derive(Clone, Debug)]
pub struct LeakDetector {
    rule: LeakRule,
    epochs: usize,
    owners: BTreeMap<String, RisingEpochs>,
    /// All owners together. Their sum can grow although no owner does, as with a label that is new
    /// in every epoch.
    total: RisingEpochs,
    /// Bytes of each owner at the first epoch of the stretch of `total`.
    base: BTreeMap<String, usize>,
    /// Growth of the last warning; the next one is given at twice as much.
    warned_bytes: usize,
}

impl LeakDetector {
    /// A detector that has seen nothing.
    pub fn new(rule: LeakRule) -> Self {
        LeakDetector {
            rule,
            epochs: 0,
            owners: BTreeMap::new(),
            total: RisingEpochs::default(),
            base: BTreeMap::new(),
            warned_bytes: 0,
        }
    }

    /// Adds the live bytes of every owner at the end of an epoch; owners that are left out have
    /// none. Returns a leak when its growth passes the threshold, and then each time that it has
    /// doubled.
    pub fn epoch(&mut self, live: impl IntoIterator<Item = (String, usize)>) -> Option<Leak> {
        let live: BTreeMap<String, usize> = live.into_iter().collect();
        self.epochs += 1;
        match self.epochs {
            1 => return None,
            2 => self.begin(live),
            _ => self.compare(&live),
        }
        let leak = self.growing().filter(|leak| leak.growth_bytes > self.rule.threshold_bytes);
        let Some(leak) = leak else {
            self.warned_bytes = 0;
            return None;
        };
        let is_news = leak.growth_bytes >= 2 * self.warned_bytes;
        if is_news {
            self.warned_bytes = leak.growth_bytes;
        }
        is_news.then_some(leak)
    }

    fn begin(&mut self, live: BTreeMap<String, usize>) {
        self.total = RisingEpochs::new(live.values().sum());
        self.owners = live.iter().map(|(owner, &bytes)| (owner.clone(), RisingEpochs::new(bytes))).collect();
        self.base = live;
    }

    fn compare(&mut self, live: &BTreeMap<String, usize>) {
        for owner in live.keys() {
            self.owners.entry(owner.clone()).or_default();
        }
        let before = || self.owners.iter().map(|(owner, stretch)| (owner.clone(), stretch.last_bytes)).collect();
        let total_bytes: usize = live.values().sum();
        if total_bytes < self.total.last_bytes {
            self.base.clone_from(live);
        } else if self.total.rises == 0 {
            self.base = before();
        }
        self.total.go_on(total_bytes);
        for (owner, stretch) in &mut self.owners {
            stretch.go_on(live.get(owner).copied().unwrap_or(0));
        }
    }

    /// Growing owners, whether the growth is large or not.
    fn growing(&self) -> Option<Leak> {
        let each: Vec<Growth> =
            self.owners.iter().filter_map(|(owner, stretch)| stretch.growth(owner, self.rule)).collect();
        let all = self.total.growth("", self.rule).map(|total| self.named(total.epochs)).unwrap_or_default();
        let sum = |growths: &[Growth]| growths.iter().map(|growth| growth.bytes).sum::<usize>();
        let mut owners = if sum(&each) > self.rule.threshold_bytes { each } else { all };
        owners.sort_by_key(|owned| std::cmp::Reverse(owned.bytes));
        (!owners.is_empty()).then(|| Leak { growth_bytes: sum(&owners), owners })
    }

    /// The owners that have more than when the total began to grow.
    fn named(&self, epochs: usize) -> Vec<Growth> {
        let grown = self.owners.iter().map(|(owner, stretch)| {
            let before = self.base.get(owner).copied().unwrap_or(0);
            Growth { owner: owner.clone(), bytes: stretch.last_bytes.saturating_sub(before), epochs }
        });
        grown.filter(|growth| growth.bytes > 0).collect()
    }
}

/// The latest epochs in which bytes never fell, from the first rise on.
#[derive(Clone, Copy, Debug, Default)]
struct RisingEpochs {
    first_bytes: usize,
    last_bytes: usize,
    epochs: usize,
    rises: usize,
}

impl RisingEpochs {
    fn new(bytes: usize) -> Self {
        RisingEpochs { first_bytes: bytes, last_bytes: bytes, ..RisingEpochs::default() }
    }

    fn go_on(&mut self, bytes: usize) {
        if bytes < self.last_bytes {
            *self = RisingEpochs::new(bytes);
            return;
        }
        let has_risen = bytes > self.last_bytes;
        self.rises += usize::from(has_risen);
        self.epochs += usize::from(self.rises > 0);
        self.last_bytes = bytes;
    }

    fn growth(&self, owner: &str, rule: LeakRule) -> Option<Growth> {
        let grows = self.rises >= rule.rises_min.max(1) && 2 * self.rises >= self.epochs;
        let bytes = self.last_bytes - self.first_bytes;
        grows.then(|| Growth { owner: owner.to_owned(), bytes, epochs: self.epochs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Megabytes of owners epoch by epoch, and at which epochs, from 1, there is a warning of how
    /// many megabytes of whom.
    fn check(name: &str, epochs: &[&[(&str, usize)]], expected: &[(usize, &[(&str, usize)])]) {
        let mut detector = LeakDetector::new(LeakRule::default());
        let mut warnings = Vec::new();
        for (k, live) in epochs.iter().enumerate() {
            let live = live.iter().map(|&(owner, megabytes)| (owner.to_owned(), megabytes * 1_000_000));
            if let Some(leak) = detector.epoch(live) {
                assert_eq!(leak.growth_bytes, leak.owners.iter().map(|growth| growth.bytes).sum::<usize>());
                let owners = leak.owners.into_iter().map(|growth| (growth.owner, growth.bytes / 1_000_000));
                warnings.push((k + 1, owners.collect::<Vec<_>>()));
            }
        }
        let own = |owners: &[(&str, usize)]| owners.iter().map(|&(owner, size)| (owner.to_owned(), size)).collect();
        let expected: Vec<(usize, Vec<(String, usize)>)> =
            expected.iter().map(|&(k, owners)| (k, own(owners))).collect();
        assert_eq!(warnings, expected, "{name}");
    }

    #[test]
    fn growth_that_goes_on_is_told_from_warm_up() {
        let one = |sizes: &[usize], expected: &[(usize, &[(&str, usize)])]| {
            let epochs: Vec<[(&str, usize); 2]> = sizes.iter().map(|&size| [("steady", 500), ("a", size)]).collect();
            let epochs: Vec<&[(&str, usize)]> = epochs.iter().map(<[_; 2]>::as_slice).collect();
            check(&format!("{sizes:?}"), &epochs, expected);
        };
        one(&[], &[]);
        one(&[900], &[]);
        one(&[100; 9], &[]);
        // Warm-up: much at first, then nothing more.
        one(&[0, 300, 600, 600, 600, 600, 600, 600], &[]);
        one(&[0, 900, 900, 900], &[]);
        // 50 a epoch from the second on: three rises are seen after the fifth, 100 are passed
        // there.
        one(&[10, 50, 100, 150, 200, 250, 300, 350, 400], &[(5, &[("a", 150)]), (8, &[("a", 300)])]);
        // Exactly the threshold is not above it.
        one(&[0, 0, 25, 50, 100], &[]);
        one(&[0, 0, 25, 50, 101], &[(5, &[("a", 101)])]);
        // Every second epoch is a leak, every third is not.
        one(&[0, 0, 60, 60, 120, 120, 180], &[(7, &[("a", 180)])]);
        one(&[0, 0, 60, 60, 60, 120, 120, 120, 180], &[]);
        // What is given back ends the stretch.
        one(&[0, 0, 60, 120, 0, 60, 120, 0, 60], &[]);
        one(&[0, 0, 400, 100, 150, 200, 260], &[(7, &[("a", 160)])]);
    }

    #[test]
    fn every_growing_owner_is_named_the_most_first() {
        let epochs: Vec<Vec<(&str, usize)>> =
            (0..5).map(|k| vec![("a", 20 * k), ("b", 70 * k), ("c", 900 - 100 * k), ("d", 7)]).collect();
        let epochs: Vec<&[(&str, usize)]> = epochs.iter().map(Vec::as_slice).collect();
        check("together", &epochs, &[(5, &[("b", 210), ("a", 60)])]);
    }

    #[test]
    fn labels_that_are_new_in_every_epoch_are_named_too() {
        let labels = ["e0", "e1", "e2", "e3", "e4"];
        let epochs: Vec<Vec<(&str, usize)>> =
            (0..5).map(|k| labels[..=k].iter().map(|&label| (label, 40)).collect()).collect();
        let epochs: Vec<&[(&str, usize)]> = epochs.iter().map(Vec::as_slice).collect();
        check("new labels", &epochs, &[(5, &[("e2", 40), ("e3", 40), ("e4", 40)])]);
    }

    #[test]
    fn growth_by_epoch_is_a_mean() {
        let growth = Growth { owner: String::new(), bytes: 150, epochs: 3 };
        assert_eq!(growth.bytes_per_epoch(), 50);
    }
}
