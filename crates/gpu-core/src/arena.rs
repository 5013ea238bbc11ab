use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytemuck::Pod;

use crate::cuda::Gpu;
use crate::device::{Booked, Device, Scope};
use crate::error::Result;
use crate::host::{self, ALIGN_BYTES, HostBlock};
use crate::pool::{BlockId, Mobility, Pool, PoolSettings, Stats};
use crate::source::Source;

/// Memory whose blocks may move, so that free memory can be compacted where stitching does not
/// help.
///
/// A block is a [`ArenaHandle`], not an address. Slices borrow the arena, and [`Arena::step`] wants
/// it exclusively: no pointer lives when blocks move.
///
/// ```compile_fail,E0502
/// # use megabatch_gpu_core::{Arena, Device};
/// let mut arena = Arena::new(&Device::cpu().scope("states"))?;
/// let state = arena.zeros::<f32>(1000)?;
/// let values = arena.slice(&state);
/// arena.step(); // the block may move here …
/// assert_eq!(values[0], 0.0); // … so that this does not compile
/// # Ok::<(), megabatch_gpu_core::Error>(())
/// ```
///
/// The pool is the arena's own: nobody else's boundary of a step moves its blocks. Bytes are booked
/// on a [`Scope`], as a buffer's are. [`Arena::write`] and [`Arena::read`] reach the elements on
/// every device; slices are of host memory.
pub struct Arena {
    scope: Scope,
    pool: Pool,
    /// The GPU whose memory it is, if it is not the host's.
    gpu: Option<Gpu>,
    /// Tells handles of different arenas apart.
    number: u64,
    /// Handles that were not given back.
    booked: Booked,
}

/// A block of an [`Arena`]: `len` elements of `T`, zero when allocated, contiguous, aligned to 64
/// bytes.
///
/// It is given back with [`Arena::free`]; one that is dropped keeps its memory as long as the arena
/// lives.
#[derive(Debug)]
#[must_use = "a handle that is dropped keeps its memory as long as the arena lives"]
pub struct ArenaHandle<T: Pod> {
    /// None for a block of no bytes.
    block: Option<BlockId>,
    len: usize,
    arena: u64,
    element: PhantomData<T>,
}

impl<T: Pod> ArenaHandle<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }
}

impl Arena {
    /// An empty arena on the device of `scope`, which may take all of the device's memory.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) for a GPU that fails.
    pub fn new(scope: &Scope) -> Result<Self> {
        match scope.device() {
            Device::Cpu(_) => Ok(Self::over(host::source(), None, scope)),
            Device::Cuda(cuda) => Ok(Self::over(cuda.shared_gpu().source()?, Some(cuda.shared_gpu()), scope)),
        }
    }

    fn over(source: Box<dyn Source>, gpu: Option<Gpu>, scope: &Scope) -> Self {
        static ARENAS: AtomicU64 = AtomicU64::new(0);
        let pool = Pool::new(source, PoolSettings { capacity_bytes: None });
        Arena { scope: scope.clone(), pool, gpu, number: ARENAS.fetch_add(1, Relaxed), booked: Booked::default() }
    }

    /// Allocates `len` zeros.
    ///
    /// # Errors
    /// As [`Buffer::zeros`](crate::Buffer::zeros); no block has changed then.
    pub fn zeros<T: Pod>(&mut self, len: usize) -> Result<ArenaHandle<T>> {
        const { assert!(align_of::<T>() <= ALIGN_BYTES) };
        let bytes = self.scope.bytes_of::<T>(len)?;
        self.scope.book(bytes)?;
        let block = self.zeroed(bytes).inspect_err(|_| self.scope.release(bytes))?;
        self.booked.bytes += bytes;
        self.booked.buffers += 1;
        Ok(ArenaHandle { block, len, arena: self.number, element: PhantomData })
    }

