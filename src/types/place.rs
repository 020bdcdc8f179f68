//! Where a function is in its machine and how processes reach it: for people and schedulers, no rule is about it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::PciAddress;

/// What links and cached attributes say: reading them touches no device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Name of the bound driver.
    pub driver: Option<String>,
    /// The NUMA node next to it, where the firmware names one.
    pub numa_node: Option<u32>,
    /// The root complex above it, `pci<domain>:<bus>`.
    pub pcie_root: Option<String>,
    /// The port of the root complex above it; none above a function on a root bus.
    pub root_port: Option<PciAddress>,
    /// Its IOMMU group; none where the IOMMU is off.
    pub iommu_group: Option<u32>,
    /// The physical function that it is a part of.
    pub virtual_of: Option<VirtualOf>,
    /// Through which a process uses it.
    pub nodes: Vec<DeviceNode>,
    /// Why those cannot be told.
    pub nodes_unreadable: Option<String>,
}

/// What makes a function a virtual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualOf {
    /// The physical function.
    pub parent: PciAddress,
    /// Which of its virtual functions this one is, from 0.
    pub number: u16,
}

/// A device node on the host, of a character or block device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    /// As a container sees it, `/dev/dri/card0`.
    pub path: PathBuf,
    /// `<major>:<minor>`; none for a twin's, which is a plain file.
    pub number: Option<String>,
}

/// The physical function of a virtual one, as that answers itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Where it is.
    pub address: PciAddress,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// PCIe Device Serial Number.
    pub serial: Option<u64>,
    /// Which of its virtual functions this one is, from 0.
    pub number: u16,
}

/// A link in the kernel's words; none where a function has none, or does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkView {
    /// As it runs now, `2.5 GT/s PCIe`; idle devices lower it.
    pub speed: Option<String>,
    /// Lanes in use.
    pub width: Option<String>,
    /// As it could run.
    pub max_speed: Option<String>,
    /// Lanes that there are.
    pub max_width: Option<String>,
}
