use std::path::Path;

use crate::atomic::write_atomically;
use crate::error::{Error, Result};
use crate::storage::{OutputFile, Storage};

/// Predictions of a model for some samples.
#[derive(Clone, Copy, Debug)]
pub struct Predictions<'a> {
    /// Number of each sample in its file, `[n]`, from 0.
    pub samples: &'a [i64],
    /// `[n, K]`, row-major.
    pub values: &'a [f32],
    /// Further predictions for each horizon, by name: `[n, K]` each.
    pub named: &'a [(String, Vec<f32>)],
    /// Number of horizons, K.
    pub horizons: usize,
    /// Time of each sample, `[n]`, ns since 1970 UTC, where known.
    pub sample_times: Option<&'a [i64]>,
    /// Instrument of each sample, where the data name instruments.
    pub instruments: Option<SampleInstruments<'a>>,
    /// Fold whose model predicted each sample, `[n]`, from 1, where there are several.
    pub folds: Option<&'a [i32]>,
}

/// The instrument of each of some samples.
#[derive(Clone, Copy, Debug)]
pub struct SampleInstruments<'a> {
    /// Names of the instruments, `[I]`.
    pub names: &'a [String],
    /// Each sample's, `[n]`, an index into `names`.
    pub name_indices: &'a [i32],
}

impl<'a> SampleInstruments<'a> {
    /// The name of the instrument of sample `n`; `None` if there is no such sample or no such
    /// instrument.
    pub fn name(&self, n: usize) -> Option<&'a str> {
        let instrument = usize::try_from(*self.name_indices.get(n)?).ok()?;
        self.names.get(instrument).map(String::as_str)
    }
}

/// Writes `/predictions` `[n, K]` f32, `/predictions_<name>` likewise for each that has a name,
/// `/sample` `[n]` int64 and, where known, `/fold` `[n]` int32, `/timestamps` `[n]` int64, and
/// `/instruments` `[I]` text with `/instrument` `[n]` int32. The file appears whole or not at all.
///
/// # Errors
/// [`Error::BadRequest`] if the lengths disagree or a sample's instrument has no name;
/// [`Error::NotWritable`], [`Error::Io`] and [`Error::Hdf5`] as they say.
pub fn write_predictions(path: impl AsRef<Path>, predictions: &Predictions<'_>) -> Result<()> {
    let path = path.as_ref();
    let samples = check(path, predictions)?;
    let Predictions { samples: numbers, values, named, horizons, sample_times, instruments, folds } = *predictions;
    write_atomically(path, |file| {
        let output = OutputFile { path, file, storage: Storage::Contiguous };
        output.write("/predictions", &[samples, horizons], values)?;
        for (name, values) in named {
            output.write(&format!("/predictions_{name}"), &[samples, horizons], values)?;
        }
        output.write("/sample", &[samples], numbers)?;
        if let Some(folds) = folds {
            output.write("/fold", &[samples], folds)?;
        }
        if let Some(times) = sample_times {
            output.write("/timestamps", &[samples], times)?;
        }
        if let Some(SampleInstruments { names, name_indices }) = instruments {
            output.write_texts("/instruments", names)?;
            output.write("/instrument", &[samples], name_indices)?;
        }
        Ok(())
    })
}

