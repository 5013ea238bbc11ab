//! Reverse-mode differentiation of matrices in double precision.
//!
//! A [`Var`] is a matrix on a [`Tape`]. Each operation appends its result, together with how the
//! result's gradient becomes those of its operands; [`Tape::gradients`] goes through the tape from
//! its end. Larger operations, such as a softmax, are written with the smaller ones, so that a
//! gradient is wrong only if one of the few rules of this file is.

use std::cell::RefCell;
use std::ops::{Add, Mul, Range, Sub};
use std::rc::Rc;

/// A matrix [rows, columns], row-major.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) values: Vec<f64>,
}

impl Matrix {
    pub(crate) fn new(rows: usize, columns: usize, values: Vec<f64>) -> Self {
        assert_eq!(values.len(), rows * columns, "the numbers of a matrix [{rows}, {columns}]");
        Matrix { rows, columns, values }
    }

    pub(crate) fn zeros(rows: usize, columns: usize) -> Self {
        Matrix::new(rows, columns, vec![0.0; rows * columns])
    }

    /// Number (i, j) is `number(i, j)`.
    pub(crate) fn from_fn(rows: usize, columns: usize, number: impl Fn(usize, usize) -> f64) -> Self {
        let mut matrix = Matrix::zeros(rows, columns);
        for (i, row) in matrix.values.chunks_exact_mut(columns.max(1)).enumerate() {
            row.iter_mut().enumerate().for_each(|(j, value)| *value = number(i, j));
        }
        matrix
    }

    #[inline]
    pub(crate) fn get(&self, i: usize, j: usize) -> f64 {
        self.values[i * self.columns + j]
    }

    fn get_mut(&mut self, i: usize, j: usize) -> &mut f64 {
        &mut self.values[i * self.columns + j]
    }

    fn product(&self, other: &Matrix) -> Matrix {
        assert_eq!(self.columns, other.rows, "the inner sizes of a product");
        let mut product = Matrix::zeros(self.rows, other.columns);
        // Over the rows of `other` first, so that each is read once.
        for k in 0..self.columns {
            let terms = &other.values[k * other.columns..][..other.columns];
            for (i, sums) in product.values.chunks_exact_mut(other.columns.max(1)).enumerate() {
                let factor = self.get(i, k);
                sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += factor * term);
            }
        }
        product
    }

    fn transposed(&self) -> Matrix {
        Matrix::from_fn(self.columns, self.rows, |i, j| self.get(j, i))
    }

    fn add(&mut self, other: &Matrix) {
        assert_eq!((self.rows, self.columns), (other.rows, other.columns), "the sizes of a sum's terms");
        self.values.iter_mut().zip(&other.values).for_each(|(sum, term)| *sum += term);
    }

    /// Number (i, j) of the matrix whose row, or column, is repeated if it has only one.
    #[inline]
    fn repeated(&self, i: usize, j: usize) -> f64 {
        self.get(if self.rows == 1 { 0 } else { i }, if self.columns == 1 { 0 } else { j })
    }

    /// The gradient of a matrix of the shape of `like` that was repeated: sums over repetitions.
    fn summed_like(&self, like: &Matrix) -> Matrix {
        let mut sums = Matrix::zeros(like.rows, like.columns);
        for i in 0..self.rows {
            for j in 0..self.columns {
                *sums.get_mut(if like.rows == 1 { 0 } else { i }, if like.columns == 1 { 0 } else { j }) +=
                    self.get(i, j);
            }
        }
        sums
    }
}

/// The gradients of the operands from that of the result.
type Backward = Box<dyn Fn(&Matrix) -> Vec<Matrix>>;

struct Node {
    value: Rc<Matrix>,
    operands: Vec<usize>,
    backward: Backward,
}

/// The values of a computation, in their order.
#[derive(Default)]
pub(crate) struct Tape {
    nodes: RefCell<Vec<Node>>,
}

