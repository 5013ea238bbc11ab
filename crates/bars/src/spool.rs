//! Bars in a temporary file, column by column in blocks, for more bars than memory should hold.
//!
//! ```text
//! file   block of 4,096 bars, block, …, the last with the rest
//! block  open_time i64 × n, then open, high, low, close, volume, spread f64 × n, then each
//!        further column f64 × n, native byte order
//! ```
//!
//! The file belongs to the machine that wrote it: it has no header, and its owner keeps timeframe,
//! number of bars and number of columns.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bar_source::BarSource;
use crate::bars::{Bar, Bars};
use crate::context_reach::ContextReach;
use crate::error::{Error, Result};
use crate::time::timeframe::Timeframe;

const BLOCK_BARS: usize = 4096;
/// Columns that every bar has, of eight bytes each.
const COLUMNS: usize = 7;
/// Blocks that are written at once.
const WRITE_BLOCKS: usize = 4;

/// Bars in a temporary file.
#[derive(Debug)]
pub struct SpooledBars {
    path: PathBuf,
    file: File,
    timeframe: Timeframe,
    len: usize,
    /// Further columns.
    columns: usize,
    /// Bars of longer timeframes in the place of those that these make.
    own: Vec<Arc<SpooledBars>>,
    /// Reach of other instruments by timeframe.
    context_reach: Arc<BTreeMap<Timeframe, Vec<ContextReach>>>,
}

/// Writer of [`SpooledBars`].
#[derive(Debug)]
pub(crate) struct SpoolWriter {
    path: PathBuf,
    file: File,
    block: Bars,
    bytes: Vec<u8>,
    len: usize,
    /// Further columns.
    columns: usize,
}

impl SpooledBars {
    /// Bytes of a bar with `columns` further columns in the file.
    pub fn bar_bytes(columns: usize) -> usize {
        8 * (COLUMNS + columns)
    }

    /// Opens the `len` bars in the file at `path`, which have `columns` further columns.
    ///
    /// # Errors
    /// [`Error::Spool`] for a file that cannot be opened or has another length.
    pub fn open(path: &Path, timeframe: Timeframe, len: usize, columns: usize) -> Result<Self> {
        let failed = failed(path, "open");
        let file = File::open(path).map_err(&failed)?;
        let found = file.metadata().map_err(&failed)?.len();
        if found != (len * SpooledBars::bar_bytes(columns)) as u64 {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "it has another length than its bars")));
        }
        let (path, own, context_reach) = (path.to_owned(), Vec::new(), Arc::default());
        Ok(SpooledBars { path, file, timeframe, len, columns, own, context_reach })
    }

    /// The bars of longer timeframes that stand in the place of those which these make.
    pub(crate) fn own(&self) -> &[Arc<SpooledBars>] {
        &self.own
    }

    /// The same bars, with `own` in the place of bars of longer timeframes.
    pub(crate) fn with_own(self, own: Vec<Arc<SpooledBars>>) -> Self {
        SpooledBars { own, ..self }
    }

    /// The same bars, with the reach of other instruments by timeframe.
    pub fn with_context_reach(self, context_reach: Arc<BTreeMap<Timeframe, Vec<ContextReach>>>) -> Self {
        SpooledBars { context_reach, ..self }
    }

    /// Reads `range` of column `column` of eight-byte values.
    fn read_column(&self, column: usize, range: Range<usize>, out: &mut [u8]) -> Result<()> {
        let mut out = out;
        let mut first = range.start;
        while first < range.end {
            let block = first / BLOCK_BARS;
            let block_len = BLOCK_BARS.min(self.len - block * BLOCK_BARS);
            let place = first - block * BLOCK_BARS;
            let count = (block_len - place).min(range.end - first);
            let offset = block * BLOCK_BARS * SpooledBars::bar_bytes(self.columns) + (column * block_len + place) * 8;
            let (piece, rest) = out.split_at_mut(count * 8);
            read_at(&self.file, piece, offset as u64).map_err(failed(&self.path, "read"))?;
            out = rest;
            first += count;
        }
        Ok(())
    }
}

impl BarSource for SpooledBars {
    fn timeframe(&self) -> Timeframe {
        self.timeframe
    }

    fn len(&self) -> usize {
        self.len
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn read(&self, range: Range<usize>, out: &mut Bars) -> Result<()> {
        assert!(range.end <= self.len, "there are {} bars", self.len);
        let count = range.len();
        out.timeframe = self.timeframe;
        self.read_open_times(range.clone(), &mut out.open_time)?;
        out.columns.resize_with(self.columns, Vec::new);
        let columns = [&mut out.open, &mut out.high, &mut out.low, &mut out.close, &mut out.volume, &mut out.spread];
        for (place, column) in columns.into_iter().chain(&mut out.columns).enumerate() {
            column.resize(count, 0.0);
            self.read_column(1 + place, range.clone(), bytemuck::cast_slice_mut(column))?;
        }
        Ok(())
    }

    fn read_open_times(&self, range: Range<usize>, out: &mut Vec<i64>) -> Result<()> {
        assert!(range.end <= self.len, "there are {} bars", self.len);
        out.resize(range.len(), 0);
        self.read_column(0, range, bytemuck::cast_slice_mut(out))
    }

    fn own_bars(&self, timeframe: Timeframe) -> Option<Arc<dyn BarSource + Send>> {
        let own = self.own.iter().find(|own| own.timeframe == timeframe)?;
        Some(Arc::<SpooledBars>::clone(own))
    }

    fn context_reach(&self, timeframe: Timeframe) -> &[ContextReach] {
        self.context_reach.get(&timeframe).map(Vec::as_slice).unwrap_or_default()
    }
}

impl SpoolWriter {
    /// Begins a file of bars of `timeframe` with `columns` further columns at `path`, whose place
    /// must be free or a file.
    ///
    /// # Errors
    /// [`Error::Spool`].
    pub(crate) fn create(path: &Path, timeframe: Timeframe, columns: usize) -> Result<Self> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(path);
        let file = file.map_err(failed(path, "create"))?;
        Ok(SpoolWriter::new(path, file, timeframe, columns))
    }

