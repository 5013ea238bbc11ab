//! Edges from lists of neighbours.

use super::nearest::{Neighbour, NeighbourLists};
use crate::error::{Error, Result};

/// Rule for the reverse of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symmetry {
    /// No reverse edges: neighbours send to a node, which may not be a neighbour of theirs.
    #[default]
    None,
    /// Every edge gets its reverse: two nodes are joined if either is a neighbour of the other.
    Union,
    /// Two nodes are joined if each is a neighbour of the other.
    Mutual,
}

impl Symmetry {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Symmetry::None => "none",
            Symmetry::Union => "union",
            Symmetry::Mutual => "mutual",
        }
    }
}

/// Rule for self-loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SelfLoops {
    /// No self-loops.
    #[default]
    None,
    /// Every node has one, besides its k neighbours.
    Added,
}

impl SelfLoops {
    pub(crate) fn name(self) -> &'static str {
        match self {
            SelfLoops::None => "none",
            SelfLoops::Added => "added",
        }
    }
}

/// Options of turning lists of neighbours into edges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdgeOptions {
    pub(crate) symmetry: Symmetry,
    pub(crate) self_loops: SelfLoops,
    /// Weight of a self-loop.
    pub(crate) own: f64,
}

/// Edges by receiving node, columns ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NeighbourEdges {
    pub(crate) row_ptr: Vec<u32>,
    pub(crate) col: Vec<u32>,
    pub(crate) values: Vec<f64>,
}

impl NeighbourEdges {
    fn push(&mut self, column: u32, value: f64) {
        self.col.push(column);
        self.values.push(value);
    }

    /// Each edge's receiving node and sending node.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (usize, usize)> {
        let rows = self.row_ptr.windows(2).enumerate();
        let row_of_edge = |(row, bounds): (usize, &[u32])| std::iter::repeat_n(row, (bounds[1] - bounds[0]) as usize);
        rows.flat_map(row_of_edge).zip(self.col.iter().map(|&column| column as usize))
    }
}

/// # Errors
/// [`Error::Data`] for more edges than a `u32` counts.
pub(crate) fn assemble(neighbours: &NeighbourLists, parts: EdgeOptions) -> Result<NeighbourEdges> {
    match parts.symmetry {
        Symmetry::None if parts.self_loops == SelfLoops::None => as_they_are(neighbours),
        Symmetry::None => rows(neighbours, parts, |row, to| to.extend_from_slice(neighbours.list_of(row))),
        Symmetry::Union => both_ways(neighbours, parts, |_| true),
        Symmetry::Mutual => both_ways(neighbours, parts, |links| links.ways == 2 || links.kept),
    }
}

fn as_they_are(neighbours: &NeighbourLists) -> Result<NeighbourEdges> {
    counted(neighbours.list.len())?;
    Ok(NeighbourEdges {
        row_ptr: neighbours.offsets.iter().map(|&edges| edges as u32).collect(),
        col: neighbours.list.iter().map(|neighbour| neighbour.column).collect(),
        values: neighbours.list.iter().map(|neighbour| neighbour.value).collect(),
    })
}

/// A pair of nodes, seen from one of them.
#[derive(Clone, Copy)]
struct PairLinks {
    /// Number of ends that have the other as a neighbour.
    ways: u32,
    /// True if either is kept at any threshold.
    kept: bool,
}

fn both_ways(
    neighbours: &NeighbourLists,
    parts: EdgeOptions,
    joined: impl Fn(PairLinks) -> bool,
) -> Result<NeighbourEdges> {
    let back = transposed(neighbours);
    rows(neighbours, parts, |row, to| {
        let (mut own, mut theirs) = (neighbours.list_of(row).iter().peekable(), back.list_of(row).iter().peekable());
        while let Some(column) = lower(own.peek().copied(), theirs.peek().copied()) {
            let own = own.next_if(|neighbour| neighbour.column == column);
            let theirs = theirs.next_if(|neighbour| neighbour.column == column);
            let found = || own.iter().chain(&theirs);
            let links = PairLinks { ways: found().count() as u32, kept: found().any(|neighbour| neighbour.kept) };
            if joined(links) {
                to.extend(found().take(1).copied());
            }
        }
    })
}

fn lower(own: Option<&Neighbour>, theirs: Option<&Neighbour>) -> Option<u32> {
    own.into_iter().chain(theirs).map(|neighbour| neighbour.column).min()
}

