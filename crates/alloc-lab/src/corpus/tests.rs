use megabatch_gpu_core::source::StreamId;

use super::field_case::{FIELD_CASE, FieldCase};
use super::*;
use crate::{Policy, ReplayOutcome, TraceReader, replay};

fn play(pattern: &Pattern, policy: Policy) -> ReplayOutcome {
    let Ok(outcome) = replay(pattern.lines(0), policy, &pattern.limits());
    outcome
}

fn named(name: &str) -> &'static Pattern {
    pattern(name).unwrap()
}

/// Bytes as GiB with two decimals, as reports give them.
fn gib(bytes: usize) -> String {
    format!("{:.2}", bytes as f64 / GIB as f64)
}

#[test]
fn every_pattern_is_a_trace_that_frees_all_it_takes_and_depends_on_its_seed_alone() {
    for pattern in PATTERNS {
        let events = pattern.events(1);
        assert_eq!(events, pattern.events(1), "{}", pattern.name);
        let mut text = Vec::new();
        events.iter().for_each(|event| event.write_line(&mut text).unwrap());
        let read: Vec<TraceEvent> = TraceReader::new(text.as_slice()).map(|line| line.unwrap().event).collect();
        assert_eq!(read, events, "{}", pattern.name);
        let count = |wanted: fn(&TraceEvent) -> bool| events.iter().filter(|event| wanted(event)).count();
        let allocated = count(|event| matches!(event, TraceEvent::Alloc { .. }));
        assert_eq!(allocated, count(|event| matches!(event, TraceEvent::Free { .. })), "{}", pattern.name);
        assert!(PATTERNS.iter().filter(|other| other.name == pattern.name).count() == 1);
    }
}

#[test]
fn the_patterns_of_the_field_have_the_figures_that_were_reported() {
    let half = TraceSize::measure(&named("half-mebibytes").events(0));
    assert_eq!(half.smallest_block_bytes / KIB, 256);
    let grown = TraceSize::measure(&named("reserved-growth").events(0));
    assert_eq!(grown.peak_live_bytes, 266 * MIB + 136 * MIB + MIB / 2);
    let long = TraceSize::measure(&named("long-run").events(0));
    assert!(long.events >= 1_000_000 && long.is_promised());
    let two = named("two-streams").events(0);
    assert!(two.iter().any(|event| matches!(event, TraceEvent::Alloc { stream: StreamId(1), .. })));
}

#[test]
fn the_model_grows_as_pytorch_was_measured_to_grow() {
    // Allocated and reserved MiB after every twentieth cycle, from the report.
    let reported = [(66, 220), (106, 2_980), (146, 5_760), (186, 8_520), (226, 11_300), (266, 14_060)];
    let pattern = named("reserved-growth");
    let limits = pattern.limits();
    let events = pattern.events(0);
    for (k, (allocated, reserved)) in reported.into_iter().enumerate() {
        let boundary = 20 * k + 1;
        let steps = events.iter().enumerate().filter(|(_, event)| **event == TraceEvent::Step);
        let end = steps.map(|(index, _)| index).nth(boundary - 1).unwrap();
        let lines =
            || (1..).zip(&events[..=end]).map(|(number, &event)| Ok::<_, Infallible>(TraceLine { number, event }));
        let Ok(outcome) = replay(lines(), Policy::PyTorchExpandable, &limits);
        assert_eq!(outcome.peak_reserved_bytes, reserved * MIB, "cycle {}", boundary - 1);
        let live: usize = 64 + 2 * boundary;
        assert_eq!(live, allocated);
        // "Either option on its own keeps reserved under 500 MiB."
        let unlimited = Limits { max_split_bytes: None, ..limits };
        let Ok(outcome) = replay(lines(), Policy::PyTorchExpandable, &unlimited);
        assert!(outcome.peak_reserved_bytes < 500 * MIB, "{outcome:?}");
        let Ok(outcome) = replay(lines(), Policy::PyTorch, &limits);
        assert!(outcome.peak_reserved_bytes < 500 * MIB, "{outcome:?}");
    }
}

