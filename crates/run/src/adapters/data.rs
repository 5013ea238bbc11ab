//! Training data of a run, from any kind of file.

use std::path::Path;

use megabatch_chunk_io::{Layout, NonFinite, SeriesSource, Shape, Source};
use megabatch_gpu_core::Device;
use megabatch_nn::graph::Graphs;
use megabatch_nn::model::{Encoder, Readout};
use megabatch_trainer::{SampleRanges, Samples, Split};

use super::cross_section::CrossSections;
use super::data_schema::DataSchema;
use super::graphs::GraphSamples;
use super::samples::{DataFile, SourceSamples};
use super::spans::SampleSpans;
use super::split::{PurgeRemarks, remarks_on_purge, split_cross_sections, split_source};
use crate::config::{self, Config};
use crate::error::{Error, Result};
use crate::host::Host;

/// Samples whose times or targets are read at once.
const SAMPLES_AT_ONCE: usize = 1 << 16;

/// The samples of a run. Units, which splits and the order count, are samples, or graphs whose
/// nodes are samples.
pub(crate) enum Data {
    /// Samples of a data file, each by itself.
    Samples(SourceSamples),
    /// Samples of a data file, all of one time together, with a graph between them.
    CrossSections(CrossSections),
    /// Graphs that have features and targets of their own.
    Graphs(GraphSamples),
}

impl Data {
    /// Opens `path`, and the graphs that `config` has for it. Samples stay in their file, but for
    /// the index of a series that graphs join. A series that was verified, as the host's cache
    /// folder says, is not checked again. Windows that are read are checked by the rule
    /// `non_finite`.
    ///
    /// # Errors
    /// Errors of the files; a usage failure where the graphs do not belong to the data; a cancelled
    /// one where the host ends the check.
    pub(crate) fn open(
        path: &Path,
        config: &Config,
        device: &Device,
        non_finite: NonFinite,
        host: &Host<'_>,
    ) -> Result<Self> {
        let graph = config.get(&config::model::GRAPH);
        if is_graphs(path) {
            return match graph {
                None => Ok(Data::Graphs(GraphSamples::open(path, config, device)?)),
                Some(graph) => Err(Error::usage(format!(
                    "model.graph={}: {} has graphs of its own; leave model.graph at none",
                    graph.display(),
                    path.display()
                ))),
            };
        }
        match graph {
            None => Ok(Data::Samples(SourceSamples::open_in_file(path, device, non_finite, host)?)),
            Some(graph) => {
                let source = SourceSamples::open_with_index(path, device, non_finite, host)?;
                Ok(Data::CrossSections(CrossSections::join(source, &graph, config, host)?))
            }
        }
    }

    /// As the trainer reads them.
    pub(crate) fn samples(&self) -> &dyn Samples {
        match self {
            Data::Samples(samples) => samples,
            Data::CrossSections(sections) => sections,
            Data::Graphs(graphs) => graphs,
        }
    }

