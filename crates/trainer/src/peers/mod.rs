//! Processes that train one model together.

pub(crate) mod exchange;
pub(crate) mod floats;
pub(crate) mod relay;
pub(crate) mod step_gradients;
#[cfg(test)]
#[path = "../../tests/thread_peers/mod.rs"]
#[allow(dead_code, reason = "made for all tests with several ranks, and not all of it is needed here")]
mod threads;

use std::fmt;

use thiserror::Error;

/// The processes that train one model together, from the view of one of them.
///
/// Every rank calls the same operations in the same order. Each has a deadline. A message is
/// received with the length with which it was sent; messages of one rank to another arrive in
/// order.
///
/// After a failure of any operation but [`Peers::agree`], the rank calls [`Peers::revoke`] and then
/// `agree`, as all others do at the end of the same exchange.
pub trait Peers: fmt::Debug + Send {
    /// Number of this process, from 0. Another one after [`Peers::reform`].
    fn rank(&self) -> usize;

    /// Number of processes.
    fn world(&self) -> usize;

    /// Sends `message` to `rank`, without waiting for its arrival.
    ///
    /// # Errors
    /// [`PeerLost`] where the rank cannot be reached.
    fn send(&mut self, rank: usize, message: &[u8]) -> Result<(), PeerLost>;

    /// Fills `message` with the next one from `rank`.
    ///
    /// # Errors
    /// [`PeerLost`] where it does not come in time.
    fn receive(&mut self, rank: usize, message: &mut [u8]) -> Result<(), PeerLost>;

    /// Copies `message` of rank `root` to all ranks.
    ///
    /// # Errors
    /// [`PeerLost`] where it does not come in time.
    fn broadcast(&mut self, root: usize, message: &mut [u8]) -> Result<(), PeerLost>;

    /// The bitwise AND of the `flags` of all ranks. All ranks that are not lost get the same
    /// answer, or all an error after which [`PeerLost::can_reform`] is true.
    ///
    /// # Errors
    /// [`PeerLost`] where a rank does not answer in time, or is lost.
    fn agree(&mut self, flags: u32) -> Result<u32, PeerLost>;

    /// Ends the waits of other ranks in the current exchange, if the transport can.
    fn revoke(&mut self) {}

    /// Continues without the lost ranks. The others keep their order.
    ///
    /// # Errors
    /// [`PeerLost`] where the transport cannot.
    fn reform(&mut self) -> Result<(), PeerLost>;

    /// Ends the communication after all ranks have done their work.
    ///
    /// # Errors
    /// [`PeerLost`] where another rank does not end it.
    fn finish(self: Box<Self>) -> Result<(), PeerLost> {
        Ok(())
    }
}

/// A rank is lost: it ended, hangs, or has no network.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("rank {rank} of {world} {}{reason}", match lost_rank { Some(lost) => format!("lost rank {lost}: "), None => "lost another rank: ".to_owned() })]
pub struct PeerLost {
    /// The rank that noticed.
    pub rank: usize,
    /// Number of ranks.
    pub world: usize,
    /// The lost rank, where it is known.
    pub lost_rank: Option<usize>,
    /// Symptom of the loss.
    pub reason: String,
    /// True if the ranks that are left can go on, see [`Peers::reform`].
    pub can_reform: bool,
}
