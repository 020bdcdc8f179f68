//! The reset.

use super::failure;
use crate::pci::driver;
use crate::pci::reset::{self, NotReset};
use crate::pci::sysfs::Function;
use crate::types::Reset;
use crate::worker::{Code, Failure};

pub(super) fn reset(function: &Function, method: &str) -> Result<Reset, Failure> {
    let fail = |code, text: String| Failure { code, errno: None, text };
    // A sysfs reset succeeds under any driver and tells only those that ask to be told.
    match driver::bound(function).map_err(|error| failure(Code::Io, &error))? {
        None => {}
        Some(name) if name == "vfio-pci" => {}
        Some(name) => {
            return Err(fail(
                Code::Driver,
                format!(
                    "driver {name} is bound and would not be told of the reset; unbind it, or bind vfio-pci"
                ),
            ));
        }
    }
    reset::reset(function, method).map_err(|error| match error {
        NotReset::NoMethod { has } => {
            fail(Code::NoMethod, format!("the kernel has no reset method {method:?} for it, only {has:?}"))
        }
        NotReset::NotPinned(now) => {
            fail(Code::NoMethod, format!("reset_method was set to {method:?} and reads {now:?}"))
        }
        NotReset::NotReady => fail(Code::NotReady, "it does not answer after its reset".to_owned()),
        NotReset::Lost => fail(Code::Lost, "configuration space reads all ones after it".to_owned()),
        NotReset::Io(error) => failure(Code::Io, &error),
    })?;
    Ok(Reset { method: method.to_owned() })
}
