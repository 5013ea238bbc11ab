use std::fmt::Write as _;

use super::{ends, graphs, refused, row};
use crate::builder::Builder;
use crate::error::{Error, Result};
use crate::graph::{Graph, Targets};
use crate::import::Text;
use crate::import::sdf_names::{EDGE_ATTRIBUTES, POSITION};
use crate::schema::{Schema, TargetLevel};

const FORMAT: &str = "SDF";
/// Largest number that three columns can hold.
const ATOMS_MAX: usize = 999;

/// The molecules in one SDF file, version V2000, as [`import::sdf`](crate::import::sdf) reads them.
/// Nodes have the features that it gives them, with their positions; each pair of nodes with the
/// order of a bond becomes one; keys become titles, and targets data items.
///
/// # Errors
/// [`Error::NoPositions`]; [`Error::NotExportable`] for nodes that are not atoms, for more than 999
/// of them, and for targets of nodes; and as [`Builder::build`](crate::Builder::build).
pub fn sdf(builder: &dyn Builder) -> Result<Text> {
    let (schema, graphs) = (builder.schema(), graphs(builder)?);
    let columns = MoleculeColumns::new(schema)?;
    let mut text = String::new();
    for (key, graph) in builder.keys().iter().zip(&graphs) {
        molecule(&mut text, key, graph, schema, &columns)?;
    }
    Ok(Text::plain("molecules.sdf", text.into_bytes()))
}

/// Columns of the features and attributes of molecules.
struct MoleculeColumns {
    /// Columns of features, with the symbols.
    elements: Vec<(usize, String)>,
    charge: Option<usize>,
    position: [usize; 3],
    /// Columns of edge attributes: single, double, triple, aromatic.
    orders: Vec<usize>,
}

impl MoleculeColumns {
    fn new(schema: &Schema) -> Result<Self> {
        let feature = |wanted: &str| schema.node_features.iter().position(|name| name == wanted);
        let symbol = |(column, name): (usize, &String)| Some((column, name.strip_prefix("element=")?.to_owned()));
        let elements: Vec<_> = schema.node_features.iter().enumerate().filter_map(symbol).collect();
        let [Some(x), Some(y), Some(z)] = POSITION.map(feature) else {
            return Err(Error::NoPositions);
        };
        let order = |wanted: &str| schema.edge_attributes.iter().position(|name| name == wanted);
        let orders: Option<Vec<usize>> = EDGE_ATTRIBUTES[..4].iter().map(|name| order(name)).collect();
        let Some(orders) = orders.filter(|_| !elements.is_empty()) else {
            return Err(refused(
                FORMAT,
                "no elements or orders of bonds",
                "only molecules can be; export edge_index instead",
            ));
        };
        if schema.target_level == TargetLevel::Node {
            return Err(refused(FORMAT, "targets of nodes", "it knows data of molecules; export edge_index instead"));
        }
        Ok(MoleculeColumns { elements, charge: feature("charge"), position: [x, y, z], orders })
    }
}

fn molecule(text: &mut String, key: &str, graph: &Graph, schema: &Schema, columns: &MoleculeColumns) -> Result<()> {
    let bonds = bonds(graph, schema.edge_attributes.len(), &columns.orders);
    if graph.len().max(bonds.len()) > ATOMS_MAX {
        let what = format!("{} atoms and {} bonds in molecule {key}", graph.len(), bonds.len());
        return Err(refused(FORMAT, what, "version V2000 counts to 999; export edge_index instead"));
    }
    let title: String = key.chars().filter(|letter| !letter.is_control()).take(80).collect();
    put(
        text,
        format_args!("{title}\n  megabatch\n\n{:3}{:3}  0  0  0  0  0  0  0  0999 V2000\n", graph.len(), bonds.len()),
    );
    let mut charges = Vec::new();
    for node in 0..graph.len() {
        let features = row(&graph.node_features, node, schema.node_features.len());
        atom(text, features, columns)?;
        let charge = columns.charge.map_or(0.0, |column| features[column]);
        charges.extend((charge != 0.0).then_some((node + 1, charge)));
    }
    for (from, to, order) in bonds {
        put(text, format_args!("{:3}{:3}{order:3}  0  0  0  0\n", from + 1, to + 1));
    }
    for charges in charges.chunks(8) {
        put(text, format_args!("M  CHG{:3}", charges.len()));
        charges.iter().for_each(|(atom, charge)| put(text, format_args!(" {atom:3} {charge:3}")));
        text.push('\n');
    }
    text.push_str("M  END\n");
    if let Targets::Graph(targets) = &graph.targets {
        schema
            .targets
            .iter()
            .zip(targets)
            .for_each(|(name, target)| put(text, format_args!("> <{name}>\n{target}\n\n")));
    }
    text.push_str("$$$$\n");
    Ok(())
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("memory takes text");
}

fn atom(text: &mut String, features: &[f32], columns: &MoleculeColumns) -> Result<()> {
    let element = columns.elements.iter().find(|(column, _)| features[*column] == 1.0);
    let (_, symbol) = element.ok_or_else(|| refused(FORMAT, "a node of no element", "only molecules can be"))?;
    for column in columns.position {
        let coordinate = format!("{:10.4}", features[column]);
        if coordinate.len() > 10 {
            let what = format!("a coordinate of {coordinate}");
            return Err(refused(FORMAT, what, "ten columns hold it below 100000; move the molecule"));
        }
        text.push_str(&coordinate);
    }
    put(text, format_args!(" {symbol:<3} 0  0  0  0  0  0  0  0  0  0  0  0\n"));
    Ok(())
}

/// Pairs of nodes with the order of their bond, each once.
fn bonds(graph: &Graph, width: usize, orders: &[usize]) -> Vec<(u32, u32, usize)> {
    let order = |edge: usize| {
        let attributes = row(&graph.edge_attributes, edge, width);
        orders.iter().position(|&column| attributes[column] == 1.0).map(|place| place + 1)
    };
    let forward = ends(graph).enumerate().filter(|(_, (from, to))| from < to);
    forward.filter_map(|(edge, (from, to))| Some((from, to, order(edge)?))).collect()
}
