//! Several processes that train one model.

use megabatch_trainer::IdleRanks;

use super::choices::Backend;
use super::setting::{Setting, auto_or_choice, choice, setting, settings};
use super::{Key, POSITIVE};
use crate::config::value::Kind;

settings! {
    /// Training by all processes that an MPI launcher started; on CPUs to the weights of one alone.
    /// `auto`: if `mpirun`, `mpiexec` or `srun` started more than one. `mpi`: always. `off`: each
    /// process is a run of its own.
    BACKEND: Option<Backend> = auto_or_choice("distributed.backend");

    /// MPI library, by path or name; else the system's.
    LIBRARY: Option<String> = setting("distributed.library", Kind::Text, "");

    /// Seconds of silence after which a process counts as lost. One that computes for longer sends
    /// heartbeats.
    TIMEOUT: f64 = setting("distributed.timeout", POSITIVE, "60");

    /// Processes without a block of samples in a step. `allow` lets them wait for the others.
    IDLE_RANKS: IdleRanks = choice("distributed.idle_ranks", "refuse");
}
