//! The device nodes through which programs reach the driver.

use serde::Serialize;

use crate::system::{Access, System};

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its path, such as `/dev/nvidia0`.
    pub path: String,
    /// True if it can be used.
    pub access: Access,
}

/// Device nodes that CUDA opens: `nvidiactl`, `nvidia-uvm` and one for each GPU.
pub(super) fn look(system: &System) -> Vec<Node> {
    let is_gpu = |name: &str| {
        name.strip_prefix("nvidia")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let names = system.names("/dev").into_iter();
    let paths = names.filter(|name| is_gpu(name) || name == "nvidiactl" || name == "nvidia-uvm");
    let node = |name: String| {
        let path = format!("/dev/{name}");
        let access = system.access(&path)?;
        Some(Node { path, access })
    };
    paths.filter_map(node).collect()
}
