//! Graphs: their compressed forms, and the arrays that are refused.

use megabatch_segment::{Compressed, Csc, Csr};
use proptest::prelude::*;

#[test]
fn what_is_wrong_with_a_graph_is_said() {
    type Arrays<'a> = (&'a [u32], &'a [u32], usize);
    let cases: &[(Arrays<'_>, &str)] = &[
        ((&[], &[], 0), "row_ptr is empty: 0 segments have one offset more, and no segments have the offset 0"),
        ((&[1, 2], &[0, 0], 1), "row_ptr[0] is 1, and offsets begin with 0"),
        (
            (&[0, 2, 1, 3], &[0, 0, 0], 1),
            "row_ptr[2] is 1, less than the 2 before it: offsets never decrease; sort the rows by segment",
        ),
        ((&[0, 2], &[0, 0, 0], 1), "row_ptr ends with 2, but there are 3 to divide among the segments"),
        ((&[0, 4], &[0, 0, 0], 1), "row_ptr ends with 4, but there are 3 to divide among the segments"),
        ((&[0, 3], &[0, 5, 6], 5), "col[1] is 5, but indices go from 0 to below 5"),
        ((&[0, 1], &[0], 0), "col[0] is 0, but indices go from 0 to below 0"),
    ];
    for ((row_ptr, col, columns), message) in cases {
        assert_eq!(Csr::new(row_ptr, col, *columns).unwrap_err().to_string(), *message);
        let wide = |narrow: &[u32]| narrow.iter().map(|&x| x.into()).collect::<Vec<u64>>();
        assert_eq!(Csr::new(&wide(row_ptr), &wide(col), *columns).unwrap_err().to_string(), *message);
    }
    assert!(Csr::<u32>::new(&[0], &[], 0).is_ok());
}

#[test]
fn a_transposition_is_told_from_all_other_arrays() {
    let csr = Csr::new(&[0u32, 2, 2, 4], &[1, 2, 0, 1], 3).unwrap();
    let is_of = |offsets: &[u32], rows: &[u32], edges: &[u32]| {
        Csc::new(offsets, rows, edges, 3).is_ok_and(|csc| csc.is_of(&csr))
    };
    assert!(is_of(&[0, 1, 3, 4], &[2, 0, 2, 0], &[2, 0, 3, 1]));
    let others: &[(&[u32], &[u32], &[u32])] = &[
        (&[0, 1, 3, 4], &[2, 2, 0, 0], &[2, 3, 0, 1]), // not in the order of the rows
        (&[0, 1, 3, 4], &[2, 0, 0, 0], &[2, 0, 0, 1]), // one edge twice
        (&[0, 1, 3, 4], &[1, 0, 2, 0], &[2, 0, 3, 1]), // another row
        (&[0, 2, 3, 4], &[2, 0, 2, 0], &[2, 0, 3, 1]), // another column
        (&[0, 1, 3], &[2, 0, 2], &[2, 0, 3]),          // fewer
        (&[0, 0, 0, 0], &[], &[]),
    ];
    for (offsets, rows, edges) in others {
        assert!(!is_of(offsets, rows, edges), "{offsets:?} {rows:?} {edges:?}");
    }
}

#[test]
fn what_is_wrong_with_edges_is_said() {
    let ends = Compressed::from_edges(&[0u32, 1], &[0], 2, 2).unwrap_err();
    assert_eq!(ends.to_string(), "2 edges have a row and 1 a column: both arrays list the same edges");
    let row = Compressed::from_edges(&[0u32, 2], &[0, 0], 2, 1).unwrap_err();
    assert_eq!(row.to_string(), "row[1] is 2, but indices go from 0 to below 2");
}

proptest! {
    /// Both forms list the edges that they were made of, those of a row (column) in their own
    /// order.
    #[test]
    fn compressed_forms_have_the_edges(
        (rows, columns, ends) in (1usize..20, 1usize..20).prop_flat_map(|(rows, columns)| {
            let end = (0..rows as u64, 0..columns as u64);
            (Just(rows), Just(columns), prop::collection::vec(end, 0..200))
        })
    ) {
        let (row, col): (Vec<u64>, Vec<u64>) = ends.iter().copied().unzip();
        let by_row = Compressed::from_edges(&row, &col, rows, columns).unwrap();
        let csr = by_row.csr(columns).unwrap();
        prop_assert_eq!((csr.rows(), csr.columns(), csr.edges()), (rows, columns, ends.len()));
        let mut expected: Vec<u64> = (0..ends.len() as u64).collect();
        expected.sort_by_key(|&edge| row[edge as usize]);
        prop_assert_eq!(&by_row.edges, &expected);
        for r in 0..rows {
            for (place, &c) in csr.edges_of(r).zip(csr.columns_of(r)) {
                prop_assert_eq!(ends[by_row.edges[place] as usize], (r as u64, c));
            }
        }
        let csc = csr.transposed().unwrap();
        for c in 0..columns {
            let places = csc.offsets[c] as usize..csc.offsets[c + 1] as usize;
            prop_assert!(csc.edges[places.clone()].is_sorted());
            for place in places {
                let edge = csc.edges[place] as usize;
                prop_assert_eq!(csr.col()[edge], c as u64);
                prop_assert!(csr.edges_of(csc.indices[place] as usize).contains(&edge));
            }
        }
        prop_assert_eq!(csc.edges.len(), ends.len());
        prop_assert!(Csc::new(&csc.offsets, &csc.indices, &csc.edges, rows).unwrap().is_of(&csr));
    }
}
