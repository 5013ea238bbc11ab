#![forbid(unsafe_code)]

//! Placements of all samples: the bars of each chain, their places in the journal, and every
//! sample's last bar.

use std::ops::Range;

use super::chains::Placement;
use super::overlap::WindowForm;

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
    /// Chain of each sample, by position.
    pub(super) chain_of: Vec<u32>,
    /// In each timeframe the last bar of each sample's window, by position, counted from its
    /// chain's first bar.
    pub(super) ends: Vec<Vec<i64>>,
}

impl PlacedSamples {
    /// An empty ledger with room for `samples`.
    pub(super) fn new(forms: Vec<WindowForm>, samples: usize) -> Self {
        let ends = forms.iter().map(|_| Vec::with_capacity(samples)).collect();
        PlacedSamples { forms, chains: Vec::new(), chain_of: Vec::with_capacity(samples), ends }
    }

    /// Number of samples placed.
    pub(super) fn samples(&self) -> usize {
        self.chain_of.len()
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
            self.ends[k].push(entry.timeframes[k].bars as i64 - 1);
        }
        self.chain_of.push(placement.chain);
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
