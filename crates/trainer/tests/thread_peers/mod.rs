//! Ranks that are threads of one process, with faults: for tests of the trainer and of the library
//! above it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use megabatch_trainer::{PeerLost, Peers, Relay};

/// One of several ranks that are threads of one process.
pub(crate) struct ThreadPeers {
    world: Arc<World>,
    /// Number at the beginning; it never changes.
    born: usize,
    /// Ranks of this generation, by their numbers at the beginning.
    members: Vec<usize>,
    /// Number of reforms so far.
    generation: usize,
    /// Agreements of this generation.
    agreements: u64,
    operations: u64,
    bytes_sent: u64,
    faults: Faults,
}

/// Faults of ranks and links.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    /// Ranks that end, each before its n-th operation.
    pub(crate) deaths: Vec<(usize, u64)>,
    /// Ranks that stop answering, each before its n-th operation.
    pub(crate) hangs: Vec<(usize, u64)>,
    /// Ranks whose n-th operation loses its messages.
    pub(crate) dropped: Vec<(usize, u64)>,
    /// Delay of a rank at every operation.
    pub(crate) delays: Vec<(usize, Duration)>,
    /// Links between ranks, which send one message after the other; `None` for instant messages.
    pub(crate) link: Option<Link>,
    /// Longest time that a rank waits.
    pub(crate) timeout: Duration,
    /// True if ranks that are left can reform.
    pub(crate) can_reform: bool,
}

/// A network's link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Link {
    /// Time from the last byte's departure to its arrival.
    pub(crate) latency: Duration,
    /// Rate.
    pub(crate) bytes_per_s: f64,
}

impl Default for Faults {
    /// No faults, and a timeout of a minute.
    fn default() -> Self {
        Faults {
            deaths: Vec::new(),
            hangs: Vec::new(),
            dropped: Vec::new(),
            delays: Vec::new(),
            link: None,
            timeout: Duration::from_secs(60),
            can_reform: true,
        }
    }
}

#[derive(Debug)]
struct World {
    state: Mutex<State>,
    changed: Condvar,
}

/// Generation, sender, receiver, and whether it is a broadcast.
type Mailbox = (usize, usize, usize, bool);

/// A message and its arrival.
type Mail = (Vec<u8>, Instant);

#[derive(Debug, Default)]
struct State {
    mail: HashMap<Mailbox, VecDeque<Mail>>,
    /// Time at which each link has sent its messages, by sender and receiver.
    links_free: HashMap<[usize; 2], Instant>,
    alive: Vec<bool>,
    /// The newest generation whose exchange was revoked.
    revoked: Option<usize>,
    /// Flags given to each agreement, by generation and number: by rank at the beginning.
    flags: HashMap<(usize, u64), HashMap<usize, u32>>,
    /// Results of agreements that are over; `None` if a lost rank was to take part.
    answers: HashMap<(usize, u64), Option<u32>>,
    /// Ranks that want to reform from a generation.
    reforming: HashMap<usize, Vec<usize>>,
    /// The members of each new generation.
    formed: HashMap<usize, Vec<usize>>,
}

impl fmt::Debug for ThreadPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadPeers {{ born: {}, generation: {} }}", self.born, self.generation)
    }
}

impl ThreadPeers {
    /// `world` ranks, one for each thread.
    pub(crate) fn world_of(world: usize, faults: &Faults) -> Vec<ThreadPeers> {
        let state = Mutex::new(State { alive: vec![true; world], ..State::default() });
        let shared = Arc::new(World { state, changed: Condvar::new() });
        let peers = |born| ThreadPeers {
            world: Arc::clone(&shared),
            born,
            members: (0..world).collect(),
            generation: 0,
            agreements: 0,
            operations: 0,
            bytes_sent: 0,
            faults: faults.clone(),
        };
        (0..world).map(peers).collect()
    }

    /// Runs `work` on every rank of a new world, and returns the answers of all.
    ///
    /// # Panics
    /// Where a rank fails.
    pub(crate) fn run<T: Send, E: fmt::Debug + Send>(
        world: usize,
        faults: &Faults,
        work: impl Fn(ThreadPeers) -> Result<T, E> + Sync,
    ) -> Vec<T> {
        let work = &work;
        std::thread::scope(|scope| {
            let ranks = ThreadPeers::world_of(world, faults).into_iter();
            let ranks: Vec<_> = ranks.map(|peers| scope.spawn(move || work(peers))).collect();
            ranks.into_iter().map(|rank| rank.join().expect("no rank panics").expect("no rank fails")).collect()
        })
    }

