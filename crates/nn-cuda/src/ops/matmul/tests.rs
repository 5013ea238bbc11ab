use half::{bf16, f16};
use megabatch_gpu_core::kernel::Launch;
use megabatch_simt::Arg;

use super::super::harness::{HARNESS, noise};
use super::gemm_plan::splits;
use super::*;

fn check<T: Operand>(shape: [usize; 3], layout: Transpose, arithmetic: Arithmetic, tolerance: f32) {
    let [rows, columns, inner] = shape;
    let scope = Device::cpu().scope("test");
    let operand = |name, len| {
        let numbers: Vec<T> = noise(name, len, 1.0).into_iter().map(T::narrow).collect();
        Buffer::from_slice(&scope, &numbers).unwrap()
    };
    let (a, b) = (operand("a", rows * inner), operand("b", columns * inner));
    let start = (splits(shape).0 == 1).then(|| Buffer::from_slice(&scope, &noise("start", columns, 1.0)).unwrap());
    let product = Product {
        a: (&a).into(),
        b: (&b).into(),
        bias: start.as_ref().map(TensorSlice::from),
        shape,
        layout,
        arithmetic,
    };
    let before = noise("out", rows * columns, 1.0);
    for output in [Output::Overwrite, Output::Add] {
        let mut expected = Buffer::from_slice(&scope, &before).unwrap();
        multiply(&product, output, &mut expected, 0, &mut Scratch::empty(&scope).unwrap()).unwrap();
        let mut by_rule = Vec::new();
        for (name, cut) in kind_of(&product, Output::Overwrite).cuts(true) {
            let mut found = before.clone();
            let plan = GemmPlan::new(cut, shape, start.is_some());
            let call = Call::new::<T>(shape, layout, arithmetic, plan, output);
            run::<T>(&call, &a, &b, start.as_ref(), &mut found);
            for (found, expected) in found.iter().zip(expected.as_slice()) {
                let error = (found - expected).abs();
                assert!(error <= tolerance, "{} {name} {shape:?} {output:?}: {found} for {expected}", call.name);
            }
            if by_rule.is_empty() {
                by_rule.clone_from(&found);
            }
            assert!(found == by_rule || name.ends_with("half the parts"), "{} {name} has other bits", call.name);
        }
    }
}

/// As `cuda` does it.
fn run<T: Operand>(call: &Call, a: &Buffer<T>, b: &Buffer<T>, start: Option<&Buffer<f32>>, out: &mut [f32]) {
    let is_split = call.plan.splits > 1;
    let mut parts = vec![f32::NAN; call.plan.splits * out.len()];
    let adds = u32::from(call.output == Output::Add);
    let mut arguments = vec![
        Arg::from(a.as_slice()),
        Arg::from(b.as_slice()),
        start.map_or(Arg::null(), |start| Arg::from(start.as_slice())),
        if is_split { Arg::from(&mut parts[..]) } else { Arg::from(&mut out[..]) },
    ];
    let numbers = [call.shape[0], call.shape[1], call.shape[2], call.plan.inner_each];
    arguments.extend(numbers.map(|number| Arg::from(number as u64)));
    arguments.push(Arg::from(if is_split { 0 } else { adds }));
    HARNESS.run(&call.name, call.launch(), &mut arguments);
    drop(arguments);
    if is_split {
        let (launch, len) = (Launch::for_threads(out.len()), out.len() as u64);
        let numbers = [Arg::from(len), Arg::from(call.plan.splits as u32), Arg::from(adds)];
        let mut arguments: Vec<_> = [Arg::from(&parts[..]), Arg::from(out)].into_iter().chain(numbers).collect();
        HARNESS.run("add_parts", launch, &mut arguments);
    }
}

/// A sum of K products of numbers within ±1 in another order differs by a few units in the last
/// place of √K; rounding to TF32 by 2⁻¹¹ of each product, at random.
const EXACT: (Arithmetic, f32) = (Arithmetic::Exact, 1e-5);
const TF32: (Arithmetic, f32) = (Arithmetic::Tf32, 6e-3);

