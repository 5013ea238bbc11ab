//! Parameters by their PyTorch names.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::tape::{Gradients, Matrix, Tape, Var};

/// A parameter as a matrix: one dimension is a row, and dimensions after the first are columns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parameters(BTreeMap<String, Matrix>);

/// Parameters on a tape.
pub(crate) struct Weights<'t> {
    by_name: BTreeMap<String, Var<'t>>,
    /// Names that were asked for.
    seen: RefCell<BTreeSet<String>>,
}

impl Parameters {
    pub(crate) fn new(tensors: impl Iterator<Item = (String, Vec<usize>, Vec<f64>)>) -> Self {
        let matrix = |shape: &[usize], values: Vec<f64>| {
            let rows = if shape.len() > 1 { shape[0] } else { 1 };
            Matrix::new(rows, values.len() / rows, values)
        };
        Parameters(tensors.map(|(name, shape, values)| (name, matrix(&shape, values))).collect())
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut [f64]> {
        self.0.get_mut(name).map(|matrix| matrix.values.as_mut_slice())
    }

    pub(crate) fn on_tape<'t>(&self, tape: &'t Tape) -> Weights<'t> {
        let by_name = self.0.iter().map(|(name, matrix)| (name.clone(), tape.leaf(matrix.clone())));
        Weights { by_name: by_name.collect(), seen: RefCell::default() }
    }
}

impl<'t> Weights<'t> {
    /// The parameter `name`, [rows, columns].
    ///
    /// # Panics
    /// If there is none, or it has other sizes.
    pub(crate) fn get(&self, name: &str, rows: usize, columns: usize) -> Var<'t> {
        let parameter = *self.by_name.get(name).unwrap_or_else(|| panic!("the model has no parameter {name}"));
        let value = parameter.value();
        assert_eq!([value.rows, value.columns], [rows, columns], "the sizes of {name}");
        self.seen.borrow_mut().insert(name.to_owned());
        parameter
    }

    /// torch.nn.Linear `name`: x [n, F] to [n, `outputs`].
    pub(crate) fn linear(&self, name: &str, x: Var<'t>, outputs: usize) -> Var<'t> {
        let weight = self.get(&format!("{name}.weight"), outputs, x.columns());
        x.linear(weight, Some(self.get(&format!("{name}.bias"), 1, outputs)))
    }

    /// torch.nn.LayerNorm `name` of the rows of x.
    pub(crate) fn layer_norm(&self, name: &str, x: Var<'t>) -> Var<'t> {
        let unit_vector = |part: &str| self.get(&format!("{name}.{part}"), 1, x.columns());
        x.layer_norm(unit_vector("weight"), unit_vector("bias"))
    }

    /// Refuses parameters that nothing asked for.
    pub(crate) fn check_all_seen(&self) {
        let seen = self.seen.borrow();
        let unknown: Vec<&String> = self.by_name.keys().filter(|name| !seen.contains(*name)).collect();
        assert!(unknown.is_empty(), "parameters that the reference does not know: {unknown:?}");
    }

    pub(crate) fn gradients(&self, gradients: &Gradients) -> BTreeMap<String, Vec<f64>> {
        self.by_name.iter().map(|(name, &var)| (name.clone(), gradients.with_respect_to(var).values)).collect()
    }
}
