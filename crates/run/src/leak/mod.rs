//! Proof that no sample sees a bar that had not closed.

mod split_proof;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use megabatch_bars::{
    AlignedSeries, Instrument, Moment, Proof, Scalers, SeriesSpec, StreamedInstrument, bar_files, prove_samples,
    prove_scalers,
};
use megabatch_chunk_io::{Series, SeriesFile};
use megabatch_gpu_core::Device;
use serde_json::{Value, json};

use crate::adapters::series::{Origin, series_file};
use crate::config::{Config, SettingSources};
use crate::error::{Error, Result};
use crate::findings::Findings;
use crate::host::{Host, Work};
use crate::ingest::Recipe;
use crate::ingest::provenance::{account, fingerprint};
use crate::synth::random::Random;
use crate::text::{shown, utc};
use split_proof::{ExactSpans, SplitProof, SplitSource, prove_splits};

/// Clocks whose changes are looked at besides those of the files: the ones that markets keep.
const CLOCKS: [&str; 2] = ["America/New_York", "Europe/London"];

/// What is proven.
#[derive(Clone, Debug)]
pub struct Options {
    /// The files of bars that the series was made of, or folders with them, where they are not
    /// where they were.
    pub source: Vec<PathBuf>,
    /// Samples drawn at random.
    pub samples: usize,
    /// Seed of the random samples and of the replacement bars.
    pub seed: u64,
    /// The configuration whose split is proven; the default split where none is given.
    pub settings: SettingSources,
}

impl Default for Options {
    fn default() -> Self {
        Options { source: Vec::new(), samples: 32, seed: 0, settings: SettingSources::default() }
    }
}

/// Proves that no sample of the series file at `path` sees a bar that had not closed.
///
/// The series is made again from its bars and compared with the file, byte for byte. Then, for
/// samples at random and at every change of the clocks, every bar that had not closed by the
/// sample's time is replaced: by other prices, and also by bars at other times. What the sample
/// sees must stay the same to the last bit. Last, the file is split as training would split it, and
/// no sample of a later part may look back to before the end of a label of an earlier one.
///
/// # Errors
/// [`Kind::Data`](crate::Kind::Data) where the proof fails.
pub fn prove(path: &Path, options: &Options, host: &Host<'_>) -> Result<Findings> {
    let start = Instant::now();
    let file = SeriesFile::open(path, &Device::cpu().scope("leak"))?.read()?;
    let source = Source::of(path, &file)?;
    let moved = options.source.iter().map(|path| bar_files(path)).collect::<Result<Vec<_>, _>>()?.concat();
    let recipe = source.recipe_with(&moved)?;
    let mut recordings = recipe.read()?;
    let series = recordings.align(&recipe)?;
    let (instruments, spec) = (recordings.instruments(), recipe.spec());
    let scalers = series.scalers();
    let exact = ExactSpans::of(&series, &instruments, spec.horizon);
    let moments = moments(options, &series, &source.zones());
    source.require_same_account(account(&recipe, &recordings, &series)?)?;
    let rebuilt = series_file(series, Origin { spec: &spec, pip_sizes: &recordings.pip_sizes, source: String::new() });
    require_same(path, &file, &rebuilt)?;
    drop(rebuilt);

    let seed = options.seed;
    let proofs = Proofs { path, seed, file: &file, instruments: &instruments, spec: &spec, scalers: &scalers };
    let fit_end_proven = proofs.prove_scalers()?;
    let bars = proofs.prove(&moments, host)?;
    let (config, asked) = split_config(&options.settings, spec.train_fraction, host)?;
    let split = prove_splits(path, &config, &exact, asked)?;
    Ok(describe(
        path,
        &moments,
        &split,
        &json!({
            "file": shown(path),
            "instruments": instruments.iter().map(|instrument| instrument.name).collect::<Vec<_>>(),
            "samples": file.sample_time.len(),
            "scalers_proven": fit_end_proven,
            "bars_replaced": bars,
            "split": split,
            "seconds": start.elapsed().as_secs_f64(),
        }),
    ))
}

/// The configuration whose split is proven. Unless the user gives one, training ends where the
/// scalers were fitted up to.
fn split_config(settings: &SettingSources, train_fraction: f64, host: &Host<'_>) -> Result<(Config, SplitSource)> {
    let asked = if *settings == SettingSources::default() { SplitSource::ByDefault } else { SplitSource::ByTheUser };
    let mut settings = settings.clone();
    if asked == SplitSource::ByDefault {
        let rest = (1.0 - train_fraction) / 2.0;
        settings.set.push(format!("data.split=[{train_fraction}, {rest}, {rest}]"));
    }
    Ok((settings.load(&host.environment)?, asked))
}

