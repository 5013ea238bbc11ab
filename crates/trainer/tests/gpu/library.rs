//! Products by cuBLASLt, a fake one on the fake driver, which takes as long as a test says.

use std::ops::ControlFlow;
use std::path::Path;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn_cuda::Tuning;
use megabatch_simt::driver::{FakeDriver, Setting};
use megabatch_trainer::{Config, Event, Run, SampleRanges};

use crate::{bits, check, config, on_gpu, windows, with_kernels};

const MATMUL: &str = "cublasLtMatmul";

/// The library as it is here, and faster than all kernels of ours.
fn with_library(driver: &FakeDriver) {
    driver.set(Setting::CublasLtVersion, 120_405);
    driver.takes(MATMUL, 1);
    for tile in ["", "128_64_", "128_128_"] {
        for layout in ["", "b_turned_", "a_turned_", "both_turned_"] {
            for precision_name in ["bf16", "tf32"] {
                driver.takes(&format!("product_{tile}{layout}{precision_name}"), 10);
            }
        }
    }
}

fn fast(precision: Precision) -> Config {
    Config { autotune: Tuning::Fast, tf32: precision == Precision::Fp32, ..config(precision, 2) }
}

/// Bits of a run, and its notes.
fn trained(gpu: &Device, config: &Config, folder: Option<&Path>) -> (Vec<u32>, Vec<String>) {
    let (samples, train, mut notes) = (windows(), SampleRanges::from(0..49), Vec::new());
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut trainer = on_gpu(gpu, config);
    folder.into_iter().for_each(|folder| trainer.keep_tuning_in(folder));
    let told = trainer.train(&run, &mut |event| {
        if let Event::Note { text, .. } = event {
            notes.push(text);
        }
        ControlFlow::Continue(())
    });
    told.unwrap();
    (bits(&trainer), notes)
}

#[test]
fn a_run_whose_products_the_library_multiplies_is_the_processors() {
    let (driver, gpu) = with_kernels();
    with_library(&driver);
    for precision in [Precision::Bf16, Precision::Fp32] {
        let before = driver.runs(MATMUL);
        check(&gpu, &fast(precision), &windows());
        // Of each of eight steps.
        assert!(driver.runs(MATMUL) - before > 8, "{precision}");
        assert_eq!(driver.cublaslt_objects(), 0, "{precision}");
    }
}

#[test]
fn products_by_the_library_are_captured_with_the_rest() {
    let (driver, gpu) = with_kernels();
    with_library(&driver);
    let base = fast(Precision::Bf16);
    let counts = || [driver.calls(MATMUL), driver.runs(MATMUL), driver.calls("cuGraphLaunch")];
    let (replayed, _) = trained(&gpu, &base, None);
    let [calls, runs, graphs] = counts();
    assert!(graphs > 8 && runs > calls, "{runs} runs by {calls} calls, in {graphs} graphs");

    driver.fail("cuStreamBeginCapture_v2", 1, 801);
    assert!(trained(&gpu, &base, None).0 == replayed, "as it is");
    let [calls_as_it_is, runs_as_it_is, graphs_as_it_is] = counts();
    assert_eq!(runs_as_it_is - runs, runs);
    assert_eq!((calls_as_it_is - calls, graphs_as_it_is), (runs, graphs));

    // The last call of the first run is one that is captured: it is done as it is then.
    driver.fail(MATMUL, calls, 14);
    let (found, notes) = trained(&gpu, &base, None);
    assert!(found == replayed && notes.len() == 1, "{notes:?}");
    assert!(notes[0].starts_with("CUDA graphs are not used, and steps take longer: "), "{notes:?}");
}

#[test]
fn what_was_measured_holds_for_one_version_of_the_library() {
    let (driver, gpu) = with_kernels();
    with_library(&driver);
    let cache = tempfile::tempdir().unwrap();
    let base = Config { max_steps: Some(2), ..fast(Precision::Bf16) };
    let runs_of = |version| {
        driver.set(Setting::CublasLtVersion, version);
        let before = driver.runs(MATMUL);
        let (_, notes) = trained(&gpu, &base, Some(cache.path()));
        assert!(notes.is_empty(), "{notes:?}");
        driver.runs(MATMUL) - before
    };
    let measured = runs_of(120_405);
    let known = runs_of(120_405);
    assert!(0 < known && known < measured, "{known} of {measured}");
    assert_eq!(runs_of(120_406), measured, "another version");
    assert_eq!(runs_of(0), 0, "none");
    assert_eq!(runs_of(120_406), known);
    let text = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let kept: Vec<_> = std::fs::read_dir(cache.path()).unwrap().map(|file| text(file.unwrap().path())).collect();
    assert!(kept.iter().any(|text| text.contains("beside cuBLASLt 12.4.6")), "{kept:?}");
}

#[test]
fn without_the_library_or_when_it_fails_products_are_ours() {
    let (driver, gpu) = with_kernels();
    with_library(&driver);
    let base = Config { max_steps: Some(1), ..fast(Precision::Bf16) };
    let (ours, notes) = trained(&gpu, &Config { autotune: Tuning::Deterministic, ..base.clone() }, None);
    assert_eq!((driver.calls("cublasLtCreate"), notes), (0, vec![]), "it is for those who ask");
    for (call, nth, code) in [
        ("cublasLtCreate", 1, 1),
        ("cublasLtMatmulDescCreate", 1, 3),
        ("cublasLtMatmulDescSetAttribute", 1, 7),
        ("cublasLtMatrixLayoutCreate", 3, 3),
        ("cublasLtMatmulPreferenceCreate", 1, 3),
        ("cublasLtMatmulPreferenceSetAttribute", 5, 7),
        ("cublasLtMatmulAlgoGetHeuristic", 1, 14),
        (MATMUL, 1, 13),
        // While the first product is measured.
        (MATMUL, 4, 13),
    ] {
        driver.fail(call, nth, code);
        let (found, notes) = trained(&gpu, &base, None);
        let [note] = &notes[..] else { panic!("{call}: {notes:?}") };
        assert!(note.contains("without cuBLASLt") && note.contains(call), "{note}");
        assert!(found == ours, "{call}");
        assert_eq!(driver.cublaslt_objects(), 0, "{call}");
    }
    driver.set(Setting::CublasLtVersion, 0);
    let before = driver.runs(MATMUL);
    let (found, notes) = trained(&gpu, &base, None);
    assert!(found == ours && notes.is_empty() && driver.runs(MATMUL) == before, "{notes:?}");
}

#[test]
fn a_product_that_the_library_has_no_way_for_is_ours_without_a_note() {
    let (driver, gpu) = with_kernels();
    with_library(&driver);
    let base = Config { max_steps: Some(2), ..fast(Precision::Bf16) };
    let (_, notes) = trained(&gpu, &base, None);
    let all = driver.runs(MATMUL);
    assert_eq!(notes, [""; 0]);
    // CUBLAS_STATUS_NOT_SUPPORTED, of the first.
    driver.fail("cublasLtMatmulAlgoGetHeuristic", 1, 15);
    let (_, notes) = trained(&gpu, &base, None);
    assert_eq!(notes, [""; 0]);
    let others = driver.runs(MATMUL) - all;
    assert!(0 < others && others < all, "{others} of {all}");
}
