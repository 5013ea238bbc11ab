//! The gate `tests`: every test program, by cargo-nextest or, without it, by `cargo test`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use megabatch_test_support::{Skipped, recorded};

use crate::limits::succeed;
use crate::nextest::{self, Nextest, Suite, TestProgram, TimedTest};
use crate::session::{Depth, Session};
use crate::sources::{hash_of, stamp_of_file};
use crate::{limits, property_tests, skipped, tools};

/// Tests that take longer are listed at the end.
const SLOW_SECONDS: f64 = 2.0;

/// The program that runs the commands of the documentation's pages.
const PAGES: &str = "megabatch::pages";

/// Integration tests that use the fake driver, of which a process has one: without nextest they run
/// test after test, on one CPU.
const ON_FAKE_DRIVER: [&str; 2] = ["cuda", "gpu"];

pub(crate) fn run(session: &Session) -> Result<()> {
    match Nextest::find(&session.workspace) {
        Some(nextest) => by_nextest(session, &nextest)?,
        None => by_cargo(session)?,
    }
    documentation_tests(session)
}

/// Documentation tests, unless no library has changed since they passed.
fn documentation_tests(session: &Session) -> Result<()> {
    let mut key = vec![session.sources.crates_key(), u64::from(session.depth == Depth::Thorough)];
    key.extend(session.packages.iter().map(hash_of));
    session.passed.unless_unchanged("documentation tests", hash_of(&key), || {
        // The packages that the other tests are built for: a smaller choice would unify other
        // features, and compile most crates again.
        let mut test = session.cargo(&["test", "--locked", "--doc"])?;
        test.args(session.package_arguments());
        prepare(session, &mut test)?;
        succeed(&mut test)
    })
}

/// Sets the number of cases of every property test, and the events of the simulated pool.
pub(crate) fn with_cases(command: &mut Command, depth: Depth) {
    // The same cases in every run: the gate is for the change at hand. `cargo test` draws other
    // cases each time and finds rare failures.
    command.env("PROPTEST_RNG_SEED", "1");
    match depth {
        Depth::Usual => command.env("PROPTEST_CASES", "16"),
        Depth::Thorough => command.env("PROPTEST_CASES", "256").env("MEGABATCH_SIMULATION_EVENTS", "1000000"),
    };
}

fn prepare(session: &Session, command: &mut Command) -> Result<()> {
    with_cases(command, session.depth);
    command.env("MEGABATCH_PYTHON", tools::python_for_tests(&session.workspace)?);
    command.env(skipped::RECORD, skipped::path(&session.workspace));
    tools::with_cmake(command, &session.workspace)?;
    Ok(())
}

/// Programs that have passed and have not changed since are skipped; those that failed a test run
/// again.
fn by_nextest(session: &Session, nextest: &Nextest) -> Result<()> {
    let mut list = nextest.command(&session.workspace, &["list", "--locked", "--list-type", "binaries-only"]);
    list.args(session.package_arguments());
    list.args(["--message-format", "json"]).stderr(Stdio::inherit());
    prepare(session, &mut list)?;
    let listing = limits::output(&mut list)?;
    if !listing.status.success() {
        bail!("the tests do not compile: {list:?} ended with {}", listing.status);
    }
    let programs = nextest::programs(&listing.stdout)?;
    let keys = programs.iter().map(|program| key(session, program)).collect::<Result<Vec<u64>>>()?;
    let mut changed = Vec::new();
    for (program, &key) in programs.iter().zip(&keys) {
        match session.passed.lines(&program.id, key) {
            Some(skipped_lines) => append(&skipped::path(&session.workspace), &skipped_lines)?,
            None => changed.push((program, key)),
        }
    }
    println!("{} test programs; {} unchanged since they passed", programs.len(), programs.len() - changed.len());
    if changed.is_empty() {
        return Ok(());
    }
    let chosen: Vec<&TestProgram> = changed.iter().map(|(program, _)| *program).collect();
    let mut run = test_run(session, nextest, &nextest::filter(&chosen))?;
    let (outcome, mut suites) = run_and_read(session, &mut run)?;
    record_times(session, &suites);
    let Some(properties) = property_tests::filter(session, &chosen)? else {
        record(session, &suites, &changed)?;
        return outcome;
    };
    let mut again = test_run(session, nextest, &properties)?;
    property_tests::with_changing_seed(&mut again, session);
    println!("property tests once more, with seed {}", property_tests::seed(session));
    let (outcome_again, suites_again) = run_and_read(session, &mut again)?;
    suites.extend(suites_again);
    record(session, &suites, &changed)?;
    outcome.and(outcome_again.with_context(|| {
        format!(
            "a property test fails with another seed; alone: PROPTEST_RNG_SEED={} cargo test …",
            property_tests::seed(session)
        )
    }))
}

