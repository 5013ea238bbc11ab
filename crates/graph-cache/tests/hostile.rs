//! Files that no program would write: cut anywhere, with any byte changed, they end in graphs that
//! are well-formed or in an error that says where.

use std::path::Path;

use megabatch_graph_cache::import::{
    EdgeListOptions, Imported, MoleculeEdges, SdfOptions, Text, edge_index_bytes, edge_list_texts, sdf_text, tu_texts,
};
use megabatch_graph_cache::{Builder, Result};
use proptest::prelude::*;

const MOLECULE: &str = "\
OH-
  made up

  2  1  0  0  0  0  0  0  0  0999 V2000
    0.0000    0.0000    0.0000 O   0  5
    0.0000    0.0000    0.9700 H   0  0
  1  2  1  0
M  CHG  1   1  -1
M  END
> <energy>
-1.5

$$$$
";
/// The files of an input, each behind a line with its name.
const TU: &str = "DS_A.txt\n1, 2\n2, 1\n5, 4\n=DS_graph_indicator.txt\n1\n1\n1\n2\n2\n=DS_graph_labels.txt\n1\n-1\n=DS_node_labels.txt\n7\n3\n3\n7\n7\n";
const EDGE_LIST: &str = "edges.csv\nsrc,dst,weight\n2,0,0.5\n1,0,0.25\n=features_sparse.csv\nnode,feature,value\n0,4,1\n2,0,2\n=labels.csv\nnode,label,split\n0,b,train\n1,a,test\n";

fn texts(bytes: &[u8]) -> Option<Vec<Text>> {
    let file = |part: &[u8]| {
        let end = part.iter().position(|&byte| byte == b'\n')?;
        Text::new(str::from_utf8(&part[..end]).ok()?, part[end + 1..].to_vec()).ok()
    };
    bytes.split(|&byte| byte == b'=').map(file).collect()
}

fn check(imported: Result<Imported>) {
    match imported {
        Err(error) => assert!(error.to_string().len() > 20, "{error}"),
        Ok(imported) => {
            for index in 0..imported.keys().len() {
                let graph = imported.build(index).unwrap();
                let edges = graph.csr().unwrap().edges();
                assert_eq!(graph.edge_attributes.len(), edges * imported.schema().edge_attributes.len());
                assert_eq!(graph.node_features.len(), graph.len() * imported.schema().node_features.len());
            }
        }
    }
}

fn import_all(bytes: &[u8]) {
    if let Some(texts) = texts(bytes) {
        check(tu_texts(&texts));
        check(edge_list_texts(&texts, EdgeListOptions::default()));
    }
    let options = SdfOptions { edges: MoleculeEdges::Radius(2.0), ..SdfOptions::default() };
    check(sdf_text(
        &Text::new("m.sdf", bytes.to_vec()).unwrap_or_else(|_| Text::new("", Vec::new()).unwrap()),
        &options,
    ));
    check(edge_index_bytes(Path::new("g"), bytes));
}

#[test]
fn files_may_end_anywhere() {
    for whole in [MOLECULE, TU, EDGE_LIST] {
        (0..whole.len()).for_each(|end| import_all(&whole.as_bytes()[..end]));
    }
}

proptest! {
    #[test]
    fn bytes_may_be_anything(which in 0..3usize, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = [MOLECULE, TU, EDGE_LIST][which].as_bytes().to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        import_all(&bytes);
    }

    /// Numbers are what is believed most easily.
    #[test]
    fn numbers_may_be_anything(which in 0..3usize, place in any::<prop::sample::Index>(), number in any::<u64>(), shift in 0..64u32) {
        let text = [MOLECULE, TU, EDGE_LIST][which];
        let digits: Vec<usize> = (0..text.len()).filter(|&at| text.as_bytes()[at].is_ascii_digit()).collect();
        let at = digits[place.index(digits.len())];
        import_all(format!("{}{}{}", &text[..at], number >> shift, &text[at + 1..]).as_bytes());
    }
}
