//! Several processes that train one model.

use super::{Key, POSITIVE, key};
use crate::config::value::Kind;

pub(super) const KEYS: &[Key] = &[
    key(
        "distributed.backend",
        Kind::Choice { now: &["auto", "mpi", "off"], later: "" },
        "auto",
        "Training by all processes that an MPI launcher started, to the same weights. `auto`: if \
         `mpirun`, `mpiexec` or `srun` started more than one. `mpi`: always. `off`: each process \
         is a run of its own.",
    ),
    key("distributed.library", Kind::Text, "", "MPI library, by path or name; else the system's."),
    key(
        "distributed.timeout",
        POSITIVE,
        "60",
        "Seconds of silence after which a process counts as lost. One that computes for longer sends heartbeats.",
    ),
    key(
        "distributed.idle_ranks",
        Kind::Choice { now: &["refuse", "allow"], later: "" },
        "refuse",
        "Processes without a block of samples in a step. `allow` lets them wait for the others.",
    ),
];
