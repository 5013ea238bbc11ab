use half::{bf16, f16};
use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::model::fusion::{AttentionFusion, FusionSizes};
use megabatch_nn::model::{Layout as Tensors, TensorSet};
use megabatch_nn_cpu::conformance;
use megabatch_simt::Arg;

use super::super::harness::{HARNESS, noise};
use super::numbers::mean_kernel;
use super::*;

const SIZES: [FuseSizes; 3] = [
    FuseSizes { samples: 1, tokens: 1, heads: 1, hidden: 2, inner: 3 },
    FuseSizes { samples: 3, tokens: 3, heads: 2, hidden: 6, inner: 24 },
    FuseSizes { samples: 5, tokens: 4, heads: 1, hidden: 35, inner: 40 },
];

/// A fusion of a device, forward and backward: what it gives, the gradient of the tokens, and those
/// of the parameters.
struct Run {
    memory: FuseMemory,
    fused: Vec<f32>,
    gradients: Buffer<f32>,
}

fn inputs(sizes: FuseSizes) -> [Vec<f32>; 3] {
    let (parameters, tokens) = (sizes.parameters(), sizes.rows() * sizes.hidden);
    [noise("parameters", parameters, 0.7), noise("tokens", tokens, 1.0), noise("d", sizes.samples * sizes.hidden, 1.0)]
}

fn run<T: Operand>(sizes: FuseSizes) -> Run {
    let scope = Device::cpu().scope("test");
    let [parameters, tokens, d_fused] = inputs(sizes).map(|values| Buffer::from_slice(&scope, &values).unwrap());
    let weights = FuseWeights { parameters: &parameters, start: 0, arithmetic: Arithmetic::Exact };
    let mut memory = FuseMemory::zeros(&scope, sizes).unwrap();
    let mut fused = Buffer::<T>::zeros(&scope, d_fused.len()).unwrap();
    fuse::<T>(weights, &tokens, &mut memory, &mut fused).unwrap();
    let mut gradients = Buffer::zeros(&scope, parameters.len()).unwrap();
    fuse_backward::<T>(weights, &tokens, &d_fused, &mut memory, &mut gradients).unwrap();
    Run { memory, fused: wide(&fused), gradients }
}

fn wide<T: Operand>(buffer: &Buffer<T>) -> Vec<f32> {
    buffer.as_slice().iter().map(|x| x.widen()).collect()
}

/// The CPU engine's fusion, rounded at the same places.
fn assert_near_the_engines<T: Operand>(sizes: FuseSizes, precision: Precision, tolerance: f32) {
    let (found, scope) = (run::<T>(sizes), Device::cpu().scope("test"));
    let FuseSizes { tokens, heads, hidden, inner, .. } = sizes;
    let mut layout = Tensors::default();
    let sizes_of = FusionSizes { tokens, hidden, heads, inner };
    let fusion = AttentionFusion::new(sizes_of, &mut layout);
    let layout = std::sync::Arc::new(layout);
    let [parameters, x, d_fused] = inputs(sizes);
    let mut set = TensorSet::zeros(&scope, &layout).unwrap();
    set.values_mut().copy_from_slice(&parameters);
    let expected = conformance::fuse(&scope, &fusion, &set, &x, &d_fused, precision).unwrap();
    let pairs = [
        (&found.fused[..], &expected.fused[..]),
        (found.memory.d_tokens.as_slice(), &expected.d_tokens),
        (found.gradients.as_slice(), expected.gradients.values()),
    ];
    for (what, (found, expected)) in pairs.into_iter().enumerate() {
        let most = expected.iter().fold(1.0f32, |most, x| most.max(x.abs()));
        for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!((found - expected).abs() <= tolerance * most, "{sizes:?}, {what}, {k}: {found} for {expected}");
        }
    }
}

#[test]
fn fusion_is_the_cpu_engines() {
    for sizes in SIZES {
        assert_near_the_engines::<f32>(sizes, Precision::Fp32, 2e-5);
        // Sums in another order: what lies near the middle of two numbers is rounded to either,
        // which a norm of few numbers makes larger.
        assert_near_the_engines::<f16>(sizes, Precision::Fp16, 5e-3);
        assert_near_the_engines::<bf16>(sizes, Precision::Bf16, 4e-2);
    }
}