    /// A block of zeros; none for no bytes.
    fn zeroed(&mut self, bytes: usize) -> Result<Option<BlockId>> {
        let request = self.scope.request(bytes, Mobility::Relocatable);
        let short = |shortage| self.scope.shortage(bytes, shortage);
        let Some(gpu) = self.gpu.as_ref().filter(|_| bytes > 0) else {
            return Ok(HostBlock::zeroed(&mut self.pool, &request).map_err(short)?.id);
        };
        let block = self.pool.allocate(&request).map_err(short)?;
        gpu.zero_block(self.pool.address(block), bytes).inspect_err(|_| self.pool.free(block))?;
        Ok(Some(block))
    }

    /// Gives a block back.
    ///
    /// # Panics
    /// If the handle is another arena's.
    #[allow(clippy::needless_pass_by_value, reason = "who gives a block back must not use it any more")]
    pub fn free<T: Pod>(&mut self, handle: ArenaHandle<T>) {
        self.assert_mine(&handle);
        if let Some(block) = handle.block {
            self.pool.free(block);
        }
        self.scope.release(handle.bytes());
        self.booked.bytes -= handle.bytes();
        self.booked.buffers -= 1;
    }

    /// Copies `values` to a block.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) for memory of a GPU that fails.
    ///
    /// # Panics
    /// If the handle is another arena's, or of another length.
    pub fn write<T: Pod>(&mut self, handle: &mut ArenaHandle<T>, values: &[T]) -> Result<()> {
        assert_eq!(values.len(), handle.len, "a copy is of as many elements on both sides");
        match &self.gpu {
            None => self.slice_mut(handle).copy_from_slice(values),
            Some(gpu) => gpu.write_block(self.address(handle), bytemuck::cast_slice(values))?,
        }
        Ok(())
    }

    /// Copies a block to `values`, after all work that was submitted to the device.
    ///
    /// # Errors
    /// As [`Arena::write`].
    ///
    /// # Panics
    /// As [`Arena::write`].
    pub fn read<T: Pod>(&self, handle: &ArenaHandle<T>, values: &mut [T]) -> Result<()> {
        assert_eq!(values.len(), handle.len, "a copy is of as many elements on both sides");
        match &self.gpu {
            None => values.copy_from_slice(self.slice(handle)),
            Some(gpu) => gpu.read_block(self.address(handle), bytemuck::cast_slice_mut(values))?,
        }
        Ok(())
    }

    /// Device address of the first element until the next [`Arena::zeros`] or [`Arena::step`], for
    /// kernels.
    ///
    /// # Panics
    /// If the handle is another arena's.
    pub fn address<T: Pod>(&self, handle: &ArenaHandle<T>) -> u64 {
        self.assert_mine(handle);
        handle.block.map_or(0, |block| self.pool.address(block))
    }

    /// The elements of a block in host memory.
    ///
    /// # Panics
    /// If the handle is another arena's, or the arena is on a GPU.
    pub fn slice<'a, T: Pod>(&'a self, handle: &'a ArenaHandle<T>) -> &'a [T] {
        let start = self.start(handle);
        // SAFETY: the block is live, because its handle is and only `free` consumes one; it holds
        // `len` elements, initialised, aligned to 64 bytes. It stays where it is while the arena is
        // borrowed, since all that moves blocks takes the arena exclusively. Only `slice_mut` gives
        // a reference for writing, for which it borrows the one handle of the block exclusively.
        unsafe { std::slice::from_raw_parts(start, handle.len) }
    }

    /// The elements of a block in host memory for writing. Slices of other blocks may be in use
    /// beside it.
    ///
    /// # Panics
    /// As [`Arena::slice`].
    pub fn slice_mut<'a, T: Pod>(&'a self, handle: &'a mut ArenaHandle<T>) -> &'a mut [T] {
        let start = self.start(handle);
        // SAFETY: as in `slice`; the exclusive borrow of the block's one handle makes this the only
        // reference.
        unsafe { std::slice::from_raw_parts_mut(start, handle.len) }
    }

    /// Tells the pool that a step of the work ends here: blocks may move to make room for what is
    /// asked for next.
    pub fn step(&mut self) {
        self.pool.step();
    }

    /// Gives the memory that the arena keeps without need back to the system; returns its bytes.
    pub fn empty_cache(&mut self) -> usize {
        self.pool.empty_cache()
    }

    /// Counters of the arena's pool, with their peaks.
    pub fn stats(&self) -> Stats {
        self.pool.stats()
    }

