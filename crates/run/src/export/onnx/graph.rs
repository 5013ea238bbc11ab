//! A graph of ONNX operators (<https://onnx.ai/onnx/operators>), as far as our models need it.

/// A computation: from its inputs through its nodes, in their order, to its outputs.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) constants: Vec<Constant>,
    pub(super) inputs: Vec<Port>,
    pub(super) outputs: Vec<Port>,
}

/// One operator of ONNX's default domain. Values are connected by their names; an input or output
/// that is left out has an empty one.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) operator: &'static str,
    pub(super) inputs: Vec<String>,
    pub(super) outputs: Vec<String>,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
}

#[derive(Debug)]
pub(super) enum Attribute {
    Int(i64),
    Float(f32),
    Ints(Vec<i64>),
}

/// A tensor that is part of the file.
#[derive(Debug)]
pub(super) struct Constant {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) values: Values,
}

/// Row-major.
#[derive(Debug, PartialEq)]
pub(super) enum Values {
    F32(Vec<f32>),
    I64(Vec<i64>),
}

/// An f32 tensor that is an input or output.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) shape: Vec<Extent>,
    /// Description, for people.
    pub(super) doc: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Fixed(usize),
    /// Chosen by the caller of the model. It is the same wherever the name is.
    Free(&'static str),
}

impl Node {
    pub(super) fn new(operator: &'static str, inputs: &[&str], output: impl Into<String>) -> Self {
        let inputs = inputs.iter().map(|&input| input.to_owned()).collect();
        Node { operator, inputs, outputs: vec![output.into()], attributes: Vec::new() }
    }

    pub(super) fn int(mut self, name: &'static str, value: i64) -> Self {
        self.attributes.push((name, Attribute::Int(value)));
        self
    }

    pub(super) fn float(mut self, name: &'static str, value: f32) -> Self {
        self.attributes.push((name, Attribute::Float(value)));
        self
    }

    pub(super) fn ints(mut self, name: &'static str, values: &[i64]) -> Self {
        self.attributes.push((name, Attribute::Ints(values.to_vec())));
        self
    }
}

impl Graph {
    /// Appends a node; the name of its last output.
    pub(super) fn add(&mut self, node: Node) -> String {
        let output = node.outputs.last().expect("a node has an output").clone();
        self.nodes.push(node);
        output
    }

    /// Adds a tensor; its name.
    pub(super) fn constant(&mut self, name: impl Into<String>, shape: &[usize], values: Vec<f32>) -> String {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "the values of {shape:?}");
        self.push(Constant { name: name.into(), shape: shape.to_vec(), values: Values::F32(values) })
    }

    /// Whole numbers, such as axes or a shape, which are tensors too; the same ones are kept once.
    pub(super) fn whole_numbers(&mut self, values: &[i64]) -> String {
        let words: Vec<String> = values.iter().map(i64::to_string).collect();
        let name = format!("[{}]", words.join(", "));
        if self.constants.iter().any(|constant| constant.name == name) {
            return name;
        }
        self.push(Constant { name, shape: vec![values.len()], values: Values::I64(values.to_vec()) })
    }

    fn push(&mut self, constant: Constant) -> String {
        let name = constant.name.clone();
        self.constants.push(constant);
        name
    }
}
