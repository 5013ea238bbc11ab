//! Scan of the windows: every sample is placed in a chain, and the bars that it adds go to the
//! journal.

use megabatch_gpu_core::Buffer;

use super::chains::{Mismatch, Placement, SampleWindows, Tracker};
use super::journal::{Journal, Record};
use super::overlap::WindowForm;
use super::placed_samples::{PlacedSamples, decode, encode, encoded_bytes, samples_of};
use super::row_source::RowSource;
use super::windows_input::WindowsInput;
use super::work::ConversionContext;
use crate::error::{Error, LayoutFault, Result};

/// Kind of a record with the placements of some samples and the bars that they added.
const PLACEMENTS: u32 = 2;
/// Samples between two calls of the observer.
const BATCH_SAMPLES_MAX: usize = 4_096;
/// Most chains that are remembered for samples that alternate between instruments.
const OPEN_CHAINS_MAX: usize = 1_024;
/// Places of the file that are probed before all windows are read, and consecutive samples at each.
const PROBES: usize = 4;
const PROBE_SAMPLES: usize = 65;

/// Places all samples, those of `records` without reading them again.
///
/// # Errors
/// [`Error::Invalid`] where a window contradicts its overlap with another; [`Error::NothingSaved`]
/// as soon as the bars need as many bytes as the windows.
pub(super) fn scan(
    windows_input: &WindowsInput,
    journal: &mut Journal,
    records: &[Record],
    work: &mut ConversionContext<'_>,
) -> Result<PlacedSamples> {
    let mut placed = PlacedSamples::new(windows_input.forms.clone());
    for record in records {
        replay(&mut placed, windows_input, journal, record)?;
    }
    work.advance(sample_bytes(windows_input) * placed.samples() as u64)?;
    if placed.samples() == 0 {
        probe(windows_input, work)?;
    }
    let mut tracker = Tracker::new(windows_input.tracked(), open_max(windows_input, work));
    resume(&mut tracker, &placed, windows_input)?;
    let batch = (work.batch_bytes() as u64 / sample_bytes(windows_input).max(1)) as usize;
    let mut windows = WindowBatch::new(windows_input, batch.clamp(1, BATCH_SAMPLES_MAX), work)?;
    while placed.samples() < windows_input.samples() {
        let first = placed.samples();
        windows.read(windows_input, first)?;
        let placements = windows.place(windows_input, &mut tracker)?;
        let record = journal.append(PLACEMENTS, 0, first as u64, &windows.parts(windows_input, &placements))?;
        enter(&mut placed, &windows_input.forms, &placements, record.offset);
        require_saving(&placed, windows_input)?;
        work.advance(sample_bytes(windows_input) * placements.len() as u64)?;
    }
    journal.sync()?;
    Ok(placed)
}

/// Refuses a series that would be no smaller than its windows, counting bars, close times and
/// indices.
pub(super) fn require_saving(placed: &PlacedSamples, windows_input: &WindowsInput) -> Result<()> {
    let bars = |k: usize| placed.bars(k) as u64 * (windows_input.forms[k].row_bytes as u64 + 8);
    let bars_bytes: u64 = (0..windows_input.forms.len()).map(bars).sum();
    let series_bytes = bars_bytes + 8 * windows_input.forms.len() as u64 * windows_input.samples() as u64;
    let windows_bytes = windows_input.windows_bytes();
    if series_bytes < windows_bytes {
        return Ok(());
    }
    let detail = format!(
        "{} of {} samples were looked at and continue one another too little; convert to windows to change the storage alone",
        placed.samples(),
        windows_input.samples()
    );
    Err(Error::NothingSaved { path: windows_input.file.path().to_owned(), windows_bytes, series_bytes, detail })
}

fn sample_bytes(windows_input: &WindowsInput) -> u64 {
    windows_input.forms.iter().map(|form| form.bytes() as u64).sum()
}

fn open_max(windows_input: &WindowsInput, work: &ConversionContext<'_>) -> usize {
    (work.batch_bytes() as u64 / sample_bytes(windows_input).max(1)).clamp(1, OPEN_CHAINS_MAX as u64) as usize
}

/// The windows of consecutive positions in memory.
struct WindowBatch {
    first: usize,
    samples: usize,
    samples_max: usize,
    /// One a timeframe.
    buffers: Vec<Buffer<u8>>,
}

