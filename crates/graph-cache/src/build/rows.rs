//! Rows of numbers for the search for neighbours.

use megabatch_gpu_core::isa::Isa;

use super::kernel::{self, COLUMNS_TOGETHER, LANES, PANEL, RowMeasure};

/// N rows of `depth` numbers, twice: in double precision for similarities, and in single precision
/// for proposals.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowMatrix {
    len: usize,
    depth: usize,
    /// [N, stride], zeros after the depth.
    exact: Vec<f64>,
    /// [columns / 16][depth][16]: row r is place r % 16 of panel r / 16.
    panels: Vec<f32>,
    /// [columns] start value of a column's proposals.
    start: Vec<f32>,
}

impl RowMatrix {
    /// Resets to `len` rows of `depth` zeros.
    pub(crate) fn reset(&mut self, len: usize, depth: usize) {
        let columns = len.next_multiple_of(COLUMNS_TOGETHER);
        (self.len, self.depth) = (len, depth);
        let stride = self.stride();
        zeros(&mut self.exact, len * stride);
        zeros(&mut self.panels, columns * depth);
        zeros(&mut self.start, columns);
    }

    /// N.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Columns of the arrays of proposals: N padded to whole pairs of panels.
    pub(crate) fn columns(&self) -> usize {
        self.start.len()
    }

    /// Numbers from one row to the next: the depth padded to whole sums.
    pub(crate) fn stride(&self) -> usize {
        self.depth.next_multiple_of(LANES)
    }

    /// A row in double precision, with the zeros after it, which stay.
    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [f64] {
        let stride = self.stride();
        &mut self.exact[row * stride..][..stride]
    }

    /// Writes a row in single precision, `of` each number and its place, and what its proposals
    /// start from.
    pub(crate) fn propose_by(&mut self, row: usize, start: f32, weigh: impl Fn(usize, f64) -> f32) {
        self.start[row] = start;
        let from = &self.exact[row * self.depth.next_multiple_of(LANES)..][..self.depth];
        let panel = &mut self.panels[row / PANEL * PANEL * self.depth..][..PANEL * self.depth];
        for (t, (&x, sixteen)) in from.iter().zip(panel.chunks_exact_mut(PANEL)).enumerate() {
            sixteen[row % PANEL] = weigh(t, x);
        }
    }

    /// The proposals of sixteen rows, `to` [16, columns]: their products with all rows, plus the
    /// start values.
    pub(crate) fn propose(&self, isa: Isa, panel: usize, to: &mut [f32]) {
        kernel::scores(isa, &self.panels, self.depth, panel, &self.start, to);
    }

    /// Largest difference of a proposal from the measure in exact arithmetic or in double
    /// precision, if no row's norm is above 1 in single precision and no start value above 1/2.
    ///
    /// Both factors of each product are rounded, and each sum of at most depth + 1 terms is
    /// (Higham, *Accuracy and Stability of Numerical Algorithms*, 2002, section 3.1): by at most
    /// depth + 3 roundings of u = 2⁻²⁴ of Σ|x·y| + |start| ≤ 3/2. Three more cover roundings of
    /// second order, and those of sums with this bound itself.
    pub(crate) fn error(&self) -> f32 {
        const UNIT: f64 = 1.0 / (1u64 << 24) as f64;
        let underflow = self.depth as f64 * f64::from(f32::MIN_POSITIVE);
        (1.5 * (self.depth as f64 + 6.0) * UNIT * 1.01 + underflow) as f32
    }

    /// The measure between a row and each of `columns`.
    pub(crate) fn between(&self, isa: Isa, measure: RowMeasure, row: u32, columns: &[u32], to: &mut [f64]) {
        kernel::between(isa, measure, &self.exact, self.stride(), row, columns, to);
    }
}

fn zeros<T: Default + Clone>(vec: &mut Vec<T>, len: usize) {
    vec.clear();
    vec.resize(len, T::default());
}
