//! Models over graphs: trained by the one loop, with its threads, accumulation and resuming, and
//! evaluated.

#[path = "../baselines/mod.rs"]
mod baselines;
mod distributed;
mod evaluating;
mod learning;
mod lending;
mod made_up;
mod refusing;
#[path = "../thread_peers/mod.rs"]
#[allow(dead_code, reason = "made for all tests with several ranks, and not all of it is needed here")]
mod thread_peers;
mod training;
#[path = "../weighted/mod.rs"]
mod weighted;