impl WindowBatch {
    fn new(windows_input: &WindowsInput, samples_max: usize, work: &ConversionContext<'_>) -> Result<Self> {
        let samples_max = samples_max.min(windows_input.samples());
        let buffers =
            windows_input.forms.iter().map(|form| work.buffer(form.bytes() * samples_max)).collect::<Result<_>>()?;
        Ok(WindowBatch { first: 0, samples: 0, samples_max, buffers })
    }

    fn read(&mut self, windows_input: &WindowsInput, first: usize) -> Result<()> {
        let positions = first..(first + self.samples_max).min(windows_input.samples());
        (self.first, self.samples) = (first, positions.len());
        for (k, buffer) in self.buffers.iter_mut().enumerate() {
            let out = &mut buffer.as_mut_slice()[..positions.len() * windows_input.forms[k].bytes()];
            windows_input.window_rows(k).read(positions.clone(), out)?;
        }
        Ok(())
    }

    fn sample(&self, windows_input: &WindowsInput, n: usize) -> SampleWindows<'_> {
        let windows = windows_input.forms.iter().zip(&self.buffers);
        let windows = windows.map(|(form, buffer)| &buffer.as_slice()[n * form.bytes()..(n + 1) * form.bytes()]);
        let position = self.first + n;
        SampleWindows {
            row: windows_input.row(position),
            time: windows_input.time(position),
            instrument: windows_input.instrument(position),
            windows: windows.collect(),
        }
    }

    fn place(&self, windows_input: &WindowsInput, tracker: &mut Tracker) -> Result<Vec<Placement>> {
        let place = |n| {
            let sample = self.sample(windows_input, n);
            tracker.place(&sample).map_err(|mismatch| contradicting(windows_input, sample.row, &mismatch))
        };
        (0..self.samples).map(place).collect()
    }

    /// The payload of the record: the placements, then the new bars of each timeframe, chain by
    /// chain, so that those of a chain are in one place.
    fn parts(&self, windows_input: &WindowsInput, placements: &[Placement]) -> Vec<Vec<u8>> {
        let mut parts = vec![encode(placements)];
        let order = by_chain(placements);
        for (k, (form, buffer)) in windows_input.forms.iter().zip(&self.buffers).enumerate() {
            let mut bars = Vec::new();
            for &n in &order {
                let window = &buffer.as_slice()[n * form.bytes()..(n + 1) * form.bytes()];
                bars.extend_from_slice(&window[window.len() - placements[n].new_bars[k] as usize * form.row_bytes..]);
            }
            parts.push(bars);
        }
        parts
    }
}

/// Places of placements, those of one chain after another.
fn by_chain(placements: &[Placement]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..placements.len()).collect();
    order.sort_by_key(|&n| placements[n].chain);
    order
}

fn replay(
    placed: &mut PlacedSamples,
    windows_input: &WindowsInput,
    journal: &mut Journal,
    record: &Record,
) -> Result<()> {
    let (samples, timeframes) = (samples_of(journal, record.offset)?, windows_input.forms.len());
    let fits = record.kind == PLACEMENTS
        && record.index == placed.samples() as u64
        && placed.samples() + samples <= windows_input.samples()
        && encoded_bytes(samples, timeframes) <= record.bytes;
    assert!(fits, "a record whose checksum holds was written for this place in this file");
    let placements = decode(journal, record.offset, samples, timeframes)?;
    enter(placed, &windows_input.forms, &placements, record.offset);
    Ok(())
}

/// Enters placements whose record has its payload at `payload`.
fn enter(placed: &mut PlacedSamples, forms: &[WindowForm], placements: &[Placement], payload: u64) {
    placed.enter_record(payload, placements.len());
    let mut next = payload + encoded_bytes(placements.len(), forms.len());
    let mut offsets = vec![0; placements.len() * forms.len()];
    let order = by_chain(placements);
    for (k, form) in forms.iter().enumerate() {
        for &n in &order {
            offsets[n * forms.len() + k] = next;
            next += (placements[n].new_bars[k] as usize * form.row_bytes) as u64;
        }
    }
    placements.iter().zip(offsets.chunks_exact(forms.len())).for_each(|(placement, offsets)| {
        placed.enter(placement, offsets);
    });
}

