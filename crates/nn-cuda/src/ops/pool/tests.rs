use half::{bf16, f16};
use megabatch_gpu_core::Device;
use megabatch_nn::model::pooling::AttentionPooling;
use megabatch_nn::model::{Layout as Tensors, TensorSet};
use megabatch_reference::{parts, wide};
use megabatch_simt::Arg;

use super::super::harness::{HARNESS, noise};
use super::*;

/// Steps, windows, heads, hidden units.
const SIZES: [[u32; 4]; 4] = [[1, 1, 1, 1], [5, 3, 2, 6], [40, 2, 3, 33], [7, 4, 4, 64]];

fn sizes(steps: u32, windows: u32, heads: u32, hidden: u32) -> PoolSizes {
    PoolSizes { steps, windows, heads, hidden }
}

/// The pooling beside the oracle's of each window, from the same states.
fn check<T: Operand>(size_list: [u32; 4]) {
    let (sizes, scope) = (sizes(size_list[0], size_list[1], size_list[2], size_list[3]), Device::cpu().scope("test"));
    let [steps, windows, heads, hidden] = sizes.wide();
    let slots = PoolSlots::from(0, hidden);
    let len = slots.out_bias + hidden;
    let parameters = Buffer::from_slice(&scope, &noise("parameters", len, 0.7)).unwrap();
    let states: Vec<T> = noise("states", sizes.states(), 1.0).into_iter().map(T::narrow).collect();
    let states = Buffer::from_slice(&scope, &states).unwrap();
    let d_pooled = noise("d", windows * hidden, 1.0);

    let weights = PoolWeights { parameters: &parameters, slots, arithmetic: Arithmetic::Exact };
    let mut memory = PoolMemory::zeros(&scope, sizes).unwrap();
    let mut pooled = Buffer::zeros(&scope, windows * hidden).unwrap();
    pool(weights, (&states).into(), &mut memory, &mut pooled, 0).unwrap();
    let (mut d_states, mut gradients) =
        (Buffer::zeros(&scope, sizes.states()).unwrap(), Buffer::zeros(&scope, len).unwrap());
    let d = Buffer::from_slice(&scope, &d_pooled).unwrap();
    pool_backward(weights, (&states).into(), (&d).into(), &mut memory, &mut d_states, 0, &mut gradients).unwrap();

    let mut layout = Tensors::default();
    AttentionPooling::new(hidden, heads, "pooling", &mut layout);
    let layout = std::sync::Arc::new(layout);
    let mut tensors = TensorSet::zeros(&scope, &layout).unwrap();
    tensors.values_mut().copy_from_slice(parameters.as_slice());
    let mut expected_gradients = vec![0.0; len];
    for window in 0..windows {
        let row = |t: usize| (t * windows + window) * hidden;
        let window_states =
            |all: &[f32]| (0..steps).flat_map(|t| all[row(t)..][..hidden].to_vec()).collect::<Vec<f32>>();
        let own: Vec<f32> = states.as_slice().iter().map(|x| x.widen()).collect();
        let d_own = wide(&d_pooled[window * hidden..][..hidden]);
        let expected = parts::pooling(parts::parameters(&tensors), heads, &wide(&window_states(&own)), &d_own);
        assert_close("pooled", &pooled.as_slice()[window * hidden..][..hidden], &expected.result);
        let own_weights = &memory.weights.as_slice()[window * heads * steps..][..heads * steps];
        assert_close("weights", own_weights, &expected.weights);
        assert_close("d_states", &window_states(d_states.as_slice()), &expected.d_input);
        let terms = parts::in_order(&layout, &expected.d_parameters);
        expected_gradients.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
    }
    assert_close("gradients", gradients.as_slice(), &expected_gradients);
    by_kernels(&states, &memory, d_states.as_slice());
}

/// f32 beside f64: sums of up to 128 terms, and exponentials.
fn assert_close(what: &str, found: &[f32], expected: &[f64]) {
    let most = expected.iter().fold(1.0f64, |most, x| most.max(x.abs()));
    for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(*found) - expected).abs() < 2e-5 * most, "{what} {k}: {found} for {expected}");
    }
}

