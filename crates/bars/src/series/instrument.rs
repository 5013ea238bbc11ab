use std::ops::Range;

use crate::bars::Bars;
use crate::clean::gap::GapPolicy;
use crate::error::Result;
use crate::series::spec::in_range;
use crate::time::timeframe::Timeframe;

/// One instrument to be aligned.
#[derive(Clone, Copy, Debug)]
pub struct Instrument<'a> {
    /// The name, such as `EURUSD`; none is given twice.
    pub name: &'a str,
    /// Its bars, of the same timeframe as those of the others.
    pub bars: &'a Bars,
    /// The size of a pip in units of its price.
    pub pip_size: f64,
}

/// The bars of one segment: a longest stretch of one instrument's bars that has no forbidden hole
/// in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentBars {
    /// Place of the instrument.
    pub(crate) instrument: usize,
    /// Places of the bars in it.
    pub(crate) bars: Range<usize>,
}

/// The pieces of all instruments, instrument by instrument and in order of time within each.
pub(crate) fn pieces(instruments: &[Instrument<'_>], holes: GapPolicy) -> Vec<SegmentBars> {
    let of = |(instrument, given): (usize, &Instrument<'_>)| {
        holes.segments(given.bars).into_iter().map(move |bars| SegmentBars { instrument, bars })
    };
    instruments.iter().enumerate().flat_map(of).collect()
}

/// Facts that must agree between instruments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InstrumentFacts<'a> {
    pub(crate) name: &'a str,
    pub(crate) timeframe: Timeframe,
    pub(crate) pip_size: f64,
}

impl<'a> Instrument<'a> {
    fn facts(&self) -> InstrumentFacts<'a> {
        InstrumentFacts { name: self.name, timeframe: self.bars.timeframe, pip_size: self.pip_size }
    }
}

/// The timeframe that the bars of all instruments have, once the instruments are known to go
/// together.
pub(crate) fn checked_base(instruments: &[Instrument<'_>]) -> Result<Timeframe> {
    base_of(&instruments.iter().map(Instrument::facts).collect::<Vec<_>>())
}

/// As [`checked_base`], wherever the bars are.
pub(crate) fn base_of(instruments: &[InstrumentFacts<'_>]) -> Result<Timeframe> {
    in_range("instruments", &"empty", "at least one", !instruments.is_empty())?;
    let first = instruments[0];
    for (place, &InstrumentFacts { name, timeframe: base, pip_size }) in instruments.iter().enumerate() {
        let is_new = instruments[..place].iter().all(|earlier| earlier.name != name);
        in_range("instruments", &format!("{name} twice"), "each instrument once", is_new)?;
        let first_base = first.timeframe;
        let bases = format!("{} of {first_base} bars and {name} of {base} bars", first.name);
        in_range(
            "instruments",
            &bases,
            "bars of one timeframe; give files of the same timeframe for every instrument, the shortest that all have",
            base == first_base,
        )?;
        let shown_size = format!("{pip_size} for {name}");
        in_range("pip_size", &shown_size, "a finite number above 0", pip_size > 0.0 && pip_size.is_finite())?;
    }
    Ok(first.timeframe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruments_that_do_not_go_together_are_named() {
        let bars = |timeframe| Bars::with_capacity(timeframe, 0);
        let (minutes, hours) = (bars(Timeframe::M1), bars(Timeframe::H1));
        let instrument = |name, bars, pip_size| Instrument { name, bars, pip_size };
        let eur = instrument("EURUSD", &minutes, 1e-4);
        let cases = [
            (vec![], "instruments is empty: expected at least one"),
            (vec![eur, eur], "instruments is EURUSD twice"),
            (vec![eur, instrument("GBPUSD", &hours, 1e-4)], "instruments is EURUSD of M1 bars and GBPUSD of H1 bars"),
            (vec![instrument("USDJPY", &minutes, -0.01)], "pip_size is -0.01 for USDJPY"),
            (vec![eur, instrument("USDJPY", &minutes, f64::INFINITY)], "pip_size is inf for USDJPY"),
        ];
        for (instruments, message) in cases {
            let error = checked_base(&instruments).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
        assert_eq!(checked_base(&[eur, instrument("GBPUSD", &minutes, 1e-4)]).unwrap(), Timeframe::M1);
    }
}
