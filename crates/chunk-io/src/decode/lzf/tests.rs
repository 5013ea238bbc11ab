use proptest::prelude::*;

use super::super::encode::{LzfRun, lzf};
use super::*;

/// The format byte by byte, on streams that are right.
fn plain(runs: &[LzfRun]) -> Vec<u8> {
    let mut out = Vec::new();
    for run in runs {
        match run {
            LzfRun::Literals(bytes) => out.extend(bytes),
            &LzfRun::Reference { distance, length } => (0..length).for_each(|_| out.push(out[out.len() - distance])),
        }
    }
    out
}

fn stream(runs: &[LzfRun]) -> Vec<u8> {
    let mut stream = Vec::new();
    runs.iter().for_each(|run| run.write(&mut stream));
    stream
}

fn decompressed(stored: &[u8], expected: usize) -> Result<Vec<u8>, Corrupt> {
    let mut scratch = FilterBuffer::default();
    // What an earlier chunk leaves in the memory is not to show.
    scratch.provide(expected + RUN_WRITTEN_MAX + STAGED + RUN_READ_MAX).fill(0xa5);
    decompress(stored, &mut scratch, expected).map(|found| scratch.filled(found).to_vec())
}

fn check(runs: &[LzfRun]) {
    let expected = plain(runs);
    assert_eq!(decompressed(&stream(runs), expected.len()), Ok(expected), "{runs:?}");
}

fn literals(length: usize) -> LzfRun {
    LzfRun::Literals((0..length as u8).map(|byte| byte.wrapping_mul(37) ^ 0x55).collect())
}

#[test]
fn nothing_decompresses_to_nothing() {
    assert_eq!(decompressed(&[], 0), Ok(vec![]));
}

#[test]
fn literals_of_every_length_are_copied() {
    for length in 1..=32 {
        for runs in 1..5 {
            check(&vec![literals(length); runs]);
        }
    }
}

#[test]
fn references_of_every_length_overlap_at_every_small_distance() {
    // Sixty-four bytes before, and enough of literals behind that the fast form sees the reference.
    let before = [literals(32), literals(31), literals(1)];
    let behind = vec![literals(32); 3];
    for distance in 1..=64 {
        for length in 3..=REFERENCE_MAX {
            let reference = [LzfRun::Reference { distance, length }, LzfRun::Reference { distance: 1, length: 3 }];
            check(&[&before[..], &reference].concat());
            check(&[&before[..], &reference, &behind].concat());
        }
    }
}

#[test]
fn references_reach_as_far_as_the_format_does() {
    let before = vec![literals(32); 8192 / 32];
    for distance in [255, 256, 257, 512, 8191, 8192] {
        for length in [3, 8, 9, 10, 263, 264] {
            check(&[&before[..], &[LzfRun::Reference { distance, length }, literals(32), literals(32)]].concat());
        }
    }
}

/// Streams that are wrong in one place, that place among the last runs and far from them.
#[test]
fn what_is_wrong_is_named() {
    for behind in [vec![], vec![literals(32); 4]] {
        let cut_off = |stored: &[u8], at| Err(Corrupt::LzfCutOff { at, stored_bytes: stored.len() });
        let long = |runs: &[LzfRun]| [stream(runs), stream(&behind)].concat();

        let before_the_first = long(&[literals(5), LzfRun::Reference { distance: 6, length: 3 }]);
        let expected = Corrupt::LzfReference { at: 6, distance: 6, written: 5 };
        assert_eq!(decompressed(&before_the_first, 8 + 32 * behind.len()), Err(expected));

        let whole = long(&[literals(5), LzfRun::Reference { distance: 5, length: 20 }]);
        let bytes = 25 + 32 * behind.len();
        assert!(decompressed(&whole, bytes).is_ok());
        assert_eq!(decompressed(&whole, bytes - 1), Err(Corrupt::TooLong { filter: FILTER, expected: bytes - 1 }));
        assert_eq!(decompressed(&whole, 24), Err(Corrupt::TooLong { filter: FILTER, expected: 24 }));
        let short = Corrupt::TooShort { filter: FILTER, found: bytes, expected: bytes + 1 };
        assert_eq!(decompressed(&whole, bytes + 1), Err(short));

        let mut cut = whole.clone();
        cut.push(31);
        assert_eq!(decompressed(&cut, bytes), cut_off(&cut, whole.len()));
        cut.extend([0; 31]);
        assert_eq!(decompressed(&cut, bytes), cut_off(&cut, whole.len()));
        for head in [&[0x20][..], &[0xe0], &[0xe0, 9]] {
            let cut = [&whole, head].concat();
            assert_eq!(decompressed(&cut, bytes), cut_off(&cut, whole.len()));
        }
    }
}

#[test]
fn memory_is_not_taken_for_what_a_stream_cannot_hold() {
    let expected = 88 * 3 + 1;
    let found = Corrupt::Implausible { filter: FILTER, stored_bytes: 3, found: 264, expected };
    let mut scratch = FilterBuffer::default();
    assert_eq!(decompress(&[0; 3], &mut scratch, expected), Err(found));
    assert_eq!(scratch.bytes(), 0);
}

fn runs() -> impl Strategy<Value = Vec<LzfRun>> {
    let literals = prop::collection::vec(any::<u8>(), 1..=32).prop_map(LzfRun::Literals);
    let length = prop_oneof![3usize..12, 3usize..=REFERENCE_MAX];
    let reference = (prop_oneof![1usize..40, 1usize..=8192], length)
        .prop_map(|(distance, length)| LzfRun::Reference { distance, length });
    prop::collection::vec(prop_oneof![literals, reference], 0..200).prop_map(within_what_precedes)
}

/// Brings the distances to within what was written.
fn within_what_precedes(mut runs: Vec<LzfRun>) -> Vec<LzfRun> {
    let mut written = 0;
    runs.retain_mut(|run| {
        if let LzfRun::Reference { distance, .. } = run {
            *distance = (*distance).min(written);
        }
        written += match run {
            LzfRun::Literals(bytes) => bytes.len(),
            LzfRun::Reference { distance: 0, .. } => return false,
            LzfRun::Reference { length, .. } => *length,
        };
        true
    });
    runs
}

proptest! {
    #[test]
    fn any_runs_are_what_they_say(runs in runs()) {
        let expected = plain(&runs);
        prop_assert_eq!(decompressed(&stream(&runs), expected.len()), Ok(expected));
    }

    #[test]
    fn what_was_compressed_comes_back(bytes in prop::collection::vec(0u8..4, 0..3000)) {
        prop_assert_eq!(decompressed(&lzf(&bytes), bytes.len()), Ok(bytes));
    }

    #[test]
    fn any_bytes_end_in_an_answer(stored in prop::collection::vec(any::<u8>(), 0..600), expected in 0usize..4000) {
        if let Ok(bytes) = decompressed(&stored, expected) {
            prop_assert_eq!(bytes.len(), expected);
        }
    }

    #[test]
    fn a_changed_byte_or_a_cut_ends_in_an_answer(runs in runs(), at: prop::sample::Index, byte: u8) {
        let (expected, mut stored) = (plain(&runs).len(), stream(&runs));
        if stored.is_empty() {
            return Ok(());
        }
        let at = at.index(stored.len());
        prop_assert!(decompressed(&stored[..at], expected).is_err() || expected == 0);
        stored[at] = byte;
        let _ = decompressed(&stored, expected);
    }
}
