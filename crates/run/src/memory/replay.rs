//! Result of a policy on a trace.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor};
use std::path::PathBuf;
use std::time::Instant;

use megabatch_alloc_lab as alloc_lab;
use megabatch_alloc_lab::{Limits, OutOfMemory, Policy, ReplayOutcome, TraceReader};
use serde_json::{Map, Value, json};

use crate::command_report::CommandReport;
use crate::error::{Context as _, Error, Result};
use crate::text::ByteSize;

/// Options of a replay.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// Memory of the device.
    pub capacity: ByteSize,
    /// Policies, each once.
    pub policies: Policies,
    /// PyTorch's `max_split_size`: blocks of this size or more are not split.
    pub max_split_size: Option<ByteSize>,
}

/// Policies in the order in which they were named, each once: `megabatch,pytorch`, or `all`.
#[derive(Clone, Debug, PartialEq)]
pub struct Policies(
    /// The policies.
    pub Vec<Policy>,
);

impl std::str::FromStr for Policies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Policies(Policy::ALL.to_vec()));
        }
        let mut policies = Vec::new();
        for name in text.split(',') {
            let policy = name.trim().parse().map_err(|error| format!("{error}; `all` is for all of them"))?;
            if !policies.contains(&policy) {
                policies.push(policy);
            }
        }
        Ok(Policies(policies))
    }
}

/// Plays a trace of allocations on megabatch's pool or on a model of PyTorch's allocator.
///
/// A trace has one JSON object a line: `{"op":"alloc","id":7,"bytes":1048576,"stream":0}`,
/// `{"op":"free","id":7}` or `{"op":"step"}`. The first refused request ends the replay; this is a
/// result, not an error.
///
/// # Errors
/// A data error for a trace that cannot be read.
pub fn replay(trace: &Trace, options: &ReplayOptions) -> Result<CommandReport> {
    let max_split_bytes = options.max_split_size.map(|ByteSize(bytes)| bytes);
    let limits = Limits { capacity_bytes: options.capacity.0, max_split_bytes };
    let mut played = Vec::new();
    for &policy in &options.policies.0 {
        let start = Instant::now();
        let lines = TraceReader::new(trace.rewound()?);
        let outcome = alloc_lab::replay(lines, policy, &limits).with_context(|| trace.name())?;
        played.push((policy, outcome, start.elapsed().as_secs_f64()));
    }
    let text: Vec<String> = played.iter().map(|(policy, outcome, _)| describe(*policy, outcome, &limits)).collect();
    let json = match &played[..] {
        [(policy, outcome, seconds)] => to_json(*policy, outcome, *seconds),
        several => {
            let each = several
                .iter()
                .map(|(policy, outcome, seconds)| (policy.name().to_owned(), to_json(*policy, outcome, *seconds)));
            Value::Object(each.collect::<Map<_, _>>())
        }
    };
    Ok(CommandReport::new(text.join("\n"), &json))
}

/// A trace that can be read once for each policy.
#[derive(Clone, Debug)]
pub enum Trace {
    /// A file.
    File(PathBuf),
    /// Text that came another way, such as over standard input.
    Text {
        /// Its name in messages.
        name: String,
        /// The text.
        text: Vec<u8>,
    },
}

impl Trace {
    fn name(&self) -> String {
        match self {
            Trace::File(path) => path.display().to_string(),
            Trace::Text { name, .. } => name.clone(),
        }
    }

    fn rewound(&self) -> Result<Box<dyn BufRead + '_>> {
        match self {
            Trace::Text { text, .. } => Ok(Box::new(Cursor::new(text))),
            Trace::File(path) => {
                let file = File::open(path).map_err(|error| Error::data(format!("{}: {error}", path.display())))?;
                Ok(Box::new(BufReader::with_capacity(1 << 20, file)))
            }
        }
    }
}

fn to_json(policy: Policy, outcome: &ReplayOutcome, seconds: f64) -> Value {
    json!({
        "policy": policy.name(),
        "oom": outcome.out_of_memory.is_some(),
        "oom_at": outcome.out_of_memory.map(|short| json!({
            "line": short.line,
            "requested_bytes": short.requested_bytes,
            "live_bytes": short.live_bytes,
            "allocated_bytes": short.allocated_bytes,
            "reserved_bytes": short.reserved_bytes,
            "largest_free_bytes": short.largest_free_bytes,
        })),
        "peak_live_bytes": outcome.peak_live_bytes,
        "peak_reserved_bytes": outcome.peak_reserved_bytes,
        "peak_inactive_split_bytes": outcome.peak_inactive_split_bytes,
        "fragmentation_max": outcome.fragmentation_max,
        "driver_calls": outcome.driver_calls,
        "driver_calls_last_step": outcome.driver_calls_last_step,
        // No policy moves a block.
        "bytes_copied": 0,
        "stitches": outcome.stitches,
        "steps": outcome.steps,
        "quiet_steps": outcome.quiet_steps,
        "events": outcome.events,
        "events_per_s": outcome.events as f64 / seconds.max(1e-9),
    })
}

fn describe(policy: Policy, outcome: &ReplayOutcome, limits: &Limits) -> String {
    let end = match &outcome.out_of_memory {
        None => "every request was met".to_owned(),
        Some(short) => out_of_memory(short, limits),
    };
    let ReplayOutcome { peak_live_bytes, peak_reserved_bytes, .. } = *outcome;
    format!(
        "{policy}: {end}\n  at the peak {} asked for and {} held ({:.3} times), {} of it free beside live bytes; fragmentation {:.3}\n  \
         {} driver calls ({} in the last of {} steps), {} requests stitched\n",
        gib(peak_live_bytes),
        gib(peak_reserved_bytes),
        outcome.overhead(),
        gib(outcome.peak_inactive_split_bytes),
        outcome.fragmentation_max,
        outcome.driver_calls,
        outcome.driver_calls_last_step,
        outcome.steps,
        outcome.stitches,
    )
}

fn out_of_memory(short: &OutOfMemory, limits: &Limits) -> String {
    format!(
        "out of memory on line {}: {} asked for with {} allocated, {} held and not in use (the longest run of it {}), {} left on the device",
        short.line,
        gib(short.requested_bytes),
        gib(short.allocated_bytes),
        gib(short.reserved_bytes - short.allocated_bytes),
        gib(short.largest_free_bytes),
        gib(limits.capacity_bytes - short.reserved_bytes),
    )
}

/// A size in powers of 1024, as allocators report it.
pub(super) fn gib(bytes: usize) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.2} {unit}") }
}
