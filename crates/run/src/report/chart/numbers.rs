//! The numbers of a chart as a table that unfolds below it, for readers who do not see the drawing.

use super::axis::{Axis, Scale};
use super::{Mark, Series};
use crate::report::html::Table;
use crate::text::number::significant;
use crate::text::utc;

/// Most rows of a table. Of more positions on the axis, evenly spread ones have a row.
const ROWS_MAX: usize = 32;

/// One column of numbers.
pub(super) struct Column<'a> {
    pub(super) name: &'a str,
    /// In the order of x.
    pub(super) points: Vec<(f64, f64)>,
}

/// The table of lines over one axis; none where there are points without an order alone.
pub(super) fn series_table(title: &str, x: &Axis, y: &Axis, series: &[Series]) -> Option<Table> {
    let is_measured = |series: &&Series| !matches!(series.mark, Mark::Guide | Mark::Cloud) && !series.points.is_empty();
    let columns = series.iter().filter(is_measured).map(|series| Column {
        name: if series.name.is_empty() { &y.label } else { &series.name },
        points: series.points.clone(),
    });
    table(title, x, &columns.collect::<Vec<_>>())
}

/// The table of `columns` over one axis: each has its value at a position, or its last one before.
pub(super) fn table(title: &str, x: &Axis, columns: &[Column<'_>]) -> Option<Table> {
    let mut positions: Vec<f64> = columns.iter().flat_map(|column| &column.points).map(|point| point.0).collect();
    positions.retain(|x| x.is_finite());
    positions.sort_by(f64::total_cmp);
    positions.dedup();
    if positions.is_empty() {
        return None;
    }
    let head = std::iter::once(x.label.clone()).chain(columns.iter().map(|column| column.name.to_owned()));
    let row = |x_at: f64| {
        let value = |column: &Column<'_>| column.at(x_at).map_or_else(|| "-".to_owned(), |y| significant(y, 4));
        std::iter::once(x.text(x_at)).chain(columns.iter().map(value)).collect()
    };
    Some(Table::new(title, head, spread(&positions).into_iter().map(row)))
}

impl Column<'_> {
    /// The value at a position, or the last one before it.
    fn at(&self, x: f64) -> Option<f64> {
        let until = self.points.partition_point(|point| point.0 <= x);
        self.points[..until].last().map(|point| point.1).filter(|y| y.is_finite())
    }
}

/// At most [`ROWS_MAX`] of the positions, the first and the last among them.
fn spread(positions: &[f64]) -> Vec<f64> {
    let (count, last) = (positions.len().min(ROWS_MAX), positions.len() - 1);
    (0..count).map(|row| positions[row * last / (count - 1).max(1)]).collect()
}

impl Axis {
    /// A position as a cell of a table.
    fn text(&self, at: f64) -> String {
        match self.scale {
            Scale::Number => significant(at, 4),
            Scale::Count => format!("{at:.0}"),
            Scale::Time => utc(at as i64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, mark: Mark, points: &[(f64, f64)]) -> Series {
        Series { name: name.to_owned(), mark, color: 0, points: points.to_vec() }
    }

    #[test]
    fn a_row_has_the_last_values_up_to_its_position() {
        let all = [
            series("", Mark::Line, &[(1.0, 0.5), (2.0, 0.25), (3.0, f64::NAN)]),
            series("validation", Mark::Dots, &[(2.0, 0.75)]),
            series("best", Mark::Guide, &[(0.0, 9.0)]),
        ];
        let table = series_table("t", &Axis::count("step"), &Axis::number("loss"), &all).unwrap();
        assert_eq!(table.head, ["step", "loss", "validation"]);
        assert_eq!(table.rows, [["1", "0.5000", "-"], ["2", "0.2500", "0.7500"], ["3", "-", "0.7500"]]);
        let cloud = [series("samples", Mark::Cloud, &[(1.0, 1.0)])];
        assert!(series_table("t", &Axis::count("x"), &Axis::number("y"), &cloud).is_none());
    }

    #[test]
    fn many_positions_are_few_rows_with_both_ends() {
        let points: Vec<(f64, f64)> = (0..1_001).map(|x| (f64::from(x), 1.0)).collect();
        let all = [series("a", Mark::Line, &points)];
        let rows = series_table("t", &Axis::count("x"), &Axis::number("y"), &all).unwrap().rows;
        let first = |row: &Vec<String>| row[0].clone();
        assert_eq!(
            (rows.len(), first(&rows[0]), first(&rows[16]), first(&rows[31])),
            (32, "0".into(), "516".into(), "1000".into())
        );
    }

    #[test]
    fn times_are_in_utc() {
        let table = table("t", &Axis::time("day"), &[Column { name: "n", points: vec![(1.5e18, 2.0)] }]).unwrap();
        assert_eq!(table.rows, [["2017-07-14 02:40 UTC", "2.000"]]);
    }
}
