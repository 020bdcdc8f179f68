//! The policy file, parsed into `types::Policy`.
//!
//! What it leaves open would make a device ours or weaken its cleaning, so nothing is guessed: unknown fields,
//! empty values and rules that say too little are refused.

mod file;
mod values;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde_saphyr::UserMessageFormatter;

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
    #[error("policy file {name}: {problem}")]
    Content {
        /// The file.
        name: String,
        /// What is wrong, what would be right, and the line and column.
        problem: String,
    },
}

/// Reads a policy file.
///
/// # Errors
/// When it cannot be read, or says something that is not allowed.
pub fn load(path: &Path) -> Result<Policy, ConfigError> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text))
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    if text.len() as u64 > LARGEST {
        return Err(ConfigError::TooLarge { path: path.to_owned() });
    }
    parse(&text, &path.display().to_string())
}

/// Parses the text of a policy file; `name` stands for it in errors.
///
/// # Errors
/// When it says something that is not allowed.
pub fn parse(text: &str, name: &str) -> Result<Policy, ConfigError> {
    let options = serde_saphyr::options! { with_snippet: false };
    match serde_saphyr::from_str_with_options::<file::NodePolicy>(text, options) {
        Ok(policy) => Ok(policy.into()),
        Err(error) => Err(ConfigError::Content {
            name: name.to_owned(),
            problem: error.render_with_formatter(&UserMessageFormatter),
        }),
    }
}

#[cfg(test)]
mod tests;
