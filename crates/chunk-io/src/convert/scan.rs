#![forbid(unsafe_code)]

//! The way through the windows: every sample is placed, and the bars that it brings go to the
//! spool.

use megabatch_gpu_core::Buffer;

use super::chains::{Mismatch, Placement, Sample, Tracker};
use super::journal::{Journal, Record};
use super::ledger::Ledger;
use super::row_source::RowSource;
use super::windows_input::WindowsInput;
use super::work::Work;
use crate::error::{Error, Fault, Result};

/// Kind of a record that holds the placements of some samples and the bars that they brought.
const PLACEMENTS: u32 = 2;
/// Samples between two looks at whether the work goes on.
const BATCH_SAMPLES_MAX: usize = 4_096;
/// Chains that are remembered, should samples take turns between instruments.
const OPEN_CHAINS_MAX: usize = 1_024;
/// Before all windows are read, some are looked at: so many places, and samples in a row at each.
const PROBES: usize = 4;
const PROBE_SAMPLES: usize = 65;

/// Places all samples, those of `records` without reading them again.
///
/// # Errors
/// [`Error::Invalid`] where a window contradicts its overlap with another; [`Error::NothingSaved`]
/// as soon as the bars take as much as the windows.
pub(super) fn scan(
    given: &WindowsInput,
    spool: &mut Journal,
    records: &[Record],
    work: &mut Work<'_>,
) -> Result<Ledger> {
    let mut ledger = Ledger::new(given.forms.clone(), given.samples());
    for record in records {
        replay(&mut ledger, given, spool, record)?;
    }
    work.advance(sample_bytes(given) * ledger.samples() as u64)?;
    if ledger.samples() == 0 {
        probe(given, work)?;
    }
    let mut tracker = Tracker::new(given.tracked(), open_max(given, work));
    resume(&mut tracker, &ledger, given)?;
    let batch = (work.batch_bytes() as u64 / sample_bytes(given).max(1)) as usize;
    let mut windows = Windows::new(given, batch.clamp(1, BATCH_SAMPLES_MAX), work)?;
    while ledger.samples() < given.samples() {
        let first = ledger.samples();
        windows.read(given, first)?;
        let placements = windows.place(given, &mut tracker)?;
        let record = spool.append(PLACEMENTS, 0, first as u64, &windows.parts(given, &placements))?;
        enter(&mut ledger, given, &placements, record.offset);
        require_saving(&ledger, given)?;
        work.advance(sample_bytes(given) * placements.len() as u64)?;
    }
    spool.sync()?;
    Ok(ledger)
}

/// Bytes of a bar with its close time, and of an index: what a series takes for the windows.
pub(super) fn require_saving(ledger: &Ledger, given: &WindowsInput) -> Result<()> {
    let bars = |k: usize| ledger.bars(k) as u64 * (given.forms[k].row_bytes as u64 + 8);
    let bars_bytes: u64 = (0..given.forms.len()).map(bars).sum();
    let series_bytes = bars_bytes + 8 * given.forms.len() as u64 * given.samples() as u64;
    let windows_bytes = given.windows_bytes();
    if series_bytes < windows_bytes {
        return Ok(());
    }
    let detail = format!(
        "{} of {} samples were looked at and continue one another too little; convert to windows to change the storage alone",
        ledger.samples(),
        given.samples()
    );
    Err(Error::NothingSaved { path: given.file.path().to_owned(), windows_bytes, series_bytes, detail })
}

fn sample_bytes(given: &WindowsInput) -> u64 {
    given.forms.iter().map(|form| form.bytes() as u64).sum()
}

fn open_max(given: &WindowsInput, work: &Work<'_>) -> usize {
    (work.batch_bytes() as u64 / sample_bytes(given).max(1)).clamp(1, OPEN_CHAINS_MAX as u64) as usize
}

/// The windows of consecutive positions in memory.
struct Windows {
    first: usize,
    samples: usize,
    samples_max: usize,
    /// One a timeframe.
    buffers: Vec<Buffer<u8>>,
}

