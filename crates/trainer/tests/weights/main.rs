//! Agreement with the module of docs/reference/weights.md: its weights are loaded under their own
//! names, and outputs, weights of attention, gradients and steps of AdamW are those that PyTorch
//! computed with it, which `torch_fixture.py` keeps in double and in single precision.

mod engine;
mod fixture;

use fixture::Fixture;

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

/// Double precision tells what the numbers should be; the engine computes them in single precision
/// either way.
#[test]
fn a_trainer_computes_what_the_module_does() {
    for precision in ["float64", "float32"] {
        let file = fixture::read(precision);
        let mut worst = [0.0f64; 3];
        for case in file.cases() {
            let mut fixture = Fixture::new(&file, case);
            engine::check(&mut fixture);
            fixture.check_that_all_was_seen();
            worst.iter_mut().zip(fixture.worst).for_each(|(most, error)| *most = most.max(error));
        }
        println!(
            "against {precision}: off by at most {:.1e} in outputs, {:.1e} in gradients, {:.1e} in weights, of the tensor's \
             largest magnitude",
            worst[0], worst[1], worst[2]
        );
    }
}
