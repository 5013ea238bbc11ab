//! The suite of every [`Source`], for the tests of sources and for the program that checks a GPU.

use std::ops::{Deref, DerefMut};

use megabatch_gpu_core::source::{Granule, Refusal, Source, StreamId};

/// Writes and reads the mapped memory of a source.
pub(crate) trait Bytes {
    /// Writes bytes at a mapped address; done when it returns.
    fn write(&mut self, address: u64, bytes: &[u8]);

    /// Reads bytes from a mapped address, after all work submitted so far.
    fn read(&mut self, address: u64, bytes: &mut [u8]);
}

/// A source whose bytes a test can write and read.
pub(crate) struct Probe {
    /// The source that is tested.
    pub(crate) source: Box<dyn Source>,
    /// Its memory.
    pub(crate) bytes: Box<dyn Bytes>,
}

impl Deref for Probe {
    type Target = dyn Source;

    fn deref(&self) -> &Self::Target {
        &*self.source
    }
}

impl DerefMut for Probe {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.source
    }
}

impl Probe {
    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.bytes.write(address, bytes);
    }

    fn read(&mut self, address: u64, bytes: usize) -> Vec<u8> {
        let mut there = vec![0; bytes];
        self.bytes.read(address, &mut there);
        there
    }
}

/// A case and its assertion as a name.
pub(crate) type Case = (&'static str, fn(&mut Probe));

/// The cases. Each wants a source of its own with room for eight granules at least.
pub(crate) const CASES: &[Case] = &[
    ("figures are sound and asking for them calls nobody", figures),
    ("reservations are aligned, apart and given back", reservations),
    ("granules have names of their own", granules),
    ("a small capacity can be used to its end, and again", capacity),
    ("what is written is read, whatever is mapped around it", bytes_stay),
    ("a granule shows the same bytes at each of its addresses", aliases),
    ("scattered granules are one range when they are mapped side by side", stitched),
    ("bytes that are called clean are zeros", clean),
    ("work that was waited for is done", streams),
];

/// Granules up to which [`capacity`] creates all that there are.
const SMALL: usize = 4096;

fn figures(source: &mut Probe) {
    let calls = source.driver_calls();
    assert!(!source.name().is_empty());
    assert!(source.granule_bytes().is_power_of_two());
    assert!(source.capacity_bytes() >= 8 * source.granule_bytes());
    source.can_alias();
    assert_eq!(source.driver_calls(), calls);
}

fn reservations(source: &mut Probe) {
    let bytes = 4 * source.granule_bytes();
    let calls = source.driver_calls();
    let mut addresses: Vec<u64> = (0..8).map(|_| source.reserve(bytes).unwrap()).collect();
    assert!(source.driver_calls() > calls);
    assert!(addresses.iter().all(|address| address.is_multiple_of(source.granule_bytes() as u64) && *address > 0));
    addresses.sort_unstable();
    assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= bytes as u64), "{addresses:x?}");
    addresses.into_iter().for_each(|address| source.release(address, bytes));
    let address = source.reserve(bytes).unwrap();
    source.release(address, bytes);
}

fn granules(source: &mut Probe) {
    let mut granules: Vec<Granule> = (0..4).map(|_| source.create().unwrap()).collect();
    source.destroy(granules.swap_remove(1));
    granules.push(source.create().unwrap());
    granules.sort_unstable();
    granules.dedup();
    assert_eq!(granules.len(), 4);
    granules.into_iter().for_each(|granule| source.destroy(granule));
}

fn capacity(source: &mut Probe) {
    let most = source.capacity_bytes() / source.granule_bytes();
    if most > SMALL {
        return;
    }
    for _ in 0..2 {
        let granules: Vec<Granule> = std::iter::from_fn(|| source.create().ok()).collect();
        assert_eq!(granules.len(), most);
        assert_eq!(source.create(), Err(Refusal::OutOfMemory));
        granules.into_iter().for_each(|granule| source.destroy(granule));
    }
}

fn bytes_stay(source: &mut Probe) {
    let granule_bytes = source.granule_bytes();
    let (address, granules) = mapped(source, 3);
    let nth = |k: usize| address + (k * granule_bytes) as u64;
    source.write(nth(0), &pattern(1, 3 * granule_bytes));
    source.unmap(nth(1), granule_bytes);
    assert_eq!(source.read(nth(0), granule_bytes), pattern(1, 3 * granule_bytes)[..granule_bytes]);
    assert_eq!(source.read(nth(2), granule_bytes), pattern(1, 3 * granule_bytes)[2 * granule_bytes..]);
    source.map(nth(1), &granules[1..2]).unwrap();
    assert_eq!(source.read(nth(0), 3 * granule_bytes), pattern(1, 3 * granule_bytes));
    give_back(source, address, granules);
}

