//! Importers on the data that they were written for, which `MEGABATCH_DATA` finds.

use std::path::Path;

use megabatch_graph_cache::export;
use megabatch_graph_cache::import::{self, EdgeListOptions, FeatureRows, Imported, Positions, SdfOptions, Text};
use megabatch_graph_cache::{Builder, Graph, Targets};
use megabatch_test_support::published_data;

fn graphs(imported: &Imported) -> Vec<Graph> {
    (0..imported.keys().len()).map(|index| imported.build(index).unwrap()).collect()
}

/// The same graphs; targets that are not known are compared by their bits.
fn assert_same(one: &Imported, other: &Imported) {
    assert_eq!((one.schema(), one.keys()), (other.schema(), other.keys()));
    for (key, (mut one, mut other)) in one.keys().iter().zip(graphs(one).into_iter().zip(graphs(other))) {
        let bits = |targets: &mut Targets| match std::mem::take(targets) {
            Targets::None => Vec::new(),
            Targets::Nodes(targets) | Targets::Graph(targets) => {
                targets.iter().map(|target| target.to_bits()).collect()
            }
        };
        assert_eq!(bits(&mut one.targets), bits(&mut other.targets), "{key}");
        assert_eq!(one, other, "{key}");
    }
}

fn edge_index_and_back(imported: &Imported) -> Imported {
    let all: Vec<usize> = (0..imported.keys().len()).collect();
    let bytes = export::edge_index(imported, &all).unwrap();
    import::edge_index_bytes(Path::new("exported"), &bytes).unwrap()
}

#[test]
fn cora_has_the_nodes_edges_features_and_split_of_its_paper() {
    let Some(data) = published_data("the import of Cora") else { return };
    let folder = data.join("graphs/cora_plain");
    let cora = import::edge_list(&folder, EdgeListOptions::default()).unwrap();
    assert_eq!(cora.keys(), ["train", "validation", "test"]);
    assert_eq!((cora.schema().node_features.len(), cora.schema().targets.len()), (1433, 7));
    for (graph, labelled) in graphs(&cora).iter().zip([140, 500, 1000]) {
        assert_eq!((graph.len(), graph.col.len()), (2708, 10556));
        let Targets::Nodes(targets) = &graph.targets else { panic!("targets are of nodes") };
        assert_eq!(targets.iter().filter(|&&target| target == 1.0).count(), labelled);
        assert_eq!(targets.iter().filter(|target| target.is_nan()).count(), 7 * (2708 - labelled));
        assert_eq!(graph.node_features.iter().filter(|&&value| value == 1.0).count(), 49_216);
        // Citations are listed both ways.
        assert_eq!(graph.csr().unwrap().transposed().unwrap().indices, graph.col);
    }
    assert_same(
        &cora,
        &import::edge_list_texts(&export::edge_list(&cora).unwrap(), EdgeListOptions::default()).unwrap(),
    );
    assert_same(&cora, &edge_index_and_back(&cora));
    let normalized = import::edge_list(&folder, EdgeListOptions { features: FeatureRows::Normalized }).unwrap();
    let sum = |row: &[f32]| row.iter().sum::<f32>();
    assert!(graphs(&normalized)[0].node_features.chunks(1433).all(|row| (sum(row) - 1.0).abs() < 1e-5));
}

#[test]
fn mutag_has_its_molecules() {
    let Some(data) = published_data("the import of MUTAG") else { return };
    let mutag = import::tu(&data.join("graphs/MUTAG_TU")).unwrap();
    let all = graphs(&mutag);
    assert_eq!((all.len(), all.iter().map(Graph::len).sum::<usize>()), (188, 3371));
    assert_eq!(all.iter().map(|graph| graph.col.len()).sum::<usize>(), 7442);
    assert_eq!((mutag.schema().node_features.len(), mutag.schema().edge_attributes.len()), (7, 4));
    assert_eq!(mutag.schema().targets, ["-1", "1"]);
    let mutagenic = all.iter().filter(|graph| graph.targets == Targets::Graph(vec![0.0, 1.0])).count();
    assert_eq!(mutagenic, 125);
    assert_same(&mutag, &import::tu_texts(&export::tu(&mutag, "MUTAG").unwrap()).unwrap());
    assert_same(&mutag, &edge_index_and_back(&mutag));
}

#[test]
fn gdb1k_has_its_energies() {
    let Some(data) = published_data("the import of gdb1k") else { return };
    let file = |name: &str| data.join("molecules").join(name);
    let table = Some(Text::read(&file("gdb1k.sdf.csv.gz")).unwrap());
    let options = SdfOptions { table, positions: Positions::Kept, ..SdfOptions::default() };
    let molecules = import::sdf(&file("gdb1k.sdf.gz"), &options).unwrap();
    let all = graphs(&molecules);
    assert_eq!((all.len(), molecules.schema().targets.join(" ")), (1000, "atomization_energy".to_owned()));
    assert_eq!(
        molecules.schema().node_features.join(" "),
        "element=H element=C element=N element=O element=S charge x y z"
    );
    // Nine molecules have a nitrogen with four bonds and no row in the table.
    let unknown: Vec<usize> = (0..1000)
        .filter(|&index| matches!(&all[index].targets, Targets::Graph(targets) if targets[0].is_nan()))
        .collect();
    assert_eq!(unknown, [198, 202, 221, 365, 444, 591, 667, 809, 934]);
    assert!(molecules.notes()[0].contains("199, 203, 222, 366, 445, 592, 668, 810, 935"), "{:?}", molecules.notes());
    assert_eq!(all[999].targets, Targets::Graph(vec![-1373.04]));
    assert_eq!((all[0].len(), all[0].col.len(), &all[0].targets), (5, 8, &Targets::Graph(vec![-596.35])));
    let exported = export::sdf(&molecules).unwrap();
    let options = SdfOptions { table: None, targets: vec!["atomization_energy".to_owned()], ..options };
    assert_same(&molecules, &import::sdf_text(&exported, &options).unwrap());
    assert_same(&molecules, &edge_index_and_back(&molecules));
}