    /// Bytes of all messages that this rank sent to one other.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    fn lost(&self, lost_rank: Option<usize>, reason: &str) -> PeerLost {
        PeerLost {
            rank: self.rank(),
            world: self.members.len(),
            lost_rank,
            reason: reason.to_owned(),
            can_reform: self.faults.can_reform,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.world.state.lock().expect("no rank panics with the lock held")
    }

    /// Counts an operation and applies its faults. True if its message is sent.
    fn begin(&mut self) -> Result<bool, PeerLost> {
        self.operations += 1;
        let is_due = |list: &[(usize, u64)]| list.contains(&(self.born, self.operations));
        let (dies, hangs, drops) =
            (is_due(&self.faults.deaths), is_due(&self.faults.hangs), is_due(&self.faults.dropped));
        let late = self.faults.delays.iter().filter(|(rank, _)| *rank == self.born).map(|(_, delay)| *delay).sum();
        if late > Duration::ZERO {
            std::thread::park_timeout(late);
        }
        if dies {
            self.lock().alive[self.born] = false;
            self.world.changed.notify_all();
        }
        if hangs {
            // Longer than any other rank waits.
            std::thread::park_timeout(self.faults.timeout * 4);
        }
        if dies || hangs || !self.lock().alive[self.born] {
            return Err(PeerLost { can_reform: false, ..self.lost(Some(self.rank()), "it is this one") });
        }
        Ok(!drops)
    }

    fn post(&self, receiver: usize, is_broadcast: bool, message: &[u8]) {
        let (sender, receiver) = (self.born, self.members[receiver]);
        let mut state = self.lock();
        let mut arrival = Instant::now();
        if let Some(Link { latency, bytes_per_s }) = self.faults.link {
            let free = state.links_free.entry([sender, receiver]).or_insert(arrival);
            *free = arrival.max(*free) + Duration::from_secs_f64(message.len() as f64 / bytes_per_s);
            arrival = *free + latency;
        }
        let mailbox = (self.generation, sender, receiver, is_broadcast);
        state.mail.entry(mailbox).or_default().push_back((message.to_vec(), arrival));
        drop(state);
        self.world.changed.notify_all();
    }

    /// Waits until `ready` has an answer.
    fn wait<T>(&self, mut ready: impl FnMut(&mut State) -> Option<Result<T, PeerLost>>) -> Result<T, PeerLost> {
        let start = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(answer) = ready(&mut state) {
                return answer;
            }
            let Some(left) = self.faults.timeout.checked_sub(start.elapsed()) else {
                return Err(PeerLost { can_reform: false, ..self.lost(None, "it did not answer in time") });
            };
            let waited = self.world.changed.wait_timeout(state, left);
            state = waited.expect("no rank panics with the lock held").0;
        }
    }

    fn take(&self, rank: usize, is_broadcast: bool, message: &mut [u8]) -> Result<(), PeerLost> {
        let (generation, sender) = (self.generation, self.members[rank]);
        let mailbox = (generation, sender, self.born, is_broadcast);
        let arrival = self.wait(|state| {
            if let Some((next, arrival)) = state.mail.get_mut(&mailbox).and_then(VecDeque::pop_front) {
                assert_eq!(next.len(), message.len(), "ranks do the same in the same order");
                message.copy_from_slice(&next);
                return Some(Ok(arrival));
            }
            let reason = match (state.alive[sender], state.revoked >= Some(generation)) {
                (false, _) => "it ended",
                (_, true) => "the exchange was revoked",
                _ => return None,
            };
            Some(Err(self.lost(Some(rank), reason)))
        })?;
        while let Some(left) = arrival.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            std::thread::park_timeout(left);
        }
        Ok(())
    }
}

impl Peers for ThreadPeers {
    fn rank(&self) -> usize {
        self.members.iter().position(|&born| born == self.born).expect("a rank is a member of its world")
    }

    fn world(&self) -> usize {
        self.members.len()
    }

    fn send(&mut self, rank: usize, message: &[u8]) -> Result<(), PeerLost> {
        if self.begin()? {
            self.post(rank, false, message);
            self.bytes_sent += message.len() as u64;
        }
        Ok(())
    }

    fn receive(&mut self, rank: usize, message: &mut [u8]) -> Result<(), PeerLost> {
        self.begin()?;
        self.take(rank, false, message)
    }

