//! CDI files: what the container runtime injects for a prepared claim.
//!
//! They are derived from claim records and rebuilt at start, so they are written whole but never synced.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::types::{ClaimUid, PciAddress, Token};

const KIND: &str = "cleanslate.dev/claim";
const FILE_PREFIX: &str = "cleanslate.dev-claim-";
/// The lowest version in which a device's name may start with a digit, as a UID may.
const CDI_VERSION: &str = "0.5.0";

/// What stands in the CDI file of one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The claim.
    pub claim: ClaimUid,
    /// Its devices, in any order.
    pub devices: Vec<SpecDevice>,
}

/// One granted device as its container sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecDevice {
    /// Where it is; also gives its name.
    pub address: PciAddress,
    /// The lease that it was granted under.
    pub token: Token,
    /// Device nodes on the host, as recorded at the grant.
    pub nodes: Vec<PathBuf>,
}

/// A CDI file that could not be written, removed or looked for.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot {action} {}: {source}; --cdi must name a folder that we can write and that the container runtime \
     reads, /var/run/cdi by default",
    path.display()
)]
pub struct CdiError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The name that the kubelet passes on to the container runtime for a device of a claim.
#[must_use]
pub fn qualified_id(claim: &ClaimUid, device: &str) -> String {
    format!("{KIND}={claim}-{device}")
}

/// Writes a claim's file; the same spec gives the same bytes, whatever the order of its devices.
///
/// # Errors
/// When the folder cannot be made or written.
pub fn write(dir: &Path, spec: &Spec) -> Result<(), CdiError> {
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| CdiError { action, path, source }
    };
    // Two calls may repeat the answer of one claim at once, and its draft has one name.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    fs::create_dir_all(dir).map_err(failed("make the CDI folder", dir))?;
    let path = file_of(dir, &spec.claim);
    let temp = temp_of(dir, &spec.claim);
    let written = || {
        let mut file = File::create(&temp)?;
        // The umask has no say: the container runtime may run as somebody else.
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.write_all(&render(spec)?)
    };
    let placed = written()
        .map_err(failed("write the CDI file", &temp))
        .and_then(|()| fs::rename(&temp, &path).map_err(failed("put the CDI file in place at", &path)));
    if placed.is_err() {
        // Best effort: the claim's next file takes its place, and a start sweeps what stays.
        let _ = fs::remove_file(&temp);
    }
    placed
}

