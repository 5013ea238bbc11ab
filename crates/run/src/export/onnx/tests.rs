use std::collections::BTreeSet;

use megabatch_gpu_core::Device;
use megabatch_nn::model::{Cell, Fusion, Model, ModelConfig, Pooling, SampleShape, TensorSet, Timeframe};

use super::graph::{Attribute, Extent, Graph, Node, Values};
use super::{Export, Scaling};

/// A model with two timeframes, or a single one without a name.
fn model(names: &[&str], config: ModelConfig) -> Model {
    let timeframe = |(k, name): (usize, &&str)| Timeframe { name: (*name).to_owned(), steps: 5 + k, features: 3 + k };
    let timeframes = names.iter().enumerate().map(timeframe).collect();
    Model::new(SampleShape { timeframes, outputs: 2 }, ModelConfig { hidden: 4, ..config }).unwrap()
}

/// Result of `look` on the export of a model whose parameters are all different.
fn exported<T>(model: &Model, with: impl FnOnce(&mut Export<'_>), look: impl FnOnce(&Export<'_>) -> T) -> T {
    let mut parameters: TensorSet = TensorSet::zeros(&Device::cpu().scope("test"), model.layout()).unwrap();
    parameters.values_mut().iter_mut().enumerate().for_each(|(k, value)| *value = k as f32 * 0.01);
    let timeframes = model.shape().timeframes.len();
    let mut export = Export {
        model,
        parameters: &parameters,
        step: 300,
        batch: None,
        scaling: None,
        input_docs: (0..timeframes).map(|k| format!("input {k}")).collect(),
        output_doc: "numbers".to_owned(),
        metadata: vec![("key".to_owned(), "value".to_owned())],
    };
    with(&mut export);
    look(&export)
}

fn graph_of(export: &Export<'_>) -> Graph {
    export.graph()
}

fn graph(model: &Model) -> Graph {
    exported(model, |_| {}, graph_of)
}

/// A node on one line.
fn line(node: &Node) -> String {
    let attribute = |(name, value): &(&str, Attribute)| match value {
        Attribute::Int(value) => format!(" {name}={value}"),
        Attribute::Float(value) => format!(" {name}={value}"),
        Attribute::Ints(values) => format!(" {name}={values:?}"),
    };
    let attributes: String = node.attributes.iter().map(attribute).collect();
    format!("{} = {}({}){attributes}", node.outputs.join(", "), node.operator, node.inputs.join(", "))
}

fn lines(graph: &Graph) -> Vec<String> {
    graph.nodes.iter().map(line).collect()
}

fn every_option() -> Vec<ModelConfig> {
    let default = ModelConfig::default();
    let mut all = Vec::new();
    for (bias, layer_norm) in [(true, false), (true, true), (false, true), (false, false)] {
        for pooling in [Pooling::Last, Pooling::Attention { heads: 2 }] {
            for fusion in [Fusion::Concat, Fusion::Attention { heads: 2, feed_forward: 3 }] {
                let with_layers = |layers| ModelConfig { layers, bias, layer_norm, pooling, fusion, ..default };
                all.extend([with_layers(1), with_layers(2)]);
            }
        }
    }
    all
}

#[test]
fn one_lstm_and_a_head() {
    let model = model(&[""], ModelConfig { bias: false, ..ModelConfig::default() });
    let graph = graph(&model);
    assert_eq!(
        lines(&graph),
        [
            "windows.bars = Transpose(features) perm=[1, 0, 2]",
            ", windows.l0.last = LSTM(windows.bars, lstm.l0.W, lstm.l0.R) hidden_size=4",
            "windows.l0.states = Squeeze(windows.l0.last, [0])",
            "predictions = Gemm(windows.l0.states, head.weight, head.bias) transB=1",
        ]
    );
    let shapes: Vec<_> = graph.constants.iter().map(|constant| (constant.name.as_str(), &constant.shape[..])).collect();
    let expected: [(&str, &[usize]); 5] = [
        ("lstm.l0.W", &[1, 16, 3]),
        ("lstm.l0.R", &[1, 16, 4]),
        ("[0]", &[1]),
        ("head.bias", &[2]),
        ("head.weight", &[2, 4]),
    ];
    assert_eq!(shapes, expected);
    assert_eq!(graph.inputs[0].shape, [Extent::Free("batch"), Extent::Fixed(5), Extent::Fixed(3)]);
    assert_eq!(graph.outputs[0].shape, [Extent::Free("batch"), Extent::Fixed(2)]);
}

