//! The trainer as a program uses it: training, resuming, evaluating.

#[path = "../baselines/mod.rs"]
mod baselines;
mod by_hand;
mod carrying;
mod choosing;
mod dense;
mod distributed;
mod diverging;
mod ending;
mod evaluating;
mod gradient_checkpointing;
mod heads;
#[path = "../in_file/mod.rs"]
mod in_file;
mod int8;
mod loading;
mod made_up;
mod masks;
mod oracle;
mod peers;
mod precision;
mod resuming;
mod sampling;
mod shortage;
mod streamed_series;
mod streaming;
mod target_scaling;
mod tasks;
#[path = "../thread_peers/mod.rs"]
#[allow(dead_code, reason = "made for all tests with several ranks, and not all of it is needed here")]
mod thread_peers;
mod threads;
mod training;
#[path = "../weighted/mod.rs"]
mod weighted;
mod weights;
