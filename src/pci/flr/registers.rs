//! Registers of one open configuration space, each read and written at its own width.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::pci::config_space::ConfigSpace;
use crate::pci::sysfs::Function;

/// Bytes of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    One = 1,
    Two = 2,
    Four = 4,
}

impl Width {
    /// What a register of this width reads as where nothing answers.
    pub(super) fn all_ones(self) -> u32 {
        u32::MAX >> (32 - 8 * self as u32)
    }
}

#[derive(Debug)]
pub(super) struct Registers {
    file: File,
}

impl Registers {
    pub(super) fn open(function: &Function) -> io::Result<Self> {
        Ok(Self { file: File::options().read(true).write(true).open(function.path("config"))? })
    }

    pub(super) fn read(&self, at: usize, width: Width) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes[..width as usize], at as u64)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// One write of exactly this width: the kernel makes one access of it.
    pub(super) fn write(&self, at: usize, width: Width, value: u32) -> io::Result<()> {
        self.file.write_all_at(&value.to_le_bytes()[..width as usize], at as u64)
    }
}

/// The same register in a copy.
pub(super) fn saved(config: &ConfigSpace, at: usize, width: Width) -> u32 {
    match width {
        Width::One => config.byte(at).into(),
        Width::Two => config.word(at).into(),
        Width::Four => config.dword(at),
    }
}
