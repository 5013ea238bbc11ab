use super::*;
use crate::model::tensor::{Layout as Tensors, TensorSet};
use crate::reference::lstm::{Activations, InputGradients, Lstm, Read, Sizes, backward, forward};

/// The same by the trainer's plain form in f64, from operands rounded to `T`.
fn plain<T: Operand>(of: &Example) -> Layer {
    let rounded = |values: &[f32]| values.iter().map(|&x| f64::from(T::narrow(x).widen())).collect::<Vec<f64>>();
    let scope = Device::cpu().scope("test");
    let mut layer = Layer {
        hidden: Vec::new(),
        cell: Vec::new(),
        d_weight_ih: Vec::new(),
        d_weight_hh: Vec::new(),
        d_bias: Vec::new(),
        d_first: [Vec::new(), Vec::new()],
    };
    for (s, (steps, first)) in TIMEFRAMES.into_iter().enumerate() {
        let (features, hidden, read) = (WIDTH, of.hidden, Read::EveryStep);
        let sizes = Sizes { steps, features, hidden, layers: 1, bias: true, norm: false, read };
        let mut tensors = Tensors::default();
        let lstm = Lstm::new(sizes, "lstm", "norm", &mut tensors);
        let tensors = std::sync::Arc::new(tensors);
        let mut parameters = TensorSet::zeros(&scope, &tensors).unwrap();
        let slots = lstm.layers[0];
        parameters.slot_mut(slots.weight_ih).copy_from_slice(&rounded(&of.weight_ih[s]));
        parameters.slot_mut(slots.weight_hh).copy_from_slice(&rounded(&of.weight_hh[s]));
        let [bias, _] = slots.bias.unwrap();
        parameters.slot_mut(bias).iter_mut().zip(&of.bias[s]).for_each(|(to, &from)| *to = f64::from(from));

        let bars = rounded(&of.bars[s]);
        let window = |&first: &u32| bars[first as usize * WIDTH..][..steps * WIDTH].iter().map(|&x| x as f32);
        let windows: Vec<f32> = first.iter().flat_map(window).collect();
        let samples = first.len();
        let mut activations = Activations::<f64>::new(&scope, sizes, samples, InputGradients::Skip).unwrap();
        activations.load(sizes, samples, &windows);
        forward(&lstm, &parameters, &mut activations);
        layer.hidden.extend(vec![0.0; samples * hidden]);
        layer.cell.extend(vec![0.0; samples * hidden]);
        for (t, b) in (0..steps).flat_map(|t| (0..samples).map(move |b| (t, b))) {
            let [h, c] = activations.state(sizes, 0, b, t);
            layer.hidden.extend(h.iter().map(|&x| x as f32));
            layer.cell.extend(c.iter().map(|&x| x as f32));
        }
        let (_, d) = activations.sequence_and_gradient_mut(sizes);
        d.iter_mut().zip(&of.d_outputs[s]).for_each(|(to, &from)| *to = f64::from(from));
        let mut gradients = TensorSet::zeros(&scope, &tensors).unwrap();
        backward(&lstm, &parameters, &mut activations, &mut gradients);
        let gradient = |slot| gradients.slot(slot).iter().map(|&x| x as f32).collect::<Vec<f32>>();
        layer.d_weight_ih.extend(gradient(slots.weight_ih));
        layer.d_weight_hh.extend(gradient(slots.weight_hh));
        layer.d_bias.extend(gradient(bias));
        let (d_hidden, d_cell) = activations.d_initial_state(sizes, 0);
        layer.d_first[0].extend(d_hidden.iter().map(|&x| x as f32));
        layer.d_first[1].extend(d_cell.iter().map(|&x| x as f32));
    }
    layer
}

fn check<T: Operand>(tolerance: f32) {
    for hidden in [1, 7, 20, 64] {
        let example = Example::new(hidden);
        let found = example.run::<T>(&Device::cpu(), TileWindows::Eight).unwrap();
        found.assert_close(&plain::<T>(&example), tolerance, &format!("{hidden} units in {}", T::SUFFIX));
    }
}

/// In f32, six steps of sums of up to 64 terms; in 16 bits, hidden states and the gradients of
/// gates are rounded at every step, to 11 bits or to 8, and gates to 11.
#[test]
fn the_cpu_gives_the_plain_forms_layer() {
    check::<f32>(1e-5);
    check::<f16>(2e-3);
    check::<bf16>(2e-2);
}
