//! Samples of many instruments at one time, and the graph that was known by then.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::path::{Path, PathBuf};

use megabatch_graph_cache::{GraphFile, StoredGraph};
use megabatch_nn::batch::SeriesView;
use megabatch_nn::graph::{GraphTargets, GraphView, Graphs, LabelSpan};
use megabatch_nn::model::SampleShape;
use megabatch_trainer::{Batch, Samples, StreamedSeries};
use rayon::prelude::*;
use xxhash_rust::xxh3::Xxh3;

use super::edges::Edges;
use super::graph_names::{absent_instruments, absent_text, places_of};
use super::label_spans::LabelSpans;
use super::samples::{DataFile, SourceSamples};
use super::stored::EdgeFeatureSelection;
use super::verified::VerificationWatch;
use crate::config::Config;
use crate::error::{Context as _, Error, Result};
use crate::host::Host;

/// The samples of a data file by their times. A cross-section has every sample of its time, in the
/// order of the instruments. It has the edges of the last graph known by then whose ends both have
/// a sample.
pub(crate) struct CrossSections {
    source: SourceSamples,
    graph: PathBuf,
    /// Fingerprint of the file of graphs.
    graphs_fingerprint: u128,
    /// `[G]` ascending.
    times: Vec<i64>,
    /// The samples of all cross-sections, one after the other.
    samples: Vec<usize>,
    /// [G + 1] offsets of the cross-sections in `samples`.
    offsets: Vec<usize>,
    edges: Vec<Edges>, // [G]
    edge_attributes: usize,
    /// Most nodes and most edges of a day.
    largest: (usize, usize),
    total_edges: usize,
    /// `[G]` number of samples whose targets are all known.
    labelled: Vec<u32>,
    labels: LabelSpans,
    /// Number of samples earlier than the first graph.
    left_out: usize,
    /// Number of samples whose instrument is not in the graph of their time.
    unmatched: usize,
    /// Instruments that are in no graph by their name, and what the graphs call them, if anything.
    absent: Vec<(String, Option<String>)>,
    /// Time at which the last graph was known.
    last_graph_ns: i64,
    /// Number of samples that have the last graph long after its time.
    stale: usize,
}

