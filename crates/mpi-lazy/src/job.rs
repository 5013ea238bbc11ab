//! A job, as one of its processes sees it: a thread that calls MPI, and the messages to it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::heartbeat::Heartbeats;
use crate::library::{Library, MESSAGES, Pending};

/// Recovery of a job that loses a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// The job is over.
    #[default]
    None,
    /// The ranks that are left go on, by User-Level Failure Mitigation, if the library has it and
    /// the launcher was told to let them.
    Ulfm,
}

/// Names of MPI libraries, by which the system looks for them.
pub fn library_names() -> Vec<String> {
    // `libmpi.so` is that of a development package alone, and can be of any of them.
    ["libmpi.so.40", "libmpi_abi.so.1", "libmpi_abi.so", "libmpi.so.12", "libmpich.so.12"].map(str::to_owned).to_vec()
}

/// A running job of MPI.
pub struct Job {
    commands: Sender<Command>,
    answers: Receiver<Result<Answer>>,
    /// Times that the thread came back from MPI while it waited.
    polls: Arc<AtomicU64>,
    timeout: Duration,
    library: String,
    rank: usize,
    world: usize,
    recovers: bool,
    /// The error that ended the job's use.
    end_reason: Option<String>,
}

/// Work for the thread that calls MPI.
enum Command {
    Send { destination: usize, message: Vec<u8> },
    Receive { source: usize, len: usize },
    Broadcast { root: usize, message: Vec<u8> },
    Agree { flags: u32 },
    Revoke,
    Reform,
    Finish,
}

enum Answer {
    Message(Vec<u8>),
    Flags(u32),
    Ranks { library: String, rank: usize, world: usize, recovers: bool },
    Done,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job {{ rank: {}, world: {}, library: {:?} }}", self.rank, self.world, self.library)
    }
}

impl Job {
    /// Opens the first of `libraries` that is there, names or paths, and starts MPI in this
    /// process. A rank that is silent for `timeout` is lost; one that computes for longer is not,
    /// and calls wait for it.
    ///
    /// # Errors
    /// [`Error::Absent`] without a library, [`Error::Unfit`] for one of an unknown kind,
    /// [`Error::Failed`] and [`Error::Timeout`] where the job does not start, [`Error::Again`] for
    /// a second job of a process.
    pub fn start(libraries: &[String], recovery: Recovery, timeout: Duration) -> Result<Self> {
        let (commands, work) = channel();
        let (answer, answers) = channel();
        let polls = Arc::<AtomicU64>::default();
        let (libraries, counter) = (libraries.to_vec(), Arc::clone(&polls));
        let run = move || match open_first(&libraries) {
            Ok(library) => {
                let caller = Caller {
                    library,
                    recovery,
                    timeout,
                    polls: counter,
                    heartbeats: Heartbeats::new(0, 1, timeout, Instant::now()),
                    sends: Vec::new(),
                    failed_send: None,
                    has_reformed: false,
                };
                caller.serve(&work, &answer);
            }
            // Nobody listens where the caller's deadline is over.
            Err(error) => drop(answer.send(Err(error))),
        };
        let text = |error: std::io::Error| Error::Failed { function: "a thread for MPI", text: error.to_string() };
        thread::Builder::new().name("mpi".to_owned()).spawn(run).map_err(text)?;
        let mut job = Job {
            commands,
            answers,
            polls,
            timeout,
            library: String::new(),
            rank: 0,
            world: 1,
            recovers: false,
            end_reason: None,
        };
        let started = job.answer("the start of MPI")?;
        job.take_ranks(started);
        Ok(job)
    }

    /// The library and its interface.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of processes.
    pub fn world(&self) -> usize {
        self.world
    }

    /// True if the ranks that are left can go on after a loss.
    pub fn recovers(&self) -> bool {
        self.recovers
    }

    /// Begins to send `message` to rank `destination`. A failure shows at a later call.
    ///
    /// # Errors
    /// [`Error::Over`] after a failure.
    pub fn send(&mut self, destination: usize, message: Vec<u8>) -> Result<()> {
        self.command(Command::Send { destination, message })
    }

