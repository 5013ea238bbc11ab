use super::*;
use crate::builder::Builder;

fn import(files: &[(&str, &str)]) -> Result<Imported> {
    let text = |(name, text): &(&str, &str)| Text::new(format!("{name}.csv"), text.as_bytes().to_vec()).unwrap();
    edge_list_texts(&files.iter().map(text).collect::<Vec<_>>(), EdgeListOptions::default())
}

#[test]
fn a_split_gives_a_graph_a_part_with_the_targets_of_its_nodes() {
    let imported = import(&[
        ("edges", "src,dst,weight,kind\n2,0,0.5,1\n1,0,0.25,0\n"),
        ("features_sparse", "node,feature\n0,2\n2,0\n"),
        ("labels", "node,label,split\n0,10,train\n1,9,test\n2,10,none\n"),
    ])
    .unwrap();
    assert_eq!(imported.keys(), ["train", "test"]);
    let schema = imported.schema();
    assert_eq!((&schema.names, schema.weighted, schema.target_level), (&Vec::new(), true, TargetLevel::Node));
    assert_eq!((schema.targets.join(" "), schema.edge_attributes.join(" ")), ("9 10".into(), "kind".into()));
    let graph = imported.build(0).unwrap();
    assert_eq!((&graph.row_ptr, &graph.col, &graph.weights), (&vec![0, 2, 2, 2], &vec![1, 2], &vec![0.25, 0.5]));
    assert_eq!(
        (&graph.edge_attributes, graph.node_features),
        (&vec![0.0, 1.0], vec![0., 0., 1., 0., 0., 0., 1., 0., 0.])
    );
    let Targets::Nodes(train) = graph.targets else { panic!("targets are of nodes") };
    assert_eq!(train[..2], [0.0, 1.0]);
    assert!(train[2..].iter().all(|target| target.is_nan()));
    let Targets::Nodes(test) = imported.build(1).unwrap().targets else { panic!("targets are of nodes") };
    assert_eq!(test[2..4], [1.0, 0.0]);
    assert!(test[0].is_nan() && test[4].is_nan());
}

#[test]
fn nodes_have_names_where_they_are_no_numbers() {
    let imported = import(&[
        ("edges", "source,target\nC,A\nA,B\n"),
        ("features", "node,x,\"y, z\"\nA,1,2\nB,3,4\nC,5,6\n"),
        ("targets", "node,return\nB,0.5\nA,\n"),
    ])
    .unwrap();
    let schema = imported.schema();
    assert_eq!((schema.names.join(" "), imported.keys()), ("B A C".into(), ["graph".to_owned()].as_slice()));
    assert_eq!((schema.node_features.join("|"), schema.targets.join(" ")), ("x|y, z".into(), "return".into()));
    let graph = imported.build(0).unwrap();
    assert_eq!((graph.row_ptr, graph.col), (vec![0, 1, 2, 2], vec![1, 2]));
    assert_eq!(graph.node_features, [3.0, 4.0, 1.0, 2.0, 5.0, 6.0]);
    assert!(matches!(graph.targets, Targets::Nodes(t) if t[0] == 0.5 && t[1].is_nan() && t[2].is_nan()));
    let numbers = import(&[("edges", "src,dst\n10,9\n9,8\n")]).unwrap();
    assert_eq!(numbers.schema().names, ["8", "9", "10"]);
}

#[test]
fn features_may_have_names_and_be_normalized() {
    let files = [("edges", "src,dst\n0,1\n"), ("features_sparse", "node,feature,value\n1,word,3\n1,other,1\n")];
    let texts: Vec<Text> =
        files.iter().map(|(name, text)| Text::new(format!("{name}.csv"), text.as_bytes().to_vec()).unwrap()).collect();
    let imported = edge_list_texts(&texts, EdgeListOptions { features: FeatureRows::Normalized }).unwrap();
    assert_eq!(imported.schema().node_features, ["word", "other"]);
    assert_eq!(imported.build(0).unwrap().node_features, [0.0, 0.0, 0.75, 0.25]);
    let given = edge_list_texts(&texts, EdgeListOptions::default()).unwrap();
    assert_eq!(given.build(0).unwrap().node_features, [0.0, 0.0, 3.0, 1.0]);
    assert_eq!(given.identity().data, imported.identity().data);
    assert_ne!(given.identity(), imported.identity());
}

#[test]
fn what_does_not_fit_together_is_told() {
    let edges = ("edges", "src,dst\n0,1\n");
    for (files, message) in [
        (vec![("labels", "node\n0\n")], "a file `edges.csv`"),
        (vec![("edges", "")], "edges.csv: there is nothing in it"),
        (vec![("edges", "0,1\n1,0\n")], "the columns are `0,1`; expected a header that begins with `src,dst`"),
        (vec![("edges", "src,dst\n0,1\n\n1\n")], "edges.csv: line 4, column 2: expected the name of a node"),
        (vec![("edges", "src,dst,w\n0,1,x\n")], "line 2, column 3: expected a finite number, found `x`"),
        (vec![edges, ("features", "x,node\n0,1\n")], "the first column is `x`"),
        (vec![edges, ("features", "node,x\n0,1\n")], "1 of 2 nodes have features"),
        (
            vec![edges, ("features", "node,x\n0,1\n1,1\n0,1\n")],
            "line 4, column 1: expected a node that has no features",
        ),
        (vec![edges, ("features", "node,x\n0,1\n"), ("features_sparse", "node,feature\n")], "take one away"),
        (
            vec![edges, ("features_sparse", "node,feature\n0,4000000000\n")],
            "1 entries are to fill 2 nodes by 4000000001 columns; expected columns that are numbered",
        ),
        (vec![edges, ("labels", "node,label,split\n0,a,train\n1,b,dev\n")], "line 3, column 3: expected `train`"),
        (
            vec![edges, ("labels", "node,label\n0,a\n0,a\n")],
            "line 3, column 1: expected a node that is not named above",
        ),
        (vec![edges, ("labels", "node,y\n0,1\n")], "numbers stand in `targets.csv`"),
        (vec![edges, ("targets", "node,y\n0,inf\n")], "targets.csv: line 2, column 2: expected a finite number"),
    ] {
        let error = import(&files).unwrap_err().to_string();
        assert!(error.contains(message), "{error}\ndoes not contain\n{message}");
    }
}
