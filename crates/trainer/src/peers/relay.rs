//! A sum over blocks by several ranks, with the bits of a single process.
//!
//! ```text
//! alone     s = 0; for every block b: s += b
//! relayed   rank 0      s = 0; for its blocks: s += b; send s to rank 1
//!           rank r      receive s from rank r - 1; for its blocks: s += b; send s to rank r + 1
//!           last rank   receives, adds, and sends s to rank 0, which sends it on to rank 1, …
//! ```
//!
//! Addition of floats is not associative: a tree over ranks would give other bits for every number
//! of ranks. The relay keeps one order for all of them. Both rounds go piece by piece, so that
//! ranks work on different pieces at once: the time is that of 2 · ranks + pieces pieces in place
//! of 2 · ranks · pieces. A rank sends no number more than twice.
//!
//! The backward pass of the model completes the pieces in their order: the first ones are relayed
//! while others are computed. A failure of a rank is known after its last block, so that all pieces
//! are sent in any case, and the step's other sums after them.

use super::step_gradients::{Outcome, StepGradients};
use super::{PeerLost, Peers};

/// Numbers of a piece: 256 KiB, of which a network's latency is a small part.
const PIECE: usize = 1 << 16;

/// Form of the relay, for tests and measurements. All ranks use the same; the sums have the same
/// bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relay {
    /// Numbers of a piece.
    pub piece_len: usize,
    /// True if it begins while the last blocks are computed.
    pub overlaps: bool,
}

impl Default for Relay {
    fn default() -> Self {
        Relay { piece_len: PIECE, overlaps: true }
    }
}

/// Sums of a step other than gradients, and the first rank that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct StepSums {
    /// The loss without the division by its count.
    pub(crate) loss_sum: f64,
    /// Number of terms of the loss sum.
    pub(crate) terms: u64,
    /// The first rank, in the order of blocks, that failed. The sums then mean nothing.
    pub(crate) failed: Option<usize>,
}

const SUMS_LEN: usize = 24;

impl StepSums {
    fn encode(self) -> [u8; SUMS_LEN] {
        let failed = self.failed.map_or(0, |rank| rank as u64 + 1);
        let mut bytes = [0; SUMS_LEN];
        bytes[..8].copy_from_slice(&self.loss_sum.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.terms.to_le_bytes());
        bytes[16..].copy_from_slice(&failed.to_le_bytes());
        bytes
    }

    fn decode(bytes: [u8; SUMS_LEN]) -> Self {
        let word = |offset: usize| -> [u8; 8] { bytes[offset..offset + 8].try_into().expect("eight bytes") };
        StepSums {
            loss_sum: f64::from_le_bytes(word(0)),
            terms: u64::from_le_bytes(word(8)),
            failed: usize::try_from(u64::from_le_bytes(word(16))).ok().and_then(|failed| failed.checked_sub(1)),
        }
    }

    /// Appends the blocks of `rank`.
    fn and_blocks(mut self, own: &Outcome, rank: usize) -> Self {
        for (loss_sum, terms) in &own.losses {
            self.loss_sum += loss_sum;
            self.terms += terms;
        }
        self.failed = self.failed.or(own.failed.then_some(rank));
        self
    }
}

/// Forms the sums over all ranks: gradients in `own`, the others in the answer. It may begin before
/// the gradients of `own` are complete, and waits for those of each piece.
///
/// If a rank failed, the answer names it on every rank, and the gradients mean nothing.
pub(crate) fn relay(peers: &mut dyn Peers, own: &StepGradients<'_>) -> Result<StepSums, PeerLost> {
    let (rank, world) = (peers.rank(), peers.world());
    if world == 1 {
        return Ok(StepSums::default().and_blocks(&own.outcome(), rank));
    }
    let is_last = rank + 1 == world;
    let (mut links, mut sums) = (Links { peers, rank, world, message: Vec::new() }, StepSums::default());
    // The step's sums follow the pieces in both rounds. A piece has come round when as many are
    // under way as there are ranks: the second round then runs between the messages of the first,
    // and before the wait for the gradients of the next one.
    for n in 0..message_count(own) + world {
        // The sums of the last rank are those of all.
        if let Some(n) = n.checked_sub(world).filter(|_| !is_last) {
            sums = links.second_round(own, n)?.unwrap_or(sums);
        }
        if n < message_count(own) {
            sums = links.first_round(own, n)?.unwrap_or(sums);
        }
    }
    Ok(sums)
}

