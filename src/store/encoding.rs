//! Two lines a record: JSON and its checksum.

use std::fs;
use std::io;
use std::path::Path;

use super::{Folder, Found};

/// Why a record cannot be believed.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// It cannot be read at all.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is not two whole lines.
    #[error("is not two lines, a record and its checksum")]
    Shape,
    /// The checksum is another.
    #[error("has checksum {found}, its text has {computed}")]
    Checksum {
        /// What line 2 says.
        found: String,
        /// What line 1 amounts to.
        computed: String,
    },
    /// It is about something else than its file's name says.
    #[error("is about something else than the file's name says")]
    Name,
    /// The text is no record of its kind.
    #[error("is no valid record: {0}")]
    Json(#[from] serde_json::Error),
}

/// The bytes of a record.
pub(super) fn encode(value: &serde_json::Value) -> Vec<u8> {
    let text = value.to_string();
    let sum = crc32fast::hash(text.as_bytes());
    format!("{text}\n{sum:08x}\n").into_bytes()
}

/// The record in these bytes.
pub(super) fn decode(bytes: &[u8]) -> Result<serde_json::Value, Damage> {
    let text = std::str::from_utf8(bytes).map_err(|_| Damage::Shape)?;
    let (record, rest) = text.split_once('\n').ok_or(Damage::Shape)?;
    let found = rest.strip_suffix('\n').filter(|sum| sum.len() == 8).ok_or(Damage::Shape)?;
    let computed = format!("{:08x}", crc32fast::hash(record.as_bytes()));
    if found != computed {
        return Err(Damage::Checksum { found: found.to_owned(), computed });
    }
    Ok(serde_json::from_str(record)?)
}

/// The record in a file; `None` where there is no file.
pub(super) fn read(path: &Path) -> Option<Result<serde_json::Value, Damage>> {
    match fs::read(path) {
        Ok(bytes) => Some(decode(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(error.into())),
    }
}

/// Every record below the root, in a stable order. What a crash left unfinished is swept out.
pub(super) fn read_all(root: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for folder in Folder::ALL.into_iter().filter(|folder| *folder != Folder::Damaged) {
        for entry in fs::read_dir(root.join(folder.name()))? {
            let path = entry?.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => {
                    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                    if let Some(content) = read(&path) {
                        found.push(Found { folder, name, content });
                    }
                }
                Some("tmp") => fs::remove_file(&path)?,
                _ => {}
            }
        }
    }
    found.sort_by(|a, b| (a.folder, &a.name).cmp(&(b.folder, &b.name)));
    Ok(found)
}
