//! Dropout of states on the CPU.

use megabatch_nn::model::Mask;

use super::{Dropped, MaskNumbers};
use crate::ops::operand::Operand;

impl From<MaskNumbers> for Mask {
    fn from(MaskNumbers { key, dropped_below, scale }: MaskNumbers) -> Self {
        Mask { key, dropped_below, scale: f64::from(scale) }
    }
}

impl Dropped<'_> {
    /// Factor of element `at`.
    fn factor(&self, at: usize) -> f32 {
        let [_, windows, hidden] = self.shape;
        let (row, unit) = (at / hidden, at % hidden);
        let end = self.ends.0.as_slice()[self.ends.1 + row % windows];
        Mask::from(self.mask.0.as_slice()[self.mask.1]).factor(end as usize, row / windows, unit) as f32
    }
}

pub(super) fn drop_outputs<From: Operand, To: Operand>(dropped: Dropped<'_>, from: &[From], to: &mut [To]) {
    let to = to[..dropped.len()].iter_mut().zip(from);
    to.enumerate().for_each(|(at, (to, from))| *to = To::narrow(from.widen() * dropped.factor(at)));
}

pub(super) fn drop_gradients(dropped: Dropped<'_>, d: &mut [f32]) {
    d[..dropped.len()].iter_mut().enumerate().for_each(|(at, d)| *d *= dropped.factor(at));
}
