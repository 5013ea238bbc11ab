#![forbid(unsafe_code)]

//! The trainer as a program uses it: training, resuming, evaluating.

mod carrying;
mod choosing;
mod ending;
mod evaluating;
mod forms;
mod loading;
mod made_up;
mod resuming;
mod streaming;
mod training;
