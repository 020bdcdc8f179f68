//! The policy file, parsed into `types::Policy`.
//!
//! What it leaves open would make a device ours or weaken its cleaning, so nothing is guessed: unknown fields,
//! empty values and rules that say too little are refused.

mod file;
mod values;
mod words;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::types::Policy;

const LARGEST: u64 = 1 << 20;

/// A policy file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error(
        "cannot read the policy file {}: {source}; --policy must name a readable YAML or JSON file",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no policy.
    #[error(
        "policy file {}: larger than {LARGEST} bytes: expected a NodePolicy, which takes a few hundred a \
         rule",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// What stands in it is not allowed.
    #[error("policy file {name}{problem}")]
    Content {
        /// The file.
        name: String,
        /// `:<line>:<column>: `, the field, what is wrong and what would be right.
        problem: String,
    },
}

/// Reads a policy file.
///
/// # Errors
/// When it cannot be read, or says something that is not allowed.
pub fn load(path: &Path) -> Result<Policy, ConfigError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes))
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    if bytes.len() as u64 > LARGEST {
        return Err(ConfigError::TooLarge { path: path.to_owned() });
    }
    let name = path.display().to_string();
    match str::from_utf8(&bytes) {
        Ok(text) => parse(text, &name),
        Err(error) => {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
            let problem = format!(":{line}: {error}: expected YAML or JSON in UTF-8");
            Err(ConfigError::Content { name, problem })
        }
    }
}

/// Parses the text of a policy file; `name` stands for it in errors.
///
/// # Errors
/// When it says something that is not allowed.
pub fn parse(text: &str, name: &str) -> Result<Policy, ConfigError> {
    let options = serde_saphyr::options! { with_snippet: false };
    let mut path = None;
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |file| {
        serde_path_to_error::deserialize::<_, file::NodePolicy>(file).map_err(|error| {
            path = Some(error.path().clone());
            error.into_inner()
        })
    });
    read.map(Policy::from).map_err(|error| ConfigError::Content {
        name: name.to_owned(),
        problem: words::problem(text, &error, path.as_ref()),
    })
}

#[cfg(test)]
mod tests;
