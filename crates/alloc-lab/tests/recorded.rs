//! Trainings of PyTorch whose requests were recorded on a GPU, played on every policy.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use flate2::read::GzDecoder;
use megabatch_alloc_lab::{Limits, Policy, ReplayOutcome, TraceReader, replay};

const LIMITS: Limits = Limits { capacity_bytes: 79 << 30, max_split_bytes: None };

fn outcome(name: &str, policy: Policy) -> ReplayOutcome {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("traces/{name}.jsonl.gz"));
    let trace = TraceReader::new(BufReader::new(GzDecoder::new(File::open(path).unwrap())));
    let outcome = replay(trace, policy, &LIMITS).unwrap();
    assert!(outcome.out_of_memory.is_none());
    outcome
}

/// Memory held over memory requested, as docs/measurements/memory.md has it.
fn assert_overheads(name: &str, overheads: [&str; 3]) {
    let policies = [Policy::Megabatch, Policy::PyTorch, Policy::PyTorchExpandable];
    assert_eq!(policies.map(|policy| format!("{:.3}", outcome(name, policy).overhead())), overheads, "{name}");
}

#[test]
fn the_model_holds_what_pytorch_held_on_the_card() {
    assert_eq!(outcome("lstm", Policy::PyTorch).peak_reserved_bytes, 8_065_646_592);
}

#[test]
fn recorded_trainings_hold_what_the_page_says() {
    assert_overheads("lstm", ["1.005", "1.981", "1.575"]);
    assert_overheads("gat", ["1.011", "13.688", "1.101"]);
}