fn describe(path: &Path, moments: &Moments, split: &SplitProof, facts: &Value) -> Findings {
    let changes: Vec<String> = moments.changes.iter().map(|&time| utc(time)).collect();
    let mut json = facts.clone();
    json["random_samples"] = moments.random.into();
    json["clock_changes"] = changes.clone().into();
    json["samples_proven"] = moments.samples.len().into();
    let scalers = match facts["scalers_proven"].as_bool() {
        Some(true) => "The scalers do not change with any bar after the span that they were fitted on.\n",
        _ => "The scalers were fitted on everything: no bar comes after it.\n",
    };
    let around = match changes.len() {
        0 => "no change of the clocks lies in it".to_owned(),
        count => format!("around {count} changes of the clocks ({})", changes.join(", ")),
    };
    let text = format!(
        "{}: made of its source, byte for byte.\n{scalers}{} samples, {} at random and {around}: each is the same, bit for bit, whatever follows it \
         ({} bars replaced in {:.1} s).\n{}",
        path.display(),
        moments.samples.len(),
        moments.random,
        facts["bars_replaced"],
        facts["seconds"].as_f64().unwrap_or_default(),
        split_text(split),
    );
    Findings::new(text, &json)
}

fn split_text(split: &SplitProof) -> String {
    match &split.none_because {
        Some(reason) => format!("No split is proven: {reason}."),
        None => {
            let folds = if split.splits == 1 { String::new() } else { format!(" in each of {} folds", split.splits) };
            format!("No label of training or validation ends after the first bar that a later part looks at{folds}.")
        }
    }
}

/// Lists of instruments in a file's provenance: those in it, and those that could not be.
const LISTS: [&str; 2] = ["instruments", "left_out"];

/// Provenance in a file.
struct Source<'a> {
    path: &'a Path,
    json: Value,
    recipe: Recipe,
}

impl<'a> Source<'a> {
    fn of(path: &'a Path, file: &Series) -> Result<Self> {
        let (json, recipe) = Recipe::of_series(path, file.attributes.get("source"))?;
        Ok(Source { path, json, recipe })
    }

    /// The recipe with the files where they are now, once their bytes are known to be those that
    /// were read.
    fn recipe_with(&self, moved: &[PathBuf]) -> Result<Recipe> {
        let mut recipe = self.recipe.clone();
        if !moved.is_empty() {
            recipe = self.place(recipe, moved)?;
        }
        let expected: BTreeSet<&str> = self.files().filter_map(|file| file["xxh3_128"].as_str()).collect();
        for path in recipe.files() {
            let found = fingerprint(path).map_err(|error| {
                Error::data(format!(
                    "{}: {error}; say with --source where the bars of {} are",
                    path.display(),
                    self.path.display()
                ))
            })?;
            if !expected.contains(found.as_str()) {
                return Err(Error::data(format!(
                    "{}: these are not the bytes that {} was made of; give the files of then with --source, or ingest anew",
                    path.display(),
                    self.path.display()
                )));
            }
        }
        Ok(recipe)
    }

    /// The recipe with each file replaced by the one of `moved` that has its bytes.
    fn place(&self, mut recipe: Recipe, moved: &[PathBuf]) -> Result<Recipe> {
        let mut by_bytes = Vec::with_capacity(moved.len());
        for path in moved {
            by_bytes.push((fingerprint(path)?, path));
        }
        for path in recipe.bars.iter_mut().chain(&mut recipe.bid).chain(&mut recipe.ask) {
            let was = self.files().find(|file| file["file"].as_str() == path.to_str());
            let wanted = was.and_then(|file| file["xxh3_128"].as_str()).unwrap_or_default();
            let (_, found) = by_bytes.iter().find(|(bytes, _)| bytes == wanted).ok_or_else(|| {
                Error::data(format!(
                    "--source: none of the files has the bytes of {}, of which {} was made",
                    path.display(),
                    self.path.display()
                ))
            })?;
            (*found).clone_into(path);
        }
        Ok(recipe)
    }

