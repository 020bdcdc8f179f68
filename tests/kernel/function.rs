//! A PCI function as the guest's kernel shows it, looked at with nothing of ours.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use cleanslate::types::PciAddress;

use crate::checks::until;

/// Where the functions are; boot.sh puts them there.
pub(crate) const CARD: Function = Function("0000:01:00.0");
pub(crate) const SHARED: Function = Function("0000:02:00.0");
pub(crate) const DISK: Function = Function("0000:03:00.0");
pub(crate) const BOOT_DISK: Function = Function("0000:00:02.0");
pub(crate) const EDU: Function = Function("0000:00:05.0");

/// A root port's number of the bus below it.
const SECONDARY_BUS: u64 = 0x19;
/// One that lies outside of every port's range, so that no other port's bus is taken for it.
const NOWHERE: u8 = 0xff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function(pub(crate) &'static str);

impl Function {
    pub(crate) fn address(self) -> PciAddress {
        self.0.parse().unwrap()
    }

    /// Its device's name in the pool.
    pub(crate) fn device(self) -> String {
        self.address().device_name()
    }

    pub(crate) fn path(self, attribute: &str) -> PathBuf {
        Path::new("/sys/bus/pci/devices").join(self.0).join(attribute)
    }

    pub(crate) fn exists(self) -> bool {
        self.path("config").exists()
    }

    pub(crate) fn text(self, attribute: &str) -> String {
        fs::read_to_string(self.path(attribute)).unwrap_or_default().trim_end().to_owned()
    }

    pub(crate) fn set(self, attribute: &str, value: &str) {
        fs::write(self.path(attribute), value).unwrap();
    }

    /// Bytes of config space, in one read.
    pub(crate) fn config(self) -> Vec<u8> {
        fs::read(self.path("config")).unwrap_or_default()
    }

    pub(crate) fn word(self, at: u64) -> io::Result<u16> {
        let mut bytes = [0; 2];
        fs::File::open(self.path("config"))?.read_exact_at(&mut bytes, at)?;
        Ok(u16::from_le_bytes(bytes))
    }

    pub(crate) fn write(self, at: u64, bytes: &[u8]) {
        fs::File::options().write(true).open(self.path("config")).unwrap().write_all_at(bytes, at).unwrap();
    }

    /// Where its PCI Express capability is.
    pub(crate) fn express(self) -> u64 {
        let config = self.config();
        let mut at = usize::from(config[0x34]);
        while config[at] != 0x10 {
            at = usize::from(config[at + 1]);
            assert_ne!(at, 0, "{self:?} has no PCI Express capability");
        }
        at as u64
    }

    /// Where the kernel put a BAR.
    pub(crate) fn bar(self, index: usize) -> u64 {
        let resource = self.text("resource");
        let word = resource.lines().nth(index).and_then(|line| line.split(' ').next()).unwrap().to_owned();
        u64::from_str_radix(word.strip_prefix("0x").unwrap(), 16).unwrap()
    }

    fn port(self) -> Self {
        let name = match self {
            CARD => "0000:00:10.0",
            SHARED => "0000:00:11.0",
            _ => "0000:00:12.0",
        };
        Self(name)
    }

    /// Nothing that is sent to it arrives any more: all ones are read.
    pub(crate) fn fall_off_the_bus(self) {
        self.port().write(SECONDARY_BUS, &[NOWHERE]);
    }

    /// It answers again, and holds what it held.
    pub(crate) fn come_back(self) {
        self.port().write(SECONDARY_BUS, &[self.0.as_bytes()[6] - b'0']);
    }

    /// The kernel finds again what was taken out of it, and sets everything up anew. No driver keeps it.
    pub(crate) fn plug(self) {
        fs::write("/sys/bus/pci/rescan", "1").unwrap();
        until("it is found again", || self.exists().then_some(()));
        if self.path("driver").exists() {
            self.set("driver/unbind", self.0);
        }
    }
}
