use crate::unknown_name::UnknownName;
use std::fmt;
use std::str::FromStr;

/// Target predicted for each of the next base bars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetKind {
    /// close\[t + k\] - close\[t\]: the change from now, in pips.
    #[default]
    Cumulative,
    /// close\[t + k\] - close\[t + k - 1\]: the change within that bar, in pips.
    Increment,
    /// ln(close\[t + k\] / close\[t\]): the log return from now, which is the same of a share at
    /// any price.
    LogReturn,
}

impl TargetKind {
    /// Every kind.
    pub const ALL: [TargetKind; 3] = [TargetKind::Cumulative, TargetKind::Increment, TargetKind::LogReturn];

    /// The name in configurations and files: `cumulative`, `increment` or `log_return`.
    pub const fn name(self) -> &'static str {
        match self {
            TargetKind::Cumulative => "cumulative",
            TargetKind::Increment => "increment",
            TargetKind::LogReturn => "log_return",
        }
    }
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TargetKind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        TargetKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let expected = "cumulative, increment or log_return".to_owned();
            UnknownName::new("kind of target", name, expected)
        })
    }
}

/// Computation of targets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Horizon {
    pub(crate) kind: TargetKind,
    /// Number of future bars K.
    pub(crate) len: usize,
    pub(crate) pip_size: f64,
}

impl Horizon {
    /// Adds the targets of the samples at the given places: `[samples, K]`.
    ///
    /// # Panics
    /// When a sample has fewer than K closes after it.
    pub(crate) fn extend(&self, targets: &mut Vec<f32>, close: &[f64], samples: impl Iterator<Item = usize>) {
        let &Horizon { kind, len, pip_size } = self;
        for t in samples {
            let future = &close[t..=t + len];
            let now = future[0];
            let next = &future[1..];
            match kind {
                TargetKind::Cumulative => targets.extend(next.iter().map(|then| ((then - now) / pip_size) as f32)),
                TargetKind::Increment => {
                    let changes = next.iter().zip(future).map(|(then, before)| ((then - before) / pip_size) as f32);
                    targets.extend(changes);
                }
                TargetKind::LogReturn => targets.extend(next.iter().map(|then| (then / now).ln() as f32)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_in_pips_and_returns_are_not() {
        let close = [1.0, 1.5, 1.25, 2.0, 2.0];
        let returns = [1.5f64, 1.25, 1.6, 1.6].map(|ratio| ratio.ln() as f32);
        for (kind, expected) in [
            (TargetKind::Cumulative, [9.0, 2.0, 1.0, 3.0, 3.0]),
            (TargetKind::Increment, [9.0, 2.0, -1.0, 3.0, 0.0]),
            (TargetKind::LogReturn, [9.0, returns[0], returns[1], returns[2], returns[3]]),
        ] {
            let mut targets = vec![9.0];
            Horizon { kind, len: 2, pip_size: 0.25 }.extend(&mut targets, &close, [0, 2].into_iter());
            assert_eq!(targets, expected, "{kind}");
        }
    }

    #[test]
    #[should_panic(expected = "range end index")]
    fn a_sample_without_a_full_horizon_is_a_bug() {
        let horizon = Horizon { kind: TargetKind::Cumulative, len: 2, pip_size: 1.0 };
        horizon.extend(&mut Vec::new(), &[1.0, 1.0], [0].into_iter());
    }

    #[test]
    fn names_are_read_back() {
        for kind in TargetKind::ALL {
            assert_eq!(kind.to_string().parse::<TargetKind>().unwrap(), kind);
        }
        assert!("total".parse::<TargetKind>().is_err());
    }
}
