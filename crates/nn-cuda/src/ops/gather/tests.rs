use half::{bf16, f16};
use megabatch_simt::Arg;

use super::super::harness::{HARNESS, noise};
use super::super::uploaded::{gather_index, work_list};
use super::super::work_list::{Sequence, TileWindows};
use super::*;

const HIDDEN: usize = 5;

/// Two sequences: three windows of three steps, of which nobody reads the second, and two of one
/// step.
fn list(scope: &Scope) -> WorkList {
    let sequence = |steps, first| Sequence { steps, first, row_step: 1, projected_rows: 20 };
    work_list(scope, HIDDEN, TileWindows::Eight, &[sequence(3, &[0, 4, 9][..]), sequence(1, &[2, 3])]).unwrap()
}

fn window_index(scope: &Scope, list: &WorkList, from: ReadFrom) -> GatherIndex {
    let sample_positions = [[2, 0, 2, 2].map(|window| (window, 2)), [1, 1, 0, 1].map(|window| (window, 0))];
    gather_index(
        scope,
        list,
        RowGranularity::OfWindows,
        from,
        &sample_positions.each_ref().map(|positions| &positions[..]),
    )
    .unwrap()
}

/// The second sample reads the first's window a step later, the third another one, and the last
/// what the first does.
fn step_index(scope: &Scope, list: &WorkList, from: ReadFrom) -> GatherIndex {
    let sample_positions = [[(2, 1), (2, 2), (0, 0), (2, 1)], [(1, 0), (1, 0), (0, 0), (1, 0)]];
    gather_index(
        scope,
        list,
        RowGranularity::OfSteps,
        from,
        &sample_positions.each_ref().map(|positions| &positions[..]),
    )
    .unwrap()
}

/// Checks that samples read the rows `expected`.
fn check_join<From: Operand, T: Operand>(reads: &GatherIndex, expected: [usize; 8]) {
    let scope = Device::cpu().scope("test");
    let from: Vec<From> = noise("from", reads.rows_end * HIDDEN, 3.0).into_iter().map(From::narrow).collect();
    let from = Buffer::from_slice(&scope, &from).unwrap();
    let mut plain = Buffer::<T>::zeros(&scope, expected.len() * HIDDEN).unwrap();
    join(reads, &from, &mut plain).unwrap();
    let mut found = vec![T::narrow(9.0); plain.len()];
    let len = found.len();
    let mut arguments = [
        Arg::from(reads.on_device.rows.as_slice()),
        Arg::from(from.as_slice()),
        Arg::from(&mut found[..]),
        Arg::from(len as u64),
        Arg::from(HIDDEN as u32),
    ];
    HARNESS.run(&kernel::<From, T>(), Launch::for_threads(len), &mut arguments);
    let wide = |values: &[T]| values.iter().map(|x| x.widen()).collect::<Vec<f32>>();
    let row = |&row: &usize| from.as_slice()[row * HIDDEN..][..HIDDEN].iter().map(|x| T::narrow(x.widen()).widen());
    let rows: Vec<f32> = expected.iter().flat_map(row).collect();
    assert_eq!(wide(plain.as_slice()), rows, "{:?}", reads.vectors);
    assert_eq!(wide(&found), rows, "{}, {:?}", kernel::<From, T>(), reads.vectors);
}

/// Checks of each vector the sum over these `readers`.
fn check_separate<T: Operand>(reads: &GatherIndex, readers: &[&[usize]]) {
    let scope = Device::cpu().scope("test");
    let d_joined = Buffer::from_slice(&scope, &noise("d", reads.numbers.len() * HIDDEN, 3.0)).unwrap();
    let d = |reader: usize, unit: usize| T::narrow(d_joined.as_slice()[reader * HIDDEN + unit]).widen();
    let sum = |readers: &[usize], unit| readers.iter().fold(0.0f32, |sum, &reader| sum + d(reader, unit));
    let expected: Vec<f32> = readers.iter().flat_map(|own| (0..HIDDEN).map(move |unit| sum(own, unit))).collect();
    let mut plain = Buffer::from_slice(&scope, &vec![7.0f32; expected.len()]).unwrap();
    scatter_add::<T>(reads, &d_joined, &mut plain).unwrap();
    let (mut found, len) = (vec![9.0f32; expected.len()], expected.len());
    let mut arguments = [
        Arg::from(reads.on_device.starts.as_slice()),
        Arg::from(reads.on_device.readers.as_slice()),
        Arg::from(d_joined.as_slice()),
        Arg::from(&mut found[..]),
        Arg::from(len as u64),
        Arg::from(HIDDEN as u32),
    ];
    HARNESS.run(&format!("separate_{}", T::SUFFIX), Launch::for_threads(len), &mut arguments);
    assert_eq!(plain.as_slice(), expected, "{:?}", reads.vectors);
    assert_eq!(found, expected, "{}, {:?}", T::SUFFIX, reads.vectors);
}