/// The number of samples, n.
fn check(path: &Path, predictions: &Predictions<'_>) -> Result<usize> {
    let Predictions { samples: numbers, values, named, horizons, sample_times, instruments, folds } = *predictions;
    let samples = values.len().checked_div(horizons).unwrap_or(0);
    let times = sample_times.map_or(samples, <[i64]>::len);
    let is_whole = |values: &[f32]| values.len() == samples * horizons;
    let is_numbered = numbers.len() == samples && folds.is_none_or(|folds| folds.len() == samples);
    if !is_whole(values) || !named.iter().all(|(_, values)| is_whole(values)) || times != samples || !is_numbered {
        return Err(Error::BadRequest {
            path: path.to_owned(),
            asked: format!("predictions of {horizons} horizons for {times} samples"),
            found: format!("there are {} values", values.len()),
            fix: "give K values, one number, one fold and one time for each sample, and K values under each name"
                .to_owned(),
        });
    }
    let named = |instruments: SampleInstruments<'_>| (0..samples).filter(|&n| instruments.name(n).is_some()).count();
    let instruments_found = instruments.map_or(samples, |instruments| instruments.name_indices.len());
    if instruments_found != samples || instruments.map_or(samples, named) != samples {
        return Err(Error::BadRequest {
            path: path.to_owned(),
            asked: format!("predictions of {samples} samples"),
            found: format!("{} of {instruments_found} instruments have a name", instruments.map_or(0, named)),
            fix: "give one instrument for each sample, an index into the names".to_owned(),
        });
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::read_texts;

    #[test]
    fn predictions_are_rows_of_horizons() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("predictions.h5");
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let names = ["EURUSD", "USDJPY", "€"].map(str::to_owned);
        let owned = |name_indices| Some(SampleInstruments { names: &names, name_indices });
        let named = [("q0.9".to_owned(), values.map(|value| value + 1.0).to_vec())];
        let sample_times = Some(&[7, 8][..]);
        let instruments = owned(&[2, 0][..]);
        let samples = &[4, 9][..];
        let folds = Some(&[1, 2][..]);
        let whole =
            Predictions { samples, values: &values, named: &named, horizons: 3, sample_times, instruments, folds };
        write_predictions(&path, &whole).unwrap();
        let file = hdf5::File::open(&path).unwrap();
        assert_eq!(file.dataset("predictions").unwrap().shape(), [2, 3]);
        assert_eq!(file.dataset("predictions").unwrap().read_raw::<f32>().unwrap(), values);
        assert_eq!(file.dataset("predictions_q0.9").unwrap().shape(), [2, 3]);
        assert_eq!(file.dataset("predictions_q0.9").unwrap().read_raw::<f32>().unwrap(), named[0].1);
        assert_eq!(file.dataset("sample").unwrap().read_raw::<i64>().unwrap(), [4, 9]);
        assert_eq!(file.dataset("fold").unwrap().read_raw::<i32>().unwrap(), [1, 2]);
        assert_eq!(file.dataset("timestamps").unwrap().read_raw::<i64>().unwrap(), [7, 8]);
        assert_eq!(file.dataset("instrument").unwrap().read_raw::<i32>().unwrap(), [2, 0]);
        assert_eq!(read_texts(&file.dataset("instruments").unwrap()).unwrap(), names);
        for (horizons, times, instruments) in [
            (4, None, None),
            (0, None, None),
            (3, Some(&[7][..]), None),
            (3, None, owned(&[0])),
            (3, None, owned(&[0, 1, 2])),
            (3, None, owned(&[0, 3])),
            (3, None, owned(&[0, -1])),
        ] {
            let wrong = Predictions {
                samples,
                values: &values,
                named: &[],
                horizons,
                sample_times: times,
                instruments,
                folds: None,
            };
            assert!(matches!(write_predictions(&path, &wrong), Err(Error::BadRequest { .. })), "{wrong:?}");
        }
        let wrong = Predictions { folds: Some(&[1]), ..whole };
        assert!(matches!(write_predictions(&path, &wrong), Err(Error::BadRequest { .. })), "{wrong:?}");
        let wrong = Predictions { samples: &[4], ..whole };
        assert!(matches!(write_predictions(&path, &wrong), Err(Error::BadRequest { .. })), "{wrong:?}");
        let wrong = Predictions { named: &[("q0.9".to_owned(), vec![1.0])], ..whole };
        assert!(matches!(write_predictions(&path, &wrong), Err(Error::BadRequest { .. })), "{wrong:?}");
    }

    #[test]
    fn what_is_not_known_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("predictions.h5");
        let (sample_times, instruments) = (None, None);
        let bare = Predictions {
            samples: &[0],
            values: &[1.0],
            named: &[],
            horizons: 1,
            sample_times,
            instruments,
            folds: None,
        };
        write_predictions(&path, &bare).unwrap();
        assert_eq!(hdf5::File::open(&path).unwrap().member_names().unwrap(), ["predictions", "sample"]);
    }
}
