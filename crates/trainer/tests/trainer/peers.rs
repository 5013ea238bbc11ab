//! Ranks as threads, which other tests rely on.

use std::time::{Duration, Instant};

use megabatch_trainer::{PeerLost, Peers};

use crate::thread_peers::{Faults, Link, ThreadPeers};

fn answers<T: Send>(
    world: usize,
    faults: &Faults,
    work: impl Fn(&mut ThreadPeers) -> Result<T, PeerLost> + Sync,
) -> Vec<Result<T, PeerLost>> {
    ThreadPeers::run(world, faults, |mut peers| Ok::<_, ()>(work(&mut peers)))
}

#[test]
fn ranks_agree_on_the_and_of_their_flags() {
    let flags = |peers: &mut ThreadPeers| peers.agree(if peers.rank() == 2 { 0b101 } else { 0b011 });
    assert_eq!(answers(4, &Faults::default(), flags), [Ok(1), Ok(1), Ok(1), Ok(1)]);
}

#[test]
fn a_death_is_noticed_and_the_others_reform() {
    let faults = Faults { deaths: vec![(1, 1)], ..Faults::default() };
    let found = answers(3, &faults, |peers| {
        let lost = match peers.agree(1) {
            Err(lost) if lost.can_reform => lost,
            other => return Ok((other.ok(), 0, 0)),
        };
        assert!(!lost.reason.is_empty());
        peers.reform()?;
        Ok((Some(peers.agree(3)?), peers.rank(), peers.world()))
    });
    assert_eq!(found, [Ok((Some(3), 0, 2)), Ok((None, 0, 0)), Ok((Some(3), 1, 2))]);
}

#[test]
fn a_link_sends_one_message_after_the_other() {
    let link = Link { latency: Duration::from_millis(4), bytes_per_s: 1e3 };
    let faults = Faults { link: Some(link), ..Faults::default() };
    let start = Instant::now();
    let arrived = answers(2, &faults, |peers| match peers.rank() {
        0 => (0..3).try_for_each(|_| peers.send(1, &[0; 5])).map(|()| Vec::new()),
        _ => (0..3).map(|_| peers.receive(0, &mut [0; 5]).map(|()| start.elapsed())).collect(),
    });
    let arrived = arrived[1].as_ref().unwrap();
    let least = [9, 14, 19].map(Duration::from_millis);
    assert!(arrived.iter().zip(least).all(|(arrived, least)| *arrived >= least), "{arrived:?}");
}

#[test]
fn a_lost_message_and_a_rank_that_hangs_end_in_time() {
    let timeout = Duration::from_millis(50);
    for faults in [
        Faults { dropped: vec![(0, 1)], timeout, ..Faults::default() },
        Faults { hangs: vec![(0, 1)], timeout, ..Faults::default() },
    ] {
        let found = answers(2, &faults, |peers| match peers.rank() {
            0 => peers.send(1, &[7]).and_then(|()| peers.receive(1, &mut [0])),
            _ => peers.receive(0, &mut [0]),
        });
        let lost = found[1].as_ref().unwrap_err();
        assert!(lost.reason.contains("in time") || lost.reason.contains("ended"), "{lost}");
    }
    let late = Faults { delays: vec![(0, Duration::from_millis(5))], ..Faults::default() };
    let sum = |peers: &mut ThreadPeers| {
        let mut message = [peers.rank() as u8];
        peers.broadcast(0, &mut message).map(|()| message[0])
    };
    assert_eq!(answers(3, &late, sum), [Ok(0), Ok(0), Ok(0)]);
}