    /// The scope on which the bytes are booked.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    fn start<T: Pod>(&self, handle: &ArenaHandle<T>) -> *mut T {
        self.assert_mine(handle);
        if let Some(gpu) = &self.gpu {
            panic!("{}: slices are of host memory; Arena::read reads a block on {gpu}", self.scope.label());
        }
        match handle.block {
            Some(block) => host::pointer(self.pool.address(block)).as_ptr().cast(),
            None => std::ptr::NonNull::dangling().as_ptr(),
        }
    }

    fn assert_mine<T: Pod>(&self, handle: &ArenaHandle<T>) {
        assert_eq!(handle.arena, self.number, "a handle of another arena");
    }
}

impl Drop for Arena {
    /// Handles that were dropped never gave their bytes back.
    fn drop(&mut self) {
        self.scope.release_all(self.booked);
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("scope", &self.scope.label()).field("stats", &self.stats()).finish()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::source::Memfd;

    const G: usize = 64 << 10;

    fn arena(scope: &Scope, granules: usize) -> Arena {
        Arena::over(Box::new(Memfd::new(granules * G, G).unwrap()), None, scope)
    }

    /// Writes numbers into a block that follow from the block's own.
    fn write(arena: &Arena, number: u64, handle: &mut ArenaHandle<u64>) {
        arena.slice_mut(handle).iter_mut().zip(0..).for_each(|(value, i)| *value = (number << 32) + i);
    }

    fn assert_intact(arena: &Arena, number: u64, handle: &ArenaHandle<u64>) {
        let expected = (0..handle.len() as u64).map(|i| (number << 32) + i);
        assert!(arena.slice(handle).iter().copied().eq(expected), "block {number} has changed");
    }

    #[test]
    fn contents_survive_compaction() {
        let device = Device::cpu();
        let mut arena = arena(&device.scope("states"), 16);
        // Three quarters of a granule each: no whole granule is free once every other block is.
        let len = G / 8 * 3 / 4;
        let mut blocks: Vec<_> = (0..16).map(|number| (number, arena.zeros(len).unwrap())).collect();
        blocks.iter_mut().for_each(|(number, handle)| write(&arena, *number, handle));
        let (gone, blocks): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|(number, _)| number % 2 == 0);
        gone.into_iter().for_each(|(_, handle)| arena.free(handle));

        arena.step();
        let large = arena.zeros::<u64>(9 * G / 8).unwrap();
        assert!(arena.slice(&large).iter().all(|&value| value == 0));
        assert!(arena.stats().copied_bytes_total > 0, "nothing had to move");
        blocks.iter().for_each(|(number, handle)| assert_intact(&arena, *number, handle));
        arena.free(large);
        blocks.iter().for_each(|(number, handle)| assert_intact(&arena, *number, handle));
    }

    #[test]
    fn slices_of_several_blocks_are_used_together() {
        let scope = Device::cpu().scope("states");
        let mut arena = arena(&scope, 4);
        let (mut a, mut b) = (arena.zeros::<u32>(100).unwrap(), arena.zeros::<u32>(0).unwrap());
        let c = arena.zeros::<u32>(100).unwrap();
        let (x, y, z) = (arena.slice_mut(&mut a), arena.slice_mut(&mut b), arena.slice(&c));
        x.copy_from_slice(z);
        x[99] = 5;
        assert_eq!((y.len(), z[99], arena.slice(&a)[99]), (0, 0, 5));
        assert_eq!((scope.usage().allocated_bytes, scope.usage().buffers), (800, 3));
        arena.free(a);
        assert_eq!((scope.usage().allocated_bytes, scope.usage().buffers), (400, 2));
        drop(arena);
        assert_eq!((scope.usage().allocated_bytes, scope.usage().buffers), (0, 0));
    }

    #[test]
    #[should_panic(expected = "a handle of another arena")]
    fn a_handle_belongs_to_one_arena() {
        let scope = Device::cpu().scope("states");
        let (mut one, another) = (arena(&scope, 4), arena(&scope, 4));
        let handle = one.zeros::<u8>(10).unwrap();
        another.slice(&handle);
    }
}
