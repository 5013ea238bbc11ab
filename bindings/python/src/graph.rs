//! Graphs of a file.

use std::path::PathBuf;

use megabatch_run::Kind;
use megabatch_run::graph::{ExportFormat, ExportRequest, GraphArrays, GraphReader, export, verify};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict};

use crate::arrays::graph_arrays;
use crate::convert::{Arrays, Facts, bytes_of, dict as as_facts, facts, numbers};
use crate::failure::{OrRaise as _, kind_error};
use crate::process;
use crate::training::{Told, told};

/// An open file of graphs. Nothing in it waits for a thread, so that forked processes may use it.
#[pyclass(frozen, module = "megabatch._megabatch")]
pub(crate) struct Graphs {
    reader: GraphReader,
}

/// Times that are not known.
const UNKNOWN_NS: i64 = i64::MIN;

#[pymethods]
impl Graphs {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let reader = py.detach(|| GraphReader::open(&path)).or_raise(py)?;
        Ok(Graphs { reader })
    }

    fn __len__(&self) -> usize {
        self.reader.len()
    }

    /// Contents of the file.
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Facts<'py>> {
        facts(py, &self.reader.facts())
    }

    /// Fingerprint of the file, of all its bytes.
    fn fingerprint(&self) -> String {
        self.reader.fingerprint()
    }

    /// Number of the graph with a key.
    fn find(&self, py: Python<'_>, key: &str) -> PyResult<usize> {
        self.reader.find(key).or_raise(py)
    }

    /// Numbers of nodes and of edges of each graph, 64-bit integers, [graphs, 2].
    fn sizes<'py>(&self, py: Python<'py>) -> Bound<'py, PyByteArray> {
        let sizes: Vec<i64> = self.reader.sizes().flat_map(|(nodes, edges)| [nodes as i64, edges as i64]).collect();
        bytes_of(py, &sizes)
    }

    /// Time from which each graph may be used, 64-bit integers, ns since 1970 UTC; the smallest
    /// where it is not known.
    fn known_times<'py>(&self, py: Python<'py>) -> Bound<'py, PyByteArray> {
        let times: Vec<i64> = self.reader.known_times().map(|time| time.unwrap_or(UNKNOWN_NS)).collect();
        bytes_of(py, &times)
    }

    /// The arrays of the graph with this number, where they lie. Its floats may be written if
    /// `writable`, and what is written there is seen by all arrays of the graph.
    fn graph<'py>(&self, py: Python<'py>, number: usize, writable: bool) -> PyResult<Arrays<'py>> {
        let graph = self.reader.graph(number).or_raise(py)?;
        graph_arrays(py, graph, writable)
    }

    /// The arrays of the graphs with the numbers `graphs`, 64-bit integers.
    fn arrays<'py>(&self, py: Python<'py>, graphs: Vec<u8>) -> PyResult<Facts<'py>> {
        let graphs: Vec<usize> = numbers::<i64>(&graphs)?.into_iter().map(|graph| graph as usize).collect();
        let arrays = py.detach(|| self.reader.arrays(&graphs)).or_raise(py)?;
        let GraphArrays { edge_index, edge_weight, edge_attr, x, y, node_names, batch, node_offsets, edge_offsets } =
            arrays;
        let dict = PyDict::new(py);
        for (name, integers) in [
            ("edge_index", edge_index),
            ("node_names", node_names),
            ("batch", batch),
            ("ptr", node_offsets),
            ("edge_ptr", edge_offsets),
        ] {
            dict.set_item(name, bytes_of(py, &integers))?;
        }
        for (name, floats) in [("edge_weight", edge_weight), ("edge_attr", edge_attr), ("x", x), ("y", y)] {
            dict.set_item(name, bytes_of(py, &floats))?;
        }
        Ok(as_facts(dict))
    }
}

/// Formats that graphs are exported to.
const EXPORT_FORMATS: [ExportFormat; 4] =
    [ExportFormat::EdgeIndex, ExportFormat::Tu, ExportFormat::EdgeList, ExportFormat::Sdf];

/// Writes graphs of a file in a format of other programs; all of them without `keys`.
#[pyfunction]
pub(crate) fn export_graphs<'py>(
    py: Python<'py>,
    path: PathBuf,
    out: PathBuf,
    format: &str,
    keys: Vec<String>,
) -> PyResult<Told<'py>> {
    let Some(known) = EXPORT_FORMATS.into_iter().find(|known| known.name() == format) else {
        let names = EXPORT_FORMATS.map(ExportFormat::name).join(", ");
        return Err(kind_error(py, Kind::Usage, &format!("format={format}: expected one of {names}")));
    };
    let request = ExportRequest { file: path, format: known, out, keys };
    let report = py.detach(|| export(&request)).or_raise(py)?;
    told(py, &report)
}

/// Checks a file of graphs.
#[pyfunction]
pub(crate) fn verify_graphs<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Told<'py>> {
    process::check(py)?;
    let report = py.detach(|| verify(&path)).or_raise(py)?;
    told(py, &report)
}
