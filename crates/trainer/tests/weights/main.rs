#![forbid(unsafe_code)]

//! Agreement with the module of docs/reference/weights.md: its weights are loaded under their own
//! names, and outputs, weights of attention, gradients and steps of AdamW are those that PyTorch
//! computed with it, which `torch_fixture.py` keeps in double and in single precision.

mod fast;
mod fixture;
mod plain;

use fixture::{Fixture, Tolerances};

#[test]
fn the_fixtures_are_made_with_the_module_of_the_page() {
    let page = include_str!("../../../../docs/reference/weights.md");
    let code = page.split_once("```python\n").unwrap().1.split_once("```").unwrap().0;
    for precision in ["float32", "float64"] {
        assert_eq!(
            fixture::read(precision).metadata["module"],
            code,
            "docs/reference/weights.md has changed: run python crates/trainer/tests/weights/torch_fixture.py"
        );
    }
}

#[test]
fn the_plain_form_computes_what_the_module_does() {
    check("double", "float64", Tolerances::DOUBLE, plain::check::<f64>);
    check("single", "float32", Tolerances::SINGLE, plain::check::<f32>);
}

/// Double precision tells what the numbers should be; the fast form computes them in single
/// precision either way.
#[test]
fn the_fast_form_computes_what_the_module_does() {
    check("against double", "float64", Tolerances::SINGLE, fast::check);
    check("against single", "float32", Tolerances::SINGLE, fast::check);
}

fn check(name: &str, precision: &str, tolerances: Tolerances, each: impl Fn(&mut Fixture<'_>)) {
    let file = fixture::read(precision);
    let mut worst = [0.0f64; 3];
    for case in file.cases() {
        let mut fixture = Fixture::new(&file, case, tolerances);
        each(&mut fixture);
        fixture.check_that_all_was_seen();
        worst.iter_mut().zip(fixture.worst).for_each(|(most, error)| *most = most.max(error));
    }
    println!(
        "{name}: off by at most {:.1e} in outputs, {:.1e} in gradients, {:.1e} in weights, of the tensor's largest magnitude",
        worst[0], worst[1], worst[2]
    );
}