impl CrossSections {
    /// Joins the samples of `source`, whose index is in memory, with the graphs of the file at
    /// `graph`.
    ///
    /// # Errors
    /// Graphs that are invalid; a usage failure where they do not belong to the data; a
    /// cancelled one where the host ends it.
    pub(crate) fn join(source: SourceSamples, graph: &Path, config: &Config, host: &Host<'_>) -> Result<Self> {
        let file = GraphFile::open(graph)?;
        let seen = EdgeFeatureSelection::from_config(config);
        let known = KnownGraphs::read(&file, graph)?;
        let names = &file.schema().names;
        let (times, samples, offsets) = by_time(&source)?;
        let first = times.partition_point(|&time| known.at(time).is_none());
        let left_out = offsets[first];
        let first_stale = known.fresh_until().map_or(times.len(), |until| times.partition_point(|&time| time <= until));
        if first == times.len() {
            return Err(Error::usage(format!(
                "model.graph={}: all samples of {} are older than its first graph, which was known at {}",
                graph.display(),
                source.source().path().display(),
                crate::text::utc(known.times[0]),
            )));
        }
        let places = places_of(source.source().instruments(), names).ok_or_else(|| {
            Error::usage(format!(
                "model.graph={}: none of its names, such as {:?}, is an instrument of {}; graphs are joined with bars by name",
                graph.display(),
                names.first().map_or("", String::as_str),
                source.source().path().display(),
            ))
        })?;
        let sample_instruments =
            source.source().sample_instruments().expect("a file with instruments has one a sample");
        let joined: Result<Vec<(Edges, usize)>> = (first..times.len())
            .into_par_iter()
            .map(|section| {
                let stored = file.graph(known.at(times[section]).expect("a graph is known by then"))?;
                let attributes = seen.attributes(file.schema(), &stored);
                let members = &samples[offsets[section]..offsets[section + 1]];
                let rows = members.iter().map(|&sample| places[sample_instruments[sample] as usize]);
                restrict(&stored, &attributes, &rows.collect::<Vec<_>>()).with_context(|| graph.display().to_string())
            })
            .collect();
        let (edges, unmatched): (Vec<Edges>, Vec<usize>) = joined?.into_iter().unzip();
        let is_labelled = fully_labelled(&source, host)?;
        let labelled = offsets[first..]
            .windows(2)
            .map(|pair| samples[pair[0]..pair[1]].iter().filter(|&&sample| is_labelled[sample]).count() as u32);
        Ok(CrossSections {
            labelled: labelled.collect(),
            last_graph_ns: known.times[known.times.len() - 1],
            stale: offsets[times.len()] - offsets[first_stale],
            graph: graph.to_owned(),
            graphs_fingerprint: file.fingerprint(),
            times: times[first..].to_vec(),
            samples: samples[left_out..].to_vec(),
            offsets: offsets[first..].iter().map(|offset| offset - left_out).collect(),
            largest: (
                offsets[first..].windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0),
                edges.iter().map(Edges::len).max().unwrap_or(0),
            ),
            total_edges: edges.iter().map(Edges::len).sum(),
            edges,
            edge_attributes: seen.width(file.schema()),
            labels: LabelSpans::from_series(source.source().series().expect("cross-sections are of a series"))?,
            left_out,
            unmatched: unmatched.iter().sum(),
            absent: absent_instruments(source.source().instruments(), &places, names),
            source,
        })
    }

    /// The samples, each by itself.
    pub(crate) fn source(&self) -> &SourceSamples {
        &self.source
    }

    /// The samples, to change how they are read.
    pub(super) fn source_mut(&mut self) -> &mut SourceSamples {
        &mut self.source
    }

    /// Bytes of the lists of samples and of their edges. The file of graphs is not needed any more.
    pub(crate) fn beside_bytes(&self) -> usize {
        let lists = size_of_val(self.samples.as_slice()) + size_of_val(self.offsets.as_slice());
        let sections = size_of_val(self.times.as_slice()) + size_of_val(self.labelled.as_slice());
        lists + sections + self.edges.iter().map(Edges::bytes).sum::<usize>()
    }

    /// `[G]` time of each cross-section, ns since 1970 UTC, ascending.
    pub(crate) fn times(&self) -> &[i64] {
        &self.times
    }

    /// The file of the graphs.
    pub(super) fn graph_file(&self) -> DataFile {
        DataFile { path: self.graph.clone(), fingerprint: format!("{:032x}", self.graphs_fingerprint) }
    }

    /// The fingerprint of the graphs together with that of the samples' numbers.
    pub(super) fn fingerprint(&self, samples_fingerprint: &str) -> String {
        let mut hash = Xxh3::new();
        hash.update(samples_fingerprint.as_bytes());
        hash.update(&self.graphs_fingerprint.to_le_bytes());
        format!("{:032x}", hash.digest128())
    }

    /// Notes on the match of data and graphs.
    pub(crate) fn notes(&self) -> Vec<String> {
        let graph = self.graph.display();
        let mut notes = Vec::new();
        if self.left_out > 0 {
            notes.push(format!("{} samples are older than the first graph of {graph} and are left out", self.left_out));
        }
        if self.unmatched > 0 {
            notes.push(format!(
                "{} of {} samples are of instruments that {graph} does not have at their time: they have no neighbours{}",
                self.unmatched,
                self.samples.len(),
                absent_text(&self.absent)
            ));
        }
        notes
    }

    /// Warning of samples that have the last graph long after its time; a sentence without its full
    /// stop.
    pub(crate) fn warning(&self) -> Option<String> {
        (self.stale > 0).then(|| {
            format!(
                "{} of {} samples come long after the last graph of {}, which was known at {}, and have it all the same: \
                 graphs there are closer together; build them up to the end of the data",
                self.stale,
                self.samples.len(),
                self.graph.display(),
                crate::text::utc(self.last_graph_ns)
            )
        })
    }

    /// The name of each node's instrument.
    pub(crate) fn names(&self, section: usize) -> Vec<String> {
        let name = |&sample: &usize| self.source.instrument(sample).unwrap_or_default().to_owned();
        self.nodes(section).iter().map(name).collect()
    }
}