    /// Begins a file of bars of `timeframe` with `columns` further columns, without a name, in
    /// `folder`.
    pub(crate) fn unnamed(folder: &Path, timeframe: Timeframe, columns: usize) -> Result<Self> {
        let file = tempfile::tempfile_in(folder).map_err(failed(folder, "create"))?;
        Ok(SpoolWriter::new(folder, file, timeframe, columns))
    }

    fn new(path: &Path, file: File, timeframe: Timeframe, columns: usize) -> Self {
        let block = Bars::with_capacity(timeframe, BLOCK_BARS);
        SpoolWriter { path: path.to_owned(), file, block, bytes: Vec::new(), len: 0, columns }
    }

    /// Number of bars so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a bar at the end.
    ///
    /// # Errors
    /// [`Error::Spool`].
    ///
    /// # Panics
    /// When it does not open after the last one of its block, or has another number of columns.
    pub(crate) fn push(&mut self, bar: Bar) -> Result<()> {
        assert_eq!(bar.columns.len(), self.columns, "all bars have the same columns");
        self.block.push(bar);
        self.len += 1;
        if self.block.len() == BLOCK_BARS {
            self.take_block();
            if self.bytes.len() >= WRITE_BLOCKS * BLOCK_BARS * SpooledBars::bar_bytes(self.columns) {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn take_block(&mut self) {
        let block = &mut self.block;
        block.spread.resize(block.open_time.len(), 0.0);
        self.bytes.extend_from_slice(bytemuck::cast_slice(&block.open_time));
        let own = [&block.open, &block.high, &block.low, &block.close, &block.volume, &block.spread];
        for column in own.into_iter().chain(&block.columns) {
            self.bytes.extend_from_slice(bytemuck::cast_slice(column));
        }
        block.truncate(0);
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write_all(&self.bytes).map_err(failed(&self.path, "write"))?;
        self.bytes.clear();
        Ok(())
    }

    /// The bars, all of them in the file.
    ///
    /// # Errors
    /// [`Error::Spool`].
    pub(crate) fn finish(mut self) -> Result<SpooledBars> {
        self.take_block();
        self.flush()?;
        let SpoolWriter { path, file, block, len, columns, .. } = self;
        let (timeframe, own, context_reach) = (block.timeframe, Vec::new(), Arc::default());
        Ok(SpooledBars { path, file, timeframe, len, columns, own, context_reach })
    }
}

/// The error of a temporary file.
pub(crate) fn failed(path: &Path, action: &'static str) -> impl Fn(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Spool { path: path.clone(), action, source }
}

/// Fills `out` from `offset` on, without moving the file's own place.
#[cfg(unix)]
pub(crate) fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

/// Writes `bytes` from `offset` on, without moving the file's own place.
#[cfg(unix)]
pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt as _;
    let mut done = 0;
    while done < bytes.len() {
        done += file.seek_write(&bytes[done..], offset + done as u64)?;
    }
    Ok(())
}

#[cfg(windows)]
pub(crate) fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt as _;
    let mut done = 0;
    while done < out.len() {
        match file.seek_read(&mut out[done..], offset + done as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => done += count,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        for len in [0, 1, BLOCK_BARS - 1, BLOCK_BARS, BLOCK_BARS + 1, 9 * BLOCK_BARS + 7] {
            let path = folder.path().join("bars");
            let mut bars = Bars::with_capacity(Timeframe::M5, len);
            let mut writer = SpoolWriter::create(&path, Timeframe::M5, 2).unwrap();
            for k in 0..len {
                let x = k as f64;
                let bar = Bar {
                    open_time: 3 * k as i64,
                    open: x,
                    high: x + 0.5,
                    low: -x,
                    close: x / 3.0,
                    volume: 7.0,
                    spread: x,
                    columns: Box::new([x * x, -3.0]),
                };
                bars.push(bar.clone());
                writer.push(bar).unwrap();
            }
            writer.finish().unwrap();
            let spooled = SpooledBars::open(&path, Timeframe::M5, len, 2).unwrap();
            assert_eq!((spooled.len(), spooled.is_empty(), spooled.timeframe()), (len, len == 0, Timeframe::M5));
            let mut out = Bars::with_capacity(Timeframe::M1, 0);
            for range in [0..len, len / 2..len, len / 3..len / 2, len..len] {
                spooled.read(range.clone(), &mut out).unwrap();
                let mut expected = Bars::with_capacity(Timeframe::M1, 0);
                BarSource::read(&bars, range, &mut expected).unwrap();
                expected.spread.resize(expected.open_time.len(), 0.0);
                expected.columns.resize_with(2, Vec::new);
                assert_eq!(out, expected);
            }
            assert!(matches!(SpooledBars::open(&path, Timeframe::M5, len + 1, 2), Err(Error::Spool { .. })));
        }
    }
}