/// Removes a claim's file and what an interrupted write left of it; one that is not there is no error.
///
/// # Errors
/// When a file that is there cannot be removed.
pub fn remove(dir: &Path, claim: &ClaimUid) -> Result<(), CdiError> {
    for path in [file_of(dir, claim), temp_of(dir, claim)] {
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(CdiError { action: "remove the CDI file", path, source });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Claims that have a file of ours here, whole or half written; sorted.
///
/// # Errors
/// When the folder is there and cannot be read.
pub fn list(dir: &Path) -> Result<Vec<ClaimUid>, CdiError> {
    let failed = |source| CdiError { action: "list the CDI folder", path: dir.to_owned(), source };
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut claims = Vec::new();
    for entry in entries {
        claims.extend(entry.map_err(failed)?.file_name().to_str().and_then(claim_of));
    }
    claims.sort_unstable();
    claims.dedup();
    Ok(claims)
}

fn file_of(dir: &Path, claim: &ClaimUid) -> PathBuf {
    dir.join(format!("{FILE_PREFIX}{claim}.json"))
}

/// Not `.json`: container runtimes watch the folder and read what ends so.
fn temp_of(dir: &Path, claim: &ClaimUid) -> PathBuf {
    dir.join(format!("{FILE_PREFIX}{claim}.json.tmp"))
}

fn claim_of(file_name: &str) -> Option<ClaimUid> {
    let name = file_name.strip_suffix(".tmp").unwrap_or(file_name);
    let uid = name.strip_prefix(FILE_PREFIX)?.strip_suffix(".json")?;
    ClaimUid::try_from(uid.to_owned()).ok()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CdiFile<'a> {
    cdi_version: &'static str,
    kind: &'static str,
    devices: Vec<Device<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Device<'a> {
    name: String,
    container_edits: Edits<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Edits<'a> {
    env: [String; 1],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    device_nodes: Vec<Node<'a>>,
}

#[derive(Serialize)]
struct Node<'a> {
    path: &'a Path,
}

fn render(spec: &Spec) -> serde_json::Result<Vec<u8>> {
    let mut devices: Vec<_> = spec.devices.iter().collect();
    devices.sort_by_key(|device| device.address);
    let devices = devices.into_iter().map(|device| {
        let name = device.address.device_name();
        let variable = name.to_uppercase().replace('-', "_");
        Device {
            name: format!("{}-{name}", spec.claim),
            container_edits: Edits {
                env: [format!("CLEANSLATE_{variable}={},{}", device.address, device.token)],
                device_nodes: device.nodes.iter().map(|path| Node { path }).collect(),
            },
        }
    });
    let mut text = serde_json::to_vec_pretty(&CdiFile {
        cdi_version: CDI_VERSION,
        kind: KIND,
        devices: devices.collect(),
    })?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(text: &str) -> ClaimUid {
        ClaimUid::try_from(text.to_owned()).unwrap()
    }

    fn device(address: &str, epoch: u64, nodes: &[&str]) -> SpecDevice {
        SpecDevice {
            address: address.parse().unwrap(),
            token: Token { term: 7, epoch },
            nodes: nodes.iter().map(PathBuf::from).collect(),
        }
    }

    fn spec() -> Spec {
        let devices = vec![
            device("0000:5e:00.0", 4, &[]),
            device("0000:3b:00.0", 3, &["/dev/vfio/12", "/dev/vfio/vfio"]),
        ];
        Spec { claim: uid("3f1c-a"), devices }
    }

    #[test]
    fn a_file_says_what_was_granted() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("made/on/demand");
        write(&folder, &spec()).unwrap();
        let path = folder.join("cleanslate.dev-claim-3f1c-a.json");
        let seen: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let expected = serde_json::json!({
            "cdiVersion": "0.5.0",
            "kind": "cleanslate.dev/claim",
            "devices": [
                {"name": "3f1c-a-pci-0000-3b-00-0", "containerEdits": {
                    "env": ["CLEANSLATE_PCI_0000_3B_00_0=0000:3b:00.0,7.3"],
                    "deviceNodes": [{"path": "/dev/vfio/12"}, {"path": "/dev/vfio/vfio"}]}},
                {"name": "3f1c-a-pci-0000-5e-00-0", "containerEdits": {
                    "env": ["CLEANSLATE_PCI_0000_5E_00_0=0000:5e:00.0,7.4"]}},
            ],
        });
        assert_eq!(seen, expected);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
        assert_eq!(
            qualified_id(&uid("3f1c-a"), "pci-0000-3b-00-0"),
            "cleanslate.dev/claim=3f1c-a-pci-0000-3b-00-0"
        );
    }

    #[test]
    fn a_rebuild_is_byte_equal_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &spec()).unwrap();
        let path = file_of(dir.path(), &uid("3f1c-a"));
        let first = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        File::create(temp_of(dir.path(), &uid("3f1c-a"))).unwrap().write_all(&[b'x'; 4096]).unwrap();
        let mut other_order = spec();
        other_order.devices.reverse();
        write(dir.path(), &other_order).unwrap();
        assert_eq!(fs::read(&path).unwrap(), first);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn writers_of_one_claim_do_not_meet() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| write(dir.path(), &spec()).unwrap()));
            }
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn removal_is_idempotent_and_only_ours_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(list(&dir.path().join("absent")).unwrap(), []);
        for name in [
            "cleanslate.dev-claim-b.json",
            "cleanslate.dev-claim-a.json.tmp",
            "cleanslate.dev-claim-a.json",
            "cleanslate.dev-claim-.json",
            "cleanslate.dev-claim-a_b.json",
            "cleanslate.dev-claim-c.yaml",
            "nvidia.json",
        ] {
            File::create(dir.path().join(name)).unwrap();
        }
        assert_eq!(list(dir.path()).unwrap(), [uid("a"), uid("b")]);
        remove(dir.path(), &uid("a")).unwrap();
        remove(dir.path(), &uid("a")).unwrap();
        assert_eq!(list(dir.path()).unwrap(), [uid("b")]);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        // A process file system, since permissions do not stop root.
        let error = write(Path::new("/proc/self"), &spec()).unwrap_err().to_string();
        assert!(
            error.contains("cannot write the CDI file /proc/self/cleanslate.dev-claim-3f1c-a"),
            "{error}"
        );
        assert!(error.contains("--cdi must name a folder that we can write"), "{error}");
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = write(file.path(), &spec()).unwrap_err().to_string();
        assert!(error.contains("cannot make the CDI folder"), "{error}");
        assert!(list(file.path()).is_err() && remove(file.path(), &uid("a")).is_err());
    }
}
