//! The link of a function, and the ports above it (`reference/hardware.md` 1.4).

use std::fs;
use std::io;

use super::sysfs::Function;
use crate::types::{PciAddress, Roots};

/// Widths that a link can have (PCIe 7.5.3.8).
const WIDTHS: [u32; 7] = [1, 2, 4, 8, 12, 16, 32];

/// Lanes in use; `None` where the function has no link registers (conventional PCI, integrated endpoints).
///
/// # Errors
/// The attribute is there and is no number, or is no width: a dead device shows 63.
pub fn width(function: &Function) -> io::Result<Option<u32>> {
    match lanes(function, "current_link_width")? {
        Some(0) => Ok(Some(0)),
        Some(width) if !WIDTHS.contains(&width) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("current_link_width is {width}, no width that a link has"),
        )),
        width => Ok(width),
    }
}

/// Lanes that the function can use; `None` where that is not known: 255 stands for "no answer".
///
/// # Errors
/// The attribute is there and is no number.
pub fn max_width(function: &Function) -> io::Result<Option<u32>> {
    Ok(lanes(function, "max_link_width")?.filter(|width| WIDTHS.contains(width)))
}

fn lanes(function: &Function, attribute: &str) -> io::Result<Option<u32>> {
    let text = match function.text(attribute) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("{attribute} holds {text:?}"));
    text.parse().map(Some).map_err(|_| bad())
}

/// A port above a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Where it is.
    pub address: PciAddress,
    /// Whether nothing but the function's own slot is below it, so that its counters are about that alone.
    pub exclusive: bool,
}

/// The ports above a function, nearest first: each folder of its real path that is a function.
///
/// # Errors
/// The path cannot be resolved or a port's folder not be read.
pub fn ports(roots: &Roots, function: &Function) -> io::Result<Vec<Port>> {
    let path = fs::canonicalize(function.folder())?;
    let devices = fs::canonicalize(&roots.sys)?;
    let mut ports = Vec::new();
    for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(&devices)) {
        let Some(address) = address_of(folder) else { continue };
        ports.push(Port { address, exclusive: slots_below(folder)? <= 1 });
    }
    Ok(ports)
}

/// How many slots with endpoints are below a port; the functions of one card count as one.
fn slots_below(port: &std::path::Path) -> io::Result<usize> {
    let mut slots = std::collections::BTreeSet::new();
    let mut bridges = 0;
    for entry in fs::read_dir(port)? {
        let path = entry?.path();
        let Some(address) = address_of(&path) else { continue };
        match slots_below(&path)? {
            0 => {
                let text = address.to_string();
                slots.insert(text.split('.').next().unwrap_or_default().to_owned());
            }
            below => bridges += below,
        }
    }
    Ok(slots.len() + bridges)
}

fn address_of(path: &std::path::Path) -> Option<PciAddress> {
    path.file_name()?.to_str()?.parse().ok()
}
