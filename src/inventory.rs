//! Which devices there are on this node, and which of them are ours.

mod known;
pub mod names;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore, watch};

use crate::ledger::Ledger;
use crate::proof::verdict::{Verdict, of_end};
use crate::types::{Deadline, Decision, DeviceRule, Identity, PciAddress, Policy, StepName};
use crate::worker::{Bench, Command, Outcome, Report, Seen};

pub use known::Known;
use known::{known, refuse_twins};

/// How long the list of functions may take.
const SCAN: Duration = Duration::from_secs(10);

/// Inspections at a time: each is a process, and its deadline runs from its start.
const AT_ONCE: usize = 16;

/// Why a device cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum NotOurs {
    /// Nothing of that name.
    #[error(
        "device {0} is not ours on this node: no PCI function at its address matches a rule of the policy"
    )]
    Unknown(String),
    /// It is ours by policy and cannot be identified.
    #[error("device {0} cannot be used: {1}")]
    Unreadable(String, String),
    /// The first scan has not ended.
    #[error("the devices of this node are still being read; the next try will find them")]
    Scanning,
    /// There is no list of functions.
    #[error("the devices of this node cannot be read: {0}")]
    Failed(String),
}

/// The devices of the node, by name.
#[derive(Debug)]
pub struct Inventory {
    bench: Bench,
    policy: Arc<Policy>,
    ledger: Arc<Ledger>,
    state: watch::Sender<State>,
    scanning: Mutex<()>,
}

/// What is known of a node's devices.
#[derive(Clone, Debug, Default)]
pub enum State {
    /// Nobody has looked yet.
    #[default]
    Unread,
    /// The list of functions could not be read, with why.
    Failed(String),
    /// Those that match the policy, by name; a device that could not be inspected with why.
    Read(BTreeMap<String, Result<Arc<Known>, String>>),
}

impl Inventory {
    /// An inventory that has not looked yet.
    #[must_use]
    pub fn new(bench: Bench, policy: Arc<Policy>, ledger: Arc<Ledger>) -> Self {
        Self { bench, policy, ledger, state: watch::Sender::new(State::Unread), scanning: Mutex::new(()) }
    }

    /// The device of this name; one that is not known is looked for once more.
    ///
    /// # Errors
    /// See [`NotOurs`].
    pub async fn find(&self, name: &str, deadline: Deadline) -> Result<Arc<Known>, NotOurs> {
        if let Some(Ok(known)) = self.lookup(name, deadline).await? {
            return Ok(known);
        }
        self.rescan().await;
        match self.lookup(name, deadline).await? {
            Some(Ok(known)) => Ok(known),
            Some(Err(why)) => Err(NotOurs::Unreadable(name.to_owned(), why)),
            None => Err(NotOurs::Unknown(name.to_owned())),
        }
    }

    async fn lookup(
        &self,
        name: &str,
        deadline: Deadline,
    ) -> Result<Option<Result<Arc<Known>, String>>, NotOurs> {
        let mut state = self.state.subscribe();
        let read = state.wait_for(|state| !matches!(state, State::Unread));
        let state = tokio::time::timeout_at(deadline.at().into(), read).await;
        match state.map_err(|_| NotOurs::Scanning)?.as_deref() {
            Ok(State::Read(known)) => Ok(known.get(name).cloned()),
            Ok(State::Failed(why)) => Err(NotOurs::Failed(why.clone())),
            Ok(State::Unread) | Err(_) => Err(NotOurs::Scanning),
        }
    }

    /// Signals every look.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Whether the policy only lets us look.
    #[must_use]
    pub fn observes(&self) -> bool {
        self.policy.observes()
    }

    /// Devices that are ours and can be worked on.
    #[must_use]
    pub fn usable(&self) -> Vec<Arc<Known>> {
        self.identified().into_iter().filter(|known| known.unsupported.is_none()).collect()
    }

    /// Devices that match the policy and are never granted as they are, with why.
    #[must_use]
    pub fn refused(&self) -> Vec<(String, String)> {
        match &*self.state.borrow() {
            State::Read(known) => known
                .iter()
                .filter_map(|(name, known)| match known {
                    Ok(known) => Some((name.clone(), known.unsupported.clone()?)),
                    Err(why) => Some((name.clone(), why.clone())),
                })
                .collect(),
            State::Unread => Vec::new(),
            State::Failed(why) => vec![("all devices".to_owned(), why.clone())],
        }
    }

