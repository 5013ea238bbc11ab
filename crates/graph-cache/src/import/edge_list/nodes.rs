use std::collections::HashMap;

use crate::error::Result;
use crate::import::table::DelimitedText;
use crate::import::text::Text;

/// The nodes that the files name.
pub(super) struct NodeNames {
    /// In the order of the graph.
    names: Vec<Vec<u8>>,
    places: HashMap<Vec<u8>, u32>,
}

impl NodeNames {
    /// All names of nodes, in order; see [`edge_list`](super::edge_list).
    pub(super) fn read(known: Option<&Text>, features: Option<&Text>, edges: &Text) -> Result<Self> {
        let mut nodes = NodeNames { names: Vec::new(), places: HashMap::new() };
        for text in [known, features].into_iter().flatten() {
            let (table, header) = DelimitedText::with_header(text)?;
            if header[0] != "node" {
                let found = format!("the first column is `{}`", header[0]);
                return Err(text.contradiction(found, "a header that begins with `node`"));
            }
            nodes.add(table, 1)?;
        }
        let (table, header) = DelimitedText::with_header(edges)?;
        check_ends(edges, &header)?;
        nodes.add(table, 2)?;
        if nodes.len() > u32::MAX as usize {
            return Err(edges.contradiction(format!("there are {} nodes", nodes.len()), "at most 4294967295"));
        }
        nodes.sort();
        Ok(nodes)
    }

    /// The names in the first `columns` of a table.
    fn add(&mut self, mut table: DelimitedText<'_>, columns: usize) -> Result<()> {
        while let Some(row) = table.next()? {
            for column in 0..columns {
                let name = row.name(column, "the name of a node")?.as_bytes();
                if !self.places.contains_key(name) {
                    self.places.insert(name.to_vec(), 0);
                    self.names.push(name.to_vec());
                }
            }
        }
        Ok(())
    }

    /// By number where all names are numbers, those of one number (`7` and `07`) as they first
    /// occur.
    fn sort(&mut self) {
        let number = |name: &Vec<u8>| str::from_utf8(name).ok()?.parse::<i64>().ok();
        if let Some(numbers) = self.names.iter().map(number).collect::<Option<Vec<i64>>>() {
            let mut order: Vec<usize> = (0..numbers.len()).collect();
            order.sort_by_key(|&place| numbers[place]);
            self.names = order.into_iter().map(|place| std::mem::take(&mut self.names[place])).collect();
        }
        for (place, name) in (0..).zip(&self.names) {
            *self.places.get_mut(name).expect("every name has been seen") = place;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// # Panics
    /// If no file has named the node.
    pub(super) fn place(&self, name: &[u8]) -> u32 {
        self.places[name]
    }

    /// The names, or none where they are the places.
    pub(super) fn names(&self) -> Vec<String> {
        let is_place = |(place, name): (usize, &Vec<u8>)| place.to_string().as_bytes() == name;
        match self.names.iter().enumerate().all(is_place) {
            true => Vec::new(),
            false => self.names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
        }
    }
}

/// Refuses edges whose first two columns are not their ends.
pub(super) fn check_ends(text: &Text, header: &[String]) -> Result<()> {
    let is_end = |column: usize, names: &[&str]| header.get(column).is_some_and(|name| names.contains(&name.as_str()));
    if is_end(0, &["src", "source", "from"]) && is_end(1, &["dst", "target", "to"]) {
        return Ok(());
    }
    let found =
        format!("the columns are `{}`", header.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(","));
    Err(text.contradiction(found, "a header that begins with `src,dst`"))
}
