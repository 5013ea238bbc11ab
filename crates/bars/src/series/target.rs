use crate::bars::Bars;
use crate::series::column_feature::PREFIX;
use crate::series::feature::FUNCTION;
use crate::series::rolling::Smoothed;
use crate::series::triple_barrier::{BarrierUnit, TRIPLE_BARRIER, TripleBarrier};
use crate::unknown_name::UnknownName;
use std::fmt;
use std::str::FromStr;

/// Targets of a sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TargetKind {
    /// close\[t + k\] - close\[t\]: the change from now, in pips.
    #[default]
    Cumulative,
    /// close\[t + k\] - close\[t + k - 1\]: the change within that bar, in pips.
    Increment,
    /// ln(close\[t + k\] / close\[t\]): the log return from now, which is the same of a share at
    /// any price.
    LogReturn,
    /// `column:NAME` or `function:NAME`, or several of them: the values of columns in the bar at
    /// whose close a sample stands, decided by the bars of the horizon after it. One that has no
    /// value is not known.
    Columns(ColumnTargets),
    /// `triple_barrier:UP:DOWN:UNIT`: the class -1, 0 or 1 of the price that is reached first.
    TripleBarrier(TripleBarrier),
}

/// Targets that are columns of the bars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnTargets {
    /// Names in the header, or those that a function gave.
    pub names: Vec<String>,
    /// Column of the times of the bars that decide them; the horizon does where there is none.
    pub label_end: Option<String>,
    /// Origin of the columns.
    pub origin: TargetOrigin,
}

/// Origin of the columns that are targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetOrigin {
    /// The bars' files.
    #[default]
    Files,
    /// A function of the user, see [`BarFunctions`](crate::BarFunctions).
    Function,
}

impl TargetOrigin {
    const ALL: [TargetOrigin; 2] = [TargetOrigin::Files, TargetOrigin::Function];

    /// Begins the name of a target.
    fn prefix(self) -> &'static str {
        match self {
            TargetOrigin::Files => PREFIX,
            TargetOrigin::Function => FUNCTION,
        }
    }
}

impl TargetKind {
    /// Every kind that is computed from prices, for each of the next base bars.
    pub const ALL: [TargetKind; 3] = [TargetKind::Cumulative, TargetKind::Increment, TargetKind::LogReturn];

    /// The columns of the bars that are targets.
    pub fn columns(&self) -> &[String] {
        if let TargetKind::Columns(targets) = self { &targets.names } else { &[] }
    }

    /// The targets that are columns of the bars' files.
    pub fn file_columns(&self) -> &[String] {
        if self.is_function() { &[] } else { self.columns() }
    }

    /// True for targets that a function gave.
    pub fn is_function(&self) -> bool {
        matches!(self, TargetKind::Columns(ColumnTargets { origin: TargetOrigin::Function, .. }))
    }

    /// The column of the bars that decide the targets.
    pub fn label_end(&self) -> Option<&String> {
        if let TargetKind::Columns(targets) = self { targets.label_end.as_ref() } else { None }
    }
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetKind::Cumulative => f.pad("cumulative"),
            TargetKind::Increment => f.pad("increment"),
            TargetKind::LogReturn => f.pad("log_return"),
            TargetKind::Columns(targets) => {
                let prefix = targets.origin.prefix();
                let written: Vec<String> = targets.names.iter().map(|name| format!("{prefix}{name}")).collect();
                f.pad(&written.join(","))
            }
            TargetKind::TripleBarrier(barrier) => f.pad(&barrier.to_string()),
        }
    }
}

