//! Whether we may reset a function ourselves: only where nothing is lost that we do not restore, and nobody is
//! there who would have to be told (`reference/hardware.md` 1.6, 1.8, 8.5).

use super::registers::Width;
use crate::pci::capability;
use crate::pci::config_space::ConfigSpace;
use crate::pci::sysfs::Function;

/// Device Capabilities: function level reset.
const CAPABLE: u32 = 1 << 28;
/// Advanced Features: transactions pending, function level reset.
const ADVANCED: u8 = 0b11;
/// Vendor of CXL's designated capabilities.
const CXL: u16 = 0x1e98;

/// How a function is reset through its config space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By Device Control of its PCI Express capability.
    Express {
        /// Where that register is.
        control: usize,
        /// Where Device Status is.
        status: usize,
    },
    /// By the Advanced Features capability of a conventional function.
    Advanced {
        /// Where its control register is.
        control: usize,
        /// Where its status is.
        status: usize,
    },
}

impl Way {
    /// Device Control: initiate function level reset; reads zero.
    pub(super) const INITIATE: u32 = 1 << 15;

    /// Where pending transactions show.
    pub(super) fn pending(self) -> (usize, Width, u32) {
        match self {
            Self::Express { status, .. } => (status, Width::Two, 1 << 5),
            Self::Advanced { status, .. } => (status, Width::One, 1),
        }
    }

    /// The kernel's word for it.
    fn word(self) -> &'static str {
        match self {
            Self::Express { .. } => "flr",
            Self::Advanced { .. } => "af_flr",
        }
    }
}

/// How this function could be reset by us.
///
/// # Errors
/// Why not: it has no such reset, or is in a state or of a kind that we would not restore whole. Whether a driver is
/// bound is not looked at: that changes from step to step.
pub fn way(function: &Function, config: &ConfigSpace) -> Result<Way, String> {
    let (way, methods) = (found(config)?, function.text("reset_method").unwrap_or_default());
    let has = |word: &str| methods.split_whitespace().any(|method| method == word);
    if has("device_specific") {
        return Err(format!("the kernel has a reset of its own for this model (reset_method {methods:?})"));
    }
    if !has(way.word()) {
        return Err(format!(
            "the kernel does not trust its {} (reset_method {methods:?}): a quirk of this model",
            way.word()
        ));
    }
    match config.header_type() {
        0 => {}
        kind => return Err(format!("header type {kind} is no endpoint's")),
    }
    match function.link_name("physfn") {
        Ok(None) => {}
        Ok(Some(parent)) => return Err(format!("it is a virtual function of {parent}")),
        Err(error) => return Err(format!("whether it is a virtual function cannot be read: {error}")),
    }
    if config.extended_capability(capability::ATS).is_some_and(|at| config.word(at + 6) & 1 << 15 != 0) {
        return Err("address translation (ATS) is on".to_owned());
    }
    let enabled =
        config.extended_capability(capability::VIRTUAL).is_some_and(|at| config.word(at + 8) & 1 != 0);
    match function.optional("sriov_numvfs").map(|functions| functions.unwrap_or_else(|| "0".to_owned())) {
        Ok(functions) if functions == "0" && !enabled => {}
        Ok(_) => return Err("it has virtual functions enabled".to_owned()),
        Err(error) => {
            return Err(format!("whether it has virtual functions enabled cannot be read: {error}"));
        }
    }
    let cxl = |(id, at): (u16, usize)| id == capability::DESIGNATED && config.word(at + 4) == CXL;
    if config.extended_capabilities().any(cxl) {
        return Err("it is a CXL device, whose state we would not restore".to_owned());
    }
    match config.capability(capability::POWER).map(|at| config.word(at + 4) & 0b11) {
        None | Some(0) => Ok(way),
        Some(state) => Err(format!("it sleeps in D{state}")),
    }
}

fn found(config: &ConfigSpace) -> Result<Way, String> {
    let express = config.capability(capability::EXPRESS).filter(|at| config.dword(at + 4) & CAPABLE != 0);
    let advanced =
        || config.capability(capability::ADVANCED).filter(|at| config.byte(at + 3) & ADVANCED == ADVANCED);
    match express {
        Some(at) => Ok(Way::Express { control: at + 8, status: at + 0xa }),
        None => advanced()
            .map(|at| Way::Advanced { control: at + 4, status: at + 5 })
            .ok_or_else(|| "it says that it has no function level reset".to_owned()),
    }
}
