#![forbid(unsafe_code)]

//! A sum over blocks that is formed by several ranks with the bits of one that a single process
//! forms.
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
//! ranks work on different pieces at once: 2 · ranks + pieces piece times in place of 2 · ranks ·
//! pieces. A rank sends no number more than twice.

use super::{PeerLost, Peers};

/// Numbers of a piece: 256 KiB, of which a network's latency is a small part.
const PIECE: usize = 1 << 16;

/// Sums of a step that are not gradients, and how its blocks fared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct StepSums {
    /// The loss without the division by its count.
    pub(crate) loss_sum: f64,
    /// Terms that it is the sum of.
    pub(crate) terms: u64,
    /// The first rank, in the order of blocks, that could not compute its part. The sums then mean
    /// nothing.
    pub(crate) failed: Option<usize>,
}

/// One rank's blocks of a step.
#[derive(Debug, Default)]
pub(crate) struct OwnBlocks<'a> {
    /// The loss sum of each block and its terms.
    pub(crate) losses: &'a [(f64, u64)],
    /// Gradients of each block. Rank 0 has none: it has added its own to the sum already.
    pub(crate) gradients: &'a [&'a [f32]],
    /// True if the rank could not compute them all.
    pub(crate) failed: bool,
}

const HEADER_LEN: usize = 24;

impl StepSums {
    fn encode(self) -> [u8; HEADER_LEN] {
        let failed = self.failed.map_or(0, |rank| rank as u64 + 1);
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.loss_sum.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.terms.to_le_bytes());
        bytes[16..].copy_from_slice(&failed.to_le_bytes());
        bytes
    }

    fn decode(bytes: [u8; HEADER_LEN]) -> Self {
        let word = |at: usize| -> [u8; 8] { bytes[at..at + 8].try_into().expect("eight bytes") };
        StepSums {
            loss_sum: f64::from_le_bytes(word(0)),
            terms: u64::from_le_bytes(word(8)),
            failed: usize::try_from(u64::from_le_bytes(word(16))).ok().and_then(|failed| failed.checked_sub(1)),
        }
    }

    /// With the blocks of `rank` after those before.
    fn then(mut self, own: &OwnBlocks<'_>, rank: usize) -> Self {
        for (loss_sum, terms) in own.losses {
            self.loss_sum += loss_sum;
            self.terms += terms;
        }
        self.failed = self.failed.or(own.failed.then_some(rank));
        self
    }
}

/// The sums of all ranks, in `sum` and in the answer. Before, `sum` of rank 0 has the sum over its
/// own blocks, and that of other ranks anything.
///
/// Where a rank failed, every rank's answer names it, and `sum` means nothing.
pub(crate) fn relay(peers: &mut dyn Peers, own: &OwnBlocks<'_>, sum: &mut [f32]) -> Result<StepSums, PeerLost> {
    let (rank, world) = (peers.rank(), peers.world());
    let (is_first, is_last) = (rank == 0, rank + 1 == world);
    let mut before = StepSums::default();
    if !is_first {
        let mut header = [0; HEADER_LEN];
        peers.receive(rank - 1, &mut header)?;
        before = StepSums::decode(header);
    }
    let after = before.then(own, rank);
    // The sums of the last rank are those of all.
    let next = (rank + 1) % world;
    if world > 1 {
        peers.send(next, &after.encode())?;
    }
    let mut start = 0;
    for piece in sum.chunks_mut(PIECE) {
        // A rank sends its pieces where its header says so, and never otherwise.
        if !is_first && before.failed.is_none() {
            receive_floats(peers, rank - 1, piece)?;
        }
        if after.failed.is_none() {
            for block in own.gradients {
                let block = &block[start..start + piece.len()];
                piece.iter_mut().zip(block).for_each(|(sum, term)| *sum += *term);
            }
            if world > 1 {
                send_floats(peers, next, piece)?;
            }
        }
        start += piece.len();
    }
    if is_last { Ok(after) } else { second_round(peers, sum) }
}

/// Takes the sums from the rank before, and hands them on to the next one but the last, which has
/// them.
fn second_round(peers: &mut dyn Peers, sum: &mut [f32]) -> Result<StepSums, PeerLost> {
    let (rank, world) = (peers.rank(), peers.world());
    let from = rank.checked_sub(1).unwrap_or(world - 1);
    let hands_on = rank + 2 < world;
    let mut header = [0; HEADER_LEN];
    peers.receive(from, &mut header)?;
    if hands_on {
        peers.send(rank + 1, &header)?;
    }
    let sums = StepSums::decode(header);
    if sums.failed.is_none() {
        for piece in sum.chunks_mut(PIECE) {
            receive_floats(peers, from, piece)?;
            if hands_on {
                send_floats(peers, rank + 1, piece)?;
            }
        }
    }
    Ok(sums)
}

/// Bytes of gradients and losses that `rank` of `world` sends in a step of a model of `len`
/// parameters.
pub fn bytes_sent_a_step(len: usize, rank: usize, world: usize) -> u64 {
    let rounds = if world == 1 { 0 } else { 1 + u64::from(rank + 2 < world) };
    rounds * (4 * len as u64 + HEADER_LEN as u64)
}

/// Bytes of a model of `len` parameters that links send one after another, before all ranks of
/// `world` have the sum: the time of a relay is that of these bytes, and of a latency a piece.
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

fn send_floats(peers: &mut dyn Peers, to: usize, values: &[f32]) -> Result<(), PeerLost> {
    peers.send(to, &to_bytes(values))
}