impl FromStr for TargetKind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        for origin in TargetOrigin::ALL {
            let column = |name: &str| name.trim().strip_prefix(origin.prefix()).map(str::to_owned);
            let names: Option<Vec<String>> = name.split(',').map(column).collect();
            if let Some(names) = names.filter(|names| names.iter().all(|name| !name.is_empty())) {
                return Ok(TargetKind::Columns(ColumnTargets { names, label_end: None, origin }));
            }
        }
        if name.starts_with(TRIPLE_BARRIER) {
            return name.parse().map(TargetKind::TripleBarrier).map_err(|()| {
                let expected = "triple_barrier:UP:DOWN:UNIT with two numbers above 0 and return, pips or atr";
                UnknownName::new("kind of target", name, expected.to_owned())
            });
        }
        TargetKind::ALL.into_iter().find(|kind| kind.to_string() == name).ok_or_else(|| {
            let expected = format!(
                "cumulative, increment, log_return or {TRIPLE_BARRIER}UP:DOWN:UNIT, or {PREFIX}{name} for the column of the bars"
            );
            UnknownName::new("kind of target", name, expected)
        })
    }
}

/// Computation of the targets of a segment's samples, a piece of bars at a time.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    kind: TargetKind,
    /// Place of the first target among the columns of the bars, if targets are columns.
    first_column: usize,
    /// Number of future bars.
    horizon: usize,
    pip_size: f64,
    /// Mean of the true range, and the last close that it has seen.
    true_range: Smoothed,
    last_close: Option<f64>,
    /// The mean at each bar of the piece.
    ranges: Vec<f64>,
}

impl Labels {
    /// Targets of `kind`; if they are columns, the first is that at place `first_column`.
    pub(crate) fn new(kind: TargetKind, first_column: usize, horizon: usize, pip_size: f64) -> Self {
        let (true_range, last_close, ranges) = (Smoothed::wilder(14), None, Vec::new());
        Labels { kind, first_column, horizon, pip_size, true_range, last_close, ranges }
    }

    /// Forgets all bars: a segment begins.
    pub(crate) fn restart(&mut self) {
        (self.true_range, self.last_close) = (Smoothed::wilder(14), None);
    }

    /// Takes the first `count` of `bars`, whose horizon follows them. Adds the targets of the
    /// samples at the places `samples` among these, `[samples, K]`, and the close times of the bars
    /// that decide them.
    ///
    /// # Panics
    /// When a sample has fewer bars after it.
    pub(crate) fn extend(
        &mut self,
        bars: &Bars,
        count: usize,
        samples: &[usize],
        targets: &mut Vec<f32>,
        label_end_time: &mut Vec<i64>,
    ) {
        self.take_ranges(bars, count);
        let &mut Labels { ref kind, first_column, horizon, pip_size, ref ranges, .. } = self;
        for &t in samples {
            let future = &bars.close[t..=t + horizon];
            let now = future[0];
            let next = &future[1..];
            let mut end = bars.close_time(t + horizon);
            match kind {
                TargetKind::Cumulative => targets.extend(next.iter().map(|then| ((then - now) / pip_size) as f32)),
                TargetKind::Increment => {
                    let changes = next.iter().zip(future).map(|(then, before)| ((then - before) / pip_size) as f32);
                    targets.extend(changes);
                }
                TargetKind::LogReturn => targets.extend(next.iter().map(|then| (then / now).ln() as f32)),
                TargetKind::Columns(columns) => {
                    let (values, after) = bars.columns[first_column..].split_at(columns.names.len());
                    let stated = columns.label_end.as_ref().map(|_| after[0][t]);
                    // Where nobody says when a target is known, it is not.
                    let is_known = !stated.is_some_and(f64::is_nan);
                    targets.extend(values.iter().map(|own| if is_known { own[t] as f32 } else { f32::NAN }));
                    if let Some(stated) = stated {
                        end = if is_known { stated as i64 } else { bars.close_time(t) };
                    }
                }
                TargetKind::TripleBarrier(barrier) => {
                    let unit = match barrier.unit {
                        BarrierUnit::Return => now,
                        BarrierUnit::Pips => pip_size,
                        BarrierUnit::Atr => ranges[t],
                    };
                    let decision = barrier.decide(bars, t, horizon, unit);
                    targets.push(decision.class as f32);
                    end = bars.close_time(t + decision.bars);
                }
            }
            label_end_time.push(end);
        }
    }

