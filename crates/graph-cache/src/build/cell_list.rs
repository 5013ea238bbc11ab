//! Cell list: points in space, sorted into bins.

use super::cell::UnitCell;
use super::points::Points;
use crate::error::{Error, Result};

/// Least excess of bins over the radius, so that no rounding of a point's position puts a near one
/// two bins away.
const SLACK: f64 = 1.0 + 1e-6;

/// Largest distance of a point from the first one, in cells, at which rounding of its place stays
/// well within the slack.
const CELLS_AWAY_MAX: f64 = 1e4;

/// Most bins for each point, so that memory does not grow with empty space.
const BINS_PER_POINT: f64 = 4.0;

/// Points of space in bins of a size no smaller than a radius, or in one bin along a shorter edge
/// of a periodic cell.
pub(crate) struct CellList<'p> {
    points: Points<'p>,
    periodic: Option<UnitCell>,
    square: f64,
    /// Bins along each edge.
    bins: [i64; 3],
    /// Reach along each edge, in bins.
    reach: [i64; 3],
    /// [bins + 1]
    offsets: Vec<usize>,
    /// Points by their bins, those of one ascending.
    members: Vec<u32>,
    /// Place of each point: its bin along each edge, and the cell that it lies in.
    places: Vec<BinPlace>,
}

#[derive(Clone, Copy)]
struct BinPlace {
    bin: [i64; 3],
    cell: [i64; 3],
}

impl<'p> CellList<'p> {
    pub(crate) fn new(points: &Points<'p>, radius: f64, periodic: Option<&UnitCell>) -> Result<Self> {
        let (origin, cell) = match periodic {
            Some(cell) => ([0.0; 3], *cell),
            None => bounding_box(points, radius)?,
        };
        let heights = cell.heights();
        let most = (BINS_PER_POINT * points.len() as f64).cbrt().max(1.0);
        let bins = heights.map(|height| (height / (radius * SLACK)).clamp(1.0, most) as i64);
        let reach = std::array::from_fn(|k| match (periodic, bins[k]) {
            (None, 1) => 0,
            _ => (radius * SLACK * bins[k] as f64 / heights[k]).ceil() as i64,
        });
        let places = (0..points.len()).map(|point| place(points, point, origin, &cell, bins)).collect::<Result<_>>()?;
        let mut list = CellList {
            points: *points,
            periodic: periodic.copied(),
            square: radius * radius,
            bins,
            reach,
            offsets: Vec::new(),
            members: Vec::new(),
            places,
        };
        list.sort();
        Ok(list)
    }

    /// A counting sort of the points by their bins.
    fn sort(&mut self) {
        let bins = self.bins.iter().product::<i64>() as usize;
        let mut offsets = vec![0; bins + 1];
        let point_bins: Vec<usize> =
            self.places.iter().map(|place| self.number(place.bin[0], place.bin[1], place.bin[2])).collect();
        point_bins.iter().for_each(|&bin| offsets[bin + 1] += 1);
        for bin in 0..bins {
            offsets[bin + 1] += offsets[bin];
        }
        let mut next = offsets.clone();
        self.members = vec![0; point_bins.len()];
        for (point, bin) in point_bins.into_iter().enumerate() {
            self.members[next[bin]] = point as u32;
            next[bin] += 1;
        }
        self.offsets = offsets;
    }

    fn number(&self, i: i64, j: i64, k: i64) -> usize {
        ((i * self.bins[1] + j) * self.bins[2] + k) as usize
    }

    /// Calls `found` with each point, or periodic image of one, near `point`, without `point`
    /// itself, and the square of its distance.
    pub(crate) fn near(&self, point: usize, mut found: impl FnMut(u32, f64)) {
        let [reach_a, reach_b, reach_c] = self.reach;
        for a in -reach_a..=reach_a {
            for b in -reach_b..=reach_b {
                for c in -reach_c..=reach_c {
                    self.near_in_bin(point, [a, b, c], &mut found);
                }
            }
        }
    }

    /// Points in the bin that is `away` bins away.
    fn near_in_bin(&self, point: usize, away: [i64; 3], found: &mut impl FnMut(u32, f64)) {
        let BinPlace { bin, cell } = self.places[point];
        let target: [i64; 3] = std::array::from_fn(|k| bin[k] + away[k]);
        let wrapped: [i64; 3] = std::array::from_fn(|k| target[k].rem_euclid(self.bins[k]));
        if self.periodic.is_none() && wrapped != target {
            return;
        }
        let image: [i64; 3] = std::array::from_fn(|k| target[k].div_euclid(self.bins[k]));
        let number = self.number(wrapped[0], wrapped[1], wrapped[2]);
        for &other in &self.members[self.offsets[number]..self.offsets[number + 1]] {
            // Counted between the points as they were given, wherever these are.
            let times: [i64; 3] = std::array::from_fn(|k| image[k] + cell[k] - self.places[other as usize].cell[k]);
            if other as usize == point && times == [0; 3] {
                continue;
            }
            let square = self.square_of(point, other as usize, times);
            if square <= self.square {
                found(other, square);
            }
        }
    }

    /// ‖y + shift − x‖², with the same bits from either end.
    fn square_of(&self, x: usize, y: usize, times: [i64; 3]) -> f64 {
        let (x, y) = (self.points.row(x), self.points.row(y));
        let shift = self.periodic.map_or([0.0; 3], |cell| cell.shift(times));
        let along = |k: usize| (y[k] - x[k]) + shift[k];
        along(0) * along(0) + along(1) * along(1) + along(2) * along(2)
    }
}

/// The least corner of the points, and a box from there that holds them, no thinner than the
/// radius.
fn bounding_box(points: &Points<'_>, radius: f64) -> Result<([f64; 3], UnitCell)> {
    let corner = |least: f64, pick: fn(f64, f64) -> f64| {
        points.rows().fold([least; 3], |corner, row| std::array::from_fn(|k| pick(corner[k], row[k])))
    };
    let (low, high) = (corner(f64::INFINITY, f64::min), corner(f64::NEG_INFINITY, f64::max));
    let low = low.map(|x| if x.is_finite() { x } else { 0.0 });
    let edge = |k: usize| ((high[k] - low[k]) * SLACK).max(radius);
    Ok((low, UnitCell::orthorhombic(edge(0), edge(1), edge(2))?))
}

fn place(points: &Points<'_>, point: usize, origin: [f64; 3], cell: &UnitCell, bins: [i64; 3]) -> Result<BinPlace> {
    let row = points.row(point);
    let fractions = cell.fractions(std::array::from_fn(|k| row[k] - origin[k]));
    if fractions.iter().any(|fraction| fraction.abs() > CELLS_AWAY_MAX) {
        let object = format!("point {point}, at {row:?}, in a cell of edges {:?}", cell.vectors());
        return Err(Error::Data { object, expected: "a point at most ten thousand cells away".into() });
    }
    let bin = |k: usize| ((fractions[k] - fractions[k].floor()) * bins[k] as f64) as i64;
    Ok(BinPlace {
        bin: std::array::from_fn(|k| bin(k).min(bins[k] - 1)),
        cell: fractions.map(|fraction| fraction.floor() as i64),
    })
}
