//! The journal of a reset: what it may lose, as it was before, synced in the run folder until it has been put back.
//! A worker that does not live to do that leaves it for the next one.
//!
//! ```text
//!   <run>/<address>.saved    line of JSON: settings, bytes of config space n │ n bytes │ CRC-32 of all before, 4 bytes
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::config_space::ConfigSpace;
use super::sysfs::Function;
use crate::types::PciAddress;

/// Settings of the kernel that a reset changes for its time.
const SETTINGS: [&str; 3] = ["reset_method", "power/control", "d3cold_allowed"];
/// More than any journal.
const LARGEST: u64 = 64 << 10;

/// What was saved.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The boot on which it was: another one has set everything up anew.
    pub boot_id: String,
    /// How long the function may take to answer.
    pub ready: Duration,
    /// Each setting that there was, with its value.
    pub settings: Vec<(String, String)>,
    /// Its configuration space, once a reset of our own may begin; the kernel restores after its own.
    pub config: Option<ConfigSpace>,
}

/// The line of JSON. Fields are only added.
#[derive(Serialize, Deserialize)]
struct Head {
    boot_id: String,
    ready_ms: u64,
    settings: Vec<(String, String)>,
    config_bytes: usize,
}

/// The journal of one function.
#[derive(Clone, Debug)]
pub struct Journal {
    run: PathBuf,
    path: PathBuf,
}

impl Saved {
    /// The settings as they are now.
    ///
    /// # Errors
    /// One is there and cannot be read.
    pub fn of(function: &Function, boot_id: String, ready: Duration) -> io::Result<Self> {
        let mut settings = Vec::new();
        for name in SETTINGS {
            match function.text(name) {
                Ok(value) => settings.push((name.to_owned(), value)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { boot_id, ready, settings, config: None })
    }

    /// Makes sure that the function does not fall asleep: what it holds would be lost.
    ///
    /// # Errors
    /// A setting cannot be written.
    pub fn keep_awake(&self, function: &Function) -> io::Result<()> {
        for (name, awake) in [("power/control", "on"), ("d3cold_allowed", "0")] {
            if self.settings.iter().any(|(had, value)| had == name && value != awake) {
                function.set(name, awake)?;
            }
        }
        Ok(())
    }

    /// Puts the settings back that are other now; which.
    ///
    /// # Errors
    /// One cannot be read or written.
    pub fn put_back(&self, function: &Function) -> io::Result<Vec<String>> {
        let mut put = Vec::new();
        for (name, value) in &self.settings {
            if function.text(name)? != *value {
                function.set(name, value)?;
                put.push(name.clone());
            }
        }
        Ok(put)
    }

    fn encode(&self) -> io::Result<Vec<u8>> {
        let config = self.config.as_ref().map_or(&[][..], ConfigSpace::bytes);
        let head = Head {
            boot_id: self.boot_id.clone(),
            ready_ms: u64::try_from(self.ready.as_millis()).map_err(io::Error::other)?,
            settings: self.settings.clone(),
            config_bytes: config.len(),
        };
        let mut bytes = serde_json::to_vec(&head)?;
        bytes.push(b'\n');
        bytes.extend_from_slice(config);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        Ok(bytes)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(body).to_le_bytes() != *crc {
            return None;
        }
        let end = body.iter().position(|byte| *byte == b'\n')?;
        let (line, config) = (body.get(..end)?, body.get(end + 1..)?);
        let head: Head = serde_json::from_slice(line).ok()?;
        if head.config_bytes != config.len() {
            return None;
        }
        let config = match config {
            [] => None,
            bytes => Some(ConfigSpace::from_bytes(bytes.to_vec())?),
        };
        let ready = Duration::from_millis(head.ready_ms);
        Some(Self { boot_id: head.boot_id, ready, settings: head.settings, config })
    }
}

impl Journal {
    /// Where a function's journal is, or would be.
    #[must_use]
    pub fn of(run: &Path, address: PciAddress) -> Self {
        Self { run: run.to_owned(), path: run.join(format!("{address}.saved")) }
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it, whole or not at all, and returns once it lasts.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, saved: &Saved) -> io::Result<()> {
        let draft = self.path.with_extension("draft");
        let mut file = File::create(&draft)?;
        file.write_all(&saved.encode()?)?;
        file.sync_all()?;
        fs::rename(&draft, &self.path)?;
        File::open(&self.run)?.sync_all()
    }

    /// What an earlier worker left; `None`: nothing.
    ///
    /// # Errors
    /// It cannot be read, or is damaged (`InvalidData`).
    pub fn find(&self) -> io::Result<Option<Saved>> {
        let length = match fs::metadata(&self.path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "its sum is wrong");
        if length > LARGEST {
            return Err(damaged());
        }
        Saved::decode(&fs::read(&self.path)?).map(Some).ok_or_else(damaged)
    }

    /// Removes it. It need not last: who finds it again finds nothing to put back.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(config: Option<Vec<u8>>) -> Saved {
        Saved {
            boot_id: "boot".to_owned(),
            ready: Duration::from_secs(5),
            settings: vec![("reset_method".to_owned(), "flr bus".to_owned())],
            config: config.and_then(ConfigSpace::from_bytes),
        }
    }

    #[test]
    fn what_is_written_is_found() {
        let run = tempfile::tempdir().unwrap();
        let journal = Journal::of(run.path(), "0000:3b:00.0".parse().unwrap());
        assert!(journal.find().unwrap().is_none());
        // A newline among the bytes is no end of the line.
        for config in [None, Some(vec![b'\n'; 256]), Some((0..=255).cycle().take(4096).collect())] {
            let saved = saved(config);
            journal.write(&saved).unwrap();
            let found = journal.find().unwrap().unwrap();
            assert_eq!((&found.boot_id, &found.settings), (&saved.boot_id, &saved.settings));
            assert_eq!(
                found.config.map(|it| it.bytes().to_vec()),
                saved.config.map(|it| it.bytes().to_vec())
            );
        }
        journal.remove().unwrap();
        assert!(journal.find().unwrap().is_none());
    }

    #[test]
    fn a_damaged_journal_is_told_from_none() {
        let run = tempfile::tempdir().unwrap();
        let journal = Journal::of(run.path(), "0000:3b:00.0".parse().unwrap());
        journal.write(&saved(Some(vec![7; 4096]))).unwrap();
        let whole = fs::read(journal.path()).unwrap();
        let mut cases: Vec<Vec<u8>> = (0..whole.len()).step_by(64).map(|end| whole[..end].to_vec()).collect();
        cases.extend((0..whole.len()).step_by(97).map(|at| {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            flipped
        }));
        for case in cases {
            File::create(journal.path()).unwrap().write_all(&case).unwrap();
            assert_eq!(
                journal.find().unwrap_err().kind(),
                io::ErrorKind::InvalidData,
                "{} bytes",
                case.len()
            );
        }
    }
}
