//! PyTorch and its extensions.

use std::process::{Command, Stdio};
use std::time::Duration;

use megabatch_doctor::Severity;
use serde_json::json;

use crate::patient::{CUDA_12_8, PYTHON, Patient, extension, found, ids, run, torch};

/// Architectures of the wheels of PyTorch 2.7 for CUDA 12.8.
const OF_2_7_CU128: &[&str] = &["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"];
const OF_CU126: &[&str] = &["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"];

/// PyTorch 2.7.0 for CUDA 12.8 with a torch_scatter for the CPU: it is imported, and fails when it
/// is used.
pub(crate) fn cpu_scatter() -> Patient {
    Patient::with_gpu("x86_64", "570.124.06", (9, 0))
        .python(&[
            torch("2.7.0+cu128", Some("12.8"), OF_2_7_CU128, Some((9, 0))),
            extension("torch_scatter", -1, None),
            run("torch.scatter_reduce", None),
            run("torch_scatter.scatter_max", Some("RuntimeError: Not compiled with CUDA support")),
            ("step", json!(null)),
        ])
        .package("torch", "2.7.0+cu128", &[])
        .package("torch_scatter", "2.1.2+pt27cpu", &[])
}

/// A GH200 with the build of PyTorch that a plain `pip install` gives there.
pub(crate) fn grace_hopper() -> Patient {
    let mut patient = Patient::with_gpu("aarch64", "570.124.06", (9, 0))
        .python(&[torch("2.0.1", None, &[], None), ("step", json!(null))])
        .package("torch", "2.0.1", &[])
        .package("torchvision", "0.15.2", &["torch (==2.0.1)"]);
    patient.management.cuda = Some(CUDA_12_8);
    patient
}

#[test]
fn a_scatter_for_the_cpu_is_replaced_by_two_commands() {
    let examination = cpu_scatter().examine();
    assert!(!examination.is_healthy);
    assert_eq!(ids(&examination), ["extension-without-cuda"]);
    assert!(examination.findings[0].why.contains("`import megabatch.scatter as torch_scatter`"));
    let (seen, commands) = found(&examination, "extension-without-cuda");
    assert!(seen.starts_with("torch_scatter 2.1.2+pt27cpu was built without CUDA"), "{seen}");
    assert!(seen.ends_with("run on cuda:0, it said: RuntimeError: Not compiled with CUDA support"), "{seen}");
    let expected = [
        "/opt/env/bin/python -m pip uninstall -y torch-scatter",
        "/opt/env/bin/python -m pip install --no-cache-dir --only-binary=torch-scatter torch-scatter -f \
         https://data.pyg.org/whl/torch-2.7.0+cu128.html",
    ];
    assert_eq!(commands, expected);
}

#[test]
fn a_gh200_with_the_cpu_build_gets_the_newest_wheel_that_its_driver_and_python_take() {
    let examination = grace_hopper().examine();
    let (seen, commands) = found(&examination, "torch-without-cuda");
    assert!(seen.starts_with("PyTorch 2.0.1 is a CPU-only build"), "{seen}");
    let expected = [
        "/opt/env/bin/python -m pip uninstall -y torch torchvision",
        "/opt/env/bin/python -m pip install --no-cache-dir torch==2.11.0 torchvision --index-url https://download.pytorch.org/whl/cu128",
    ];
    assert_eq!(commands, expected);
    assert_eq!(ids(&examination), ["torch-without-cuda"]);
}

#[test]
fn on_arm_a_scatter_is_compiled() {
    let examination = Patient::with_gpu("aarch64", "570.124.06", (9, 0))
        .python(&[
            torch("2.7.0+cu128", Some("12.8"), &["sm_80", "sm_90", "sm_100", "sm_120"], Some((9, 0))),
            extension("torch_scatter", -1, None),
        ])
        .package("torch_scatter", "2.1.2", &[])
        .examine();
    let (_, commands) = found(&examination, "extension-without-cuda");
    let expected = "FORCE_CUDA=1 CUDA_HOME=/usr/local/cuda-12.8 TORCH_CUDA_ARCH_LIST=9.0 /opt/env/bin/python -m pip install \
                    --no-cache-dir --no-build-isolation --no-binary=torch-scatter torch-scatter";
    assert_eq!(commands[1], expected);
}

