//! True if this runs in a container, by the traces that container engines leave.

use serde::Serialize;

use crate::system::System;

/// A container engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Container {
    /// Docker, or what behaves like it.
    Docker,
    /// Podman.
    Podman,
    /// Kubernetes, whatever engine it uses.
    Kubernetes,
    /// Another, by a variable that it sets.
    Other,
}

pub(super) fn look(system: &System) -> Option<Container> {
    let groups = system.read("/proc/1/cgroup").unwrap_or_default();
    let is_in_group = |words: &[&str]| words.iter().any(|word| groups.contains(word));
    if system.variable("KUBERNETES_SERVICE_HOST").is_some() || is_in_group(&["kubepods"]) {
        Some(Container::Kubernetes)
    } else if system.exists("/run/.containerenv") || is_in_group(&["libpod"]) {
        Some(Container::Podman)
    } else if system.exists("/.dockerenv") || is_in_group(&["docker", "containerd"]) {
        Some(Container::Docker)
    } else {
        system.variable("container").map(|_| Container::Other)
    }
}
