//! Place of rows and bars while files are read: in memory, or in a folder.

use std::ops::{ControlFlow, Deref, Range};
use std::path::Path;
use std::{fmt, io};

use crate::bar_source::{BarSource, PIECE_BARS, pieces_of};
use crate::bars::{Bar, Bars};
use crate::error::Result;
use crate::spill::SpillFile;
use crate::spool::{SpoolWriter, SpooledBars};
use crate::time::timeframe::Timeframe;

/// Gets the number of bytes of every read, and may end the reading.
pub type ObserveBytes<'a> = &'a (dyn Fn(u64) -> ControlFlow<()> + Sync);

/// The observer ended the reading.
#[derive(Debug)]
pub(crate) struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Stopped {}

/// Tells `observe` of `count` bytes that were read; an error of [`Stopped`] if it ends the reading.
pub(crate) fn tell_read(observe: ObserveBytes<'_>, count: u64) -> io::Result<()> {
    match observe(count) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(io::Error::other(Stopped)),
    }
}

/// Place of rows and bars, and the observer of the bytes that are read.
pub(crate) struct ReadPlace<'a> {
    /// Folder of temporary files and the one for rows; everything is in memory if `None`.
    pub(crate) spill: Option<SpillPlace<'a>>,
    pub(crate) observe: ObserveBytes<'a>,
}

impl ReadPlace<'static> {
    /// Everything in memory.
    pub(crate) const MEMORY: Self = ReadPlace { spill: None, observe: &|_| ControlFlow::Continue(()) };
}

/// Folder for bars and rows that do not stay in memory.
pub(crate) struct SpillPlace<'a> {
    folder: &'a Path,
    rows: SpillFile,
}

impl<'a> ReadPlace<'a> {
    /// Bars and rows in temporary files of `folder`.
    pub(crate) fn in_folder(folder: &'a Path, observe: ObserveBytes<'a>) -> Result<Self> {
        Ok(ReadPlace { spill: Some(SpillPlace { folder, rows: SpillFile::create(folder)? }), observe })
    }

    /// The file for rows.
    pub(crate) fn rows(&self) -> Option<SpillFile> {
        self.spill.as_ref().map(|spill| spill.rows.clone())
    }

    /// Takes bars of `timeframe` with `columns` further columns.
    pub(crate) fn sink(&self, timeframe: Timeframe, columns: usize) -> Result<BarSink> {
        Ok(match &self.spill {
            None => {
                let mut bars = Bars::with_capacity(timeframe, 0);
                bars.ensure_columns(columns);
                BarSink::Memory(bars)
            }
            Some(spill) => BarSink::File(SpoolWriter::unnamed(spill.folder, timeframe, columns)?),
        })
    }
}

/// Takes bars in order of time.
pub(crate) enum BarSink {
    Memory(Bars),
    File(SpoolWriter),
}

/// Bars in memory or in a temporary file.
#[derive(Debug)]
pub(crate) enum StoredBars {
    Memory(Bars),
    File(SpooledBars),
}

impl BarSink {
    pub(crate) fn push(&mut self, bar: Bar) -> Result<()> {
        match self {
            BarSink::Memory(bars) => bars.push(bar),
            BarSink::File(writer) => writer.push(bar)?,
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<StoredBars> {
        Ok(match self {
            BarSink::Memory(bars) => StoredBars::Memory(bars),
            BarSink::File(writer) => StoredBars::File(writer.finish()?),
        })
    }
}

impl StoredBars {
    fn source(&self) -> &dyn BarSource {
        match self {
            StoredBars::Memory(bars) => bars,
            StoredBars::File(bars) => bars,
        }
    }

    /// When the first bar opens.
    pub(crate) fn first_open_time(&self) -> Result<Option<i64>> {
        let mut time = Vec::new();
        self.read_open_times(0..self.len().min(1), &mut time)?;
        Ok(time.first().copied())
    }

    /// When the last bar opens.
    pub(crate) fn last_open_time(&self) -> Result<Option<i64>> {
        let mut time = Vec::new();
        self.read_open_times(self.len().saturating_sub(1)..self.len(), &mut time)?;
        Ok(time.first().copied())
    }
}

impl BarSource for StoredBars {
    fn timeframe(&self) -> Timeframe {
        self.source().timeframe()
    }

    fn len(&self) -> usize {
        self.source().len()
    }

    fn columns(&self) -> usize {
        self.source().columns()
    }

    fn read(&self, range: Range<usize>, out: &mut Bars) -> Result<()> {
        self.source().read(range, out)
    }

    fn read_open_times(&self, range: Range<usize>, out: &mut Vec<i64>) -> Result<()> {
        self.source().read_open_times(range, out)
    }
}

/// Gives every bar, one after the other, to `visit`.
pub(crate) fn for_each_bar(bars: &dyn BarSource, mut visit: impl FnMut(Bar) -> Result<()>) -> Result<()> {
    let mut piece = Bars::with_capacity(bars.timeframe(), PIECE_BARS.min(bars.len()));
    for range in pieces_of(0..bars.len()) {
        bars.read(range, &mut piece)?;
        (0..piece.len()).try_for_each(|index| visit(piece.bar(index)))?;
    }
    Ok(())
}

/// Bars one after the other.
#[derive(Clone)]
pub(crate) struct BarCursor<S> {
    bars: S,
    /// Bars that are read at once.
    piece_bars: usize,
    piece: Bars,
    /// Place of the next bar in the piece, and of the piece's end among all.
    next: usize,
    read: usize,
}

impl<S> BarCursor<S>
where
    S: Deref,
    S::Target: BarSource,
{
    pub(crate) fn new(bars: S) -> Self {
        BarCursor::in_pieces(bars, PIECE_BARS)
    }

    /// A cursor that reads `piece_bars` bars at once.
    pub(crate) fn in_pieces(bars: S, piece_bars: usize) -> Self {
        let piece = Bars::with_capacity(bars.timeframe(), 0);
        BarCursor { bars, piece_bars, piece, next: 0, read: 0 }
    }

    /// When the next bar opens.
    pub(crate) fn peek_open_time(&mut self) -> Result<Option<i64>> {
        if self.next == self.piece.len() {
            let range = self.read..self.bars.len().min(self.read + self.piece_bars);
            if range.is_empty() {
                return Ok(None);
            }
            self.read = range.end;
            self.bars.read(range, &mut self.piece)?;
            self.next = 0;
        }
        Ok(Some(self.piece.open_time[self.next]))
    }

    pub(crate) fn next(&mut self) -> Result<Option<Bar>> {
        if self.peek_open_time()?.is_none() {
            return Ok(None);
        }
        self.next += 1;
        Ok(Some(self.piece.bar(self.next - 1)))
    }
}

impl<S> fmt::Debug for BarCursor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarCursor").field("read", &self.read).field("next", &self.next).finish()
    }
}
