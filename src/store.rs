//! Durable records: one folder a kind, one file a record, one thread that writes.
//!
//! ```text
//! <state>/store.json  devices/<identity>.json  claims/<uid>.json  releasing/<uid>.<grant>.json
//!         quarantine/<identity>.json  damaged/…  lock
//!
//! line 1  the record as JSON
//! line 2  CRC-32 of line 1, eight hexadecimal digits
//! ```
//!
//! A write is: temporary file, fsync, rename, fsync of the folder. Everything durable goes through the one
//! writer thread, so a fault injected there from outside covers every durable point.

mod encoding;
mod writer;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

pub use encoding::Damage;

/// How long a caller waits for the disk before it answers without it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The kinds of records, each a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Folder {
    /// What is known of a device: last epoch, last proof.
    Devices,
    /// Claims being prepared or granted.
    Claims,
    /// Former claims whose devices are not clean yet.
    Releasing,
    /// Devices in quarantine.
    Quarantine,
    /// Records that could not be read, kept for a person.
    Damaged,
}

impl Folder {
    const ALL: [Self; 5] = [Self::Devices, Self::Claims, Self::Releasing, Self::Quarantine, Self::Damaged];

    /// The folder's name below the state folder.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Claims => "claims",
            Self::Releasing => "releasing",
            Self::Quarantine => "quarantine",
            Self::Damaged => "damaged",
        }
    }
}

/// One durable change.
#[derive(Clone, Debug)]
pub enum Change {
    /// Write or replace a record.
    Put(Folder, String, serde_json::Value),
    /// Move a record to another folder, under another name; needs no space on the disk.
    Move((Folder, String), (Folder, String)),
    /// Remove a record; one that is not there is removed already.
    Remove(Folder, String),
}

impl Change {
    /// Which records it is about.
    fn records(&self) -> impl Iterator<Item = (Folder, &str)> {
        let (first, second) = match self {
            Self::Put(folder, name, _) | Self::Remove(folder, name) => ((*folder, name.as_str()), None),
            Self::Move((from, name), (to, new)) => ((*from, name.as_str()), Some((*to, new.as_str()))),
        };
        std::iter::once(first).chain(second)
    }
}

/// Why the store cannot be used or a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state folder cannot be made or opened.
    #[error("state folder {path}: {source}; it must be a writable folder on a local disk")]
    Folder {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another daemon works on this folder.
    #[error(
        "state folder {0} is in use by another cleanslate on this node (its lock is held): stop that one first"
    )]
    InUse(PathBuf),
    /// A record could not be written, moved or removed.
    #[error("record {record}: {source}")]
    Write {
        /// Folder and name.
        record: String,
        /// What the system said.
        source: io::Error,
    },
    /// The disk does not answer.
    #[error("the disk below the state folder has not answered for {} s", PATIENCE.as_secs())]
    Slow,
}

/// A record as it was found at start.
#[derive(Debug)]
pub struct Found {
    /// Its folder.
    pub folder: Folder,
    /// Its name without `.json`.
    pub name: String,
    /// What stands in it.
    pub content: Result<serde_json::Value, Damage>,
}

/// The state folder, locked for this process.
#[derive(Debug)]
pub struct Store {
    jobs: mpsc::UnboundedSender<writer::Job>,
    root: PathBuf,
    unwritten: Arc<AtomicUsize>,
}

/// What is on the disk at start.
#[derive(Debug)]
pub struct Contents {
    /// The store's own record; `None` at the first start.
    pub own: Option<Result<serde_json::Value, Damage>>,
    /// All other records.
    pub records: Vec<Found>,
}

impl Store {
    /// Locks the folder, reads every record and starts the writer thread.
    ///
    /// # Errors
    /// The folder cannot be made, written or read, or another process holds it.
    pub fn open(root: &Path) -> Result<(Self, Contents), StoreError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Folder { path, source }
        };
        for folder in Folder::ALL {
            let path = root.join(folder.name());
            fs::create_dir_all(&path).map_err(at(&path))?;
        }
        let lock_path = root.join("lock");
        let lock = File::options().create(true).append(true).open(&lock_path).map_err(at(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse(root.to_owned())),
            Err(TryLockError::Error(source)) => return Err(at(&lock_path)(source)),
        }
        let contents = Contents {
            own: encoding::read(&root.join("store.json")),
            records: encoding::read_all(root).map_err(at(root))?,
        };
        let unwritten = Arc::default();
        let jobs = writer::start(root.to_owned(), lock, Arc::clone(&unwritten)).map_err(at(root))?;
        Ok((Self { jobs, root: root.to_owned(), unwritten }, contents))
    }

    /// Makes the changes in their order, each synced before the next; stops at the first that fails.
    ///
    /// # Errors
    /// A change failed; those before it are made. Or an earlier change of the same record is still owed. [`StoreError::Slow`]: nobody knows yet, the writer goes on.
    pub async fn apply(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.send(writer::Work::Changes(changes)).await
    }

    /// Makes the changes in their order, now or as soon as the disk allows: no later change of the same records is
    /// made before them. Without changes it only tries once more what is owed.
    ///
    /// # Errors
    /// Something is owed. [`StoreError::Slow`]: nobody knows yet.
    pub async fn owe(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.send(writer::Work::Owed(changes)).await
    }

    /// How many changes are owed.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// Writes the store's own record.
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub async fn put_own(&self, value: serde_json::Value) -> Result<(), StoreError> {
        self.send(writer::Work::Own(value)).await
    }

    async fn send(&self, work: writer::Work) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        let gone = || StoreError::Write {
            record: self.root.display().to_string(),
            source: io::Error::other("the writer thread has ended"),
        };
        self.jobs.send(writer::Job { work, done }).map_err(|_| gone())?;
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(StoreError::Slow),
        }
    }
}

#[cfg(test)]
mod tests;