    /// Fills `message` with the next one from rank `source`.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Timeout`], [`Error::Failed`], [`Error::Over`].
    pub fn receive(&mut self, source: usize, message: &mut [u8]) -> Result<()> {
        self.command(Command::Receive { source, len: message.len() })?;
        self.message("a message of another rank", message)
    }

    /// Copies `message` of rank `root` to all ranks.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Timeout`], [`Error::Failed`], [`Error::Over`].
    pub fn broadcast(&mut self, root: usize, message: &mut [u8]) -> Result<()> {
        self.command(Command::Broadcast { root, message: message.to_vec() })?;
        self.message("a broadcast", message)
    }

    /// The AND of the flags of all ranks.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Timeout`], [`Error::Failed`], [`Error::Over`]. Where the job
    /// recovers, all ranks that are left fail, or none.
    pub fn agree(&mut self, flags: u32) -> Result<u32> {
        self.command(Command::Agree { flags })?;
        match self.answer("an agreement")? {
            Answer::Flags(flags) => Ok(flags),
            _ => unreachable!("an agreement is answered with flags"),
        }
    }

    /// Interrupts the waits of other ranks, if the job recovers.
    pub fn revoke(&mut self) {
        if self.recovers {
            // Where it cannot be told, the others have their deadlines.
            let _ = self.command(Command::Revoke);
        }
    }

    /// Continues with the surviving ranks: [`Job::rank`] and [`Job::world`] are others then.
    ///
    /// # Errors
    /// [`Error::Unfit`] for a library that cannot, [`Error::Timeout`], [`Error::Failed`].
    pub fn reform(&mut self) -> Result<()> {
        self.command(Command::Reform)?;
        let ranks = self.answer("a new world")?;
        self.take_ranks(ranks);
        Ok(())
    }

    /// Waits for messages under way, and ends MPI in this process. All ranks do so. After a loss
    /// they agree that all have come here, and leave MPI as it is: its end may wait for the lost
    /// rank for ever.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Timeout`], [`Error::Failed`], [`Error::Over`].
    pub fn finish(mut self) -> Result<()> {
        self.command(Command::Finish)?;
        self.answer("the end of MPI").map(drop)
    }

    fn command(&mut self, command: Command) -> Result<()> {
        if let Some(reason) = &self.end_reason {
            return Err(Error::Over { reason: reason.clone() });
        }
        self.commands.send(command).map_err(|_| Error::Over { reason: "its thread has ended".to_owned() })
    }

    fn answer(&mut self, what: &'static str) -> Result<Answer> {
        let answer = self.wait_for_answer(what);
        let is_over = |error: &Error| matches!(error, Error::Timeout { .. } | Error::Lost { .. });
        if let Err(error) = &answer
            && (!self.recovers || is_over(error))
        {
            self.end_reason = Some(error.to_string());
        }
        answer
    }

    /// The thread's answer. The thread gives up by itself; the deadline here is for a function of
    /// MPI that does not return.
    fn wait_for_answer(&self, what: &'static str) -> Result<Answer> {
        let (mut polls, mut stands) = (self.polls.load(Ordering::Relaxed), 0);
        while stands <= LOOKS_IN_A_TIMEOUT {
            match self.answers.recv_timeout(self.timeout / LOOKS_IN_A_TIMEOUT) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Over { reason: "its thread has ended".to_owned() });
                }
                Err(RecvTimeoutError::Timeout) => {
                    let now = self.polls.load(Ordering::Relaxed);
                    stands = if now == polls { stands + 1 } else { 0 };
                    polls = now;
                }
            }
        }
        Err(Error::Timeout { what, waited: self.timeout })
    }

    fn message(&mut self, what: &'static str, destination: &mut [u8]) -> Result<()> {
        match self.answer(what)? {
            Answer::Message(message) => destination.copy_from_slice(&message),
            _ => unreachable!("it is answered with a message"),
        }
        Ok(())
    }

    fn take_ranks(&mut self, answer: Answer) {
        match answer {
            Answer::Ranks { library, rank, world, recovers } => {
                (self.library, self.rank, self.world, self.recovers) = (library, rank, world, recovers);
            }
            _ => unreachable!("it is answered with ranks"),
        }
    }
}