#[test]
fn a_gru_resets_what_the_recurrent_product_gives() {
    let gru = model(&["M1"], ModelConfig { cell: Cell::Gru, ..ModelConfig::default() });
    let graph = graph(&gru);
    assert_eq!(
        lines(&graph)[1],
        ", windows.M1.l0.last = GRU(windows.M1.bars, gru.M1.l0.W, gru.M1.l0.R, gru.M1.l0.B) hidden_size=4 linear_before_reset=1"
    );
    let shape_of = |name: &str| graph.constants.iter().find(|constant| constant.name == name).unwrap().shape.clone();
    assert_eq!([shape_of("gru.M1.l0.W"), shape_of("gru.M1.l0.R")], [[1, 12, 3], [1, 12, 4]]);
    assert_eq!(shape_of("gru.M1.l0.B"), [1, 24]);
}

#[test]
fn layers_norms_and_pooling_follow_each_other() {
    let pooling = Pooling::Attention { heads: 2 };
    let model = model(&["M1"], ModelConfig { layers: 2, layer_norm: true, pooling, ..ModelConfig::default() });
    assert_eq!(
        lines(&graph(&model)),
        [
            "windows.M1.bars = Transpose(features.M1) perm=[1, 0, 2]",
            "windows.M1.l0.each = LSTM(windows.M1.bars, lstm.M1.l0.W, lstm.M1.l0.R, lstm.M1.l0.B) hidden_size=4",
            "windows.M1.l0.states = Squeeze(windows.M1.l0.each, [1])",
            "norm.M1.l0.normed = LayerNormalization(windows.M1.l0.states, norm.M1.l0.weight, norm.M1.l0.bias) axis=-1 epsilon=0.00001",
            "windows.M1.l1.each = LSTM(norm.M1.l0.normed, lstm.M1.l1.W, lstm.M1.l1.R, lstm.M1.l1.B) hidden_size=4",
            "windows.M1.l1.states = Squeeze(windows.M1.l1.each, [1])",
            "norm.M1.l1.normed = LayerNormalization(windows.M1.l1.states, norm.M1.l1.weight, norm.M1.l1.bias) axis=-1 epsilon=0.00001",
            "windows.M1.pooling.scores = MatMul(norm.M1.l1.normed, pooling.M1.keys)",
            "windows.M1.pooling.scores_by_head = Transpose(windows.M1.pooling.scores) perm=[1, 2, 0]",
            "windows.M1.pooling.weights = Softmax(windows.M1.pooling.scores_by_head) axis=-1",
            "windows.M1.pooling.states = Transpose(norm.M1.l1.normed) perm=[1, 0, 2]",
            "windows.M1.pooling.sums = MatMul(windows.M1.pooling.weights, windows.M1.pooling.states)",
            "windows.M1.pooling.rows = Unsqueeze(windows.M1.pooling.sums, [2])",
            "windows.M1.pooling.values_by_head = MatMul(windows.M1.pooling.rows, pooling.M1.values)",
            "windows.M1.pooling.values_joined = Reshape(windows.M1.pooling.values_by_head, [-1, 4])",
            "windows.M1.pooling.values = Add(windows.M1.pooling.values_joined, pooling.M1.values_bias)",
            "windows.M1.pooling.pooled = Gemm(windows.M1.pooling.values, pooling.M1.attention.out_proj.weight, pooling.M1.attention.out_proj.bias) transB=1",
            "predictions = Gemm(windows.M1.pooling.pooled, head.weight, head.bias) transB=1",
        ]
    );
}