impl Samples for CrossSections {
    fn shape(&self) -> &SampleShape {
        self.source.shape()
    }

    fn len(&self) -> usize {
        self.source.len()
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.source.gather(samples, batch)
    }

    fn series(&self) -> Option<SeriesView<'_>> {
        self.source.series()
    }

    fn streamed_series(&self) -> Option<&dyn StreamedSeries> {
        self.source.streamed_series()
    }

    fn read_targets(&self, samples: &[usize], targets: &mut [f32]) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.source.read_targets(samples, targets)
    }

    fn weights(&self) -> Option<&[f32]> {
        self.source.weights()
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        Some(self)
    }

    fn instrument(&self, sample: usize) -> Option<&str> {
        self.source.instrument(sample)
    }
}

impl Graphs for CrossSections {
    fn len(&self) -> usize {
        self.times.len()
    }

    fn targets_of(&self) -> Option<GraphTargets> {
        Some(GraphTargets::Nodes)
    }

    fn nodes(&self, graph: usize) -> &[usize] {
        &self.samples[self.offsets[graph]..self.offsets[graph + 1]]
    }

    fn graph(&self, graph: usize) -> Result<GraphView<'_>, Box<dyn StdError + Send + Sync>> {
        Ok(self.edges[graph].view()?)
    }

    fn edge_attributes(&self) -> usize {
        self.edge_attributes
    }

    fn largest(&self) -> (usize, usize) {
        self.largest
    }

    fn edges_max(&self, graph: usize) -> usize {
        self.edges[graph].len()
    }

    fn total_edges(&self) -> usize {
        self.total_edges
    }

    fn labelled(&self, graph: usize) -> usize {
        self.labelled[graph] as usize
    }

    fn label_span(&self, graph: usize, target: usize) -> Option<LabelSpan> {
        let series = self.source.source().series()?;
        self.labels.last_label_end(series, self.nodes(graph), self.times[graph], target)
    }
}

/// Times at which the graphs of a file became known.
struct KnownGraphs {
    /// Ascending.
    times: Vec<i64>,
    /// The graph of each.
    graphs: Vec<usize>,
}

impl KnownGraphs {
    fn read(file: &GraphFile, path: &Path) -> Result<Self> {
        let timeless = |key: &str| {
            Error::usage(format!(
                "model.graph={}: graph {key:?} does not tell from when on it was known, so that it cannot be joined with bars; \
                 `megabatch graph build --kind correlation` makes graphs that do",
                path.display()
            ))
        };
        let mut known = Vec::with_capacity(file.len());
        for graph in 0..file.len() {
            known.push((file.known_time(graph).ok_or_else(|| timeless(file.key(graph)))?, graph));
        }
        known.sort_unstable();
        let (times, graphs): (Vec<i64>, Vec<usize>) = known.into_iter().unzip();
        if times.is_empty() {
            return Err(Error::data(format!("{}: it has no graphs", path.display())));
        }
        Ok(KnownGraphs { times, graphs })
    }

    /// The last graph that was known at `time`.
    fn at(&self, time: i64) -> Option<usize> {
        let known = self.times.partition_point(|&known| known <= time);
        known.checked_sub(1).map(|last| self.graphs[last])
    }

    /// End of the time for which the last graph stands: the largest distance between two graphs
    /// after it, and at least one and a half of the median; `None` without two times.
    fn fresh_until(&self) -> Option<i64> {
        let distances = self.times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        let mut distances: Vec<i64> = distances.filter(|&distance| distance > 0).collect();
        distances.sort_unstable();
        let (median, largest) = (*distances.get(distances.len() / 2)?, *distances.last()?);
        Some(self.times.last()?.saturating_add(largest.max(median.saturating_add(median / 2))))
    }
}

