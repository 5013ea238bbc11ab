//! Windows out of a series.

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, Result, arguments};

/// Widths in numbers that the kernel moves at once, the widest first: 16, 8 and 4 bytes.
const VECTORS: [usize; 3] = [4, 2, 1];

/// Copies windows out of a series: `series` `[bars, F]` and `ends` `[n]`, the index of each
/// window's last bar → `out` `[n, T, F]`, row-major.
///
/// A window that does not lie within the series is NaN throughout.
///
/// On a GPU the order is that of its default stream, and numbers are moved four at a time where F
/// is a multiple of 4, two where it is even.
///
/// # Errors
/// What the device says of the launch; the CPU nothing.
///
/// # Panics
/// If the lengths of `series` and `out` are not those of whole bars and windows of F = `features`,
/// and if the buffers are on several devices.
pub fn gather_windows(series: &Buffer<f32>, features: usize, ends: &Buffer<i64>, out: &mut Buffer<f32>) -> Result<()> {
    let window_len = checked_window_len(series.len(), features, ends.len(), out.len());
    out.scope().device().assert_beside(series.scope().device());
    out.scope().device().assert_beside(ends.scope().device());
    match out.scope().device().clone() {
        Device::Cuda(device) => cuda(&device, series, features, ends, out, window_len),
        _ => {
            cpu(series.as_slice(), features, ends.as_slice(), out.as_mut_slice(), window_len);
            Ok(())
        }
    }
}

fn checked_window_len(series_len: usize, features: usize, windows: usize, out_len: usize) -> usize {
    let window_len = out_len.checked_div(windows).unwrap_or(0);
    assert!(
        features > 0 && series_len.is_multiple_of(features) && window_len.is_multiple_of(features),
        "a series of {series_len} numbers and {windows} windows of {window_len} have whole bars of {features} features"
    );
    assert_eq!(window_len * windows, out_len, "all of {windows} windows are of one length");
    window_len
}

fn cuda(
    device: &Cuda,
    series: &Buffer<f32>,
    features: usize,
    ends: &Buffer<i64>,
    out: &mut Buffer<f32>,
    window_len: usize,
) -> Result<()> {
    let (vector, name) = kernel_for(features);
    let kernel = Kernel { module: "chunk-io/gather", ptx: megabatch_gpu_core::ptx!("gather"), name: &name };
    let arguments = arguments![
        series.address(),
        ends.address(),
        out.address(),
        (series.len() / features) as u64,
        (features / vector) as u64,
        (window_len / vector) as u64,
        (out.len() / vector) as u64,
    ];
    // SAFETY: a thread writes one vector of `out`, of which there are as many, reads the end of its
    // window, and of the series what it has seen to lie within; buffers are aligned to more than a
    // vector. What is submitted to the default stream later runs after it.
    unsafe { kernel.submit(device, Launch::over(out.len() / vector), &arguments) }
}

/// The widest vector that bars are whole numbers of, and the kernel that moves such.
fn kernel_for(features: usize) -> (usize, String) {
    let vector = VECTORS.into_iter().find(|&vector| features.is_multiple_of(vector)).expect("1 divides every number");
    (vector, format!("gather_windows_{vector}"))
}

fn cpu(series: &[f32], features: usize, ends: &[i64], out: &mut [f32], window_len: usize) {
    for (window, &end) in out.chunks_exact_mut(window_len.max(1)).zip(ends) {
        match within(series, end, features, window_len) {
            Some(bars) => window.copy_from_slice(bars),
            None => window.fill(f32::NAN),
        }
    }
}

/// The `window_len` numbers up to and with bar `end`.
fn within(series: &[f32], end: i64, features: usize, window_len: usize) -> Option<&[f32]> {
    let end = usize::try_from(end).ok()?.checked_add(1)?.checked_mul(features)?;
    series.get(end.checked_sub(window_len)?..end)
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;
    use proptest::prelude::*;

    use super::super::harness::HARNESS;
    use super::*;

    fn numbers(len: usize) -> Vec<f32> {
        (0..len).map(|k| k as f32 + 0.5).collect()
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    /// The kernel beside the CPU, for windows that are within the series and around its ends.
    fn check(bars: usize, features: usize, steps: usize, ends: &[i64]) {
        let (series, window_len) = (numbers(bars * features), steps * features);
        let mut expected = vec![0.0; ends.len() * window_len];
        cpu(&series, features, ends, &mut expected, window_len);
        let (vector, name) = kernel_for(features);
        let mut out = vec![0.0f32; expected.len()];
        let (len, launch) = (out.len() / vector, Launch::over(out.len() / vector));
        let mut arguments = [
            Arg::from(&series[..]),
            Arg::from(ends),
            Arg::from(&mut out[..]),
            Arg::from(bars as u64),
            Arg::from((features / vector) as u64),
            Arg::from((window_len / vector) as u64),
            Arg::from(len as u64),
        ];
        HARNESS.run(&name, launch, &mut arguments);
        assert_eq!(bits(&out), bits(&expected), "{bars} bars of {features}, windows of {steps} that end at {ends:?}");
    }

    #[test]
    fn a_window_is_the_bars_up_to_its_end() {
        let scope = Device::cpu().scope("test");
        let series = Buffer::from_slice(&scope, &numbers(10)).unwrap();
        let ends = Buffer::from_slice(&scope, &[1i64, 4, 0, 5, -1]).unwrap();
        let mut out = Buffer::zeros(&scope, 20).unwrap();
        gather_windows(&series, 2, &ends, &mut out).unwrap();
        assert_eq!(out.as_slice()[..8], [0.5, 1.5, 2.5, 3.5, 6.5, 7.5, 8.5, 9.5]);
        assert!(out.as_slice()[8..].iter().all(|value| value.is_nan()), "three do not lie within five bars");
    }

    #[test]
    fn the_kernel_moves_vectors_of_every_width() {
        for features in 1..=9 {
            for steps in [1, 3, 7] {
                check(20, features, steps, &[6, 19, 6, 7, 12]);
            }
        }
        check(600, 16, 60, &[59, 599, 300, 301]);
    }

    #[test]
    fn the_kernel_stays_within_the_series() {
        check(5, 4, 3, &[1, 2, 4, 5, -1, i64::MIN, i64::MAX, i64::MAX / 16]);
        check(1, 1, 1, &[0, 1]);
        check(0, 3, 2, &[0, -1]);
        check(4, 3, 2, &[]);
    }

    #[test]
    #[should_panic(expected = "whole bars of 3 features")]
    fn half_a_bar_is_refused() {
        let scope = Device::cpu().scope("test");
        let (series, ends) = (Buffer::zeros(&scope, 10).unwrap(), Buffer::zeros(&scope, 1).unwrap());
        let _ = gather_windows(&series, 3, &ends, &mut Buffer::zeros(&scope, 3).unwrap());
    }

    proptest! {
        #[test]
        fn any_windows_are_the_cpus(
            shape in (0usize..40, 1usize..13, 1usize..9),
            ends in prop::collection::vec(-3i64..45, 0..30),
        ) {
            check(shape.0, shape.1, shape.2, &ends);
        }
    }
}
