//! Matrix products through `matrixmultiply`: the one file of this crate with unsafe code.
//!
//! The unsafe call is reached only through [`multiply`], which checks every bound that the call
//! relies on.

#![allow(unsafe_code, reason = "matrixmultiply takes raw pointers; `multiply` checks the shapes first")]

use crate::kernel::bf16::{self, Bf16Isa, Operand};

/// A type with a general matrix product. Implemented for `f32` and `f64`.
pub trait GemmElement: Copy {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;

    /// c = a·b + beta·c.
    ///
    /// # Safety
    /// Every element that the shapes and strides reach lies inside the allocation of its pointer;
    /// c's elements are distinct, valid for writing and overlap neither a nor b.
    unsafe fn gemm(gemm: Gemm<Self>);
}

/// Arguments of a product of a [m, k] and b [k, n] to c [m, n], whose rows follow one another.
#[derive(Clone, Copy, Debug)]
pub struct Gemm<S> {
    m: usize,
    k: usize,
    n: usize,
    a: Strided<S>,
    b: Strided<S>,
    beta: S,
    c: *mut S,
}

/// The first element of a matrix and its strides, in elements.
#[derive(Clone, Copy, Debug)]
pub struct Strided<S> {
    first: *const S,
    row: isize,
    column: isize,
}

macro_rules! product {
    ($type:ty, $gemm:path) => {
        impl GemmElement for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            unsafe fn gemm(gemm: Gemm<Self>) {
                let Gemm { m, k, n, a, b, beta, c } = gemm;
                let c_row = n as isize;
                // SAFETY: the caller keeps this function's contract, which is that of `$gemm`.
                unsafe { $gemm(m, k, n, 1.0, a.first, a.row, a.column, b.first, b.row, b.column, beta, c, c_row, 1) }
            }
        }
    };
}

product!(f32, matrixmultiply::sgemm);
product!(f64, matrixmultiply::dgemm);

/// A matrix that reads a slice row by row or, transposed, column by column.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, S> {
    values: &'a [S],
    shape: [usize; 2],
    strides: [usize; 2],
}

impl<'a, S> Matrix<'a, S> {
    /// The rows of `values`, one after another.
    pub fn new(values: &'a [S], rows: usize, columns: usize) -> Self {
        assert_eq!(Some(values.len()), rows.checked_mul(columns), "a matrix of [{rows}, {columns}]");
        Matrix { values, shape: [rows, columns], strides: [columns, 1] }
    }

    /// Rows of `values` that begin `apart` elements one after the other; the slice ends with the
    /// last of them.
    pub fn spaced(values: &'a [S], rows: usize, columns: usize, apart: usize) -> Self {
        let len = rows.checked_sub(1).and_then(|others| others.checked_mul(apart)?.checked_add(columns));
        assert_eq!(Some(values.len()), len, "a matrix of [{rows}, {columns}] with rows {apart} apart");
        Matrix { values, shape: [rows, columns], strides: [apart, 1] }
    }

    /// The transposed matrix over the same elements.
    pub fn transposed(self) -> Self {
        let [rows, columns] = self.shape;
        let [row, column] = self.strides;
        Matrix { values: self.values, shape: [columns, rows], strides: [column, row] }
    }
}

/// Use of the values that a product's output holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// They are overwritten and never read.
    Overwrite,
    /// The product is added to them.
    Add,
}

/// `c = a·b` or `c += a·b`, where c's rows follow one another.
///
/// # Panics
/// If the shapes do not fit together.
pub fn multiply<S: GemmElement>(a: Matrix<'_, S>, b: Matrix<'_, S>, into: Output, c: &mut [S]) {
    let ([m, k], [k_of_b, n]) = (a.shape, b.shape);
    assert_eq!(k, k_of_b, "inner dimensions of a product [{m}, {k}]·[{k_of_b}, {n}]");
    assert_eq!(Some(c.len()), m.checked_mul(n), "output of a product [{m}, {k}]·[{k}, {n}]");
    let beta = match into {
        Output::Overwrite => S::ZERO,
        Output::Add => S::ONE,
    };
    let strided = |x: Matrix<'_, S>| {
        let [row, column] = x.strides.map(|stride| stride as isize);
        Strided { first: x.values.as_ptr(), row, column }
    };
    let gemm = Gemm { m, k, n, a: strided(a), b: strided(b), beta, c: c.as_mut_ptr() };
    // SAFETY: a and b hold as many elements as their shapes and strides reach, either way round,
    // which was checked when they were made; c holds m·n elements, checked above, reached once each
    // by the strides [n, 1]; it is borrowed exclusively, so that it overlaps neither. A slice has
    // at most isize::MAX bytes, so that strides fit in isize.
    unsafe { S::gemm(gemm) }
}

/// [`multiply`] or, with an instruction set for pairs, the same of operands that are rounded to
/// bf16.
///
/// # Panics
/// If the shapes do not fit together.
pub(crate) fn multiply_by(
    bf16_isa: Option<Bf16Isa>,
    a: Matrix<'_, f32>,
    b: Matrix<'_, f32>,
    into: Output,
    c: &mut [f32],
) {
    let Some(isa) = bf16_isa else { return multiply(a, b, into, c) };
    if into == Output::Overwrite {
        c.fill(0.0);
    }
    bf16::multiply_rows(isa, a.operand(), b.operand(), c);
}

