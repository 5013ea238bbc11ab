//! A disk that has no room for a checkpoint: the run says so and ends, the checkpoint before is
//! there, and with room it goes on to the same end.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use megabatch_test_support::{Requirement, skip};

use crate::stage::Stage;

/// A model whose optimizer state is larger than every other file of a short run.
const SETTINGS: &str =
    "--set training.on_nan=stop --set model.hidden=24 --set gpu_optimization.batch_size=16 --set training.lr=0.02";
/// Steps to the first checkpoint, and to the second.
const STEPS: [u64; 2] = [9, 18];

fn says(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_checkpoint_that_may_not_be_written_leaves_the_one_before() {
    let stage = Stage::with_series();
    let [first, second] = STEPS;
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps {first} {SETTINGS}"));
    let before = stage.checkpoint("run", first);
    // Between the size of the weights and that of the optimizer's moments, in the blocks of 512
    // bytes that `sh` counts in.
    let blocks = (before[0].len() + before[1].len()) / 2 / 512;
    let mut train = stage.command(&format!("train --out run --resume --max-steps {second}"));
    let output = limited(&mut train, blocks);
    let message = says(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    for part in [
        "optimizer.safetensors: cannot write: File too large",
        "no room for the run: make room",
        "--out run --resume` goes on",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    require_only(&stage.path("run"), first);
    assert!(stage.checkpoint("run", first) == before);
    assert_eq!(stage.succeeds("eval --run run")["step"], first);

    stage.succeeds(&format!("train --out run --resume --max-steps {second}"));
    super::check_same(&stage, SETTINGS, second);
}

/// A session whose trace could not be written had no end in its log, as if it were killed.
#[cfg(target_os = "linux")]
#[test]
fn a_recording_that_may_not_be_written_is_the_end_of_the_session() {
    let stage = Stage::with_series();
    let [first, second] = STEPS;
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps {first} {SETTINGS}"));
    fs::remove_file(stage.path("run/trace.json")).unwrap();
    std::os::unix::fs::symlink("/dev/full", stage.path("run/trace.json")).unwrap();
    let output = stage.command(&format!("train --out run --resume --max-steps {second}")).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", says(&output));
    let ends = stage.metrics("run", "end");
    assert_eq!((ends.len(), &ends[0]["how"]), (1, &"failed".into()));
    assert!(ends[0]["error"].as_str().unwrap().contains("trace.json"), "{}", ends[0]);
}

/// Runs a command that may not write files of more than `blocks`; that ends writes with an error,
/// and not the process.
fn limited(command: &mut Command, blocks: usize) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\""), "sh"]);
    shell.arg(command.get_program()).args(command.get_args()).current_dir(command.get_current_dir().unwrap());
    shell.output().unwrap()
}

/// Fails unless the checkpoint of `step` is the only one and nothing unfinished lies beside it.
fn require_only(run: &Path, step: u64) {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let names: Vec<String> = fs::read_dir(run.join("checkpoints")).unwrap().map(name).collect();
    assert_eq!(names, [format!("step-{step:08}")]);
}

#[test]
fn a_full_disk_costs_nothing_but_the_steps_since_the_last_checkpoint() {
    let stage = Stage::with_series();
    let Some(disk) = SmallDisk::mount(stage.path("disk")) else {
        skip(Requirement::Root, "mounting a small file system to fill");
        return;
    };
    let [first, second] = STEPS;
    let mut failed_at = Vec::new();
    // From a disk with no page left, on which nothing can be written, to one that takes all but the
    // end of the checkpoint.
    for free_pages in 0..20 {
        let run = format!("disk/run{free_pages}");
        stage.succeeds(&format!("train --data series.h5 --out {run} --max-steps {first} {SETTINGS}"));
        let before = stage.checkpoint(&run, first);
        disk.fill_up_to(free_pages);
        let output = stage.command(&format!("train --out {run} --resume --max-steps {second}")).output().unwrap();
        let message = says(&output);
        assert_eq!(output.status.code(), Some(1), "{free_pages} free pages: {message}");
        for part in ["No space left on device", "no room for the run: make room", &format!("{run}/")] {
            assert!(message.contains(part), "{free_pages} free pages: {part}: {message}");
        }
        failed_at.extend(
            ["config.yaml", "plan.json", "metrics.jsonl", "model.safetensors", "optimizer.safetensors"]
                .into_iter()
                .find(|file| message.contains(file)),
        );
        require_only(&stage.path(&run), first);
        assert!(stage.checkpoint(&run, first) == before);

        disk.empty();
        stage.succeeds(&format!("train --out {run} --resume --max-steps {second}"));
        fs::rename(stage.path(&run), stage.path("disk/run")).unwrap();
        require_same(&stage, second);
        fs::remove_dir_all(stage.path("disk/run")).unwrap();
    }
    failed_at.dedup();
    assert!(failed_at.contains(&"config.yaml") && failed_at.contains(&"optimizer.safetensors"), "{failed_at:?}");
}

/// Compares `disk/run` with a run that had room.
fn require_same(stage: &Stage, steps: u64) {
    if !stage.path("whole").exists() {
        stage.succeeds(&format!("train --data series.h5 --out whole --max-steps {steps} {SETTINGS}"));
    }
    assert!(stage.checkpoint("whole", steps) == stage.checkpoint("disk/run", steps));
    let losses = |run: &str| -> Vec<(u64, f64)> {
        let number = |line: &serde_json::Value| (line["step"].as_u64().unwrap(), line["loss"].as_f64().unwrap());
        stage.metrics(run, "step").iter().map(number).collect()
    };
    assert_eq!(losses("whole"), losses("disk/run"));
}

/// A file system in memory, a megabyte large, that is gone when this is dropped.
struct SmallDisk {
    folder: PathBuf,
}

const PAGE: u64 = 4096;

impl SmallDisk {
    /// `None` where the system does not allow it.
    fn mount(folder: PathBuf) -> Option<Self> {
        fs::create_dir(&folder).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&folder);
        mount.output().is_ok_and(|output| output.status.success()).then_some(SmallDisk { folder })
    }

    /// Takes all of the disk but `free_pages`.
    fn fill_up_to(&self, free_pages: u64) {
        let mut filler = File::create(self.folder.join("filler")).unwrap();
        while filler.write_all(&[1; PAGE as usize]).is_ok() {}
        let len = filler.metadata().unwrap().len();
        filler.set_len(len / PAGE * PAGE - free_pages * PAGE).unwrap();
    }

    fn empty(&self) {
        fs::remove_file(self.folder.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.folder).status();
        assert!(
            unmounted.is_ok_and(|status| status.success()) || std::thread::panicking(),
            "{}: cannot be unmounted",
            self.folder.display()
        );
    }
}
