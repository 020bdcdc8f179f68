//! Configuration space: 4096 bytes, little endian (PCIe 7.5; offsets in `reference/hardware.md` 1.2).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::capability;
use super::sysfs::{Function, named};

const SIZE: usize = 4096;
/// A conventional function's.
const CONVENTIONAL: usize = 256;
const BLOCK: usize = 64;
/// An all-ones dword is proof of a lost device only when it stays: a link retraining shows one too.
const READS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(400);

/// A whole copy of a function's configuration space.
#[derive(Clone, Debug)]
pub struct ConfigSpace(Vec<u8>);

/// Why there is no whole copy.
#[derive(Debug)]
pub enum Unread {
    /// It reads all ones, again and again: nothing answers.
    Lost,
    /// Fewer bytes than it has: `CAP_SYS_ADMIN` in the first user namespace is missing.
    Short(usize),
    /// The read failed.
    Io(io::Error),
}

impl ConfigSpace {
    /// Reads it, the first dword first: on a hung device every further dword would cost a completion timeout.
    ///
    /// # Errors
    /// See [`Unread`].
    pub fn read(function: &Function) -> Result<Self, Unread> {
        let io = |error| Unread::Io(named("config")(error));
        let file = File::open(function.path("config")).map_err(io)?;
        for read in 1.. {
            let mut first = [0; 4];
            file.read_exact_at(&mut first, 0).map_err(io)?;
            if first != [0xff; 4] {
                break;
            }
            if read == READS {
                return Err(Unread::Lost);
            }
            super::pause(PAUSE);
        }
        let mut bytes = vec![0; SIZE];
        for start in (0..SIZE).step_by(BLOCK) {
            let got = file.read_at(&mut bytes[start..start + BLOCK], start as u64).map_err(io)?;
            if got == 0 && start == CONVENTIONAL {
                bytes.truncate(CONVENTIONAL);
                break;
            }
            if got < BLOCK {
                return Err(Unread::Short(start + got));
            }
            if bytes[start..start + BLOCK].as_chunks::<4>().0.contains(&[0xff; 4]) {
                let mut first = [0; 4];
                file.read_exact_at(&mut first, 0).map_err(io)?;
                if first == [0xff; 4] {
                    return Err(Unread::Lost);
                }
            }
        }
        Ok(Self(bytes))
    }

    /// Whether the function answers with its ids: neither all ones nor "not ready yet" (configuration retry status,
    /// vendor id 0001h).
    ///
    /// # Errors
    /// The read failed.
    pub fn is_ready(function: &Function) -> io::Result<bool> {
        Ok(Self::is_answer(first(function)?))
    }

    /// Whether it reads all ones.
    ///
    /// # Errors
    /// The read failed.
    pub fn is_lost(function: &Function) -> io::Result<bool> {
        Ok(first(function)? == u32::MAX)
    }

    /// Whether dword 0 is that of a function that answers.
    pub(super) fn is_answer(first: u32) -> bool {
        first != u32::MAX && first != 0xffff_0001
    }

    /// Immediate readiness: it answers as soon as a reset is written.
    pub(super) fn is_ready_at_once(&self) -> bool {
        self.word(0x06) & 1 != 0
    }

    /// What was read before, of a conventional or an express function.
    pub(super) fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        [CONVENTIONAL, SIZE].contains(&bytes.len()).then_some(Self(bytes))
    }

    /// All of it.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Vendor and device id.
    #[must_use]
    pub fn ids(&self) -> (u16, u16) {
        (self.word(0x00), self.word(0x02))
    }

    /// The header type without its multi-function bit.
    #[must_use]
    pub fn header_type(&self) -> u8 {
        self.byte(0x0e) & 0x7f
    }

    /// The command register.
    #[must_use]
    pub fn command(&self) -> u16 {
        self.word(0x04)
    }

    /// A BAR register, 0 to 5.
    #[must_use]
    pub fn bar(&self, index: usize) -> u32 {
        self.dword(0x10 + 4 * index)
    }

    /// The PCIe Device Serial Number; `None` where the capability is absent.
    #[must_use]
    pub fn serial(&self) -> Option<u64> {
        let at = self.extended_capability(capability::SERIAL)?;
        let serial = u64::from(self.dword(at + 8)) << 32 | u64::from(self.dword(at + 4));
        // Both are what cards show whose maker never wrote a number.
        (serial != 0 && serial != u64::MAX).then_some(serial)
    }

    /// Bits of Uncorrectable Error Status that are not masked (PCIe 7.8.4); `None` without AER. They are sticky:
    /// what stands here was seen by nobody who cleared it, whoever owns AER.
    #[must_use]
    pub fn uncorrectable(&self) -> Option<u32> {
        let at = self.extended_capability(capability::AER)?;
        Some(self.dword(at + 4) & !self.dword(at + 8))
    }

    /// Whether it has registers of a link: a function of PCI Express that is not integrated into the root complex
    /// (PCIe 7.5.3.2, device types 9 and 10).
    #[must_use]
    pub fn has_link(&self) -> bool {
        let kind = self.capability(capability::EXPRESS).map(|at| self.word(at + 2) >> 4 & 0xf);
        kind.is_some_and(|kind| !matches!(kind, 9 | 10))
    }

    /// Device Status bit 5: transactions pending. `None` without a PCIe capability.
    #[must_use]
    pub fn transactions_pending(&self) -> Option<bool> {
        let at = self.capability(capability::EXPRESS)?;
        Some(self.word(at + 0x0a) & 1 << 5 != 0)
    }

    pub(super) fn byte(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0xff)
    }

    pub(super) fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.byte(at), self.byte(at + 1)])
    }

    pub(super) fn dword(&self, at: usize) -> u32 {
        u32::from(self.word(at + 2)) << 16 | u32::from(self.word(at))
    }
}

fn first(function: &Function) -> io::Result<u32> {
    let mut dword = [0; 4];
    let read = File::open(function.path("config")).and_then(|file| file.read_exact_at(&mut dword, 0));
    read.map_err(named("config"))?;
    Ok(u32::from_le_bytes(dword))
}
