//! Targets, times, keys and splits of the graphs of a file.

use std::collections::HashSet;

use super::SafetensorsFile;
use crate::error::Result;
use crate::graph::{Graph, Targets};
use crate::import::columns::NamedColumns;
use crate::import::{ImportedGraphs, numbered};
use crate::schema::TargetLevel;

/// Most classes that integers in `y` may stand for; more are numbers.
const CLASSES_MAX: i64 = 2048;
/// Masks of a split, and their keys.
const MASKS: [(&str, &str); 3] = [("train_mask", "train"), ("val_mask", "validation"), ("test_mask", "test")];

impl SafetensorsFile<'_> {
    pub(super) fn targets(&self, offsets: &[usize]) -> Result<(NamedColumns, TargetLevel)> {
        let targets = match self.tensors.is_of_integers("y") {
            None => return Ok((NamedColumns::default(), TargetLevel::None)),
            Some(true) => self.classes()?,
            Some(false) => {
                let tensor = self.tensors.floats("y")?.expect("it is there");
                let (rows, width) = tensor.rows();
                (rows, NamedColumns { names: self.names("targets", "y", width)?, values: tensor.values })
            }
        };
        let (rows, columns) = targets;
        let (nodes, graphs) = (offsets[offsets.len() - 1], offsets.len() - 1);
        let stated: Option<String> = self.tensors.metadata("target_level", "\"node\" or \"graph\"")?;
        let level = match stated.as_deref() {
            Some("graph") if rows == graphs => TargetLevel::Graph,
            None | Some("node") if rows == nodes => TargetLevel::Node,
            None if rows == graphs => TargetLevel::Graph,
            _ => {
                let expected = format!("a row for each of {nodes} nodes or {graphs} graphs, as `target_level` says");
                return Err(self.tensors.contradiction(format!("`y` has {rows} rows"), expected));
            }
        };
        Ok((columns, level))
    }

    fn classes(&self) -> Result<(usize, NamedColumns)> {
        let tensor = self.tensors.integers("y")?.expect("it is there");
        let (rows, width) = tensor.rows();
        let classes = tensor.values.iter().max().map_or(0, |&last| last.max(-1).saturating_add(1));
        if width != 1 || classes > CLASSES_MAX {
            let found = format!("`y` is {:?} of integers up to {}", tensor.shape, classes - 1);
            return Err(self
                .tensors
                .contradiction(found, format!("a class a row, 0 to below {CLASSES_MAX}; or floats")));
        }
        let one_hot = |&class: &i64| {
            (0..classes).map(move |column| if class < 0 { f32::NAN } else { f32::from(u8::from(class == column)) })
        };
        let values = tensor.values.iter().flat_map(one_hot).collect();
        let numbers = (0..classes).map(|class| class.to_string()).collect();
        let names = self
            .tensors
            .metadata("targets", "a list of names")?
            .filter(|names: &Vec<_>| names.len() == classes as usize);
        Ok((rows, NamedColumns { names: names.unwrap_or(numbers), values }))
    }

    pub(super) fn known_times(&self, graphs: &mut [Graph]) -> Result<()> {
        let times: Option<Vec<Option<i64>>> = self.tensors.metadata("known_time", "a list of integers or null")?;
        let Some(times) = times else { return Ok(()) };
        if times.len() != graphs.len() {
            let found = format!("`known_time` of the metadata has {} times", times.len());
            return Err(self.tensors.contradiction(found, format!("{}, one a graph", graphs.len())));
        }
        graphs.iter_mut().zip(times).for_each(|(graph, time)| graph.known_time = time);
        Ok(())
    }

    /// The graphs with their keys: by the masks of a single graph, where there are any.
    pub(super) fn keyed(&self, mut graphs: Vec<Graph>) -> Result<(Vec<String>, ImportedGraphs)> {
        let [graph] = graphs.as_mut_slice() else {
            return Ok((self.keys(graphs.len())?, ImportedGraphs::Each(graphs)));
        };
        let (mut keys, mut parts) = (Vec::new(), Vec::new());
        for (mask, key) in MASKS {
            let Some(mask) = self.tensors.integers(mask)? else { continue };
            let Targets::Nodes(mut targets) = graph.targets.clone() else { continue };
            if mask.values.len() != graph.len() {
                let found = format!("`{key}_mask` has {} values", mask.values.len());
                return Err(self.tensors.contradiction(found, format!("{}, one a node", graph.len())));
            }
            let width = targets.len() / graph.len().max(1);
            for (node, _) in mask.values.iter().enumerate().filter(|&(_, &inside)| inside == 0) {
                targets[node * width..(node + 1) * width].fill(f32::NAN);
            }
            keys.push(key.to_owned());
            parts.push(Targets::Nodes(targets));
        }
        match keys.is_empty() {
            true => Ok((self.keys(1)?, ImportedGraphs::Each(graphs))),
            false => Ok((keys, ImportedGraphs::Parts { graph: graph.clone(), targets: parts })),
        }
    }

    fn keys(&self, graphs: usize) -> Result<Vec<String>> {
        let without = || if graphs == 1 { vec!["graph".to_owned()] } else { numbered(graphs) };
        let keys: Vec<String> = self.tensors.metadata("keys", "a list of names")?.unwrap_or_else(without);
        let distinct: HashSet<&String> = keys.iter().collect();
        match keys.len() == graphs && distinct.len() == graphs {
            true => Ok(keys),
            false => Err(self.tensors.contradiction(
                format!("`keys` of the metadata names {} graphs by {} names", distinct.len(), keys.len()),
                format!("{graphs} names, no two of them equal"),
            )),
        }
    }
}
