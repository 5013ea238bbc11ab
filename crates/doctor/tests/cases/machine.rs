//! The machine: GPU, driver, container, variables.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use megabatch_doctor::{Holder, Severity, Trial};
use megabatch_test_support::{Requirement, skip};

use crate::patient::{Patient, found, ids, torch};

#[test]
fn a_machine_without_a_gpu_is_told_to_use_the_cpu() {
    let examination = Patient::new("x86_64").examine();
    assert_eq!(found(&examination, "no-gpu").0, "there is no NVIDIA GPU in this machine");
    assert!(!examination.is_healthy);
    let text = examination.to_text();
    assert!(
        text.contains("megabatch doctor --explain cpu") && text.contains("not found in /lib/x86_64-linux-gnu"),
        "{text}"
    );
}

#[test]
fn a_gpu_without_a_driver_gets_the_command_of_the_distribution() {
    for (driver, words) in [("", "has no driver"), ("nouveau", "is operated by nouveau")] {
        let examination = Patient::new("x86_64").pci(driver).examine();
        let (seen, commands) = found(&examination, "no-driver");
        assert!(seen.contains("model 0x2342, at 0000:01:00.0") && seen.contains(words), "{seen}");
        assert_eq!(commands, ["sudo ubuntu-drivers install"]);
    }
    let elsewhere = Patient::new("x86_64").pci("").file("/etc/os-release", "ID=void\n").examine();
    assert_eq!(found(&elsewhere, "no-driver").1, [""; 0], "no command is made up for a system that is not known");
    assert_eq!(ids(&Patient::new("x86_64").pci("vfio-pci").examine())[0], "gpu-given-away");
}

#[test]
fn a_container_without_devices_is_told_from_a_machine_without_nodes() {
    let bare = || Patient::new("x86_64").pci("nvidia").module("570.124.06");
    let (seen, commands) = found(&bare().file("/.dockerenv", "").examine(), "container-without-gpu");
    assert!(seen.contains("/dev/nvidiactl is missing"), "{seen}");
    assert_eq!(commands.last().unwrap(), "docker run --rm --gpus all ubuntu nvidia-smi");
    assert_eq!(commands[0], "sudo nvidia-ctk runtime configure --runtime=docker");
    let void = bare().file("/.dockerenv", "").variable("NVIDIA_VISIBLE_DEVICES", "void").examine();
    assert!(found(&void, "container-without-gpu").0.ends_with("NVIDIA_VISIBLE_DEVICES=void"));
    let (_, commands) = found(&bare().libcuda("570.124.06").examine(), "no-device-nodes");
    assert_eq!(commands, ["sudo nvidia-modprobe -u -c 0"]);
}

#[test]
fn a_container_with_devices_and_without_libcuda_lacks_a_capability_of_the_driver() {
    let examination =
        Patient::new("x86_64").pci("nvidia").module("570.124.06").nodes().file("/.dockerenv", "").examine();
    let (seen, commands) = found(&examination, "no-libcuda");
    assert!(seen.contains("looked in /lib/x86_64-linux-gnu, /usr/lib/x86_64-linux-gnu"), "{seen}");
    assert!(commands[0].contains("NVIDIA_DRIVER_CAPABILITIES=compute,utility"), "{commands:?}");
}

#[test]
fn the_management_library_may_answer_where_libcuda_is_missing() {
    let mut patient = Patient::new("x86_64").pci("nvidia").module("570.124.06").nodes().file("/run/.containerenv", "");
    patient.management = Patient::with_gpu("x86_64", "570.124.06", (9, 0)).management.clone();
    assert!(ids(&patient.examine()).contains(&"no-libcuda"));
    patient.trials = vec![Trial { device: "cuda:0".to_owned(), name: "fill".to_owned(), result: None, fault: None }];
    assert_eq!(ids(&patient.examine()), ["no-python"], "what was reached is there, wherever it lies");
}

#[test]
fn a_node_behind_which_nothing_answers_is_found() {
    let patient = Patient::with_gpu("x86_64", "570.124.06", (9, 0));
    let node = patient.place("/dev/nvidia1");
    // A folder cannot be opened for writing by anybody.
    std::fs::create_dir(node).unwrap();
    assert!(found(&patient.examine(), "driver-does-not-answer").0.ends_with("/dev/nvidia1"));
}

