//! Several processes, some of which are killed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use megabatch_graph_cache::{BuildOptions, BuildProgress, GraphCache, GraphFile, build_cached, unwatched};

use crate::MadeUp;

const PATH: &str = "MEGABATCH_TEST_GRAPHS";
const GRAPHS: usize = 400;

fn builder() -> MadeUp {
    MadeUp::new(9, GRAPHS, 8)
}

/// In a child of the other tests: builds the file and tells each graph that is written, and at last
/// how many it has built itself.
#[test]
fn child() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let builder = builder();
    let tell = |line: String| {
        // Whole lines at once: the reader may kill this process after any of them.
        std::io::stdout().write_all(line.as_bytes()).and_then(|()| std::io::stdout().flush()).unwrap();
    };
    let mut progress = |progress| {
        match progress {
            BuildProgress::Written { graphs, .. } => tell(format!("\nwritten {graphs}\n")),
            _ => tell("\nwaiting\n".to_owned()),
        }
        ControlFlow::Continue(())
    };
    let file = build_cached(path, &builder, &BuildOptions::default(), &mut progress).unwrap();
    assert_eq!(file.len(), GRAPHS);
    tell(format!("\nbuilt {}\n", builder.built()));
}

fn start(path: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::child", "--nocapture", "--test-threads", "1"])
        .env(PATH, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().expect("the output is piped"));
    (child, output)
}

#[test]
fn one_of_eight_processes_builds_and_all_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mbg");
    let children: Vec<_> = (0..8).map(|_| start(&path)).collect();
    let mut built = Vec::new();
    for (mut child, output) in children {
        let lines = output.lines().map_while(Result::ok);
        built.extend(lines.filter_map(|line| line.strip_prefix("built ")?.parse::<usize>().ok()));
        assert!(child.wait().unwrap().success());
    }
    built.sort_unstable();
    assert_eq!(built, [0, 0, 0, 0, 0, 0, 0, GRAPHS]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn a_process_that_is_killed_anywhere_is_continued_to_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.mbg");
    build_cached(&whole, &builder(), &BuildOptions::default(), &mut unwatched).unwrap();
    let whole = fs::read(whole).unwrap();
    let mut state = 12345u64;
    let mut kills = 0;
    for round in 0..4 {
        let path = folder.path().join(format!("{round}.mbg"));
        let mut reached = 0;
        while !path.exists() {
            let (mut child, output) = start(&path);
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let patience = (state >> 33) as usize % 60;
            let written: Vec<usize> = output
                .lines()
                .map_while(Result::ok)
                .filter_map(|line| line.strip_prefix("written ")?.parse().ok())
                .take(patience + 1)
                .collect();
            assert!(written[0] >= reached, "what was written is kept: {reached}, then {written:?}");
            reached = *written.last().expect("it tells at least where it begins");
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
        }
        assert!(fs::read(&path).unwrap() == whole, "round {round}");
        build_cached(&path, &builder(), &BuildOptions::default(), &mut unwatched).unwrap();
    }
    assert!(kills > 12, "{kills}");
}

#[test]
fn a_file_that_another_process_reads_is_not_collected() {
    let folder = tempfile::tempdir().unwrap();
    let cache = GraphCache::open(folder.path(), 0).unwrap();
    let options = BuildOptions::default();
    let path = cache.path(&builder(), &options).unwrap();
    drop(cache.get(&builder(), &options, &mut unwatched).unwrap());
    assert!(path.exists(), "the file that is asked for stays whatever the limit");
    let mut reader = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::reader", "--nocapture"])
        .env(READ, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(reader.stdout.take().expect("the output is piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "open"));
    assert_eq!(cache.collect().unwrap().removed.len(), 0);
    fs::remove_file(&path).unwrap();
    writeln!(reader.stdin.take().expect("the input is piped"), "go").unwrap();
    assert!(lines.any(|line| line == "read"), "a reader keeps what it has opened");
    assert!(reader.wait().unwrap().success());
}

const READ: &str = "MEGABATCH_TEST_READ";

/// In a child of the test above: opens the file, waits for a line, and reads all graphs.
#[test]
fn reader() {
    let Some(path) = std::env::var_os(READ) else { return };
    let file = GraphFile::open(path).unwrap();
    println!("\nopen");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let edges: usize = (0..file.len()).map(|index| file.graph(index).unwrap().csr().edges()).sum();
    assert!(edges > 0);
    println!("\nread");
}
