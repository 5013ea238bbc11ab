use super::{FORMAT_VERSION, RecordedAction, Segment, Snapshot};
use crate::error::{Error, Result};

/// Programs in JavaScript hold whole numbers below this one exactly.
const NUMBER_END: u64 = 1 << 53;

impl Snapshot {
    /// The snapshot as JSON, which docs/reference/formats.md describes.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a snapshot has text keys and finite numbers")
    }

    /// The snapshot that `text` describes.
    ///
    /// # Errors
    /// [`Error::Snapshot`] for text that is no snapshot of this version, and for one whose parts
    /// contradict each other: blocks that do not tile their segment, segments that overlap,
    /// addresses of 2^53 or more.
    pub fn from_json(text: &str) -> Result<Self> {
        let snapshot: Snapshot = serde_json::from_str(text).map_err(|reason| refuse("the file", reason.to_string()))?;
        if snapshot.format_version != FORMAT_VERSION {
            let reason = format!("{}, and this program reads {FORMAT_VERSION}", snapshot.format_version);
            return Err(refuse("format_version", reason));
        }
        if snapshot.time_us >= NUMBER_END {
            return Err(refuse("time_us", "2^53 or more".to_owned()));
        }
        if !snapshot.granule_bytes.is_power_of_two() {
            return Err(refuse("granule_bytes", format!("{} is not a power of two", snapshot.granule_bytes)));
        }
        snapshot.check_segments()?;
        snapshot.check_events()?;
        snapshot.timeline.check().map_err(|reason| refuse("timeline", reason))?;
        Ok(snapshot)
    }

    fn check_segments(&self) -> Result<()> {
        let mut end = 0;
        for (k, segment) in self.segments.iter().enumerate() {
            if segment.address < end {
                let reason = format!("begins at {:#x}, before the end {end:#x} of the one before", segment.address);
                return Err(refuse(&format!("segments[{k}]"), reason));
            }
            end = check_range(segment.address, segment.bytes)
                .map_err(|reason| refuse(&format!("segments[{k}]"), reason))?;
            check_blocks(segment).map_err(|(b, reason)| refuse(&format!("segments[{k}].blocks[{b}]"), reason))?;
        }
        Ok(())
    }

    fn check_events(&self) -> Result<()> {
        for (k, entry) in self.events.iter().enumerate() {
            let checked = match &entry.action {
                RecordedAction::Allocated { address, bytes, .. }
                | RecordedAction::Freed { address, bytes, .. }
                | RecordedAction::Grown { address, bytes }
                | RecordedAction::Released { address, bytes }
                | RecordedAction::Stitched { address, bytes } => check_range(*address, *bytes),
                RecordedAction::Short { requested_bytes, left_bytes, .. } => {
                    check_range(*left_bytes as u64, *requested_bytes)
                }
                RecordedAction::Step => Ok(0),
            };
            let timed = if entry.time_us < NUMBER_END { Ok(0) } else { Err("a time of 2^53 or more".to_owned()) };
            checked.and(timed).map_err(|reason| refuse(&format!("events[{k}]"), reason))?;
        }
        Ok(())
    }
}

/// True if the blocks lie one after the other from the beginning of their segment to its end; the
/// block that does not, and why.
fn check_blocks(segment: &Segment) -> Result<(), (usize, String)> {
    let mut expected = segment.address;
    for (k, block) in segment.blocks.iter().enumerate() {
        if block.address != expected {
            return Err((k, format!("begins at {:#x}, and the block before ends at {expected:#x}", block.address)));
        }
        if block.bytes == 0 || block.requested_bytes > block.bytes {
            return Err((k, format!("has {} bytes, of which {} were asked for", block.bytes, block.requested_bytes)));
        }
        expected = check_range(expected, block.bytes).map_err(|reason| (k, reason))?;
    }
    let end = segment.address + segment.bytes as u64;
    if expected == end {
        Ok(())
    } else {
        Err((segment.blocks.len(), format!("the blocks end at {expected:#x}, the segment at {end:#x}")))
    }
}

fn check_range(address: u64, bytes: usize) -> Result<u64, String> {
    let end = address.checked_add(bytes as u64).filter(|&end| end < NUMBER_END);
    end.ok_or_else(|| format!("{bytes} bytes at {address:#x} end beyond 2^53"))
}

fn refuse(place: &str, reason: String) -> Error {
    Error::Snapshot { place: place.to_owned(), reason }
}
