//! What can be seen of a node, and waited for.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cleanslate::ledger::{ClaimView, DeviceView};
use cleanslate::observe::control::{self, Answer, Request};
use cleanslate::observe::status::Status;
use cleanslate::sim::{Counts, Fault};
use cleanslate::types::Token;

use super::{Node, PATIENCE, at};

impl Node {
    pub(crate) async fn status(&self) -> Status {
        let run = self.path("run");
        match control::call(&run, &Request::Status).await {
            Ok(Answer::Done(value)) => serde_json::from_value(value).unwrap(),
            other => panic!("{other:?}\n{}", self.told()),
        }
    }

    /// The same of a daemon that may die meanwhile; `None` once it is dead.
    pub(crate) async fn status_or_dead(&mut self) -> Option<Status> {
        loop {
            if let Ok(Answer::Done(value)) = control::call(&self.path("run"), &Request::Status).await {
                return Some(serde_json::from_value(value).unwrap());
            }
            if self.is_dead() {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Who the device is, as its record says.
    pub(crate) fn identity(&self, device: usize) -> String {
        let is_there = |name: &String| {
            let text = fs::read_to_string(self.path("state/devices").join(name)).unwrap();
            text.contains(&format!("\"address\":\"{}\"", at(device)))
        };
        let name = self.records("devices").into_iter().find(is_there).unwrap();
        name.trim_end_matches(".json").to_owned()
    }

    /// Waits until the status shows it.
    pub(crate) async fn until(&self, what: &str, shown: impl Fn(&Status) -> bool) -> Status {
        let begun = Instant::now();
        loop {
            let status = self.status().await;
            if shown(&status) {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "never: {what}\n{status:#?}\n{}", self.told());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for what the status does not show.
    pub(crate) async fn eventually(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < PATIENCE, "never: {what}\n{}", self.told());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until nothing is left to be cleaned, unless the daemon is dead.
    pub(crate) async fn settled_or_dead(&mut self) {
        let begun = Instant::now();
        while self.daemon.as_mut().unwrap().ended().is_none() && !self.records("releasing").is_empty() {
            assert!(begun.elapsed() < PATIENCE, "never settled\n{}", self.told());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until every device is free and proved on this boot.
    pub(crate) async fn proved(&self) -> Status {
        let proved = |status: &Status| {
            let devices = &status.ledger.devices;
            !devices.is_empty() && devices.iter().all(|device| device.schedulable && device.state == "free")
        };
        self.until("every device proved", proved).await
    }

    /// Waits until a worker does this step on the device.
    pub(crate) async fn in_step(&self, device: usize, step: &str) -> Status {
        let words = format!("{step} for");
        self.until(&words, |status| view(status, device).detail.contains(&words)).await
    }

    pub(crate) async fn device(&self, device: usize) -> DeviceView {
        view(&self.status().await, device).clone()
    }

    /// The last token issued for the device.
    pub(crate) async fn token(&self, device: usize) -> Token {
        self.device(device).await.token
    }

    pub(crate) fn counts(&self, device: usize) -> Counts {
        self.twin.counts(at(device)).unwrap()
    }

    pub(crate) fn fault(&self, device: usize, fault: Option<Fault>) {
        self.twin.set_fault(at(device), fault).unwrap();
    }

    /// A tenant's data in the device's memory.
    pub(crate) fn leave(&self, device: usize, data: &[u8]) {
        self.twin.leave(at(device), 4096, data).unwrap();
    }

    pub(crate) fn holds(&self, device: usize, data: &[u8]) -> bool {
        self.twin.memory(at(device)).unwrap().windows(data.len()).any(|window| window == data)
    }

    /// Path of a record.
    pub(crate) fn record(&self, folder: &str, name: &str) -> PathBuf {
        self.path("state").join(folder).join(format!("{name}.json"))
    }

    /// The records of a folder.
    pub(crate) fn records(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path("state").join(folder)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// The device of this number; of two cards that were in its slot, the one that was seen last.
pub(crate) fn view(status: &Status, device: usize) -> &DeviceView {
    status.ledger.devices.iter().find(|view| view.address == at(device)).unwrap()
}

pub(crate) fn claim_of<'a>(status: &'a Status, name: &str) -> Option<&'a ClaimView> {
    status.ledger.claims.iter().find(|claim| claim.record.claim.name == name)
}

/// One more of each.
pub(crate) fn more(counts: Counts, resets: u32, scrubs: u32) -> Counts {
    Counts { resets: counts.resets + resets, scrubs: counts.scrubs + scrubs }
}
