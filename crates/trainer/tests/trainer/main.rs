#![forbid(unsafe_code)]

//! The trainer as a program uses it: training, resuming, evaluating.

mod carrying;
mod choosing;
mod dense;
mod diverging;
mod ending;
mod evaluating;
mod forms;
mod gradient_checkpointing;
mod heads;
mod int8;
mod loading;
mod made_up;
mod masks;
mod precision;
mod resuming;
mod shortage;
mod streaming;
mod training;
