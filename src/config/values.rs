//! The single values of the policy file; each refuses what it cannot be and says what it could.

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer};

use crate::types::{CONFIG_FLR, Mode, NodeMode, StepName};

const LONGEST: Duration = Duration::from_secs(600);
/// The kubelet gives up after 45 s, and the call has more to do than to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(35);
/// The kernel's words, and ours.
pub(super) const RESET_METHODS: [&str; 8] =
    ["device_specific", "acpi", "flr", "af_flr", "pm", "bus", "cxl_bus", CONFIG_FLR];
pub(super) const LIBRARIES: [&str; 1] = ["nvidia"];

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

word!(ApiVersion(()), |text| exactly(text, "cleanslate.dev/v1alpha1"));
word!(Kind(()), |text| exactly(text, "NodePolicy"));
word!(RunMode(NodeMode), |text| match text {
    "enforce" => Ok(NodeMode::Enforce),
    "observe" => Ok(NodeMode::Observe),
    _ => Err(format!("{text:?} is no mode that we know")),
});

impl Default for RunMode {
    fn default() -> Self {
        Self(NodeMode::Enforce)
    }
}

word!(Id(u16), |text| {
    let id = hex(text, 4).and_then(|id| u16::try_from(id).ok());
    id.ok_or_else(|| format!("{text:?} is no PCI id"))
});
word!(ClassId(u32), |text| { hex(text, 6).ok_or_else(|| format!("{text:?} is no PCI class")) });
word!(Library(String), |text| one_of("library", text, &LIBRARIES));
word!(ResetMethod(String), |text| one_of("reset method", text, &RESET_METHODS));
word!(
    /// How the memory must be verified at least.
    LeastMode(Mode),
    |text| {
        let mode = Mode::ALL.into_iter().find(|mode| mode.as_str() == text);
        mode.ok_or_else(|| format!("{text:?} is no mode that we know"))
    }
);
word!(
    /// A step with a deadline of its own.
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    Step(StepName),
    |text| {
        let step = StepName::ALL.into_iter().find(|step| step.as_str() == text);
        let all = StepName::ALL.map(StepName::as_str).join(", ");
        step.ok_or_else(|| format!("{text:?} is no step: expected one of {all}"))
    }
);
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
    |text| span(text, LONGEST).ok_or_else(|| no_time(text, "zero or more,", LONGEST))
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
            format!(
                "{number} is too few or too many: expected 0 (only an operator ends a quarantine) to 1000"
            )
        })
    }
}

fn exactly(text: &str, right: &str) -> Result<(), String> {
    if text == right { Ok(()) } else { Err(format!("{text:?} is none that we know: expected {right}")) }
}

fn one_of(thing: &str, text: &str, words: &[&str]) -> Result<String, String> {
    if words.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is no {thing} that we know"))
    }
}

fn hex(text: &str, digits: usize) -> Option<u32> {
    let bare = text.strip_prefix("0x").unwrap_or(text);
    let whole = bare.len() == digits && bare.bytes().all(|b| b.is_ascii_hexdigit());
    whole.then(|| u32::from_str_radix(bare, 16).ok()).flatten()
}

fn duration(text: &str, most: Duration) -> Result<Duration, String> {
    span(text, most).filter(|span| !span.is_zero()).ok_or_else(|| no_time(text, "above zero and", most))
}

fn span(text: &str, most: Duration) -> Option<Duration> {
    let span = text.parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok());
    span.filter(|span| *span <= most)
}

fn no_time(text: &str, least: &str, most: Duration) -> String {
    format!(
        "{text:?} is no time that is allowed here: expected a number and a unit, for example 200ms, 2s or 1m 30s, \
         {least} at most {} s",
        most.as_secs()
    )
}
