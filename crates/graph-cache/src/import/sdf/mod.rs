//! Molecules in an SDF file: atoms are nodes.

mod lines;
mod molecule;
mod valence;

use std::path::Path;

use crate::error::Result;
use crate::graph::{Graph, Targets};
use crate::import::columns::NamedColumns;
use crate::import::edges::EdgeList;
use crate::import::table::DelimitedText;
use crate::import::text::Text;
use crate::import::{Imported, ImportedGraphs, identity, numbered};
use crate::schema::{Schema, TargetLevel};
use molecule::{Atom, Molecule};

/// Names of the attributes of edges: the order of the bond, one-hot, and the distance of the atoms.
pub(crate) const EDGE_ATTRIBUTES: [&str; 5] =
    ["bond=single", "bond=double", "bond=triple", "bond=aromatic", "distance"];
/// Names of the features of a node's position.
pub(crate) const POSITION: [&str; 3] = ["x", "y", "z"];

/// Options of converting molecules to graphs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SdfOptions {
    /// Pairs of atoms that are joined.
    pub edges: MoleculeEdges,
    /// Positions as features of nodes.
    pub positions: Positions,
    /// A CSV of targets: a header, and a row a molecule, in their order. Without it targets are
    /// data items of the file. A table with a row for each molecule but those with an atom of
    /// impossible valence, such as neutral nitrogen with four bonds, was written through RDKit,
    /// which drops them: their targets are unknown, and a [note](Imported::notes) says so.
    pub table: Option<Text>,
    /// Names of targets: columns of the table (all of them where no name is given), or data items
    /// that every molecule has.
    pub targets: Vec<String>,
}

/// Pairs of atoms of a molecule that are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum MoleculeEdges {
    /// Pairs with a bond, both ways.
    #[default]
    Bonds,
    /// Pairs at most this distance apart, both ways, in the unit of the file, which is ångström.
    Radius(f32),
}

/// Positions as features of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Positions {
    /// Without positions: a rotation-invariant model uses distances.
    #[default]
    Left,
    /// With positions, as `x`, `y` and `z`.
    Kept,
}

/// The molecules of an SDF file, version V2000.
///
/// Keys are the numbers of the molecules in the file, from 1. Features of nodes are the elements
/// that occur in the file, one-hot in the order of atomic numbers (`element=H`, …), the formal
/// `charge`, from the line of the atom or from `M  CHG`, and the position if requested. Attributes
/// of edges are the order of the bond, one-hot and all zero where there is none (`bond=single`,
/// `double`, `triple`, `aromatic`), and the `distance`. Hydrogen is a node as far as it is in the
/// file. Targets are of graphs.
///
/// # Errors
/// [`Error::Field`](crate::Error::Field) for lines that are not of the format, V3000 among them,
/// and for a target that is no number; [`Error::Contradiction`](crate::Error::Contradiction) for a
/// molecule without a target, or a table of another length; [`Error::Io`](crate::Error::Io).
pub fn sdf(path: &Path, options: &SdfOptions) -> Result<Imported> {
    sdf_text(&Text::read(path)?, options)
}

/// The molecules of an SDF file in memory; see [`sdf`].
///
/// # Errors
/// As [`sdf`].
pub fn sdf_text(text: &Text, options: &SdfOptions) -> Result<Imported> {
    let molecules = molecule::read(text)?;
    let elements = elements(&molecules);
    let mut notes = Vec::new();
    let targets = match &options.table {
        Some(table) => from_table(table, &options.targets, &molecules, &mut notes)?,
        None => from_data(text, &options.targets, &molecules)?,
    };
    let mut graphs = Vec::with_capacity(molecules.len());
    for (number, molecule) in molecules.iter().enumerate() {
        let width = targets.width();
        let own_targets = targets.values[number * width..(number + 1) * width].to_vec();
        graphs.push(Graph {
            node_features: features(molecule, &elements, options.positions),
            targets: if width == 0 { Targets::None } else { Targets::Graph(own_targets) },
            ..edges(molecule, options.edges).into_graph(molecule.atoms.len())?
        });
    }
    let texts: Vec<&Text> = std::iter::once(text).chain(&options.table).collect();
    Ok(Imported {
        schema: Schema {
            edge_attributes: EDGE_ATTRIBUTES.map(str::to_owned).to_vec(),
            node_features: feature_names(&elements, options.positions),
            target_level: if targets.names.is_empty() { TargetLevel::None } else { TargetLevel::Graph },
            targets: targets.names,
            ..Schema::default()
        },
        keys: numbered(graphs.len()),
        graphs: ImportedGraphs::Each(graphs),
        identity: identity(&texts, "sdf/1", options.canonical()),
        notes,
    })
}

impl SdfOptions {
    fn canonical(&self) -> String {
        let edges = match self.edges {
            MoleculeEdges::Bonds => "bonds".into(),
            MoleculeEdges::Radius(radius) => serde_json::Value::from(radius),
        };
        serde_json::json!({"edges": edges, "positions": self.positions == Positions::Kept, "targets": self.targets})
            .to_string()
    }
}

/// Atomic numbers that occur, in order.
fn elements(molecules: &[Molecule]) -> Vec<u8> {
    let mut occurs = [false; 119];
    molecules.iter().flat_map(|molecule| &molecule.atoms).for_each(|atom| occurs[usize::from(atom.element)] = true);
    (0..119).filter(|&number| occurs[usize::from(number)]).collect()
}

