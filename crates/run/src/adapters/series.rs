//! Aligned bars as the contents of a series file.

use std::collections::BTreeMap;
use std::path::Path;

use megabatch_bars::{Scalers, SeriesHeader, SeriesSpec, Timeframe, TimeframeHeader, TimeframeScaler};
use megabatch_chunk_io::{AttributeValue, Scaler, SeriesDescription, SeriesFile, TimeframeDescription};

use crate::error::{Error, Result};

/// Description of the file beside its numbers.
pub(crate) struct Origin<'a> {
    pub(crate) spec: &'a SeriesSpec,
    /// One size an instrument.
    pub(crate) pip_sizes: &'a [f64],
    /// Provenance, as JSON.
    pub(crate) source: String,
}

/// The scalers of the file at `path`, in the order of its instruments.
///
/// # Errors
/// A data error where a timeframe has none.
pub(crate) fn scalers_of(
    path: &Path,
    file: &SeriesFile,
    instruments: Vec<String>,
    spec: &SeriesSpec,
) -> Result<Scalers> {
    let mut timeframes = Vec::new();
    let mut fit_end_time = 0;
    for timeframe in file.timeframes() {
        let name = timeframe.name();
        let scaler = timeframe
            .scaler()
            .ok_or_else(|| Error::data(format!("{}: no /scaler/{name}: ingest its bars anew", path.display())))?;
        fit_end_time = scaler.fit_end_time;
        let (center, scale) = (scaler.center.clone(), scaler.scale.clone());
        timeframes.push(TimeframeScaler { timeframe: name.parse()?, center, scale });
    }
    Ok(Scalers { kind: spec.scaling, fit_end_time, instruments, features: spec.features.clone(), timeframes })
}

/// Attributes of a series file, whose arrays are written piece by piece.
pub(crate) fn series_description(header: &SeriesHeader, origin: Origin<'_>) -> SeriesDescription {
    let scalers = &header.scalers;
    let several = scalers.instruments.len() > 1;
    let horizons = origin.spec.targets();
    let timeframe = |(timeframe, scaler): (&TimeframeHeader, &TimeframeScaler)| {
        let (mut instrument_start, mut segment_start) =
            (timeframe.instrument_start.clone(), timeframe.segment_start.clone());
        // Where the layout has a shorter way to say the same, it is taken.
        if segment_start.len() + 1 == instrument_start.len() {
            segment_start.clear();
        }
        if !several {
            instrument_start.clear();
        }
        TimeframeDescription {
            name: timeframe.window.timeframe.to_string(),
            steps: timeframe.window.seq_len,
            feature_names: scalers.features.iter().map(|feature| feature.name().to_owned()).collect(),
            bars: timeframe.rows,
            instrument_start,
            segment_start,
            scaler: Some(Scaler {
                kind: scalers.kind.to_string(),
                center: scaler.center.clone(),
                scale: scaler.scale.clone(),
                fit_end_time: scalers.fit_end_time,
            }),
        }
    };
    SeriesDescription {
        timeframes: header.timeframes.iter().zip(&scalers.timeframes).map(timeframe).collect(),
        samples: header.samples,
        horizons,
        has_weights: origin.spec.weight.is_some(),
        instruments: several.then(|| scalers.instruments.clone()),
        attributes: attributes(header.base, &scalers.instruments, origin),
    }
}

/// Root attributes of the file.
pub(crate) fn attributes(
    base: Timeframe,
    instruments: &[String],
    Origin { spec, pip_sizes, source }: Origin<'_>,
) -> BTreeMap<String, AttributeValue> {
    let horizon = i64::try_from(spec.horizon).expect("a horizon that fits in memory");
    let attributes: [(&str, AttributeValue); 4] = [
        ("base", base.name().into()),
        ("builder", concat!("megabatch ", env!("CARGO_PKG_VERSION")).into()),
        ("target_kind", spec.target_kind.to_string().into()),
        ("source", source.into()),
    ];
    let mut attributes: BTreeMap<String, AttributeValue> =
        attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    // Labels with a column of their ends have no common horizon.
    match spec.target_kind.label_end() {
        Some(_) if spec.target_kind.is_function() => None,
        Some(column) => attributes.insert("label_end_column".to_owned(), column.as_str().into()),
        None => attributes.insert("horizon_bars".to_owned(), horizon.into()),
    };
    if let Some(column) = &spec.weight {
        attributes.insert("weight_column".to_owned(), column.as_str().into());
    }
    // Of several instruments each has its own, in `source`.
    if let ([symbol], [pip_size]) = (instruments, pip_sizes) {
        attributes.insert("symbol".to_owned(), symbol.as_str().into());
        if spec.uses_pips() {
            attributes.insert("pip_size".to_owned(), (*pip_size).into());
        }
    }
    attributes
}
