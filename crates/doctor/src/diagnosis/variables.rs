//! Variables of the environment that hide GPUs, slow them down, or do nothing.

use super::MachineFacts;
use crate::explain::Topic;
use crate::finding::Finding;

const OLD_NAME: &str = "PYTORCH_CUDA_ALLOC_CONF";
const NEW_NAME: &str = "PYTORCH_ALLOC_CONF";
/// The first release that reads [`NEW_NAME`] and warns about [`OLD_NAME`]. Confirmed by its own
/// warning, `PYTORCH_CUDA_ALLOC_CONF is deprecated, use PYTORCH_ALLOC_CONF instead`; the release by
/// use.
const RENAMED_IN: (u32, u32) = (2, 9);

pub(super) fn findings(case: &MachineFacts<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = hidden(case).into_iter().collect();
    findings.extend(SWITCHES.iter().filter_map(|switch| switched(case, switch)));
    findings.extend(names_of_settings(case));
    for name in [OLD_NAME, NEW_NAME] {
        findings.extend(case.machine.variable(name).into_iter().flat_map(|value| settings(name, value)));
    }
    findings
}

fn unset(finding: Finding, name: &str) -> Finding {
    finding.mended_by([format!("unset {name}")])
}

/// `CUDA_VISIBLE_DEVICES` that leaves no GPU, or names one that is not there.
fn hidden(case: &MachineFacts<'_>) -> Option<Finding> {
    const NAME: &str = "CUDA_VISIBLE_DEVICES";
    let value = case.machine.variable(NAME).filter(|_| case.has_gpu())?;
    let first = value.split(',').next().unwrap_or_default().trim();
    let gpus = case.management.gpus.len();
    let is_beyond = |word: &&str| gpus > 0 && word.trim().parse::<usize>().is_ok_and(|index| index >= gpus);
    let why = "CUDA programs see the GPUs that this variable lists and no others, and of the list only what comes before the first that \
               does not exist.";
    let finding = if first.is_empty() || first.starts_with('-') {
        Finding::problem("gpus-hidden", format!("{NAME}={value} hides every GPU from CUDA programs"), why)
    } else {
        let absent = value.split(',').find(is_beyond)?.trim();
        let seen = format!("{NAME}={value} names GPU {absent}, and the last one here is {}", gpus - 1);
        if absent == first {
            Finding::problem("gpus-hidden", seen, why)
        } else {
            Finding::warning("gpus-hidden", seen, why)
        }
    };
    Some(unset(finding, NAME))
}

/// A variable for debugging that costs speed.
struct Switch {
    name: &'static str,
    why: &'static str,
}

const SWITCHES: &[Switch] = &[
    Switch {
        name: "CUDA_LAUNCH_BLOCKING",
        why: "With it the CPU waits for each piece of work on the GPU. That helps to find which one fails, and makes training \
              several times slower.",
    },
    Switch {
        name: "PYTORCH_NO_CUDA_MEMORY_CACHING",
        why: "With it PyTorch asks the driver for every tensor's memory. That helps tools that look for memory errors, and makes training \
              many times slower.",
    },
    Switch {
        name: "CUDA_FORCE_PTX_JIT",
        why: "With it the driver compiles all code anew, though machine code for the GPU is there: programs take minutes to start.",
    },
    Switch {
        name: "CUDA_DISABLE_PTX_JIT",
        why: "With it the driver compiles no code: what has no machine code for the GPU fails, megabatch's own kernels among it.",
    },
    Switch {
        name: "CUDA_CACHE_DISABLE",
        why: "With it the driver forgets what it compiled: where it has to compile, every start takes as long as the first.",
    },
];

fn switched(case: &MachineFacts<'_>, switch: &Switch) -> Option<Finding> {
    let value = case.machine.variable(switch.name).filter(|value| !["", "0"].contains(value))?;
    let finding = Finding::warning("slow-by-variable", format!("{}={value} is set", switch.name), switch.why);
    Some(unset(finding, switch.name))
}

/// The two names of PyTorch's allocator settings, of which one release reads one.
fn names_of_settings(case: &MachineFacts<'_>) -> Option<Finding> {
    let (old, new) = (case.machine.variable(OLD_NAME), case.machine.variable(NEW_NAME));
    let knows_new = case.torch().is_none_or(|torch| torch.version.minor() >= RENAMED_IN);
    let finding = match (old, new) {
        (Some(old), Some(new)) if old != new => {
            let seen = format!("{OLD_NAME}={old} and {NEW_NAME}={new} say different things");
            unset(
                Finding::warning(
                    "allocator-settings",
                    seen,
                    "They are two names for the same settings, and only one of them is used. Keep one.",
                ),
                OLD_NAME,
            )
        }
        (None, Some(new)) if !knows_new => {
            let seen = format!("{NEW_NAME} is set, and this PyTorch does not read it");
            let finding = Finding::warning(
                "allocator-settings",
                seen,
                "The name is read since PyTorch 2.9. Before, it is PYTORCH_CUDA_ALLOC_CONF.",
            );
            finding.mended_by([format!("export {OLD_NAME}={}", crate::quote::quote(new))])
        }
        (Some(old), None) if knows_new && case.torch().is_some() => {
            let seen = format!("{OLD_NAME} is set, which is the old name of {NEW_NAME}");
            let finding = Finding::note("allocator-settings", seen, "It still works, with a warning at every start.");
            finding.mended_by([format!("export {NEW_NAME}={}", crate::quote::quote(old)), format!("unset {OLD_NAME}")])
        }
        _ => return None,
    };
    Some(finding.explained_by(Topic::Allocator))
}

