//! Which functions there are, and who answers at an address.

use super::{failure, unread};
use crate::pci::config_space::ConfigSpace;
use crate::pci::sysfs::{self, Function};
use crate::pci::{bar, driver, flr, place};
use crate::types::{BarView, Ids, Inspection, Roots};
use crate::worker::{Code, Failure, Seen};

/// Every function by its cached attributes: right even when the device is dead, and never touching it.
pub(super) fn scan(roots: &Roots) -> Result<Vec<Seen>, Failure> {
    let addresses = sysfs::functions(roots).map_err(|error| failure(Code::Io, &error))?;
    let seen = addresses.into_iter().map(|address| {
        let function = Function::at(roots, address);
        let ids = || {
            let id = |attribute| function.hex(attribute);
            let id16 = |attribute| {
                let wide = id(attribute)?;
                u16::try_from(wide).map_err(|_| {
                    std::io::Error::other(format!("{attribute} {wide:#x} has more than 16 bits"))
                })
            };
            // Absent on everything that is no display.
            let boot_display = function.text("boot_vga").is_ok_and(|text| text == "1");
            Ok::<_, std::io::Error>(Ids {
                vendor: id16("vendor")?,
                device: id16("device")?,
                class: id("class")?,
                boot_display,
            })
        };
        Seen { address, ids: ids().map_err(|error| error.to_string()) }
    });
    Ok(seen.collect())
}

pub(super) fn inspect(function: &Function) -> Result<Inspection, Failure> {
    let config = ConfigSpace::read(function).map_err(|error| unread(&error))?;
    let (vendor, device) = config.ids();
    let io = |error| failure(Code::Io, &error);
    let bars = bar::bars(function).map_err(io)?;
    let view = |bar: bar::Bar| BarView { index: bar.index, size: bar.size, prefetchable: bar.prefetchable };
    Ok(Inspection {
        vendor,
        device,
        serial: config.serial(),
        driver: driver::bound(function).map_err(io)?,
        // Absent where the kernel found no way to reset it.
        reset_methods: function
            .text("reset_method")
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        bars: bars.into_iter().map(view).collect(),
        no_config_flr: flr::way(function, &config).err(),
        numa_node: place::numa_node(function),
        pcie_root: place::root(function),
    })
}
