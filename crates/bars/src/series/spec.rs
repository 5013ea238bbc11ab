use std::fmt::Display;

use crate::clean::gap::GapPolicy;
use crate::error::{Error, Result};
use crate::series::column_feature::{ColumnFeature, ColumnRule};
use crate::series::feature::Feature;
use crate::series::scale::Scaling;
use crate::series::target::TargetKind;
use crate::series::triple_barrier::BarrierUnit;
use crate::time::bin_clock::BinClock;
use crate::time::timeframe::Timeframe;

/// One timeframe of a series, and how many of its bars a sample sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The timeframe.
    pub timeframe: Timeframe,
    /// Length of the window in bars of that timeframe.
    pub seq_len: usize,
}

/// Definition of a series, the same for every instrument.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesSpec {
    /// The timeframes, in any order.
    pub windows: Vec<Window>,
    /// Clock at whose multiples of a timeframe bars start that are made from shorter ones.
    pub bins: BinClock,
    /// The features, the same for every timeframe. Columns among them are the columns of the bars,
    /// in their order.
    pub features: Vec<Feature>,
    /// Number of base bars after a sample that decide its targets: one target each, or a class, or
    /// the values of columns. Where a column tells the ends of labels it is the most bars that a
    /// label looks ahead: of the last so many bars of a segment, the first whose label has not
    /// ended and those after it have no sample.
    pub horizon: usize,
    /// Kind of target. Columns among them are the last columns of the bars.
    pub target_kind: TargetKind,
    /// Column of the bars that is the weight of a sample in the loss of training: before those of
    /// the targets. A bar without a value has weight 0.
    pub weight: Option<String>,
    /// Every how many base bars there is a sample. One instrument counts the bars of each segment;
    /// several count the instants at which any of them has a bar, so that all have their samples at
    /// common ones.
    pub stride: usize,
    /// Scaling of features.
    pub scaling: Scaling,
    /// The first part of the samples, by time, or of the instants that have any, on which the
    /// scalers are fitted: above 0 and at most 1.
    pub train_fraction: f64,
    /// Which holes windows and horizons may reach across.
    pub holes: GapPolicy,
}

impl Default for SeriesSpec {
    /// M1, M5, M15, H1 and H4 with 480, 288, 192, 96 and 48 bars; the default features; 36 future
    /// bars, cumulative; every bar a sample; robust scaling fitted on the first 70 %; holes of up
    /// to four days, weekends among them, are spanned.
    fn default() -> Self {
        let windows = [
            (Timeframe::M1, 480),
            (Timeframe::M5, 288),
            (Timeframe::M15, 192),
            (Timeframe::H1, 96),
            (Timeframe::H4, 48),
        ]
        .map(|(timeframe, seq_len)| Window { timeframe, seq_len });
        SeriesSpec {
            windows: windows.to_vec(),
            bins: BinClock::default(),
            features: Feature::DEFAULT.to_vec(),
            horizon: 36,
            target_kind: TargetKind::default(),
            weight: None,
            stride: 1,
            scaling: Scaling::default(),
            train_fraction: 0.7,
            holes: GapPolicy::default(),
        }
    }
}

impl SeriesSpec {
    /// True if the size of a pip has a part in the series: in its targets or in a feature.
    pub fn uses_pips(&self) -> bool {
        self.has_targets_in_pips() || !self.features_in_pips().is_empty()
    }

    /// True if the size of a pip has a part in the targets.
    pub fn has_targets_in_pips(&self) -> bool {
        match &self.target_kind {
            TargetKind::Cumulative | TargetKind::Increment => true,
            TargetKind::TripleBarrier(barrier) => barrier.unit == BarrierUnit::Pips,
            TargetKind::LogReturn | TargetKind::Columns(_) => false,
        }
    }

    /// The features that are in pips.
    pub fn features_in_pips(&self) -> Vec<&Feature> {
        let in_pips = [Feature::PipChange, Feature::SpreadPips];
        self.features.iter().filter(|feature| in_pips.contains(feature)).collect()
    }

    /// Names of the columns among the features, in their order: bars of the series have these, see
    /// [`ReadOptions::columns`](crate::ReadOptions::columns), and behind them those of the targets.
    pub fn columns(&self) -> Vec<String> {
        self.features.iter().filter_map(Feature::as_column).map(|column| column.column().to_owned()).collect()
    }

    /// Names of the columns of functions among the features, in their order. Bars of the series
    /// have one of each for each timeframe, behind the columns of the files.
    pub fn functions(&self) -> Vec<String> {
        self.features.iter().filter_map(Feature::as_function).map(str::to_owned).collect()
    }

    /// Number of columns of the bars: those of features, the weight, targets and the label's end.
    pub fn all_columns(&self) -> usize {
        let label_ends = usize::from(self.target_kind.label_end().is_some());
        self.first_target_column() + self.target_kind.columns().len() + label_ends
    }

    /// Place of the first target among the columns of the bars, behind that of the weight.
    pub(crate) fn first_target_column(&self) -> usize {
        self.feature_columns() + usize::from(self.weight.is_some())
    }

    /// Number of columns of the bars that are features.
    pub(crate) fn feature_columns(&self) -> usize {
        self.columns().len() + self.functions().len() * self.windows.len()
    }

