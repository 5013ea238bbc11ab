//! Commands that are waited for no longer than a limit.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use wait_timeout::ChildExt as _;

/// Time that a command may take. A cold build of everything takes a quarter of it on two cores.
const COMMAND_LIMIT: Duration = Duration::from_secs(3600);

/// Time in which a command may end what it has started, before it is killed.
const TERMINATION_LIMIT: Duration = Duration::from_secs(15);

/// Runs `command` and fails if it does, or if it takes longer than [`COMMAND_LIMIT`].
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    succeed_within(command, COMMAND_LIMIT)
}

/// Runs `command`, however long it takes, and fails if it does: for work whose length the user
/// chooses.
pub(crate) fn succeed_without_limit(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    require_success(command, status)
}

/// Status and standard output of `command`; fails if it takes longer than [`COMMAND_LIMIT`].
pub(crate) fn output(command: &mut Command) -> Result<Output> {
    output_within(command, COMMAND_LIMIT)
}

/// Standard output of `command`; fails if it does, or if it takes longer than [`COMMAND_LIMIT`].
pub(crate) fn stdout(command: &mut Command) -> Result<Vec<u8>> {
    let Output { status, stdout, .. } = output(command)?;
    require_success(command, status)?;
    Ok(stdout)
}

/// Answers of two functions that wait for commands at the same time.
pub(crate) fn beside<A, B: Send>(one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
    thread::scope(|scope| {
        let other = scope.spawn(other);
        (one(), other.join().expect("a command that is waited for does not panic"))
    })
}

fn succeed_within(command: &mut Command, limit: Duration) -> Result<()> {
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let status = wait(command, &mut child, limit)?;
    require_success(command, status)
}

fn output_within(command: &mut Command, limit: Duration) -> Result<Output> {
    let spawned = command.stdout(Stdio::piped()).spawn();
    let mut child = spawned.with_context(|| format!("cannot start {command:?}"))?;
    let mut pipe = child.stdout.take().expect("it is piped");
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut stdout = Vec::new();
        let read = pipe.read_to_end(&mut stdout).map(|_| stdout);
        // Nobody listens after the limit.
        let _ = sender.send(read);
    });
    let status = wait(command, &mut child, limit)?;
    // A process that it has left behind may hold the pipe.
    let stdout = receiver.recv_timeout(limit).with_context(|| format!("{command:?} ended, but not its output"))??;
    Ok(Output { status, stdout, stderr: Vec::new() })
}

fn require_success(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

/// Status of `child`, which `command` has started; it is ended after `limit`.
fn wait(command: &Command, child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    if let Some(status) = child.wait_timeout(limit)? {
        return Ok(status);
    }
    terminate(child)?;
    bail!("{command:?} was killed: it had not ended after {} s", limit.as_secs_f64())
}

/// Ends `child`: by a signal first, after which nextest ends its tests.
fn terminate(child: &mut Child) -> Result<()> {
    if cfg!(unix) {
        // Without the program `kill`, the child is killed below.
        let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        if child.wait_timeout(TERMINATION_LIMIT)?.is_some() {
            return Ok(());
        }
    }
    child.kill()?;
    child.wait()?;
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn a_command_that_hangs_is_killed_and_named() {
        for error in [
            succeed_within(&mut shell("exec sleep 60"), SHORT).unwrap_err(),
            output_within(&mut shell("echo begun; exec sleep 60"), SHORT).unwrap_err(),
            // What it has left behind holds the pipe.
            output_within(&mut shell("sleep 5 & echo begun"), SHORT).unwrap_err(),
        ] {
            let error = format!("{error:#}");
            assert!(error.contains("sleep") && error.contains("ended"), "{error}");
        }
    }

    #[test]
    fn functions_beside_each_other_run_at_the_same_time() {
        let (sender, receiver) = channel();
        let heard = || receiver.recv_timeout(TERMINATION_LIMIT);
        assert_eq!(beside(heard, || sender.send(5).unwrap()), (Ok(5), ()));
    }

    #[test]
    fn a_command_that_ends_is_as_it_ended() {
        succeed(&mut shell("exit 0")).unwrap();
        assert!(succeed(&mut shell("exit 3")).unwrap_err().to_string().contains("exit status: 3"));
        assert!(succeed_without_limit(&mut shell("exit 3")).is_err());
        assert_eq!(stdout(&mut shell("echo said")).unwrap(), b"said\n");
        assert!(stdout(&mut shell("echo said; exit 3")).unwrap_err().to_string().contains("exit status: 3"));
        let output = output(&mut shell("echo said; exit 3")).unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"said\n"[..]));
        assert!(succeed(&mut Command::new("no-such-program")).is_err());
    }
}