/// The kernels from what the operation on the CPU left for them.
fn by_kernels<T: Operand>(states: &Buffer<T>, memory: &PoolMemory, d_states: &[f32]) {
    let PoolMemory { sizes, .. } = *memory;
    let (keys, d_sums) = (memory.keys.as_slice(), memory.d_sums.as_slice());
    let (mut weights, mut sums) = (vec![9.0f32; memory.weights.len()], vec![9.0f32; memory.sums.len()]);
    let mut arguments = [
        Arg::from_struct(&sizes),
        Arg::from(states.as_slice()),
        Arg::from(keys),
        Arg::from(&mut weights[..]),
        Arg::from(&mut sums[..]),
    ];
    HARNESS.run(&format!("pool_{}", T::SUFFIX), sizes.launch(), &mut arguments);
    // The exponential is the same function here.
    assert_eq!((&weights[..], &sums[..]), (memory.weights.as_slice(), memory.sums.as_slice()), "{sizes:?}");

    let (mut d_scores, mut d_keys) = (vec![9.0f32; memory.d_scores.len()], vec![9.0f32; memory.d_keys_of.len()]);
    let mut found = vec![9.0f32; d_states.len()];
    let mut arguments = [
        Arg::from_struct(&sizes),
        Arg::from(states.as_slice()),
        Arg::from(keys),
        Arg::from(&weights[..]),
        Arg::from(d_sums),
        Arg::from(&mut d_scores[..]),
        Arg::from(&mut found[..]),
        Arg::from(&mut d_keys[..]),
    ];
    HARNESS.run(&format!("pool_backward_{}", T::SUFFIX), sizes.launch(), &mut arguments);
    assert_eq!((&d_scores[..], &d_keys[..]), (memory.d_scores.as_slice(), memory.d_keys_of.as_slice()), "{sizes:?}");
    assert_eq!(found, d_states, "{sizes:?}");
}

#[test]
fn pooling_is_the_oracles_and_the_kernels_have_the_cpus_bits() {
    for sizes in SIZES {
        check::<f32>(sizes);
        check::<f16>(sizes);
        check::<bf16>(sizes);
    }
}

/// Pooled vectors, and the gradients of states and parameters, in `memory`.
fn pooled_in(memory: &mut PoolMemory) -> [Vec<f32>; 3] {
    let (scope, sizes) = (Device::cpu().scope("test"), memory.sizes);
    let [_, windows, _, hidden] = sizes.wide();
    let buffer = |name, len| Buffer::from_slice(&scope, &noise(name, len, 0.7)).unwrap();
    let parameters = buffer("parameters", PoolSlots::from(0, hidden).out_bias + hidden);
    let (states, d_pooled) = (buffer("states", sizes.states()), buffer("d", windows * hidden));
    let weights =
        PoolWeights { parameters: &parameters, slots: PoolSlots::from(0, hidden), arithmetic: Arithmetic::Exact };
    let zeros = |len| Buffer::<f32>::zeros(&scope, len).unwrap();
    let (mut pooled, mut d_states, mut gradients) =
        (zeros(d_pooled.len()), zeros(states.len()), zeros(parameters.len()));
    pool(weights, (&states).into(), memory, &mut pooled, 0).unwrap();
    pool_backward(weights, (&states).into(), (&d_pooled).into(), memory, &mut d_states, 0, &mut gradients).unwrap();
    [pooled, d_states, gradients].map(|buffer| buffer.as_slice().to_vec())
}

#[test]
fn room_for_more_windows_changes_no_bit() {
    let scope = Device::cpu().scope("test");
    let mut memory = PoolMemory::zeros(&scope, sizes(5, 7, 2, 6)).unwrap();
    pooled_in(&mut memory);
    memory.ensure_capacity(3).unwrap();
    let mut other = PoolMemory::zeros(&scope, sizes(5, 3, 2, 6)).unwrap();
    assert!(memory.weights.len() > other.weights.len());
    assert_eq!(pooled_in(&mut memory), pooled_in(&mut other));
}
