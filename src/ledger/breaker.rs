//! The breaker. Where many devices of a node fail alike, it is rarely the devices: a driver, a kernel, a power supply.
//! Quarantines would outlive the cause and evict every pod, so past a share of the node no more are raised. Nobody
//! gets such a device either: it has no proof.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::device::Device;
use super::{Ledger, State};
use crate::types::{Identity, Reason};

/// So many devices may always be in quarantine for one reason, however few the node has.
const FEW: usize = 2;
/// And one of so many.
const SHARE: usize = 4;

/// A quarantine that was not raised.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Withheld {
    /// Why it would have been.
    pub reason: Reason,
    /// What was seen.
    pub evidence: String,
    /// When.
    pub at: Timestamp,
    /// How many devices are in quarantine for the same reason.
    pub alike: usize,
}

impl Ledger {
    /// Whether a device failed and is not in quarantine for it, since too many others are.
    #[must_use]
    pub fn is_withheld(&self, identity: &Identity) -> bool {
        self.lock().withheld.contains_key(identity)
    }
}

impl State {
    /// How many devices are in quarantine for this reason, if one more is too many. Virtual functions fall with their
    /// parent, and count as one with it.
    pub(super) fn too_many(&self, identity: &Identity, reason: Reason) -> Option<usize> {
        let there = || self.devices.values().filter(|device| !device.kept.gone);
        let reason_of = |device: &Device| device.quarantine.as_ref().map(|quarantine| quarantine.reason);
        let is_out = self.devices.get(identity).is_some_and(|device| device.quarantine.is_some());
        let alike = there().filter(|device| reason_of(device) == Some(reason));
        let alike: BTreeSet<_> = alike.map(|device| device.identity.physical()).collect();
        let all: BTreeSet<_> = there().map(|device| device.identity.physical()).collect();
        let limit = FEW.max(all.len().div_ceil(SHARE));
        let is_one_more = !is_out && !alike.contains(identity.physical());
        (is_judged(reason) && is_one_more && alike.len() >= limit).then_some(alike.len())
    }
}

/// Whether a quarantine for this reason is a judgement of the device's working; the others are about whose it is.
fn is_judged(reason: Reason) -> bool {
    !matches!(reason, Reason::UnknownOwner | Reason::IdentityChanged | Reason::Operator)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Raised;
    use crate::types::{PciAddress, Token};

    fn node(devices: u8) -> (State, Vec<Identity>) {
        let mut state = State::default();
        let identities = (0..devices).map(|number| {
            let address: PciAddress = format!("0000:{number:02x}:00.0").parse().unwrap();
            let identity = Identity::from_address(address);
            let device = Device::new(identity.clone(), address, Token { term: 1, epoch: 1 });
            state.devices.insert(identity.clone(), device);
            identity
        });
        let identities = identities.collect();
        (state, identities)
    }

    fn fails(state: &mut State, identity: &Identity, reason: Reason) -> bool {
        !state.quarantine(identity, reason, String::new(), None, Raised::Elsewhere).is_empty()
    }

    #[test]
    fn two_or_a_quarter_of_the_node_and_no_more_for_one_reason() {
        for (devices, most) in [(1, 1), (2, 2), (3, 2), (8, 2), (9, 3), (16, 4), (17, 5)] {
            let (mut state, identities) = node(devices);
            let out = identities.iter().filter(|one| fails(&mut state, one, Reason::ResetTimeout)).count();
            assert_eq!(out, most, "{devices}");
            assert_eq!(state.withheld.len(), usize::from(devices) - most, "{devices}");
            let other = identities.iter().filter(|one| fails(&mut state, one, Reason::UnknownOwner)).count();
            assert_eq!(other, usize::from(devices), "whose it is, is never withheld");
        }
    }

    #[test]
    fn virtual_functions_count_as_one_with_their_parent() {
        let (mut state, identities) = node(3);
        let virtuals: Vec<_> = (0..3).map(|number| Identity::of_virtual(&identities[0], number)).collect();
        for (number, one) in virtuals.iter().enumerate() {
            let address: PciAddress = format!("0000:00:01.{number}").parse().unwrap();
            state.devices.insert(one.clone(), Device::new(one.clone(), address, Token { term: 1, epoch: 1 }));
        }
        for one in virtuals.iter().chain(&identities[..2]) {
            assert!(fails(&mut state, one, Reason::FellOffBus), "{one}");
        }
        assert!(!fails(&mut state, &identities[2], Reason::FellOffBus));
    }

    #[test]
    fn a_worse_reason_reaches_who_is_out_already_and_cards_that_are_gone_do_not_count() {
        let (mut state, identities) = node(4);
        for one in &identities[..2] {
            assert!(fails(&mut state, one, Reason::ScrubVerify));
        }
        assert!(!fails(&mut state, &identities[2], Reason::ScrubVerify));
        assert!(fails(&mut state, &identities[2], Reason::LinkDegraded) && state.withheld.is_empty());
        assert!(fails(&mut state, &identities[2], Reason::ScrubVerify), "it is out already");
        let reason = |state: &State| state.devices[&identities[2]].quarantine.as_ref().map(|q| q.reason);
        assert_eq!(reason(&state), Some(Reason::ScrubVerify));
        for one in &identities[..2] {
            state.devices.get_mut(one).unwrap().kept.gone = true;
        }
        assert!(fails(&mut state, &identities[3], Reason::ScrubVerify));
    }
}
