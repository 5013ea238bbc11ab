//! Parts of a layer's matrices and of the numbers of its edges, each written by one thread of a
//! team. One thread has one part.

use std::ops::Range;

use super::columns::panel_stride;
use crate::kernel::attention::Walk;
use crate::kernel::{PANEL, PanelStride, ViewMut};
use crate::team::ThreadTeam;

/// Fewest rows of a part: tiles of a product have up to twelve.
const ROWS_MIN: usize = 24;

/// Some panels of a matrix of nodes or, of one panel, some rows.
pub(super) struct PanelPart<'a> {
    pub(super) panels: Range<usize>,
    pub(super) rows: Range<usize>,
    pub(super) to: ViewMut<'a>,
}

/// Cuts of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PanelSplit {
    /// Between panels.
    Panels,
    /// Between panels and, where there are fewer than threads, between rows.
    PanelsAndRows,
}

/// The first `panels` panels of a matrix of `nodes` rows in parts.
pub(super) fn panel_parts<'a>(
    team: &ThreadTeam,
    nodes: usize,
    panels: usize,
    matrix: &'a mut [f32],
    cut: PanelSplit,
) -> Vec<PanelPart<'a>> {
    let PanelStride { stride, .. } = panel_stride(nodes);
    let panels_each = panels.div_ceil(team.threads()).max(1);
    let row_parts = match cut {
        PanelSplit::PanelsAndRows if panels_each == 1 => {
            (team.threads() / panels.max(1)).clamp(1, nodes.div_ceil(ROWS_MIN).max(1))
        }
        _ => 1,
    };
    let rows_of_each = nodes.div_ceil(row_parts).max(1);
    let chunks = matrix[..panels * stride].chunks_mut(panels_each * stride).enumerate();
    let parts = chunks.flat_map(|(n, chunk)| {
        let panels = n * panels_each..panels.min((n + 1) * panels_each);
        // Of one part, panels are a stride apart; of several, there is one panel.
        let len = if row_parts == 1 { chunk.len() } else { rows_of_each * PANEL };
        chunk.chunks_mut(len.max(1)).take(row_parts).enumerate().map(move |(n, values)| {
            let rows = (n * rows_of_each).min(nodes)..((n + 1) * rows_of_each).min(nodes);
            PanelPart { panels: panels.clone(), rows, to: ViewMut(values, PanelStride { start: 0, stride }) }
        })
    });
    parts.filter(|part| !part.rows.is_empty()).collect()
}

/// The edges of some nodes.
#[derive(Clone, Debug)]
pub(super) struct EdgePart<'a> {
    pub(super) nodes: Range<usize>,
    /// Counted as all edges are.
    pub(super) edges: Range<usize>,
    pub(super) walk: Walk<'a>,
}

/// The edges of a graph in parts.
pub(super) fn edge_parts<'a>(team: &ThreadTeam, walk: Walk<'a>) -> Vec<EdgePart<'a>> {
    let part = |nodes: Range<usize>| EdgePart { edges: walk.edges_of(&nodes), walk: walk.part(&nodes), nodes };
    walk.even_parts(team.threads()).into_iter().map(part).collect()
}

/// Splits `values` into slices of these lengths, which follow one another.
pub(super) fn split(mut values: &mut [f32], lens: impl IntoIterator<Item = usize>) -> Vec<&mut [f32]> {
    let take = |len| values.split_off_mut(..len).expect("numbers of every part");
    lens.into_iter().map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_matrix_are_all_of_it() {
        for (threads, nodes, panels) in [(1, 5, 3), (2, 40, 5), (16, 504, 4), (16, 30, 4), (7, 100, 16), (3, 1, 1)] {
            for cut in [PanelSplit::Panels, PanelSplit::PanelsAndRows] {
                let stride = panel_stride(nodes).stride;
                let mut matrix = vec![0.0f32; panels * stride + 3];
                let team = ThreadTeam::new(threads);
                for PanelPart { panels, rows, to: ViewMut(values, at) } in
                    panel_parts(&team, nodes, panels, &mut matrix, cut)
                {
                    for (n, panel) in panels.clone().enumerate() {
                        for (r, row) in rows.clone().enumerate() {
                            values[at.panel(n).row(r).start] += (panel * 1000 + row + 1) as f32;
                        }
                    }
                }
                for (panel, row) in (0..panels).flat_map(|panel| (0..nodes).map(move |row| (panel, row))) {
                    let found = matrix[panel * stride + row * PANEL];
                    assert_eq!(found, (panel * 1000 + row + 1) as f32, "{threads} threads, {nodes}, {panels}, {cut:?}");
                }
            }
        }
        let mut matrix = vec![0.0; 4 * panel_stride(504).stride];
        assert_eq!(panel_parts(&ThreadTeam::new(16), 504, 4, &mut matrix, PanelSplit::PanelsAndRows).len(), 16);
    }
}