    /// Requires that the file's provenance matches the bars found; the bars' places do not count.
    fn require_same_account(&self, mut found: Value) -> Result<()> {
        let mut said = self.json.clone();
        for account in [&mut said, &mut found] {
            account["recipe"] = Value::Null;
            for list in LISTS {
                for instrument in account.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                    // Why an instrument is left out is told with its path.
                    instrument["reason"] = Value::Null;
                    forget_places(instrument);
                    instrument["compared"].as_array_mut().into_iter().flatten().for_each(forget_places);
                }
            }
        }
        match said == found {
            true => Ok(()),
            false => Err(not_what_its_bars_give(self.path, "the account of the bars in /@source")),
        }
    }

    /// The files that were read, those included that were only compared with others.
    fn files(&self) -> impl Iterator<Item = &Value> {
        let instruments = LISTS.into_iter().flat_map(|list| self.json[list].as_array().into_iter().flatten());
        let owners = instruments.flat_map(|instrument| {
            let compared = instrument["compared"].as_array().into_iter().flatten();
            std::iter::once(instrument).chain(compared)
        });
        owners.flat_map(|owner| owner["files"].as_array().into_iter().flatten())
    }

    /// The zones by which the files were read, and those of the markets.
    fn zones(&self) -> Vec<TimeZone> {
        let own = self.files().filter_map(|file| file["zone"].as_str());
        let names: BTreeSet<&str> = CLOCKS.into_iter().chain(own).collect();
        names.into_iter().filter_map(|name| TimeZone::get(name).ok()).collect()
    }
}

/// Takes the paths from the files of `owner`, an instrument or files that were compared with it.
fn forget_places(owner: &mut Value) {
    let files = owner["files"].as_array_mut().into_iter().flatten();
    files.for_each(|file| file["file"] = Value::Null);
}

/// The samples to prove, and why.
struct Moments {
    /// Instrument, from 0, and number of the sample in the file.
    samples: Vec<(usize, usize)>,
    random: usize,
    /// When clocks were changed in the span of the samples.
    changes: Vec<i64>,
}

fn moments(options: &Options, series: &AlignedSeries, zones: &[TimeZone]) -> Moments {
    let mut random = Random::new(options.seed);
    let count = options.samples.min(series.len());
    let mut chosen = BTreeSet::new();
    while chosen.len() < count {
        chosen.insert((random.uniform() * series.len() as f64) as usize % series.len());
    }
    let (first, last) = (series.sample_time.iter().min(), series.sample_time.iter().max());
    let changes = changes(zones, first.copied().unwrap_or_default(), last.copied().unwrap_or_default());
    for segment in &series.segments {
        let times = &series.sample_time[segment.samples.clone()];
        for &change in changes.iter().filter(|&&change| times[0] <= change && change <= times[times.len() - 1]) {
            // The last sample before the change, the first after it, and the first after the hour
            // that is missing or came twice.
            let after = |time: i64| times.partition_point(|&sample| sample < time);
            let around = [after(change).saturating_sub(1), after(change), after(change + HOUR_NS)];
            chosen.extend(around.into_iter().filter(|&n| n < times.len()).map(|n| segment.samples.start + n));
        }
    }
    let samples = chosen.into_iter().map(|n| (series.sample_instrument[n] as usize, n)).collect();
    Moments { samples, random: count, changes }
}

const HOUR_NS: i64 = 3_600_000_000_000;

/// When the clocks of `zones` are changed from `first` to `last`, in order.
fn changes(zones: &[TimeZone], first: i64, last: i64) -> Vec<i64> {
    let Ok(begin) = Timestamp::from_nanosecond(first.into()) else { return Vec::new() };
    let nanoseconds = |time: Timestamp| i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX);
    let of_zone = |zone: &TimeZone| -> Vec<i64> {
        let times = zone.following(begin).map(|transition| nanoseconds(transition.timestamp()));
        times.take_while(|&time| time <= last).collect()
    };
    let all: BTreeSet<i64> = zones.iter().flat_map(of_zone).collect();
    all.into_iter().collect()
}

fn not_what_its_bars_give(path: &Path, object: &str) -> crate::error::Error {
    Error::data(format!(
        "{}: {object} is not what its bars give; the file was changed, or made by another version: ingest anew",
        path.display()
    ))
}

