//! Features of a segment, a chunk of bars at a time, in the memory of a chunk. The rows are those
//! of all bars at once, bit for bit.
//!
//! ```text
//! recursive features (EMA, Wilder's mean):  from means that go on from chunk to chunk
//! columns of the bars:                      as they are
//! all others:                               as columns of the chunk and the bars before it that
//!                                           they read
//! ```

use crate::bars::Bars;
use crate::series::feature::Feature;
use crate::series::feature_column::column;
use crate::series::feature_stream::Means;
use crate::series::spec::SeriesSpec;

/// The features of one segment of one timeframe.
#[derive(Clone, Debug)]
pub(crate) struct FeatureChunks {
    features: Vec<Feature>,
    /// Places among the columns of the bars.
    column_places: Vec<Option<usize>>,
    pip_size: f64,
    /// Bars without a row at the start of a segment: the longest warm-up.
    warm_up: usize,
    /// Bars so far, those of `recent` included.
    count: usize,
    /// The last bars, as many as a feature reads beside its own.
    recent: Bars,
    last_close: Option<f64>,
    means: Means,
    has_recursive: bool,
}

impl FeatureChunks {
    /// Features of bars that will follow `no_bars`.
    pub(crate) fn new(no_bars: Bars, spec: &SeriesSpec, pip_size: f64) -> Self {
        FeatureChunks {
            features: spec.features.clone(),
            column_places: spec.column_places(no_bars.timeframe),
            pip_size,
            warm_up: spec.look_back(),
            count: 0,
            recent: no_bars,
            last_close: None,
            means: Means::new(),
            has_recursive: spec.features.iter().any(is_recursive),
        }
    }

    /// Forgets all bars: a segment begins.
    pub(crate) fn restart(&mut self) {
        self.recent.truncate(0);
        (self.count, self.last_close, self.means) = (0, None, Means::new());
    }

    /// Takes the next bars of the segment and adds the rows of those after the warm-up to `rows`.
    /// Returns the number of bars without one.
    pub(crate) fn push(&mut self, bars: &Bars, rows: &mut Vec<f32>) -> usize {
        let width = self.features.len();
        let without_row = self.warm_up.saturating_sub(self.count).min(bars.len());
        let start = rows.len();
        rows.resize(start + (bars.len() - without_row) * width, 0.0);
        let new = &mut rows[start..];
        let before = self.recent.len();
        self.recent.extend(bars);
        if self.has_recursive {
            self.push_recursive(bars, without_row, new);
        }
        // Before its first bar a segment has no columns either.
        let has_rows = !new.is_empty();
        let others = self.features.iter().enumerate().filter(|(_, feature)| has_rows && !is_recursive(feature));
        for (place, feature) in others {
            let computed;
            let values = match self.column_places[place] {
                Some(own) => &self.recent.columns[own],
                None => {
                    computed = column(&self.recent, feature, self.pip_size);
                    &computed
                }
            };
            for (row, value) in new.chunks_exact_mut(width).zip(&values[before + without_row..]) {
                row[place] = *value as f32;
            }
        }
        self.count += bars.len();
        self.forget();
        without_row
    }

    /// Takes the next bars of the segment without computing their rows.
    pub(crate) fn skip(&mut self, bars: &Bars) {
        if self.has_recursive {
            for index in 0..bars.len() {
                let bar = bars.bar(index);
                self.means.push(&bar, self.last_close);
                self.last_close = Some(bar.close);
            }
        }
        self.count += bars.len();
        let unread = bars.len().saturating_sub(self.warm_up);
        self.recent.extend(&bars.part(unread..bars.len()));
        self.forget();
    }

    /// Drops bars that no feature of later ones reads.
    fn forget(&mut self) {
        let kept = self.recent.len().min(self.warm_up);
        self.recent = self.recent.part(self.recent.len() - kept..self.recent.len());
    }

    fn push_recursive(&mut self, bars: &Bars, without_row: usize, rows: &mut [f32]) {
        let width = self.features.len();
        let recursive: Vec<(usize, &Feature)> =
            self.features.iter().enumerate().filter(|(_, feature)| is_recursive(feature)).collect();
        for index in 0..bars.len() {
            let bar = bars.bar(index);
            self.means.push(&bar, self.last_close);
            self.last_close = Some(bar.close);
            let Some(row) = index.checked_sub(without_row) else { continue };
            for &(place, feature) in &recursive {
                let value = self.means.value(feature, bar.close).expect("a recursive feature");
                rows[row * width + place] = value as f32;
            }
        }
    }
}

fn is_recursive(feature: &Feature) -> bool {
    Means::new().value(feature, 1.0).is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::series::feature_column::tests::FeatureTable;
    use crate::series::feature_stream::tests::{bars, spec, with_column};

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Chunk by chunk as in a table of all, bit for bit, wherever the chunks end.
        #[test]
        fn agrees_with_a_table(
            steps in prop::collection::vec(any::<(i8, u8, u8)>(), 0..300), one in 0..=Feature::ALL.len(), all in any::<bool>(),
            chunks in prop::collection::vec(1usize..90, 1..9),
        ) {
            let features = if all { with_column() } else { vec![with_column().swap_remove(one)] };
            let bars = bars(&steps);
            let table = FeatureTable::new(&bars, &features, 1e-4);
            let mut stream = FeatureChunks::new(bars.part(0..0), &spec(&features), 1e-4);
            // What came before a restart leaves no trace.
            stream.push(&bars, &mut Vec::new());
            stream.restart();
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            // From a chunk on, after all before it were skipped.
            for skipped in 0..3 {
                stream.restart();
                let (mut values, mut first, mut without_row) = (Vec::new(), 0, 0);
                for (place, chunk) in chunks.iter().cycle().enumerate() {
                    let end = bars.len().min(first + chunk);
                    if place < skipped {
                        stream.skip(&bars.part(first..end));
                        without_row += end.min(table.warm_up) - first.min(table.warm_up);
                        values.resize((end - without_row) * features.len(), 0.0);
                    } else {
                        without_row += stream.push(&bars.part(first..end), &mut values);
                    }
                    first = end;
                    if first == bars.len() {
                        break;
                    }
                }
                prop_assert_eq!(without_row, table.warm_up);
                let unseen = chunks.iter().cycle().take(skipped).sum::<usize>().min(bars.len()).saturating_sub(table.warm_up);
                prop_assert_eq!(bits(&values[unseen * features.len()..]), bits(&table.values[unseen * features.len()..]));
            }
        }
    }
}
