//! The builders against oracles of a few lines, against numpy, and against themselves.

mod collections;
mod data;
mod knn;
mod numpy;
mod oracle;
mod radius;
mod rules;
mod sliding;