#[test]
fn timeframes_are_joined_or_fused() {
    let operators = |fusion| {
        let graph = graph(&model(&["M1", "H1"], ModelConfig { fusion, ..ModelConfig::default() }));
        graph.nodes.iter().map(|node| node.operator).skip(6).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(operators(Fusion::Concat), "Concat Gemm");
    assert_eq!(
        operators(Fusion::Attention { heads: 2, feed_forward: 3 }),
        "Unsqueeze Unsqueeze Concat MatMul Add Split Reshape Transpose Reshape Transpose Reshape Transpose MatMul Mul Softmax MatMul Transpose \
         Reshape MatMul Add Add LayerNormalization MatMul Add Relu MatMul Add Add LayerNormalization ReduceMean Gemm"
    );
}

#[test]
fn every_value_is_made_once_before_it_is_read_and_every_constant_is_read() {
    for config in every_option() {
        let graph = graph(&model(&["M1", "H1"], config));
        let constants: BTreeSet<&str> = graph.constants.iter().map(|constant| constant.name.as_str()).collect();
        assert_eq!(constants.len(), graph.constants.len(), "a constant is there twice: {config:?}");
        let mut known: BTreeSet<&str> = graph.inputs.iter().map(|input| input.name.as_str()).collect();
        known.extend(&constants);
        let mut read = BTreeSet::new();
        for node in &graph.nodes {
            for input in &node.inputs {
                assert!(known.contains(input.as_str()), "{input} is not known yet: {config:?}");
                read.insert(input.as_str());
            }
            for output in node.outputs.iter().filter(|output| !output.is_empty()) {
                assert!(known.insert(output), "{output} is there twice: {config:?}");
            }
        }
        assert!(constants.iter().all(|constant| read.contains(constant)), "{config:?}");
        assert!(known.contains("predictions"), "{config:?}");
    }
}

#[test]
fn a_centre_keeps_the_digits_that_f32_has_not() {
    let model = model(&[""], ModelConfig::default());
    let (center, scale) = (vec![1.1, -2000.3, 0.0], vec![0.001, 2.0, 1.0]);
    let scaling = vec![Scaling { center: center.clone(), scale }];
    let graph = exported(&model, |export| export.scaling = Some(scaling), graph_of);
    assert_eq!(
        lines(&graph)[..4],
        [
            "windows.nearly_centered = Sub(features, scaler.center)",
            "windows.centered = Sub(windows.nearly_centered, scaler.center_rest)",
            "windows.scaled = Div(windows.centered, scaler.scale)",
            "windows.bars = Transpose(windows.scaled) perm=[1, 0, 2]",
        ]
    );
    let constant = |name: &str| {
        let constant = graph.constants.iter().find(|constant| constant.name == name).unwrap();
        let Values::F32(values) = &constant.values else { panic!("{name} is not f32") };
        values.clone()
    };
    for ((coarse, rest), center) in
        constant("scaler.center").into_iter().zip(constant("scaler.center_rest")).zip(center)
    {
        assert!((f64::from(coarse) + f64::from(rest) - center).abs() <= center.abs() * 1e-14, "{coarse} + {rest}");
    }
}

/// A field of a message: its number and, by its wire type, a number or bytes.
#[derive(Debug, PartialEq)]
enum Field<'a> {
    Number(u64),
    Fixed([u8; 4]),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for k in 0.. {
        let (&byte, rest) = bytes.split_first().expect("a varint has an end");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (7 * k);
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// The fields of a message, in their order.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let len = varint(&mut bytes) as usize;
                let (own, rest) = bytes.split_at(len);
                bytes = rest;
                Field::Bytes(own)
            }
            5 => {
                let (own, rest) = bytes.split_at(4);
                bytes = rest;
                Field::Fixed(own.try_into().unwrap())
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn all<'a>(message: &[(u64, Field<'a>)], number: u64) -> Vec<&'a [u8]> {
    let fields = message.iter().filter(|(found, _)| *found == number);
    fields.map(|(_, field)| if let Field::Bytes(bytes) = field { *bytes } else { panic!("{field:?}") }).collect()
}

