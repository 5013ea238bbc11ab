use std::collections::BTreeMap;

use super::Granule;

/// The ranges that a source has reserved, and the granule at each of their addresses.
///
/// Every misuse that the contract of [`Source`](super::Source) excludes is a panic here, so that no
/// source has to trust its caller.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    granule_bytes: u64,
    /// Length in bytes of each reservation, by its first address.
    reservations: BTreeMap<u64, u64>,
    /// The granule at each mapped address.
    seen: BTreeMap<u64, Granule>,
    /// At how many addresses each granule is seen.
    addresses_of: BTreeMap<Granule, usize>,
    runs: usize,
}

impl AddressSpace {
    pub(crate) fn new(granule_bytes: usize) -> Self {
        assert!(granule_bytes.is_power_of_two(), "a granule of {granule_bytes} bytes is no power of two");
        AddressSpace {
            granule_bytes: granule_bytes as u64,
            reservations: BTreeMap::new(),
            seen: BTreeMap::new(),
            addresses_of: BTreeMap::new(),
            runs: 0,
        }
    }

    /// Books a reservation.
    pub(crate) fn reserve(&mut self, address: u64, bytes: usize) {
        self.assert_whole(address, bytes);
        let end = address + bytes as u64;
        let below = self.reservations.range(..end).next_back();
        assert!(
            below.is_none_or(|(&start, &bytes)| start + bytes <= address),
            "{address:#x} + {bytes} lies in another reservation"
        );
        self.reservations.insert(address, bytes as u64);
    }

    /// Takes a reservation back.
    pub(crate) fn release(&mut self, address: u64, bytes: usize) {
        let reserved = self.reservations.remove(&address);
        assert_eq!(reserved, Some(bytes as u64), "{address:#x} + {bytes} is no reservation");
        let first = self.seen.range(address..address + bytes as u64).next();
        assert!(first.is_none(), "{address:#x} + {bytes} is released, but something is still mapped: {first:x?}");
    }

    /// Every reservation: first address and length in bytes.
    pub(crate) fn reservations(&self) -> impl Iterator<Item = (u64, usize)> {
        self.reservations.iter().map(|(&address, &bytes)| (address, bytes as usize))
    }

    /// Every address at which a granule is seen.
    #[cfg(feature = "cuda")]
    pub(crate) fn seen(&self) -> impl Iterator<Item = u64> {
        self.seen.keys().copied()
    }

    /// Books granules at consecutive addresses at which nothing is seen yet.
    pub(crate) fn map(&mut self, address: u64, granules: &[Granule]) {
        self.assert_reserved(address, granules.len() * self.granule_bytes as usize);
        for (page, &granule) in self.addresses(address, granules.len()).zip(granules) {
            self.change(page, |seen| {
                let before = seen.insert(page, granule);
                assert!(before.is_none(), "{granule:?} is mapped to {page:#x}, where {before:?} is");
            });
            *self.addresses_of.entry(granule).or_insert(0) += 1;
        }
    }

    /// Unmaps a range without gaps.
    pub(crate) fn unmap(&mut self, address: u64, bytes: usize) {
        self.assert_reserved(address, bytes);
        for page in self.addresses(address, bytes / self.granule_bytes as usize) {
            let mut granule = None;
            self.change(page, |seen| granule = seen.remove(&page));
            let granule = granule.unwrap_or_else(|| panic!("{page:#x} is unmapped, but nothing is mapped there"));
            let addresses = self.addresses_of.get_mut(&granule).expect("a granule that was seen is counted");
            *addresses -= 1;
            if *addresses == 0 {
                self.addresses_of.remove(&granule);
            }
        }
    }

    /// At how many addresses a granule is seen.
    pub(crate) fn addresses_of(&self, granule: Granule) -> usize {
        self.addresses_of.get(&granule).copied().unwrap_or(0)
    }

    /// Maximal runs of consecutive granules at consecutive addresses: as many mappings as a system
    /// needs to know.
    pub(crate) fn runs(&self) -> usize {
        self.runs
    }

