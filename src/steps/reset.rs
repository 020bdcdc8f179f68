//! The reset: through the kernel, or through config space by ourselves. Whatever it may lose lies in a journal while
//! it goes on.

use std::fs;
use std::time::Duration;

use super::{failure, unread};
use crate::pci::config_space::ConfigSpace;
use crate::pci::flr::{self, Limits, Mark, Plan};
use crate::pci::reset::{self, NotReset};
use crate::pci::saved::{Journal, Saved};
use crate::pci::sysfs::Function;
use crate::pci::{aer, driver};
use crate::types::{CONFIG_FLR, Reset};
use crate::worker::{Code, Failure, Order, ResetOrder};

/// A reset that did not end well.
struct Ended {
    failure: Failure,
    /// Whether the function is as it was found, so that its journal has done its service.
    whole: bool,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self { failure, whole: true }
    }
}

pub(super) fn reset(
    order: &Order,
    function: &Function,
    wanted: &ResetOrder,
    mark: Mark<'_>,
) -> Result<Reset, Failure> {
    let ours = wanted.method == CONFIG_FLR;
    let io = |error| failure(Code::Io, &error);
    // A reset through sysfs succeeds under any driver and tells only those that ask to be told; ours tells nobody.
    match driver::bound(function).map_err(io)? {
        None => {}
        Some(name) if name == "vfio-pci" && !ours => {}
        Some(name) => {
            let remedy = if ours { "unbind it" } else { "unbind it, or bind vfio-pci" };
            return Err(fail(
                Code::Driver,
                format!("driver {name} is bound and would not be told of the reset; {remedy}"),
            ));
        }
    }
    // It may have got them since it was inspected: a grant lasts for days.
    match function.optional("sriov_numvfs").map_err(io)?.as_deref() {
        None | Some("0") => {}
        Some(count) => {
            return Err(fail(
                Code::Unsupported,
                format!(
                    "it has {count} virtual functions enabled (sriov_numvfs), which a reset would take from whoever \
                     uses them"
                ),
            ));
        }
    }
    let journal = Journal::of(&order.run, order.address);
    let ready = Duration::from_millis(wanted.ready_ms);
    let mut saved = Saved::of(function, boot_id(order)?, ready).map_err(io)?;
    if let Ok(Some(left)) = journal.find() {
        // An earlier worker's pin that could not be taken off yet: what it found is what belongs there.
        saved.settings = left.settings;
    }
    journal.write(&saved).map_err(|error| unwritten(&journal, &error))?;
    let done = saved.keep_awake(function).map_err(|error| Ended::from(io(error))).and_then(|()| {
        if ours {
            let limits = Limits { ready, restore: Duration::from_millis(wanted.restore_ms) };
            by_ourselves(order, function, &journal, &mut saved, limits, mark)
        } else {
            by_kernel(function, wanted)
        }
    });
    if let Err(Ended { failure, whole: false }) = done {
        return Err(failure);
    }
    let put_back = saved.put_back(function).map_err(io);
    if put_back.is_ok() {
        journal.remove().map_err(|error| unwritten(&journal, &error))?;
    }
    done.map_err(|ended| ended.failure)?;
    put_back?;
    Ok(Reset { method: wanted.method.clone() })
}

fn by_kernel(function: &Function, wanted: &ResetOrder) -> Result<(), Ended> {
    let method = &wanted.method;
    let ready = Duration::from_millis(wanted.ready_ms);
    let result = reset::reset(function, method).and_then(|()| reset::ready(function, ready));
    result.map_err(|error| {
        Ended::from(match error {
            NotReset::NoMethod { has } => fail(
                Code::NoMethod,
                format!("the kernel has no reset method {method:?} for it, only {has:?}"),
            ),
            NotReset::NotPinned(now) => {
                fail(Code::NoMethod, format!("reset_method was set to {method:?} and reads {now:?}"))
            }
            NotReset::NotReady => fail(Code::NotReady, "it does not answer after its reset".to_owned()),
            NotReset::Lost => fail(Code::Lost, "configuration space reads all ones after it".to_owned()),
            NotReset::Io(error) => failure(Code::Io, &error),
        })
    })
}

fn by_ourselves(
    order: &Order,
    function: &Function,
    journal: &Journal,
    saved: &mut Saved,
    limits: Limits,
    mark: Mark<'_>,
) -> Result<(), Ended> {
    locked_down(order)?;
    let config = ConfigSpace::read(function).map_err(|error| unread(&error))?;
    let way = flr::way(function, &config)
        .map_err(|why| fail(Code::Unsupported, format!("no reset through its config space: {why}")))?;
    let config = saved.config.insert(config).clone();
    journal.write(saved).map_err(|error| unwritten(journal, &error))?;
    let plan = Plan { function, saved: &config, limits, clear_errors: aer::are_ours(&order.roots) };
    flr::reset(&plan, way, mark)
        .map_err(|error| Ended { whole: error.is_whole(), failure: not_reset(error, Code::Io) })
}

/// What is told of a reset that did not go well, or a repair; `io` is what an error of the system counts as.
pub(super) fn not_reset(error: flr::NotReset, io: Code) -> Failure {
    use flr::NotReset::{Differs, Ineffective, Io, NotReady, Pending, Unread, Untouched};
    match error {
        Untouched(error) | Io(error) => failure(io, &error),
        Pending => fail(
            Code::Pending,
            "transactions are pending and do not end; it was not reset, and everything is as it was"
                .to_owned(),
        ),
        Ineffective => fail(Code::Ineffective, "the reset returned and had reset nothing".to_owned()),
        NotReady => fail(Code::NotReady, "it does not answer after its reset".to_owned()),
        Differs(what) => fail(Code::ConfigLost, format!("its config space could not be restored: {what}")),
        Unread(error) => unread(&error),
    }
}

/// A kernel under lockdown refuses writes to config space one by one, in the middle too.
fn locked_down(order: &Order) -> Result<(), Failure> {
    let text = fs::read_to_string(order.roots.sys.join("kernel/security/lockdown")).unwrap_or_default();
    let mode = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match mode {
        None | Some("none") => Ok(()),
        Some(mode) => Err(fail(
            Code::Permission,
            format!(
                "kernel lockdown ({mode}) forbids a reset through config space; use the kernel's \"flr\""
            ),
        )),
    }
}

/// The boot that we run on.
pub(super) fn boot_id(order: &Order) -> Result<String, Failure> {
    let text = fs::read_to_string(order.roots.boot_id()).map_err(|error| failure(Code::Io, &error))?;
    Ok(text.trim().to_owned())
}

/// The journal's folder is the node's, not the device's.
pub(super) fn unwritten(journal: &Journal, error: &std::io::Error) -> Failure {
    let text = format!("the journal {} of its reset: {error}", journal.path().display());
    Failure { code: Code::Journal, errno: error.raw_os_error(), text }
}

fn fail(code: Code, text: String) -> Failure {
    Failure { code, errno: None, text }
}