/// Messages of a round: the pieces, and the other sums.
fn message_count(own: &StepGradients<'_>) -> usize {
    own.pieces().len() + 1
}

/// A rank's links to the one before and to the next one.
struct Links<'a> {
    peers: &'a mut dyn Peers,
    rank: usize,
    world: usize,
    message: Vec<u8>,
}

impl Links<'_> {
    /// Rank before this one in the ring.
    fn previous_rank(&self) -> usize {
        self.rank.checked_sub(1).unwrap_or(self.world - 1)
    }

    /// Relays message `n` in the first round: receives it from the previous rank, adds this rank's
    /// blocks and sends it to the next. Returns the step's sums up to this rank, if they are the
    /// message.
    fn first_round(&mut self, own: &StepGradients<'_>, n: usize) -> Result<Option<StepSums>, PeerLost> {
        let (is_first, previous, next) = (self.rank == 0, self.previous_rank(), (self.rank + 1) % self.world);
        let Some(piece) = own.pieces().get(n) else {
            let outcome = own.outcome();
            let mut message = StepSums::default().encode();
            if !is_first {
                self.peers.receive(previous, &mut message)?;
            }
            let sums = StepSums::decode(message).and_blocks(&outcome, self.rank);
            return self.peers.send(next, &sums.encode()).map(|()| Some(sums));
        };
        own.wait_for(piece);
        self.message.resize(4 * piece.len, 0);
        if !is_first {
            self.peers.receive(previous, &mut self.message)?;
        }
        own.add_to(piece, &mut self.message);
        self.peers.send(next, &self.message).map(|()| None)
    }

    /// Relays message `n` in the second round: receives the sum over all ranks from the previous
    /// one and sends it to the next one, unless that is the last, which has it. Returns the step's
    /// sums, if they are the message.
    fn second_round(&mut self, own: &StepGradients<'_>, n: usize) -> Result<Option<StepSums>, PeerLost> {
        let (previous, hands_on) = (self.previous_rank(), self.rank + 2 < self.world);
        let Some(piece) = own.pieces().get(n) else {
            let mut message = [0; SUMS_LEN];
            self.peers.receive(previous, &mut message)?;
            if hands_on {
                self.peers.send(self.rank + 1, &message)?;
            }
            return Ok(Some(StepSums::decode(message)));
        };
        self.message.resize(4 * piece.len, 0);
        self.peers.receive(previous, &mut self.message)?;
        if hands_on {
            self.peers.send(self.rank + 1, &self.message)?;
        }
        own.put(piece, &mut self.message);
        Ok(None)
    }
}

/// Bytes of gradients and losses that `rank` of `world` sends in a step of a model of `len`
/// parameters.
pub fn bytes_sent_a_step(len: usize, rank: usize, world: usize) -> u64 {
    let rounds = if world == 1 { 0 } else { 1 + u64::from(rank + 2 < world) };
    rounds * (4 * len as u64 + SUMS_LEN as u64)
}