/// A value on a tape.
#[derive(Clone, Copy)]
pub(crate) struct Var<'t> {
    tape: &'t Tape,
    index: usize,
}

/// The gradients of the values of a tape.
pub(crate) struct Gradients(Vec<Option<Matrix>>);

impl Tape {
    /// A value that does not depend on others.
    pub(crate) fn leaf(&self, value: Matrix) -> Var<'_> {
        self.push(value, &[], Box::new(|_| Vec::new()))
    }

    /// Zeros [rows, columns].
    pub(crate) fn zeros(&self, rows: usize, columns: usize) -> Var<'_> {
        self.leaf(Matrix::zeros(rows, columns))
    }

    fn push(&self, value: Matrix, operands: &[Var<'_>], backward: Backward) -> Var<'_> {
        assert!(operands.iter().all(|operand| std::ptr::eq(operand.tape, self)), "values of one tape");
        let operands = operands.iter().map(|operand| operand.index).collect();
        let mut nodes = self.nodes.borrow_mut();
        nodes.push(Node { value: Rc::new(value), operands, backward });
        Var { tape: self, index: nodes.len() - 1 }
    }

    /// The gradients of all values, given that of `result`.
    pub(crate) fn gradients(&self, result: Var<'_>, gradient: Matrix) -> Gradients {
        let nodes = self.nodes.borrow();
        let mut gradients: Vec<Option<Matrix>> = nodes.iter().map(|_| None).collect();
        let value = &nodes[result.index].value;
        assert_eq!((gradient.rows, gradient.columns), (value.rows, value.columns), "the sizes of a gradient");
        gradients[result.index] = Some(gradient);
        for (index, node) in nodes.iter().enumerate().rev() {
            let Some(gradient) = &gradients[index] else { continue };
            for (&operand, term) in node.operands.iter().zip((node.backward)(gradient)) {
                match &mut gradients[operand] {
                    Some(sum) => sum.add(&term),
                    none => *none = Some(term),
                }
            }
        }
        Gradients(gradients)
    }
}

impl Gradients {
    /// The gradient with respect to `var`: zero if nothing depends on it.
    pub(crate) fn with_respect_to(&self, var: Var<'_>) -> Matrix {
        let value = var.value();
        self.0[var.index].clone().unwrap_or_else(|| Matrix::zeros(value.rows, value.columns))
    }
}

/// Operations. [n, m] are the sizes of `self`.
impl<'t> Var<'t> {
    pub(crate) fn value(self) -> Rc<Matrix> {
        Rc::clone(&self.tape.nodes.borrow()[self.index].value)
    }

    pub(crate) fn tape(self) -> &'t Tape {
        self.tape
    }

    pub(crate) fn rows(self) -> usize {
        self.value().rows
    }

    pub(crate) fn columns(self) -> usize {
        self.value().columns
    }

    /// A · B [n, k]: dA = dY · Bᵀ, dB = Aᵀ · dY.
    pub(crate) fn matmul(self, other: Var<'t>) -> Var<'t> {
        let (a, b) = (self.value(), other.value());
        let product = a.product(&b);
        let backward = move |d: &Matrix| vec![d.product(&b.transposed()), a.transposed().product(d)];
        self.tape.push(product, &[self, other], Box::new(backward))
    }

    /// Aᵀ [m, n].
    pub(crate) fn transposed(self) -> Var<'t> {
        self.tape.push(self.value().transposed(), &[self], Box::new(|d| vec![d.transposed()]))
    }

    /// c · A.
    pub(crate) fn scale(self, factor: f64) -> Var<'t> {
        self.map(|x| factor * x, move |_, _| factor)
    }

    /// A + c.
    pub(crate) fn shift(self, term: f64) -> Var<'t> {
        self.map(|x| x + term, |_, _| 1.0)
    }

    /// 1 / (1 + e⁻ˣ), whose slope is y (1 - y).
    pub(crate) fn sigmoid(self) -> Var<'t> {
        self.map(|x| 1.0 / (1.0 + (-x).exp()), |_, y| y * (1.0 - y))
    }

    /// tanh x, whose slope is 1 - y².
    pub(crate) fn tanh(self) -> Var<'t> {
        self.map(f64::tanh, |_, y| 1.0 - y * y)
    }

    /// eˣ, whose slope is y.
    pub(crate) fn exp(self) -> Var<'t> {
        self.map(f64::exp, |_, y| y)
    }

    /// ln x, whose slope is 1 / x.
    pub(crate) fn ln(self) -> Var<'t> {
        self.map(f64::ln, |x, _| 1.0 / x)
    }

    /// 1 / x, whose slope is -y².
    pub(crate) fn reciprocal(self) -> Var<'t> {
        self.map(f64::recip, |_, y| -y * y)
    }

    /// √x, whose slope is 1 / 2y.
    pub(crate) fn sqrt(self) -> Var<'t> {
        self.map(f64::sqrt, |_, y| 0.5 / y)
    }

    /// max(x, 0), whose slope at 0 is taken to be 0, as in torch.relu.
    pub(crate) fn relu(self) -> Var<'t> {
        self.leaky_relu(0.0)
    }

    /// x, or `slope` · x where it is not positive: torch.nn.functional.leaky_relu.
    pub(crate) fn leaky_relu(self, slope: f64) -> Var<'t> {
        self.map(|x| if x > 0.0 { x } else { slope * x }, move |x, _| if x > 0.0 { 1.0 } else { slope })
    }

    /// x, or eˣ - 1 where it is not positive: torch.nn.functional.elu.
    pub(crate) fn elu(self) -> Var<'t> {
        self.map(|x| if x > 0.0 { x } else { x.exp_m1() }, |x, y| if x > 0.0 { 1.0 } else { y + 1.0 })
    }

    /// `function` of each number; `slope` is a function of the number and of its result.
    pub(crate) fn map(self, function: impl Fn(f64) -> f64, slope: impl Fn(f64, f64) -> f64 + 'static) -> Var<'t> {
        let x = self.value();
        let y = Matrix::from_fn(x.rows, x.columns, |i, j| function(x.get(i, j)));
        let result = y.clone();
        let backward = move |d: &Matrix| {
            vec![Matrix::from_fn(x.rows, x.columns, |i, j| d.get(i, j) * slope(x.get(i, j), y.get(i, j)))]
        };
        self.tape.push(result, &[self], Box::new(backward))
    }

    /// The sum of each row, [n, 1].
    pub(crate) fn sum_columns(self) -> Var<'t> {
        let columns = self.columns();
        self.matmul(self.tape.leaf(Matrix::new(columns, 1, vec![1.0; columns])))
    }

    /// The sum of each column, [1, m].
    pub(crate) fn sum_rows(self) -> Var<'t> {
        let rows = self.rows();
        self.tape.leaf(Matrix::new(1, rows, vec![1.0; rows])).matmul(self)
    }

    /// The mean of each row, [n, 1].
    pub(crate) fn mean_columns(self) -> Var<'t> {
        self.sum_columns().scale(1.0 / self.columns() as f64)
    }

    /// The mean of each column, [1, m].
    pub(crate) fn mean_rows(self) -> Var<'t> {
        self.sum_rows().scale(1.0 / self.rows() as f64)
    }

    /// The largest number of each column, the first one where several are; NaN if there is one.
    pub(crate) fn max_rows(self) -> Var<'t> {
        let x = self.value();
        let exceeds = |value: f64, most: f64| value > most || (value.is_nan() && !most.is_nan());
        let row_of =
            |j: usize| (1..x.rows).fold(0, |most, i| if exceeds(x.get(i, j), x.get(most, j)) { i } else { most });
        let rows: Vec<usize> = (0..x.columns).map(row_of).collect();
        let most = Matrix::from_fn(1, x.columns, |_, j| x.get(rows[j], j));
        let (height, width) = (x.rows, x.columns);
        let backward =
            move |d: &Matrix| vec![Matrix::from_fn(height, width, |i, j| if rows[j] == i { d.get(0, j) } else { 0.0 })];
        self.tape.push(most, &[self], Box::new(backward))
    }

    /// Rows `indices` of A, which may repeat, [indices, m]: gather.
    pub(crate) fn gather(self, indices: &[usize]) -> Var<'t> {
        let (x, indices) = (self.value(), indices.to_vec());
        let rows = Matrix::from_fn(indices.len(), x.columns, |i, j| x.get(indices[i], j));
        let backward = move |d: &Matrix| vec![scattered(d, &indices, x.rows)];
        self.tape.push(rows, &[self], Box::new(backward))
    }

    /// The rows of A added up in `rows` sums, row i in sum `indices[i]`, [rows, m]: scatter_add.
    pub(crate) fn scatter_add(self, indices: &[usize], rows: usize) -> Var<'t> {
        let (x, indices) = (self.value(), indices.to_vec());
        let sums = scattered(&x, &indices, rows);
        let backward = move |d: &Matrix| vec![Matrix::from_fn(indices.len(), d.columns, |i, j| d.get(indices[i], j))];
        self.tape.push(sums, &[self], Box::new(backward))
    }

    /// Columns `range` of A, [n, range].
    pub(crate) fn slice(self, range: Range<usize>) -> Var<'t> {
        let (x, start) = (self.value(), range.start);
        let (height, width) = (x.rows, x.columns);
        let part = Matrix::from_fn(height, range.len(), |i, j| x.get(i, start + j));
        let backward = move |d: &Matrix| {
            let number = |i: usize, j: usize| if range.contains(&j) { d.get(i, j - range.start) } else { 0.0 };
            vec![Matrix::from_fn(height, width, number)]
        };
        self.tape.push(part, &[self], Box::new(backward))
    }

    /// These numbers as a matrix [rows, columns].
    pub(crate) fn reshaped(self, rows: usize, columns: usize) -> Var<'t> {
        let x = self.value();
        let backward = move |d: &Matrix| vec![Matrix::new(x.rows, x.columns, d.values.clone())];
        let result = Matrix::new(rows, columns, self.value().values.clone());
        self.tape.push(result, &[self], Box::new(backward))
    }

    /// Matrices of n rows side by side.
    pub(crate) fn concat_columns(parts: &[Var<'t>]) -> Var<'t> {
        let transposed: Vec<Var<'t>> = parts.iter().map(|part| part.transposed()).collect();
        Var::concat_rows(&transposed).transposed()
    }

    /// Matrices of m columns one above the other.
    pub(crate) fn concat_rows(parts: &[Var<'t>]) -> Var<'t> {
        let tape = parts[0].tape;
        let values: Vec<Rc<Matrix>> = parts.iter().map(|part| part.value()).collect();
        let columns = values[0].columns;
        assert!(values.iter().all(|value| value.columns == columns), "matrices of as many columns");
        let heights: Vec<usize> = values.iter().map(|value| value.rows).collect();
        let all = values.iter().flat_map(|value| value.values.iter().copied()).collect();
        let backward = move |d: &Matrix| {
            let mut rest = d.values.as_slice();
            let part = |&height: &usize| {
                let own = rest.split_off(..height * columns).expect("the rows of all parts");
                Matrix::new(height, columns, own.to_vec())
            };
            heights.iter().map(part).collect()
        };
        tape.push(Matrix::new(values.iter().map(|value| value.rows).sum(), columns, all), parts, Box::new(backward))
    }

    /// The softmax of each row: eˣ / Σ eˣ. The largest number, which is subtracted so that no
    /// exponential overflows, changes nothing and counts as a constant.
    pub(crate) fn softmax(self) -> Var<'t> {
        let exponentials = (self - self.largest()).exp();
        exponentials * exponentials.sum_columns().reciprocal()
    }

    /// The logarithm of the sum of each row's exponentials, [n, 1].
    pub(crate) fn log_sum_exp(self) -> Var<'t> {
        let most = self.largest();
        (self - most).exp().sum_columns().ln() + most
    }

    /// The softmax of each column over the rows of a segment, row i being of segment
    /// `segments[i]` of `count`: torch_geometric.utils.softmax.
    pub(crate) fn segment_softmax(self, segments: &[usize], count: usize) -> Var<'t> {
        let x = self.value();
        let mut most = Matrix::new(count, x.columns, vec![f64::NEG_INFINITY; count * x.columns]);
        for (i, &segment) in segments.iter().enumerate() {
            (0..x.columns).for_each(|j| *most.get_mut(segment, j) = most.get(segment, j).max(x.get(i, j)));
        }
        let exponentials = (self - self.tape.leaf(most).gather(segments)).exp();
        exponentials * exponentials.scatter_add(segments, count).gather(segments).reciprocal()
    }

    /// torch.nn.LayerNorm: (x - mean) / √(variance + 1e-5) · weight + bias, row by row.
    pub(crate) fn layer_norm(self, weight: Var<'t>, bias: Var<'t>) -> Var<'t> {
        let centred = self - self.mean_columns();
        let variance = (centred * centred).mean_columns();
        centred * variance.shift(1e-5).sqrt().reciprocal() * weight + bias
    }

    /// torch.nn.Linear: x · Wᵀ + b, `weight` being [k, m] and `bias` [1, k].
    pub(crate) fn linear(self, weight: Var<'t>, bias: Option<Var<'t>>) -> Var<'t> {
        let product = self.matmul(weight.transposed());
        bias.map_or(product, |bias| product + bias)
    }

    /// The largest number of each row as a constant, [n, 1].
    fn largest(self) -> Var<'t> {
        let x = self.value();
        let row_maximum = |i: usize| (0..x.columns).map(|j| x.get(i, j)).fold(f64::NEG_INFINITY, f64::max);
        self.tape.leaf(Matrix::from_fn(x.rows, 1, |i, _| row_maximum(i)))
    }

    /// A function of each pair of numbers of A and of B, of which a single row or column is
    /// repeated. `slopes` are those in both.
    fn combine(self, other: Var<'t>, function: fn(f64, f64) -> f64, slopes: [fn(f64, f64) -> f64; 2]) -> Var<'t> {
        let (a, b) = (self.value(), other.value());
        let fits = |len_a: usize, len_b: usize| len_b == len_a || len_b == 1;
        assert!(
            fits(a.rows, b.rows) && fits(a.columns, b.columns),
            "[{}, {}] with [{}, {}]",
            a.rows,
            a.columns,
            b.rows,
            b.columns
        );
        let result = Matrix::from_fn(a.rows, a.columns, |i, j| function(a.get(i, j), b.repeated(i, j)));
        let backward = move |d: &Matrix| {
            let gradient = |slope: fn(f64, f64) -> f64| {
                Matrix::from_fn(a.rows, a.columns, |i, j| d.get(i, j) * slope(a.get(i, j), b.repeated(i, j)))
            };
            vec![gradient(slopes[0]), gradient(slopes[1]).summed_like(&b)]
        };
        self.tape.push(result, &[self, other], Box::new(backward))
    }
}

