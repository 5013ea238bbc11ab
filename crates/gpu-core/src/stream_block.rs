use crate::device::Scope;
use crate::error::Result;
use crate::pool::{AllocationRequest, BlockId};
use crate::source::StreamId;

/// Memory of a GPU for the work of one stream, with undefined contents, at a multiple of 512 bytes.
///
/// Its bytes are booked on a [`Scope`] until it is dropped. The pool then gives its memory to other
/// work of the same stream at once, and to that of another stream once it is ordered after this
/// one's. Work of other streams on the memory has to be done before the drop.
#[derive(Debug)]
pub struct StreamBlock {
    scope: Scope,
    id: BlockId,
    address: u64,
    bytes: usize,
}

impl StreamBlock {
    /// A block of `bytes` for `stream`, the number of a stream of the device.
    ///
    /// # Errors
    /// [`Error::NeverFits`](crate::Error::NeverFits),
    /// [`Error::OverBudget`](crate::Error::OverBudget),
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) or
    /// [`Error::Refused`](crate::Error::Refused); the device is then as before.
    pub fn new(scope: &Scope, bytes: usize, stream: StreamId) -> Result<Self> {
        scope.book(bytes)?;
        let allocated = {
            let mut pool = scope.device().memory().pool();
            let request = AllocationRequest { stream, ..scope.request(bytes) };
            pool.allocate(&request).map(|id| (id, pool.address(id)))
        };
        match allocated {
            Ok((id, address)) => Ok(StreamBlock { scope: scope.clone(), id, address, bytes }),
            Err(shortage) => {
                scope.release(bytes);
                Err(scope.shortage(bytes, shortage))
            }
        }
    }

    /// First address.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for StreamBlock {
    fn drop(&mut self) {
        self.scope.device().memory().free(self.id);
        self.scope.release(self.bytes);
    }
}
