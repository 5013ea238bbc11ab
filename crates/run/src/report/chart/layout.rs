//! Layout of the nodes of a graph.

/// Places in the square from 0 to 1, so that nodes with an edge between them come near each other
/// and others keep apart.
///
/// Source: Fruchterman & Reingold, "Graph drawing by force-directed placement", 1991: attraction
/// d²/l along edges, repulsion l²/d between all pairs, a step that shrinks. The nodes begin on a
/// spiral, in their order, so that the same graph always gives the same picture; on a circle,
/// symmetry would keep some where they are. A pull to the middle keeps parts without an edge
/// between them in the picture.
pub(super) fn spring(nodes: usize, edges: &[(usize, usize)]) -> Vec<(f64, f64)> {
    let mut places = spiral(nodes);
    // Repulsion is between all pairs: fewer steps for more nodes keep the time within seconds.
    let steps = (40_000_000 / (nodes * nodes).max(1)).clamp(10, 300);
    let length = 1.0 / (nodes as f64).sqrt().max(1.0);
    for step in 0..steps {
        let reach = 0.1 * (1.0 - step as f64 / steps as f64) + 1e-3;
        let forces = forces(&places, edges, length);
        for (place, force) in places.iter_mut().zip(forces) {
            let norm = force.0.hypot(force.1).max(1e-9);
            let scale = norm.min(reach) / norm;
            *place = (place.0 + scale * force.0, place.1 + scale * force.1);
        }
    }
    framed(&places)
}

/// As seeds lie in a sunflower: each a golden angle on, over the disc evenly.
fn spiral(nodes: usize) -> Vec<(f64, f64)> {
    let golden = std::f64::consts::PI * (3.0 - 5f64.sqrt());
    let place = |node: usize| {
        let (radius, angle) = (0.5 * ((node as f64 + 0.5) / nodes as f64).sqrt(), golden * node as f64);
        (0.5 + radius * angle.cos(), 0.5 + radius * angle.sin())
    };
    (0..nodes).map(place).collect()
}

fn forces(places: &[(f64, f64)], edges: &[(usize, usize)], length: f64) -> Vec<(f64, f64)> {
    let pull = |place: &(f64, f64)| (0.3 * length * (0.5 - place.0), 0.3 * length * (0.5 - place.1));
    let mut forces: Vec<(f64, f64)> = places.iter().map(pull).collect();
    for one in 0..places.len() {
        for other in one + 1..places.len() {
            let (dx, dy) = (places[one].0 - places[other].0, places[one].1 - places[other].1);
            let by_square = length * length / (dx * dx + dy * dy).max(1e-9);
            push(&mut forces, one, other, dx * by_square, dy * by_square);
        }
    }
    for &(one, other) in edges.iter().filter(|(one, other)| one != other) {
        let (dx, dy) = (places[other].0 - places[one].0, places[other].1 - places[one].1);
        let by_length = dx.hypot(dy) / length;
        push(&mut forces, one, other, dx * by_length, dy * by_length);
    }
    forces
}

fn push(forces: &mut [(f64, f64)], one: usize, other: usize, x: f64, y: f64) {
    forces[one] = (forces[one].0 + x, forces[one].1 + y);
    forces[other] = (forces[other].0 - x, forces[other].1 - y);
}

/// The same places, so that they fill the square.
fn framed(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let range = |coordinate: fn(&(f64, f64)) -> f64| {
        let (low, high) = places.iter().map(coordinate).fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
        (low, (high - low).max(1e-9))
    };
    let ((left, width), (top, height)) = (range(|place| place.0), range(|place| place.1));
    let inside = |(x, y): &(f64, f64)| match places.len() {
        1 => (0.5, 0.5),
        _ => ((x - left) / width, (y - top) / height),
    };
    places.iter().map(inside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_joined_is_near() {
        // Two triangles without an edge between them.
        let places = spring(6, &[(0, 2), (2, 4), (4, 0), (1, 3), (3, 5), (5, 1)]);
        let distance = |a: usize, b: usize| (places[a].0 - places[b].0).hypot(places[a].1 - places[b].1);
        let within = distance(0, 2).max(distance(2, 4)).max(distance(1, 3)).max(distance(3, 5));
        let between = (0..9).map(|pair| distance(2 * (pair / 3), 2 * (pair % 3) + 1)).fold(f64::MAX, f64::min);
        assert!(within < between, "{within} {between}: {places:?}");
        assert!(places.iter().all(|(x, y)| (0.0..=1.0).contains(x) && (0.0..=1.0).contains(y)));
    }

    #[test]
    fn any_number_of_nodes_has_places() {
        for (nodes, edges) in [(0, vec![]), (1, vec![(0, 0)]), (2, vec![(0, 1)]), (3, vec![(0, 1), (0, 1)])] {
            let places = spring(nodes, &edges);
            assert!(places.len() == nodes && places.iter().all(|(x, y)| x.is_finite() && y.is_finite()), "{places:?}");
        }
    }
}
