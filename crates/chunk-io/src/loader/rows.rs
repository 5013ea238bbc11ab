use super::reader::is_consecutive;

/// Rows of equal length, one a sample of a batch, wherever they are.
#[derive(Clone, Copy, Debug)]
pub struct BatchRows<'a> {
    len: usize,
    row_len: usize,
    place: RowsPlace<'a>,
}

#[derive(Clone, Copy, Debug)]
enum RowsPlace<'a> {
    /// One after the other.
    Consecutive(&'a [f32]),
    /// Among those of all samples, `[N, ..]`.
    Among { all: &'a [f32], samples: &'a [usize] },
    /// Slices of a series.
    Windows(SeriesWindows<'a>),
}

impl<'a> BatchRows<'a> {
    /// `len` rows, one after the other.
    pub(super) fn consecutive(values: &'a [f32], len: usize, row_len: usize) -> Self {
        BatchRows { len, row_len, place: RowsPlace::Consecutive(values) }
    }

    /// The rows of `samples` among those of all samples.
    pub(super) fn among(all: &'a [f32], samples: &'a [usize], row_len: usize) -> Self {
        let place = match samples {
            [first, ..] if is_consecutive(samples) => {
                RowsPlace::Consecutive(&all[first * row_len..(first + samples.len()) * row_len])
            }
            _ => RowsPlace::Among { all, samples },
        };
        BatchRows { len: samples.len(), row_len, place }
    }

    pub(super) fn windows(windows: SeriesWindows<'a>) -> Self {
        let (len, row_len) = (windows.samples.len(), windows.steps * windows.features);
        BatchRows { len, row_len, place: RowsPlace::Windows(windows) }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Values in a row.
    pub fn row_len(&self) -> usize {
        self.row_len
    }

    /// The `i`-th row.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn row(&self, i: usize) -> &'a [f32] {
        assert!(i < self.len, "row {i} of {}", self.len);
        let at = |values: &'a [f32], row: usize| &values[row * self.row_len..(row + 1) * self.row_len];
        match self.place {
            RowsPlace::Consecutive(values) => at(values, i),
            RowsPlace::Among { all, samples } => at(all, samples[i]),
            RowsPlace::Windows(windows) => windows.window(i),
        }
    }

    /// The rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [f32]> + use<'a> {
        let rows = *self;
        (0..rows.len).map(move |i| rows.row(i))
    }

    /// All rows as one slice, `[len, row_len]`, where they lie one after the other.
    pub fn as_slice(&self) -> Option<&'a [f32]> {
        match self.place {
            RowsPlace::Consecutive(values) => Some(values),
            RowsPlace::Among { .. } if self.len == 0 => Some(&[]),
            _ => None,
        }
    }
}

/// The windows of a batch in one timeframe of a series: the bars, and the end of each window among
/// them.
#[derive(Clone, Copy, Debug)]
pub struct SeriesWindows<'a> {
    /// The bars of the whole series, `[bars, F]`, row-major.
    pub values: &'a [f32],
    /// Bars in a window, T.
    pub steps: usize,
    /// Values in a bar, F.
    pub features: usize,
    pub(super) sample_ends: &'a [i64],
    pub(super) samples: &'a [usize],
}

impl<'a> SeriesWindows<'a> {
    /// The last bar of each window, in the order of the batch.
    pub fn ends(&self) -> impl ExactSizeIterator<Item = usize> + use<'a> {
        let (samples, ends) = (self.samples, self.sample_ends);
        samples.iter().map(move |&sample| ends[sample] as usize)
    }

    /// The window of the `i`-th sample, `[T, F]`.
    fn window(&self, i: usize) -> &'a [f32] {
        let end = (self.sample_ends[self.samples[i]] as usize + 1) * self.features;
        &self.values[end - self.steps * self.features..end]
    }
}
