//! Exchanges of all ranks, which succeed on all of them or on none.

use super::{PeerLost, Peers};

/// Flag of a rank that has completed an exchange.
const COMPLETE: u32 = 1;
/// Flag of a rank that has done its own work.
const SUCCESS: u32 = 2;
/// Flag of a rank that does not want the run to end.
pub(crate) const GO_ON: u32 = 4;

/// Bytes of the longest message.
const MESSAGE_MAX: usize = 1 << 24;

/// Runs `work` on every rank. Returns its result and the AND of the `flags` of all ranks.
///
/// # Errors
/// [`PeerLost`] on every rank where one of them could not do it.
pub(crate) fn exchange<T>(
    peers: &mut dyn Peers,
    flags: u32,
    work: impl FnOnce(&mut dyn Peers) -> Result<T, PeerLost>,
) -> Result<(T, u32), PeerLost> {
    let done = work(peers);
    match &done {
        // The others wait in vain as well: one more wait would tell nothing.
        Err(lost) if !lost.can_reform => return done.map(|done| (done, 0)),
        Err(_) => peers.revoke(),
        Ok(_) => {}
    }
    let agreed = peers.agree(if done.is_ok() { flags | COMPLETE } else { 0 })?;
    let done = done?;
    if agreed & COMPLETE == 0 {
        let reason = "another one could not go through with an exchange".to_owned();
        return Err(PeerLost { rank: peers.rank(), world: peers.world(), lost_rank: None, reason, can_reform: true });
    }
    Ok((done, agreed))
}

/// The first rank that failed, and its `failure`; `None` where none did.
///
/// # Errors
/// [`PeerLost`] where a rank does not answer.
pub fn first_failure(peers: &mut dyn Peers, failure: Option<&[u8]>) -> Result<Option<(usize, Vec<u8>)>, PeerLost> {
    let (_, flags) = exchange(peers, if failure.is_none() { SUCCESS } else { 0 }, |_| Ok(()))?;
    if flags & SUCCESS != 0 {
        return Ok(None);
    }
    let first = exchange(peers, 0, |peers| {
        for rank in 0..peers.world() {
            let mut has_failed = [u8::from(failure.is_some())];
            peers.broadcast(rank, &mut has_failed)?;
            if has_failed == [1] {
                let own = failure.filter(|_| rank == peers.rank());
                return Ok(Some((rank, broadcast_bytes(peers, rank, own.map(<[u8]>::to_vec))?)));
            }
        }
        Ok(None)
    });
    first.map(|(first, _)| first)
}

/// The bytes that rank `root` has.
pub(crate) fn broadcast_bytes(peers: &mut dyn Peers, root: usize, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, PeerLost> {
    let mut bytes = bytes.unwrap_or_default();
    let mut len = (bytes.len() as u64).to_le_bytes();
    peers.broadcast(root, &mut len)?;
    let len = u64::from_le_bytes(len);
    bytes.resize(usize::try_from(len).expect("a message that another process held"), 0);
    bytes.chunks_mut(MESSAGE_MAX).try_for_each(|part| peers.broadcast(root, part))?;
    Ok(bytes)
}

/// The texts of all ranks, of which `own` is this rank's.
///
/// # Errors
/// [`PeerLost`] where a rank does not answer.
pub fn gather_texts(peers: &mut dyn Peers, own: &str) -> Result<Vec<String>, PeerLost> {
    let (texts, _) = exchange(peers, 0, |peers| {
        let mut texts = Vec::with_capacity(peers.world());
        for rank in 0..peers.world() {
            let own = (rank == peers.rank()).then(|| own.as_bytes().to_vec());
            let text = broadcast_bytes(peers, rank, own)?;
            texts.push(String::from_utf8_lossy(&text).into_owned());
        }
        Ok(texts)
    })?;
    Ok(texts)
}

/// A fact that differs between a rank and rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The fact's name.
    pub name: String,
    /// Its value on this rank; empty where the rank does not have it.
    pub here: String,
    /// Its value on rank 0.
    pub first: String,
}