    fn broadcast(&mut self, root: usize, message: &mut [u8]) -> Result<(), PeerLost> {
        let sends = self.begin()?;
        if self.rank() != root {
            return self.take(root, true, message);
        }
        if sends {
            (0..self.world()).filter(|&rank| rank != root).for_each(|rank| self.post(rank, true, message));
        }
        Ok(())
    }

    fn agree(&mut self, flags: u32) -> Result<u32, PeerLost> {
        self.begin()?;
        let key = (self.generation, self.agreements);
        self.agreements += 1;
        self.lock().flags.entry(key).or_default().insert(self.born, flags);
        self.world.changed.notify_all();
        let members = &self.members;
        let answer = self.wait(|state| {
            if let Some(answer) = state.answers.get(&key) {
                return Some(Ok(*answer));
            }
            let given = &state.flags[&key];
            if members.iter().any(|born| !given.contains_key(born) && state.alive[*born]) {
                return None;
            }
            let is_whole = members.iter().all(|born| given.contains_key(born) && state.alive[*born]);
            let answer = is_whole.then(|| given.values().fold(u32::MAX, |all, flags| all & flags));
            state.answers.insert(key, answer);
            Some(Ok(answer))
        })?;
        self.world.changed.notify_all();
        answer.ok_or_else(|| self.lost(None, "it ended"))
    }

    fn revoke(&mut self) {
        if self.faults.can_reform {
            let mut state = self.lock();
            state.revoked = state.revoked.max(Some(self.generation));
            self.world.changed.notify_all();
        }
    }

    fn reform(&mut self) -> Result<(), PeerLost> {
        self.begin()?;
        if !self.faults.can_reform {
            return Err(self.lost(None, "the ranks cannot reform"));
        }
        let (old, new) = (self.generation, self.generation + 1);
        self.lock().reforming.entry(old).or_default().push(self.born);
        self.world.changed.notify_all();
        let members = &self.members;
        let formed = self.wait(|state| {
            if let Some(formed) = state.formed.get(&new) {
                return Some(Ok(formed.clone()));
            }
            let asking = &state.reforming[&old];
            let left: Vec<usize> = members.iter().copied().filter(|&born| state.alive[born]).collect();
            if left.iter().any(|born| !asking.contains(born)) {
                return None;
            }
            state.formed.insert(new, left.clone());
            Some(Ok(left))
        })?;
        self.world.changed.notify_all();
        (self.members, self.generation, self.agreements) = (formed, new, 0);
        Ok(())
    }
}

impl Drop for ThreadPeers {
    /// A dropped rank has ended, by a fault or because its work is done.
    fn drop(&mut self) {
        if let Ok(mut state) = self.world.state.lock() {
            state.alive[self.born] = false;
        }
        self.world.changed.notify_all();
    }
}

/// Seconds until all ranks of `world` have the sum of a model of `len` parameters, in the order of
/// messages of a relay. `ready` maps a share of the gradients, such as 0.5, to the time when all
/// ranks have computed it; `link` connects each rank to the next one.
pub(crate) fn relay_seconds(len: usize, world: usize, link: Link, ready: impl Fn(f64) -> f64) -> f64 {
    let piece_len = Relay::default().piece_len;
    let pieces: Vec<usize> = (0..len).step_by(piece_len).map(|start| piece_len.min(len - start)).collect();
    let (mut now, mut links_free) = (vec![0.0f64; world], vec![0.0f64; world]);
    // When the sum of each piece arrives at a rank.
    let mut arrivals = vec![vec![0.0f64; pieces.len()]; world];
    let mut send = |rank: usize, ready_s: f64, len: usize| {
        links_free[rank] = ready_s.max(links_free[rank]) + 4.0 * len as f64 / link.bytes_per_s;
        links_free[rank] + link.latency.as_secs_f64()
    };
    let mut there = 0;
    for n in 0..pieces.len() + world {
        if let Some(n) = n.checked_sub(world) {
            for rank in 0..world - 1 {
                now[rank] = now[rank].max(arrivals[rank][n]);
                if rank + 2 < world {
                    arrivals[rank + 1][n] = send(rank, now[rank], pieces[n]);
                }
            }
        }
        if let Some(&piece) = pieces.get(n).filter(|_| world > 1) {
            there += piece;
            let mut arrival = ready(there as f64 / len as f64);
            for (rank, now) in now.iter_mut().enumerate() {
                *now = arrival.max(*now);
                arrival = send(rank, *now, piece);
            }
            arrivals[0][n] = arrival;
        }
    }
    now[..world - 1].iter().copied().fold(0.0, f64::max)
}