#[test]
fn pytorch_runs_out_in_the_field_case_with_the_figures_of_the_report() {
    let outcome = play(named("field-case"), Policy::PyTorch);
    let short = outcome.out_of_memory.unwrap_or_else(|| panic!("{outcome:?}"));
    assert_eq!(short.requested_bytes, FIELD_CASE.requested_bytes);
    assert_eq!(short.allocated_bytes, FIELD_CASE.allocated_bytes);
    assert_eq!(short.live_bytes, FIELD_CASE.allocated_bytes);
    assert_eq!(short.reserved_bytes - short.allocated_bytes, FIELD_CASE.unusable_bytes);
    assert_eq!(outcome.peak_inactive_split_bytes, FIELD_CASE.unusable_bytes);
    let FieldCase { capacity_bytes, allocated_bytes, unusable_bytes, requested_bytes } = FIELD_CASE;
    let device_free_bytes = capacity_bytes - allocated_bytes - unusable_bytes;
    let figures = [capacity_bytes, allocated_bytes, unusable_bytes, device_free_bytes, requested_bytes];
    assert_eq!(figures.map(gib), ["44.18", "36.78", "3.56", "3.84", "4.15"]);
    assert!(device_free_bytes + unusable_bytes > requested_bytes, "there is enough in all");
}

#[test]
fn robsons_bound_is_as_published() {
    // For blocks of one size it is the live memory; for n = 2, 3 M / 2 - 1.
    assert_eq!(robson_bound_bytes(1024, 1, 1), 1024);
    assert_eq!(robson_bound_bytes(1024, 1, 2), 1535);
    assert_eq!(robson_bound_bytes(64 * MIB, 512, MIB), (131_072 * 13 / 2 - 2048 + 1) * 512);
}

#[test]
fn robsons_program_makes_first_fit_hold_several_times_what_is_live() {
    let outcome = play(named("small-blocks"), Policy::PyTorchExpandable);
    assert_eq!(outcome.peak_live_bytes, 64 * MIB);
    assert!(outcome.overhead() > 2.0, "{outcome:?}");
}

#[test]
fn our_pool_meets_the_field_case() {
    let outcome = play(named("field-case"), Policy::Megabatch);
    assert_eq!(outcome.out_of_memory, None);
    assert!(outcome.stitches > 0, "no free run of 4.15 GiB is left: {outcome:?}");
}

/// Patterns that miss the goal, and what they are held to instead: their blocks are hardly larger
/// than granules, nothing may be moved, and what is left free at the ends of live blocks is no
/// whole granule.
const MISSED: &[(&str, f64)] = &[("odd-comb", 1.16), ("narrow-churn", 1.11)];

#[test]
fn our_pool_holds_hardly_more_than_what_is_live() {
    for pattern in PATTERNS.iter().filter(|pattern| TraceSize::measure(&pattern.events(0)).is_promised()) {
        let missed = MISSED.iter().find(|(name, _)| *name == pattern.name);
        let (least, most) = missed.map_or((1.0, 1.02), |&(_, most)| (1.02, most));
        let outcome = play(pattern, Policy::Megabatch);
        assert_eq!(outcome.out_of_memory, None, "{}", pattern.name);
        assert!((least..=most).contains(&outcome.overhead()), "{}: {:.4}", pattern.name, outcome.overhead());
    }
}

#[test]
fn a_repeated_step_calls_no_driver_from_its_third_time_on() {
    for (name, steps) in [("repeated-steps", 20), ("long-run", 200)] {
        let pattern = named(name);
        let roomy = play(pattern, Policy::Megabatch);
        // With room for hardly more than what is live, blocks have to be stitched from what is left
        // between others.
        let tight = Limits { capacity_bytes: roomy.peak_live_bytes * 102 / 100, max_split_bytes: None };
        let Ok(tight) = replay(pattern.lines(0), Policy::Megabatch, &tight);
        for outcome in [roomy, tight] {
            assert_eq!((outcome.out_of_memory, outcome.steps), (None, steps), "{name}");
            assert!(outcome.quiet_steps >= steps - 2, "{name}: {outcome:?}");
        }
    }
}
