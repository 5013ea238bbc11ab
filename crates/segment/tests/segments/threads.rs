//! The number of threads, and whether rows are sorted, change no bit.

use megabatch_gpu_core::{Buffer, Device};
use megabatch_segment::{SegmentPlan, ops};

use crate::{buffer, filled, scope};

const COLUMNS: usize = 20;

/// Large enough for many tasks, with a segment of several levels.
fn index() -> Vec<u32> {
    (0..40_000u32).map(|row| if row % 3 == 0 { 77 } else { row.wrapping_mul(2_654_435_761) >> 22 }).collect()
}

fn numbers(len: usize) -> Vec<f32> {
    (0..len as u32).map(|k| (k.wrapping_mul(2_246_822_519) >> 8) as f32 / 1e5 - 80.0).collect()
}

fn everything(plan: &SegmentPlan, x: &[f32]) -> Vec<Vec<f32>> {
    let (rows, segments, x) = (x.len(), plan.segments() * COLUMNS, buffer(x));
    let mut argument = Buffer::<u32>::zeros(&scope(), segments).unwrap();
    let sum = filled(segments, |out| ops::sum(plan, &x, out).unwrap());
    let mean = filled(segments, |out| ops::mean(plan, &x, out).unwrap());
    let max = filled(segments, |out| ops::max(plan, &x, out, &mut argument).unwrap());
    let d_x = filled(rows, |d_x| ops::extremum_backward(plan, &argument, &buffer(&sum), d_x).unwrap());
    let gathered = filled(rows, |d_x| ops::mean_backward(plan, &buffer(&sum), d_x).unwrap());
    let y = filled(rows, |y| ops::softmax(plan, &x, y).unwrap());
    let d_y = filled(rows, |d_x| ops::softmax_backward(plan, &buffer(&y), &x, d_x).unwrap());
    vec![sum, mean, max, d_x, gathered, y, d_y]
}

#[test]
fn one_thread_and_seven_give_the_same_bits() {
    let (index, x) = (index(), numbers(40_000 * COLUMNS));
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| everything(&SegmentPlan::from_index(&scope(), &index, 1024).unwrap(), &x))
    };
    assert_eq!(on(1), on(7));
}

#[test]
fn sorting_the_rows_first_gives_the_same_bits() {
    let (index, x) = (index(), numbers(40_000 * COLUMNS));
    let mut order: Vec<usize> = (0..index.len()).collect();
    order.sort_by_key(|&row| index[row]);
    let sorted_x: Vec<f32> = order.iter().flat_map(|&row| x[row * COLUMNS..][..COLUMNS].to_vec()).collect();
    let sorted_index: Vec<_> = order.iter().map(|&row| index[row]).collect();
    let sorted = everything(&SegmentPlan::from_index(&scope(), &sorted_index, 1024).unwrap(), &sorted_x);
    let unsorted = everything(&SegmentPlan::from_index(&scope(), &index, 1024).unwrap(), &x);
    assert_eq!(sorted[..3], unsorted[..3], "by segments");
    for (sorted, unsorted) in sorted[3..].iter().zip(&unsorted[3..]) {
        let in_order: Vec<f32> = order.iter().flat_map(|&row| unsorted[row * COLUMNS..][..COLUMNS].to_vec()).collect();
        assert_eq!(*sorted, in_order, "by rows");
    }
}

#[test]
fn what_is_needed_on_the_way_is_given_back() {
    let device = Device::cpu();
    let scope = device.scope("test");
    let plan = SegmentPlan::from_index(&scope, &index(), 1024).unwrap();
    let mut x = Buffer::from_slice(&scope, &numbers(40_000)).unwrap();
    let mut out = Buffer::zeros(&scope, 1024).unwrap();
    let before = device.usage().allocated_bytes;
    ops::sum(&plan, &x, &mut out).unwrap();
    ops::softmax(&plan, &x.try_clone().unwrap(), &mut x).unwrap();
    assert_eq!(device.usage().allocated_bytes, before);
}