impl Windows {
    fn new(given: &WindowsInput, samples_max: usize, work: &Work<'_>) -> Result<Self> {
        let samples_max = samples_max.min(given.samples());
        let buffers = given.forms.iter().map(|form| work.buffer(form.bytes() * samples_max)).collect::<Result<_>>()?;
        Ok(Windows { first: 0, samples: 0, samples_max, buffers })
    }

    fn read(&mut self, given: &WindowsInput, first: usize) -> Result<()> {
        let positions = first..(first + self.samples_max).min(given.samples());
        (self.first, self.samples) = (first, positions.len());
        for (k, buffer) in self.buffers.iter_mut().enumerate() {
            let out = &mut buffer.as_mut_slice()[..positions.len() * given.forms[k].bytes()];
            given.feed(k).read(positions.clone(), out)?;
        }
        Ok(())
    }

    fn sample(&self, given: &WindowsInput, n: usize) -> Sample<'_> {
        let windows = given.forms.iter().zip(&self.buffers);
        let windows = windows.map(|(form, buffer)| &buffer.as_slice()[n * form.bytes()..(n + 1) * form.bytes()]);
        let position = self.first + n;
        Sample {
            row: given.row(position),
            time: given.time(position),
            instrument: given.instrument(position),
            windows: windows.collect(),
        }
    }

    fn place(&self, given: &WindowsInput, tracker: &mut Tracker) -> Result<Vec<Placement>> {
        let place = |n| {
            let sample = self.sample(given, n);
            tracker.place(&sample).map_err(|mismatch| contradicting(given, sample.row, &mismatch))
        };
        (0..self.samples).map(place).collect()
    }

    /// The payload of the record: its form is that of `decode`, and the new bars of each timeframe
    /// follow.
    fn parts(&self, given: &WindowsInput, placements: &[Placement]) -> Vec<Vec<u8>> {
        let mut parts = vec![encode(placements)];
        for (k, (form, buffer)) in given.forms.iter().zip(&self.buffers).enumerate() {
            let mut bars = Vec::new();
            for (placement, window) in placements.iter().zip(buffer.as_slice().chunks_exact(form.bytes())) {
                bars.extend_from_slice(&window[window.len() - placement.new_bars[k] as usize * form.row_bytes..]);
            }
            parts.push(bars);
        }
        parts
    }
}

