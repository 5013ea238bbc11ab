use crate::error::Result;
use crate::series::spec::in_range;
use crate::time::timeframe::Timeframe;

/// One instrument, without its bars.
#[derive(Clone, Copy, Debug)]
pub struct Instrument<'a> {
    /// The name, such as `EURUSD`; none is given twice.
    pub name: &'a str,
    /// The timeframe of its bars, the same as those of the others.
    pub base: Timeframe,
    /// The size of a pip in units of its price.
    pub pip_size: f64,
}

/// The timeframe that the bars of all instruments have, once the instruments are known to go
/// together.
pub(crate) fn checked_base(instruments: &[Instrument<'_>]) -> Result<Timeframe> {
    in_range("instruments", &"empty", "at least one", !instruments.is_empty())?;
    let first = instruments[0];
    for (place, &Instrument { name, base, pip_size }) in instruments.iter().enumerate() {
        let is_new = instruments[..place].iter().all(|earlier| earlier.name != name);
        in_range("instruments", &format!("{name} twice"), "each instrument once", is_new)?;
        let bases = format!("{} of {} bars and {name} of {base} bars", first.name, first.base);
        in_range(
            "instruments",
            &bases,
            "bars of one timeframe; give files of the same timeframe for every instrument, the shortest that all have",
            base == first.base,
        )?;
        let shown_size = format!("{pip_size} for {name}");
        in_range("pip_size", &shown_size, "a finite number above 0", pip_size > 0.0 && pip_size.is_finite())?;
    }
    Ok(first.base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruments_that_do_not_go_together_are_named() {
        let instrument = |name, base, pip_size| Instrument { name, base, pip_size };
        let eur = instrument("EURUSD", Timeframe::M1, 1e-4);
        let cases = [
            (vec![], "instruments is empty: expected at least one"),
            (vec![eur, eur], "instruments is EURUSD twice"),
            (
                vec![eur, instrument("GBPUSD", Timeframe::H1, 1e-4)],
                "instruments is EURUSD of M1 bars and GBPUSD of H1 bars",
            ),
            (vec![instrument("USDJPY", Timeframe::M1, -0.01)], "pip_size is -0.01 for USDJPY"),
            (vec![eur, instrument("USDJPY", Timeframe::M1, f64::INFINITY)], "pip_size is inf for USDJPY"),
        ];
        for (instruments, message) in cases {
            let error = checked_base(&instruments).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
        assert_eq!(checked_base(&[eur, instrument("GBPUSD", Timeframe::M1, 1e-4)]).unwrap(), Timeframe::M1);
    }
}
