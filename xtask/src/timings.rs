//! `cargo xtask test --timings`: times of both commands on clean clones, as a table in
//! `target/timings.md`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::limits::succeed;
use crate::workspace::{Workspace, cargo_program};

/// Files that get one more function each, by crate.
const CHANGED: [(&str, &str); 7] = [
    ("trainer", "crates/trainer/src/lib.rs"),
    ("bars", "crates/bars/src/lib.rs"),
    ("chunk-io", "crates/chunk-io/src/lib.rs"),
    ("graph-cache", "crates/graph-cache/src/lib.rs"),
    ("run", "crates/run/src/lib.rs"),
    ("cli", "crates/cli/src/main.rs"),
    ("gpu-core", "crates/gpu-core/src/lib.rs"),
];

/// Times of one command in every round.
struct Row {
    name: String,
    goal: &'static str,
    times: Vec<Spent>,
}

/// Time of one run of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spent {
    wall_s: f64,
    /// User and system time of the command and its children; the reliable figure on a machine that
    /// does other work.
    cpu_s: f64,
}

/// A clone of the last commit, with build outputs and kernel objects of its own.
struct Clone {
    folder: PathBuf,
}

pub(crate) fn run(workspace: &Workspace, rounds: usize) -> Result<()> {
    let page = workspace.target_dir.join("timings.md");
    let mut rows: Vec<Row> = Vec::new();
    for round in 1..=rounds {
        println!("round {round} of {rounds}");
        let clone = Clone::make(workspace)?;
        let mut add = |name: &str, goal, spent| add_time(&mut rows, name, goal, spent);
        add("`cargo xtask demo`, cold", "≤ 5 min", clone.xtask("demo cold", &["demo"])?);
        add("`cargo xtask test`, cold, after the demo", "≤ 12 min", clone.xtask("test cold", &["test"])?);
        add("`cargo xtask test`, nothing changed", "≤ 60 s", clone.xtask("test warm", &["test"])?);
        for (index, (name, file)) in CHANGED.into_iter().enumerate() {
            clone.add_function(file, round * CHANGED.len() + index)?;
            let spent = clone.xtask(&format!("test after a change of {name}"), &["test"])?;
            let goal = if name == "gpu-core" { "≤ 6 min" } else { "≤ 3 min" };
            add(&format!("`cargo xtask test`, one function changed in {name}"), goal, spent);
        }
        let clone = Clone::make(workspace)?;
        add("`.ci/run`, clean clone", "≤ 18 min", clone.time(".ci/run", clone.command(Path::new(".ci/run"), &[]))?);
        let table = format!("{}\n{}", machine(workspace)?, table(&rows));
        fs::write(&page, table).with_context(|| format!("cannot write {}", page.display()))?;
        clone.remove()?;
    }
    println!("written: {}", page.display());
    Ok(())
}

fn add_time(rows: &mut Vec<Row>, name: &str, goal: &'static str, spent: Spent) {
    println!("  {name}: {}", spent.text());
    match rows.iter_mut().find(|row| row.name == name) {
        Some(row) => row.times.push(spent),
        None => rows.push(Row { name: name.to_owned(), goal, times: vec![spent] }),
    }
}

impl Clone {
    fn make(workspace: &Workspace) -> Result<Self> {
        let clone = Clone { folder: workspace.target_dir.join("timings") };
        clone.remove()?;
        let mut git = Command::new("git");
        git.args(["clone", "--quiet", "--no-hardlinks"]).arg(&workspace.root).arg(clone.folder.join("megabatch"));
        succeed(&mut git)?;
        Ok(clone)
    }

    fn remove(&self) -> Result<()> {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder).with_context(|| format!("cannot remove {}", self.folder.display()))?;
        }
        Ok(())
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.folder.join("megabatch"));
        command.env("CARGO_TARGET_DIR", self.folder.join("megabatch/target"));
        command.env("MEGABATCH_CACHE", self.folder.join("cache"));
        command
    }

    fn xtask(&self, what: &str, args: &[&str]) -> Result<Spent> {
        let args = [&["xtask"], args].concat();
        self.time(what, self.command(Path::new(&cargo_program()), &args))
    }

    /// Runs a command to its end; its output goes to a file.
    fn time(&self, what: &str, mut command: Command) -> Result<Spent> {
        let log = self.folder.join("log.txt");
        let output = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let (start, cpu_before) = (Instant::now(), cpu_seconds_of_children()?);
        let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
        let spent = Spent { wall_s: start.elapsed().as_secs_f64(), cpu_s: cpu_seconds_of_children()? - cpu_before };
        if !status.success() {
            bail!("{what}: ended with {status}; its output is {}", log.display());
        }
        Ok(spent)
    }

    /// Appends a function to `file`, which changes the compiled crate and no behaviour.
    fn add_function(&self, file: &str, number: usize) -> Result<()> {
        let path = self.folder.join("megabatch").join(file);
        let mut text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        text += &format!(
            "\n/// Changes the crate.\n#[doc(hidden)]\n#[allow(dead_code, unreachable_pub, reason = \"made to be compiled\")]\n\
             pub fn changed_{number}(x: usize) -> usize {{\n    x.wrapping_mul({number})\n}}\n"
        );
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// User and system time of the children that this process has waited for: fields 16 and 17 of
/// `/proc/self/stat`.
fn cpu_seconds_of_children() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("--timings needs Linux")?;
    // The second field is the program's name in parentheses, which may hold blanks.
    let (_, fields) = stat.rsplit_once(')').context("no name in /proc/self/stat")?;
    let ticks: Vec<f64> = fields.split_whitespace().skip(13).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

fn machine(workspace: &Workspace) -> Result<String> {
    let cpu = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name\t: ")).unwrap_or("unknown");
    let cores = std::thread::available_parallelism()?;
    let git = |args: &[&str]| -> Result<String> {
        let output = Command::new("git").args(args).current_dir(&workspace.root).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    };
    let (commit, date) = (git(&["rev-parse", "--short", "HEAD"])?, git(&["log", "-1", "--format=%cs"])?);
    Ok(format!(
        "{model}, {cores} cores; commit {commit} of {date}. Medians, with CPU time (user and system) after the slash.\n"
    ))
}

fn table(rows: &[Row]) -> String {
    let mut text = "| command | goal | wall / CPU | rounds |\n| --- | --- | --- | --- |\n".to_owned();
    for row in rows {
        let median = |part: fn(&Spent) -> f64| {
            let mut times: Vec<f64> = row.times.iter().map(part).collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let spent = Spent { wall_s: median(|spent| spent.wall_s), cpu_s: median(|spent| spent.cpu_s) };
        text += &format!("| {} | {} | {} | {} |\n", row.name, row.goal, spent.text(), row.times.len());
    }
    text
}

impl Spent {
    fn text(self) -> String {
        let minutes = |seconds: f64| format!("{} min {:02} s", seconds as u64 / 60, seconds as u64 % 60);
        format!("{} / {}", minutes(self.wall_s), minutes(self.cpu_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_medians() {
        let spent = |wall_s| Spent { wall_s, cpu_s: wall_s * 2.0 };
        let mut rows = Vec::new();
        for wall_s in [300.0, 61.0, 90.5] {
            add_time(&mut rows, "demo", "≤ 5 min", spent(wall_s));
        }
        let table = table(&rows);
        assert!(table.ends_with("| demo | ≤ 5 min | 1 min 30 s / 3 min 01 s | 3 |\n"), "{table}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_time_of_children_is_read() {
        assert!(cpu_seconds_of_children().unwrap() >= 0.0);
    }
}
