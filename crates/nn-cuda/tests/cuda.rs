//! The operations on the CUDA device, their kernels on the fake driver.
#![cfg(target_os = "linux")]

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn_cuda::ops::SOURCES;
use megabatch_simt::Harness;
use megabatch_simt::driver::{FakeDriver, Setting};

#[path = "../examples/gpu_layers/measure/mod.rs"]
mod measure;
mod suite;

use measure::Case;
use measure::stack::Stack;
use suite::{CASES, LIBRARY_CASES};

fn with_kernels() -> (FakeDriver, Device) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops");
    (Harness::new(folder, SOURCES).driver(), Device::select("cuda:0").unwrap())
}

#[test]
fn the_suite_of_operations() {
    for (name, case) in CASES {
        println!("{name}");
        let (_driver, device) = with_kernels();
        case(&device).unwrap();
    }
}

#[test]
fn products_by_cublaslt_in_all_layouts() {
    for (name, case) in LIBRARY_CASES {
        let (driver, device) = with_kernels();
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&device)));
        assert!(refused.is_err(), "{name}: passes where it is not here");
        driver.set(Setting::CublasLtVersion, 120_405);
        case(&device).unwrap();
        // Four layouts of six shapes with a start and without, of each type.
        let types = if name.contains("TF32") { 1 } else { 2 };
        assert_eq!(driver.runs("cublasLtMatmul"), 4 * 6 * 2 * types, "{name}");
        assert_eq!(driver.cublaslt_objects(), 0, "{name}");
    }
}

#[test]
fn a_gpu_without_room_for_a_group_goes_step_by_step() {
    let name = "a layer that is too wide for a block is the CPU's, shared by a group";
    let (_, case) = CASES.iter().find(|(case_name, _)| *case_name == name).unwrap();
    // A group of eight blocks of 256 threads, on four multiprocessors.
    for (resident_threads, launches) in [(2 * 256, 2), (2 * 256 - 1, 0)] {
        let (driver, device) = with_kernels();
        driver.set(Setting::ResidentThreads, resident_threads);
        case(&device).unwrap();
        assert_eq!(driver.calls("cuLaunchCooperativeKernel"), launches, "{resident_threads} threads");
    }
}

/// Two layers, so that one hands its gradients to the other.
const LAYERS: Case =
    Case { hidden: 3, layers: 2, features: 2, batch: 3, steps: 2, precision: Precision::Bf16, budget_s: 0.0 };

#[test]
fn layers_are_timed_on_a_device_in_every_precision() {
    let (driver, device) = with_kernels();
    for precision in Precision::ALL {
        let launches = driver.calls("cuLaunchKernel");
        let answer = measure::measure(&device, &Case { precision, ..LAYERS }).unwrap();
        let times = [answer.layers, answer.recurrence];
        assert!(times.iter().all(|time| time.forward_us > 0.0 && time.both_us > 0.0), "{answer:?}");
        assert!(answer.peak_allocated_bytes > 0 && driver.calls("cuLaunchKernel") > launches, "{answer:?}");
        // A card of no name that is known.
        assert_eq!((answer.floor, answer.predicted), (None, None), "{answer:?}");
    }
}

/// By differences of the last hidden states, each times its gradient: what is timed is the whole
/// way back.
#[test]
fn layers_that_are_timed_have_their_gradients() {
    let mut stack = Stack::<f32>::new(&Device::cpu(), &LAYERS).unwrap();
    stack.forward().unwrap();
    stack.backward().unwrap();
    let gradients = stack.layers[0].d_weight_ih.to_vec().unwrap();
    let sum = |stack: &mut Stack<f32>| {
        stack.forward().unwrap();
        stack.last().unwrap().iter().zip(stack.d_last.as_slice()).map(|(h, d)| f64::from(h * d)).sum::<f64>()
    };
    for (k, &gradient) in gradients.iter().enumerate() {
        let [up, down] = [0.01, -0.01].map(|change| {
            stack.layers[0].weight_ih.as_mut_slice()[k] += change;
            let found = sum(&mut stack);
            stack.layers[0].weight_ih.as_mut_slice()[k] -= change;
            found
        });
        let slope = (up - down) / 0.02;
        assert!((slope - f64::from(gradient)).abs() < 1e-4, "weight {k}: {gradient} where {slope} is right");
    }
    assert!(gradients.iter().any(|gradient| gradient.abs() > 1e-2), "{gradients:?}");
}