    /// Goes on with the mean of the true range, where it is a unit.
    fn take_ranges(&mut self, bars: &Bars, count: usize) {
        self.ranges.clear();
        if !matches!(self.kind, TargetKind::TripleBarrier(TripleBarrier { unit: BarrierUnit::Atr, .. })) {
            return;
        }
        for index in 0..count {
            let (high, low) = (bars.high[index], bars.low[index]);
            let range = self.last_close.map_or(f64::NAN, |last| high.max(last) - low.min(last));
            self.ranges.push(self.true_range.next(range));
            self.last_close = Some(bars.close[index]);
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

    fn columns(names: &[&str], label_end: Option<&str>) -> TargetKind {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let origin = TargetOrigin::Files;
        TargetKind::Columns(ColumnTargets { names, label_end: label_end.map(str::to_owned), origin })
    }

    #[test]
    fn a_label_ends_where_its_column_says() {
        let mut bars = bars(&[1.0; 4]);
        let end = bars.close_time(3);
        bars.columns.push(vec![end as f64, f64::NAN, end as f64, f64::NAN]);
        let mut labels = Labels::new(columns(&["y"], Some("end")), 1, 1, 1.0);
        let (mut targets, mut ends) = (Vec::new(), Vec::new());
        labels.extend(&bars, 3, &[0, 1, 2], &mut targets, &mut ends);
        assert!(targets[0] == 0.0 && targets[1].is_nan() && targets[2] == 2.0, "{targets:?}");
        assert_eq!(ends, [end, bars.close_time(1), end]);
    }

    #[test]
    fn changes_are_in_pips_and_returns_are_not() {
        let bars = bars(&[1.0, 1.5, 1.25, 2.0, 2.0]);
        let returns = [1.5f64, 1.25, 1.6, 1.6].map(|ratio| ratio.ln() as f32);
        for (kind, expected) in [
            (TargetKind::Cumulative, &[9.0, 2.0, 1.0, 3.0, 3.0][..]),
            (TargetKind::Increment, &[9.0, 2.0, -1.0, 3.0, 0.0]),
            (TargetKind::LogReturn, &[9.0, returns[0], returns[1], returns[2], returns[3]]),
            (columns(&["y"], None), &[9.0, 0.0, 2.0]),
        ] {
            let mut targets = vec![9.0];
            let mut ends = Vec::new();
            let mut labels = Labels::new(kind, 1, 2, 0.25);
            labels.extend(&bars, 3, &[0, 2], &mut targets, &mut ends);
            assert_eq!((&targets[..], &ends[..]), (expected, &[bars.close_time(2), bars.close_time(4)][..]));
        }
    }

    #[test]
    #[should_panic(expected = "range end index")]
    fn a_sample_without_a_full_horizon_is_a_bug() {
        let mut labels = Labels::new(TargetKind::Cumulative, 0, 2, 1.0);
        labels.extend(&bars(&[1.0, 1.0]), 1, &[0], &mut Vec::new(), &mut Vec::new());
    }

    #[test]
    fn names_are_read_back() {
        let columns = columns(&["y", "label 2"], None);
        assert_eq!(columns.to_string(), "column:y,column:label 2");
        let function = "function:y,function:z".parse::<TargetKind>().unwrap();
        assert!(function.is_function() && function.file_columns().is_empty() && function.columns() == ["y", "z"]);
        for kind in TargetKind::ALL.into_iter().chain([columns, function]) {
            assert_eq!(kind.to_string().parse::<TargetKind>().unwrap(), kind);
        }
        for wrong in ["total", "column:", "column:y,cumulative", "column:y,function:z", "triple_barrier:1"] {
            let error = wrong.parse::<TargetKind>().unwrap_err().to_string();
            assert!(error.contains("triple_barrier:UP:DOWN:UNIT"), "{error}");
        }
    }
}
