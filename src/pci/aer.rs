//! Advanced Error Reporting: the kernel's counters of a function (`reference/hardware.md` 1.5).

use std::io;

use super::sysfs::{Function, senseless};
use crate::types::Roots;

/// The total of one of `aer_dev_correctable`, `aer_dev_nonfatal`, `aer_dev_fatal`; `None` where the function has
/// no such file.
///
/// A line is a label and a number, split at the last space, since older kernels' labels have spaces. Labels are
/// opaque but for the total's, and a kernel without that line gives the sum.
///
/// # Errors
/// The file is there and cannot be read or makes no sense.
pub fn total(function: &Function, attribute: &str) -> io::Result<Option<u64>> {
    let Some(text) = function.optional(attribute)? else { return Ok(None) };
    let bad = |line: &str| senseless(attribute, line, "lines of a label and a number");
    if text.is_empty() {
        return Err(bad(""));
    }
    let mut sum = 0_u64;
    for line in text.lines() {
        let (label, number) = line.rsplit_once(' ').ok_or_else(|| bad(line))?;
        let number: u64 = number.parse().map_err(|_| bad(line))?;
        if label.starts_with("TOTAL_ERR") {
            return Ok(Some(number));
        }
        sum = sum.saturating_add(number);
    }
    Ok(Some(sum))
}

/// A root port's own total, a bare number; `None` where it has no such file.
///
/// # Errors
/// The file is there and cannot be read or is no number.
pub fn port_total(port: &Function, attribute: &str) -> io::Result<Option<u64>> {
    let Some(text) = port.optional(attribute)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| senseless(attribute, &text, "a number"))
}

/// Whether the kernel's AER service serves any port. Where firmware does, the counters stay zero for ever, and what
/// stands in a status is the firmware's to read and clear.
#[must_use]
pub fn are_ours(roots: &Roots) -> bool {
    roots.sys.join("bus/pci_express/drivers/aer").exists()
}