fn open_first(libraries: &[String]) -> Result<Library> {
    let mut tried = Vec::new();
    for name in libraries {
        match Library::start(name) {
            Err(Error::Absent { tried: mut reasons }) => tried.append(&mut reasons),
            opened => return opened,
        }
    }
    Err(Error::Absent { tried })
}

/// Looks at the thread that calls MPI in a timeout.
const LOOKS_IN_A_TIMEOUT: u32 = 4;

/// The thread that calls MPI.
struct Caller {
    library: Library,
    recovery: Recovery,
    timeout: Duration,
    polls: Arc<AtomicU64>,
    heartbeats: Heartbeats,
    /// Messages that are being sent.
    sends: Vec<Pending>,
    /// Why one could not be sent, for the next answer.
    failed_send: Option<Error>,
    /// True after a loss.
    has_reformed: bool,
}

/// Time of polling without a pause, and of a pause after it.
const SPIN: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_micros(50);
/// A pause where a wait is long, as for a rank that is not done with its part of a step.
const LONG_PAUSE: Duration = Duration::from_micros(200);
const LONG: Duration = Duration::from_millis(5);

impl Caller {
    fn serve(mut self, work: &Receiver<Command>, answers: &Sender<Result<Answer>>) {
        let mut answer = self.begin();
        // A caller that is gone has left the job: its other ranks, and the launcher, notice.
        while answers.send(answer).is_ok() {
            answer = loop {
                let Some(command) = self.next(work) else { return };
                match command {
                    Command::Send { destination, message } => match self.library.send(MESSAGES, destination, message) {
                        Ok(send) => self.sends.push(send),
                        Err(error) => self.failed_send = Some(error),
                    },
                    Command::Revoke => self.library.revoke(),
                    Command::Receive { .. } | Command::Broadcast { .. } if self.failed_send.is_some() => {
                        break Err(self.failed_send.take().expect("it is there"));
                    }
                    Command::Receive { source, len } => {
                        break self.library.receive(MESSAGES, source, len).and_then(|pending| self.message(pending));
                    }
                    Command::Broadcast { root, message } => {
                        break self.library.broadcast(root, message).and_then(|pending| self.message(pending));
                    }
                    Command::Agree { flags } => break self.agree(flags).map(Answer::Flags),
                    Command::Reform => {
                        // Those of the old world end with it.
                        (self.sends, self.failed_send, self.has_reformed) = (Vec::new(), None, true);
                        break self.library.shrink().and_then(|()| self.begin());
                    }
                    Command::Finish => {
                        drop(answers.send(self.end().map(|()| Answer::Done)));
                        return;
                    }
                }
            };
        }
    }

    /// The ranks of a world, whose heartbeats begin.
    fn begin(&mut self) -> Result<Answer> {
        let (rank, world) = self.library.rank_and_world()?;
        self.heartbeats = Heartbeats::new(rank, world, self.timeout, Instant::now());
        self.heartbeats.listen(&self.library);
        Ok(Answer::Ranks { library: self.library.name().to_owned(), rank, world, recovers: self.recovers() })
    }

    /// Ends MPI, after messages and heartbeats under way.
    fn end(mut self) -> Result<()> {
        self.wait("messages under way", |caller| Ok(caller.sends.is_empty().then_some(())))?;
        if self.has_reformed {
            // Open MPI 5.0 ends with a fence of all processes that the launcher started; that of a
            // lost one is not always excused.
            let pending = self.library.agree_with_survivors(0)?;
            return self.finish(pending, "an agreement on the end").map(drop);
        }
        self.wait("the end of the others", |caller| Ok(caller.heartbeats.leave(&caller.library).then_some(())))?;
        self.library.finalize()
    }

