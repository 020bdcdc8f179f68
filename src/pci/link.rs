//! The link of a function, and the ports above it (`reference/hardware.md` 1.4).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::sysfs::{Function, senseless};
use crate::types::{LinkView, PciAddress, Roots};

/// Widths that a link can have (PCIe 7.5.3.8).
const WIDTHS: [u32; 7] = [1, 2, 4, 8, 12, 16, 32];

/// Lanes in use of a function that has a link; 0 where that is down.
///
/// # Errors
/// The attribute is missing, is no number, or is no width: a dead device shows 63.
pub fn width(function: &Function) -> io::Result<u32> {
    match lanes(function, "current_link_width")? {
        width if width == 0 || WIDTHS.contains(&width) => Ok(width),
        width => Err(senseless("current_link_width", &width.to_string(), "a width that a link has")),
    }
}

/// Lanes that a function with a link can use; `None` where that is not known: 255 stands for "no answer".
///
/// # Errors
/// The attribute is missing or is no number.
pub fn max_width(function: &Function) -> io::Result<Option<u32>> {
    Ok(Some(lanes(function, "max_link_width")?).filter(|width| WIDTHS.contains(width)))
}

fn lanes(function: &Function, attribute: &str) -> io::Result<u32> {
    let text = function.text(attribute)?;
    text.parse().map_err(|_| senseless(attribute, &text, "a number of lanes"))
}

/// The link as the kernel shows it, for people: what it does and what it could. Reading it wakes a sleeping function.
#[must_use]
pub fn view(function: &Function) -> LinkView {
    let text = |attribute| function.text(attribute).ok();
    LinkView {
        speed: text("current_link_speed"),
        width: text("current_link_width"),
        max_speed: text("max_link_speed"),
        max_width: text("max_link_width"),
    }
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
    let port = |(folder, address): (PathBuf, _)| Ok(Port { address, exclusive: slots_below(&folder)? <= 1 });
    above(roots, function)?.into_iter().map(port).collect()
}

/// The other end of a function's link; `None` for one that is on a root bus itself.
///
/// # Errors
/// The path cannot be resolved.
pub fn port(roots: &Roots, function: &Function) -> io::Result<Option<PciAddress>> {
    Ok(above(roots, function)?.first().map(|(_, address)| *address))
}

/// The port of the root complex above a function; `None` for one that is on a root bus itself.
///
/// # Errors
/// The path cannot be resolved.
pub fn root_port(roots: &Roots, function: &Function) -> io::Result<Option<PciAddress>> {
    Ok(above(roots, function)?.last().map(|(_, address)| *address))
}

fn above(roots: &Roots, function: &Function) -> io::Result<Vec<(PathBuf, PciAddress)>> {
    let path = fs::canonicalize(function.folder())?;
    let devices = fs::canonicalize(&roots.sys)?;
    let folders = path.ancestors().skip(1).take_while(|folder| folder.starts_with(&devices));
    Ok(folders.filter_map(|folder| Some((folder.to_owned(), address_of(folder)?))).collect())
}

/// How many slots with endpoints are below a port; the functions of one card count as one.
fn slots_below(port: &Path) -> io::Result<usize> {
    let mut slots = BTreeSet::new();
    let mut bridges = 0;
    for entry in fs::read_dir(port)? {
        let entry = entry?;
        // Links lead elsewhere.
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let path = entry.path();
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

fn address_of(path: &Path) -> Option<PciAddress> {
    path.file_name()?.to_str()?.parse().ok()
}
