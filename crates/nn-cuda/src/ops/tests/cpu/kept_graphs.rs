//! Lists of selected graphs on the CPU.

use std::sync::Arc;

use megabatch_nn::graph::{BatchEdges, NO_EDGE};

use super::{GraphLists, KeptGraphs, Selected};

pub(super) fn take(kept: &KeptGraphs, selected: &Selected, lists: &mut GraphLists) {
    let graphs = lists.edges.graphs.clone();
    let mut own = BatchEdges::default();
    let ends = selected.origins.iter().skip(1).map(|origin| origin.to_edge).chain([selected.edges as u32]);
    for (g, ((pair, origin), end)) in graphs.windows(2).zip(&selected.origins).zip(ends).enumerate() {
        let [graph, next] = [pair[0], pair[1]];
        let range = |start: u32, len: u32| start as usize..(start + len) as usize;
        let nodes = range(origin.node, next.node - graph.node);
        let places = range(origin.place, next.place - graph.place);
        let edges = range(origin.edge, end - origin.to_edge);
        let place = |place: &u32| place - origin.place + graph.place;
        let node = |node: &u32| if *node == NO_EDGE { NO_EDGE } else { node - origin.node + graph.node };
        own.starts.extend(kept.starts.as_slice()[nodes.clone()].iter().map(place));
        own.src_starts
            .extend(kept.src_starts.as_slice()[nodes.clone()].iter().map(|edge| edge - origin.edge + origin.to_edge));
        own.graph_of.resize(own.graph_of.len() + nodes.len(), g as u32);
        own.from.extend(kept.from.as_slice()[places.clone()].iter().map(node));
        let attributes = places.start * kept.width..places.end * kept.width;
        own.attributes.extend_from_slice(&kept.attributes.as_slice()[attributes]);
        own.places.extend(kept.places.as_slice()[edges.clone()].iter().map(place));
        own.to.extend(kept.to.as_slice()[edges].iter().map(node));
    }
    own.starts.push(graphs[graphs.len() - 1].place);
    own.src_starts.push(selected.edges as u32);
    lists.edges = Arc::new(BatchEdges { graphs, ..own });
}
