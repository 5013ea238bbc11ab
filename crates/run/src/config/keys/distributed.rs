//! Several processes that train one model.

use super::{Key, POSITIVE, key};
use crate::config::value::Kind;

pub(super) const KEYS: &[Key] = &[
    key(
        "distributed.backend",
        Kind::Choice { now: &["auto", "mpi", "off"], later: "" },
        "auto",
        "Training by all processes that an MPI launcher started, with the same weights for any \
         number of them. `auto`: where `mpirun`, `mpiexec` or `srun` started more than one. `mpi`: \
         always; without an MPI library it is an error. `off`: each process is a run of its own.",
    ),
    key(
        "distributed.library",
        Kind::Text,
        "",
        "MPI library, by path or name; the system's, in the order of the launcher, if not set.",
    ),
    key("distributed.timeout", POSITIVE, "60", "Seconds after which a process that does not answer counts as lost."),
    key(
        "distributed.idle_ranks",
        Kind::Choice { now: &["refuse", "allow"], later: "" },
        "refuse",
        "Processes for which a step has no block of samples. `allow` lets them wait for the others.",
    ),
];