fn aliases(source: &mut Probe) {
    let granule_bytes = source.granule_bytes();
    let (address, granules) = mapped(source, 2);
    let second = source.reserve(2 * granule_bytes).unwrap();
    if !source.can_alias() {
        assert_eq!(source.map(second, &granules), Err(Refusal::CannotAlias));
        source.unmap(address, 2 * granule_bytes);
        assert_eq!(source.map(second, &granules[..1]), Err(Refusal::CannotAlias), "a granule keeps its address");
        source.map(address, &granules).unwrap();
    } else {
        source.map(second, &granules).unwrap();
        source.write(address, &pattern(1, 2 * granule_bytes));
        assert_eq!(source.read(second, 2 * granule_bytes), pattern(1, 2 * granule_bytes));
        source.write(second + 5, &[77]);
        assert_eq!(source.read(address + 5, 1), [77]);
        source.unmap(second, 2 * granule_bytes);
        assert_eq!(source.read(address + 5, 1), [77]);
    }
    source.release(second, 2 * granule_bytes);
    give_back(source, address, granules);
}

fn stitched(source: &mut Probe) {
    let granule_bytes = source.granule_bytes();
    if !source.can_alias() {
        return;
    }
    let (address, granules) = mapped(source, 6);
    for k in 0..6 {
        source.write(address + (k * granule_bytes) as u64, &pattern(k as u8, granule_bytes));
    }
    let order = [4, 1, 5, 0];
    let side_by_side: Vec<Granule> = order.iter().map(|&k| granules[k]).collect();
    let view = source.reserve(8 * granule_bytes).unwrap();
    let start = view + 2 * granule_bytes as u64;
    source.map(start, &side_by_side).unwrap();
    let expected: Vec<u8> = order.iter().flat_map(|&k| pattern(k as u8, granule_bytes)).collect();
    assert_eq!(source.read(start, 4 * granule_bytes), expected);
    source.write(start, &pattern(9, 4 * granule_bytes));
    for (place, &k) in order.iter().enumerate() {
        let there = source.read(address + (k * granule_bytes) as u64, granule_bytes);
        assert_eq!(there, pattern(9, 4 * granule_bytes)[place * granule_bytes..][..granule_bytes]);
    }
    source.unmap(start, 4 * granule_bytes);
    source.release(view, 8 * granule_bytes);
    give_back(source, address, granules);
}

fn clean(source: &mut Probe) {
    let granule_bytes = source.granule_bytes();
    let (address, granules) = mapped(source, 4);
    let all = 4 * granule_bytes;
    assert_clean_outside(source, address, all);
    give_back(source, address, granules);

    let (address, granules) = mapped(source, 4);
    let some = address + (granule_bytes + 512) as u64;
    assert_clean_outside(source, some, 512);
    source.write(some, &pattern(1, 512));
    assert_clean_outside(source, address, all);
    source.write(address, &pattern(2, all));
    give_back(source, address, granules);

    // Another granule at an address at which one was used.
    let (address, mut granules) = mapped(source, 4);
    assert_clean_outside(source, address, all);
    source.write(address, &pattern(4, all));
    source.unmap(address, granule_bytes);
    source.destroy(granules.remove(0));
    granules.insert(0, source.create().unwrap());
    source.map(address, &granules[..1]).unwrap();
    assert_clean_outside(source, address, all);
    give_back(source, address, granules);

    let (address, granules) = mapped(source, 4);
    assert_clean_outside(source, address, all);
    assert_eq!(source.unclean(address, all), address..address + all as u64, "all was claimed");
    give_back(source, address, granules);
}

fn assert_clean_outside(source: &mut Probe, address: u64, bytes: usize) {
    let unclean = source.unclean(address, bytes);
    let end = address + bytes as u64;
    assert!(unclean.is_empty() || (address <= unclean.start && unclean.end <= end), "{unclean:x?}");
    let whole = unclean.is_empty();
    let below = address..if whole { end } else { unclean.start };
    let above = if whole { end } else { unclean.end }..end;
    for range in [below, above] {
        let there = source.read(range.start, (range.end - range.start) as usize);
        assert!(there.iter().all(|&byte| byte == 0), "{range:x?} is not zero");
    }
}

fn streams(source: &mut Probe) {
    let (a, b) = (StreamId(0), StreamId(1));
    source.order(b, a).unwrap();
    source.order(a, b).unwrap();
    source.synchronize().unwrap();
    assert!(source.is_idle(a) && source.is_idle(b));
}

/// Fresh granules, mapped side by side in a reservation of their own.
fn mapped(source: &mut Probe, count: usize) -> (u64, Vec<Granule>) {
    let granules: Vec<Granule> = (0..count).map(|_| source.create().unwrap()).collect();
    let bytes = count * source.granule_bytes();
    let address = source.reserve(bytes).unwrap();
    source.map(address, &granules).unwrap();
    (address, granules)
}

/// Unmaps and destroys the granules of [`mapped`].
fn give_back(source: &mut Probe, address: u64, granules: Vec<Granule>) {
    let bytes = granules.len() * source.granule_bytes();
    source.unmap(address, bytes);
    granules.into_iter().for_each(|granule| source.destroy(granule));
    source.release(address, bytes);
}

/// Bytes that differ from place to place and from seed to seed, and are never zero.
fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| ((i / 7 + i % 251 + 83 * seed as usize) % 255) as u8 + 1).collect()
}
