use std::num::NonZeroUsize;

use megabatch_gpu_core::Buffer;
use megabatch_gpu_core::snapshot::Snapshot;
use megabatch_trainer::Trainer;

use super::*;
use crate::config::Config;
use crate::host::Host;
use crate::memory::SnapshotOptions;
use crate::plan::{Plan, advise_smaller_model};
use crate::setup::{Intent, Request};
use crate::synth::{SampleOptions, SampleWindows, make_samples};
use crate::train::fixtures;
use crate::train::session::{Begin, Session};

/// A job on synthetic data in `folder`, with `settings`.
fn setup(folder: &std::path::Path, settings: &[&str]) -> TrainingSetup {
    let data = folder.join("series.h5");
    if !data.exists() {
        let count = |count| NonZeroUsize::new(count).unwrap();
        let options = SampleOptions {
            samples: count(200),
            windows: SampleWindows::Named("M1:4,M5:3".parse().unwrap()),
            features: count(3),
            targets: count(2),
            ..SampleOptions::default()
        };
        make_samples(&data, &options).unwrap();
    }
    let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    let config = Config::load(None, &[], &settings).unwrap();
    TrainingSetup::open(Request { data: Some(&data), ..Request::new(config, Intent::Run, &Host::silent()) }).unwrap()
}

fn epoch(epoch: u64) -> Event<'static> {
    fixtures::epoch(epoch, 10 * (epoch + 1))
}

fn step(step: u64) -> Event<'static> {
    Event::Step(fixtures::step(step))
}

#[test]
fn a_leak_is_named_at_the_end_of_the_epoch_in_which_it_passes_the_threshold() {
    let folder = tempfile::tempdir().unwrap();
    for (setting, expected) in [("1", Some(5)), ("4", Some(6)), ("none", None)] {
        let setup = setup(folder.path(), &[&format!("gpu_optimization.leak_warning_mb={setting}")]);
        let mut watch = MemoryWatch::new(&setup, 0);
        let _steady = Buffer::<u8>::zeros(&setup.device.scope("steady"), 5_000_000).unwrap();
        let mut leaked = Vec::new();
        let mut found = None;
        for k in 0..6 {
            leaked.push(Buffer::<u8>::zeros(&setup.device.scope("forgotten/states"), 1_000_001).unwrap());
            found = found.or(watch.see(&epoch(k)));
        }
        assert_eq!(found.as_ref().map(|found| found.epoch + 1), expected, "{setting}");
        if let (Some(found), "1") = (found, setting) {
            let sentence =
                "memory grows from epoch to epoch, 3.00 MB so far: forgotten/states by 1.00 MB in each of 3 epochs";
            assert_eq!(found.sentence(), sentence);
            let metric = found.metric();
            assert_eq!((&metric["event"], &metric["step"]), (&json!("leak"), &json!(50)));
            let owner =
                json!({ "owner": "forgotten/states", "bytes": 3_000_003, "epochs": 3, "bytes_per_epoch": 1_000_001 });
            assert_eq!(metric["owners"], json!([owner]));
        }
    }
}

#[test]
fn the_largest_peak_of_all_epochs_is_that_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let setup = setup(folder.path(), &[]);
    let mut watch = MemoryWatch::new(&setup, 0);
    let data_bytes = setup.held_bytes();
    for (k, bytes) in [1_000, 9_000, 2_000].into_iter().enumerate() {
        drop(Buffer::<u8>::zeros(&setup.device.scope("batches"), bytes).unwrap());
        watch.see(&epoch(k as u64));
        assert_eq!(setup.device.usage().allocated_bytes_peak, data_bytes);
    }
    let page = format!("{:?}", watch.into_peaks());
    assert!(page.contains(&format!("total: {}", data_bytes + 9_000)) && page.contains("(\"batches\", 9000)"), "{page}");
}

#[test]
fn memory_that_is_kept_is_given_back_when_it_is_due() {
    for (every, due) in
        [(0, vec![]), (1, vec![1, 2, 3, 4, 5, 6]), (4, vec![2, 4, 6]), (3, vec![2, 3, 5, 6]), (100, vec![])]
    {
        let found: Vec<u64> = (1..=6).filter(|&step| is_due(2 * (step - 1), 2 * step, every)).collect();
        assert_eq!(found, due, "every {every} batches, two a step");
    }
    let folder = tempfile::tempdir().unwrap();
    for (setting, event) in [
        ("gpu_optimization.empty_cache_every_n_epochs=1", epoch(0)),
        ("gpu_optimization.empty_cache_every_n_batches=1", step(1)),
    ] {
        let setup = setup(folder.path(), &[setting]);
        drop(Buffer::<u8>::zeros(&setup.device.scope("passing"), 64 << 20).unwrap());
        MemoryWatch::new(&setup, 0).see(&event);
        assert!(setup.device.stats().reserved_bytes.now < 64 << 20, "{setting}");
    }
}

