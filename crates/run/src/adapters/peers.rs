//! The ranks of an MPI job as the trainer's peers.

use megabatch_mpi_lazy::{Error, Job};
use megabatch_trainer::{PeerLost, Peers};

/// A job of MPI.
#[derive(Debug)]
pub(crate) struct MpiPeers(pub(crate) Job);

impl MpiPeers {
    fn lost(&self, lost_rank: Option<usize>, error: &Error) -> PeerLost {
        let (rank, world) = (self.0.rank(), self.0.world());
        // A rank that hangs is not known to be lost, and the others would wait for it.
        let can_reform = self.0.recovers() && matches!(error, Error::Failed { .. });
        let silent = match error {
            Error::Lost { rank, .. } => Some(*rank),
            _ => None,
        };
        PeerLost { rank, world, lost_rank: silent.or(lost_rank), reason: error.to_string(), can_reform }
    }
}

impl Peers for MpiPeers {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn world(&self) -> usize {
        self.0.world()
    }

    fn send(&mut self, to: usize, message: &[u8]) -> Result<(), PeerLost> {
        self.0.send(to, message.to_vec()).map_err(|error| self.lost(Some(to), &error))
    }

    fn receive(&mut self, from: usize, message: &mut [u8]) -> Result<(), PeerLost> {
        self.0.receive(from, message).map_err(|error| self.lost(Some(from), &error))
    }

    fn broadcast(&mut self, root: usize, message: &mut [u8]) -> Result<(), PeerLost> {
        self.0.broadcast(root, message).map_err(|error| self.lost(None, &error))
    }

    fn agree(&mut self, flags: u32) -> Result<u32, PeerLost> {
        self.0.agree(flags).map_err(|error| self.lost(None, &error))
    }

    fn revoke(&mut self) {
        self.0.revoke();
    }

    fn reform(&mut self) -> Result<(), PeerLost> {
        self.0.reform().map_err(|error| self.lost(None, &error))
    }

    fn finish(self: Box<Self>) -> Result<(), PeerLost> {
        let lost = self.lost(None, &Error::Over { reason: String::new() });
        self.0.finish().map_err(|error| PeerLost { reason: error.to_string(), ..lost })
    }
}
