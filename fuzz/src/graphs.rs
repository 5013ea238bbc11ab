//! Graphs as others write them: any bytes, imported, end in graphs that are well-formed and of one
//! shape, and return from an export, or in an error.

use std::path::Path;

use megabatch_graph_cache::import::{
    EdgeListOptions, Imported, MoleculeEdges, Positions, SdfOptions, Text, edge_index_bytes, edge_list_texts, sdf_text,
    tu_texts,
};
use megabatch_graph_cache::{Builder, Result, Schema, TargetLevel, Targets, export};

/// Separator of the files of one input.
const BETWEEN_FILES: &[u8] = b"\n====";

/// Imports an input of several files, each behind a line with its name, as a TU dataset.
pub fn tu(bytes: &[u8]) {
    let Some(files) = files(bytes) else { return };
    returned(tu_texts(&files), |imported| tu_texts(&export::tu(imported, "DS")?));
}

/// Imports an input of several files, each behind a line with its name, as an edge list.
pub fn edge_list(bytes: &[u8]) {
    let Some(files) = files(bytes) else { return };
    let read = |files: &[Text]| edge_list_texts(files, EdgeListOptions::default());
    returned(read(&files), |imported| read(&export::edge_list(imported)?));
}

/// Imports an input as an SDF file.
pub fn sdf(bytes: &[u8]) {
    let Ok(text) = Text::new("fuzzed.sdf", bytes.to_vec()) else { return };
    for edges in [MoleculeEdges::Bonds, MoleculeEdges::Radius(2.0)] {
        let options = SdfOptions { edges, positions: Positions::Kept, ..SdfOptions::default() };
        if let Some(imported) = checked(sdf_text(&text, &options)) {
            // Coordinates of more digits than SDF has are rounded, and bonds given twice are one:
            // atoms stay what they were.
            let Ok(exported) = export::sdf(&imported) else { continue };
            let again = sdf_text(&exported, &options).expect("what is exported can be imported");
            assert_eq!((again.schema(), again.keys()), (imported.schema(), imported.keys()));
        }
    }
}

/// Imports an input as a safetensors file.
pub fn edge_index(bytes: &[u8]) {
    returned(edge_index_bytes(Path::new("fuzzed"), bytes), |imported| {
        let all: Vec<usize> = (0..imported.keys().len()).collect();
        edge_index_bytes(Path::new("exported"), &export::edge_index(imported, &all)?)
    });
}

fn files(bytes: &[u8]) -> Option<Vec<Text>> {
    let (mut files, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() && files.len() < 10 {
        let end = rest.windows(BETWEEN_FILES.len()).position(|window| window == BETWEEN_FILES);
        let (file, after) = end.map_or((rest, &[][..]), |end| (&rest[..end + 1], &rest[end + BETWEEN_FILES.len()..]));
        let name = file.iter().position(|&byte| byte == b'\n')?;
        files.push(Text::new(str::from_utf8(&file[..name]).ok()?, file[name + 1..].to_vec()).ok()?);
        rest = after;
    }
    Some(files)
}

/// An imported graph is the same after export and import, as far as the format can hold it.
fn returned(imported: Result<Imported>, export_and_import: impl Fn(&Imported) -> Result<Imported>) {
    let Some(imported) = checked(imported) else { return };
    let Ok(again) = export_and_import(&imported) else { return };
    assert_eq!(again.keys().len(), imported.keys().len());
    for index in 0..imported.keys().len() {
        let (one, other) = (imported.build(index).expect("in memory"), again.build(index).expect("in memory"));
        // NaN is refused when a graph is stored.
        let [one_weights, other_weights] = [&one, &other].map(|graph| graph.weights.iter().map(|weight| weight.to_bits()).collect::<Vec<_>>());
        assert_eq!((one.row_ptr, one.col, one_weights), (other.row_ptr, other.col, other_weights));
    }
}

/// Holds graphs to their schema.
fn checked(imported: Result<Imported>) -> Option<Imported> {
    let imported = match imported {
        Ok(imported) => imported,
        Err(error) => {
            assert!(!error.to_string().is_empty(), "an error says what is wrong");
            return None;
        }
    };
    let Schema { weighted, edge_attributes, node_features, targets, target_level, .. } = imported.schema();
    for index in 0..imported.keys().len() {
        let graph = imported.build(index).expect("in memory");
        let (nodes, edges) = (graph.len(), graph.csr().expect("edges end in nodes").edges());
        assert_eq!(graph.weights.len(), if *weighted { edges } else { 0 });
        assert_eq!(graph.edge_attributes.len(), edges * edge_attributes.len());
        assert_eq!(graph.node_features.len(), nodes * node_features.len());
        match (target_level, &graph.targets) {
            (TargetLevel::None, Targets::None) => {}
            (TargetLevel::Node, Targets::Nodes(values)) => assert_eq!(values.len(), nodes * targets.len()),
            (TargetLevel::Graph, Targets::Graph(values)) => assert_eq!(values.len(), targets.len()),
            other => panic!("{other:?}"),
        }
        for row in 0..nodes {
            assert!(graph.csr().expect("as above").columns_of(row).is_sorted());
        }
    }
    Some(imported)
}
