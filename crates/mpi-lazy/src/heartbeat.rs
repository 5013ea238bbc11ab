//! Heartbeats between the ranks of a job: a rank that computes for long is told from one that is
//! lost.
//!
//! The thread that calls MPI sends a byte to every other rank eight times in a timeout, also while
//! its program computes. A rank that was silent for a timeout is lost. A function of MPI that fails
//! for a heartbeat, as after a revocation, ends them: then a wait itself has the timeout.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::library::{HEARTBEATS, Library, Pending};

/// Heartbeats in a timeout.
const BEATS_IN_A_TIMEOUT: u32 = 8;

/// A rank is there.
const ALIVE: u8 = 1;
/// A rank has done its work: no heartbeat follows.
const LEAVING: u8 = 2;

/// Messages of one byte between ranks.
pub(crate) trait Line {
    type Pending;
    fn send(&self, rank: usize, byte: u8) -> Result<Self::Pending>;
    fn receive(&self, rank: usize) -> Result<Self::Pending>;
    fn is_done(&self, pending: &mut Self::Pending) -> Result<bool>;
    /// The byte of a message that is there.
    fn byte(&self, received: Self::Pending) -> u8;
}

impl Line for Library {
    type Pending = Pending;

    fn send(&self, rank: usize, byte: u8) -> Result<Pending> {
        Library::send(self, HEARTBEATS, rank, vec![byte])
    }

    fn receive(&self, rank: usize) -> Result<Pending> {
        Library::receive(self, HEARTBEATS, rank, 1)
    }

    fn is_done(&self, pending: &mut Pending) -> Result<bool> {
        self.test(pending)
    }

    fn byte(&self, received: Pending) -> u8 {
        received.into_message()[0]
    }
}

/// Another rank, as its heartbeats show it.
struct Other<P> {
    rank: usize,
    /// Time since its last heartbeat, as far as this rank looked for one.
    silence: Duration,
    /// The next one; `None` when the rank has left.
    incoming: Option<P>,
    outgoing: Option<P>,
    /// True once it was told that this rank leaves.
    is_told: bool,
}

/// The heartbeats of one rank to all others, and theirs.
pub(crate) struct Heartbeats<P = Pending> {
    others: Vec<Other<P>>,
    timeout: Duration,
    last_beat: Instant,
    has_failed: bool,
}

impl<P> Heartbeats<P> {
    /// The heartbeats of rank `own` of `world`, from `now` on.
    pub(crate) fn new(own: usize, world: usize, timeout: Duration, now: Instant) -> Self {
        let other = |rank| Other { rank, silence: Duration::ZERO, incoming: None, outgoing: None, is_told: false };
        let others = (0..world).filter(|&rank| rank != own).map(other).collect();
        Heartbeats { others, timeout, last_beat: now, has_failed: false }
    }

    /// Begins to listen.
    pub(crate) fn listen(&mut self, line: &impl Line<Pending = P>) {
        let listened: Result<()> = self.others.iter_mut().try_for_each(|other| {
            other.incoming = Some(line.receive(other.rank)?);
            Ok(())
        });
        self.has_failed |= listened.is_err();
    }

    /// Time until [`Heartbeats::beat`] has work; `None` where it never has.
    pub(crate) fn next_beat(&self, now: Instant) -> Option<Duration> {
        let left = self.interval().saturating_sub(now.duration_since(self.last_beat));
        (!self.others.is_empty() && !self.has_failed).then_some(left)
    }

    /// Sends and takes heartbeats, if it is time.
    pub(crate) fn beat(&mut self, line: &impl Line<Pending = P>, now: Instant) {
        if self.next_beat(now).is_none_or(|left| left > Duration::ZERO) {
            return;
        }
        // A process that was stopped for a while has heard nothing: that shows nothing.
        let looked = now.duration_since(self.last_beat).min(2 * self.interval());
        self.last_beat = now;
        let beaten: Result<()> =
            self.others.iter_mut().try_for_each(|other| other.take(line, looked).and_then(|()| other.say(line, ALIVE)));
        self.has_failed |= beaten.is_err();
    }

