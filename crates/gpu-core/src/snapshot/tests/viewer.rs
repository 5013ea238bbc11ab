//! Replay of a trace as in PyTorch's viewer (torch/utils/viz/MemoryViz.js, `simulate_memory`), with
//! a panic where it would fail.

use super::super::history::{HistoryLine, shown};
use super::super::{BlockState, Snapshot};

#[derive(Debug)]
pub(super) struct Viewer {
    /// First address and bytes, in order.
    segments: Vec<(u64, u64)>,
    /// First address and bytes of live blocks.
    pub(super) blocks: Vec<(u64, u64)>,
}

impl Viewer {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let live = snapshot.blocks().filter(|block| block.state == BlockState::Live);
        let viewer = Viewer {
            segments: shown(snapshot).iter().map(|range| (range.start, range.end - range.start)).collect(),
            blocks: live.map(|block| (block.address, block.requested_bytes as u64)).collect(),
        };
        viewer.check();
        viewer
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        self.segments.iter().map(|(_, bytes)| bytes).sum()
    }

    pub(super) fn undo_all(&mut self, lines: &[HistoryLine]) {
        for line in lines.iter().rev() {
            let (address, bytes) = (line.address, line.bytes as u64);
            match line.action {
                "free_completed" => self.blocks.push((address, bytes)),
                "free_requested" => assert!(self.blocks.iter().any(|block| block.0 == address), "{line:?}"),
                "alloc" => {
                    let place = self.blocks.iter().position(|block| block.0 == address).expect("a block to take away");
                    self.blocks.remove(place);
                }
                "segment_unmap" => self.map(address, bytes),
                "segment_map" => self.unmap(address, bytes),
                "oom" => {}
                other => panic!("{other}"),
            }
            self.check();
        }
    }

    fn map(&mut self, address: u64, bytes: u64) {
        self.segments.push((address, bytes));
        self.segments.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for &(start, bytes) in &self.segments {
            match merged.last_mut() {
                Some(last) if last.0 + last.1 == start => last.1 += bytes,
                Some(last) => {
                    assert!(last.0 + last.1 < start, "segments overlap at {start:#x}");
                    merged.push((start, bytes));
                }
                None => merged.push((start, bytes)),
            }
        }
        self.segments = merged;
    }

    fn unmap(&mut self, address: u64, bytes: u64) {
        let holds = |(start, whole): &(u64, u64)| *start <= address && address + bytes <= start + whole;
        let place = self.segments.iter().position(holds).expect("a segment to take away from");
        let (start, whole) = self.segments.remove(place);
        let rest = [(start, address - start), (address + bytes, start + whole - address - bytes)];
        self.segments.extend(rest.into_iter().filter(|(_, bytes)| *bytes > 0));
        self.segments.sort_unstable();
    }

    /// The viewer fails at a block that is in no segment.
    fn check(&self) {
        for &(address, bytes) in &self.blocks {
            let inside = |(start, whole): &(u64, u64)| *start <= address && address + bytes <= start + whole;
            assert!(self.segments.iter().any(inside), "{address:#x} is in no segment of {:x?}", self.segments);
        }
    }
}