/// A + B; a single row or column of B is repeated.
impl<'t> Add for Var<'t> {
    type Output = Var<'t>;

    fn add(self, other: Var<'t>) -> Var<'t> {
        self.combine(other, |a, b| a + b, [|_, _| 1.0, |_, _| 1.0])
    }
}

/// A - B; a single row or column of B is repeated.
impl<'t> Sub for Var<'t> {
    type Output = Var<'t>;

    fn sub(self, other: Var<'t>) -> Var<'t> {
        self.combine(other, |a, b| a - b, [|_, _| 1.0, |_, _| -1.0])
    }
}

/// A · B number by number; a single row or column of B is repeated.
impl<'t> Mul for Var<'t> {
    type Output = Var<'t>;

    fn mul(self, other: Var<'t>) -> Var<'t> {
        self.combine(other, |a, b| a * b, [|_, b| b, |a, _| a])
    }
}

/// The rows of `values` added up in `rows` sums.
fn scattered(values: &Matrix, indices: &[usize], rows: usize) -> Matrix {
    let mut sums = Matrix::zeros(rows, values.columns);
    for (i, &index) in indices.iter().enumerate() {
        (0..values.columns).for_each(|j| *sums.get_mut(index, j) += values.get(i, j));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers in (-2, 2) without pattern, none nearer to 0 than 1e-2, where some have a kink.
    fn numbers(seed: usize, rows: usize, columns: usize) -> Matrix {
        let number = |i: usize, j: usize| {
            let x = 2.0 * ((i * columns + j) as f64 * 12.9898 + seed as f64 * 78.233 + 1.0).sin();
            if x.abs() < 1e-2 { x.signum() * 0.1 } else { x }
        };
        Matrix::from_fn(rows, columns, number)
    }

    /// Σ w · f(operands), with weights w without pattern so that no error cancels.
    fn weighted<'t>(tape: &'t Tape, result: Var<'t>) -> Var<'t> {
        let weights = numbers(99, result.rows(), result.columns());
        (result * tape.leaf(weights)).sum_columns().sum_rows()
    }

    type Operation = for<'t> fn(&[Var<'t>]) -> Var<'t>;

