//! The program as its users meet it: a command line in; files, an answer and an exit code out.
#![forbid(unsafe_code)]

mod bad_input;
mod capacity;
mod compare;
mod config;
mod convert;
mod data;
mod devices;
mod diverging;
mod doctor;
mod exchange;
mod follow;
mod graph;
mod graph_cached;
mod graph_export;
mod graph_training;
mod heads;
mod ingest_killed;
mod instruments;
mod int8;
mod interface;
mod leak;
mod memory;
mod monitor;
mod names;
mod onnx;
mod purge;
mod real_data;
mod report;
mod resume;
mod snapshot;
mod stage;
mod train;
mod universe;
mod walk_forward;
