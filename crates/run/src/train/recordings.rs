//! Recordings of a session for other programs: TensorBoard's events and a trace of its first steps.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use megabatch_trainer::Event;

use super::tensorboard::EventFile;
use super::timeline::Timeline;
use crate::config::{self, Config};
use crate::error::Result;
use crate::run_folder::RunFolder;

/// The recordings that the configuration asks for.
pub(super) struct Recordings {
    events: Option<EventFile>,
    timeline: Option<Timeline>,
    /// Begin of the session by the monotonic clock, and in seconds since 1970 UTC.
    start: Instant,
    start_s: f64,
}

impl Recordings {
    /// Begins the recordings of the run in `folder` at `step`.
    pub(super) fn begin(folder: &RunFolder, config: &Config, step: u64) -> Result<Self> {
        let start_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let name = folder.root().display().to_string();
        let events = config.get(&config::output::TENSORBOARD);
        let events = events.then(|| EventFile::create(&folder.event_folder(), start_s, step)).transpose()?;
        let steps_max = config.get(&config::output::TRACE_STEPS);
        let timeline =
            steps_max.map(|count| Timeline::create(&folder.timeline_file(), &name, count as u64)).transpose()?;
        Ok(Recordings { events, timeline, start: Instant::now(), start_s })
    }

    /// Records `event`, which has just come.
    pub(super) fn see(&mut self, event: &Event<'_>) -> Result<()> {
        let now = self.start.elapsed();
        if let Some(events) = &mut self.events {
            events.see(event, self.start_s + now.as_secs_f64())?;
        }
        self.timeline.as_mut().map_or(Ok(()), |timeline| timeline.see(event, now))
    }

    /// Writes what is in memory still.
    pub(super) fn finish(self) -> Result<()> {
        self.events.map_or(Ok(()), EventFile::finish)?;
        self.timeline.map_or(Ok(()), Timeline::finish)
    }
}