#[test]
fn a_planned_upload_takes_the_memory_of_reads() {
    let (device, plan) = (Device::cpu(), Device::planning());
    let reads = window_index(&device.scope("test"), &list(&Device::cpu().scope("list")), ReadFrom::States);
    let mut planned = GatherIndex::empty(&plan.scope("plan")).unwrap();
    planned.plan_upload(4 * 2, reads.vectors_len(), &mut PlannedUpload::default()).unwrap();
    assert_eq!(plan.usage().allocated_bytes, device.usage().allocated_bytes);
}

#[test]
fn samples_read_the_last_states_of_windows_or_what_was_made_of_them() {
    let scope = Device::cpu().scope("test");
    let list = list(&scope);
    // Four rows of three states, and then two of two.
    let (reads, expected) = (window_index(&scope, &list, ReadFrom::States), [11, 15, 9, 15, 11, 14, 11, 15]);
    check_join::<f32, f32>(&reads, expected);
    check_join::<f16, f16>(&reads, expected);
    check_join::<bf16, bf16>(&reads, expected);
    check_join::<f16, f32>(&reads, expected);
    check_join::<bf16, f32>(&reads, expected);
    let (reads, expected) = (window_index(&scope, &list, ReadFrom::RowGranularity), [2, 4, 0, 4, 2, 3, 2, 4]);
    check_join::<f32, f32>(&reads, expected);
    check_join::<f32, f16>(&reads, expected);
    check_join::<f32, bf16>(&reads, expected);
    let readers: [&[usize]; 5] = [&[2], &[], &[0, 4, 6], &[5], &[1, 3, 7]];
    check_separate::<f32>(&reads, &readers);
    check_separate::<f16>(&reads, &readers);
    check_separate::<bf16>(&reads, &readers);
}

#[test]
fn samples_read_the_states_of_any_step_or_what_was_made_of_them() {
    let scope = Device::cpu().scope("test");
    let list = list(&scope);
    let reads = step_index(&scope, &list, ReadFrom::States);
    check_join::<f32, f32>(&reads, [8, 15, 11, 15, 3, 14, 8, 15]);
    check_join::<bf16, bf16>(&reads, [8, 15, 11, 15, 3, 14, 8, 15]);
    let reads = step_index(&scope, &list, ReadFrom::RowGranularity);
    check_join::<f32, f16>(&reads, [5, 10, 8, 10, 0, 9, 5, 10]);
    let readers: [&[usize]; 11] = [&[4], &[], &[], &[], &[], &[0, 6], &[], &[], &[2], &[5], &[1, 3, 7]];
    check_separate::<f32>(&reads, &readers);
    check_separate::<bf16>(&reads, &readers);
}

#[test]
#[should_panic(expected = "step 0 of 1 of window 2 of the 2 of sequence 1")]
fn a_window_that_is_not_there_is_refused() {
    let scope = Device::cpu().scope("test");
    let sample_positions = [&[(0, 2)][..], &[(2, 0)]];
    let _ = gather_index(&scope, &list(&scope), RowGranularity::OfWindows, ReadFrom::States, &sample_positions);
}

#[test]
#[should_panic(expected = "the last step of a window of sequence 0")]
fn a_step_of_which_there_is_no_vector_is_refused() {
    let scope = Device::cpu().scope("test");
    let sample_positions = [&[(0, 1)][..], &[(1, 0)]];
    let _ = gather_index(&scope, &list(&scope), RowGranularity::OfWindows, ReadFrom::RowGranularity, &sample_positions);
}
