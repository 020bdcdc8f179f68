//! The one thread that writes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};

use super::encoding::encode;
use super::{Change, Folder, StoreError};

/// What the thread is asked to do.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) done: oneshot::Sender<Result<(), StoreError>>,
}

pub(super) enum Work {
    /// Now or not at all.
    Changes(Vec<Change>),
    /// Now, or as soon as the disk allows.
    Owed(Vec<Change>),
    Own(serde_json::Value),
}

/// Starts the thread; it keeps the lock until the last sender is gone, and says how many changes it owes.
pub(super) fn start(
    root: PathBuf,
    lock: File,
    unwritten: Arc<AtomicUsize>,
) -> io::Result<mpsc::UnboundedSender<Job>> {
    let (jobs, mut inbox) = mpsc::unbounded_channel::<Job>();
    std::thread::Builder::new().name("store".to_owned()).spawn(move || {
        let _lock = lock;
        let mut debts = Debts::default();
        while let Some(job) = inbox.blocking_recv() {
            let result = debts.work(&root, job.work);
            unwritten.store(debts.0.iter().map(Vec::len).sum(), Ordering::Relaxed);
            // A caller that no longer waits has answered already; the change is made all the same.
            let _ = job.done.send(result);
        }
    })?;
    Ok(jobs)
}

/// Changes that failed, in their order. No later change of a record is made before an earlier one: that one would
/// undo it.
#[derive(Default)]
struct Debts(Vec<Vec<Change>>);

impl Debts {
    fn work(&mut self, root: &Path, work: Work) -> Result<(), StoreError> {
        let paid = self.pay(root);
        match (work, paid) {
            (Work::Changes(changes), Err(error)) if self.stand_before(&changes) => Err(error),
            (Work::Changes(changes), _) => changes.iter().try_for_each(|change| make(root, change)),
            (Work::Owed(changes), paid) => {
                self.0.push(changes);
                paid.and(self.pay(root))
            }
            (Work::Own(value), _) => put(root, "store", &value).map_err(named("store".to_owned())),
        }
    }

    /// Tries each once more, but those that have to wait for an earlier one; the first failure.
    fn pay(&mut self, root: &Path) -> Result<(), StoreError> {
        let mut result = Ok(());
        for mut changes in std::mem::take(&mut self.0) {
            while let Some(change) = changes.first() {
                if self.stand_before(&changes) {
                    break;
                }
                if let Err(error) = make(root, change) {
                    result = result.and(Err(error));
                    break;
                }
                changes.remove(0);
            }
            if !changes.is_empty() {
                self.0.push(changes);
            }
        }
        result
    }

    fn stand_before(&self, changes: &[Change]) -> bool {
        let records: Vec<_> = changes.iter().flat_map(Change::records).collect();
        self.0.iter().flatten().flat_map(Change::records).any(|record| records.contains(&record))
    }
}

fn named(record: String) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Write { record, source }
}

fn make(root: &Path, change: &Change) -> Result<(), StoreError> {
    let label = |folder: Folder, name: &str| format!("{}/{name}", folder.name());
    match change {
        Change::Put(folder, name, value) => {
            put(&root.join(folder.name()), name, value).map_err(named(label(*folder, name)))
        }
        Change::Move((from, name), (to, new)) => {
            rename(root, (*from, name), (*to, new)).map_err(named(label(*from, name)))
        }
        Change::Remove(folder, name) => {
            remove(&root.join(folder.name()), name).map_err(named(label(*folder, name)))
        }
    }
}

fn put(folder: &Path, name: &str, value: &serde_json::Value) -> io::Result<()> {
    let temporary = folder.join(format!("{name}.tmp"));
    let written = write_synced(&temporary, &encode(value))
        .and_then(|()| fs::rename(&temporary, folder.join(format!("{name}.json"))));
    if written.is_err() {
        // Best effort: the next start sweeps what stays.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    sync_folder(folder)
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn rename(root: &Path, from: (Folder, &str), to: (Folder, &str)) -> io::Result<()> {
    let path = |(folder, name): (Folder, &str)| root.join(folder.name()).join(format!("{name}.json"));
    match fs::rename(path(from), path(to)) {
        // Made already, by a try whose sync failed; or a person removed the record, which nothing can make up for.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if !path(to).exists() {
                tracing::error!(record = %path(from).display(), "a record has vanished from the state folder");
            }
        }
        renamed => renamed?,
    }
    sync_folder(&root.join(to.0.name()))?;
    sync_folder(&root.join(from.0.name()))
}

fn remove(folder: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(folder.join(format!("{name}.json"))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_folder(folder),
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