/// Bytes that links send one after another before all ranks of `world` have the sum of a model of
/// `len` parameters. The time of a relay is that of these bytes, and a latency for each piece.
///
/// ```text
/// two ranks     the pieces in a row, and one to come back
/// more          rank 0 sends the sum on once its own pieces are sent and the first has come round;
///               it then sends all of them, and the last goes on to the one before the last rank
/// ```
pub fn bytes_in_a_row_a_step(len: usize, world: usize) -> u64 {
    let (all, piece, ranks) = (len as u64, len.min(PIECE) as u64, world as u64);
    let numbers = match ranks {
        0 | 1 => 0,
        2 => all + piece,
        _ => all.max(ranks * piece) + all + (ranks - 3) * piece,
    };
    4 * numbers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::ops::Range;
    use std::time::Duration;

    use super::super::step_gradients::OwnBlocks;
    use super::super::threads::{Faults, Link, ThreadPeers, relay_seconds};
    use super::*;
    use megabatch_order::Rank;

    /// Blocks of gradients whose sum depends on its order, and their losses.
    #[derive(Clone, Debug)]
    struct Blocks {
        gradients: Vec<Vec<f32>>,
        losses: Vec<(f64, u64)>,
    }

    fn blocks(count: usize, len: usize, seed: u64) -> Blocks {
        let number = |block: usize, i: usize| {
            let x = (block as f64 * 12.9898 + i as f64 * 78.233 + seed as f64 % 1000.0).sin() * 43_758.545_3;
            (x - x.floor() - 0.5) * 10f64.powi((i % 7) as i32 - 3)
        };
        Blocks {
            gradients: (0..count).map(|b| (0..len).map(|i| number(b, i) as f32).collect()).collect(),
            losses: (0..count).map(|b| (number(b, len), b as u64)).collect(),
        }
    }

    fn alone(blocks: &Blocks) -> (Vec<u32>, u64, u64) {
        let mut sum = vec![0.0f32; blocks.gradients.first().map_or(0, Vec::len)];
        for block in &blocks.gradients {
            sum.iter_mut().zip(block).for_each(|(sum, term)| *sum += term);
        }
        let loss: f64 = blocks.losses.iter().fold(0.0, |sum, (loss, _)| sum + loss);
        (sum.iter().map(|x| x.to_bits()).collect(), loss.to_bits(), blocks.losses.iter().map(|(_, terms)| terms).sum())
    }

    /// A sum and how it is formed.
    #[derive(Clone, Debug)]
    struct Case {
        blocks: Blocks,
        piece_len: usize,
        /// Numbers are cut into so many groups, in an order that `seed` draws.
        groups: usize,
        /// Blocks of a rank that are computed before the relay begins, at most.
        done: usize,
        seed: u64,
    }

    impl Case {
        /// Places of the groups, the same on all ranks.
        fn places(&self) -> Vec<Range<usize>> {
            let len = self.blocks.gradients.first().map_or(0, Vec::len);
            let end = |group: usize| len * group / self.groups;
            let mut places: Vec<_> = (0..self.groups).map(|group| end(group)..end(group + 1)).collect();
            places.retain(|place| !place.is_empty());
            places.sort_by_key(|place| (place.start as u64 + 1).wrapping_mul(self.seed | 1).rotate_left(32));
            places
        }

        /// One rank's part of the sum; of those that are `failing`, each gives a group of its first
        /// block alone.
        fn relay_part(&self, peers: &mut ThreadPeers, failing: &[usize]) -> Result<(StepSums, Vec<u32>), PeerLost> {
            let (rank, places) = (peers.rank(), self.places());
            let own = Rank::new(rank, peers.world()).unwrap().slice(0..self.blocks.losses.len());
            let gradients = &self.blocks.gradients[own.clone()];
            let len = self.blocks.gradients.first().map_or(0, Vec::len);
            let (mut sum, done) = (vec![if rank == 0 { 0.0f32 } else { f32::NAN }; len], own.len().min(self.done));
            let blocks = OwnBlocks { is_first: rank == 0, done, in_turn: done, count: own.len() };
            let mut held = vec![vec![f32::NAN; len]; blocks.held()];
            for (n, block) in gradients[..done].iter().enumerate() {
                match rank {
                    0 => sum.iter_mut().zip(block).for_each(|(sum, term)| *sum += term),
                    _ => held[n].copy_from_slice(block),
                }
            }
            let before = peers.bytes_sent();
            let held = held.iter_mut().map(Vec::as_mut_slice);
            let shared = StepGradients::new(blocks, &places, self.piece_len, &mut sum, held);
            let failed = failing.contains(&rank);
            // Two threads, each with every other block, and group by group.
            let compute = |first: usize| {
                for place in &places {
                    for block in (done + first..own.len()).step_by(2) {
                        shared.give_place(block, place, &gradients[block][place.clone()]);
                        std::thread::yield_now();
                    }
                }
            };
            let compute = &compute;
            let sums = std::thread::scope(|scope| {
                let relayed = scope.spawn(|| relay(peers, &shared));
                if failed {
                    let first = places.first().filter(|_| done < own.len());
                    first.iter().for_each(|place| shared.give_place(done, place, &gradients[done][(*place).clone()]));
                    drop(shared.failed_on_drop());
                } else {
                    let other = scope.spawn(move || compute(1));
                    compute(0);
                    other.join().unwrap();
                    shared.finish(Outcome { losses: self.blocks.losses[own.clone()].to_vec(), failed });
                }
                relayed.join().unwrap()
            })?;
            drop(shared);
            assert_eq!(peers.bytes_sent() - before, bytes_sent_a_step(len, rank, peers.world()));
            Ok((sums, sum.iter().map(|x| x.to_bits()).collect()))
        }
    }

    fn case() -> impl Strategy<Value = Case> {
        let lens = prop_oneof![Just((5, 2)), Just((9, 3)), Just((40, 7)), Just((2 * PIECE + 7, PIECE)), Just((64, 64))];
        (0usize..20, lens, 1usize..9, 0usize..4, any::<u64>()).prop_map(
            |(count, (len, piece_len), groups, done, seed)| Case {
                blocks: blocks(count, len, seed),
                piece_len,
                groups,
                done,
                seed,
            },
        )
    }

    proptest! {
        #[test]
        fn any_world_forms_the_sum_of_one_process(world in 1usize..10, case in case()) {
            let expected = alone(&case.blocks);
            for (sums, bits) in ThreadPeers::run(world, &Faults::default(), |mut peers| case.relay_part(&mut peers, &[])) {
                let found = (bits, sums.loss_sum.to_bits(), sums.terms);
                prop_assert!(found == expected, "{world} ranks, {} blocks", case.blocks.losses.len());
                prop_assert_eq!(sums.failed, None);
            }
        }

        #[test]
        fn every_rank_hears_of_the_first_that_failed(
            world in 1usize..7, failing in prop::collection::vec(0usize..6, 1..3), case in case(),
        ) {
            let first = failing.iter().copied().filter(|&rank| rank < world).min();
            // The ranks then stand at the same message: the next sum is that of all blocks.
            let twice = |mut peers: ThreadPeers| {
                let (failed, _) = case.relay_part(&mut peers, &failing)?;
                Ok::<_, PeerLost>((failed, case.relay_part(&mut peers, &[])?))
            };
            for (failed, (sums, bits)) in ThreadPeers::run(world, &Faults::default(), twice) {
                prop_assert_eq!(failed.failed, first);
                prop_assert!((bits, sums.loss_sum.to_bits(), sums.terms) == alone(&case.blocks));
            }
        }
    }

    #[test]
    fn the_longest_way_of_bytes_is_that_of_a_simulation() {
        let link = Link { latency: Duration::ZERO, bytes_per_s: 1.0 };
        for len in [1, 5, PIECE, PIECE + 1, 2 * PIECE, 7 * PIECE + 3] {
            for world in [1, 2, 3, 4, 5, 8, 9, 20] {
                let expected = relay_seconds(len, world, link, |_| 0.0);
                assert_eq!(bytes_in_a_row_a_step(len, world) as f64, expected, "{len} parameters, {world} ranks");
            }
        }
    }

    /// Left after the last gradients is the way of the last piece round the ring and on to
    /// the one before the last rank, where the network has time for those before.
    #[test]
    fn a_relay_is_hidden_but_for_its_last_piece() {
        let link = Link { latency: Duration::from_millis(2), bytes_per_s: 4.0 * PIECE as f64 };
        let hidden = |part: f64| 100.0 * part;
        for world in [2, 3, 4] {
            let hops = 2 * (world - 1);
            let seconds = relay_seconds(6 * PIECE, world, link, hidden);
            assert!((seconds - 100.0 - hops as f64 * 1.002).abs() < 1e-9, "{world} ranks: {seconds}");
        }
        // All at once at the end: as one that waits for all.
        for world in [2, 5] {
            let waits = relay_seconds(6 * PIECE, world, link, |_| 0.0);
            assert!((relay_seconds(6 * PIECE, world, link, |_| 7.0) - 7.0 - waits).abs() < 1e-9);
        }
    }

    #[test]
    fn sums_are_read_as_they_were_written() {
        for failed in [None, Some(0), Some(7)] {
            let sums = StepSums { loss_sum: -0.1, terms: u64::MAX, failed };
            assert_eq!(StepSums::decode(sums.encode()), sums);
        }
    }
}
