//! Output of a run.

use std::path::PathBuf;

use super::setting::{Setting, setting, settings};
use super::{COUNT, Key, or};
use crate::config::value::Kind;

settings! {
    /// Folder of the run; the same as `--out`.
    DIR: Option<PathBuf> = setting("output.dir", Kind::Text, "");

    /// Also writes tb/, for `tensorboard --logdir RUN`.
    TENSORBOARD: bool = setting("output.tensorboard", Kind::Bool, "true");

    /// Steps of each session in trace.json, for Perfetto and about:tracing; about 700 bytes a step.
    TRACE_STEPS: Option<usize> = setting("output.trace_steps", or("none", &COUNT), "1000");
}