#[test]
fn a_run_over_its_budget_leaves_a_map_of_its_memory() {
    let folder = tempfile::tempdir().unwrap();
    let setup = setup(folder.path(), &["model.hidden=64"]);
    let plan = Plan::new(&setup).unwrap();
    record(&setup);
    // Less than weights and moments take, of which nothing can be cut, as when others take memory
    // after the plan was made.
    let held = setup.held_bytes();
    setup.device.set_budget_bytes(Some(held + plan.memory.training.parameters_bytes + 1));
    let run = RunFolder::new(&folder.path().join("run")).unwrap();
    for n in 1..=2 {
        let error = Trainer::new(&setup.device, setup.training.clone(), plan.shape.clone()).unwrap_err();
        let error = explain_shortage(&run, &setup.device, error.into());
        let path = run.shortage_file(n);
        assert_eq!(error.kind(), Kind::Capacity);
        let message = error.exact_message();
        let advice = format!("`megabatch memory snapshot {}`", path.display());
        assert!(message.contains("would pass the budget of") && message.contains(&advice), "{message}");

        let snapshot = Snapshot::from_json(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let shortage = snapshot.shortage.as_ref().unwrap();
        assert!(message.starts_with(&shortage.message), "{message}");
        assert!(snapshot.blocks().any(|block| block.owner.as_deref() == Some("model/parameters")));
        crate::memory::snapshot(&path, &SnapshotOptions::default()).unwrap();
    }
    let other = explain_shortage(&run, &setup.device, Error::usage("anything else"));
    assert_eq!(other.exact_message(), "anything else");
}

/// A session of a few steps whose requests for memory of these numbers are refused once it has
/// begun: what came of it, and its folder.
fn session_with_refused(requests: std::ops::Range<u64>, folder: &std::path::Path) -> (Result<()>, RunFolder) {
    let setup = setup(folder, &["model.hidden=32", "training.max_steps=3", "gpu_optimization.batch_size=64"]);
    let plan = Plan::new(&setup).unwrap();
    record(&setup);
    let trainer = Trainer::new(&setup.device, setup.training.clone(), plan.shape.clone()).unwrap();
    setup.device.refuse_requests(requests);
    let run = RunFolder::new(&folder.join("run")).unwrap();
    let session = Session { setup, plan, folder: RunFolder::new(&folder.join("run")).unwrap(), told: Vec::new() };
    let outcome = session.train(trainer, Begin::Anew, &Host::silent()).map(drop);
    (outcome.map_err(|error| advise_smaller_model(&session.setup, error)), run)
}

#[test]
fn a_run_that_gets_less_than_planned_goes_on_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (outcome, run) = session_with_refused(0..1, folder.path());
    outcome.unwrap();
    let metrics = std::fs::read_to_string(run.metrics_file()).unwrap();
    let lines: Vec<Value> = metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    assert_eq!(events("step").len(), 3);
    let cut = events("shortage")[0];
    assert_eq!((&cut["step"], &cut["batch_size"], &cut["planned_batch_size"]), (&json!(0), &json!(32), &json!(64)));
    assert!(cut["cause"].as_str().unwrap().starts_with("batches: "), "{cut}");
    let snapshot = std::fs::read_to_string(run.shortage_file(1)).unwrap();
    assert!(Snapshot::from_json(&snapshot).unwrap().shortage.is_some());
}

/// A GPU adds up whole batches, and the note promised the same result of those that are cut.
#[test]
fn sums_of_batches_that_are_cut_on_a_gpu_are_said_to_differ() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = setup(folder.path(), &[]);
    let run = RunFolder::new(&folder.path().join("run")).unwrap();
    let cut = |batch_size| ShortageEvent {
        step: 3,
        cause: "too much".to_owned(),
        batch_size,
        planned_batch_size: 64,
        releases_series: true,
        releases_windows: false,
        releases_graphs: false,
        gradient_checkpointing: false,
        chunk_percent: 100,
    };
    for (gpu, batch_size, is_rounded) in
        [(None, 32, false), (Some(Device::cpu()), 64, false), (Some(Device::cpu()), 32, true)]
    {
        setup.gpu = gpu;
        let told = MemoryWatch::new(&setup, 0).went_on(&run, &cut(batch_size));
        let result = if is_rounded { "to the same result but for the last bits of sums" } else { "to the same result" };
        assert!(told.ends_with(result), "{told}");
    }
}

#[test]
fn a_run_that_gets_nothing_names_a_model_that_would_fit() {
    let folder = tempfile::tempdir().unwrap();
    let (outcome, _) = session_with_refused(0..u64::MAX, folder.path());
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), Kind::Capacity);
    let message = error.exact_message();
    for part in ["nothing left to cut in batches of 1", "model.hidden=16 would fit into the", "--resume goes on"] {
        assert!(message.contains(part), "{message}");
    }
}
