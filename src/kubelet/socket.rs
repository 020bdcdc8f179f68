//! Names of our two sockets, and what dead instances left in their folders.
//!
//! The `@` is needed: the kubelet dials the registration socket with its path, percent-encoded, as HTTP/2
//! authority, and Rust's HTTP parser takes `%` only before an `@`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tracing::{info, warn};

use crate::unix::{LONGEST_PATH, Socket, SocketError, remove_stale};

const REGISTRATION_END: &str = "@reg.sock";
const SERVICE_END: &str = "@.sock";

/// Where our two sockets are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sockets {
    registry: PathBuf,
    folder: PathBuf,
    driver: String,
    registration: PathBuf,
    service: PathBuf,
}

/// Sockets that cannot be named or bound.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// The pod's UID is none.
    #[error(
        "--pod-uid {0:?} is no UID: expected 1 to 63 letters, digits and dashes, as in metadata.uid of the \
         pod"
    )]
    PodUid(String),
    /// A folder whose name the kubelet cannot dial.
    #[error(
        "the folder {} has an '@' in its name, which the kubelet's registration does not survive: expected \
         one without",
        .0.display()
    )]
    Folder(PathBuf),
    /// A path that has no absolute form, or no random name.
    #[error("cannot name the sockets in {}: {source}", folder.display())]
    Unnamed {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl Sockets {
    /// Names both sockets. Each instance has its own, by its pod's UID or else at random, so that an upgrade
    /// can start the new one beside the old one.
    ///
    /// # Errors
    /// When a part of the names cannot stand in them.
    pub fn new(
        registry: &Path,
        plugins: &Path,
        driver: &str,
        pod_uid: Option<&str>,
    ) -> Result<Self, NameError> {
        let absolute = |folder: &Path| {
            let unnamed = |source| NameError::Unnamed { folder: folder.to_owned(), source };
            let path = std::path::absolute(folder).map_err(unnamed)?;
            let plain = !path.as_os_str().as_encoded_bytes().contains(&b'@');
            if plain { Ok(path) } else { Err(NameError::Folder(path)) }
        };
        let registry = absolute(registry)?;
        let folder = absolute(&plugins.join(driver))?;
        let instance = match pod_uid {
            Some(uid) if is_uid(uid) => uid.to_owned(),
            Some(uid) => return Err(NameError::PodUid(uid.chars().take(80).collect())),
            None => {
                let mut random = [0; 8];
                getrandom::fill(&mut random).map_err(|error| NameError::Unnamed {
                    folder: registry.clone(),
                    source: std::io::Error::other(error.to_string()),
                })?;
                hex(&random)
            }
        };
        let short = digest(&[instance.as_bytes()], 8);
        let shortest = digest(&[driver.as_bytes(), b"\0", instance.as_bytes()], 16);
        let registration = first_that_fits(
            &registry,
            [format!("{driver}-{instance}"), format!("{driver}-{short}"), format!("dra-{shortest}")],
            REGISTRATION_END,
        );
        // With the longest driver name, 63 bytes, the kubelet's usual folder leaves room for six digits.
        let tiny = &short[..6];
        let service = first_that_fits(
            &folder,
            [format!("dra-{instance}"), format!("dra-{short}"), format!("dra-{tiny}")],
            SERVICE_END,
        );
        Ok(Self { registry, folder, driver: driver.to_owned(), registration, service })
    }

    /// The registration socket.
    #[must_use]
    pub fn registration(&self) -> &Path {
        &self.registration
    }

    /// The service socket, also what the kubelet is told to dial.
    #[must_use]
    pub fn service(&self) -> &Path {
        &self.service
    }

    /// Removes what dead instances left in both folders and listens on the service socket.
    ///
    /// # Errors
    /// When somebody answers there, or the folder cannot be used.
    pub fn bind_service(&self) -> Result<Socket, SocketError> {
        fs::create_dir_all(&self.folder).map_err(SocketError::io("make the folder", &self.folder))?;
        let _alone = self.lock()?;
        clean(&self.registry, &format!("{}-", self.driver), REGISTRATION_END);
        clean(&self.folder, "dra-", SERVICE_END);
        Socket::bind(&self.service)
    }

    /// Listens on the registration socket; from then on the kubelet calls.
    ///
    /// # Errors
    /// When somebody answers there, or the folder cannot be used.
    pub fn bind_registration(&self) -> Result<Socket, SocketError> {
        let _alone = self.lock()?;
        Socket::bind(&self.registration)
    }

    /// Between its bind and its listen a socket looks like a dead one, so one instance at a time binds or
    /// cleans.
    fn lock(&self) -> Result<File, SocketError> {
        let failed =
            || SocketError::io("lock, since another instance is starting this very moment,", &self.folder);
        let folder = File::open(&self.folder).map_err(SocketError::io("open the folder", &self.folder))?;
        folder.try_lock().map_err(|error| failed()(error.into()))?;
        Ok(folder)
    }
}

/// A stale socket in the registry makes the kubelet dial it again and again; none of them can stop our start.
fn clean(folder: &Path, start: &str, end: &str) {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    for name in names.filter_map(|name| name.into_string().ok()) {
        if !(name.starts_with(start) && name.ends_with(end)) {
            continue;
        }
        let path = folder.join(&name);
        match remove_stale(&path) {
            Ok(()) => info!(path = %path.display(), "stale socket removed"),
            Err(SocketError::Taken { .. }) => info!(path = %path.display(), "another instance is running"),
            Err(error) => warn!(%error, "stale socket kept"),
        }
    }
}

fn is_uid(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// The first path that the kernel takes, else the last one: binding it says what is wrong.
fn first_that_fits<const N: usize>(folder: &Path, names: [String; N], end: &str) -> PathBuf {
    let mut path = folder.to_owned();
    for name in names {
        path = folder.join(format!("{name}{end}"));
        if path.as_os_str().len() <= LONGEST_PATH {
            break;
        }
    }
    path
}

fn digest(parts: &[&[u8]], bytes: usize) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hex(&hash.finalize()[..bytes])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
