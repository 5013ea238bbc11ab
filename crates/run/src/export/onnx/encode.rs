//! A graph as the bytes of an ONNX file: messages and field numbers are those of `onnx/onnx.proto`
//! in <https://github.com/onnx/onnx>.

use super::graph::{Attribute, Constant, Extent, Graph, Node, Port, Values};
use crate::protobuf::Message;

/// The version of the file format, and of the operators: what ONNX Runtime 1.14 reads, and with it
/// MetaTrader 5.
const IR_VERSION: i64 = 8;
const OPSET_VERSION: i64 = 17;

/// `TensorProto.DataType`.
const FLOAT: i64 = 1;
const INT64: i64 = 7;

/// Header of a file.
#[derive(Debug)]
pub(super) struct Header<'a> {
    /// The step of the weights.
    pub(super) step: u64,
    pub(super) doc: &'a str,
    /// Keys and values.
    pub(super) metadata: &'a [(String, String)],
}

/// `ModelProto`.
pub(super) fn encode(graph: &Graph, header: &Header<'_>) -> Vec<u8> {
    let opset = Message::default().text(1, "").int(2, OPSET_VERSION);
    Message::default()
        .int(1, IR_VERSION)
        .text(2, "megabatch")
        .text(3, env!("CARGO_PKG_VERSION"))
        .int(5, header.step.cast_signed())
        .text(6, header.doc)
        .message(7, &encode_graph(graph))
        .message(8, &opset)
        .each(header.metadata, |message, (key, value)| {
            message.message(14, &Message::default().text(1, key).text(2, value))
        })
        .into_bytes()
}

/// `GraphProto`.
fn encode_graph(graph: &Graph) -> Message {
    Message::default()
        .each(&graph.nodes, |message, node| message.message(1, &encode_node(node)))
        .text(2, "model")
        .each(&graph.constants, |message, constant| message.message(5, &encode_constant(constant)))
        .each(&graph.inputs, |message, port| message.message(11, &encode_port(port)))
        .each(&graph.outputs, |message, port| message.message(12, &encode_port(port)))
}

/// `NodeProto`, named after its output.
fn encode_node(node: &Node) -> Message {
    let name = node.outputs.iter().find(|name| !name.is_empty()).expect("a node has an output");
    Message::default()
        .each(&node.inputs, |message, input| message.text(1, input))
        .each(&node.outputs, |message, output| message.text(2, output))
        .text(3, name)
        .text(4, node.operator)
        .each(&node.attributes, |message, (name, value)| message.message(5, &encode_attribute(name, value)))
}

/// `AttributeProto`, whose field 20 is the type of its value.
fn encode_attribute(name: &str, value: &Attribute) -> Message {
    let named = Message::default().text(1, name);
    match value {
        Attribute::Float(value) => named.float(2, *value).int(20, 1),
        Attribute::Int(value) => named.int(3, *value).int(20, 2),
        Attribute::Ints(values) => named.each(values, |message, &value| message.int(8, value)).int(20, 7),
    }
}

/// `TensorProto`.
fn encode_constant(constant: &Constant) -> Message {
    let (data_type, bytes): (i64, Vec<u8>) = match &constant.values {
        Values::F32(values) => (FLOAT, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
        Values::I64(values) => (INT64, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
    };
    Message::default()
        .each(&constant.shape, |message, &extent| message.int(1, extent as i64))
        .int(2, data_type)
        .text(8, &constant.name)
        .bytes(9, &bytes)
}

/// `ValueInfoProto`, with a `TypeProto` of tensors.
fn encode_port(port: &Port) -> Message {
    let encode_extent = |extent: &Extent| match *extent {
        Extent::Fixed(extent) => Message::default().int(1, extent as i64),
        Extent::Free(name) => Message::default().text(2, name),
    };
    let shape = Message::default().each(&port.shape, |message, extent| message.message(1, &encode_extent(extent)));
    let tensor = Message::default().int(1, FLOAT).message(2, &shape);
    Message::default().text(1, &port.name).message(2, &Message::default().message(1, &tensor)).text(3, &port.doc)
}