    /// Central differences over two steps, whose error is the step's fourth power times a fifth
    /// derivative, beside a rounding of 1e-16 divided by the step.
    fn check(name: &str, operands: &[Matrix], operation: Operation) {
        const STEP: f64 = 1e-4;
        let value = |operands: &[Matrix]| {
            let tape = Tape::default();
            let vars: Vec<_> = operands.iter().map(|operand| tape.leaf(operand.clone())).collect();
            weighted(&tape, operation(&vars)).value().get(0, 0)
        };
        let tape = Tape::default();
        let vars: Vec<_> = operands.iter().map(|operand| tape.leaf(operand.clone())).collect();
        let gradients = tape.gradients(weighted(&tape, operation(&vars)), Matrix::new(1, 1, vec![1.0]));
        for (k, &var) in vars.iter().enumerate() {
            let gradient = gradients.with_respect_to(var);
            for index in 0..gradient.values.len() {
                let moved = |steps: f64| {
                    let mut operands = operands.to_vec();
                    operands[k].values[index] += steps * STEP;
                    value(&operands)
                };
                let slope = (8.0 * (moved(1.0) - moved(-1.0)) - (moved(2.0) - moved(-2.0))) / (12.0 * STEP);
                let found = gradient.values[index];
                let apart = (slope - found).abs();
                assert!(apart < 1e-9 * (1.0 + slope.abs()), "{name}, operand {k}: {slope} and {found}");
            }
        }
    }

