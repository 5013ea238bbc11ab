//! Times of several instruments in one order, in bounded memory.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::spool::{failed, read_at};

/// Times that are held of all streams together.
const HELD_TIMES: usize = 1 << 19;
/// Fewest times of one stream that are fetched at once.
const FETCHED_MIN: usize = 64;

/// Increasing times, a piece at a time. A call appends at least one, or none after the last.
pub(crate) type TimeStream<'a> = Box<dyn FnMut(&mut Vec<i64>) -> Result<()> + 'a>;

/// A stream and the times that were fetched from it.
struct Fetched<'a> {
    stream: TimeStream<'a>,
    times: Vec<i64>,
    /// Place of the next one in `times`.
    next: usize,
    is_over: bool,
}

/// Visits each time of the streams once, in order, with the places of the streams that have it.
pub(crate) fn merge<'a>(
    streams: Vec<TimeStream<'a>>,
    mut visit: impl FnMut(i64, &[(i64, u32)]) -> Result<()>,
) -> Result<()> {
    let wanted = (HELD_TIMES / streams.len().max(1)).max(FETCHED_MIN);
    let fetched = |stream| Fetched { stream, times: Vec::new(), next: 0, is_over: false };
    let mut streams: Vec<Fetched<'a>> = streams.into_iter().map(fetched).collect();
    let mut together = Vec::new();
    loop {
        streams.iter_mut().try_for_each(|stream| stream.refill(wanted))?;
        // Every stream is fetched up to this time.
        let known = streams.iter().filter(|stream| !stream.is_over).filter_map(|stream| stream.times.last().copied());
        let known = known.min().unwrap_or(i64::MAX);
        together.clear();
        for (place, stream) in streams.iter_mut().enumerate() {
            let left = &stream.times[stream.next..];
            let count = left.partition_point(|&time| time <= known);
            together.extend(left[..count].iter().map(|&time| (time, place as u32)));
            stream.next += count;
        }
        if together.is_empty() {
            return Ok(());
        }
        // Runs in order, which a stable sort merges.
        together.sort_by_key(|&(time, _)| time);
        for group in together.chunk_by(|one, next| one.0 == next.0) {
            visit(group[0].0, group)?;
        }
    }
}

impl Fetched<'_> {
    fn refill(&mut self, wanted: usize) -> Result<()> {
        self.times.drain(..self.next);
        self.next = 0;
        while !self.is_over && self.times.len() < wanted {
            let before = self.times.len();
            (self.stream)(&mut self.times)?;
            self.is_over = self.times.len() == before;
        }
        Ok(())
    }
}

/// Increasing times in a temporary file without a name.
#[derive(Debug)]
pub(crate) struct TimesFile {
    folder: PathBuf,
    file: File,
    len: usize,
}

/// Writer of a [`TimesFile`].
pub(crate) struct TimesWriter {
    folder: PathBuf,
    file: BufWriter<File>,
    len: usize,
}

impl TimesWriter {
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(folder).map_err(failed(folder, "create"))?;
        Ok(TimesWriter { folder: folder.to_owned(), file: BufWriter::with_capacity(1 << 16, file), len: 0 })
    }

    pub(crate) fn push(&mut self, time: i64) -> Result<()> {
        self.len += 1;
        self.file.write_all(&time.to_ne_bytes()).map_err(failed(&self.folder, "write"))
    }

    pub(crate) fn finish(self) -> Result<TimesFile> {
        let file = self.file.into_inner().map_err(|error| failed(&self.folder, "write")(error.into_error()))?;
        Ok(TimesFile { folder: self.folder, file, len: self.len })
    }
}

impl TimesFile {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Replaces `out` by the times from place `first` on, at most `count`.
    pub(crate) fn read(&self, first: usize, count: usize, out: &mut Vec<i64>) -> Result<()> {
        out.resize(count.min(self.len - first), 0);
        let bytes = bytemuck::cast_slice_mut(out);
        read_at(&self.file, bytes, (first * 8) as u64).map_err(failed(&self.folder, "read"))
    }

    pub(crate) fn at(&self, place: usize) -> Result<i64> {
        let mut one = Vec::with_capacity(1);
        self.read(place, 1, &mut one)?;
        Ok(one[0])
    }
}

/// Looks up increasing times in a file, in one pass over it.
pub(crate) struct TimesCursor<'a> {
    file: &'a TimesFile,
    read: usize,
    held: Vec<i64>,
    next: usize,
}

impl<'a> TimesCursor<'a> {
    pub(crate) fn new(file: &'a TimesFile) -> Self {
        TimesCursor { file, read: 0, held: Vec::new(), next: 0 }
    }

    /// True if `time` stands in the file. Times must be asked for in increasing order.
    pub(crate) fn contains(&mut self, time: i64) -> Result<bool> {
        loop {
            self.next += self.held[self.next..].partition_point(|&held| held < time);
            if let Some(&held) = self.held.get(self.next) {
                return Ok(held == time);
            }
            if self.read == self.file.len() {
                return Ok(false);
            }
            self.file.read(self.read, 1 << 12, &mut self.held)?;
            self.read += self.held.len();
            self.next = 0;
        }
    }
}
