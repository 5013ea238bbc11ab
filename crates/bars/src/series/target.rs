use crate::bars::Bars;
use crate::series::column_feature::PREFIX;
use crate::unknown_name::UnknownName;
use std::fmt;
use std::str::FromStr;

/// Targets of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TargetKind {
    /// close\[t + k\] - close\[t\]: the change from now, in pips.
    #[default]
    Cumulative,
    /// close\[t + k\] - close\[t + k - 1\]: the change within that bar, in pips.
    Increment,
    /// ln(close\[t + k\] / close\[t\]): the log return from now, which is the same of a share at
    /// any price.
    LogReturn,
    /// `column:NAME`, or several of them: the values of columns in the bar at whose close a sample
    /// stands, decided by the bars of the horizon after it. One that has no value is not known.
    Columns(Vec<String>),
}

impl TargetKind {
    /// Every kind that is computed from prices, for each of the next base bars.
    pub const ALL: [TargetKind; 3] = [TargetKind::Cumulative, TargetKind::Increment, TargetKind::LogReturn];

    /// The columns of the bars that are targets.
    pub fn columns(&self) -> &[String] {
        if let TargetKind::Columns(names) = self { names } else { &[] }
    }
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetKind::Cumulative => f.pad("cumulative"),
            TargetKind::Increment => f.pad("increment"),
            TargetKind::LogReturn => f.pad("log_return"),
            TargetKind::Columns(names) => {
                let written: Vec<String> = names.iter().map(|name| format!("{PREFIX}{name}")).collect();
                f.pad(&written.join(","))
            }
        }
    }
}

impl FromStr for TargetKind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let columns: Option<Vec<String>> =
            name.split(',').map(|name| name.trim().strip_prefix(PREFIX).map(str::to_owned)).collect();
        if let Some(columns) = columns.filter(|columns| columns.iter().all(|name| !name.is_empty())) {
            return Ok(TargetKind::Columns(columns));
        }
        TargetKind::ALL.into_iter().find(|kind| kind.to_string() == name).ok_or_else(|| {
            let expected = format!("cumulative, increment or log_return, or column:{name} for the column of the bars");
            UnknownName::new("kind of target", name, expected)
        })
    }
}

/// Computation of targets.
#[derive(Clone, Debug)]
pub(crate) struct Horizon {
    pub(crate) kind: TargetKind,
    /// Place of the first target among the columns of the bars, if targets are columns.
    pub(crate) first_column: usize,
    /// Number of future bars K.
    pub(crate) len: usize,
    pub(crate) pip_size: f64,
}

impl Horizon {
    /// Adds the targets of the samples at the given places: `[samples, K]`.
    ///
    /// # Panics
    /// When a sample has fewer than K bars after it.
    pub(crate) fn extend(&self, targets: &mut Vec<f32>, bars: &Bars, samples: impl Iterator<Item = usize>) {
        let &Horizon { ref kind, first_column, len, pip_size } = self;
        for t in samples {
            let future = &bars.close[t..=t + len];
            let now = future[0];
            let next = &future[1..];
            match kind {
                TargetKind::Cumulative => targets.extend(next.iter().map(|then| ((then - now) / pip_size) as f32)),
                TargetKind::Increment => {
                    let changes = next.iter().zip(future).map(|(then, before)| ((then - before) / pip_size) as f32);
                    targets.extend(changes);
                }
                TargetKind::LogReturn => targets.extend(next.iter().map(|then| (then / now).ln() as f32)),
                TargetKind::Columns(_) => targets.extend(bars.columns[first_column..].iter().map(|own| own[t] as f32)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Bar;
    use crate::time::timeframe::Timeframe;

    /// Bars of these closes, with two columns.
    fn bars(closes: &[f64]) -> Bars {
        let mut bars = Bars::with_capacity(Timeframe::M1, 0);
        for (open_time, &close) in (0..).zip(closes) {
            let columns = Box::new([-1.0, open_time as f64]);
            bars.push(Bar { open_time, close, columns, ..Bar::default() });
        }
        bars
    }

    #[test]
    fn changes_are_in_pips_and_returns_are_not() {
        let bars = bars(&[1.0, 1.5, 1.25, 2.0, 2.0]);
        let returns = [1.5f64, 1.25, 1.6, 1.6].map(|ratio| ratio.ln() as f32);
        for (kind, expected) in [
            (TargetKind::Cumulative, &[9.0, 2.0, 1.0, 3.0, 3.0][..]),
            (TargetKind::Increment, &[9.0, 2.0, -1.0, 3.0, 0.0]),
            (TargetKind::LogReturn, &[9.0, returns[0], returns[1], returns[2], returns[3]]),
            (TargetKind::Columns(vec!["y".to_owned()]), &[9.0, 0.0, 2.0]),
        ] {
            let mut targets = vec![9.0];
            let horizon = Horizon { kind, first_column: 1, len: 2, pip_size: 0.25 };
            horizon.extend(&mut targets, &bars, [0, 2].into_iter());
            assert_eq!(targets, expected, "{}", horizon.kind);
        }
    }

    #[test]
    #[should_panic(expected = "range end index")]
    fn a_sample_without_a_full_horizon_is_a_bug() {
        let horizon = Horizon { kind: TargetKind::Cumulative, first_column: 0, len: 2, pip_size: 1.0 };
        horizon.extend(&mut Vec::new(), &bars(&[1.0, 1.0]), [0].into_iter());
    }

    #[test]
    fn names_are_read_back() {
        let columns = TargetKind::Columns(vec!["y".to_owned(), "label 2".to_owned()]);
        assert_eq!(columns.to_string(), "column:y,column:label 2");
        for kind in TargetKind::ALL.into_iter().chain([columns]) {
            assert_eq!(kind.to_string().parse::<TargetKind>().unwrap(), kind);
        }
        for wrong in ["total", "column:", "column:y,cumulative"] {
            let error = wrong.parse::<TargetKind>().unwrap_err().to_string();
            assert!(error.contains("cumulative, increment or log_return, or column:"), "{error}");
        }
    }
}
