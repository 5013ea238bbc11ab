use std::collections::HashSet;

/// Properties that all graphs of one collection share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// Names of nodes, such as symbols; a graph's nodes are places in this list. Empty if nodes
    /// have no identity beyond their graph.
    pub names: Vec<String>,
    /// True if edges have weights.
    pub weighted: bool,
    /// A: names of the attributes of edges, in order.
    pub edge_attributes: Vec<String>,
    /// F: names of the features of nodes, in order.
    pub node_features: Vec<String>,
    /// K: names of the targets, in order; for a classification, the classes.
    pub targets: Vec<String>,
    /// Owner of the targets.
    pub target_level: TargetLevel,
}

/// Owner of targets in a collection of graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetLevel {
    /// Nothing: the graphs are joined with targets from elsewhere.
    #[default]
    None,
    /// Every node.
    Node,
    /// Every graph as a whole.
    Graph,
}

impl Schema {
    /// Differences of two schemas, in words: this one's property, and the other's.
    pub(crate) fn apart(&self, other: &Schema) -> (String, String) {
        let edges = |schema: &Schema| format!("edges {} weights", if schema.weighted { "with" } else { "without" });
        let targets = |schema: &Schema| match schema.target_level {
            TargetLevel::None => "no targets".to_owned(),
            TargetLevel::Node => "targets of nodes".to_owned(),
            TargetLevel::Graph => "targets of graphs".to_owned(),
        };
        let pairs = [
            lists_apart("names of nodes", &self.names, &other.names),
            (edges(self), edges(other)),
            lists_apart("attributes of edges", &self.edge_attributes, &other.edge_attributes),
            lists_apart("features of nodes", &self.node_features, &other.node_features),
            lists_apart("targets", &self.targets, &other.targets),
            (targets(self), targets(other)),
        ];
        let (own, others): (Vec<_>, Vec<_>) = pairs.into_iter().filter(|(own, other)| own != other).unzip();
        (own.join(", "), others.join(", "))
    }
}

/// Two lists of names in words: the length of each and the first name that the other lacks.
fn lists_apart(what: &str, own: &[String], other: &[String]) -> (String, String) {
    let said = |names: &[String], others: &[String]| {
        let others: HashSet<&String> = others.iter().collect();
        let lacking = names.iter().find(|name| !others.contains(name));
        format!("{} {what}{}", names.len(), lacking.map(|name| format!(" with {name}")).unwrap_or_default())
    };
    let (own_list, other_list) = (said(own, other), said(other, own));
    let order = if own != other && own_list == other_list { " in another order" } else { "" };
    (own_list, other_list + order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_schemas_have_otherwise_is_told_in_words() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let shares = Schema { names: names(&["A", "B", "C"]), weighted: true, ..Schema::default() };
        let labels = Schema { targets: names(&["0", "1"]), target_level: TargetLevel::Graph, ..shares.clone() };
        for (other, told) in [
            (shares.clone(), ["", ""]),
            (Schema { names: names(&["A", "C"]), ..shares.clone() }, ["3 names of nodes with B", "2 names of nodes"]),
            (
                Schema { names: names(&["C", "B", "A"]), ..shares.clone() },
                ["3 names of nodes", "3 names of nodes in another order"],
            ),
            (
                Schema { edge_attributes: names(&["sector"]), weighted: false, ..shares.clone() },
                [
                    "edges with weights, 0 attributes of edges",
                    "edges without weights, 1 attributes of edges with sector",
                ],
            ),
            (labels, ["0 targets, no targets", "2 targets with 0, targets of graphs"]),
        ] {
            assert_eq!(shares.apart(&other), (told[0].to_owned(), told[1].to_owned()));
        }
    }
}
