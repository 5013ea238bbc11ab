use std::fs;
use std::num::NonZeroUsize;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use megabatch_chunk_io::{Compression, Series, SeriesFile, Storage, WriteOptions, write_series};
use megabatch_gpu_core::Device;
use megabatch_trainer::SampleRanges;

use super::comparison::not_what_its_bars_give;
use super::moments::{HOUR_NS, changes};
use super::provenance::CLOCKS;
use super::*;
use crate::ingest::recipe::in_memory::{provenance as provenance_json, series_file};
use crate::ingest::{Windows, ingest};
use crate::synth::random::Random;
use crate::text::Duration as TextDuration;

#[test]
fn clocks_change_twice_a_year_each() {
    let zones = CLOCKS.map(|name| TimeZone::get(name).unwrap());
    let time = |text: &str| i64::try_from(text.parse::<Timestamp>().unwrap().as_nanosecond()).unwrap();
    let found = changes(&zones, time("2018-01-01T00:00Z"), time("2019-01-01T00:00Z"));
    let expected = ["2018-03-11T07:00Z", "2018-03-25T01:00Z", "2018-10-28T01:00Z", "2018-11-04T06:00Z"].map(time);
    assert_eq!(found, expected);
    assert!(changes(&zones, time("2018-04-01T00:00Z"), time("2018-05-01T00:00Z")).is_empty());
}

/// Two instruments with holes that end segments, and the series made of them.
fn ingested(folder: &Path) -> (PathBuf, Recipe) {
    let bars = [("EURUSD.csv", 1, 700..900), ("USDJPY.csv", 2, 2_000..2_100)].map(|(name, seed, lost)| {
        let mut csv = Vec::new();
        crate::synth::write_csv(&mut csv, 4, seed).unwrap();
        let text = String::from_utf8(csv).unwrap();
        let kept = text.lines().enumerate().filter(|(row, _)| !lost.contains(row));
        let path = folder.join(name);
        fs::write(&path, kept.map(|(_, line)| format!("{line}\n")).collect::<String>()).unwrap();
        path
    });
    let recipe = Recipe {
        bars: bars.to_vec(),
        timeframes: "M1:20,M5:6,M15:4".parse::<Windows>().unwrap(),
        horizon: 5,
        stride: 3,
        longest_hole: TextDuration { ns: HOUR_NS },
        ..Recipe::default()
    };
    let path = folder.join("series.h5");
    ingest(&recipe, &path, &Host::silent()).unwrap();
    (path, recipe)
}

fn read(path: &Path) -> Series {
    SeriesFile::open(path, &Device::cpu().scope("test")).unwrap().read().unwrap()
}

/// The comparison with all of the file and of the series in memory: the oracle.
fn compare_in_memory(path: &Path) -> Result<()> {
    let file = read(path);
    let provenance = Provenance::read(path, file.attributes.get("source"))?;
    let recipe = provenance.recipe_with(&[])?;
    let mut recordings = recipe.read()?;
    let aligned = recordings.align(&recipe)?;
    provenance.require_same_provenance(provenance_json(&recipe, &recordings, &aligned)?, KnownColumns::All)?;
    let (spec, source) = (recipe.spec(), String::new());
    let rebuilt = series_file(aligned, Origin { spec: &spec, pip_sizes: &recordings.pip_sizes, source });
    let differs = |object: &str| Err(not_what_its_bars_give(path, object));
    for name in file.attributes.keys().chain(rebuilt.attributes.keys()).collect::<BTreeSet<_>>() {
        if name != "source" && file.attributes.get(name) != rebuilt.attributes.get(name) {
            return differs(&format!("the attribute {name}"));
        }
    }
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let tells_labels = !file.sample_label_end_time.is_empty();
    let whole = [
        ("/samples/time", file.sample_time == rebuilt.sample_time),
        ("/samples/reach_time", file.sample_reach_time == rebuilt.sample_reach_time),
        ("/samples/label_end_time", !tells_labels || file.sample_label_end_time == rebuilt.sample_label_end_time),
        ("/samples/instrument", file.instruments == rebuilt.instruments),
        ("/samples/weight", bits(&file.sample_weight) == bits(&rebuilt.sample_weight)),
        ("/targets", bits(&file.targets) == bits(&rebuilt.targets)),
        ("/series", file.timeframes.len() == rebuilt.timeframes.len()),
    ];
    if let Some((object, _)) = whole.into_iter().find(|(_, same)| !same) {
        return differs(object);
    }
    for (found, expected) in file.timeframes.iter().zip(&rebuilt.timeframes) {
        if bits(&found.values) != bits(&expected.values) {
            return differs(&format!("/series/{}/values", found.name));
        }
        if found != expected {
            return differs(&format!("the index, the features or the scaler of {}", found.name));
        }
    }
    Ok(())
}

/// Something that is changed in a file, at a place below 1,000,000 of its own range.
type Change = fn(&mut Series, usize);

fn place(millionths: usize, len: usize) -> usize {
    millionths * len / 1_000_000
}

