//! Joined vectors and their gradients on the CPU.

use super::GatherIndex;
use crate::ops::operand::Operand;

pub(super) fn join<From: Operand, T: Operand>(reads: &GatherIndex, from: &[From], joined: &mut [T]) {
    let width = reads.hidden;
    for (to, &row) in joined.chunks_exact_mut(width.max(1)).zip(&reads.lists.rows) {
        let vector = &from[row as usize * width..][..width];
        to.iter_mut().zip(vector).for_each(|(to, from)| *to = T::narrow(from.widen()));
    }
}

pub(super) fn scatter_add<T: Operand>(reads: &GatherIndex, d_joined: &[f32], d_vectors: &mut [f32]) {
    let width = reads.hidden;
    d_vectors[..reads.vectors_len() * width].fill(0.0);
    for (row, &vector) in d_joined.chunks_exact(width.max(1)).zip(&reads.numbers) {
        let sums = &mut d_vectors[vector as usize * width..][..width];
        sums.iter_mut().zip(row).for_each(|(sum, &term)| *sum += T::narrow(term).widen());
    }
}
