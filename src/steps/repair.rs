//! What a worker left that was killed in the middle of a reset is put back before anything else is done.

use std::io;

use super::failure;
use super::reset::{boot_id, not_reset, unwritten};
use crate::pci::bar::{bars, misplaced};
use crate::pci::config_space::ConfigSpace;
use crate::pci::flr::{self, Limits, Mark, Plan};
use crate::pci::saved::Journal;
use crate::pci::sysfs::Function;
use crate::pci::{aer, driver};
use crate::types::StepName;
use crate::worker::{Code, Failure, Order};

/// Puts back what an earlier worker's journal says; what was done, for people.
pub(super) fn repair(order: &Order, function: &Function, mark: Mark<'_>) -> Result<Vec<String>, Failure> {
    let journal = Journal::of(&order.run, order.address);
    let saved = match journal.find() {
        Ok(None) => return Ok(Vec::new()),
        Ok(Some(saved)) => saved,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(lost(format!(
                "the journal {} of an unfinished reset is damaged ({error}), so nobody knows what to restore; \
                 reboot the node, or remove the file once the device is as it should be",
                journal.path().display()
            )));
        }
        Err(error) => return Err(unwritten(&journal, &error)),
    };
    // One that is not there now may come back as it was.
    if !function.exists() {
        return Ok(Vec::new());
    }
    let done = if saved.boot_id == boot_id(order)? {
        let config = saved.config.as_ref().map(|config| {
            let limits = Limits { ready: saved.ready, restore: StepName::Restore.default_deadline() };
            mark(Some(limits.section())).map_err(|error| failure(Code::Io, &error))?;
            let done = restore(order, function, config, limits);
            let _ = mark(None);
            done
        });
        let config = config.transpose()?;
        let settings = match saved.put_back(function) {
            Ok(put) => {
                (!put.is_empty()).then(|| format!("{} put back after an unfinished reset", put.join(", ")))
            }
            // The kernel takes no list for a device that reads all ones: that is for the probe to say.
            Err(error) => {
                let left = format!("an unfinished reset left settings that cannot be put back yet: {error}");
                return Ok(config.into_iter().chain([left]).collect());
            }
        };
        config.into_iter().chain(settings).collect()
    } else {
        vec!["a reset was not finished before the node rebooted, which has set everything up anew".to_owned()]
    };
    journal.remove().map_err(|error| unwritten(&journal, &error))?;
    Ok(done)
}

/// Restores config space where it is still this card's, and nobody has set it up anew since.
fn restore(
    order: &Order,
    function: &Function,
    before: &ConfigSpace,
    limits: Limits,
) -> Result<String, Failure> {
    let now = flr::awaited(function, limits.ready).map_err(not_mended)?;
    if (now.ids(), now.serial()) != (before.ids(), before.serial()) {
        return Ok("a reset was not finished, and another card is there now".to_owned());
    }
    let io = |error: io::Error| failure(Code::ConfigLost, &error);
    let bars = bars(function).map_err(io)?;
    let is_driven = driver::bound(function).map_err(io)?;
    if is_driven.is_some() || misplaced(&bars, before).is_some() {
        let who = is_driven.map_or_else(|| "the kernel".to_owned(), |driver| format!("driver {driver}"));
        return match misplaced(&bars, &now) {
            None => Ok(format!("a reset was not finished, and {who} has set the device up anew since")),
            Some((bar, register)) => Err(lost(format!(
                "a reset was not finished: BAR{} holds {register:#x} and belongs at {:#x}; {who} has touched the \
                 device since, so what was saved is not written back",
                bar.index, bar.start
            ))),
        };
    }
    let plan = Plan { function, saved: before, limits, clear_errors: aer::are_ours(&order.roots) };
    let registers = flr::mend(&plan).map_err(not_mended)?;
    Ok(format!("a reset was not finished: {registers} registers of config space restored"))
}

fn not_mended(error: flr::NotReset) -> Failure {
    let Failure { code, errno, text } = not_reset(error, Code::ConfigLost);
    // A card that comes back later can still be restored, so its quarantine is one that may be tried again.
    let code = match code {
        Code::NotReady | Code::Lost => Code::ConfigLost,
        code => code,
    };
    Failure { code, errno, text: format!("a reset was not finished, and what it took is not back: {text}") }
}

fn lost(text: String) -> Failure {
    Failure { code: Code::ConfigLost, errno: None, text }
}
