//! A model's parameters as constants of a graph.

use megabatch_nn::model::TensorSet;

use super::graph::{Graph, Node};

/// The parameters, by PyTorch's names.
#[derive(Clone, Copy)]
pub(super) struct Weights<'a>(pub(super) &'a TensorSet);

impl<'a> Weights<'a> {
    /// The parameter `name`, row-major.
    pub(super) fn get(self, name: &str) -> &'a [f32] {
        self.0.get(name).unwrap_or_else(|| panic!("the model has a parameter {name}"))
    }

    /// The parameter `name` `[N]` as a constant of that name.
    pub(super) fn vector(self, graph: &mut Graph, name: &str) -> String {
        let values = self.get(name);
        graph.constant(name, &[values.len()], values.to_vec())
    }

    /// torch.nn.Linear with the parameters `<name>.weight` `[N, D]` and `<name>.bias`: from x `[B,
    /// D]` to `output` `[B, N]`.
    pub(super) fn linear(self, graph: &mut Graph, x: &str, name: &str, output: &str) -> String {
        let bias = self.vector(graph, &format!("{name}.bias"));
        let values = self.get(&format!("{name}.weight"));
        let rows = self.get(&bias).len();
        let weight = graph.constant(format!("{name}.weight"), &[rows, values.len() / rows], values.to_vec());
        graph.add(Node::new("Gemm", &[x, &weight, &bias], output).int("transB", 1))
    }

    /// The same of tensors of more than two dimensions, with parameters of any names: from x [..,
    /// D] to `output` [.., N].
    pub(super) fn map(self, graph: &mut Graph, x: &str, output: &str, weight: &str, bias: &str) -> String {
        let values = self.get(weight);
        let bias = self.vector(graph, bias);
        let rows = self.get(&bias).len();
        let columns = values.len() / rows;
        let transposed = (0..values.len()).map(|place| values[place % rows * columns + place / rows]).collect();
        let weight = graph.constant(format!("{weight}.transposed"), &[columns, rows], transposed);
        let product = graph.add(Node::new("MatMul", &[x, &weight], format!("{output}.product")));
        graph.add(Node::new("Add", &[&product, &bias], output))
    }
}
