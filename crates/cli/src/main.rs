//! The `megabatch` program: composes the libraries into commands. See `megabatch --help`.
#![forbid(unsafe_code)]

mod account;
mod adapt;
mod answer;
mod commands;
mod config;
mod duration;
mod evaluation;
mod failure;
mod forecasts;
mod job;
mod notes;
mod output;
mod plan;
mod progress;
mod recipe;
mod report;
mod run;
mod settings;
mod synth;
mod trained;
mod universe;
mod usage;