/// Settings that PyTorch knows. Source: <https://docs.pytorch.org/docs/stable/notes/cuda.html>; the
/// first six confirmed by what was quoted of it, the others from use.
const KNOWN: &[&str] = &[
    "backend",
    "max_split_size_mb",
    "roundup_power2_divisions",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "expandable_segments",
    "pinned_use_cuda_host_register",
    "pinned_num_register_threads",
    "pinned_use_background_threads",
    "pinned_reserve_segment_size_mb",
    "graph_capture_record_stream_reuse",
    "per_process_memory_fraction",
    "release_lock_on_cudamalloc",
    "throw_on_cudamalloc_oom",
];

/// Settings of the allocator that are unknown, out of range, or have no effect beside others.
fn settings(name: &'static str, value: &str) -> Vec<Finding> {
    let pairs: Vec<(&str, &str)> = pairs(value);
    let get = |key: &str| pairs.iter().find(|(found, _)| *found == key).map(|(_, value)| *value);
    let expands = get("expandable_segments") == Some("True");
    let mut findings = Vec::new();
    let mut warn = |seen: String, why: &str| {
        let finding =
            Finding::warning("allocator-settings", format!("{name}: {seen}"), why).explained_by(Topic::Allocator);
        findings.push(unset(finding, name));
    };
    for (key, _) in pairs.iter().filter(|(key, _)| !KNOWN.contains(key)) {
        warn(
            format!("`{key}` is no setting that is known here"),
            "PyTorch refuses to start on a setting that it does not know.",
        );
    }
    if get("backend") == Some("cudaMallocAsync") && pairs.len() > 1 {
        warn(
            "`backend:cudaMallocAsync` stands beside other settings".to_owned(),
            "With this backend the driver manages the memory, and PyTorch's own settings have no effect.",
        );
    }
    if expands && get("max_split_size_mb").is_some() {
        warn(
            "`max_split_size_mb` stands beside `expandable_segments:True`".to_owned(),
            "Expandable segments grow instead of being split, so that the limit on splitting has hardly any effect. Keep \
             expandable_segments alone.",
        );
    }
    if get("max_split_size_mb").is_some_and(|size| size.parse::<u64>().is_ok_and(|size| size <= 20)) {
        warn("`max_split_size_mb` is 20 or less".to_owned(), "PyTorch refuses it: the least is 21.");
    }
    if get("garbage_collection_threshold")
        .is_some_and(|text| text.parse().is_ok_and(|part: f64| part <= 0.0 || part >= 1.0))
    {
        warn(
            "`garbage_collection_threshold` is not between 0 and 1".to_owned(),
            "It is a part of the memory, and PyTorch refuses other values.",
        );
    }
    findings
}

/// `key:value` pairs, separated by commas outside of brackets.
fn pairs(text: &str) -> Vec<(&str, &str)> {
    let mut depth = 0_i32;
    let split = text.split(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    split.filter_map(|pair| pair.split_once(':')).map(|(key, value)| (key.trim(), value.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn useless_and_harmful_settings_are_named() {
        for (value, words) in [
            ("expandable_segments:True", &[][..]),
            ("max_split_size_mb:128,garbage_collection_threshold:0.8", &[]),
            ("roundup_power2_divisions:[256:1,512:2,>:4]", &[]),
            ("expandable_segments:True,max_split_size_mb:128", &["beside `expandable_segments:True`"]),
            ("backend:cudaMallocAsync,max_split_size_mb:128", &["cudaMallocAsync"]),
            ("max_split_size_mb:20", &["20 or less"]),
            ("garbage_collection_threshold:80", &["not between 0 and 1"]),
            ("expandable_segment:True", &["`expandable_segment` is no setting"]),
        ] {
            let found = settings(OLD_NAME, value);
            assert_eq!(found.len(), words.len(), "{value}: {found:?}");
            for (finding, word) in found.iter().zip(words) {
                assert!(finding.seen.contains(word), "{value}: {}", finding.seen);
            }
        }
    }
}