/// For each row, the rows that have it as a neighbour, ascending.
fn transposed(neighbours: &NeighbourLists) -> NeighbourLists {
    let rows = neighbours.offsets.len() - 1;
    let mut offsets = vec![0; rows + 1];
    neighbours.list.iter().for_each(|neighbour| offsets[neighbour.column as usize + 1] += 1);
    for row in 0..rows {
        offsets[row + 1] += offsets[row];
    }
    let mut next = offsets.clone();
    let mut list = neighbours.list.clone();
    for row in 0..rows {
        for neighbour in neighbours.list_of(row) {
            let place = &mut next[neighbour.column as usize];
            list[*place] = Neighbour { column: row as u32, ..*neighbour };
            *place += 1;
        }
    }
    NeighbourLists { offsets, list }
}

/// The edges of each row that `of` writes, and self-loops.
fn rows(
    neighbours: &NeighbourLists,
    parts: EdgeOptions,
    list_row: impl Fn(usize, &mut Vec<Neighbour>),
) -> Result<NeighbourEdges> {
    let mut edges = NeighbourEdges { row_ptr: vec![0], ..NeighbourEdges::default() };
    let mut list = Vec::new();
    for row in 0..neighbours.offsets.len() - 1 {
        list.clear();
        list_row(row, &mut list);
        let before = list.partition_point(|neighbour| (neighbour.column as usize) < row);
        list[..before].iter().for_each(|neighbour| edges.push(neighbour.column, neighbour.value));
        if parts.self_loops == SelfLoops::Added {
            edges.push(row as u32, parts.own);
        }
        list[before..].iter().for_each(|neighbour| edges.push(neighbour.column, neighbour.value));
        edges.row_ptr.push(counted(edges.col.len())?);
    }
    Ok(edges)
}

/// A number of edges as an offset of a graph.
pub(crate) fn counted(edges: usize) -> Result<u32> {
    u32::try_from(edges).map_err(|_| Error::Data {
        object: format!("a graph of {edges} edges or more"),
        expected: format!("up to {}; take fewer neighbours, or a smaller radius", u32::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 and 2 send to 0, 0 to 1, and 1, which is kept, to 2; nobody to 3.
    fn neighbours() -> NeighbourLists {
        let neighbour = |column, kept, value| Neighbour { column, kept, value };
        let list = vec![
            neighbour(1, false, 0.5),
            neighbour(2, false, 0.25),
            neighbour(0, false, 0.5),
            neighbour(1, true, 0.1),
        ];
        NeighbourLists { offsets: vec![0, 2, 3, 4, 4], list }
    }

    #[test]
    fn edges_are_joined_as_their_ends_have_each_other() {
        type Case = (Symmetry, SelfLoops, &'static [(usize, usize)]);
        let cases: &[Case] = &[
            (Symmetry::None, SelfLoops::None, &[(0, 1), (0, 2), (1, 0), (2, 1)]),
            (Symmetry::Union, SelfLoops::None, &[(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]),
            (Symmetry::Mutual, SelfLoops::None, &[(0, 1), (1, 0), (1, 2), (2, 1)]),
            (Symmetry::Mutual, SelfLoops::Added, &[(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (3, 3)]),
        ];
        for &(symmetry, self_loops, expected) in cases {
            let edges = assemble(&neighbours(), EdgeOptions { symmetry, self_loops, own: 1.0 }).unwrap();
            assert_eq!(edges.ends().collect::<Vec<_>>(), expected, "{symmetry:?}");
            for ((row, column), value) in edges.ends().zip(&edges.values) {
                let expected = [[1.0, 0.5, 0.25], [0.5, 1.0, 0.1], [0.25, 0.1, 1.0]];
                let expected = if row == 3 { 1.0 } else { expected[row][column] };
                assert_eq!(*value, expected, "{symmetry:?}: {row} ← {column}");
            }
        }
    }

    #[test]
    fn no_rows_have_no_edges() {
        let none = NeighbourLists { offsets: vec![0], list: Vec::new() };
        let parts = EdgeOptions { symmetry: Symmetry::Union, self_loops: SelfLoops::Added, own: 1.0 };
        assert_eq!(assemble(&none, parts).unwrap(), NeighbourEdges { row_ptr: vec![0], ..NeighbourEdges::default() });
    }
}
