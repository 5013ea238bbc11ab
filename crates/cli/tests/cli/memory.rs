//! `memory`: traces in, what each policy makes of them out.

use serde_json::Value;

use crate::stage::Stage;

/// Three blocks of 40 MiB; the middle one goes, and one of 50 MiB is wanted.
const HOLE: &str = r#"{"op":"alloc","id":1,"bytes":41943040}
{"op":"alloc","id":2,"bytes":41943040,"stream":0}
{"op":"alloc","id":3,"bytes":41943040,"note":"keys of others are ignored"}

{"op":"step"}
{"op":"free","id":1}
{"op":"free","id":3}
{"op":"alloc","id":1,"bytes":52428800}
"#;

fn with_hole() -> Stage {
    let stage = Stage::new();
    stage.write("trace.jsonl", HOLE);
    stage
}

#[test]
fn a_replay_answers_with_the_keys_that_programs_read() {
    let stage = with_hole();
    let answer = |policy: &str, capacity: &str| {
        stage.succeeds(&format!("memory replay trace.jsonl --capacity {capacity} --policy {policy}"))
    };
    for policy in ["megabatch", "pytorch", "pytorch-expandable"] {
        let answer = answer(policy, "1GiB");
        assert_eq!(answer["policy"], policy);
        assert_eq!(answer["oom"], false, "{answer}");
        assert_eq!(answer["oom_at"], Value::Null);
        assert_eq!(answer["peak_live_bytes"], 120 << 20);
        assert!(answer["peak_reserved_bytes"].as_u64().unwrap() >= 120 << 20, "{answer}");
        let fragmentation = answer["fragmentation_max"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&fragmentation), "{answer}");
        assert!(answer["driver_calls"].as_u64().unwrap() > 0, "{answer}");
        assert_eq!(answer["bytes_copied"], 0, "{answer}");
    }
    // Both holes go back to the device, 80 MiB in all, and no piece of it is too small for pages or
    // granules.
    assert_eq!(answer("pytorch", "125829120")["oom"], false);
}

#[test]
fn memory_that_runs_out_is_an_answer_and_no_error() {
    let stage = Stage::new();
    // One segment of 120 MiB, of which a block of 40 MiB in the middle stays.
    let text = r#"{"op":"alloc","id":1,"bytes":125829120}
{"op":"free","id":1}
{"op":"alloc","id":1,"bytes":41943040}
{"op":"alloc","id":2,"bytes":41943040}
{"op":"alloc","id":3,"bytes":41943040}
{"op":"free","id":1}
{"op":"free","id":3}
{"op":"alloc","id":4,"bytes":52428800}
"#;
    stage.write("trace.jsonl", text);
    let line = "memory replay trace.jsonl --capacity 120MiB --policy pytorch,megabatch";
    let answer = stage.succeeds(line);
    let short = &answer["pytorch"];
    assert_eq!(short["oom"], true, "{short}");
    assert_eq!(short["oom_at"]["line"], 8);
    assert_eq!(short["oom_at"]["requested_bytes"], 50 << 20);
    assert_eq!(short["oom_at"]["largest_free_bytes"], 40 << 20);
    assert_eq!(answer["megabatch"]["oom"], false, "two holes make one block: {answer}");
    let text = stage.said(line);
    assert!(text.contains("pytorch: out of memory on line 8: 50.00 MiB asked for with 40.00 MiB allocated"), "{text}");
    assert!(text.contains("megabatch: every request was met"), "{text}");
}

#[test]
fn a_trace_comes_from_standard_input_too_and_every_policy_sees_it() {
    let stage = with_hole();
    let command = stage.command("memory replay - --capacity 1GiB --policy all --json");
    let output = assert_cmd::Command::from_std(command).write_stdin(HOLE).assert().success();
    let answer: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    for policy in ["megabatch", "pytorch", "pytorch-expandable"] {
        assert_eq!(answer[policy]["events"], 7, "{answer}");
    }
}

#[test]
fn a_trace_that_is_none_is_an_error_of_the_data() {
    let stage = Stage::new();
    for (text, says) in [
        ("{\"op\":\"step\"}\n{\"op\":\"malloc\"}\n", "line 2: expected the op alloc, free or step, found `malloc`"),
        ("{\"op\":\"free\",\"id\":3}\n", "line 1: block 3 is freed and is not live"),
        ("{\"op\":\"alloc\",\"id\":3,\"bytes\":-1}\n", "line 1: `bytes`: expected a whole number"),
        ("PK\u{3}\u{4}", "line 1: expected one JSON object"),
        // What follows a request that cannot be met is looked at too.
        ("{\"op\":\"alloc\",\"id\":3,\"bytes\":99999999999}\nstep\n", "line 2: expected one JSON object"),
    ] {
        stage.write("trace.jsonl", text);
        for message in stage.fails("memory replay trace.jsonl --capacity 1GiB", 3) {
            assert!(message.contains("trace.jsonl: ") && message.contains(says), "{text}: {message}");
        }
    }
    for name in ["absent.jsonl", "."] {
        let [message, _] = stage.fails(&format!("memory replay {name} --capacity 1GiB"), 3);
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn what_is_asked_for_wrongly_is_an_error_of_usage() {
    let stage = with_hole();
    for line in [
        "memory",
        "memory replay trace.jsonl",
        "memory replay trace.jsonl --capacity much",
        "memory replay trace.jsonl --capacity 0",
        "memory replay trace.jsonl --capacity 1GiB --policy jemalloc",
        "memory trace no-such-pattern out.jsonl",
        "memory trace comb absent/out.jsonl",
    ] {
        let assert = stage.run(line).code(2).stdout("");
        assert!(!assert.get_output().stderr.is_empty(), "`{line}`");
    }
}

#[test]
fn the_field_case_is_what_its_page_says() {
    let stage = Stage::new();
    stage.succeeds("memory trace field-case trace.jsonl");
    let answer = stage.succeeds("memory replay trace.jsonl --capacity 44.18GiB --policy pytorch,megabatch");
    let gib = |value: &Value| format!("{:.2}", value.as_u64().unwrap() as f64 / f64::from(1 << 30));
    let short = &answer["pytorch"]["oom_at"];
    assert_eq!([&short["allocated_bytes"], &short["requested_bytes"]].map(gib), ["36.78", "4.15"]);
    let held = short["reserved_bytes"].as_u64().unwrap() - short["allocated_bytes"].as_u64().unwrap();
    assert_eq!(gib(&held.into()), "3.56");
    assert_eq!(answer["megabatch"]["oom"], false, "{answer}");
    assert_eq!(answer["megabatch"]["bytes_copied"], 0, "{answer}");
}