/// The file holds what its source gives.
fn require_same(path: &Path, file: &Series, rebuilt: &Series) -> Result<()> {
    let differs = |object: String| not_what_its_bars_give(path, &object);
    let others = |series: &Series| {
        let names: BTreeSet<String> = series.attributes.keys().cloned().collect();
        names.into_iter().filter(|name| name != "source").collect::<Vec<_>>()
    };
    let names: BTreeSet<String> = others(file).into_iter().chain(others(rebuilt)).collect();
    if let Some(name) = names.into_iter().find(|name| file.attributes.get(name) != rebuilt.attributes.get(name)) {
        return Err(differs(format!("the attribute {name}")));
    }
    let same_bits = |found: &[f32], expected: &[f32]| {
        found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits())
    };
    let whole = [
        ("/samples/time", file.sample_time == rebuilt.sample_time),
        ("/samples/reach_time", file.sample_reach_time == rebuilt.sample_reach_time),
        // A file of before does not tell it.
        (
            "/samples/label_end_time",
            file.sample_label_end_time.is_empty() || file.sample_label_end_time == rebuilt.sample_label_end_time,
        ),
        ("/samples/instrument", file.instruments == rebuilt.instruments),
        ("/targets", same_bits(&file.targets, &rebuilt.targets)),
        ("/series", file.timeframes.len() == rebuilt.timeframes.len()),
    ];
    if let Some((object, _)) = whole.into_iter().find(|(_, same)| !same) {
        return Err(differs(object.to_owned()));
    }
    for (found, expected) in file.timeframes.iter().zip(&rebuilt.timeframes) {
        let name = &found.name;
        if !same_bits(&found.values, &expected.values) {
            return Err(differs(format!("/series/{name}/values")));
        }
        if found != expected {
            return Err(differs(format!("the index, the features or the scaler of {name}")));
        }
    }
    Ok(())
}

/// Inputs of proofs.
struct Proofs<'a> {
    path: &'a Path,
    seed: u64,
    file: &'a Series,
    instruments: &'a [Instrument<'a>],
    spec: &'a SeriesSpec,
    scalers: &'a Scalers,
}

impl Proofs<'_> {
    /// True if any bar follows the span that the scalers were fitted on; then, that none of them
    /// has a part in the scalers.
    fn prove_scalers(&self) -> Result<bool> {
        let time = self.scalers.fit_end_time;
        let follows = self.instruments.iter().any(|instrument| instrument.bars.open_time.last() > Some(&time));
        if follows {
            let moment = Moment { time, seed: self.seed };
            prove_scalers(self.instruments, self.spec, self.scalers, moment)?;
        }
        Ok(follows)
    }

    /// Proves every sample, on all CPUs; how many bars were replaced in all.
    fn prove(&self, moments: &Moments, host: &Host<'_>) -> Result<usize> {
        let replaced = AtomicUsize::new(0);
        let work = Work { label: "prove", total: moments.samples.len() as u64, unit: "samples" };
        let progress = Mutex::new((host.observer.begin(work), 0));
        for (place, &Instrument { name, bars, pip_size }) in self.instruments.iter().enumerate() {
            let own = moments.samples.iter().filter(|(instrument, _)| *instrument == place);
            let samples: Vec<usize> = own.map(|&(_, n)| n).collect();
            let moment = |&n: &usize| Moment { time: self.file.sample_time[n], seed: self.seed.wrapping_add(n as u64) };
            let own: Vec<Moment> = samples.iter().map(moment).collect();
            let each = |of: usize, proof: Proof| {
                self.require_windows(samples[of], &proof)?;
                replaced.fetch_add(proof.replaced, Ordering::Relaxed);
                let mut progress = progress.lock().expect("no thread panics while it shows progress");
                progress.1 += 1;
                let done = progress.1;
                progress.0.at(done, "");
                Ok::<(), Error>(())
            };
            prove_samples(StreamedInstrument { name, bars, pip_size }, self.spec, self.scalers, &own, &each)?;
        }
        Ok(replaced.into_inner())
    }

    /// The windows of sample `n` in the file are those that were proven.
    fn require_windows(&self, n: usize, proof: &Proof) -> Result<()> {
        for (timeframe, proven) in self.file.timeframes.iter().zip(&proof.windows) {
            let after = (timeframe.sample_end[n] as usize + 1) * timeframe.feature_names.len();
            let seen = &timeframe.values[after - proven.len()..after];
            let same = seen.iter().zip(proven).all(|(a, b)| a.to_bits() == b.to_bits());
            if !same {
                return Err(Error::data(format!(
                    "{}: sample {n}: its window of {} is not the one that was proven",
                    self.path.display(),
                    timeframe.name
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_change_twice_a_year_each() {
        let zones = CLOCKS.map(|name| TimeZone::get(name).unwrap());
        let time = |text: &str| i64::try_from(text.parse::<Timestamp>().unwrap().as_nanosecond()).unwrap();
        let found = changes(&zones, time("2018-01-01T00:00Z"), time("2019-01-01T00:00Z"));
        let expected = ["2018-03-11T07:00Z", "2018-03-25T01:00Z", "2018-10-28T01:00Z", "2018-11-04T06:00Z"].map(time);
        assert_eq!(found, expected);
        assert!(changes(&zones, time("2018-04-01T00:00Z"), time("2018-05-01T00:00Z")).is_empty());
    }
}
