//! Delivers every sample of a file to a model that only touches it, and prints one line of JSON: what is left of a training run when the
//! model takes no time.
//!
//! ```sh
//! cargo run --release -p megabatch-chunk-io --example deliver -- FILE --pattern gather --slab 128 --threads 2
//! ```

use std::error::Error;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Instant;

use megabatch_chunk_io::{
    Direct, NonFinite, ReadCost, SampleBlock, SampleSlices, Source, SourceOptions, TimeframeShape,
};
use megabatch_gpu_core::Device;
use serde_json::json;

const USAGE: &str = "deliver FILE [--pattern read|gather] [--batch 128] [--slab 1024] [--threads 1] [--epochs 3] [--direct] [--cold] [--count]
  read     slabs of consecutive samples, each by one request
  gather   slabs of samples from anywhere in the file, in a fixed random order, each by one request
  --direct past the page cache    --cold drops the file from it before each epoch    --count looks for NaN and infinities";

/// What the command line says.
struct Plan {
    path: PathBuf,
    gather: bool,
    batch: usize,
    slab: usize,
    threads: usize,
    epochs: usize,
    direct: Direct,
    cold: bool,
    non_finite: NonFinite,
}

fn main() -> Result<(), Box<dyn Error>> {
    let plan = Plan::from_arguments().map_err(|problem| format!("{problem}\n{USAGE}"))?;
    let options = SourceOptions {
        resident_bytes_max: 0,
        threads: plan.threads,
        direct: plan.direct,
        non_finite: plan.non_finite,
    };
    let opened = Instant::now();
    let source = Source::open_with(&plan.path, &Device::cpu().scope("data"), options)?;
    let read_by: Vec<_> = source.storage()?.into_iter().map(|dataset| dataset.read_by).collect();
    let open_s = opened.elapsed().as_secs_f64();
    let order = random_order(source.shape().samples);
    let mut block = SampleBlock::zeros(source.shape(), plan.slab.min(order.len()));
    let mut epochs = Vec::new();
    for _ in 0..plan.epochs {
        if plan.cold {
            drop_from_cache(&plan.path)?;
        }
        let (started, cpu_before) = (Instant::now(), cpu_s()?);
        let (cost, sum) = epoch(&plan, &source, &order, &mut block)?;
        epochs.push((started.elapsed().as_secs_f64(), cpu_s()? - cpu_before, cost, sum));
    }
    let (seconds, cpu, cost, sum) = epochs.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).ok_or("--epochs is 0")?;
    let shape = source.shape();
    let sample_len = shape.timeframes.iter().map(TimeframeShape::window_len).sum::<usize>() + shape.horizons;
    let bytes = (shape.samples * sample_len * size_of::<f32>()) as f64;
    let line = json!({
        "file": plan.path, "pattern": if plan.gather { "gather" } else { "read" }, "batch": plan.batch, "slab": plan.slab,
        "threads": plan.threads, "direct": plan.direct, "cold": plan.cold, "samples": shape.samples, "read_by": read_by,
        "samples_s": shape.samples as f64 / seconds, "gbs": bytes / seconds / 1e9, "seconds": seconds, "cpu_s": cpu,
        "open_s": open_s, "bytes_read": cost.bytes_read, "disk_s": cost.disk.as_secs_f64(),
        "decode_s": cost.decode.as_secs_f64(), "copy_s": cost.copy.as_secs_f64(), "peak_rss_bytes": peak_rss_bytes()?,
        "sum": sum, "non_finite": source.non_finite(), "notes": source.notes(),
    });
    println!("{line}");
    Ok(())
}

/// One pass over all samples; the sum is what keeps the touching from being optimised away.
fn epoch(
    plan: &Plan,
    source: &Source,
    order: &[usize],
    block: &mut SampleBlock,
) -> Result<(ReadCost, f32), Box<dyn Error>> {
    let (mut cost, mut sum) = (ReadCost::default(), 0.0);
    for (k, samples) in order.chunks(plan.slab).enumerate() {
        let first = k * plan.slab;
        cost += match plan.gather {
            true => source.gather(samples, first_samples(block, samples.len()))?,
            false => source.read(first..first + samples.len(), first_samples(block, samples.len()))?,
        };
        let SampleSlices { features, targets } = first_samples(block, samples.len());
        for values in features.into_iter().chain([targets]) {
            let sample_len = values.len() / samples.len();
            sum += values.chunks(plan.batch * sample_len).map(touch).sum::<f32>();
        }
    }
    Ok((cost, sum))
}

/// Memory for the first `samples` of a block: the last request of an epoch may be for fewer than it has.
fn first_samples(block: &mut SampleBlock, samples: usize) -> SampleSlices<'_> {
    let held = block.samples;
    let SampleSlices { features, targets } = block.slices();
    SampleSlices {
        features: features.into_iter().map(|values| part(values, held, samples)).collect(),
        targets: part(targets, held, samples),
    }
}

fn part(values: &mut [f32], held: usize, samples: usize) -> &mut [f32] {
    let len = values.len() / held * samples;
    &mut values[..len]
}

/// Reads one float of every cache line.
fn touch(values: &[f32]) -> f32 {
    values.iter().step_by(16).sum()
}

/// A fixed permutation (Fisher and Yates, with a linear congruential generator).
fn random_order(samples: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..samples).collect();
    let mut state = 1_u64;
    for k in (1..samples).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(k, (state >> 33) as usize % (k + 1));
    }
    order
}

fn drop_from_cache(path: &PathBuf) -> Result<(), Box<dyn Error>> {
    Ok(rustix::fs::fadvise(File::open(path)?, 0, None, rustix::fs::Advice::DontNeed)?)
}

/// Processor time of all threads so far.
fn cpu_s() -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // After the name in parentheses; user and system time are the 12th and 13th field from there.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
}

fn peak_rss_bytes() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

impl Plan {
    fn from_arguments() -> Result<Self, String> {
        let mut plan = Plan {
            path: PathBuf::new(),
            gather: false,
            batch: 128,
            slab: 1024,
            threads: 1,
            epochs: 3,
            direct: Direct::Off,
            cold: false,
            non_finite: NonFinite::Pass,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let value = arguments.next().unwrap_or_default();
                value.parse::<usize>().map_err(|_| format!("{argument} {value}: expected a number"))
            };
            match argument.as_str() {
                "--batch" => plan.batch = number()?.max(1),
                "--slab" => plan.slab = number()?.max(1),
                "--threads" => plan.threads = number()?,
                "--epochs" => plan.epochs = number()?,
                "--direct" => plan.direct = Direct::On,
                "--cold" => plan.cold = true,
                "--count" => plan.non_finite = NonFinite::Count,
                "--pattern" => match arguments.next().as_deref() {
                    Some("read") => plan.gather = false,
                    Some("gather") => plan.gather = true,
                    other => return Err(format!("--pattern {other:?}: expected read or gather")),
                },
                _ if argument.starts_with("--") => return Err(format!("{argument}: no such option")),
                _ => plan.path = argument.into(),
            }
        }
        if plan.path.as_os_str().is_empty() { Err("FILE is missing".to_owned()) } else { Ok(plan) }
    }
}