    /// The rank that was silent for the longest time, if that is more than the timeout.
    pub(crate) fn lost_rank(&self) -> Option<usize> {
        let there = self.others.iter().filter(|other| other.incoming.is_some() && !self.has_failed);
        there.max_by_key(|other| other.silence).filter(|other| other.silence > self.timeout).map(|other| other.rank)
    }

    /// True if heartbeats say nothing on other ranks.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Tells the other ranks that this one has done its work. True when all have done theirs, and
    /// no heartbeat is under way.
    pub(crate) fn leave(&mut self, line: &impl Line<Pending = P>) -> bool {
        let left: Result<()> = self.others.iter_mut().try_for_each(|other| {
            other.say(line, LEAVING)?;
            other.take(line, Duration::ZERO)
        });
        self.has_failed |= left.is_err();
        let is_done = |other: &Other<P>| other.is_told && other.outgoing.is_none() && other.incoming.is_none();
        self.has_failed || self.others.iter().all(is_done)
    }

    fn interval(&self) -> Duration {
        self.timeout / BEATS_IN_A_TIMEOUT
    }
}

impl<P> Other<P> {
    /// Takes the heartbeats that have come in the time `looked`.
    fn take(&mut self, line: &impl Line<Pending = P>, looked: Duration) -> Result<()> {
        self.silence += looked;
        while let Some(incoming) = &mut self.incoming
            && line.is_done(incoming)?
        {
            self.silence = Duration::ZERO;
            let byte = self.incoming.take().map(|received| line.byte(received));
            self.incoming = if byte == Some(LEAVING) { None } else { Some(line.receive(self.rank)?) };
        }
        Ok(())
    }

