//! GPUs on the PCI bus: they are there whether or not a driver is.

use std::path::Path;

use serde::Serialize;

use crate::system::System;

const DEVICES: &str = "/sys/bus/pci/devices";
const NVIDIA: &str = "0x10de";
/// First byte of the class of displays and of 3D controllers, which accelerators without a display
/// are.
const DISPLAY: &str = "0x03";

/// An NVIDIA GPU on the PCI bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PciGpu {
    /// PCI address, such as `0000:01:00.0`.
    pub address: String,
    /// The model's number, such as `0x2342`.
    pub model: String,
    /// The kernel's driver that has it, such as `nvidia`, `nouveau` or `vfio-pci`.
    pub driver: Option<String>,
}

pub(super) fn look(system: &System) -> Vec<PciGpu> {
    let gpu = |address: String| {
        let folder = Path::new(DEVICES).join(&address);
        let read = |name: &str| system.read(folder.join(name)).map(|text| text.trim().to_owned());
        let is_gpu = read("vendor")? == NVIDIA && read("class")?.starts_with(DISPLAY);
        is_gpu.then(|| PciGpu {
            address,
            model: read("device").unwrap_or_default(),
            driver: system.resolved_name(&folder.join("driver")),
        })
    };
    system.names(DEVICES).into_iter().filter_map(gpu).collect()
}
