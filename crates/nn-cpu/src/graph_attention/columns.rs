//! Columns in panels: where each number of a row-major matrix lies in a panel-major one.

use crate::kernel::{PANEL, PanelStride};
use crate::team::ThreadTeam;

/// The columns of a matrix: blocks of `units`, each of which begins with a panel and ends with
/// zeros up to a whole one. A block is a head, so that a panel's sixteen numbers have one
/// coefficient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) blocks: usize,
    pub(super) units: usize,
}

/// Columns of one panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnRun {
    pub(super) panel: usize,
    pub(super) first: usize,
    pub(super) len: usize,
}

impl Columns {
    /// Panels of a block.
    pub(super) fn block_panels(self) -> usize {
        self.units.div_ceil(PANEL)
    }

    pub(super) fn panels(self) -> usize {
        self.blocks * self.block_panels()
    }

    /// Columns with the zeros.
    pub(super) fn padded(self) -> usize {
        self.panels() * PANEL
    }

    /// Columns up to the last that is not of zeros.
    pub(super) fn depth(self) -> usize {
        (self.blocks - 1) * self.block_panels() * PANEL + self.units
    }

    /// Columns without the zeros.
    pub(super) fn width(self) -> usize {
        self.blocks * self.units
    }

    /// The columns of each panel.
    pub(super) fn runs(self) -> impl Iterator<Item = ColumnRun> + Clone {
        (0..self.panels()).map(move |panel| {
            let (block, part) = (panel / self.block_panels(), panel % self.block_panels() * PANEL);
            ColumnRun { panel, first: block * self.units + part, len: PANEL.min(self.units - part) }
        })
    }
}

/// The place of a matrix of `rows` rows. Rows of neighbouring panels fall into different sets of
/// the caches, whatever the number of rows.
pub(super) fn panel_stride(rows: usize) -> PanelStride {
    PanelStride { start: 0, stride: (rows | 1) * PANEL }
}

/// Numbers in a matrix of up to `rows` rows.
pub(super) fn panels_len(rows: usize, panels: usize) -> usize {
    panels * panel_stride(rows).stride
}

/// A map of `columns` to `rows`: its weights are [rows, columns].
#[derive(Clone, Copy, Debug)]
pub(super) struct Map {
    pub(super) rows: Columns,
    pub(super) columns: Columns,
}

impl Map {
    /// Weights as the second operand of a product over the columns: [row panels][column depth][16].
    pub(super) fn pack(self, weight: &[f32], to: &mut [f32]) {
        let (width, depth) = (self.columns.width(), self.columns.depth());
        for row in self.rows.runs() {
            for lane in 0..row.len {
                let weights = &weight[(row.first + lane) * width..][..width];
                let to = &mut to[row.panel * depth * PANEL + lane..];
                for column in self.columns.runs() {
                    let to = to[column.panel * PANEL * PANEL..].iter_mut().step_by(PANEL);
                    to.zip(&weights[column.first..][..column.len]).for_each(|(to, &from)| *to = from);
                }
            }
        }
    }

    /// Weights as the second operand of a product over the rows of this map and of others: [column
    /// panels][`total`][16], of which the rows here are those from `first` on.
    pub(super) fn transpose(self, weight: &[f32], first: usize, total: usize, to: &mut [f32]) {
        self.each(total, |at, from, len| {
            to[at + first * PANEL..][..len].copy_from_slice(&weight[from..][..len]);
        });
    }

    /// Adds gradients that lie as [`Map::transpose`] lays weights to `gradient` [rows, columns].
    pub(super) fn unpack_add(self, sums: &[f32], first: usize, total: usize, gradient: &mut [f32]) {
        self.each(total, |at, to, len| {
            let terms = &sums[at + first * PANEL..][..len];
            gradient[to..][..len].iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        });
    }

    /// Calls `with` for each row and panel of columns: where it lies in panels and in [rows,
    /// columns], and how many numbers.
    fn each(self, total: usize, mut with: impl FnMut(usize, usize, usize)) {
        let width = self.columns.width();
        for column in self.columns.runs() {
            for row in self.rows.runs() {
                for lane in 0..row.len {
                    let at = (column.panel * total + row.panel * PANEL + lane) * PANEL;
                    with(at, (row.first + lane) * width + column.first, column.len);
                }
            }
        }
    }
}

/// A row in panels, its zeros aside.
pub(super) fn pack_row(columns: Columns, from: &[f32], to: &mut [f32]) {
    for run in columns.runs() {
        to[run.panel * PANEL..][..run.len].copy_from_slice(&from[run.first..][..run.len]);
    }
}

