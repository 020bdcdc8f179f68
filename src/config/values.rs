//! The single values of the policy file; each refuses what it cannot be and says what it could.

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer};

use crate::types::CONFIG_FLR;

const LONGEST: Duration = Duration::from_secs(600);
/// The kubelet gives up after 45 s, and the call has more to do than to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(35);
/// The kernel's words, and ours.
const RESET_METHODS: [&str; 8] =
    ["device_specific", "acpi", "flr", "af_flr", "pm", "bus", "cxl_bus", CONFIG_FLR];
const LIBRARIES: [&str; 1] = ["nvidia"];

/// For optional fields: a field that is there has a value. A `null` (a line left unfinished) would otherwise
/// stand for "any device".
pub(super) fn present<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// A value that is written as one word and checked by a function of that word.
macro_rules! word {
    ($(#[$doc:meta])* $name:ident($inner:ty), $parse:expr) => {
        $(#[$doc])*
        #[derive(Deserialize)]
        #[serde(try_from = "String")]
        pub(super) struct $name(pub(super) $inner);

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                let parse: fn(&str) -> Result<$inner, String> = $parse;
                parse(&text).map(Self)
            }
        }
    };
}

word!(ApiVersion(()), |text| exactly("apiVersion", text, "cleanslate.dev/v1alpha1"));
word!(Kind(()), |text| exactly("kind", text, "NodePolicy"));
word!(Id(u16), |text| {
    let id = hex(text, 4).and_then(|id| u16::try_from(id).ok());
    id.ok_or_else(|| format!("{text:?} is no PCI id: expected four hexadecimal digits, for example 10de"))
});
word!(ClassId(u32), |text| {
    hex(text, 6).ok_or_else(|| {
        format!("{text:?} is no PCI class: expected six hexadecimal digits, for example 120000")
    })
});
word!(Library(String), |text| one_of("library", text, &LIBRARIES));
word!(ResetMethod(String), |text| one_of("reset method", text, &RESET_METHODS));
word!(
    /// A deadline.
    Limit(Duration),
    |text| duration(text, LONGEST)
);
word!(
    /// What happens within one call of the kubelet.
    Wait(Duration),
    |text| duration(text, LONGEST_WAIT)
);

word!(
    /// A span over which something is spread; zero is at once.
    Span(Duration),
    |text| if text.parse::<SignedDuration>().is_ok_and(|span| span.is_zero()) {
        Ok(Duration::ZERO)
    } else {
        duration(text, LONGEST)
    }
);

impl Default for ResetMethod {
    fn default() -> Self {
        Self("flr".to_owned())
    }
}

/// A BAR's number.
#[derive(Deserialize)]
#[serde(try_from = "i64")]
pub(super) struct Bar(pub(super) u8);

impl TryFrom<i64> for Bar {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        let bar = u8::try_from(number).ok().filter(|bar| *bar <= 5);
        bar.map(Self).ok_or_else(|| format!("there is no BAR {number}: expected 0 to 5"))
    }
}

/// How often a quarantined device may be tried again.
#[derive(Deserialize)]
#[serde(try_from = "i64")]
pub(super) struct Attempts(pub(super) u32);

impl TryFrom<i64> for Attempts {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        let attempts = u32::try_from(number).ok().filter(|attempts| *attempts <= 1000);
        attempts.map(Self).ok_or_else(|| {
            format!("attempts is {number}: expected 0 (only an operator ends a quarantine) to 1000")
        })
    }
}

fn exactly(field: &str, text: &str, right: &str) -> Result<(), String> {
    if text == right { Ok(()) } else { Err(format!("{field} is {text:?}: expected {right}")) }
}

fn one_of(thing: &str, text: &str, words: &[&str]) -> Result<String, String> {
    if words.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is no {thing} that we know: expected one of {}", words.join(", ")))
    }
}

fn hex(text: &str, digits: usize) -> Option<u32> {
    let bare = text.strip_prefix("0x").unwrap_or(text);
    let whole = bare.len() == digits && bare.bytes().all(|b| b.is_ascii_hexdigit());
    whole.then(|| u32::from_str_radix(bare, 16).ok()).flatten()
}

fn duration(text: &str, most: Duration) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok());
    parsed.filter(|span| !span.is_zero() && *span <= most).ok_or_else(|| {
        format!(
            "{text:?} is no time that is allowed here: expected a number and a unit, for example 200ms, 2s or \
             1m 30s, above zero and at most {} s",
            most.as_secs()
        )
    })
}