/// The distinct times of the samples, ascending; the samples by time and instrument; and the offset
/// of each time.
fn by_time(source: &SourceSamples) -> Result<(Vec<i64>, Vec<usize>, Vec<usize>)> {
    let file = source.source();
    let (Some(times), Some(instruments), Some(_)) = (file.sample_times(), file.sample_instruments(), file.series())
    else {
        return Err(Error::usage(format!(
            "model.graph: {} is no series of several instruments, between which a graph could be; `megabatch ingest` makes one of many files",
            file.path().display()
        )));
    };
    let mut samples: Vec<usize> = (0..times.len()).collect();
    samples.sort_unstable_by_key(|&sample| (times[sample], instruments[sample], sample));
    let (mut distinct, mut offsets) = (Vec::new(), vec![0]);
    for section in samples.chunk_by(|&a, &b| times[a] == times[b]) {
        distinct.push(times[section[0]]);
        offsets.push(offsets[offsets.len() - 1] + section.len());
    }
    Ok((distinct, samples, offsets))
}

/// True for each sample of which all targets are known.
fn fully_labelled(source: &SourceSamples, host: &Host<'_>) -> Result<Vec<bool>> {
    let series = source.source().series().expect("cross-sections are of a series");
    let mut is_labelled = Vec::with_capacity(source.len());
    let mut watch = VerificationWatch::begin(host, "targets", source.len(), "samples");
    series.scan_table(source.shape().timeframes.len(), |targets| {
        let rows = targets.chunks_exact(source.shape().outputs);
        is_labelled.extend(rows.map(|row| !row.iter().any(|target| target.is_nan())));
        watch.at(is_labelled.len())
    })?;
    Ok(is_labelled)
}

/// The edges of a graph between the nodes `rows`, with their attributes, and the number of rows
/// that are not in the graph. A node of the result is its place in `rows`.
fn restrict(graph: &StoredGraph<'_>, attributes: &[f32], rows: &[Option<u32>]) -> Result<(Edges, usize)> {
    let row_of: HashMap<u32, u32> = rows.iter().zip(0..).filter_map(|(name, row)| Some(((*name)?, row))).collect();
    let node_of: HashMap<u32, usize> = graph.nodes().iter().zip(0..).map(|(&name, node)| (name, node)).collect();
    // The row of each node of the graph, where it has one.
    let kept: Vec<Option<u32>> = graph.nodes().iter().map(|name| row_of.get(name).copied()).collect();
    let (csr, mut lists, mut unmatched) = (graph.csr(), Vec::with_capacity(rows.len()), 0);
    let width = attributes.len().checked_div(csr.edges()).unwrap_or(0);
    for name in rows {
        let (mut columns, mut column_attributes) = (Vec::new(), Vec::new());
        match name.and_then(|name| node_of.get(&name)) {
            Some(&node) => {
                for edge in csr.edges_of(node) {
                    if let Some(row) = kept[csr.col()[edge] as usize] {
                        columns.push(row);
                        column_attributes.extend_from_slice(&attributes[edge * width..][..width]);
                    }
                }
            }
            None => unmatched += 1,
        }
        lists.push((columns, column_attributes));
    }
    let edges =
        Edges::from_rows(rows.len(), lists.iter().map(|(columns, attributes)| (&columns[..], &attributes[..])))?;
    Ok((edges, unmatched))
}

#[cfg(test)]
mod tests {
    use megabatch_chunk_io::{Instruments, NonFinite, Series, SeriesTimeframe, WriteOptions, write_series};
    use megabatch_gpu_core::Device;
    use megabatch_graph_cache::{BuildOptions, Builder, Graph, Identity, Schema, build_cached, unwatched};

    use super::*;
    use crate::text::DAY_NS;

    /// Graphs as they are given.
    struct Given {
        schema: Schema,
        keys: Vec<String>,
        graphs: Vec<Graph>,
    }

    impl Builder for Given {
        fn identity(&self) -> Identity {
            Identity { data: 1, builder: "given/1".to_owned(), parameters: "{}".to_owned() }
        }

        fn schema(&self) -> &Schema {
            &self.schema
        }

