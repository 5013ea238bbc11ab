//! The kernels of this folder on the CPU, and what they are tried on.
#![forbid(unsafe_code)]

use std::fmt;

use megabatch_gpu_core::{Buffer, Device, Scope};
use megabatch_simt::Harness;

use crate::plan::SegmentPlan;

pub(super) static HARNESS: Harness = Harness::new(
    concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops"),
    &["extremum", "extremum_backward", "fold", "gather", "softmax"],
);

/// Rows in segments, and numbers for both.
pub(super) struct Case {
    name: &'static str,
    pub(super) plan: SegmentPlan,
    pub(super) columns: usize,
    /// `[rows, columns]`.
    pub(super) x: Buffer<f32>,
    /// `[segments, columns]`.
    pub(super) values: Buffer<f32>,
}

impl Case {
    pub(super) fn new(name: &'static str, plan: SegmentPlan, columns: usize) -> Self {
        let scope = Device::cpu().scope("test");
        let (x, values) = (plan.rows() * columns, plan.segments() * columns);
        let x = Buffer::from_slice(&scope, &noise(x)).unwrap();
        Case { name, plan, columns, x, values: Buffer::from_slice(&scope, &noise(values)).unwrap() }
    }

    pub(super) fn per_row(&self) -> Buffer<f32> {
        Buffer::zeros(self.x.scope(), self.x.len()).unwrap()
    }

    pub(super) fn per_segment(&self) -> Buffer<f32> {
        Buffer::zeros(self.x.scope(), self.values.len()).unwrap()
    }

    pub(super) fn arguments(&self) -> Buffer<u32> {
        Buffer::zeros(self.x.scope(), self.values.len()).unwrap()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} columns", self.name, self.columns)
    }
}

/// Plan of sorted rows: segment `s` has the rows from `offsets[s]` to before `offsets[s + 1]`.
pub(super) fn sorted(scope: &Scope, offsets: &[u32]) -> SegmentPlan {
    let runs = (0_u32..).zip(offsets.windows(2));
    let index: Vec<u32> = runs.flat_map(|(segment, run)| (run[0]..run[1]).map(move |_| segment)).collect();
    SegmentPlan::from_index(scope, &index, offsets.len() - 1).unwrap()
}

/// No rows, none in a segment, one, a piece and one more, several levels, unsorted; columns on
/// either side of a tile.
pub(super) fn each_case(check: impl Fn(&Case)) {
    let scope = Device::cpu().scope("test");
    for columns in [0, 1, 3, 4, 33] {
        let mut cases = vec![
            Case::new("nothing", sorted(&scope, &[0]), columns),
            Case::new("no rows", sorted(&scope, &[0, 0, 0]), columns),
            Case::new("sorted", sorted(&scope, &[0, 3, 3, 4, 40]), columns),
            Case::new("unsorted", scattered(&scope, 50, 7), columns),
        ];
        if columns == 3 {
            cases.push(Case::new("two levels", sorted(&scope, &[0, 512, 1025, 1025, 1026]), columns));
            cases.push(Case::new("two levels, unsorted", scattered(&scope, 3000, 2), columns));
        }
        if columns == 1 {
            cases.push(Case::new("three levels", sorted(&scope, &[0, 1, 512 * 512 + 2]), columns));
        }
        cases.iter().for_each(&check);
    }
}

fn scattered(scope: &Scope, rows: u32, segments: u32) -> SegmentPlan {
    let index: Vec<u32> = (0..rows).map(|row| row.wrapping_mul(2_654_435_761) % segments).collect();
    SegmentPlan::from_index(scope, &index, segments as usize).unwrap()
}

/// Numbers of which some are equal, and among many some infinite, and NaN.
fn noise(len: usize) -> Vec<f32> {
    let number = |k: u32| match k.wrapping_mul(2_654_435_761) >> 8 {
        bits if k % 211 == 17 => f32::from_bits(bits << 8 | 0x7f80_0000),
        bits if k % 97 == 5 => f32::from_bits(bits & 0xff),
        bits => (bits % 301) as f32 / 16.0 - 9.0,
    };
    (0..len as u32).map(number).collect()
}

/// Equal bits, or both NaN.
pub(super) fn check_same(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        assert!(same, "{what}: element {k} is {found:e} where {expected:e} is right");
    }
}