    /// Base bars that must follow a sample in its segment: none where a column tells the ends of
    /// labels, and else the horizon.
    pub(crate) fn bars_after_sample(&self) -> usize {
        if self.target_kind.label_end().is_some() { 0 } else { self.horizon }
    }

    /// Rule of each column of the bars that is a feature.
    pub(crate) fn column_rules(&self) -> Vec<ColumnRule> {
        let own = self.features.iter().filter_map(Feature::as_column).map(ColumnFeature::rule);
        let mut rules: Vec<ColumnRule> = own.collect();
        rules.resize(self.feature_columns(), ColumnRule::Last);
        rules
    }

    /// The place of each feature of a timeframe among the columns of the bars; `None` for one that
    /// is computed from prices.
    pub(crate) fn column_places(&self, timeframe: Timeframe) -> Vec<Option<usize>> {
        let mut own = 0..;
        let mut functions = 0..;
        let shorter = self.windows.iter().filter(|window| window.timeframe < timeframe).count();
        let first = self.columns().len() + shorter;
        let place = |feature: &Feature| match feature {
            Feature::Column(_) => own.next(),
            Feature::Function(_) => functions.next().map(|function: usize| first + function * self.windows.len()),
            _ => None,
        };
        self.features.iter().map(place).collect()
    }

    /// Number of targets K of a sample.
    pub fn targets(&self) -> usize {
        match &self.target_kind {
            TargetKind::Columns(targets) => targets.names.len(),
            TargetKind::TripleBarrier(_) => 1,
            TargetKind::Cumulative | TargetKind::Increment | TargetKind::LogReturn => self.horizon,
        }
    }

    /// Number of bars before a row that its features read: the longest warm-up among them.
    pub(crate) fn look_back(&self) -> usize {
        self.features.iter().map(Feature::warm_up).max().unwrap_or(0)
    }

    /// The windows, shortest timeframe first.
    pub(crate) fn sorted_windows(&self) -> Vec<Window> {
        let mut windows = self.windows.clone();
        windows.sort_by_key(|window| window.timeframe);
        windows
    }

    /// The windows, shortest timeframe first, once every value is known to be in range.
    pub(crate) fn checked_windows(&self) -> Result<Vec<Window>> {
        let windows = self.sorted_windows();
        let twice = windows.windows(2).find(|pair| pair[0].timeframe == pair[1].timeframe).map(|pair| pair[0]);
        let unique = twice.is_none();
        let shown_timeframe = twice.map_or_else(|| "empty".to_owned(), |window| format!("{} twice", window.timeframe));
        let shortest = windows.iter().map(|window| window.seq_len).min().unwrap_or(1);
        let distinct = self.features.iter().enumerate().all(|(k, feature)| !self.features[..k].contains(feature));
        let features = self.features.iter().map(Feature::name).collect::<Vec<_>>().join(", ");

        in_range("timeframes", &shown_timeframe, "at least one timeframe, each once", unique && !windows.is_empty())?;
        in_range("seq_len", &shortest, "at least 1 bar", shortest >= 1)?;
        in_range("features", &features, "at least one feature, each once", distinct && !self.features.is_empty())?;
        let targets = self.target_kind.columns();
        let are_distinct = targets.iter().enumerate().all(|(k, name)| !targets[..k].contains(name));
        in_range("target", &self.target_kind, "each column once", are_distinct)?;
        in_range("horizon", &self.horizon, "at least 1 bar", self.horizon >= 1)?;
        in_range("stride", &self.stride, "at least 1 bar", self.stride >= 1)?;
        let fraction = self.train_fraction;
        in_range("train_fraction", &fraction, "a number above 0 and at most 1", fraction > 0.0 && fraction <= 1.0)?;
        let longest_ns = self.holes.longest_ns;
        in_range("holes.longest_ns", &longest_ns, "at least 0 nanoseconds", longest_ns >= 0)?;
        Ok(windows)
    }
}

pub(crate) fn in_range(key: &'static str, value: &dyn Display, expected: &'static str, holds: bool) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Invalid { key, value: value.to_string(), expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_come_shortest_first() {
        let mut spec = SeriesSpec::default();
        spec.windows.reverse();
        let windows = spec.checked_windows().unwrap();
        let lengths: Vec<_> = windows.iter().map(|window| window.seq_len).collect();
        assert_eq!(lengths, [480, 288, 192, 96, 48]);
    }

    #[test]
    fn values_out_of_range_are_named() {
        type Change = fn(&mut SeriesSpec);
        let cases: [(Change, &str); 10] = [
            (|spec| spec.windows.clear(), "timeframes is empty"),
            (|spec| spec.windows.push(spec.windows[1]), "timeframes is M5 twice"),
            (|spec| spec.windows[1].seq_len = 0, "seq_len is 0"),
            (|spec| spec.features.clear(), "features is "),
            (|spec| spec.features = vec![Feature::Body; 2], "features is body, body"),
            (|spec| spec.horizon = 0, "horizon is 0"),
            (|spec| spec.stride = 0, "stride is 0"),
            (|spec| spec.train_fraction = 0.0, "train_fraction is 0"),
            (|spec| spec.train_fraction = f64::NAN, "train_fraction is NaN"),
            (|spec| spec.holes.longest_ns = -1, "holes.longest_ns is -1"),
        ];
        for (change, message) in cases {
            let mut spec = SeriesSpec::default();
            change(&mut spec);
            let error = spec.checked_windows().unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