    /// Sends `byte` when the one before has gone, unless this rank has taken leave.
    fn say(&mut self, line: &impl Line<Pending = P>, byte: u8) -> Result<()> {
        if let Some(outgoing) = &mut self.outgoing
            && line.is_done(outgoing)?
        {
            self.outgoing = None;
        }
        if self.outgoing.is_none() && !self.is_told {
            self.outgoing = Some(line.send(self.rank, byte)?);
            self.is_told = byte == LEAVING;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::{BTreeMap, VecDeque};
    use std::rc::Rc;

    use super::*;
    use crate::error::Error;

    /// Bytes under way by (sender, receiver).
    type Queues = BTreeMap<(usize, usize), VecDeque<u8>>;

    #[derive(Clone, Default)]
    struct Network(Rc<RefCell<Queues>>);

    /// A rank's end of the network.
    struct End {
        network: Network,
        rank: usize,
        is_revoked: bool,
    }

    /// A send is done at once; a receive when a byte is there.
    enum Message {
        Sent,
        Awaited { sender: usize, byte: Option<u8> },
    }

    impl Line for End {
        type Pending = Message;

        fn send(&self, rank: usize, byte: u8) -> Result<Message> {
            if self.is_revoked {
                return Err(Error::Failed { function: "MPI_Isend", text: "revoked".to_owned() });
            }
            self.network.0.borrow_mut().entry((self.rank, rank)).or_default().push_back(byte);
            Ok(Message::Sent)
        }

        fn receive(&self, rank: usize) -> Result<Message> {
            Ok(Message::Awaited { sender: rank, byte: None })
        }

        fn is_done(&self, pending: &mut Message) -> Result<bool> {
            let Message::Awaited { sender, byte } = pending else { return Ok(true) };
            let mut network = self.network.0.borrow_mut();
            *byte = byte.or_else(|| network.get_mut(&(*sender, self.rank))?.pop_front());
            Ok(byte.is_some())
        }

        fn byte(&self, received: Message) -> u8 {
            match received {
                Message::Awaited { byte, .. } => byte.expect("it is there"),
                Message::Sent => panic!("a heartbeat that was sent is not read"),
            }
        }
    }

    const TIMEOUT: Duration = Duration::from_secs(8);

    /// `world` ranks that begin at one time.
    fn ranks(world: usize, start: Instant) -> (Network, Vec<(End, Heartbeats<Message>)>) {
        let network = Network::default();
        let rank = |rank| {
            let end = End { network: network.clone(), rank, is_revoked: false };
            let mut heartbeats = Heartbeats::new(rank, world, TIMEOUT, start);
            heartbeats.listen(&end);
            (end, heartbeats)
        };
        let ranks = (0..world).map(rank).collect();
        (network, ranks)
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_rank_that_computes_for_long_is_not_lost() {
        let start = Instant::now();
        let (_, mut ranks) = ranks(3, start);
        for tick in 1..=400 {
            for (end, heartbeats) in &mut ranks {
                heartbeats.beat(end, start + seconds(0.25 * f64::from(tick)));
                assert_eq!(heartbeats.lost_rank(), None, "after {tick} quarters of a second");
            }
        }
    }

    #[test]
    fn a_silent_rank_is_lost_after_the_timeout() {
        let start = Instant::now();
        let (_, mut ranks) = ranks(3, start);
        let mut lost_after = None;
        for tick in 1..=80 {
            let now = seconds(0.25 * f64::from(tick));
            for (end, heartbeats) in &mut ranks {
                // Rank 1 ends after five seconds.
                if end.rank != 1 || now < seconds(5.0) {
                    heartbeats.beat(end, start + now);
                }
            }
            let lost = [ranks[0].1.lost_rank(), ranks[2].1.lost_rank()];
            assert!(lost.iter().flatten().all(|&rank| rank == 1), "{lost:?}");
            if lost == [Some(1); 2] {
                lost_after = lost_after.or(Some(now));
            }
        }
        let lost_after = lost_after.expect("rank 1 is lost");
        assert!(lost_after > seconds(12.0) && lost_after < seconds(15.0), "{lost_after:?}");
    }

    #[test]
    fn a_process_that_was_stopped_itself_blames_nobody() {
        let start = Instant::now();
        let (_, mut ranks) = ranks(2, start);
        let (end, heartbeats) = &mut ranks[0];
        heartbeats.beat(end, start + seconds(100.0));
        assert_eq!(heartbeats.lost_rank(), None);
        let (end, heartbeats) = &mut ranks[1];
        heartbeats.beat(end, start + seconds(1.0));
        assert_eq!(heartbeats.lost_rank(), None);
    }

    #[test]
    fn ranks_leave_when_all_have_done_their_work() {
        let start = Instant::now();
        let (network, mut ranks) = ranks(2, start);
        let (late_end, mut late) = ranks.pop().expect("two ranks");
        let (end, mut heartbeats) = ranks.pop().expect("two ranks");
        assert!(!heartbeats.leave(&end), "the other works on");
        for tick in 1..=100 {
            let now = start + seconds(f64::from(tick));
            late.beat(&late_end, now);
            heartbeats.beat(&end, now);
            assert!(!heartbeats.leave(&end), "the other works on");
            assert_eq!((late.lost_rank(), heartbeats.lost_rank()), (None, None), "one that has left is not lost");
        }
        late.leave(&late_end);
        assert!(heartbeats.leave(&end) && late.leave(&late_end));
        assert!(network.0.borrow().values().all(VecDeque::is_empty), "no message is left for MPI_Finalize");
    }

    #[test]
    fn after_a_failure_they_say_nothing() {
        let start = Instant::now();
        let (_, mut ranks) = ranks(2, start);
        let (end, heartbeats) = &mut ranks[0];
        end.is_revoked = true;
        (1..=40).for_each(|tick| heartbeats.beat(end, start + seconds(f64::from(tick))));
        assert!(heartbeats.has_failed());
        assert_eq!((heartbeats.lost_rank(), heartbeats.next_beat(start)), (None, None));
        assert!(heartbeats.leave(end), "nobody waits for what cannot come");
    }

    #[test]
    fn a_rank_alone_has_none() {
        let start = Instant::now();
        let (_, mut ranks) = ranks(1, start);
        let (end, heartbeats) = &mut ranks[0];
        assert_eq!(heartbeats.next_beat(start + seconds(100.0)), None);
        assert!(heartbeats.leave(end));
    }
}