fn feature_names(elements: &[u8], positions: Positions) -> Vec<String> {
    let mut names: Vec<String> =
        elements.iter().map(|&number| format!("element={}", molecule::element_symbol(number))).collect();
    names.push("charge".to_owned());
    if positions == Positions::Kept {
        names.extend(POSITION.map(str::to_owned));
    }
    names
}

fn features(molecule: &Molecule, elements: &[u8], positions: Positions) -> Vec<f32> {
    let mut values = Vec::new();
    for atom in &molecule.atoms {
        values.extend(elements.iter().map(|&number| f32::from(u8::from(number == atom.element))));
        values.push(f32::from(atom.charge));
        if positions == Positions::Kept {
            values.extend(atom.position);
        }
    }
    values
}

fn edges(molecule: &Molecule, joined: MoleculeEdges) -> EdgeList {
    let mut list = EdgeList::default();
    let mut join = |(from, to): (usize, usize), order: u8| {
        let distance = distance(&molecule.atoms[from], &molecule.atoms[to]);
        for (from, to) in [(from, to), (to, from)] {
            list.from.push(from as u32);
            list.to.push(to as u32);
            list.attributes.extend((1..=4).map(|other| f32::from(u8::from(other == order))));
            list.attributes.push(distance);
        }
    };
    match joined {
        MoleculeEdges::Bonds => {
            for bond in &molecule.bonds {
                join((bond.atoms[0].into(), bond.atoms[1].into()), bond.order);
            }
        }
        MoleculeEdges::Radius(radius) => {
            let orders = orders(molecule);
            let atoms = molecule.atoms.len();
            let pairs = (0..atoms).flat_map(|one| (one + 1..atoms).map(move |other| (one, other)));
            for pair in pairs.filter(|&(one, other)| distance(&molecule.atoms[one], &molecule.atoms[other]) <= radius) {
                join(pair, orders.get(&pair).copied().unwrap_or(0));
            }
        }
    }
    list
}

/// The orders of bonds by their atoms, the lower atom first.
fn orders(molecule: &Molecule) -> std::collections::HashMap<(usize, usize), u8> {
    let ends = |atoms: [u16; 2]| (atoms[0].min(atoms[1]).into(), atoms[0].max(atoms[1]).into());
    molecule.bonds.iter().map(|bond| (ends(bond.atoms), bond.order)).collect()
}

fn distance(one: &Atom, other: &Atom) -> f32 {
    let squares = (0..3).map(|axis| (f64::from(one.position[axis]) - f64::from(other.position[axis])).powi(2));
    squares.sum::<f64>().sqrt() as f32
}

/// The targets of all molecules, NaN where the table has no row.
fn from_table(text: &Text, names: &[String], molecules: &[Molecule], notes: &mut Vec<String>) -> Result<NamedColumns> {
    let (mut table, header) = DelimitedText::with_header(text)?;
    let names = if names.is_empty() { &header } else { names };
    let column = |name: &String| {
        let column = header.iter().position(|other| other == name);
        column.ok_or_else(|| text.contradiction(format!("there is no column `{name}`"), header.join(", ")))
    };
    let columns = names.iter().map(column).collect::<Result<Vec<_>>>()?;
    let (mut values, mut rows) = (Vec::new(), 0);
    while let Some(row) = table.next()? {
        row.check_len(header.len())?;
        for &column in &columns {
            values.push(row.target(column)?);
        }
        rows += 1;
    }
    let columns = NamedColumns { names: names.to_vec(), values };
    let impossible: Vec<usize> =
        (0..molecules.len()).filter(|&place| !valence::is_possible(&molecules[place])).collect();
    let possible = molecules.len() - impossible.len();
    if rows == molecules.len() {
        Ok(columns)
    } else if rows == possible {
        notes.push(format!(
            "{} has {rows} rows for {} molecules: those without a row are the {} with an atom of impossible valence ({}), which RDKit \
             leaves out; their targets are not known",
            text.name(),
            molecules.len(),
            impossible.len(),
            impossible.iter().map(|place| (place + 1).to_string()).collect::<Vec<_>>().join(", ")
        ));
        Ok(columns.with_unknown_rows(&impossible))
    } else {
        let expected = format!("{}, one a molecule, or {possible}, one for each of possible valences", molecules.len());
        Err(text.contradiction(format!("there are {rows} rows"), expected))
    }
}

fn from_data(text: &Text, names: &[String], molecules: &[Molecule]) -> Result<NamedColumns> {
    let mut values = Vec::new();
    for (molecule, name) in molecules.iter().flat_map(|molecule| names.iter().map(move |name| (molecule, name))) {
        let value = molecule.data.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
        let number = value.and_then(|value| value.parse::<f32>().ok()).filter(|number| !number.is_infinite());
        values.push(number.ok_or_else(|| {
            let found = value.map_or("no such data item".to_owned(), |value| format!("`{value:.40}`"));
            let found = format!("the molecule at line {} has {found}", molecule.line);
            text.contradiction(found, format!("a number `> <{name}>` of every molecule"))
        })?);
    }
    Ok(NamedColumns { names: names.to_vec(), values })
}

#[cfg(test)]
mod tests;
