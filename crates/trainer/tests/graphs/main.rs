#![forbid(unsafe_code)]

//! Models over graphs: trained by the one loop, with its threads, accumulation and resuming, and
//! evaluated.

mod distributed;
mod evaluating;
mod learning;
mod lending;
mod made_up;
mod refusing;
mod training;