    #[test]
    fn the_gradient_of_every_operation_is_its_slope() {
        let positive = |seed, rows, columns| {
            let all = numbers(seed, rows, columns);
            Matrix::from_fn(rows, columns, |i, j| 0.5 + all.get(i, j).abs())
        };
        let [a, b, row, column] = [numbers(1, 4, 3), numbers(2, 4, 3), numbers(3, 1, 3), numbers(4, 4, 1)];
        let one = std::slice::from_ref(&a);
        let two = [a.clone(), b.clone()];
        check("matmul", &[a.clone(), numbers(5, 3, 2)], |x| x[0].matmul(x[1]));
        check("transposed", one, |x| x[0].transposed());
        check("scale", one, |x| x[0].scale(0.3));
        check("shift", one, |x| x[0].shift(0.3));
        check("sigmoid", one, |x| x[0].sigmoid());
        check("tanh", one, |x| x[0].tanh());
        check("exp", one, |x| x[0].exp());
        check("ln", &[positive(6, 4, 3)], |x| x[0].ln());
        check("reciprocal", &[positive(6, 4, 3)], |x| x[0].reciprocal());
        check("sqrt", &[positive(6, 4, 3)], |x| x[0].sqrt());
        check("relu", one, |x| x[0].relu());
        check("leaky_relu", one, |x| x[0].leaky_relu(0.2));
        check("elu", one, |x| x[0].elu());
        check("sum_columns", one, |x| x[0].sum_columns());
        check("sum_rows", one, |x| x[0].sum_rows());
        check("mean_columns", one, |x| x[0].mean_columns());
        check("mean_rows", one, |x| x[0].mean_rows());
        check("max_rows", one, |x| x[0].max_rows());
        check("gather", one, |x| x[0].gather(&[2, 0, 2]));
        check("scatter_add", one, |x| x[0].scatter_add(&[2, 0, 2, 4], 5));
        check("slice", one, |x| x[0].slice(1..3));
        check("reshaped", one, |x| x[0].reshaped(2, 6));
        check("beside", &[a.clone(), column.clone(), b.clone()], |x| Var::concat_columns(&[x[0], x[1], x[2]]));
        check("above", &[a.clone(), row.clone(), b.clone()], |x| Var::concat_rows(&[x[0], x[1], x[2]]));
        check("softmax", one, |x| x[0].softmax());
        check("log_sum_exp", one, |x| x[0].log_sum_exp());
        check("segment_softmax", one, |x| x[0].segment_softmax(&[2, 0, 2, 2], 3));
        check("layer_norm", &[a.clone(), row.clone(), numbers(7, 1, 3)], |x| x[0].layer_norm(x[1], x[2]));
        check("linear", &[a.clone(), numbers(5, 2, 3), numbers(8, 1, 2)], |x| x[0].linear(x[1], Some(x[2])));
        check("+", &two, |x| x[0] + x[1]);
        check("-", &two, |x| x[0] - x[1]);
        check("·", &two, |x| x[0] * x[1]);
        check("a value twice", one, |x| x[0] * x[0].tanh() + x[0]);
        for other in [row, column, numbers(9, 1, 1)] {
            let repeated = [a.clone(), other];
            check("+ repeated", &repeated, |x| x[0] + x[1]);
            check("- repeated", &repeated, |x| x[0] - x[1]);
            check("· repeated", &repeated, |x| x[0] * x[1]);
        }
    }

