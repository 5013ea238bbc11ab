//! Launches of the recurrence of layers that are too wide for one block: groups of blocks that
//! share the units, 32 each, and wait for each other after every step.

use megabatch_gpu_core::Cuda;
use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_nn::Result;

use super::operand::Operand;
use super::recurrent_weights::is_of_a_block;
use super::scratch::Scratch;
use super::work_list::{TileWindows, WorkList};

/// Units of a block.
const BLOCK_UNITS: usize = 32;

/// Distribution of a list's windows over groups: `find_span` of group.cuh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    /// Groups that have something to do.
    pub(super) groups: usize,
    /// The most tiles of one sequence that a group takes from the first step to the last. A step
    /// takes as long as its product, whatever that is of, and as waiting.
    pub(super) tiles_each: usize,
}

impl Shares {
    /// As few tiles to each of `groups` as it takes for every one to have its group at once; more
    /// sequences than groups come one after another.
    pub(super) fn split(list: &WorkList, groups: usize) -> Self {
        let tiles = list.places().iter().map(|place| (place.windows as usize).div_ceil(list.tile_windows()));
        let tiles: Vec<usize> = tiles.filter(|&tiles| tiles > 0).collect();
        let spans = |each: usize| tiles.iter().map(|tiles| tiles.div_ceil(each)).sum::<usize>();
        let most = tiles.iter().max().map_or(1, |&most| most);
        let tiles_each = (1..most).find(|&each| spans(each) <= groups).unwrap_or(most);
        Shares { groups: groups.min(spans(tiles_each)), tiles_each }
    }

    /// The numbers that the kernels of either direction are told of a list: tiles, those of a span,
    /// windows of a tile, H.
    pub(super) fn numbers(&self, list: &WorkList) -> [u32; 4] {
        [list.tiles(), self.tiles_each, list.tile_windows(), list.hidden()].map(|number| number as u32)
    }
}

/// A launch, and what its blocks tell each other in.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) shares: Shares,
    /// Address of the rounds that each block of each group has announced, a `u32` each.
    pub(super) arrived: u64,
    pub(super) launch: Option<Launch>,
}

impl Groups {
    /// Groups for a kernel that is made for so many units, at most as many as run at once; `None`
    /// where the GPU has no room for one. `scratch` is the launch's until it is over.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says.
    ///
    /// # Panics
    /// If the kernels' 32-bit numbers do not reach every row of the list.
    pub(super) fn for_launch(
        kernel: &Kernel<'_>,
        units: usize,
        device: &Cuda,
        list: &WorkList,
        scratch: &mut Scratch,
    ) -> Result<Option<Self>> {
        assert!(u32::try_from(list.rows() + list.windows()).is_ok(), "too many rows for one launch");
        let group_count = kernel.resident_blocks(device, threads(units))? as usize / blocks(units);
        if group_count == 0 {
            return Ok(None);
        }
        let shares = Shares::split(list, group_count);
        let arrived = scratch.address_of_zeros::<u32>(shares.groups * blocks(units))?;
        Ok(Some(Groups { shares, arrived, launch: launch(shares.groups, units) }))
    }
}

/// Rounds that the groups for sequences of so many windows announce at most, on a GPU that has room
/// for all of them; none where a block waits for no other.
pub(super) fn arrived_max(windows: &[usize], units: usize) -> usize {
    if is_of_a_block(units) { 0 } else { WorkList::tiles_max(windows, TileWindows::Eight) * blocks(units) }
}

/// Name of a kernel for groups.
pub(super) fn kernel_name<T: Operand>(direction: &str, units: usize) -> String {
    format!("{direction}_{}_{units}", T::SUFFIX)
}

/// Blocks of a group.
pub(super) fn blocks(units: usize) -> usize {
    units / BLOCK_UNITS
}

/// Threads of a block: a warp for each block of the group.
fn threads(units: usize) -> u32 {
    32 * blocks(units) as u32
}

/// A launch of so many groups.
pub(super) fn launch(groups: usize, units: usize) -> Option<Launch> {
    Some(Launch::for_blocks(groups * blocks(units))?.with_threads(threads(units)).cooperative())
}

#[cfg(test)]
mod tests {
    use megabatch_gpu_core::Device;

    use super::super::uploaded::work_list;
    use super::super::work_list::Sequence;
    use super::*;

    #[test]
    fn every_sequence_has_its_groups_at_once_where_there_are_enough() {
        let scope = Device::cpu().scope("test");
        let sequence = |first| Sequence { steps: 2, first, row_step: 1, projected_rows: 2 };
        // Of tiles of eight windows: five, none, one and three.
        let sequences = [sequence(&[0; 33][..]), sequence(&[]), sequence(&[0]), sequence(&[0; 24])];
        let list = work_list(&scope, 200, TileWindows::Eight, &sequences).unwrap();
        let cases = [(100, (9, 1)), (9, (9, 1)), (8, (6, 2)), (5, (4, 3)), (4, (4, 3)), (3, (3, 5)), (1, (1, 5))];
        for (group_count, (groups, tiles_each)) in cases {
            assert_eq!(Shares::split(&list, group_count), Shares { groups, tiles_each }, "room for {group_count}");
        }
        let nothing = WorkList::empty(&scope, 200).unwrap();
        assert_eq!(Shares::split(&nothing, 7), Shares { groups: 0, tiles_each: 1 });
        assert_eq!(launch(0, 256), None);
        assert_eq!(launch(3, 384).map(Into::into), Some((36u32, 384u32)));
    }
}
