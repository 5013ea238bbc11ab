//! Every instruction set of this CPU against loops of a few lines in double precision.

use megabatch_gpu_core::Device;
use megabatch_nn::graph::GraphView;
use megabatch_segment::{Csc, Csr};

use super::*;

/// The distance in units in the last place of single precision at `exact`.
fn ulps(got: f32, exact: f64) -> f64 {
    let nearest = (exact as f32).abs().max(f32::MIN_POSITIVE);
    (f64::from(got) - exact).abs() / f64::from(nearest.next_up() - nearest)
}

#[test]
fn the_exponential_is_exact_to_two_units_and_elu_to_four() {
    let check = |isa: Isa, x: [f32; PANEL]| {
        let (mut exps, mut elus) = (x, x.map(|x| -x));
        exp(isa, &mut exps);
        elu(isa, &mut elus);
        for ((x, exp), elu) in x.into_iter().zip(exps).zip(elus) {
            let exact = f64::from(x).exp();
            match exact < f64::from(f32::MIN_POSITIVE) {
                true => assert!(exp == 0.0 || ulps(exp, exact) <= 2.0, "{isa:?}: exp({x}) is {exp}"),
                false => assert!(ulps(exp, exact) <= 2.0, "{isa:?}: exp({x}) is {exp}, not {exact}"),
            }
            assert_eq!(elu, -x, "{isa:?}: elu({}) is {elu}", -x);
        }
        let mut elus = x;
        super::elu(isa, &mut elus);
        for (x, elu) in x.into_iter().zip(elus) {
            assert!(ulps(elu, f64::from(x).exp_m1()) <= 4.0, "{isa:?}: elu({x}) is {elu}");
        }
    };
    for isa in Isa::all() {
        for block in 0..20_000 {
            // Evenly over -100..0, and by magnitude from 1e-38 to 1e38.
            check(isa, std::array::from_fn(|i| (block * 16 + i) as f32 * (100.0 / 320_000.0) - 100.0));
            check(isa, std::array::from_fn(|i| -(10f32.powf((block * 16 + i) as f32 * (76.0 / 320_000.0) - 38.0))));
        }
        let mut special = [f32::NEG_INFINITY; PANEL];
        (special[1], special[2], special[3]) = (f32::NAN, 0.0, -0.0);
        let mut elus = special;
        exp(isa, &mut special);
        elu(isa, &mut elus);
        assert!(special[0] == 0.0 && special[1].is_nan() && special[2] == 1.0 && special[3] == 1.0, "{special:?}");
        assert!(elus[0] == -1.0 && elus[1].is_nan() && elus[2] == 0.0 && elus[3] == 0.0, "{elus:?}");
    }
}

#[test]
fn lists_hold_the_edges_by_either_end_with_loops_in_place() {
    let (row_ptr, col) = ([0u32, 3, 3, 5], [0u32, 1, 2, 1, 2]);
    let csr = Csr::new(&row_ptr, &col, 3).unwrap();
    let transposed = csr.transposed().unwrap();
    let csc = Csc::new(&transposed.offsets, &transposed.indices, &transposed.edges, 3).unwrap();
    let mut lists = EdgeLists::new(&Device::cpu().scope("lists"), 4, 6).unwrap();
    let graph = GraphView { csr, csc, attributes: &[] };

    let starts = |walk: Walk<'_>| walk.edges_of_each().map(|edges| edges.start).collect::<Vec<_>>();
    lists.fill(&graph, true);
    assert_eq!((starts(lists.rows()), lists.rows().ends()), (vec![0, 4, 5], &[0, 1, 2, 0, 1, 1, 2, 2][..]));
    assert_eq!((starts(lists.columns()), lists.columns().ends()), (vec![0, 1, 4], &[0, 0, 2, 1, 0, 2][..]));
    assert_eq!((lists.places(), lists.gaps()), (&[3, 1, 5, 4, 2, 7][..], &[0, 6][..]));

    let part = lists.rows().part(&(1..3));
    assert_eq!((part.nodes(), part.nodes_of_graph(), starts(part)), (2, 3, vec![0, 1]));
    assert_eq!((part.ends(), lists.rows().edges_of(&(1..3))), (&[1, 1, 2, 2][..], 4..8));
    assert_eq!(lists.rows().even_parts(2), [0..1, 1..3]);
    assert_eq!(part.even_parts(9), [0..1, 1..2]);

    lists.fill(&graph, false);
    assert_eq!((starts(lists.rows()), lists.rows().ends()), (vec![0, 3, 3], &col[..]));
    assert_eq!((lists.columns().ends(), lists.places()), (&transposed.indices[..], &transposed.edges[..]));
    assert!(lists.gaps().is_empty());
}

#[test]
#[should_panic(expected = "columns of the same graph")]
fn arrays_of_different_graphs_are_refused() {
    let csr = Csr::new(&[0u32, 0, 0], &[], 2).unwrap();
    let csc = Csc::new(&[0u32, 0], &[], &[], 2).unwrap();
    let mut lists = EdgeLists::new(&Device::cpu().scope("lists"), 4, 6).unwrap();
    lists.fill(&GraphView { csr, csc, attributes: &[] }, true);
}