#[test]
fn an_extension_for_another_cuda_or_another_pytorch_is_told_from_a_broken_one() {
    for (version, cuda, error, id, words) in [
        (
            "2.1.2+pt27cu126",
            12060,
            None,
            "extension-for-other-cuda",
            "with CUDA 12.6, and PyTorch 2.7.0+cu128 with CUDA 12.8",
        ),
        (
            "2.1.2+pt26cu128",
            12080,
            None,
            "extension-for-other-torch",
            "was built for PyTorch 2.6, and 2.7.0+cu128 is installed",
        ),
        (
            "2.1.2+pt27cu128",
            12080,
            Some("OSError: undefined symbol"),
            "extension-not-imported",
            "`import torch_scatter` fails: OSError",
        ),
    ] {
        let examination = Patient::with_gpu("x86_64", "570.124.06", (8, 6))
            .python(&[
                torch("2.7.0+cu128", Some("12.8"), OF_2_7_CU128, Some((8, 6))),
                extension("torch_scatter", cuda, error),
            ])
            .package("torch_scatter", version, &[])
            .examine();
        let (seen, commands) = found(&examination, id);
        assert!(seen.contains(words), "{seen}");
        assert_eq!(commands.len(), 2, "{id}");
        assert_eq!(ids(&examination), [id]);
    }
}

#[test]
fn an_rtx_50_needs_a_build_for_cuda_12_8() {
    let examination = Patient::with_gpu("x86_64", "570.124.06", (12, 0))
        .python(&[
            torch("2.7.0+cu126", Some("12.6"), OF_CU126, Some((12, 0))),
            extension("torch_scatter", 12060, None),
            run(
                "torch.scatter_reduce",
                Some("RuntimeError: CUDA error: no kernel image is available for execution on the device"),
            ),
        ])
        .package("torch", "2.7.0+cu126", &[])
        .package("torch_scatter", "2.1.2+pt27cu126", &[])
        .examine();
    let (seen, commands) = found(&examination, "gpu-not-compiled-for");
    assert!(seen.contains("compute capability 12.0 (sm_120)"), "{seen}");
    let expected = [
        "/opt/env/bin/python -m pip uninstall -y torch torch-scatter",
        "/opt/env/bin/python -m pip install --no-cache-dir torch==2.7.0 --index-url https://download.pytorch.org/whl/cu128",
        "/opt/env/bin/python -m pip install --no-cache-dir --only-binary=torch-scatter torch-scatter -f \
         https://data.pyg.org/whl/torch-2.7.0+cu128.html",
    ];
    assert_eq!(commands, expected, "the extension goes with the PyTorch that it was built for");
}

#[test]
fn a_driver_too_old_for_pytorch_gets_an_older_build_and_is_told_of_a_newer_driver() {
    let examination = Patient::with_gpu("x86_64", "535.54.03", (8, 6))
        .python(&[torch("2.12.0+cu130", Some("13.0"), &["sm_75", "sm_80", "sm_86"], None)])
        .package("torch", "2.12.0+cu130", &[])
        .examine();
    let (seen, commands) = found(&examination, "driver-too-old");
    assert_eq!(seen, "the driver, 535.54.03, is too old for PyTorch 2.12.0+cu130, which was built with CUDA 13.0");
    assert!(commands[1].ends_with("torch==2.12.0 --index-url https://download.pytorch.org/whl/cu126"), "{commands:?}");
    let why = &examination.findings[0].why;
    assert!(
        why.contains("driver 580.65.06 or newer, for example by `sudo ubuntu-drivers install nvidia:580`"),
        "{why}"
    );
}

