use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Address of a PCI function, `DDDD:BB:DD.F` in hexadecimal.
///
/// The domain has four digits or more (VMD uses `10000:01:00.0`), so addresses are compared as numbers, never
/// as strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// A string that is no PCI address.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no PCI address: expected DDDD:BB:DD.F in hexadecimal, for example 0000:3b:00.0")]
pub struct AddressError(String);

impl PciAddress {
    /// The function number, 0 to 7.
    #[must_use]
    pub fn function(&self) -> u8 {
        self.function
    }

    /// The device's name in slices and CDI files, `pci-0000-3b-00-0` (a DNS label).
    #[must_use]
    pub fn device_name(&self) -> String {
        let Self { domain, bus, device, function } = self;
        format!("pci-{domain:04x}-{bus:02x}-{device:02x}-{function:x}")
    }
}

impl PciAddress {
    /// The address in a device's name.
    #[must_use]
    pub fn from_device_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("pci-")?.split('-');
        let mut next = || parts.next();
        let text = format!("{}:{}:{}.{}", next()?, next()?, next()?, next()?);
        text.parse().ok().filter(|_| parts.next().is_none())
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl FromStr for PciAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (domain, rest) = text.split_once(':')?;
            let (bus, rest) = rest.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            let hex = |digits: &str, least: usize, most: usize| {
                let ok =
                    (least..=most).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
                ok.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
            };
            Some(Self {
                domain: hex(domain, 4, 8)?,
                bus: u8::try_from(hex(bus, 2, 2)?).ok()?,
                device: u8::try_from(hex(device, 2, 2)?).ok().filter(|device| *device < 32)?,
                function: u8::try_from(hex(function, 1, 1)?).ok().filter(|function| *function < 8)?,
            })
        };
        parse().ok_or_else(|| AddressError(text.to_owned()))
    }
}

impl Serialize for PciAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PciAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_is_numeric() {
        for (text, name) in [("0000:3b:00.0", "pci-0000-3b-00-0"), ("10000:01:1f.7", "pci-10000-01-1f-7")] {
            let address: PciAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.device_name(), name);
        }
        assert_eq!("00000000:3B:00.0".parse::<PciAddress>().unwrap().to_string(), "0000:3b:00.0");
    }

    #[test]
    fn other_strings_are_refused() {
        for text in
            ["", "3b:00.0", "0000:3b:00", "0000:3b:20.0", "0000:3b:00.8", "0000:3g:00.0", "+000:3b:00.0"]
        {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }
}