    /// The next command; messages and heartbeats progress meanwhile.
    fn next(&mut self, work: &Receiver<Command>) -> Option<Command> {
        let start = Instant::now();
        loop {
            let now = Instant::now();
            let pause = (!self.sends.is_empty()).then(|| pause_after(now - start));
            let wait = [pause, self.heartbeats.next_beat(now)].into_iter().flatten().min();
            let command = match wait {
                Some(wait) => work.recv_timeout(wait),
                None => work.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match command {
                Ok(command) => return Some(command),
                Err(RecvTimeoutError::Timeout) => self.progress(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn progress(&mut self) {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.progress_sends();
        self.heartbeats.beat(&self.library, Instant::now());
    }

    /// Drops messages that have been sent. Those that cannot be are gone as well: their receiver
    /// notices.
    fn progress_sends(&mut self) {
        let library = &self.library;
        self.sends.retain_mut(|send| matches!(library.test(send), Ok(false)));
    }

    fn recovers(&self) -> bool {
        self.recovery == Recovery::Ulfm && self.library.can_recover()
    }

    fn message(&mut self, pending: Pending) -> Result<Answer> {
        self.finish(pending, "a message").map(|done| Answer::Message(done.into_message()))
    }

    fn agree(&mut self, flags: u32) -> Result<u32> {
        let failed_send = self.failed_send.take();
        let pending = if self.recovers() {
            // A rank that could not be sent to is lost, and this tells all.
            self.library.agree_with_survivors(flags)?
        } else {
            failed_send.map_or(Ok(()), Err)?;
            self.library.agree(flags)?
        };
        self.finish(pending, "an agreement").map(|done| done.answer())
    }

    fn finish(&mut self, pending: Pending, what: &'static str) -> Result<Pending> {
        let mut pending = Some(pending);
        self.wait(what, |caller| {
            let is_done = caller.library.test(pending.as_mut().expect("taken when it is done"))?;
            Ok(if is_done { pending.take() } else { None })
        })
    }

    /// Looks until `ready` has an answer.
    fn wait<T>(&mut self, what: &'static str, mut ready: impl FnMut(&mut Self) -> Result<Option<T>>) -> Result<T> {
        let start = Instant::now();
        loop {
            if let Some(answer) = ready(self)? {
                return Ok(answer);
            }
            self.progress();
            let waited = start.elapsed();
            if let Some(rank) = self.heartbeats.lost_rank() {
                return Err(Error::Lost { rank, silence: self.timeout });
            }
            if self.heartbeats.has_failed() && waited > self.timeout {
                return Err(Error::Timeout { what, waited: self.timeout });
            }
            match pause_after(waited) {
                Duration::ZERO => thread::yield_now(),
                pause => thread::sleep(pause),
            }
        }
    }
}

/// The pause between two looks after a wait of `waited`.
fn pause_after(waited: Duration) -> Duration {
    match waited {
        waited if waited < SPIN => Duration::ZERO,
        waited if waited < LONG => PAUSE,
        _ => LONG_PAUSE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_tried_is_named() {
        let names = ["libmpi-of-nobody.so.1".to_owned(), "/nowhere/libmpi.so".to_owned()];
        let error = Job::start(&names, Recovery::None, Duration::from_secs(5)).unwrap_err();
        let Error::Absent { tried } = &error else { panic!("{error}") };
        assert_eq!(tried.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names);
        let text = error.to_string();
        assert!(text.starts_with("no MPI library: libmpi-of-nobody.so.1: cannot open"), "{text}");
    }

    #[test]
    fn a_library_of_something_else_is_refused() {
        let error = Job::start(&["libm.so.6".to_owned()], Recovery::None, Duration::from_secs(5)).unwrap_err();
        assert_eq!(error, Error::Unfit { library: "libm.so.6".to_owned(), reason: "is no library of MPI".to_owned() });
    }

    #[test]
    fn waits_are_short_at_first() {
        let pauses = [0, 300, 10_000].map(|waited| pause_after(Duration::from_micros(waited)));
        assert_eq!(pauses, [Duration::ZERO, PAUSE, LONG_PAUSE]);
    }
}