/// The kernels from what the operation on the CPU left for them.
#[test]
fn the_kernels_have_the_cpus_bits() {
    for sizes in SIZES {
        let Run { memory, .. } = run::<f32>(sizes);
        let tokens = sizes.kernel_tokens();
        let (mut weights, mut seen) = (vec![9.0f32; memory.weights.len()], vec![9.0f32; memory.seen.len()]);
        let mut arguments = [
            Arg::from_struct(&tokens),
            Arg::from(memory.qkv.as_slice()),
            Arg::from(sizes.scale()),
            Arg::from(&mut weights[..]),
            Arg::from(&mut seen[..]),
        ];
        HARNESS.run("attend", sizes.launch(), &mut arguments);
        assert_eq!((&weights[..], &seen[..]), (memory.weights.as_slice(), memory.seen.as_slice()), "{sizes:?}");

        let (mut d_scores, mut d_qkv) = (vec![9.0f32; memory.d_scores.len()], vec![9.0f32; memory.d_qkv.len()]);
        let mut arguments = [
            Arg::from_struct(&tokens),
            Arg::from(memory.qkv.as_slice()),
            Arg::from(sizes.scale()),
            Arg::from(&weights[..]),
            Arg::from(memory.d_seen.as_slice()),
            Arg::from(&mut d_scores[..]),
            Arg::from(&mut d_qkv[..]),
        ];
        HARNESS.run("attend_backward", sizes.launch(), &mut arguments);
        assert_eq!((&d_scores[..], &d_qkv[..]), (memory.d_scores.as_slice(), memory.d_qkv.as_slice()), "{sizes:?}");
    }
}

fn check_mean<T: Operand>(memory: &FuseMemory) {
    let sizes = memory.sizes;
    let mut expected = Buffer::<T>::zeros(&Device::cpu().scope("test"), sizes.samples * sizes.hidden).unwrap();
    mean_of_tokens(memory, &mut expected).unwrap();
    let mut found = vec![T::narrow(9.0); expected.len()];
    let launch = Launch::for_threads(found.len());
    let tokens = sizes.kernel_tokens();
    let mut arguments = [
        Arg::from_struct(&tokens),
        Arg::from(memory.second.as_slice()),
        Arg::from(&mut found[..]),
        Arg::from(sizes.share()),
    ];
    HARNESS.run(&mean_kernel::<T>(), launch, &mut arguments);
    drop(arguments);
    let found: Vec<f32> = found.iter().map(|x| x.widen()).collect();
    assert_eq!(found, wide(&expected), "{sizes:?} {}", T::SUFFIX);
}

#[test]
fn the_small_kernels_have_the_cpus_bits() {
    let scope = Device::cpu().scope("test");
    for sizes in SIZES {
        let Run { mut memory, fused, .. } = run::<f32>(sizes);
        let (tokens, d_fused) = (sizes.kernel_tokens(), noise("d", fused.len(), 1.0));
        check_mean::<f32>(&memory);
        check_mean::<f16>(&memory);
        check_mean::<bf16>(&memory);

        spread_to_tokens(&Buffer::from_slice(&scope, &d_fused).unwrap(), &mut memory).unwrap();
        let mut found = vec![9.0f32; memory.d_tokens.len()];
        let launch = Launch::for_threads(found.len());
        let mut arguments =
            [Arg::from_struct(&tokens), Arg::from(&d_fused[..]), Arg::from(&mut found[..]), Arg::from(sizes.share())];
        HARNESS.run("spread_to_tokens", launch, &mut arguments);
        assert_eq!(found, memory.d_tokens.as_slice(), "{sizes:?}");
    }
    let x = noise("x", 300, 1.0);
    let mut expected = Buffer::from_slice(&scope, &x).unwrap();
    rectify(&mut expected).unwrap();
    let mut found = x.clone();
    HARNESS.run("rectify", Launch::for_threads(300), &mut [Arg::from(&mut found[..]), Arg::from(300u64)]);
    assert_eq!(found, expected.as_slice());

    let mut d = Buffer::from_slice(&scope, &x).unwrap();
    rectify_backward(&expected, &mut d).unwrap();
    let mut found_d = x;
    let mut arguments = [Arg::from(&found[..]), Arg::from(&mut found_d[..]), Arg::from(300u64)];
    HARNESS.run("rectify_backward", Launch::for_threads(300), &mut arguments);
    assert_eq!(found_d, d.as_slice());
    assert!(found_d.contains(&0.0) && found_d.iter().any(|&d| d != 0.0));
}