impl<'a> Matrix<'a, f32> {
    /// The matrix as kernels on pairs read it.
    fn operand(self) -> Operand<'a> {
        let [rows, columns] = self.shape;
        match self.strides {
            [apart, 1] => Operand::rows(rows, columns, apart, self.values),
            [_, apart] => Operand::rows(columns, rows, apart, self.values).transposed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use megabatch_order::random::{Stream, uniform};
    use proptest::prelude::*;

    use super::*;

    /// A case: the sizes of the product, and how it is called.
    #[derive(Clone, Copy)]
    struct Case {
        m: usize,
        k: usize,
        n: usize,
        a_transposed: bool,
        b_transposed: bool,
        into: Output,
    }

    /// The product in double precision.
    fn naive(Case { m, k, n, .. }: Case, a: impl Fn(usize, usize) -> f64, b: impl Fn(usize, usize) -> f64) -> Vec<f64> {
        let element = |i: usize, j: usize| (0..k).map(|l| a(i, l) * b(l, j)).sum();
        (0..m * n).map(|at| element(at / n, at % n)).collect()
    }

    fn check<S: GemmElement + Into<f64> + std::fmt::Debug>(case: Case, from_f64: fn(f64) -> S, relative: f64) {
        let Case { m, k, n, a_transposed, b_transposed, into } = case;
        let stream = Stream { seed: 5, name: "matmul" };
        let draw = |start: usize, len: usize| (start..start + len).map(|i| from_f64(uniform(stream, i as u64) - 0.5));
        let (a, b): (Vec<S>, Vec<S>) = (draw(0, m * k).collect(), draw(m * k, k * n).collect());
        let mut c: Vec<S> = draw(0, m * n).collect();
        let kept = if into == Output::Add { c.clone() } else { vec![S::ZERO; m * n] };
        let view = |x, transposed: bool, rows: usize, columns: usize| {
            if transposed { Matrix::new(x, columns, rows).transposed() } else { Matrix::new(x, rows, columns) }
        };

        multiply(view(&a, a_transposed, m, k), view(&b, b_transposed, k, n), into, &mut c);

        let product = naive(
            case,
            |i, l| a[if a_transposed { l * m + i } else { i * k + l }].into(),
            |l, j| b[if b_transposed { j * k + l } else { l * n + j }].into(),
        );
        for ((&found, product), kept) in c.iter().zip(product).zip(kept) {
            let expected = product + kept.into();
            assert!((found.into() - expected).abs() <= relative * (k as f64 + 1.0), "{found:?} for {expected}");
        }
    }

    fn check_single(case: Case) {
        check::<f32>(case, |x| x as f32, 1e-6);
    }

    fn check_double(case: Case) {
        check::<f64>(case, |x| x, 2e-15);
    }

    #[test]
    fn rows_may_lie_apart() {
        let values: Vec<f64> = (0..11).map(f64::from).collect();
        let mut c = [0.0; 6];
        let identity = Matrix::new(&[1.0, 0.0, 0.0, 1.0], 2, 2);
        multiply(identity, Matrix::spaced(&values[1..], 3, 2, 4).transposed(), Output::Overwrite, &mut c);
        assert_eq!(c, [1.0, 5.0, 9.0, 2.0, 6.0, 10.0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Each of the k + 1 sums rounds by at most one unit in the last place of a partial sum
        /// below k / 4 + 1.
        #[test]
        fn products_equal_the_triple_loop(
            m in 0usize..40,
            k in 0usize..40,
            n in 0usize..40,
            a_transposed in any::<bool>(),
            b_transposed in any::<bool>(),
            adds in any::<bool>(),
        ) {
            let into = if adds { Output::Add } else { Output::Overwrite };
            let case = Case { m, k, n, a_transposed, b_transposed, into };
            check_single(case);
            check_double(case);
        }
    }

    #[test]
    fn large_products_cross_the_blocks_of_the_kernel() {
        let case = Case { m: 33, k: 300, n: 517, a_transposed: true, b_transposed: false, into: Output::Add };
        check_single(case);
        check_double(Case { m: 129, k: 517, n: 65, a_transposed: false, b_transposed: true, into: Output::Overwrite });
    }

    #[test]
    fn overwriting_never_reads_what_was_there() {
        let mut c = [f32::NAN; 1];
        multiply(Matrix::new(&[2.0], 1, 1), Matrix::new(&[3.0], 1, 1), Output::Overwrite, &mut c);
        assert_eq!(c, [6.0]);
    }

    #[test]
    #[should_panic(expected = "inner dimensions of a product [1, 2]·[1, 1]")]
    fn shapes_that_do_not_fit_are_refused() {
        multiply(Matrix::new(&[1.0, 2.0], 1, 2), Matrix::new(&[3.0], 1, 1), Output::Overwrite, &mut [0.0f64]);
    }
}