#[test]
fn every_kernel_gives_the_cpus_products() {
    for layout in [Transpose::Nt, Transpose::Nn, Transpose::Tt, Transpose::Tn] {
        // Aligned, ragged on every side, a single element, one more than a tile.
        for shape in [[64, 64, 64], [19, 37, 45], [1, 1, 1], [65, 8, 33], [5, 66, 16]] {
            check::<f16>(shape, layout, EXACT.0, EXACT.1);
            check::<bf16>(shape, layout, EXACT.0, EXACT.1);
            check::<f32>(shape, layout, EXACT.0, EXACT.1);
            check::<f32>(shape, layout, TF32.0, TF32.1);
        }
        // More than the largest tile has rows.
        check::<bf16>([130, 66, 34], layout, EXACT.0, EXACT.1);
    }
}

#[test]
fn larger_tiles_are_for_products_that_fill_them() {
    let scope = Device::cpu().scope("test");
    let names = |shape, layout, (output, may_differ)| {
        let (a, b) = (Buffer::<bf16>::zeros(&scope, 0).unwrap(), Buffer::zeros(&scope, 0).unwrap());
        let (a, b) = ((&a).into(), (&b).into());
        let product = Product { a, b, bias: None, shape, layout, arithmetic: Arithmetic::Exact };
        let cuts = kind_of(&product, output).cuts(may_differ);
        cuts.iter().map(|&(name, cut)| (name, GemmPlan::new(cut, shape, false).splits)).collect::<Vec<_>>()
    };
    let (sets, square) = (Output::Overwrite, ("64 x 64", 1));
    let tall = ("128 x 64", 1);
    assert_eq!(names([64, 512, 16], Transpose::Nt, (sets, true)), [square]);
    assert_eq!(names([65, 64, 16], Transpose::Nt, (sets, true)), [square, tall]);
    assert_eq!(names([65, 65, 16], Transpose::Nn, (sets, true)), [square, tall, ("128 x 128", 1)]);
    assert_eq!(names([65, 65, 16], Transpose::Tt, (sets, true)), [square]);
    assert_eq!(names([65, 65, 16], Transpose::Nt, (Output::Add, true)), [square]);
    let rule_cuts = [("64 x 64", 64), ("128 x 64", 64), ("128 x 128", 64)];
    assert_eq!(names([512, 128, 61_440], Transpose::Tn, (sets, false)), rule_cuts);
    let halves = [("64 x 64 in half the parts", 32), ("128 x 64 in half the parts", 32)];
    assert_eq!(names([512, 128, 61_440], Transpose::Tn, (sets, true)), [&rule_cuts[..], &halves].concat());
}

#[test]
fn products_over_many_rows_are_split() {
    assert_eq!(splits([4, 3, 255]), (1, 256));
    assert_eq!(splits([4, 3, 1023]), (7, 160));
    assert_eq!(splits([512, 128, 61_440]), (64, 960));
    assert_eq!(splits([512, 128, 61_441]), (62, 992));
    for inner in [1023, 1100, 61_441, 131_073] {
        let (splits, _) = splits([512, 128, inner]);
        assert!(splits == 1 || splits * 512 * 128 <= product_partials_len([512, 128, inner]), "{inner}");
    }
    for rows in 1..=700 {
        assert!(product_partials_len([rows, 70, 4000]) <= rows_partials_len(700, 70, 4000), "{rows}");
    }
    check::<bf16>([4, 3, 1100], Transpose::Tn, Arithmetic::Exact, 5e-5);
    check::<f16>([67, 3, 1100], Transpose::Tn, Arithmetic::Exact, 5e-5);
    check::<f32>([4, 3, 1100], Transpose::Tn, Arithmetic::Exact, 5e-5);
}

#[test]
fn nothing_times_nothing() {
    for shape in [[0, 3, 2], [3, 0, 2], [3, 2, 0]] {
        check::<bf16>(shape, Transpose::Nt, EXACT.0, EXACT.1);
    }
}