#[test]
fn all_well_is_said_to_be_well() {
    let examination = Patient::with_gpu("x86_64", "570.124.06", (8, 9))
        .python(&[
            torch("2.7.0+cu128", Some("12.8"), OF_2_7_CU128, Some((8, 9))),
            extension("torch_scatter", 12080, None),
            run("torch.scatter_reduce", None),
            run("torch_scatter.scatter_max", None),
        ])
        .package("torch", "2.7.0+cu128", &["nvidia-cudnn-cu12==9.7.1.26"])
        .package("nvidia_cudnn_cu12", "9.7.1.26", &[])
        .package("torch_scatter", "2.1.2+pt27cu128", &[])
        .examine();
    assert!(examination.is_healthy && examination.findings.is_empty(), "{}", examination.to_text());
    assert!(examination.script().is_none());
    assert!(examination.to_text().contains("Nothing is wrong."));
}

#[test]
fn a_release_out_of_the_table_is_said_to_be_unknown() {
    let examination = Patient::with_gpu("x86_64", "595.45.04", (9, 0))
        .python(&[torch("2.15.0+cu132", Some("13.2"), &["sm_90"], Some((9, 0)))])
        .examine();
    let (seen, _) = found(&examination, "torch-unknown");
    assert_eq!(seen, "PyTorch 2.15.0+cu132 is not in the tables of this program");
    assert!(examination.is_healthy);
}

#[test]
fn a_python_that_breaks_off_is_answered_for_by_its_files() {
    let broken =
        |patient: Patient| patient.package("torch_scatter", "2.1.2+pt27cpu", &[]).torch_file("2.7.0+cu128", "'12.8'");
    let hangs = broken(Patient::with_gpu("x86_64", "570.124.06", (9, 0)).python(&[("step", json!("import torch"))]));
    let mut hangs = hangs.file(&format!("{PYTHON}.hangs"), "");
    hangs.limit = Duration::from_millis(500);
    let crashes = broken(Patient::with_gpu("x86_64", "570.124.06", (9, 0)).python(&[("step", json!("import torch"))]));
    let crashes = crashes.file(&format!("{PYTHON}.error"), "Traceback:\nImportError: libcudart.so.12: cannot open\n");
    for (patient, words) in [
        (hangs, "it had not ended after 0.5 s during `import torch`"),
        (crashes, "exit status: 1 during `import torch`: ImportError: libcudart.so.12: cannot open"),
    ] {
        let examination = patient.examine();
        let (seen, _) = found(&examination, "python-broken");
        assert!(seen.ends_with(words), "{seen}");
        let (_, commands) = found(&examination, "extension-without-cuda");
        assert_eq!(commands.len(), 2);
        assert_eq!(examination.python.unwrap().torch.unwrap().cuda, Some(CUDA_12_8));
    }
}

#[test]
fn what_would_replace_pytorch_is_named() {
    let examination = Patient::with_gpu("aarch64", "570.124.06", (9, 0))
        .python(&[torch("2.7.0+cu128", Some("12.8"), &["sm_90"], Some((9, 0)))])
        .package("torch", "2.7.0+cu128", &[])
        .package("other-model", "1.0", &["torch<2.7,>=2.0"])
        .package("fine-model", "1.0", &["torch>=2.0", "torch==1.0; extra == 'old'"])
        .examine();
    let (seen, commands) = found(&examination, "would-replace-torch");
    assert_eq!(seen, "other-model 1.0 asks for torch<2.7,>=2.0, and PyTorch 2.7.0+cu128 is installed");
    assert_eq!(commands, ["/opt/env/bin/python -m pip install --no-deps other-model"]);
    assert_eq!(ids(&examination), ["would-replace-torch"]);
    assert_eq!(examination.findings[0].severity, Severity::Warning);
}

#[test]
fn libraries_that_another_package_replaced_are_put_back() {
    let examination = Patient::with_gpu("x86_64", "570.124.06", (8, 0))
        .python(&[torch("2.7.0+cu128", Some("12.8"), OF_2_7_CU128, Some((8, 0)))])
        .package(
            "torch",
            "2.7.0+cu128",
            &["nvidia-cudnn-cu12==9.7.1.26; platform_system == \"Linux\" and platform_machine == \"x86_64\""],
        )
        .package("nvidia_cudnn_cu12", "9.1.0.70", &[])
        .examine();
    let (seen, commands) = found(&examination, "libraries-replaced");
    assert!(seen.ends_with("nvidia-cudnn-cu12 9.1.0.70 instead of 9.7.1.26"), "{seen}");
    assert_eq!(commands, ["/opt/env/bin/python -m pip install --no-deps nvidia-cudnn-cu12==9.7.1.26"]);
}