fn texts(message: &[(u64, Field<'_>)], number: u64) -> Vec<String> {
    all(message, number).into_iter().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).collect()
}

fn numbers(message: &[(u64, Field<'_>)], number: u64) -> Vec<i64> {
    let fields = message.iter().filter(|(found, _)| *found == number);
    fields
        .map(|(_, field)| if let Field::Number(value) = field { value.cast_signed() } else { panic!("{field:?}") })
        .collect()
}

/// A `NodeProto` as the line of the node that it was.
fn decoded_line(bytes: &[u8]) -> String {
    let node = fields(bytes);
    let attribute = |bytes: &[u8]| {
        let attribute = fields(bytes);
        let value = match numbers(&attribute, 20)[..] {
            [1] => match attribute.iter().find(|(number, _)| *number == 2) {
                Some((_, Field::Fixed(bytes))) => f32::from_le_bytes(*bytes).to_string(),
                other => panic!("{other:?}"),
            },
            [2] => numbers(&attribute, 3)[0].to_string(),
            [7] => format!("{:?}", numbers(&attribute, 8)),
            ref other => panic!("type {other:?}"),
        };
        format!(" {}={value}", texts(&attribute, 1)[0])
    };
    let attributes: String = all(&node, 5).into_iter().map(attribute).collect();
    let [outputs, inputs] = [2, 1].map(|number| texts(&node, number).join(", "));
    format!("{outputs} = {}({inputs}){attributes}", texts(&node, 4)[0])
}

#[test]
fn a_file_holds_the_graph_that_was_encoded() {
    let config = ModelConfig {
        layer_norm: true,
        fusion: Fusion::Attention { heads: 2, feed_forward: 1 },
        ..ModelConfig::default()
    };
    let model = model(&["M1", "H1"], config);
    let (bytes, graph) =
        exported(&model, |export| export.batch = Some(200), |export| (export.encode(), export.graph()));
    let file = fields(&bytes);
    assert_eq!((numbers(&file, 1), numbers(&file, 5)), (vec![8], vec![300]), "versions of the format and the model");
    assert_eq!(texts(&file, 2), ["megabatch"]);
    assert_eq!(texts(&file, 6), ["M1 [5, 3], H1 [6, 4], targets [2] -> predictions [2]"]);
    let opset = fields(all(&file, 8)[0]);
    assert_eq!((texts(&opset, 1), numbers(&opset, 2)), (vec![String::new()], vec![17]));
    let metadata = fields(all(&file, 14)[0]);
    assert_eq!((texts(&metadata, 1), texts(&metadata, 2)), (vec!["key".to_owned()], vec!["value".to_owned()]));

    let found = fields(all(&file, 7)[0]);
    let nodes: Vec<String> = all(&found, 1).into_iter().map(decoded_line).collect();
    assert_eq!(nodes, lines(&graph));
    let constants = all(&found, 5);
    assert_eq!(constants.len(), graph.constants.len());
    for (constant, bytes) in graph.constants.iter().zip(constants) {
        let found = fields(bytes);
        let shape: Vec<i64> = constant.shape.iter().map(|&extent| extent as i64).collect();
        assert_eq!((texts(&found, 8), numbers(&found, 1)), (vec![constant.name.clone()], shape));
        let expected: (i64, Vec<u8>) = match &constant.values {
            Values::F32(values) => (1, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
            Values::I64(values) => (7, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
        };
        assert_eq!((numbers(&found, 2)[0], all(&found, 9)[0]), (expected.0, &expected.1[..]), "{}", constant.name);
    }
    let port = |bytes: &[u8]| {
        let port = fields(bytes);
        let tensor = fields(all(&fields(all(&port, 2)[0]), 1)[0]);
        let shape = fields(all(&tensor, 2)[0]);
        let extents: Vec<i64> = all(&shape, 1).into_iter().map(|extent| numbers(&fields(extent), 1)[0]).collect();
        format!("{} {extents:?} of type {:?}: {}", texts(&port, 1)[0], numbers(&tensor, 1), texts(&port, 3)[0])
    };
    let ports: Vec<String> = [all(&found, 11), all(&found, 12)].concat().into_iter().map(port).collect();
    assert_eq!(
        ports,
        [
            "features.M1 [200, 5, 3] of type [1]: input 0",
            "features.H1 [200, 6, 4] of type [1]: input 1",
            "predictions [200, 2] of type [1]: numbers",
        ]
    );
}
