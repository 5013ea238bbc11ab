//! Placements of all samples: the chains and the places of their bars in memory, and the
//! placement of each sample in the journal.

use std::ops::Range;

use super::chains::Placement;
use super::journal::Journal;
use super::overlap::WindowForm;
use crate::error::Result;

/// Consecutive bars in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalExtent {
    /// First byte in the journal.
    pub(super) offset: u64,
    pub(super) bars: usize,
}

/// The bars of a chain in one timeframe.
#[derive(Clone, Debug, Default)]
pub(super) struct ChainBars {
    pub(super) bars: usize,
    pub(super) extents: Vec<JournalExtent>,
    /// First bars of segments, counted from the chain's first: no window crosses from one segment
    /// to the next.
    pub(super) segments: Vec<usize>,
}

/// Samples that continue one another.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) follows: Option<u32>,
    /// Position of the first and of the last sample in the order of placement.
    pub(super) positions: Range<usize>,
    /// Bars that the last sample added.
    pub(super) new_bars: Vec<u32>,
    pub(super) timeframes: Vec<ChainBars>,
}

/// Samples placed so far, and the chains that they form.
#[derive(Debug)]
pub(super) struct PlacedSamples {
    forms: Vec<WindowForm>,
    pub(super) chains: Vec<Chain>,
    samples: usize,
    /// Records of the placements in the journal, in their order.
    records: Vec<PlacementRecord>,
    /// Chains of the last sample but one and of the last.
    last_chains: [Option<u32>; 2],
}

/// Placements of consecutive samples in the journal: the count of the samples, u32; then for each
/// its chain, the chain that it follows plus one or 0, and the new bars of each timeframe.
#[derive(Clone, Copy, Debug)]
struct PlacementRecord {
    /// First byte in the journal.
    offset: u64,
    samples: usize,
}

/// Bytes of a number of a placement.
const WORD_BYTES: usize = 4;

/// Placements as a record begins with them.
pub(super) fn encode(placements: &[Placement]) -> Vec<u8> {
    let mut words = vec![placements.len() as u32];
    for Placement { chain, follows, new_bars } in placements {
        words.extend([*chain, follows.map_or(0, |follows| follows + 1)]);
        words.extend(new_bars);
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Number of the samples of the record whose payload is at `offset`.
pub(super) fn samples_of(journal: &mut Journal, offset: u64) -> Result<usize> {
    let mut words = Vec::new();
    read_words(journal, offset, 1, &mut words)?;
    Ok(words[0] as usize)
}

/// Bytes of `samples` placements with their count.
pub(super) fn encoded_bytes(samples: usize, timeframes: usize) -> u64 {
    (WORD_BYTES * (1 + samples * words_of(timeframes))) as u64
}

/// Placements of the `samples` samples of the record whose payload is at `offset`.
pub(super) fn decode(journal: &mut Journal, offset: u64, samples: usize, timeframes: usize) -> Result<Vec<Placement>> {
    let mut words = Vec::new();
    read_words(journal, offset + WORD_BYTES as u64, samples * words_of(timeframes), &mut words)?;
    let placement =
        |words: &[u32]| Placement { chain: words[0], follows: words[1].checked_sub(1), new_bars: words[2..].to_vec() };
    Ok(words.chunks_exact(words_of(timeframes)).map(placement).collect())
}

/// Numbers of a placement.
fn words_of(timeframes: usize) -> usize {
    2 + timeframes
}

fn read_words(journal: &mut Journal, offset: u64, count: usize, words: &mut Vec<u32>) -> Result<()> {
    words.resize(count, 0);
    journal.read(offset, bytemuck::cast_slice_mut(words))?;
    words.iter_mut().for_each(|word| *word = u32::from_le(*word));
    Ok(())
}

impl PlacedSamples {
    /// An empty ledger.
    pub(super) fn new(forms: Vec<WindowForm>) -> Self {
        PlacedSamples { forms, chains: Vec::new(), samples: 0, records: Vec::new(), last_chains: [None; 2] }
    }

    /// Number of samples placed.
    pub(super) fn samples(&self) -> usize {
        self.samples
    }

    /// True unless the last two samples are of two chains.
    pub(super) fn is_steady(&self) -> bool {
        !matches!(self.last_chains, [Some(one), Some(other)] if one != other)
    }

    /// Notes that the journal has the next `samples` placements in the record whose payload is at
    /// `offset`.
    pub(super) fn enter_record(&mut self, offset: u64, samples: usize) {
        self.records.push(PlacementRecord { offset, samples });
    }

    /// Bars so far in a timeframe.
    pub(super) fn bars(&self, timeframe: usize) -> usize {
        self.chains.iter().map(|chain| chain.timeframes[timeframe].bars).sum()
    }

    /// Enters the next placement, whose new bars begin at `offsets` in the journal.
    pub(super) fn enter(&mut self, placement: &Placement, offsets: &[u64]) {
        let chain = placement.chain as usize;
        let begins = chain == self.chains.len();
        assert!(chain <= self.chains.len(), "chains are numbered in the order in which they begin");
        let position = self.samples();
        if begins {
            let timeframes = vec![ChainBars::default(); self.forms.len()];
            let (follows, new_bars) = (placement.follows, Vec::new());
            self.chains.push(Chain { follows, positions: position..position, new_bars, timeframes });
        }
        let entry = &mut self.chains[chain];
        entry.new_bars.clone_from(&placement.new_bars);
        entry.positions.end = position + 1;
        for (k, form) in self.forms.iter().enumerate() {
            entry.timeframes[k].append(placement.new_bars[k] as usize, form, offsets[k]);
        }
        self.samples += 1;
        self.last_chains = [self.last_chains[1], Some(placement.chain)];
    }

    /// The chains of each instrument in the order of their times. A chain belongs to the instrument
    /// of the one that it follows, if that one had ended when it began; any other is an instrument
    /// of its own.
    pub(super) fn instruments(&self) -> Vec<Vec<usize>> {
        let mut instruments: Vec<Vec<usize>> = Vec::new();
        let mut instrument_of: Vec<usize> = Vec::new();
        for (c, chain) in self.chains.iter().enumerate() {
            let joined = chain.follows.map(|follows| instrument_of[follows as usize]).filter(|&instrument| {
                let last = *instruments[instrument].last().expect("an instrument has a chain");
                self.chains[last].positions.end <= chain.positions.start
            });
            let instrument = joined.unwrap_or_else(|| {
                instruments.push(Vec::new());
                instruments.len() - 1
            });
            instruments[instrument].push(c);
            instrument_of.push(instrument);
        }
        instruments
    }
}

/// A sample, and the bars of its chain up to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedSample<'a> {
    pub(super) position: usize,
    pub(super) chain: usize,
    /// Bars that it adds, by timeframe.
    pub(super) new_bars: &'a [u32],
    /// Bars of its chain in each timeframe, those that it adds included.
    pub(super) bars: &'a [usize],
}

/// Passes over all samples in the order of placement.
#[derive(Debug)]
pub(super) struct PlacedCursor<'a> {
    placed: &'a PlacedSamples,
    /// Next record.
    record: usize,
    /// Placements of the record before it.
    words: Vec<u32>,
    /// First of the words that were not passed.
    next: usize,
    position: usize,
    /// Bars of each chain so far, `[chains, timeframes]`.
    bars: Vec<usize>,
}