#[test]
fn ptx_newer_than_the_driver_is_a_problem_and_other_ptx_a_note() {
    let with_driver = |driver| {
        Patient::with_gpu("x86_64", driver, (9, 0))
            .python(&[torch("2.7.0+cu128", Some("12.8"), &["sm_80", "compute_80"], Some((9, 0)))])
            .examine()
    };
    assert_eq!(ids(&with_driver("570.124.06")), ["compiled-at-start"]);
    let (_, commands) = found(&with_driver("535.54.03"), "ptx-too-new");
    assert_eq!(commands, ["sudo ubuntu-drivers install nvidia:570"]);
}

#[test]
fn an_old_cudnn_from_elsewhere_is_told() {
    let (key, mut told) = torch("2.9.1+cu128", Some("12.8"), &["sm_90"], Some((9, 0)));
    told["cudnn"] = json!(90100);
    let examination = Patient::with_gpu("x86_64", "570.124.06", (9, 0))
        .python(&[(key, told)])
        .file("/opt/cudnn/lib/libcudnn.so.9.1.0", "")
        .variable("LD_LIBRARY_PATH", "/opt/cudnn/lib")
        .examine();
    let (seen, commands) = found(&examination, "cudnn-too-old");
    let expected = "PyTorch 2.9.1+cu128 loaded cuDNN 9.1.0, and was built with 9.10.2.21; on the library path: \
                    /opt/cudnn/lib/libcudnn.so.9.1.0 (9.1.0)";
    assert_eq!((seen.as_str(), commands.as_slice()), (expected, ["unset LD_LIBRARY_PATH".to_owned()].as_slice()));
}

#[test]
fn what_a_new_build_of_pytorch_brings_along_is_one_repair() {
    let examination = Patient::with_gpu("x86_64", "570.124.06", (9, 0))
        .python(&[
            torch("2.7.0+cpu", None, &[], None),
            extension("torch_scatter", -1, None),
            extension("pyg_lib", -1, Some("OSError: no")),
        ])
        .package("torch_scatter", "2.1.2+pt27cpu", &[])
        .package("pyg_lib", "0.4.0+pt27cpu", &[])
        .examine();
    let (_, commands) = found(&examination, "torch-without-cuda");
    assert_eq!(commands[0], "/opt/env/bin/python -m pip uninstall -y torch torch-scatter pyg-lib");
    assert_eq!(commands.len(), 3);
    let (_, none) = found(&examination, "extension-not-imported");
    assert!(none.is_empty() && examination.findings[1].why.contains("problem above"), "{:?}", examination.findings);
}

fn script(patient: &Patient) -> String {
    let script = patient.examine().script().expect("there is something to mend");
    let mut shell = Command::new("sh").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut shell.stdin.take().unwrap(), script.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success(), "{script}");
    script
}

#[test]
fn it_uninstalls_empties_the_cache_installs_and_proves() {
    let script = script(&cpu_scatter());
    let places =
        ["pip uninstall -y torch-scatter", "pip cache purge", "pip install", "scatter_max(values, groups, dim=0)"]
            .map(|part| script.find(part).unwrap_or_else(|| panic!("no `{part}` in\n{script}")));
    assert!(places.is_sorted(), "{script}");
    assert!(script.starts_with("#!/bin/sh\n") && script.contains("\nset -eu\n"));
}

#[test]
fn without_a_scatter_it_proves_with_what_pytorch_has() {
    let script = script(&grace_hopper());
    assert!(
        script.contains("scatter_reduce(0, groups, values, \"amax\")") && !script.contains("torch_scatter"),
        "{script}"
    );
}
