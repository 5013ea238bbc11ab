use std::fmt;
use std::str::FromStr;

/// Granule of the simulated device in bytes: that of CUDA's devices.
pub(crate) const GRANULE_BYTES: usize = 2 << 20;

/// Policies of memory management.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The pool of gpu-core.
    Megabatch,
    /// PyTorch's CUDA caching allocator with its defaults.
    PyTorch,
    /// PyTorch's allocator with `expandable_segments:True`.
    PyTorchExpandable,
}

impl Policy {
    /// Every policy, ours first.
    pub const ALL: [Policy; 3] = [Policy::Megabatch, Policy::PyTorch, Policy::PyTorchExpandable];

    /// The name under which the command line knows it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Megabatch => "megabatch",
            Policy::PyTorch => "pytorch",
            Policy::PyTorchExpandable => "pytorch-expandable",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    /// The valid names.
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let names = Policy::ALL.map(Policy::name).join(", ");
            format!("expected one of {names}; found `{name}`")
        })
    }
}

/// Memory available to a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Physical memory of the device in bytes.
    pub capacity_bytes: usize,
    /// PyTorch's `max_split_size_mb`, in bytes: blocks of this size or more are not split. `None`
    /// is its default, no such limit. Our pool has no such setting.
    pub max_split_bytes: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_known_by_its_name() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        let error = "jemalloc".parse::<Policy>().unwrap_err();
        assert!(error.contains("pytorch-expandable") && error.contains("`jemalloc`"), "{error}");
    }
}