    /// The data file of the samples; `None` for graphs with features of their own.
    pub(crate) fn source(&self) -> Option<&Source> {
        match self {
            Data::Samples(samples) => Some(samples.source()),
            Data::CrossSections(sections) => Some(sections.source().source()),
            Data::Graphs(_) => None,
        }
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Data::Graphs(graphs) => graphs.path(),
            _ => self.source().expect("what is not a file of graphs has a source").path(),
        }
    }

    /// Dimensions of the samples.
    pub(crate) fn shape(&self) -> &Shape {
        match self {
            Data::Graphs(graphs) => graphs.file_shape(),
            _ => self.source().expect("what is not a file of graphs has a source").shape(),
        }
    }

    /// Layout of the samples in the file.
    pub(crate) fn layout(&self) -> String {
        self.source().map_or("graphs".to_owned(), |source| source.layout().to_string())
    }

    /// True if windows pass through memory, or would if they did not fit.
    pub(crate) fn is_windows(&self) -> bool {
        self.source().is_some_and(|source| source.layout() == Layout::Windows)
    }

    /// Number of units.
    pub(crate) fn units(&self) -> usize {
        let samples = self.samples();
        samples.graphs().map_or(samples.len(), Graphs::len)
    }

    /// The time of each graph, ns since 1970 UTC, if units are graphs with times.
    pub(crate) fn graph_times(&self) -> Option<&[i64]> {
        match self {
            Data::CrossSections(sections) => Some(sections.times()),
            Data::Samples(_) | Data::Graphs(_) => None,
        }
    }

    /// True if units have times.
    pub(crate) fn has_times(&self) -> bool {
        match self {
            Data::Samples(samples) => samples.source().has_times(),
            Data::CrossSections(_) => true,
            Data::Graphs(_) => false,
        }
    }

    /// The earliest and the latest time of `units`, ns since 1970 UTC; `None` for no units, or
    /// units without times.
    pub(crate) fn time_span(&self, units: &SampleRanges) -> Result<Option<(i64, i64)>> {
        let mut span: Option<(i64, i64)> = None;
        self.for_each_time(units, |time| {
            let (first, last) = span.unwrap_or((time, time));
            span = Some((first.min(time), last.max(time)));
        })?;
        Ok(span)
    }

    /// Number of the samples of `units` that are earlier than `time_ns`, ns since 1970 UTC; 0 for
    /// data without times.
    ///
    /// # Errors
    /// Times that cannot be read.
    pub(crate) fn count_before(&self, units: &SampleRanges, time_ns: i64) -> Result<usize> {
        let mut count = 0;
        self.for_each_time(units, |time| count += usize::from(time < time_ns))?;
        Ok(count)
    }

    fn for_each_time(&self, units: &SampleRanges, mut take: impl FnMut(i64)) -> Result<()> {
        match self {
            Data::Samples(samples) => {
                for part in pieces(units) {
                    samples.source().times_of(&part)?.into_iter().flatten().for_each(&mut take);
                }
            }
            _ => units.iter().filter_map(|unit| Some(self.graph_times()?[unit])).for_each(take),
        }
        Ok(())
    }

    /// Bytes that are not booked on a device: a file of graphs, and lists of nodes and edges.
    pub(crate) fn beside_bytes(&self) -> usize {
        match self {
            Data::Samples(_) => 0,
            Data::CrossSections(sections) => sections.beside_bytes(),
            Data::Graphs(graphs) => graphs.beside_bytes(),
        }
    }

    /// The rule by which [`Data::split`] divides the units, in a sentence.
    pub(crate) fn split_rule(&self, config: &Config) -> String {
        match self {
            Data::Graphs(graphs) => graphs.split_rule(config),
            Data::Samples(_) | Data::CrossSections(_) => "Split by time.".to_owned(),
        }
    }

    /// Default encoder before graph attention, and default readout.
    pub(crate) fn model_of_graphs(&self) -> (Encoder, Readout) {
        match self {
            Data::Graphs(graphs) if graphs.targets_graphs() => (Encoder::LastBar, Readout::Mean),
            Data::Graphs(_) => (Encoder::LastBar, Readout::Node),
            Data::Samples(_) | Data::CrossSections(_) => (Encoder::Recurrent, Readout::Node),
        }
    }

    /// The loss that `training.loss: auto` stands for.
    pub(crate) fn default_loss(&self) -> &'static str {
        match self {
            Data::Graphs(graphs) if graphs.targets_are_labels() => "cross_entropy",
            _ => "mse",
        }
    }

    /// Splits the units as `config` says.
    ///
    /// # Errors
    /// As [`split_source`].
    pub(crate) fn split(&self, config: &Config) -> Result<Split> {
        match self {
            Data::Samples(samples) => split_source(samples.source(), config),
            Data::CrossSections(sections) => split_cross_sections(sections, config),
            Data::Graphs(graphs) => graphs.split(config),
        }
    }

    /// Remarks on the purge between the parts of `split`.
    ///
    /// # Errors
    /// As [`SampleSpans::from_source`].
    pub(crate) fn remarks_on_purge(&self, config: &Config, split: &Split) -> Result<PurgeRemarks> {
        match self {
            Data::Samples(samples) => remarks_on_purge(samples.source(), config, split),
            Data::CrossSections(sections) if config.purge_ns().is_none() && config.has_unseen() => {
                let source = sections.source().source();
                let times = source.sample_times().unwrap_or_default();
                Ok(PurgeRemarks::on_spans(SampleSpans::from_source(source, times)?))
            }
            Data::CrossSections(_) | Data::Graphs(_) => Ok(PurgeRemarks::default()),
        }
    }

    /// True if any target of `units` is known, so that they have a loss.
    pub(crate) fn any_target_known(&self, units: &SampleRanges) -> Result<bool> {
        match self {
            Data::Samples(samples) => {
                for part in pieces(units) {
                    if samples.source().any_target_known(&part)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            // A node counts with all its targets or not at all.
            Data::CrossSections(sections) => Ok(units.iter().any(|section| sections.labelled(section) > 0)),
            Data::Graphs(graphs) => Ok(units.iter().any(|graph| graphs.labelled(graph) > 0)),
        }
    }

    /// The files of the samples: the data file, then that of the graphs between its samples.
    ///
    /// # Errors
    /// A file that cannot be read; a cancelled failure where the host ends it.
    pub(crate) fn files(&self, host: &Host<'_>) -> Result<Vec<DataFile>> {
        let fingerprint = match self.file_samples() {
            Some(samples) => samples.fingerprint(host)?,
            None => self.fingerprint_of_graphs(),
        };
        Ok(self.with_graph_file(fingerprint))
    }

    /// As [`Data::files`]. The fingerprint of the data file is of the same kind as `recorded`.
    ///
    /// # Errors
    /// As [`Data::files`].
    pub(crate) fn files_like(&self, recorded: &str, host: &Host<'_>) -> Result<Vec<DataFile>> {
        let fingerprint = match self.file_samples() {
            Some(samples) => samples.fingerprint_like(recorded, host)?,
            None => self.fingerprint_of_graphs(),
        };
        Ok(self.with_graph_file(fingerprint))
    }

    fn with_graph_file(&self, fingerprint: String) -> Vec<DataFile> {
        let data = DataFile { path: self.path().to_owned(), fingerprint };
        match self {
            Data::CrossSections(sections) => vec![data, sections.graph_file()],
            Data::Samples(_) | Data::Graphs(_) => vec![data],
        }
    }

    /// Samples of a data file, each by itself or joined by graphs.
    fn file_samples(&self) -> Option<&SourceSamples> {
        match self {
            Data::Samples(samples) => Some(samples),
            Data::CrossSections(sections) => Some(sections.source()),
            Data::Graphs(_) => None,
        }
    }

    fn fingerprint_of_graphs(&self) -> String {
        match self {
            Data::Graphs(graphs) => graphs.fingerprint(),
            Data::Samples(_) | Data::CrossSections(_) => unreachable!("only graphs have no samples of a file"),
        }
    }

    /// The fingerprint of the samples and of the edges between them, from those of [`Data::files`].
    pub(crate) fn fingerprint(&self, files: &[DataFile]) -> String {
        match self {
            Data::CrossSections(sections) => sections.fingerprint(&files[0].fingerprint),
            Data::Samples(_) | Data::Graphs(_) => files[0].fingerprint.clone(),
        }
    }

    /// Meaning of the numbers.
    pub(crate) fn meaning(&self) -> Result<DataSchema> {
        match self {
            Data::Graphs(graphs) => Ok(graphs.meaning()),
            _ => DataSchema::from_source(self.source().expect("what is not a file of graphs has a source")),
        }
    }

    /// The series that samples, or the nodes of graphs over instruments, are windows of.
    pub(crate) fn series(&self) -> Option<&SeriesSource> {
        self.source().and_then(Source::series)
    }

    /// The series, if its bars and targets stay in their file or could.
    pub(crate) fn streamable(&self) -> Option<&SeriesSource> {
        match self {
            Data::Samples(samples) => samples.source().series(),
            Data::CrossSections(sections) => sections.source().source().series(),
            Data::Graphs(_) => None,
        }
    }

    /// Reads bars of a series in the file through a cache of about `cache_bytes`.
    pub(crate) fn set_cache(&mut self, cache_bytes: usize) -> megabatch_chunk_io::Result<()> {
        match self {
            Data::Samples(samples) => samples.set_cache(cache_bytes),
            Data::CrossSections(sections) => sections.source_mut().set_cache(cache_bytes),
            Data::Graphs(_) => Ok(()),
        }
    }

    /// Reads samples into memory.
    pub(crate) fn hold(&mut self) -> megabatch_chunk_io::Result<()> {
        match self {
            Data::Samples(samples) => samples.hold(),
            Data::CrossSections(sections) => sections.source_mut().hold(),
            // Graphs are in memory, or mapped if they are large: see `hold_graphs`.
            Data::Graphs(_) => Ok(()),
        }
    }

    /// As [`Data::hold`]; windows are checked when they are asked for.
    pub(crate) fn hold_unchecked(&mut self) -> megabatch_chunk_io::Result<()> {
        match self {
            Data::Samples(samples) => samples.hold_unchecked(),
            Data::CrossSections(_) | Data::Graphs(_) => self.hold(),
        }
    }

    /// As [`Data::hold_unchecked`]; windows of the parts of `split` are checked at once.
    pub(crate) fn hold_parts(&mut self, split: &Split) -> megabatch_chunk_io::Result<()> {
        let parts = [&split.train, &split.validation, &split.test];
        match self {
            Data::Samples(samples) => samples.hold_parts(parts.into_iter().flat_map(SampleRanges::runs)),
            Data::CrossSections(_) | Data::Graphs(_) => self.hold(),
        }
    }

    /// Reads a mapped file of graphs into memory; [`Data::beside_bytes`] counts it. A program that
    /// cuts the file short then ends no run.
    pub(crate) fn hold_graphs(&mut self) -> Result<()> {
        match self {
            Data::Graphs(graphs) => Ok(graphs.hold()?),
            Data::Samples(_) | Data::CrossSections(_) => Ok(()),
        }
    }

    /// As [`SourceSamples::load_in_chunks_of`].
    pub(crate) fn load_in_chunks_of(&mut self, chunk_samples: usize, batch_size: usize, gpu: Option<&Device>) {
        if let Data::Samples(samples) = self {
            samples.load_in_chunks_of(chunk_samples, batch_size, gpu);
        }
    }

    /// Notes on the match of data and graphs: sentences without their full stop.
    pub(crate) fn notes(&self) -> Vec<String> {
        match self {
            Data::CrossSections(sections) => sections.notes(),
            Data::Samples(_) | Data::Graphs(_) => Vec::new(),
        }
    }

    /// Warning of a match of data and graphs on which results cannot rest.
    pub(crate) fn warning(&self) -> Option<String> {
        match self {
            Data::CrossSections(sections) => sections.warning(),
            Data::Samples(_) | Data::Graphs(_) => None,
        }
    }
}

/// Lists of samples that are read at once.
fn pieces(samples: &SampleRanges) -> impl Iterator<Item = Vec<usize>> + '_ {
    samples.chunks(SAMPLES_AT_ONCE).map(|piece| piece.iter().collect())
}

/// The time of each sample of `samples`, ns since 1970 UTC, where `source` has times.
///
/// # Errors
/// Times that cannot be read.
pub(crate) fn times_of(source: &Source, samples: &SampleRanges) -> Result<Option<Vec<i64>>> {
    let mut times = Vec::with_capacity(samples.len());
    for piece in pieces(samples) {
        let Some(piece_times) = source.times_of(&piece)? else { return Ok(None) };
        times.extend(piece_times);
    }
    Ok(source.has_times().then_some(times))
}

/// Refuses a file of graphs where samples are wanted.
///
/// # Errors
/// A data failure that names the commands for graphs.
pub(crate) fn refuse_graphs(path: &Path) -> Result<()> {
    if !is_graphs(path) {
        return Ok(());
    }
    let file = path.display();
    Err(Error::data(format!(
        "{file}: a file of graphs, which this command does not read; use `megabatch graph inspect {file}` or `megabatch graph bench`"
    )))
}

/// True if the file is one of graphs, by its ending.
pub(crate) fn is_graphs(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("mbg"))
}