fn receive_floats(peers: &mut dyn Peers, from: usize, values: &mut [f32]) -> Result<(), PeerLost> {
    let mut bytes = vec![0; values.len() * 4];
    peers.receive(from, &mut bytes)?;
    from_bytes(&bytes, values);
    Ok(())
}

/// Copies `values` of rank `root` to all ranks.
pub(crate) fn broadcast_floats(peers: &mut dyn Peers, root: usize, values: &mut [f32]) -> Result<(), PeerLost> {
    // Few long messages: the transport cuts them up itself.
    for values in values.chunks_mut(64 * PIECE) {
        let mut bytes = to_bytes(values);
        peers.broadcast(root, &mut bytes)?;
        if peers.rank() != root {
            from_bytes(&bytes, values);
        }
    }
    Ok(())
}

/// Little-endian, so that every machine of a cluster reads the same numbers.
pub(crate) fn to_bytes(values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * 4];
    bytes.chunks_exact_mut(4).zip(values).for_each(|(bytes, value)| bytes.copy_from_slice(&value.to_le_bytes()));
    bytes
}

pub(crate) fn from_bytes(bytes: &[u8], values: &mut [f32]) {
    for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(4)) {
        *value = f32::from_le_bytes(bytes.try_into().expect("four bytes"));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::threads::{Faults, ThreadPeers};
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

    /// One rank's part of the sum over `blocks`; `failing` could not compute its own.
    fn of_rank(peers: &mut ThreadPeers, blocks: &Blocks, failing: &[usize]) -> Result<(StepSums, Vec<u32>), PeerLost> {
        let rank = peers.rank();
        let own = Rank::new(rank, peers.world()).unwrap().slice(0..blocks.losses.len());
        let mut sum = vec![if rank == 0 { 0.0 } else { f32::NAN }; blocks.gradients.first().map_or(0, Vec::len)];
        let mut held: Vec<&[f32]> = blocks.gradients[own.clone()].iter().map(Vec::as_slice).collect();
        if rank == 0 {
            for block in held.drain(..) {
                sum.iter_mut().zip(block).for_each(|(sum, term)| *sum += term);
            }
        }
        let own = OwnBlocks { losses: &blocks.losses[own], gradients: &held, failed: failing.contains(&rank) };
        let before = peers.bytes_sent();
        let sums = relay(peers, &own, &mut sum)?;
        if sums.failed.is_none() {
            assert_eq!(peers.bytes_sent() - before, bytes_sent_a_step(sum.len(), rank, peers.world()));
        }
        Ok((sums, sum.iter().map(|x| x.to_bits()).collect()))
    }

    proptest! {
        #[test]
        fn any_world_forms_the_sum_of_one_process(
            world in 1usize..10, count in 1usize..20, long in any::<bool>(), seed in any::<u64>(),
        ) {
            let blocks = blocks(count, if long { 2 * PIECE + 7 } else { 5 }, seed);
            let expected = alone(&blocks);
            for (sums, bits) in ThreadPeers::run(world, &Faults::default(), |mut peers| of_rank(&mut peers, &blocks, &[])) {
                let found = (bits, sums.loss_sum.to_bits(), sums.terms);
                prop_assert!(found == expected, "{world} ranks, {count} blocks");
                prop_assert_eq!(sums.failed, None);
            }
        }

        #[test]
        fn every_rank_hears_of_the_first_that_failed(
            world in 1usize..7, failing in prop::collection::vec(0usize..6, 1..3), long in any::<bool>(),
        ) {
            let blocks = blocks(9, if long { PIECE + 1 } else { 3 }, 1);
            let first = failing.iter().copied().filter(|&rank| rank < world).min();
            // The ranks then stand at the same message: the next sum is that of all blocks.
            let twice = |mut peers: ThreadPeers| {
                let (failed, _) = of_rank(&mut peers, &blocks, &failing)?;
                Ok::<_, PeerLost>((failed, of_rank(&mut peers, &blocks, &[])?))
            };
            for (failed, (sums, bits)) in ThreadPeers::run(world, &Faults::default(), twice) {
                prop_assert_eq!(failed.failed, first);
                prop_assert!((bits, sums.loss_sum.to_bits(), sums.terms) == alone(&blocks));
            }
        }
    }

    /// The last time at which a piece of a sum arrives, where a link sends a number a second, and a
    /// message when those before it on the link are sent.
    fn last_arrival(len: usize, world: usize) -> usize {
        let pieces: Vec<usize> = (0..len.div_ceil(PIECE)).map(|i| PIECE.min(len - i * PIECE)).collect();
        let mut links_free = vec![0; world];
        let mut arrived = vec![0; pieces.len()];
        // The links of both rounds in the order of the ring.
        for hop in 0..2 * (world - 1) {
            let free = &mut links_free[hop % world];
            for (at, piece) in arrived.iter_mut().zip(&pieces) {
                *free = (*free).max(*at) + piece;
                *at = *free;
            }
        }
        arrived.into_iter().max().unwrap_or(0)
    }

    #[test]
    fn the_longest_way_of_bytes_is_that_of_a_simulation() {
        for len in [1, 5, PIECE, PIECE + 1, 2 * PIECE, 7 * PIECE + 3] {
            for world in [1, 2, 3, 4, 5, 8, 9, 20] {
                let expected = 4 * last_arrival(len, world) as u64;
                assert_eq!(bytes_in_a_row_a_step(len, world), expected, "{len} parameters, {world} ranks");
            }
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        for failed in [None, Some(0), Some(7)] {
            let sums = StepSums { loss_sum: -0.1, terms: u64::MAX, failed };
            assert_eq!(StepSums::decode(sums.encode()), sums);
        }
    }
}
