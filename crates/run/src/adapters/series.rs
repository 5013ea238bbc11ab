//! Aligned bars as the contents of a series file.

use std::collections::BTreeMap;

use megabatch_bars::{SeriesHeader, SeriesSpec, Timeframe, TimeframeHeader, TimeframeScaler};
use megabatch_chunk_io::{AttributeValue, Scaler, SeriesDescription, TimeframeDescription};

/// Description of the file beside its numbers.
pub(crate) struct Origin<'a> {
    pub(crate) spec: &'a SeriesSpec,
    /// One size an instrument.
    pub(crate) pip_sizes: &'a [f64],
    /// Provenance, as JSON.
    pub(crate) source: String,
}

/// What the file of a series holds beside its arrays, which are written piece by piece.
pub(crate) fn series_description(header: &SeriesHeader, origin: Origin<'_>) -> SeriesDescription {
    let scalers = &header.scalers;
    let several = scalers.instruments.len() > 1;
    let horizons = origin.spec.horizon;
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
    let attributes: [(&str, AttributeValue); 5] = [
        ("base", base.name().into()),
        ("builder", concat!("megabatch ", env!("CARGO_PKG_VERSION")).into()),
        ("target_kind", spec.target_kind.name().into()),
        ("horizon_bars", horizon.into()),
        ("source", source.into()),
    ];
    let mut attributes: BTreeMap<String, AttributeValue> =
        attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    // Of several instruments each has its own, in `source`.
    if let ([symbol], [pip_size]) = (instruments, pip_sizes) {
        attributes.insert("symbol".to_owned(), symbol.as_str().into());
        if spec.uses_pips() {
            attributes.insert("pip_size".to_owned(), (*pip_size).into());
        }
    }
    attributes
}