        fn keys(&self) -> &[String] {
            &self.keys
        }

        fn build(&self, index: usize) -> megabatch_graph_cache::Result<Graph> {
            Ok(self.graphs[index].clone())
        }
    }

    /// Bars of A and B that close on days 1 to 6, and of C from day 4 on, in windows of two; joined
    /// with graphs that were known on these days.
    fn join(folder: &Path, known_days: [i64; 2], names: [&str; 4]) -> Result<CrossSections> {
        join_changed(folder, known_days, names, |_| {})
    }

    /// As [`join`], of a series that `change` changes.
    fn join_changed(
        folder: &Path,
        known_days: [i64; 2],
        names: [&str; 4],
        change: impl FnOnce(&mut Series),
    ) -> Result<CrossSections> {
        let days = [1..=6, 1..=6, 4..=6];
        let timeframe = SeriesTimeframe {
            name: "D1".to_owned(),
            steps: 2,
            feature_names: vec!["return".to_owned()],
            values: (0..15).map(|row| row as f32).collect(),
            close_time: days.iter().cloned().flatten().map(|day| day * DAY_NS).collect(),
            sample_end: (1..6).chain(7..12).chain(13..15).collect(),
            instrument_start: vec![0, 6, 12, 15],
            ..SeriesTimeframe::default()
        };
        let sample_days = [2..=6, 2..=6, 5..=6];
        let sample_instrument = vec![0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2];
        let mut series = Series {
            attributes: [("horizon_bars".to_owned(), 1.into())].into(),
            timeframes: vec![timeframe],
            sample_time: sample_days.into_iter().flatten().map(|day| day * DAY_NS).collect(),
            targets: vec![0.5; 12],
            instruments: Some(Instruments { names: ["A", "B", "C"].map(str::to_owned).to_vec(), sample_instrument }),
            ..Series::default()
        };
        change(&mut series);
        write_series(folder.join("bars.h5"), &series, &WriteOptions::default())?;

        let schema = Schema { names: names.map(str::to_owned).to_vec(), weighted: true, ..Schema::default() };
        // A ← B, then between all that the names have: B ← C, C ← B and C ← A.
        let early = Graph::from_edges(&schema, vec![1, 2], &[(0, 1, 0.5)])?;
        let late =
            Graph::from_edges(&schema, vec![0, 1, 2, 3], &[(0, 1, 0.25), (1, 0, 0.75), (2, 0, 1.0), (3, 2, 2.0)])?;
        let graphs = [early, late].into_iter().zip(known_days);
        let graphs = graphs.map(|(graph, day)| Graph { known_time: Some(day * DAY_NS), ..graph }).collect();
        let given = Given { schema, keys: vec!["early".to_owned(), "late".to_owned()], graphs };
        let path = folder.join(format!("{names:?} {known_days:?}.mbg"));
        build_cached(&path, &given, &BuildOptions::default(), &mut unwatched)?;
        let host = Host::silent();
        let source = SourceSamples::open_with_index(&folder.join("bars.h5"), &Device::cpu(), NonFinite::Fail, &host)?;
        CrossSections::join(source, &path, &Config::load(None, &[], &[])?, &host)
    }

