//! Threads that allocate, write, hand on, verify and free at the same time, through one device.
//!
//! Every run checks contents and counters. Under valgrind's memcheck, which finds what is read
//! before it is written and used after it was freed: `cargo test -p megabatch-gpu-core --test
//! threads --no-run`, then `valgrind --error-exitcode=1 target/debug/deps/threads-…`.
//! ThreadSanitizer needs a standard library built with it (`-Zbuild-std`): it does not see the
//! locks of an ordinary one, and calls all that they protect a race.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use megabatch_gpu_core::{Buffer, Device, Scope};

const THREADS: u64 = 4;
const ROUNDS: u64 = 300;
/// Buffers that a thread holds at most.
const HELD: usize = 16;

/// A buffer and the number from which its contents follow.
struct NumberedBuffer {
    number: u64,
    buffer: Buffer<u64>,
}

#[test]
fn buffers_of_several_threads_do_not_meet() {
    let device = Device::cpu();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel::<NumberedBuffer>()).unzip();
    thread::scope(|threads| {
        for (number, receiver) in (0..).zip(receivers) {
            let scope = device.scope(&format!("thread/{number}"));
            // A ring: each thread hands some of its buffers to the next, which verifies and frees
            // them.
            let next = senders[(number as usize + 1) % senders.len()].clone();
            threads.spawn(move || work(&scope, number, &next, &receiver));
        }
        drop(senders);
        threads.spawn(|| look(&device));
    });
    assert_eq!((device.usage().allocated_bytes, device.usage().buffers), (0, 0));
    let stats = device.stats();
    assert_eq!((stats.requested_bytes.now, stats.blocks.now), (0, 0));
    assert_eq!(stats.allocations_total, device.usage().allocations_total - THREADS * empty_rounds());
    device.with_pool(|pool| pool.check());
    device.empty_cache();
    assert_eq!(device.stats().reserved_bytes.now, 0);
}

fn work(scope: &Scope, thread: u64, next: &Sender<NumberedBuffer>, received: &Receiver<NumberedBuffer>) {
    let mut held: Vec<NumberedBuffer> = Vec::new();
    for round in 0..ROUNDS {
        let number = thread * ROUNDS + round;
        let mut buffer = Buffer::<u64>::zeros(scope, len(round)).unwrap();
        assert!(buffer.as_slice().iter().all(|&value| value == 0), "zeros are not zero");
        buffer.as_mut_slice().iter_mut().zip(0..).for_each(|(value, i)| *value = value_at(number, i));
        held.push(NumberedBuffer { number, buffer });
        received.try_iter().for_each(|buffer| assert_intact(&buffer));
        if held.len() > HELD {
            let out = held.swap_remove((number * 7) as usize % HELD);
            match round % 3 {
                0 => next.send(out).unwrap_or_else(|unsent| assert_intact(&unsent.0)),
                _ => assert_intact(&out),
            }
        }
    }
    held.iter().for_each(assert_intact);
}

/// Asks for everything that can be asked for while others allocate.
fn look(device: &Device) {
    for _ in 0..ROUNDS {
        device.step();
        let (stats, counts) = (device.stats(), device.counts());
        assert!(stats.allocated_bytes.now <= stats.allocated_bytes.peak);
        assert!(counts.allocated_bytes <= counts.reserved_bytes);
        device.empty_cache();
        device.with_pool(|pool| pool.check());
    }
}

/// Elements of the buffer of a round: none, some of a slab, some granules.
fn len(round: u64) -> usize {
    match round % 50 {
        0 => 0,
        49 => 700_001,
        other => 37 * (other * other) as usize,
    }
}

/// Rounds of a thread whose buffer has no bytes, for which the pool is not asked.
fn empty_rounds() -> u64 {
    (0..ROUNDS).filter(|&round| len(round) == 0).count() as u64
}

fn value_at(number: u64, index: u64) -> u64 {
    (number << 32) ^ index
}

fn assert_intact(numbered: &NumberedBuffer) {
    let NumberedBuffer { number, buffer } = numbered;
    let intact = buffer.as_slice().iter().zip(0..).all(|(&value, i)| value == value_at(*number, i));
    assert!(intact, "buffer {number} has changed");
}
