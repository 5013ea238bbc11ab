#![forbid(unsafe_code)]

use std::path::Path;

use crate::atomic::write_atomically;
use crate::error::{Error, Result};
use crate::storage::{OutputFile, Storage};

/// What a model predicts for a run of samples.
#[derive(Clone, Copy, Debug)]
pub struct Predictions<'a> {
    /// `[n, K]`, row-major.
    pub values: &'a [f32],
    /// Number of horizons, K.
    pub horizons: usize,
    /// Time of each sample, `[n]`, ns since 1970 UTC, where known.
    pub sample_times: Option<&'a [i64]>,
}

/// Writes `/predictions` `[n, K]` f32 and, where known, `/timestamps` `[n]` int64. The file appears whole or not at all.
///
/// # Errors
/// [`Error::BadRequest`] if the lengths disagree; [`Error::NotWritable`], [`Error::Io`] and [`Error::Hdf5`] as they say.
pub fn write_predictions(path: impl AsRef<Path>, predictions: &Predictions<'_>) -> Result<()> {
    let path = path.as_ref();
    let Predictions { values, horizons, sample_times } = *predictions;
    let samples = values.len().checked_div(horizons).unwrap_or(0);
    let times = sample_times.map_or(samples, <[i64]>::len);
    if samples * horizons != values.len() || times != samples {
        return Err(Error::BadRequest {
            path: path.to_owned(),
            asked: format!("predictions of {horizons} horizons for {times} samples"),
            found: format!("there are {} values", values.len()),
            fix: "give K values and one time for each sample".to_owned(),
        });
    }
    write_atomically(path, |file| {
        let output = OutputFile { path, file, storage: Storage::Contiguous };
        output.write("/predictions", &[samples, horizons], values)?;
        sample_times.map_or(Ok(()), |times| output.write("/timestamps", &[samples], times).map(drop))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_are_rows_of_horizons() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("predictions.h5");
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        write_predictions(&path, &Predictions { values: &values, horizons: 3, sample_times: Some(&[7, 8]) }).unwrap();
        let file = hdf5::File::open(&path).unwrap();
        assert_eq!(file.dataset("predictions").unwrap().shape(), [2, 3]);
        assert_eq!(file.dataset("predictions").unwrap().read_raw::<f32>().unwrap(), values);
        assert_eq!(file.dataset("timestamps").unwrap().read_raw::<i64>().unwrap(), [7, 8]);
        for (horizons, times) in [(4, None), (0, None), (3, Some(&[7][..]))] {
            let wrong = Predictions { values: &values, horizons, sample_times: times };
            assert!(matches!(write_predictions(&path, &wrong), Err(Error::BadRequest { .. })), "{horizons} {times:?}");
        }
    }
}
