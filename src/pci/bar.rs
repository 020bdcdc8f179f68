//! Base address registers: what the kernel gave them, and the memory behind them.

mod file;
mod map;
mod mapped;
mod memory;

use std::io;
use std::path::PathBuf;

pub use file::FileMemory;
pub use mapped::MappedMemory;
pub use memory::Memory;

use super::config_space::ConfigSpace;
use super::sysfs::{Function, senseless};

const IO: u64 = 0x100;
const MEMORY: u64 = 0x200;
const PREFETCHABLE: u64 = 0x2000;
const MEMORY_64: u64 = 0x10_0000;

/// One memory BAR as `resource` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// 0 to 5; a 64-bit BAR takes two numbers and has the first.
    pub index: u8,
    /// Bus address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// Reads have no side effects: memory, not registers.
    pub prefetchable: bool,
    /// Takes two registers.
    pub wide: bool,
}

impl Bar {
    /// The files that are written through and read through: the write-combining one where there is one.
    fn files(self, function: &Function) -> (PathBuf, PathBuf) {
        let plain = function.path(&format!("resource{}", self.index));
        let combined = function.path(&format!("resource{}_wc", self.index));
        (if combined.exists() { combined } else { plain.clone() }, plain)
    }
}

/// The memory BARs of a function.
///
/// # Errors
/// `resource` cannot be read or is not in the kernel's form.
pub fn bars(function: &Function) -> io::Result<Vec<Bar>> {
    let text = function.text("resource")?;
    let bad =
        |line: &str| senseless("resource", line, "start, end and flags, each 0x and hexadecimal digits");
    if text.lines().count() < 6 {
        return Err(senseless("resource", &text, "a line for each of six BARs"));
    }
    let mut found = Vec::new();
    for (index, line) in (0..6_u8).zip(text.lines()) {
        let mut numbers = line.split_whitespace().map(|word| {
            word.strip_prefix("0x")
                .and_then(|digits| u64::from_str_radix(digits, 16).ok())
                .ok_or_else(|| bad(line))
        });
        let mut next = || numbers.next().unwrap_or_else(|| Err(bad(line)));
        let (start, end, flags) = (next()?, next()?, next()?);
        if flags & MEMORY == 0 || flags & IO != 0 || start == 0 || end <= start {
            continue;
        }
        let size = end - start + 1;
        let (prefetchable, wide) = (flags & PREFETCHABLE != 0, flags & MEMORY_64 != 0);
        found.push(Bar { index, start, size, prefetchable, wide });
    }
    Ok(found)
}

/// The first BAR whose register does not hold where the kernel put it, with what it holds.
pub fn misplaced<'a>(bars: &'a [Bar], config: &ConfigSpace) -> Option<(&'a Bar, u64)> {
    bars.iter().find_map(|bar| {
        let index = usize::from(bar.index);
        let high = if bar.wide { u64::from(config.bar(index + 1)) << 32 } else { 0 };
        let register = high | u64::from(config.bar(index) & !0xf);
        (register != bar.start).then_some((bar, register))
    })
}