#[test]
fn device_nodes_that_may_not_be_opened_are_named_with_the_command() {
    let patient = Patient::with_gpu("x86_64", "570.124.06", (9, 0));
    let forbidden = ["/dev/nvidia0", "/dev/nvidiactl"];
    for node in forbidden {
        std::fs::set_permissions(patient.place(node), Permissions::from_mode(0o400)).unwrap();
    }
    if OpenOptions::new().write(true).open(patient.place(forbidden[0])).is_ok() {
        // Root may open whatever it likes; the finding itself is tested beside its rule.
        skip(Requirement::OrdinaryUser, "the probe of forbidden device nodes");
        return;
    }
    let (seen, commands) = found(&patient.examine(), "devices-forbidden");
    assert_eq!(seen, "you may not open /dev/nvidia0 /dev/nvidiactl");
    assert_eq!(commands, ["sudo chmod a+rw /dev/nvidia0 /dev/nvidiactl"]);
}

#[test]
fn the_search_order_and_the_memory_checks_are_printed() {
    let mut patient = Patient::with_gpu("x86_64", "570.124.06", (9, 0)).variable("LD_LIBRARY_PATH", "/opt/cuda/lib64");
    let text = |patient: &Patient| patient.examine().to_text().split_whitespace().collect::<Vec<_>>().join(" ");
    let order = "libcuda /usr/lib/x86_64-linux-gnu/libcuda.so.1; searched in this order: /opt/cuda/lib64, /lib/x86_64-linux-gnu";
    assert!(text(&patient).contains(order), "{}", text(&patient));
    for (counts_errors, words) in
        [(Some(true), "GiB in use, ECC on"), (Some(false), "in use, ECC off"), (None, "in use driver")]
    {
        patient.management.gpus[0].counts_errors = counts_errors;
        assert!(text(&patient).contains(words), "{words}: {}", text(&patient));
    }
}

#[test]
fn an_update_without_a_restart_is_recognised() {
    let examination = Patient::new("x86_64").pci("nvidia").module("550.54.14").nodes().libcuda("570.124.06").examine();
    assert_eq!(found(&examination, "driver-parts-differ").1, ["sudo reboot"]);
    let old = Patient::new("x86_64").pci("nvidia").module("390.157").nodes().libcuda("390.157").examine();
    assert_eq!(found(&old, "driver-too-old").1, ["sudo ubuntu-drivers install nvidia:580"]);
}

#[test]
fn several_runtimes_are_a_warning_and_a_stub_a_problem() {
    let examination = Patient::with_gpu("x86_64", "570.124.06", (9, 0))
        .file("/opt/cuda-11/lib64/libcudart.so.11.8.89", "")
        .file("/usr/lib/x86_64-linux-gnu/libcudart.so.12.4.127", "")
        .variable("LD_LIBRARY_PATH", "/opt/cuda-11/lib64")
        .examine();
    assert!(found(&examination, "several-cuda-runtimes").0.starts_with("2 different CUDA runtimes"));
    assert!(examination.is_healthy);
    let stub = Patient::with_gpu("x86_64", "570.124.06", (9, 0))
        .file("/usr/local/cuda/lib64/stubs/libcuda.so.1", "")
        .variable("LD_LIBRARY_PATH", "/usr/local/cuda/lib64/stubs")
        .examine();
    assert_eq!(found(&stub, "stub-of-libcuda").1, ["unset LD_LIBRARY_PATH"]);
}