/// Count of the samples, u32; then for each its chain, the chain that it follows plus one or 0, and
/// the new bars of each timeframe.
fn encode(placements: &[Placement]) -> Vec<u8> {
    let mut words = vec![placements.len() as u32];
    for Placement { chain, follows, new_bars } in placements {
        words.extend([*chain, follows.map_or(0, |follows| follows + 1)]);
        words.extend(new_bars);
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn replay(ledger: &mut Ledger, given: &WindowsInput, spool: &mut Journal, record: &Record) -> Result<()> {
    let words = |spool: &mut Journal, offset: u64, count: usize| -> Result<Vec<u32>> {
        let mut bytes = vec![0; count * 4];
        spool.read(offset, &mut bytes)?;
        Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect())
    };
    let count = words(spool, record.offset, 1)?[0] as usize;
    let width = 2 + given.forms.len();
    let fits = record.kind == PLACEMENTS
        && record.index == ledger.samples() as u64
        && ledger.samples() + count <= given.samples()
        && 4 + 4 * (count * width) as u64 <= record.bytes;
    assert!(fits, "a record whose checksum holds was written for this place in this file");
    let placement =
        |words: &[u32]| Placement { chain: words[0], follows: words[1].checked_sub(1), new_bars: words[2..].to_vec() };
    let placements: Vec<Placement> =
        words(spool, record.offset + 4, count * width)?.chunks_exact(width).map(placement).collect();
    enter(ledger, given, &placements, record.offset);
    Ok(())
}

/// Enters placements whose record has its payload at `payload`.
fn enter(ledger: &mut Ledger, given: &WindowsInput, placements: &[Placement], payload: u64) {
    let mut next = payload + encode(placements).len() as u64;
    let mut offsets = Vec::new();
    for (k, form) in given.forms.iter().enumerate() {
        offsets.push(next);
        let bars: u64 = placements.iter().map(|placement| u64::from(placement.new_bars[k])).sum();
        next += bars * form.row_bytes as u64;
    }
    for placement in placements {
        ledger.enter(placement, &offsets);
        for ((offset, form), &bars) in offsets.iter_mut().zip(&given.forms).zip(&placement.new_bars) {
            *offset += (bars as usize * form.row_bytes) as u64;
        }
    }
}

/// Shows the tracker the last sample of each chain that it would remember, had it placed them all
/// itself.
fn resume(tracker: &mut Tracker, ledger: &Ledger, given: &WindowsInput) -> Result<()> {
    let mut recent: Vec<usize> = (0..ledger.chains.len()).collect();
    recent.sort_by_key(|&chain| ledger.chains[chain].positions.end);
    let forgotten = recent.len().saturating_sub(tracker.open_max());
    for &chain in &recent[forgotten..] {
        let position = ledger.chains[chain].positions.end - 1;
        let mut windows: Vec<Vec<u8>> = given.forms.iter().map(|form| vec![0; form.bytes()]).collect();
        for (k, window) in windows.iter_mut().enumerate() {
            given.feed(k).read(position..position + 1, window)?;
        }
        let sample = Sample {
            row: given.row(position),
            time: given.time(position),
            instrument: given.instrument(position),
            windows: windows.iter().map(Vec::as_slice).collect(),
        };
        tracker.remember(chain as u32, &ledger.chains[chain].new_bars, &sample);
    }
    let steady = !matches!(ledger.chain_of[..], [.., a, b] if a != b);
    tracker.resume(ledger.chains.len(), steady);
    Ok(())
}

/// Looks at some places of the file, so that one without any overlap is refused before it is read
/// whole.
fn probe(given: &WindowsInput, work: &Work<'_>) -> Result<()> {
    let samples = given.samples();
    let fitting = (work.batch_bytes() as u64 / sample_bytes(given).max(1)) as usize;
    let mut windows = Windows::new(given, PROBE_SAMPLES.min(fitting.max(2)), work)?;
    let mut seen = Ledger::new(given.forms.clone(), 0);
    let mut saving = false;
    let last = samples - windows.samples_max;
    for first in (0..PROBES).map(|probe| (samples / PROBES * probe).min(last)) {
        windows.read(given, first)?;
        let placements = windows.place(given, &mut Tracker::new(given.tracked(), windows.samples_max))?;
        seen = Ledger::new(given.forms.clone(), placements.len());
        placements.iter().for_each(|placement| seen.enter(placement, &vec![0; given.forms.len()]));
        let all = |k: usize| seen.bars(k) == given.forms[k].steps * placements.len();
        saving |= !(0..given.forms.len()).all(all);
    }
    if saving {
        return Ok(());
    }
    let windows_bytes = given.windows_bytes();
    let index_bytes: u64 = given.forms.iter().map(|form| 8 * (form.steps as u64 + 1)).sum::<u64>() * samples as u64;
    Err(Error::NothingSaved {
        path: given.file.path().to_owned(),
        windows_bytes,
        series_bytes: windows_bytes + index_bytes,
        detail: format!(
            "no window shares a row with another among {} samples in a row at {PROBES} places; windows that are scaled one by one, or \
             samples in random order without /timestamps, look like that",
            seen.samples()
        ),
    })
}

fn contradicting(given: &WindowsInput, row: usize, mismatch: &Mismatch) -> Error {
    let Mismatch { timeframe, step, earlier_row, earlier_step } = *mismatch;
    let fault = Fault {
        object: given.object(timeframe).to_owned(),
        index: Some(row),
        expected: format!(
            "at step {step} the row that sample {earlier_row} has at step {earlier_step}, as most rows of the two windows agree so"
        ),
        found: "another row".to_owned(),
        fix: "a series cannot hold both; write the windows again from closed bars that do not change any more"
            .to_owned(),
    };
    Error::invalid(given.file.path(), fault)
}