    #[test]
    fn samples_of_a_time_are_joined_with_the_last_graph_that_was_known() {
        let folder = tempfile::tempdir().unwrap();
        let sections = join(folder.path(), [3, 5], ["C", "B", "A", "Z"]).unwrap();
        assert_eq!(sections.times(), [3, 4, 5, 6].map(|day| day * DAY_NS));
        assert_eq!((sections.nodes(0), sections.nodes(2)), (&[1, 6][..], &[3, 8, 10][..]));
        let edges = |section: usize| {
            let view = Graphs::graph(&sections, section).unwrap();
            (view.csr.row_ptr().to_vec(), view.csr.col().to_vec(), view.attributes.to_vec())
        };
        // Rows are instruments in order: A ← B at first, then B ← C, C ← B and C ← A; Z has no
        // sample.
        assert_eq!(edges(1), (vec![0, 1, 1], vec![1], vec![0.5]));
        assert_eq!(edges(2), (vec![0, 0, 1, 3], vec![2, 1, 0], vec![0.25, 0.75, 1.0]));
        assert_eq!((sections.largest(), sections.edge_attributes()), ((3, 3), 1));
        let notes = sections.notes();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("2 samples are older than the first graph of "), "{notes:?}");
        assert_eq!(sections.warning(), None);
    }

    /// Two years of samples had the last graph of the years before, without a word.
    #[test]
    fn samples_long_after_the_last_graph_are_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        // A graph a day until day 2 stands until the middle of day 3.
        let sections = join(folder.path(), [1, 2], ["A", "B", "C", "D"]).unwrap();
        let warning = sections.warning().unwrap();
        assert!(warning.starts_with("8 of 12 samples come long after the last graph of "), "{warning}");
        assert!(warning.contains("which was known at 1970-01-03 00:00 UTC"), "{warning}");
        // Graphs of one time tell no distance.
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(join(folder.path(), [2, 2], ["A", "B", "C", "D"]).unwrap().warning(), None);
    }

    #[test]
    fn a_graph_stands_for_the_largest_distance_or_more_than_the_median() {
        let until = |times: &[i64]| KnownGraphs { times: times.to_vec(), graphs: Vec::new() }.fresh_until();
        assert_eq!(until(&[0, 28, 59]), Some(59 + 46));
        // Days with a weekend between them.
        assert_eq!(until(&[0, 10, 20, 50, 60]), Some(90));
        assert_eq!((until(&[5]), until(&[5, 5])), (None, None));
    }

    /// One target, a bar ahead: it ends with the next day's bar, or with the instrument's last.
    #[test]
    fn targets_end_with_the_bar_that_they_look_ahead_to() {
        let folder = tempfile::tempdir().unwrap();
        let sections = join(folder.path(), [3, 5], ["C", "B", "A", "Z"]).unwrap();
        let spans = (0..4).map(|section| sections.label_span(section, 0).unwrap());
        let days: Vec<[i64; 2]> = spans.map(|span| [span.start_ns / DAY_NS, span.end_ns / DAY_NS]).collect();
        assert_eq!(days, [[3, 4], [4, 5], [5, 6], [6, 6]]);

        // Without the horizon, the ends of labels tell, or nothing does.
        let joined = |change: fn(&mut Series)| {
            let folder = tempfile::tempdir().unwrap();
            let sections = join_changed(folder.path(), [3, 5], ["C", "B", "A", "Z"], change).unwrap();
            (0..4).map(|section| sections.label_span(section, 0).map(|span| span.end_ns / DAY_NS)).collect::<Vec<_>>()
        };
        let ends = joined(|series| {
            series.attributes.clear();
            series.sample_label_end_time = series.sample_time.iter().map(|time| time + 2 * DAY_NS).collect();
        });
        assert_eq!(ends, [5, 6, 7, 8].map(Some));
        assert_eq!(joined(|series| series.attributes.clear()), [None; 4]);
    }

    #[test]
    fn instruments_that_a_graph_lacks_have_no_neighbours() {
        let folder = tempfile::tempdir().unwrap();
        let sections = join(folder.path(), [1, 2], ["X", "B", "A", "Z"]).unwrap();
        let view = Graphs::graph(&sections, 4).unwrap();
        assert_eq!((view.nodes(), view.edges()), (3, 0));
        let notes = sections.notes();
        assert!(notes[0].contains("2 of 12 samples are of instruments that"), "{notes:?}");
        assert!(notes[0].ends_with("they have no neighbours; no graph has C"), "{notes:?}");
    }

    #[test]
    fn graphs_of_other_names_and_of_later_times_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let message = |known, names| join(folder.path(), known, names).err().unwrap().to_string();
        let others = message([1, 2], ["W", "X", "Y", "Z"]);
        assert!(others.contains("none of its names, such as \"W\", is an instrument of"), "{others}");
        let late = message([7, 8], ["A", "B", "C", "D"]);
        assert!(late.contains("are older than its first graph, which was known at 1970-01-08"), "{late}");
    }
}