/// Adds a row that is in panels to one that is not.
pub(super) fn unpack_row_add(columns: Columns, from: &[f32], to: &mut [f32]) {
    for run in columns.runs() {
        let terms = &from[run.panel * PANEL..][..run.len];
        to[run.first..][..run.len].iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
    }
}

/// Rows [N, width] in panels, zeros included; `team` shares the panels.
pub(super) fn into_panels(team: &ThreadTeam, columns: Columns, from: &[f32], to: &mut [f32]) {
    let rows = from.len() / columns.width();
    let parts = columns.runs().zip(to.chunks_mut(panel_stride(rows).stride)).collect();
    team.for_each(parts, |(run, panel): (ColumnRun, &mut [f32])| {
        for (to, from) in panel.chunks_exact_mut(PANEL).zip(from.chunks_exact(columns.width())) {
            to[..run.len].copy_from_slice(&from[run.first..][..run.len]);
            to[run.len..].fill(0.0);
        }
    });
}

/// Rows [N, width] from panels; `team` shares the rows.
pub(super) fn from_panels(team: &ThreadTeam, columns: Columns, from: &[f32], to: &mut [f32]) {
    let (width, rows) = (columns.width(), to.len() / columns.width());
    let rows_each = rows.div_ceil(team.threads()).max(1);
    let parts = to.chunks_mut(rows_each * width).enumerate().collect();
    team.for_each(parts, |(n, to): (usize, &mut [f32])| {
        for run in columns.runs() {
            let panel = from[panel_stride(rows).panel(run.panel).row(n * rows_each).start..].chunks_exact(PANEL);
            for (from, to) in panel.zip(to.chunks_exact_mut(width)) {
                to[run.first..][..run.len].copy_from_slice(&from[..run.len]);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(len: usize) -> Vec<f32> {
        (1..=len).map(|x| x as f32).collect()
    }

    #[test]
    fn blocks_begin_with_panels() {
        let columns = Columns { blocks: 3, units: 19 };
        let runs: Vec<_> = columns.runs().map(|run| (run.panel, run.first, run.len)).collect();
        assert_eq!(runs, [(0, 0, 16), (1, 16, 3), (2, 19, 16), (3, 35, 3), (4, 38, 16), (5, 54, 3)]);
        assert_eq!((columns.padded(), columns.depth(), columns.width()), (96, 83, 57));
    }

    #[test]
    fn weights_lie_where_products_read_them() {
        let (rows, columns) = (Columns { blocks: 2, units: 17 }, Columns { blocks: 2, units: 3 });
        let (map, weight) = (Map { rows, columns }, count(34 * 6));
        let (depth, total) = (columns.depth(), 2 * rows.padded());
        let (mut packed, mut transposed) = (vec![0.0; rows.padded() * depth], vec![0.0; columns.padded() * total]);
        map.pack(&weight, &mut packed);
        map.transpose(&weight, rows.padded(), total, &mut transposed);
        for (row, row_at) in [(0, 0), (16, 16), (17, 32), (33, 48)] {
            for (column, column_at) in [(0, 0), (2, 2), (3, 16), (5, 18)] {
                let expected = weight[row * 6 + column];
                assert_eq!(packed[(row_at / 16 * depth + column_at) * 16 + row_at % 16], expected);
                let row_at = rows.padded() + row_at;
                assert_eq!(transposed[(column_at / 16 * total + row_at) * 16 + column_at % 16], expected);
            }
        }
        let kept = |x: &[f32]| x.iter().filter(|&&x| x != 0.0).count();
        assert_eq!((kept(&packed), kept(&transposed)), (weight.len(), weight.len()));

        let mut back = weight.clone();
        map.unpack_add(&transposed, rows.padded(), total, &mut back);
        assert!(back.iter().zip(&weight).all(|(twice, once)| *twice == 2.0 * once));
    }

    #[test]
    fn rows_go_into_panels_and_come_back() {
        let columns = Columns { blocks: 2, units: 18 };
        let rows = count(4 * 36);
        let mut panels = vec![f32::NAN; panels_len(4, columns.panels())];
        into_panels(ThreadTeam::alone(), columns, &rows, &mut panels);
        let mut back = vec![0.0; rows.len()];
        from_panels(ThreadTeam::alone(), columns, &panels, &mut back);
        assert_eq!(back, rows);
        assert_eq!(panels[panel_stride(4).stride + PANEL..][..3], [53.0, 54.0, 0.0]);

        let (mut row, mut sums) = (vec![0.0; columns.padded()], count(36));
        pack_row(columns, &rows[..36], &mut row);
        unpack_row_add(columns, &row, &mut sums);
        assert!(sums.iter().zip(&rows).all(|(sum, x)| *sum == 2.0 * x));
    }
}