    /// The pieces of any range of bytes, granule by granule: the granule, the offset in it and the
    /// length.
    ///
    /// # Panics
    /// If something in the range is not mapped.
    pub(crate) fn pieces(&self, address: u64, bytes: usize) -> impl Iterator<Item = (Granule, usize, usize)> {
        let end = address.checked_add(bytes as u64).expect("an address range ends");
        let mut page = address;
        std::iter::from_fn(move || {
            let offset = page % self.granule_bytes;
            let len = (self.granule_bytes - offset).min(end - page);
            let granule = (page < end).then(|| self.seen.get(&(page - offset)))?;
            let granule = granule.unwrap_or_else(|| panic!("{page:#x} is used, but nothing is mapped there"));
            page += len;
            Some((*granule, offset as usize, len as usize))
        })
    }

    /// Changes the mapping at one address and updates the count of runs, which this address and the
    /// next can begin.
    fn change(&mut self, page: u64, change: impl FnOnce(&mut BTreeMap<u64, Granule>)) {
        let before = self.begins_run(page) + self.begins_run(page + self.granule_bytes);
        change(&mut self.seen);
        let after = self.begins_run(page) + self.begins_run(page + self.granule_bytes);
        self.runs = self.runs + after - before;
    }

    fn begins_run(&self, page: u64) -> usize {
        let follows = |granule: &Granule| match self.seen.get(&page.wrapping_sub(self.granule_bytes)) {
            Some(below) => below.0 + 1 == granule.0,
            None => false,
        };
        usize::from(self.seen.get(&page).is_some_and(|granule| !follows(granule)))
    }

    fn addresses(&self, address: u64, granules: usize) -> impl Iterator<Item = u64> + use<> {
        let granule_bytes = self.granule_bytes;
        (0..granules as u64).map(move |k| address + k * granule_bytes)
    }

    fn assert_reserved(&self, address: u64, bytes: usize) {
        self.assert_whole(address, bytes);
        let inside = self.reservations.range(..=address).next_back();
        assert!(
            inside.is_some_and(|(start, reserved)| address + bytes as u64 <= start + reserved),
            "{address:#x} + {bytes} is not within a reservation"
        );
    }

    fn assert_whole(&self, address: u64, bytes: usize) {
        assert!(bytes > 0, "an empty range at {address:#x}");
        let whole = address.is_multiple_of(self.granule_bytes) && (bytes as u64).is_multiple_of(self.granule_bytes);
        assert!(whole, "{address:#x} + {bytes} does not consist of granules of {} bytes", self.granule_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 16;

    #[test]
    fn runs_are_counted_as_mappings_come_and_go() {
        let mut space = AddressSpace::new(G as usize);
        space.reserve(0, 160);
        let granules = |numbers: &[u64]| numbers.iter().map(|&n| Granule(n)).collect::<Vec<_>>();
        space.map(0, &granules(&[1, 2, 3, 7, 8]));
        assert_eq!(space.runs(), 2);
        space.unmap(G, 16);
        assert_eq!(space.runs(), 3);
        space.map(G, &granules(&[2]));
        assert_eq!(space.runs(), 2);
        space.map(5 * G, &granules(&[9, 1]));
        assert_eq!((space.runs(), space.addresses_of(Granule(1))), (3, 2));
        space.unmap(0, 7 * G as usize);
        assert_eq!((space.runs(), space.addresses_of(Granule(1))), (0, 0));
        space.release(0, 160);
    }

    #[test]
    fn pieces_cut_a_range_at_granules() {
        let mut space = AddressSpace::new(G as usize);
        space.reserve(32, 64);
        space.map(32, &[Granule(5), Granule(3)]);
        assert_eq!(space.pieces(40, 10).collect::<Vec<_>>(), [(Granule(5), 8, 8), (Granule(3), 0, 2)]);
        assert_eq!(space.pieces(48, 16).collect::<Vec<_>>(), [(Granule(3), 0, 16)]);
        assert_eq!(space.pieces(100, 0).count(), 0);
    }
}
