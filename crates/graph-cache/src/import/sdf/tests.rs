use super::*;
use crate::builder::Builder;

/// Hydroxide, whose charge stands in the line of its atom, and methanal without its hydrogen.
const TWO: &str = "\
hydroxide
  made up

  2  1  0  0  0  0  0  0  0  0999 V2000
    0.0000    0.0000    0.0000 O   0  5  0  0  0  0  0  0  0  0  0  0
    0.0000    0.0000    0.9700 H   0  0
  1  2  1  0
M  END
> <energy>
-1.5

>  25 <name> (1)
OH
minus

$$$$
CO+
  made up

  3  2  0  0  0  0  0  0  0  0999 V2000
    0.0000    0.0000    0.0000 C   0  1
    3.0000    4.0000    0.0000 O   0  1
    0.0000    4.0000    0.0000 N
  1  2  2
  3  2  1
M  CHG  2   2  -1   3   2
M  ISO  1   1  13
M  END
> <energy>
2.5

$$$$
";

fn text(bytes: &str) -> Text {
    Text::new("m.sdf", bytes.into()).unwrap()
}

fn options(targets: &[&str]) -> SdfOptions {
    SdfOptions { targets: targets.iter().map(|&name| name.to_owned()).collect(), ..SdfOptions::default() }
}

#[test]
fn atoms_are_nodes_and_bonds_edges_both_ways() {
    let imported = sdf_text(&text(TWO), &options(&["energy"])).unwrap();
    let schema = imported.schema();
    assert_eq!(schema.node_features.join(" "), "element=H element=C element=N element=O charge");
    assert_eq!((schema.targets.join(" "), imported.keys().join(" ")), ("energy".into(), "1 2".into()));
    let first = imported.build(0).unwrap();
    assert_eq!(first.node_features, [0., 0., 0., 1., -1., 1., 0., 0., 0., 0.]);
    assert_eq!(
        (first.edge_attributes, first.targets),
        (vec![1., 0., 0., 0., 0.97, 1., 0., 0., 0., 0.97], Targets::Graph(vec![-1.5]))
    );
    let second = imported.build(1).unwrap();
    assert_eq!((second.row_ptr, second.col), (vec![0, 1, 3, 4], vec![1, 0, 2, 1]));
    assert_eq!(second.edge_attributes[..10], [0., 1., 0., 0., 5., 0., 1., 0., 0., 5.]);
    let charges: Vec<f32> = second.node_features.chunks(5).map(|row| row[4]).collect();
    assert_eq!(charges, [0.0, -1.0, 2.0]);
}

#[test]
fn edges_may_be_of_a_radius_and_nodes_know_where_they_are() {
    let options = SdfOptions { edges: MoleculeEdges::Radius(4.0), positions: Positions::Kept, ..SdfOptions::default() };
    let imported = sdf_text(&text(&TWO.replace('\n', "\r\n")), &options).unwrap();
    let graph = imported.build(1).unwrap();
    assert_eq!((graph.row_ptr, graph.col), (vec![0, 1, 2, 4], vec![2, 2, 0, 1]));
    assert_eq!(graph.edge_attributes[..10], [0., 0., 0., 0., 4., 1., 0., 0., 0., 3.]);
    assert_eq!(
        (imported.schema().node_features[5..].join(""), &graph.node_features[13..16]),
        ("xyz".into(), [3., 4., 0.].as_slice())
    );
    assert_eq!(graph.targets, Targets::None);
    assert!(imported.identity().parameters.contains("4.0"), "{}", imported.identity().parameters);
}