/// `cargo nextest run` of the tests that `filter` chooses.
fn test_run(session: &Session, nextest: &Nextest, filter: &str) -> Result<Command> {
    let mut run = nextest.command(&session.workspace, &["run", "--locked", "--no-tests", "pass"]);
    run.args(session.package_arguments()).args(["--profile", nextest::PROFILE, "--filterset", filter]);
    prepare(session, &mut run)?;
    Ok(run)
}

/// Runs tests; gives their success and nextest's report of them.
fn run_and_read(session: &Session, run: &mut Command) -> Result<(Result<()>, Vec<Suite>)> {
    // nextest keeps its reports there wherever the build goes.
    let report = session.workspace.root.join("target/nextest").join(nextest::PROFILE).join("junit.xml");
    skipped::clear_file(&report)?;
    let outcome = succeed(run);
    let junit = fs::read_to_string(&report).with_context(|| format!("no report of nextest at {}", report.display()))?;
    Ok((outcome, nextest::suites(&junit)?))
}

/// Records the programs all of whose tests have passed, with the tests that they skipped.
fn record(session: &Session, suites: &[Suite], programs: &[(&TestProgram, u64)]) -> Result<()> {
    let skipped = recorded(&skipped::path(&session.workspace))?;
    for (program, key) in programs {
        // A program without tests has no suite.
        if suites.iter().any(|suite| suite.id == program.id && suite.failures > 0) {
            continue;
        }
        let name = program.path.file_name().unwrap_or_default().to_string_lossy();
        let in_program = skipped.iter().filter(|one| one.program == name);
        session.passed.record(&program.id, *key, &in_program.map(Skipped::line).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn record_times(session: &Session, suites: &[Suite]) {
    for suite in suites {
        let slow = suite.tests.iter().filter(|test| test.seconds > SLOW_SECONDS);
        let named = slow.map(|test| TimedTest { name: format!("{} {}", suite.id, test.name), seconds: test.seconds });
        session.timed.borrow_mut().extend(named);
    }
}

/// Key of a program: itself, what tests read, and for the CLI's tests the program that they start.
fn key(session: &Session, program: &TestProgram) -> Result<u64> {
    let reads_pages = program.id == PAGES || program.id.starts_with("xtask");
    let inputs = if reads_pages { session.sources.page_test_inputs_key() } else { session.sources.test_inputs_key() };
    let mut parts = vec![stamp_of_file(&program.path)?, inputs];
    parts.push(u64::from(session.depth == Depth::Thorough));
    if program.id.starts_with("megabatch::") {
        parts.push(stamp_of_file(&session.workspace.binary())?);
    }
    Ok(hash_of(&parts))
}

fn append(path: &Path, lines: &[String]) -> Result<()> {
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path)?;
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints the tests of this run that took longest.
pub(crate) fn report_slow(session: &Session) {
    let mut slow = session.timed.take();
    if slow.is_empty() {
        return;
    }
    slow.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    println!("{} tests took more than {SLOW_SECONDS} s", slow.len());
    slow.iter().for_each(|test| println!("  {:6.1} s  {}", test.seconds, test.name));
}

fn test(session: &Session, arguments: &[&str]) -> Result<Command> {
    let mut test = session.cargo(&["test", "--locked"])?;
    test.args(session.package_arguments()).args(arguments);
    prepare(session, &mut test)?;
    Ok(test)
}

fn by_cargo(session: &Session) -> Result<()> {
    succeed(&mut test(session, &["--no-run"])?)?;
    let packages = &session.workspace.packages;
    let names: BTreeSet<&str> = packages.iter().flat_map(|package| &package.tests).map(String::as_str).collect();
    let mut beside = test(session, &[])?;
    let mut rest = test(session, &["--lib", "--bins"])?;
    for name in names {
        let part = if ON_FAKE_DRIVER.contains(&name) { &mut beside } else { &mut rest };
        part.args(["--test", name]);
    }
    let output = thread::scope(|scope| {
        let beside = scope.spawn(|| limits::output(&mut beside));
        succeed(&mut rest)?;
        beside.join().expect("a command that is waited for does not panic")
    })?;
    println!("{}", String::from_utf8_lossy(&output.stdout));
    if output.status.success() { Ok(()) } else { bail!("tests on the fake driver ended with {}", output.status) }
}
