//! Short pages on the subjects of findings.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// List of GPUs to compile for.
    Architectures,
    /// The driver's cache of compiled code.
    JitCache,
    /// Settings of PyTorch's allocator.
    Allocator,
    /// Training on the CPU meanwhile.
    Cpu,
    /// ARM: builds from source, and vendors' containers.
    Arm,
    /// Batch sizes by the GPU's memory.
    BatchSize,
}

impl Topic {
    /// All pages.
    pub const ALL: [Topic; 6] =
        [Topic::Architectures, Topic::JitCache, Topic::Allocator, Topic::Cpu, Topic::Arm, Topic::BatchSize];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Topic::Architectures => "architectures",
            Topic::JitCache => "jit-cache",
            Topic::Allocator => "allocator",
            Topic::Cpu => "cpu",
            Topic::Arm => "arm",
            Topic::BatchSize => "batch-size",
        }
    }

    /// Subject, in a line.
    pub const fn about(self) -> &'static str {
        match self {
            Topic::Architectures => "which list of GPUs to compile for",
            Topic::JitCache => "the driver's cache of compiled code, and its size",
            Topic::Allocator => "settings of PyTorch's memory allocator",
            Topic::Cpu => "training on the CPU meanwhile",
            Topic::Arm => "ARM: builds from source, and vendors' containers",
            Topic::BatchSize => "batch sizes by the GPU's memory",
        }
    }

    /// The page.
    pub const fn page(self) -> &'static str {
        match self {
            Topic::Architectures => include_str!("architectures.md"),
            Topic::JitCache => include_str!("jit-cache.md"),
            Topic::Allocator => include_str!("allocator.md"),
            Topic::Cpu => include_str!("cpu.md"),
            Topic::Arm => include_str!("arm.md"),
            Topic::BatchSize => include_str!("batch-size.md"),
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Topic {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Topic::ALL.map(Topic::name).join(", ");
        let is_named = |topic: &Topic| topic.name() == name;
        Topic::ALL.into_iter().find(is_named).ok_or_else(|| format!("there is no page `{name}`; there are {}", names()))
    }
}

impl Serialize for Topic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_found_by_its_name_and_begins_with_a_title() {
        for topic in Topic::ALL {
            assert_eq!(topic.name().parse(), Ok(topic));
            assert!(topic.page().starts_with("# ") && topic.page().lines().count() < 60, "{topic}");
        }
        assert!("cuda".parse::<Topic>().unwrap_err().contains("jit-cache"));
    }
}
