//! Rows of numbers.

use crate::error::Result;
use crate::import::table::DelimitedText;
use crate::import::text::Text;

/// A table of numbers, a row a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointTable {
    /// Names of the columns, `[F]`.
    pub columns: Vec<String>,
    /// Names of the nodes, `[N]`: those of a first column called `node`, or the numbers of the rows
    /// from 0.
    pub names: Vec<String>,
    /// `[N, F]` row-major.
    pub values: Vec<f64>,
}

/// The numbers of a CSV: a header, and in each row as many numbers, after the node's name where the
/// first column is called `node`.
///
/// # Errors
/// [`Error::Field`](crate::Error::Field) for what is no finite number;
/// [`Error::Contradiction`](crate::Error::Contradiction) for a file without columns of numbers.
pub fn points(text: &Text) -> Result<PointTable> {
    let (mut table, header) = DelimitedText::with_header(text)?;
    let first = usize::from(header[0] == "node");
    if header.len() == first {
        return Err(text.contradiction("there is no column but `node`", "columns of numbers beside it"));
    }
    let mut points = PointTable { columns: header[first..].to_vec(), ..PointTable::default() };
    while let Some(row) = table.next()? {
        row.check_len(header.len())?;
        points.names.push(match first {
            0 => points.names.len().to_string(),
            _ => row.name(0, "the name of a node")?.to_owned(),
        });
        for column in first..header.len() {
            points.values.push(row.wide_number(column)?);
        }
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_names_or_numbers() {
        let read = |bytes: &str| points(&Text::new("p.csv", bytes.into()).unwrap());
        let named = read("node,x,y\nA,1,2.5\nB,-1e300,0\n").unwrap();
        assert_eq!((named.columns.join(" "), named.names.join(" ")), ("x y".into(), "A B".into()));
        assert_eq!(named.values, [1.0, 2.5, -1e300, 0.0]);
        assert_eq!(read("x\n1\n2\n").unwrap().names, ["0", "1"]);
        for (bytes, message) in [
            ("node\nA\n", "no column but `node`"),
            ("x,y\n1,\n", "line 2, column 2: expected a finite number"),
            ("x,y\n1\n", "line 2, column 2: expected 2 fields"),
        ] {
            let error = read(bytes).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
