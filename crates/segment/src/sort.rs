//! A stable counting sort, in parallel.

use rayon::prelude::*;

use crate::index::Index;

/// Positions `0..n` in the order of their keys, those of equal keys in their own order, and where
/// each key's begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sorted<P> {
    /// One a key and the end of the last.
    pub(crate) offsets: Vec<P>,
    pub(crate) order: Vec<P>,
}

/// Keys that a block has at least, so that counting them is worth a thread.
const BLOCK_KEYS_MIN: usize = 1 << 14;

/// Sorts `keys`, all of them below `count`; `P` counts them.
///
/// The keys are cut into blocks. Each counts its own; then a block's keys of one value come after
/// those of the blocks before it, so that every key has its place, whatever the number of blocks.
pub(crate) fn sort<K: Index, P: Index>(keys: &[K], count: usize) -> Sorted<P> {
    let block_keys = keys.len().div_ceil(rayon::current_num_threads()).max(BLOCK_KEYS_MIN).max(count);
    let mut places: Vec<Vec<P>> = keys.par_chunks(block_keys).map(|block| histogram(block, count)).collect();
    let offsets = place(&mut places, count);
    // Every cell is written once, by the block that has the key; being atomic lets the blocks share
    // them.
    let order: Vec<P::Cell> = keys.iter().map(|_| P::cell()).collect();
    keys.par_chunks(block_keys).zip(places).enumerate().for_each(|(block, (keys, mut places))| {
        for (position, &key) in (block * block_keys..).zip(keys) {
            let place = &mut places[index(key)];
            counted::<P>(position).store(&order[index(*place)]);
            *place = counted(index(*place) + 1);
        }
    });
    Sorted { offsets, order: order.into_iter().map(P::take).collect() }
}

fn histogram<K: Index, P: Index>(keys: &[K], count: usize) -> Vec<P> {
    let mut histogram = vec![P::zeroed(); count];
    for &key in keys {
        let number = &mut histogram[index(key)];
        *number = counted(index(*number) + 1);
    }
    histogram
}

/// Replaces each block's number of a key by the place of its first; the offsets of the keys.
fn place<P: Index>(blocks: &mut [Vec<P>], count: usize) -> Vec<P> {
    let mut end = 0;
    let mut offsets = Vec::with_capacity(count + 1);
    for key in 0..count {
        offsets.push(counted(end));
        for block in &mut *blocks {
            end += index(std::mem::replace(&mut block[key], counted(end)));
        }
    }
    offsets.push(counted(end));
    offsets
}

fn index<I: Index>(index: I) -> usize {
    index.position().expect("indices were checked to be below a length")
}

fn counted<P: Index>(position: usize) -> P {
    P::from_position(position).expect("the caller has chosen a type that counts all keys")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(keys: &[u32], count: usize) -> Sorted<u32> {
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.sort_by_key(|&position| keys[position as usize]);
        let offset = |key| keys.iter().filter(|&&k| (k as usize) < key).count() as u32;
        Sorted { offsets: (0..=count).map(offset).collect(), order }
    }

    #[test]
    fn the_order_is_that_of_a_stable_sort() {
        for (len, count) in [(0, 0), (0, 3), (1, 1), (5, 1), (1000, 7), (1000, 2000)] {
            let keys: Vec<u32> = (0..len as u32).map(|k| k.wrapping_mul(2_654_435_761) % count.max(1) as u32).collect();
            assert_eq!(sort::<u32, u32>(&keys, count), naive(&keys, count), "{len} keys of {count}");
        }
    }

    #[test]
    fn blocks_and_index_types_make_no_difference() {
        let keys: Vec<u32> = (0..100_000u32).map(|k| k.wrapping_mul(2_654_435_761) >> 22).collect();
        let wide: Vec<u64> = keys.iter().map(|&key| key.into()).collect();
        let threads = |count| rayon::ThreadPoolBuilder::new().num_threads(count).build().unwrap();
        let alone = threads(1).install(|| sort::<u32, u32>(&keys, 1024));
        let shared = threads(4).install(|| sort::<u64, u64>(&wide, 1024));
        assert_eq!(alone, naive(&keys, 1024));
        assert!(alone.order.iter().zip(&shared.order).all(|(&one, &other)| u64::from(one) == other));
        assert!(alone.offsets.iter().zip(&shared.offsets).all(|(&one, &other)| u64::from(one) == other));
    }
}
