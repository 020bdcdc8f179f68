//! Where claims are read: the API server, or a folder of claim files for nodes without one.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_saphyr::options::NonFiniteFloatPolicy;

use super::allocation::{self, AllocationError, Scope};
use crate::api::{ApiError, Client};
use crate::types::{Allocation, Claim, ClaimRef};

/// Of an object; etcd takes 1.5 MiB.
const LARGEST: u64 = 2 << 20;

/// Where claims are read.
#[derive(Clone, Debug)]
pub enum ClaimSource {
    /// Every `.yaml`, `.yml` and `.json` file of a folder, one claim a file.
    Folder(PathBuf),
    /// The API server.
    Api(Client),
}

/// A claim that could not be read or is not ours to prepare.
#[derive(Debug, thiserror::Error)]
#[error("claim {claim}: {problem}")]
pub struct FetchError {
    /// The claim as the kubelet names it.
    pub claim: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a claim.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// There is no such claim.
    #[error("not found in {place}")]
    NotFound {
        /// Where it was looked for.
        place: String,
    },
    /// No readable file holds it.
    #[error("not found in {}; not readable as a ResourceClaim there: {damaged}", folder.display())]
    Hidden {
        /// The folder.
        folder: PathBuf,
        /// Files that may hold it, with what is wrong with each.
        damaged: String,
    },
    /// Which claim is meant cannot be told.
    #[error("stands in both {} and {}: expected one file", first.display(), second.display())]
    Ambiguous {
        /// A file that holds it.
        first: PathBuf,
        /// Another.
        second: PathBuf,
    },
    /// The folder cannot be read.
    #[error("cannot read the folder of claim files {}: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its reader did not come to an end: a bug.
    #[error("the reader of claim files ended: {0}")]
    Reader(tokio::task::JoinError),
    /// The API server did not give it.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// It is there and not ours to prepare.
    #[error(transparent)]
    Unfit(#[from] AllocationError),
}

impl ClaimSource {
    /// Reads a claim and checks that its allocation is ours to prepare.
    ///
    /// # Errors
    /// When it cannot be read, or is not ours.
    pub async fn fetch(&self, claim: &ClaimRef, scope: &Scope) -> Result<Claim, FetchError> {
        let object = match self {
            Self::Folder(folder) => {
                let (folder, claim) = (folder.clone(), claim.clone());
                #[expect(
                    clippy::disallowed_methods,
                    reason = "a local folder, for debugging; on this thread a large one would delay other calls"
                )]
                let read = tokio::task::spawn_blocking(move || from_folder(&folder, &claim));
                read.await.unwrap_or_else(|error| Err(Problem::Reader(error)))
            }
            Self::Api(client) => from_api(client, claim).await,
        };
        object
            .and_then(|object| Ok(allocation::check(&object, claim, scope)?))
            .map_err(|problem| FetchError { claim: claim.to_string(), problem })
    }

    /// Whether this allocation is one that the claim has: `false` only where it was read that the claim is gone, or
    /// that it has none or another one now.
    pub async fn still_has(&self, claim: &ClaimRef, allocation: &Allocation, scope: &Scope) -> bool {
        match self.fetch(claim, scope).await {
            Ok(now) => now.allocation.is_same(allocation),
            Err(FetchError { problem: Problem::NotFound { .. }, .. }) => false,
            Err(FetchError { problem: Problem::Unfit(unfit), .. }) => !unfit.is_elsewhere(),
            Err(FetchError { .. }) => true,
        }
    }
}

async fn from_api(client: &Client, claim: &ClaimRef) -> Result<ResourceClaim, Problem> {
    let object = client.claim(&claim.namespace, &claim.name).await?;
    object.ok_or_else(|| Problem::NotFound { place: "the API server".to_owned() })
}

fn from_folder(folder: &Path, claim: &ClaimRef) -> Result<ResourceClaim, Problem> {
    let failed = |source| Problem::Folder { folder: folder.to_owned(), source };
    let mut found: Option<(PathBuf, ResourceClaim)> = None;
    let mut damaged = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        match is_claim_file(&path) {
            Ok(true) => {}
            Ok(false) => continue,
            // It may stand under another name now: that is no claim that is gone.
            Err(error) => {
                damaged.push(format!("{}: {error}", path.display()));
                continue;
            }
        }
        match read_claim(&path) {
            Ok(object) if is_called(&object, claim) => {
                if let Some((first, _)) = found {
                    return Err(Problem::Ambiguous { first, second: path });
                }
                found = Some((path, object));
            }
            // An empty file, for one.
            Ok(object) if object.metadata.name.is_none() => {
                damaged.push(format!("{}: it has no metadata.name", path.display()));
            }
            Ok(_) => {}
            Err(problem) => damaged.push(format!("{}: {problem}", path.display())),
        }
    }
    found.map(|(_, object)| object).ok_or_else(|| {
        damaged.sort_unstable();
        if damaged.is_empty() {
            Problem::NotFound { place: folder.display().to_string() }
        } else {
            Problem::Hidden { folder: folder.to_owned(), damaged: damaged.join("; ") }
        }
    })
}

/// Regular files only, also behind links: reading a pipe would never end.
fn is_claim_file(path: &Path) -> io::Result<bool> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    Ok(matches!(extension, Some("yaml" | "yml" | "json")) && fs::metadata(path)?.is_file())
}

fn read_claim(path: &Path) -> Result<ResourceClaim, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("it has more than {LARGEST} bytes, which no API server takes"));
    }
    let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
    // Parameters of other drivers may hold what JSON cannot; nobody reads them here.
    let options = serde_saphyr::options! {
        with_snippet: false,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
    };
    serde_saphyr::from_str_with_options(&text, options).map_err(|error| error.to_string())
}

fn is_called(object: &ResourceClaim, claim: &ClaimRef) -> bool {
    let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
    namespace == claim.namespace && object.metadata.name.as_deref() == Some(claim.name.as_str())
}

#[cfg(test)]
mod tests;
