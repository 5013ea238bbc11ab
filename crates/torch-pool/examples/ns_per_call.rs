//! Time of PyTorch's calls on a fake driver, whose calls take less than a true one's: the requests
//! of a recorded training, in the order in which they came.
//!
//! ```text
//! cargo run --release -p megabatch-torch-pool --example ns_per_call
//! ```

#![allow(unsafe_code, reason = "the interface is one of C")]

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::time::Instant;

use flate2::read::GzDecoder;
use megabatch_alloc_lab::TraceReader;
use megabatch_gpu_core::recording::TraceEvent;
use megabatch_simt::driver::{FakeDriver, Setting};
use megabatch_torch_pool::{PoolSettings, TorchPool};

const ROUNDS: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../alloc-lab/traces/lstm.jsonl.gz");
    let events: Vec<TraceEvent> = TraceReader::new(BufReader::new(GzDecoder::new(File::open(path)?)))
        .map(|line| line.map(|line| line.event))
        .collect::<Result<_, _>>()?;
    let driver = FakeDriver::whole();
    driver.set(Setting::TotalBytes, 8 << 30);
    let pool = TorchPool::new(PoolSettings { stitching: true, budget_bytes: None, leave_bytes: 0 })?;
    let mut rounds_ns = Vec::new();
    for _ in 0..ROUNDS {
        let (mut live, begun) = (HashMap::with_capacity(events.len()), Instant::now());
        for event in &events {
            match *event {
                // SAFETY: 0 is the default stream.
                TraceEvent::Alloc { id, bytes, .. } => drop(live.insert(id, unsafe { pool.allocate(bytes, 0, 0) }?)),
                TraceEvent::Free { id } => pool.free(live.remove(&id).ok_or("a block is freed once")?, 0)?,
                TraceEvent::Step => pool.step(),
            }
        }
        rounds_ns.push(begun.elapsed().as_nanos() / events.len() as u128);
        live.into_values().try_for_each(|address| pool.free(address, 0))?;
        pool.step();
    }
    rounds_ns.sort_unstable();
    println!("{} calls: {} ns a call, the median of {ROUNDS} rounds", events.len(), rounds_ns[ROUNDS / 2]);
    println!("least {} ns, most {} ns, the first of which maps the memory", rounds_ns[0], rounds_ns[ROUNDS - 1]);
    Ok(())
}