const CHANGES: [Change; 16] = [
    |series, at| {
        let n = place(at, series.sample_time.len() - 1);
        series.sample_time[n] += 1;
    },
    |series, at| {
        let n = place(at, series.sample_reach_time.len());
        series.sample_reach_time.get_mut(n).into_iter().for_each(|time| *time -= 1);
    },
    |series, at| {
        let n = place(at, series.sample_label_end_time.len());
        series.sample_label_end_time.get_mut(n).into_iter().for_each(|time| *time += 1);
    },
    |series, _| series.sample_label_end_time.clear(),
    |series, at| {
        let n = place(at, series.sample_time.len());
        series.sample_weight.resize(series.sample_time.len(), 1.0);
        series.sample_weight[n] += 0.5;
    },
    |series, _| series.sample_weight = vec![1.0; series.sample_time.len()],
    |series, _| series.sample_reach_time.clear(),
    |series, _| series.instruments.as_mut().unwrap().names[1].push('X'),
    |series, at| {
        let n = place(at, series.targets.len());
        series.targets[n] += 1.0;
    },
    // A zero of the other sign is another value.
    |series, _| {
        let zero = series.targets.iter().position(|target| *target == 0.0);
        zero.into_iter().for_each(|n| series.targets[n] = -series.targets[n]);
    },
    |series, at| {
        let values = &mut series.timeframes[at % 3].values;
        let n = place(at, values.len());
        values[n] -= 0.5;
    },
    |series, at| series.timeframes[at % 3].steps -= 1,
    |series, at| series.timeframes[at % 3].feature_names[2].push('x'),
    |series, at| series.timeframes[at % 3].scaler.as_mut().unwrap().center[at % 9] += 1.0,
    |series, at| series.timeframes[at % 3].scaler.as_mut().unwrap().fit_end_time += 1,
    |series, _| {
        series.attributes.insert("note".to_owned(), "by hand".into());
    },
];

/// Whatever is changed in a file, in one object or in several, the pieces name the object that the
/// series in memory names.
#[test]
fn a_changed_file_is_refused_as_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = ingested(folder.path());
    let options = Options { samples: 2, ..Options::default() };
    let changed_path = folder.path().join("changed.h5");
    let verdict = |path: &Path| prove(path, &options, &Host::silent()).map(drop).map_err(|error| error.to_string());
    assert_eq!(verdict(&path), Ok(()));
    let mut random = Random::new(5);
    let mut below = |end: usize| (random.uniform() * end as f64) as usize % end;
    let (mut refused, mut cases) = (BTreeSet::new(), 0);
    let ones = (0..CHANGES.len()).map(|change| vec![change]);
    let several: Vec<Vec<usize>> = (0..12).map(|_| (0..2 + below(2)).map(|_| below(CHANGES.len())).collect()).collect();
    for chosen in ones.chain(several) {
        let mut series = read(&path);
        chosen.iter().for_each(|&change| CHANGES[change](&mut series, below(1_000_000)));
        let storage = match below(3) {
            0 => Storage::Chunked { rows: NonZeroUsize::new(500), compression: Compression::Gzip { level: 1 } },
            _ => Storage::Contiguous,
        };
        if write_series(&changed_path, &series, &WriteOptions { storage }).is_err() {
            continue;
        }
        let expected = compare_in_memory(&changed_path).map_err(|error| error.to_string());
        assert_eq!(verdict(&changed_path), expected, "{chosen:?}");
        refused.extend(expected.err());
        cases += 1;
    }
    assert!(cases > 18 && refused.len() > 7, "{cases}: {refused:#?}");
    let left: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{left:?}");
}

/// Ends of labels, and samples that look back to before them, of parts of any samples.
#[test]
fn exact_spans_are_those_of_every_sample() {
    let folder = tempfile::tempdir().unwrap();
    let (path, recipe) = ingested(folder.path());
    let recordings = recipe.read().unwrap();
    let aligned = recipe.read().unwrap().align(&recipe).unwrap();
    let instruments: Vec<StreamedInstrument<'_>> = recordings
        .universe
        .recordings
        .iter()
        .map(|one| StreamedInstrument { name: &one.symbol, bars: &one.bars, pip_size: 1.0, fitted_until: None })
        .collect();
    let file = SeriesFile::open(&path, &Device::cpu().scope("test")).unwrap();
    let (segments, horizon) = (&aligned.header.segments, recipe.horizon);
    assert!(segments.len() > 2, "{segments:?}");
    let exact = ExactSpans { file: &file, instruments: &instruments, segments, ends: LabelEnds::Horizon(horizon) };
    let (samples, mut random) = (&aligned.arrays, Random::new(3));
    let mut below = |end: usize| (random.uniform() * end as f64) as usize % end;
    for case in 0..200 {
        let mut part = || {
            let (from, every) = (below(aligned.header.samples), 1 + below(8));
            let to = from + below(aligned.header.samples - from + 1);
            (from..to).filter(|n| n % every != 1 || case % 3 == 0).collect::<Vec<usize>>()
        };
        let (earlier, later): (Vec<usize>, Vec<usize>) = (part(), part());
        let last_ns = earlier.iter().map(|&n| samples.label_end_time[n]).max().unwrap_or(i64::MIN);
        let reached = later.iter().filter(|&&n| samples.receptive_start[n] < last_ns).count();
        let [earlier, later] = [earlier, later].map(SampleRanges::from_iter);
        assert_eq!(exact.reached_by(&earlier, &later).unwrap(), (reached, last_ns));
    }
}

/// Work that is not to go on leaves nothing behind.
#[test]
fn an_interrupted_proof_leaves_nothing() {
    struct Stop;
    impl crate::host::Cancel for Stop {
        fn is_requested(&self) -> bool {
            true
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = ingested(folder.path());
    let before = folder.path().read_dir().unwrap().count();
    let host = Host { cancel: &Stop, ..Host::silent() };
    let error = prove(&path, &Options::default(), &host).unwrap_err();
    assert_eq!(error.kind(), Kind::Cancelled, "{error}");
    assert_eq!(folder.path().read_dir().unwrap().count(), before);
}