#[test]
fn targets_may_stand_in_a_table() {
    let table = |bytes: &str| Some(Text::new("t.csv", bytes.into()).unwrap());
    let with = |bytes, names| SdfOptions { table: table(bytes), ..options(names) };
    let imported = sdf_text(&text(TWO), &with("id,mu,u0\na,1,2\nb,,4\n", &["u0", "mu"])).unwrap();
    assert_eq!(
        (imported.schema().targets.join(" "), imported.build(0).unwrap().targets),
        ("u0 mu".into(), Targets::Graph(vec![2.0, 1.0]))
    );
    assert!(matches!(imported.build(1).unwrap().targets, Targets::Graph(t) if t[0] == 4.0 && t[1].is_nan()));
    for (options, message) in [
        (with("id,mu\na,1\nb,2\n", &[]), "t.csv: line 2, column 1: expected a finite number, found `a`"),
        (
            with("mu\n1\n2\n3\n", &[]),
            "there are 3 rows; expected 2, one a molecule, or 1, one for each of possible valences",
        ),
        (with("mu\n1\n2\n", &["u"]), "there is no column `u`; expected mu"),
        (options(&["name"]), "the molecule at line 1 has `OH\nminus`; expected a number `> <name>`"),
        (options(&["gap"]), "the molecule at line 1 has no such data item"),
    ] {
        let error = sdf_text(&text(TWO), &options).unwrap_err().to_string();
        assert!(error.contains(message), "{error}\ndoes not contain\n{message}");
    }
}

#[test]
fn a_table_written_through_rdkit_has_no_rows_of_impossible_molecules() {
    // Neutral carbon with six bonds.
    let impossible =
        TWO.replace("  1  2  2\n  3  2  1\nM  CHG  2   2  -1   3   2", "  1  2  3\n  1  3  3\nM  CHG  1   3   1");
    let table = Some(Text::new("t.csv", b"y\n5\n".to_vec()).unwrap());
    let imported = sdf_text(&text(&impossible), &SdfOptions { table, ..SdfOptions::default() }).unwrap();
    assert_eq!(imported.build(0).unwrap().targets, Targets::Graph(vec![5.0]));
    assert!(matches!(imported.build(1).unwrap().targets, Targets::Graph(targets) if targets[0].is_nan()));
    assert!(imported.notes()[0].contains("t.csv has 1 rows for 2 molecules"), "{:?}", imported.notes());
    assert!(imported.notes()[0].contains("the 1 with an atom of impossible valence (2)"), "{:?}", imported.notes());
}

#[test]
fn what_is_not_of_the_format_is_told() {
    for (from, to, message) in [
        (
            "  2  1  0  0  0  0  0  0  0  0999 V2000",
            "  0  0  0     0  0            999 V3000",
            "m.sdf: line 4, column 34: expected version V2000; convert",
        ),
        ("  2  1  0  0  0  0  0  0  0  0999 V2000", "  2  1", "line 4, column 34: expected the version V2000"),
        ("  2  1  0", "  0  0  0", "line 4, column 1: expected an atom at least; leave out molecules without atoms"),
        ("  2  1  0", "  x  1  0", "line 4, column 1: expected the number of atoms"),
        ("0.9700 H", "0.9700 R#", "line 6, column 32: expected the symbol of an element, found `R#`"),
        ("    0.9700 H", "       inf H", "line 6, column 21: expected a finite coordinate"),
        ("  1  2  1  0", "  1  3  1  0", "line 7, column 4: expected the number of an atom, 1 to 2"),
        ("  1  2  1  0", "  1  1  1  0", "line 7, column 4: expected another atom"),
        ("  1  2  1  0", "  1  2  8  0", "line 7, column 7: expected the order of a bond, 1 to 4; those above"),
        ("O   0  5", "O   0  9", "line 5, column 37: expected the code of a charge"),
        ("  1  2  1  0\nM  END\n", "  1  2  1  0\n", "line 15, column 1: expected `M  END` before the molecule ends"),
        ("M  CHG  2   2  -1", "M  CHG  2   4  -1", "column 11: expected the number of an atom, 1 to 3, found `  4`"),
        ("M  CHG  2", "M  CHG  3", "column 27: expected the number of an atom"),
    ] {
        assert!(TWO.contains(from), "{from}");
        let error = sdf_text(&text(&TWO.replacen(from, to, 1)), &SdfOptions::default()).unwrap_err().to_string();
        assert!(error.contains(message), "{error}\ndoes not contain\n{message}");
    }
    let cut = &TWO[..TWO.find("M  ISO").unwrap()];
    let error = sdf_text(&text(cut), &SdfOptions::default()).unwrap_err().to_string();
    assert!(error.contains("expected `M  END`, found `the end of the file`"), "{error}");
}