/// The first of `facts`, by name and value, that differs from rank 0.
///
/// # Errors
/// [`PeerLost`] where a rank does not answer.
pub fn first_difference(peers: &mut dyn Peers, facts: &[(String, String)]) -> Result<Option<Difference>, PeerLost> {
    let encoded = (peers.rank() == 0).then(|| encode(facts));
    let (first, _) = exchange(peers, 0, |peers| broadcast_bytes(peers, 0, encoded))?;
    let first = decode(&first);
    let value_of = |facts: &[(String, String)], name: &str| {
        facts.iter().find(|(own, _)| own == name).map_or_else(String::new, |(_, value)| value.clone())
    };
    let names = first.iter().chain(facts).map(|(name, _)| name);
    let differences =
        names.map(|name| Difference { name: name.clone(), here: value_of(facts, name), first: value_of(&first, name) });
    Ok(differences.into_iter().find(|difference| difference.here != difference.first))
}

fn encode(facts: &[(String, String)]) -> Vec<u8> {
    let texts = facts.iter().flat_map(|(name, value)| [name, value]);
    texts.flat_map(|text| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()).collect()
}

fn decode(mut bytes: &[u8]) -> Vec<(String, String)> {
    let mut text = || {
        let (len, rest) = bytes.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        bytes = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    std::iter::from_fn(|| Some((text()?, text()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::threads::{Faults, ThreadPeers};
    use super::*;

    #[test]
    fn all_ranks_hear_of_the_first_failure() {
        for (failing, expected) in
            [(vec![], None), (vec![2], Some((2, b"rank 2".to_vec()))), (vec![3, 1], Some((1, b"rank 1".to_vec())))]
        {
            let found = ThreadPeers::run(4, &Faults::default(), |mut peers| {
                let own = failing.contains(&peers.rank()).then(|| format!("rank {}", peers.rank()));
                first_failure(&mut peers, own.as_ref().map(String::as_bytes))
            });
            assert_eq!(found, vec![expected; 4]);
        }
    }

    #[test]
    fn each_rank_has_the_texts_of_all() {
        let found = ThreadPeers::run(3, &Faults::default(), |mut peers| {
            let own = "é".repeat(peers.rank());
            gather_texts(&mut peers, &own)
        });
        assert_eq!(found, vec![[String::new(), "é".to_owned(), "éé".to_owned()]; 3]);
    }

    #[test]
    fn a_rank_that_differs_knows_by_what() {
        let facts = |peers: &ThreadPeers| {
            let mut facts = vec![("version".to_owned(), "1".to_owned()), ("é".to_owned(), String::new())];
            match peers.rank() {
                1 => facts[0].1 = "2".to_owned(),
                2 => facts.push(("more".to_owned(), "x".to_owned())),
                _ => {}
            }
            facts
        };
        let found = ThreadPeers::run(4, &Faults::default(), |mut peers| {
            let facts = facts(&peers);
            first_difference(&mut peers, &facts)
        });
        let difference = |name: &str, here: &str, first: &str| {
            Some(Difference { name: name.to_owned(), here: here.to_owned(), first: first.to_owned() })
        };
        assert_eq!(found, [None, difference("version", "2", "1"), difference("more", "x", ""), None]);
    }

    #[test]
    fn an_exchange_counts_on_all_ranks_or_on_none() {
        let faults = Faults { deaths: vec![(2, 2)], ..Faults::default() };
        let found = ThreadPeers::run(4, &faults, |mut peers| {
            // Rank 2 ends between two messages, which only rank 3 waits for.
            let outcome = exchange(&mut peers, GO_ON, |peers| match peers.rank() {
                2 => (0..2).try_for_each(|_| peers.send(3, &[1])),
                3 => (0..2).try_for_each(|_| peers.receive(2, &mut [0])),
                _ => Ok(()),
            });
            Ok::<_, ()>(outcome.map_err(|lost| lost.can_reform))
        });
        assert_eq!(found, [Err(true), Err(true), Err(false), Err(true)]);
    }
}