impl<'a> PlacedCursor<'a> {
    pub(super) fn new(placed: &'a PlacedSamples) -> Self {
        let bars = vec![0; placed.chains.len() * placed.forms.len()];
        PlacedCursor { placed, record: 0, words: Vec::new(), next: 0, position: 0, bars }
    }

    /// The next sample; `None` after the last.
    pub(super) fn next(&mut self, journal: &mut Journal) -> Result<Option<PlacedSample<'_>>> {
        let timeframes = self.placed.forms.len();
        if self.next == self.words.len() {
            let Some(&PlacementRecord { offset, samples }) = self.placed.records.get(self.record) else {
                return Ok(None);
            };
            read_words(journal, offset + WORD_BYTES as u64, samples * words_of(timeframes), &mut self.words)?;
            (self.record, self.next) = (self.record + 1, 0);
        }
        let words = &self.words[self.next..self.next + words_of(timeframes)];
        let (chain, new_bars) = (words[0] as usize, &words[2..]);
        let bars = &mut self.bars[chain * timeframes..(chain + 1) * timeframes];
        bars.iter_mut().zip(new_bars).for_each(|(bars, &new)| *bars += new as usize);
        let position = self.position;
        (self.next, self.position) = (self.next + words_of(timeframes), position + 1);
        Ok(Some(PlacedSample { position, chain, new_bars, bars }))
    }
}

impl ChainBars {
    fn append(&mut self, new_bars: usize, form: &WindowForm, offset: u64) {
        // A window of one bar crosses no hole.
        if self.bars == 0 || (new_bars == form.steps && form.steps > 1) {
            self.segments.push(self.bars);
        }
        self.bars += new_bars;
        match self.extents.last_mut() {
            Some(last) if last.offset + (last.bars * form.row_bytes) as u64 == offset => last.bars += new_bars,
            _ if new_bars > 0 => self.extents.push(JournalExtent { offset, bars: new_bars }),
            _ => {}
        }
    }
}
