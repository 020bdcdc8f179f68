//! What is wrong with a policy file, in words: place, field, value, and what would be right.

use std::fmt::Write as _;

use serde_path_to_error::{Path, Segment};
use serde_saphyr::{Error, MessageFormatter as _, UserMessageFormatter};

use super::values::{LIBRARIES, RESET_METHODS};
use crate::types::Mode;

/// Of a value as much is shown.
const EXCERPT: usize = 40;

/// `:4:20: devices[0].match.vendor: "nvidia" is no PCI id: expected four hexadecimal digits, for example 10de`; `path`
/// is that of the value which could not be taken.
pub(super) fn problem(text: &str, error: &Error, path: Option<&Path>) -> String {
    let error = error.without_snippet();
    let mut words = String::new();
    if let Some(place) = error.location() {
        let _ = write!(words, ":{}:{}", place.line(), place.column());
    }
    words.push_str(": ");
    let mut fields = fields(path);
    if !fields.is_empty() {
        let path = path.map(Path::to_string).unwrap_or_default();
        // A key that is no field of any name.
        let _ = write!(words, "{}: ", path.trim_end_matches(".?"));
    }
    let what = what(text, error);
    words.push_str(&what);
    if let Error::SerdeMissingField { field, .. } = error {
        fields.push(field);
    }
    if !what.replace("unexpected", "").contains("expected") {
        let _ = write!(words, ": expected {}", right(&fields));
    }
    words
}

/// Names of fields, from the outermost; `[]` is a place in a list.
fn fields(path: Option<&Path>) -> Vec<&str> {
    path.map(Path::iter).into_iter().flatten().filter_map(name).collect()
}

fn name(segment: &Segment) -> Option<&str> {
    match segment {
        Segment::Map { key } => Some(key),
        Segment::Seq { .. } => Some("[]"),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}

fn what(text: &str, error: &Error) -> String {
    match error {
        Error::AliasError { error, .. } => what(text, error),
        Error::Eof { .. } => "it is empty".to_owned(),
        Error::SerdeMissingField { field, .. } => format!("field `{field}` is missing"),
        Error::NullIntoString { .. } => "it has no value".to_owned(),
        // In the parser's words these are events and types of Rust.
        Error::Unexpected { .. } | Error::InvalidScalar { .. } => match excerpt(text, error) {
            Some(value) => format!("{value:?} cannot stand here"),
            None => "it has no value".to_owned(),
        },
        Error::UnknownAnchor { .. } => "no anchor has this name: expected the value itself".to_owned(),
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("a key");
            format!("field `{key}` is given twice: expected it once")
        }
        Error::MultipleDocuments { .. } => {
            "another YAML document begins here: expected one NodePolicy a file".to_owned()
        }
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "too many nested values or aliases: expected a few rules, each written out".to_owned()
        }
        other => UserMessageFormatter.format_message(other).into_owned(),
    }
}

/// What stands where the error is.
fn excerpt(text: &str, error: &Error) -> Option<String> {
    let place = error.location()?;
    let line = text.lines().nth(usize::try_from(place.line()).ok()?.checked_sub(1)?)?;
    let from = usize::try_from(place.column()).ok()?.saturating_sub(1);
    let value: String = line.chars().skip(from).take(EXCERPT).collect();
    let mut value = value.trim_end();
    // What closes the list or mapping around it.
    for (opening, closing) in [('{', '}'), ('[', ']'), ('{', '}')] {
        while value.matches(closing).count() > value.matches(opening).count() && value.ends_with(closing) {
            value = value[..value.len() - 1].trim_end();
        }
    }
    (!value.is_empty() && !value.ends_with(':')).then(|| value.to_owned())
}

/// What a field takes.
fn right(fields: &[&str]) -> String {
    let time = "a number and a unit, for example 200ms, 2s or 1m 30s";
    let words = match fields {
        [.., "deadlines", _] => time,
        [.., "apiVersion"] => "cleanslate.dev/v1alpha1",
        [.., "kind"] => "NodePolicy",
        ["mode"] => "enforce, or observe, which looks at devices and touches none",
        [.., "devices", "[]"] => "a rule, for example {match: {vendor: \"10de\"}}",
        [.., "bars", "[]"] => "the number of a memory BAR, 0 to 5",
        [.., "devices"] => "a list of rules, for example [{match: {vendor: \"10de\"}}], or []",
        [.., "match"] => "at least one of vendor, class, address, for example {vendor: \"10de\"}",
        [.., "vendor" | "device"] => "four hexadecimal digits, for example 10de",
        [.., "class"] => "six hexadecimal digits, for example 120000",
        [.., "address"] => "DDDD:BB:DD.F in hexadecimal, for example 0000:3b:00.0",
        [.., "scrub"] => "bars, for example {bars: [0]}, or library, for example {library: nvidia}",
        [.., "bars"] => "the numbers of all memory BARs, 0 to 5, for example [0]",
        [.., "library"] => return one_of(&LIBRARIES),
        [.., "reset"] => return one_of(&RESET_METHODS),
        [.., "deadlines"] => "a time for each step, for example {reset: 10s}",
        [.., "minimumMode"] => return one_of(&Mode::ALL.map(Mode::as_str)),
        [.., "release"] => "a value for each field, for example {wait: 20s, retry: 5m}",
        [.., "attempts"] => "a number from 0 to 1000",
        [.., "wait" | "patience" | "retry" | "firstProofWithin"] => time,
        _ => "apiVersion: cleanslate.dev/v1alpha1, kind: NodePolicy and devices, a list of rules",
    };
    words.to_owned()
}

fn one_of(words: &[&str]) -> String {
    format!("one of {}", words.join(", "))
}