    /// Why no device of this node is ours, where none is.
    #[must_use]
    pub fn nothing_ours(&self) -> Option<&'static str> {
        match &*self.state.borrow() {
            State::Read(known) if known.is_empty() => Some(if self.policy.devices.is_empty() {
                "there are no rules that could match one; --policy names the file with them"
            } else {
                "no PCI function matches a rule of the policy; `cleanslate policy explain all --policy FILE` says why"
            }),
            _ => None,
        }
    }

    /// Reads the node's devices anew. What the ledger has to know is told before anybody is.
    pub async fn rescan(&self) {
        let _one = self.scanning.lock().await;
        let outcome = self.bench.run(&[Command::Scan(self.bench.roots.clone())], Deadline::after(SCAN)).await;
        let seen = match outcome {
            Outcome::Done(Report::Scanned(seen)) => seen,
            other => {
                let why = match other {
                    Outcome::Failed(failure) => failure.text,
                    other => format!("{other:?}"),
                };
                tracing::error!(%why, "the list of PCI functions cannot be read");
                self.state.send_modify(|state| {
                    // What was known stays: a failed look says nothing about it.
                    if !matches!(state, State::Read(_)) {
                        *state = State::Failed(why);
                    }
                });
                return;
            }
        };
        let ours = seen.iter().filter_map(|seen| Some((seen, self.rule_for(seen)?)));
        let unread = seen.iter().filter_map(|seen| Some((seen.address, Err(self.unread(seen)?))));
        let before = self.identified();
        let turns = Semaphore::new(AT_ONCE);
        let inspections = ours.map(|(seen, rule)| async {
            let known = before.iter().find(|known| known.subject.address == seen.address);
            match known {
                // It is in somebody's hands: the probes of its holder watch over its identity.
                Some(known) if self.ledger.is_held(&known.subject.identity) => {
                    (seen.address, Ok(Arc::clone(known)))
                }
                _ => {
                    let _turn = turns.acquire().await;
                    (seen.address, self.inspect(seen.address, rule).await.or_else(|sick| sick.or(known)))
                }
            }
        });
        let mut known: BTreeMap<_, _> =
            futures_util::future::join_all(inspections).await.into_iter().chain(unread).collect();
        refuse_twins(&mut known);
        let mut written = true;
        for known in known.values().flatten() {
            if let Err(error) = self.ledger.found(&known.subject.identity, known.subject.address).await {
                tracing::error!(device = %known.subject.address, %error, "what its records say could not be written");
                written = false;
            }
        }
        if written {
            self.ledger.accounted().await;
        }
        let known = known.into_iter().map(|(address, known)| (address.device_name(), known));
        self.state.send_replace(State::Read(known.collect()));
    }

    /// Whether a device of ours could not be identified at the last look.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        match &*self.state.borrow() {
            State::Read(known) => known.values().any(Result::is_err),
            State::Unread | State::Failed(_) => true,
        }
    }

    /// Forgets who is at this address, so that the next look asks.
    pub fn forget(&self, address: PciAddress) {
        self.state.send_modify(|state| {
            if let State::Read(known) = state {
                known.remove(&address.device_name());
            }
        });
    }

    fn rule_for(&self, seen: &Seen) -> Option<&DeviceRule> {
        match &seen.ids {
            Ok(ids) => match self.policy.decide(seen.address, ids) {
                Decision::Ours(rule) => self.policy.devices.get(rule),
                Decision::Protected(_, what) => {
                    tracing::warn!(device = %seen.address, "the policy matches {what}; it is not ours without a rule that names it");
                    None
                }
                Decision::Foreign(_) => None,
            },
            Err(why) => {
                tracing::warn!(device = %seen.address, %why, "a function's ids cannot be read; it is not ours");
                None
            }
        }
    }

    /// Why a function that may be ours cannot be held against the policy.
    fn unread(&self, seen: &Seen) -> Option<String> {
        let why = seen.ids.as_ref().err()?;
        self.policy.may_mean(seen.address).then(|| format!("its ids cannot be read: {why}"))
    }

    /// Devices that match the policy, as they were last inspected.
    #[must_use]
    pub fn identified(&self) -> Vec<Arc<Known>> {
        match &*self.state.borrow() {
            State::Read(known) => known.values().flatten().cloned().collect(),
            State::Unread | State::Failed(_) => Vec::new(),
        }
    }

    async fn inspect(&self, address: PciAddress, rule: &DeviceRule) -> Result<Arc<Known>, Sick> {
        let deadline = Deadline::after(rule.deadline(StepName::Inspect));
        let orders = [self.bench.order(address, None, None), Command::Inspect];
        match self.bench.run(&orders, deadline).await {
            Outcome::Done(Report::Inspected(inspection)) => Ok(Arc::new(known(address, rule, &inspection))),
            other => Err(self.sick(address, &other).await),
        }
    }

    /// A device of ours that does not even say who it is: known by its last identity, and quarantined for what a
    /// proof would be.
    async fn sick(&self, address: PciAddress, outcome: &Outcome<Report>) -> Sick {
        let Verdict { claim, device, node, .. } = of_end(StepName::Inspect, outcome);
        let Some((reason, evidence)) = device else {
            let words = claim.or(node.map(|(fault, why)| format!("{fault}: {why}")));
            return Sick { words: words.unwrap_or_else(|| "it gave no inspection".to_owned()), bad: false };
        };
        let identity = self.ledger.at(address).unwrap_or_else(|| Identity::from_address(address));
        let _ = self.ledger.found(&identity, address).await;
        let class = reason.class();
        let _ = self.ledger.quarantine(&identity, reason, evidence.clone(), None).await;
        let words = if self.ledger.is_withheld(&identity) {
            format!("{evidence}; it would be in quarantine if not so many others were: {reason} ({class})")
        } else {
            format!("{evidence}; it is in quarantine: {reason} ({class})")
        };
        Sick { words, bad: true }
    }
}

/// A device that could not be identified.
struct Sick {
    words: String,
    /// It is the device's fault; else it may be the same that it was.
    bad: bool,
}

impl Sick {
    fn or(self, before: Option<&Arc<Known>>) -> Result<Arc<Known>, String> {
        match before {
            Some(known) if !self.bad => Ok(Arc::clone(known)),
            _ => Err(self.words),
        }
    }
}