    #[test]
    fn values_are_those_computed_by_hand() {
        let tape = Tape::default();
        let a = tape.leaf(Matrix::new(2, 2, vec![1.0, -2.0, 3.0, 4.0]));
        for (found, expected) in [
            (a.matmul(a), [-5.0, -10.0, 15.0, 10.0]),
            (a.transposed(), [1.0, 3.0, -2.0, 4.0]),
            (a.leaky_relu(0.5), [1.0, -1.0, 3.0, 4.0]),
            (a.gather(&[1, 1]), [3.0, 4.0, 3.0, 4.0]),
            (a.scatter_add(&[1, 1], 2), [0.0, 0.0, 4.0, 2.0]),
            (a - a.mean_columns(), [1.5, -1.5, -0.5, 0.5]),
            (a - a.max_rows(), [-2.0, -6.0, 0.0, 0.0]),
            (a.scale(0.0).softmax(), [0.5; 4]),
            (a.scale(0.0).segment_softmax(&[0, 1], 2), [1.0; 4]),
        ] {
            assert_eq!(found.value().values, expected);
        }
        // Exponentials far beyond the range of double precision.
        let far = tape.leaf(Matrix::new(2, 2, vec![1e4, 1e4, 1e4, 0.0]));
        assert_eq!(far.softmax().value().values, [0.5, 0.5, 1.0, 0.0]);
        assert_eq!(far.log_sum_exp().value().values, [1e4 + 2f64.ln(), 1e4]);
    }
}
