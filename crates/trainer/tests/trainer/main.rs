#![forbid(unsafe_code)]

//! The trainer as a program uses it: training, resuming, evaluating.

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
mod int8;
mod loading;
mod made_up;
mod masks;
mod oracle;
mod precision;
mod resuming;
mod sampling;
mod shortage;
mod streamed_series;
mod streaming;
mod tasks;
mod threads;
mod training;