#[test]
fn variables_that_hide_or_slow_are_named() {
    for (name, value, id, is_healthy) in [
        ("CUDA_VISIBLE_DEVICES", "", "gpus-hidden", false),
        ("CUDA_VISIBLE_DEVICES", "-1", "gpus-hidden", false),
        ("CUDA_VISIBLE_DEVICES", "1", "gpus-hidden", false),
        ("CUDA_VISIBLE_DEVICES", "0,1", "gpus-hidden", true),
        ("CUDA_LAUNCH_BLOCKING", "1", "slow-by-variable", true),
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:8", "allocator-settings", true),
    ] {
        let examination = Patient::with_gpu("x86_64", "570.124.06", (9, 0)).variable(name, value).examine();
        assert_eq!(found(&examination, id).1, [format!("unset {name}")], "{name}={value}");
        assert_eq!(examination.is_healthy, is_healthy, "{name}={value}");
    }
    for (name, value) in
        [("CUDA_VISIBLE_DEVICES", "0"), ("CUDA_VISIBLE_DEVICES", "GPU-8932f937"), ("CUDA_LAUNCH_BLOCKING", "0")]
    {
        let examination = Patient::with_gpu("x86_64", "570.124.06", (9, 0)).variable(name, value).examine();
        assert_eq!(ids(&examination), ["no-python"], "{name}={value}");
    }
}

#[test]
fn the_names_of_allocator_settings_follow_the_release() {
    for (version, name, commands) in [
        ("2.8.0+cu128", "PYTORCH_ALLOC_CONF", Some("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")),
        ("2.8.0+cu128", "PYTORCH_CUDA_ALLOC_CONF", None),
        ("2.9.0+cu128", "PYTORCH_CUDA_ALLOC_CONF", Some("export PYTORCH_ALLOC_CONF=expandable_segments:True")),
        ("2.9.0+cu128", "PYTORCH_ALLOC_CONF", None),
    ] {
        let examination = Patient::with_gpu("x86_64", "570.124.06", (9, 0))
            .python(&[torch(version, Some("12.8"), &["sm_90"], Some((9, 0)))])
            .variable(name, "expandable_segments:True")
            .examine();
        match commands {
            Some(command) => assert_eq!(found(&examination, "allocator-settings").1[0], command),
            None => assert_eq!(ids(&examination), [""; 0], "{version} {name}"),
        }
    }
}

#[test]
fn the_state_of_a_gpu_is_told() {
    let mut patient = Patient::with_gpu("x86_64", "570.124.06", (9, 0));
    let gpu = &mut patient.management.gpus[0];
    gpu.used_bytes = 20 << 30;
    gpu.holders = vec![Holder { pid: 4242, name: "python".to_owned(), bytes: Some(19 << 30) }];
    gpu.uncorrected_errors = Some(2);
    gpu.slowdowns = vec!["hardware thermal slowdown".to_owned()];
    gpu.celsius = Some(91);
    let examination = patient.examine();
    let (seen, commands) = found(&examination, "memory-held");
    assert_eq!(
        seen,
        "20.0 GiB of the 24.0 GiB of GPU 0 (NVIDIA GPU) are in use: by python (number 4242) with 19.0 GiB"
    );
    assert_eq!(commands, ["ps -o user,pid,lstart,cmd -p 4242"]);
    assert_eq!(found(&examination, "memory-errors").1, ["sudo nvidia-smi --gpu-reset -i 0"]);
    assert!(found(&examination, "slowed-down").0.contains("at 91 °C: hardware thermal slowdown"));
    let severities: Vec<Severity> = examination.findings.iter().map(|finding| finding.severity).collect();
    assert!(severities.is_sorted(), "{severities:?}");
}

#[test]
fn a_trial_of_megabatch_that_failed_is_a_problem() {
    let mut patient = Patient::with_gpu("x86_64", "570.124.06", (9, 0));
    patient.trials = vec![Trial {
        device: "cuda:0".to_owned(),
        name: "fill".to_owned(),
        result: None,
        fault: Some("no".to_owned()),
    }];
    assert!(found(&patient.examine(), "megabatch-failed").0.ends_with("does not work on cuda:0; `fill`: no"));
}

#[test]
fn every_finding_can_be_told_and_is_json() {
    let examination = crate::environment::cpu_scatter().variable("CUDA_LAUNCH_BLOCKING", "1").examine();
    let json = serde_json::to_value(&examination).unwrap();
    assert_eq!(json["is_healthy"], false);
    assert_eq!(json["findings"][0]["severity"], "problem");
    assert_eq!(json["python"]["torch"]["cuda"], "12.8");
    assert_eq!(json["repair"].as_array().unwrap().len(), 2);
    let text = examination.to_text();
    for finding in &examination.findings {
        assert!(finding.commands.iter().all(|command| text.contains(&format!("\n    {command}\n"))), "{text}");
    }
}