/// Gives the tracker the last sample of each chain that it would remember after placing all samples
/// itself.
fn resume(tracker: &mut Tracker, placed: &PlacedSamples, windows_input: &WindowsInput) -> Result<()> {
    let mut recent: Vec<usize> = (0..placed.chains.len()).collect();
    recent.sort_by_key(|&chain| placed.chains[chain].positions.end);
    let forgotten = recent.len().saturating_sub(tracker.open_max());
    for &chain in &recent[forgotten..] {
        let position = placed.chains[chain].positions.end - 1;
        let mut windows: Vec<Vec<u8>> = windows_input.forms.iter().map(|form| vec![0; form.bytes()]).collect();
        for (k, window) in windows.iter_mut().enumerate() {
            windows_input.window_rows(k).read(position..position + 1, window)?;
        }
        let sample = SampleWindows {
            row: windows_input.row(position),
            time: windows_input.time(position),
            instrument: windows_input.instrument(position),
            windows: windows.iter().map(Vec::as_slice).collect(),
        };
        tracker.remember(chain as u32, &placed.chains[chain].new_bars, &sample);
    }
    tracker.resume(placed.chains.len(), placed.is_steady());
    Ok(())
}

/// Probes some places of the file, so that a file without any overlap is refused early. It
/// remembers as many chains as the scan, so that it sees each overlap that the scan would.
fn probe(windows_input: &WindowsInput, work: &ConversionContext<'_>) -> Result<()> {
    let samples = windows_input.samples();
    let (probed, open_max) = (PROBE_SAMPLES.min(samples), open_max(windows_input, work));
    let mut windows = WindowBatch::new(windows_input, open_max.min(probed), work)?;
    let mut saving = false;
    for start in (0..PROBES).map(|probe| (samples / PROBES * probe).min(samples - probed)) {
        let mut tracker = Tracker::new(windows_input.tracked(), open_max);
        let mut seen = PlacedSamples::new(windows_input.forms.clone());
        while seen.samples() < probed {
            windows.read(windows_input, start + seen.samples())?;
            let placements = windows.place(windows_input, &mut tracker)?;
            placements.iter().for_each(|placement| seen.enter(placement, &vec![0; windows_input.forms.len()]));
        }
        let all = |k: usize| seen.bars(k) == windows_input.forms[k].steps * seen.samples();
        saving |= !(0..windows_input.forms.len()).all(all);
    }
    if saving {
        return Ok(());
    }
    let windows_bytes = windows_input.windows_bytes();
    let index_bytes: u64 =
        windows_input.forms.iter().map(|form| 8 * (form.steps as u64 + 1)).sum::<u64>() * samples as u64;
    Err(Error::NothingSaved {
        path: windows_input.file.path().to_owned(),
        windows_bytes,
        series_bytes: windows_bytes + index_bytes,
        detail: format!(
            "no window shares a row with another among {probed} samples in a row at {PROBES} places; windows that are scaled one by one, \
             or samples in random order without /timestamps, look like that"
        ),
    })
}

fn contradicting(windows_input: &WindowsInput, row: usize, mismatch: &Mismatch) -> Error {
    let Mismatch { timeframe, step, earlier_row, earlier_step } = *mismatch;
    let fault = LayoutFault {
        object: windows_input.object(timeframe).to_owned(),
        index: Some(row),
        expected: format!(
            "at step {step} the row that sample {earlier_row} has at step {earlier_step}, as most rows of the two windows agree so"
        ),
        found: "another row".to_owned(),
        fix: "a series cannot hold both; write the windows again from closed bars that do not change any more"
            .to_owned(),
    };
    Error::invalid(windows_input.file.path(), fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples that take turns between chains took a piece of the journal each.
    #[test]
    fn a_chain_has_one_piece_in_a_record_and_timeframe() {
        let forms = [WindowForm { steps: 3, row_bytes: 4 }, WindowForm { steps: 2, row_bytes: 8 }];
        let mut placed = PlacedSamples::new(forms.to_vec());
        for payload in [1_000, 9_000] {
            let first = placed.samples();
            let placement = |n: usize| Placement {
                chain: (n % 3) as u32,
                follows: None,
                new_bars: if first + n < 3 { vec![3, 2] } else { vec![1, (n / 3 % 2) as u32] },
            };
            enter(&mut placed, &forms, &(0..30).map(placement).collect::<Vec<_>>(), payload);
        }
        for (c, chain) in placed.chains.iter().enumerate() {
            let [first_extents, second_extents] = [0, 1].map(|k| &chain.timeframes[k].extents[..]);
            assert_eq!((first_extents.len(), second_extents.len()), (2, 2), "{chain:?}");
            // Each chain has twelve bars of the first timeframe in the first record.
            assert_eq!(first_extents[0].offset, 1_000 + encoded_bytes(30, 2) + (c * 12 * 4) as u64);
            assert_eq!((first_extents[0].bars, first_extents[1].bars), (12, 10));
        }
    }
}
