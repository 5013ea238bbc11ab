use crate::error::{Error, Result};
use crate::series::feature::Feature;
use crate::series::scale::Scaling;
use crate::series::spec::SeriesSpec;
use crate::time::timeframe::Timeframe;

/// Scalers of the features of several instruments and timeframes, fitted or read from a file.
///
/// An instrument's scalers are fitted on its bars that have closed by its last base bar that closes
/// before `fit_end_time`, segments too short for a sample included. Later bars change none of them.
/// New data is scaled with the scalers of the training data.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalers {
    /// Kind of scaling.
    pub kind: Scaling,
    /// They were fitted on bars that closed before this time, in nanoseconds since 1970 UTC.
    pub fit_end_time: i64,
    /// The names of the instruments I, in the order of the rows.
    pub instruments: Vec<String>,
    /// The features F, in the order of the columns.
    pub features: Vec<Feature>,
    /// One entry a timeframe.
    pub timeframes: Vec<TimeframeScaler>,
}

/// Scaler of the features of one timeframe: scaled = (raw - centre) / scale.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeframeScaler {
    /// The timeframe.
    pub timeframe: Timeframe,
    /// Subtracted centre: `[I, F]`.
    pub center: Vec<f64>,
    /// Divisor: `[I, F]`, above 0.
    pub scale: Vec<f64>,
}

impl Scalers {
    /// Scalers of the given instruments and timeframes, in their order.
    pub(crate) fn chosen(&self, names: &[&str], spec: &SeriesSpec) -> Result<Self> {
        self.check()?;
        if self.features != spec.features {
            return Err(mismatch(listed(&self.features, Feature::name), listed(&spec.features, Feature::name)));
        }
        let rows = names.iter().map(|name| self.row_of(name)).collect::<Result<Vec<usize>>>()?;
        let chosen = |timeframe: Timeframe| {
            let all = self.timeframes.iter().find(|scaler| scaler.timeframe == timeframe).ok_or_else(|| {
                mismatch(listed(&self.timeframes, |scaler| scaler.timeframe.name()), timeframe.name().to_owned())
            })?;
            let pick = |values: &[f64]| rows.iter().flat_map(|&row| self.row(values, row).to_vec()).collect();
            Ok(TimeframeScaler { timeframe, center: pick(&all.center), scale: pick(&all.scale) })
        };
        let timeframes =
            spec.checked_windows()?.iter().map(|window| chosen(window.timeframe)).collect::<Result<_>>()?;
        let instruments = names.iter().map(|&name| name.to_owned()).collect();
        Ok(Scalers { instruments, timeframes, features: self.features.clone(), ..*self })
    }

    /// Makes sure that there is a usable number for every instrument and feature.
    fn check(&self) -> Result<()> {
        let count = self.instruments.len() * self.features.len();
        for TimeframeScaler { timeframe, center, scale } in &self.timeframes {
            if [center.len(), scale.len()] != [count; 2] {
                let found = format!("{} centres and {} scales for {timeframe}", center.len(), scale.len());
                return Err(mismatch(found, format!("{count} of each, a row an instrument and a column a feature")));
            }
            if let Some(bad) = center.iter().find(|center| !center.is_finite()) {
                return Err(mismatch(format!("the centre {bad} for {timeframe}"), "finite numbers".to_owned()));
            }
            if let Some(bad) = scale.iter().find(|&&scale| !(scale > 0.0 && scale.is_finite())) {
                return Err(mismatch(format!("the scale {bad} for {timeframe}"), "finite numbers above 0".to_owned()));
            }
        }
        Ok(())
    }

    fn row_of(&self, name: &str) -> Result<usize> {
        let place = self.instruments.iter().position(|instrument| instrument == name);
        place.ok_or_else(|| mismatch(self.instruments.join(", "), name.to_owned()))
    }

    fn row<'a>(&self, values: &'a [f64], row: usize) -> &'a [f64] {
        let width = self.features.len();
        &values[row * width..(row + 1) * width]
    }
}

fn listed<T>(items: &[T], name: impl Fn(&T) -> &str) -> String {
    items.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn mismatch(found: String, expected: String) -> Error {
    Error::Scalers { found, expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::spec::Window;

    fn scalers() -> Scalers {
        let timeframe = |timeframe, first: f64| TimeframeScaler {
            timeframe,
            center: vec![first, first + 1.0, first + 2.0, first + 3.0],
            scale: vec![1.0, 2.0, 3.0, 4.0],
        };
        Scalers {
            kind: Scaling::Standard,
            fit_end_time: 7,
            instruments: vec!["EURUSD".to_owned(), "USDJPY".to_owned()],
            features: vec![Feature::Body, Feature::Range],
            timeframes: vec![timeframe(Timeframe::H1, 10.0), timeframe(Timeframe::M5, 20.0)],
        }
    }

    fn choose(scalers: &Scalers, names: &[&str], timeframes: &[Timeframe]) -> Result<Scalers> {
        let windows = timeframes.iter().map(|&timeframe| Window { timeframe, seq_len: 1 }).collect();
        let features = vec![Feature::Body, Feature::Range];
        scalers.chosen(names, &SeriesSpec { windows, features, ..SeriesSpec::default() })
    }

    #[test]
    fn instruments_and_timeframes_are_chosen_by_name() {
        let chosen = choose(&scalers(), &["USDJPY", "EURUSD"], &[Timeframe::H1, Timeframe::M5]).unwrap();
        assert_eq!(chosen.instruments, ["USDJPY", "EURUSD"]);
        assert_eq!((chosen.kind, chosen.fit_end_time), (Scaling::Standard, 7));
        let expected = [(Timeframe::M5, vec![22.0, 23.0, 20.0, 21.0]), (Timeframe::H1, vec![12.0, 13.0, 10.0, 11.0])];
        for (found, (timeframe, center)) in chosen.timeframes.iter().zip(expected) {
            assert_eq!((found.timeframe, &found.center, &found.scale), (timeframe, &center, &vec![3.0, 4.0, 1.0, 2.0]));
        }
        let one = choose(&scalers(), &["USDJPY"], &[Timeframe::H1]).unwrap();
        assert_eq!((one.timeframes.len(), &one.timeframes[0].center), (1, &vec![12.0, 13.0]));
    }

    #[test]
    fn scalers_of_something_else_are_refused() {
        type Change = fn(&mut Scalers);
        let cases: [(Change, &str); 7] = [
            (|_| (), "hold EURUSD, USDJPY, expected GBPUSD"),
            (|scalers| scalers.features.swap(0, 1), "hold range, body, expected body, range"),
            (|scalers| scalers.timeframes.truncate(1), "hold H1, expected M5"),
            (
                |scalers| scalers.timeframes[1].center.truncate(3),
                "hold 3 centres and 4 scales for M5, expected 4 of each",
            ),
            (
                |scalers| scalers.timeframes[0].scale[2] = 0.0,
                "hold the scale 0 for H1, expected finite numbers above 0",
            ),
            (|scalers| scalers.timeframes[0].scale[2] = f64::NAN, "hold the scale NaN for H1"),
            (|scalers| scalers.timeframes[0].center[2] = f64::INFINITY, "hold the centre inf for H1"),
        ];
        for (place, (change, message)) in cases.into_iter().enumerate() {
            let mut scalers = scalers();
            change(&mut scalers);
            let name = if place == 0 { "GBPUSD" } else { "EURUSD" };
            let error = choose(&scalers, &[name], &[Timeframe::M5]).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
