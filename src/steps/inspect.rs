//! Which functions there are, who answers at an address, and where it is.

use std::io;

use super::{failure, unread};
use crate::pci::config_space::ConfigSpace;
use crate::pci::sysfs::{self, Function};
use crate::pci::{bar, flr, link, place};
use crate::types::{BarView, Ids, Inspection, Parent, PciAddress, Place, Roots, VirtualOf};
use crate::worker::{Code, Failure, Order, Seen};

/// Every function by its cached attributes: right even when the device is dead, and never touching it.
pub(super) fn scan(roots: &Roots) -> Result<Vec<Seen>, Failure> {
    let addresses = sysfs::functions(roots).map_err(|error| failure(Code::Io, &error))?;
    let seen = addresses.into_iter().map(|address| {
        let ids = ids(&Function::at(roots, address)).map_err(|error| error.to_string());
        Seen { address, ids }
    });
    Ok(seen.collect())
}

fn ids(function: &Function) -> io::Result<Ids> {
    // Only what is a display has it. Unreadable is not "no": the node may live on it.
    let boot_display = match function.optional("boot_vga")?.as_deref() {
        None | Some("0") => false,
        Some("1") => true,
        Some(text) => return Err(sysfs::senseless("boot_vga", text, "0 or 1")),
    };
    let (vendor, device) = model(function)?;
    Ok(Ids { vendor, device, class: function.hex("class")?, boot_display })
}

/// Vendor and device id as the kernel has them.
fn model(function: &Function) -> io::Result<(u16, u16)> {
    let id = |attribute| {
        let wide = function.hex(attribute)?;
        u16::try_from(wide).map_err(|_| sysfs::senseless(attribute, &format!("{wide:#x}"), "16 bits"))
    };
    Ok((id("vendor")?, id("device")?))
}

/// Where functions are, of each what can be told.
pub(super) fn locate(roots: &Roots, addresses: &[PciAddress]) -> Vec<Result<Place, String>> {
    let of = |address: &PciAddress| place::of(roots, *address).map_err(|error| error.to_string());
    addresses.iter().map(of).collect()
}

pub(super) fn inspect(order: &Order, function: &Function) -> Result<Inspection, Failure> {
    let io = |error| failure(Code::Io, &error);
    let place = place::of(&order.roots, order.address).map_err(io)?;
    let parent = place.virtual_of.map(|of| parent(&order.roots, of)).transpose()?;
    let (vendor, device, serial, no_config_flr) = match parent {
        // It shows no ids of its own in its config space (PCIe 9.3.4.1).
        Some(_) => {
            let (vendor, device) = model(function).map_err(io)?;
            (vendor, device, None, Some("it is a virtual function".to_owned()))
        }
        None => {
            let config = ConfigSpace::read(function).map_err(|error| unread(&error))?;
            let (vendor, device) = config.ids();
            let found = model(function).map_err(io)?;
            // The policy was held against what the kernel found, maybe long ago.
            if found != (vendor, device) {
                let (was_vendor, was_device) = found;
                let text = format!(
                    "config: {vendor:04x}:{device:04x} answers, the kernel found {was_vendor:04x}:{was_device:04x} here"
                );
                return Err(Failure { code: Code::Io, errno: None, text });
            }
            (vendor, device, config.serial(), flr::way(function, &config).err())
        }
    };
    let bars = bar::bars(function).map_err(io)?;
    let view = |bar: bar::Bar| BarView { index: bar.index, size: bar.size, prefetchable: bar.prefetchable };
    // Absent where the kernel found no way to reset it.
    let methods = function.optional("reset_method").map_err(io)?.unwrap_or_default();
    let enabled = function.optional("sriov_numvfs").map_err(io)?;
    let number = |text: String| text.parse().map_err(|_| sysfs::senseless("sriov_numvfs", &text, "a number"));
    Ok(Inspection {
        vendor,
        device,
        serial,
        reset_methods: methods.split_whitespace().map(str::to_owned).collect(),
        bars: bars.into_iter().map(view).collect(),
        no_config_flr,
        parent,
        virtual_functions: enabled.map_or(Ok(0), number).map_err(io)?,
        place,
        link: link::view(function),
    })
}

/// Who the physical function is.
fn parent(roots: &Roots, VirtualOf { parent: address, number }: VirtualOf) -> Result<Parent, Failure> {
    let config = ConfigSpace::read(&Function::at(roots, address)).map_err(|error| {
        let Failure { code, errno, text } = unread(&error);
        Failure { code, errno, text: format!("its physical function {address}: {text}") }
    })?;
    let (vendor, device) = config.ids();
    Ok(Parent { address, vendor, device, serial: config.serial(), number })
}
