//! The shape of the policy file, `cleanslate.dev/v1alpha1` `NodePolicy`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::values::{
    ApiVersion, Attempts, Bar, ClassId, Id, Kind, LeastMode, Library, Limit, ResetMethod, RunMode, Span,
    Step, Wait, present,
};
use crate::types::{DeviceRule, MatchRule, Mode, PciAddress, Policy, ReleasePolicy, ScrubRule};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "a NodePolicy")]
pub(super) struct NodePolicy {
    #[serde(rename = "apiVersion")]
    _api_version: ApiVersion,
    #[serde(rename = "kind")]
    _kind: Kind,
    #[serde(default)]
    mode: RunMode,
    devices: Rules,
    #[serde(default)]
    release: Release,
}

impl From<NodePolicy> for Policy {
    fn from(file: NodePolicy) -> Self {
        Self { mode: file.mode.0, devices: file.devices.0, release: file.release.into() }
    }
}

#[derive(Deserialize)]
#[serde(try_from = "Vec<Rule>")]
struct Rules(Vec<DeviceRule>);

impl TryFrom<Vec<Rule>> for Rules {
    type Error = String;

    fn try_from(rules: Vec<Rule>) -> Result<Self, String> {
        let rules: Vec<DeviceRule> = rules.into_iter().map(|rule| rule.0).collect();
        for (index, rule) in rules.iter().enumerate() {
            let hides = |earlier: &DeviceRule| earlier.matches.covers(&rule.matches);
            if let Some(first) = rules[..index].iter().position(hides) {
                return Err(format!(
                    "devices[{index}] never counts, since devices[{first}] matches every device that it matches \
                     and comes first: expected one of them, or the narrower one first"
                ));
            }
        }
        Ok(Self(rules))
    }
}

#[derive(Deserialize)]
#[serde(try_from = "RuleFields")]
struct Rule(DeviceRule);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a rule, for example {match: {vendor: \"10de\"}}")]
struct RuleFields {
    r#match: Match,
    #[serde(default, deserialize_with = "present")]
    scrub: Option<Scrub>,
    #[serde(default)]
    reset: ResetMethod,
    #[serde(default)]
    deadlines: BTreeMap<Step, Limit>,
    #[serde(default, rename = "minimumMode", deserialize_with = "present")]
    minimum_mode: Option<LeastMode>,
}

impl TryFrom<RuleFields> for Rule {
    type Error = String;

    fn try_from(fields: RuleFields) -> Result<Self, String> {
        let matches = fields.r#match.0;
        let scrub = fields.scrub.map(|scrub| scrub.0);
        // Only the policy's author knows that BARs are all of a device's memory, and only of one model.
        if matches!(scrub, Some(ScrubRule::Bars(_))) && (matches.vendor.is_none() || matches.device.is_none())
        {
            return Err("scrub.bars says that these BARs are all of the memory, which holds for one model \
                        only: expected match.vendor and match.device beside it"
                .to_owned());
        }
        let deadlines = fields.deadlines.into_iter().map(|(step, limit)| (step.0, limit.0)).collect();
        // What a vendor merely reports needs the policy's consent.
        let minimum_mode = fields.minimum_mode.map_or(Mode::CopyVerified, |mode| mode.0);
        if matches!(scrub, Some(ScrubRule::Bars(_))) && minimum_mode == Mode::DeviceVerified {
            return Err("minimumMode is device_verified, which scrub.bars never is, since BARs are read back over the \
                        bus, so no device would be granted: expected copy_verified or a weaker one beside it"
                .to_owned());
        }
        Ok(Self(DeviceRule { matches, scrub, reset_method: fields.reset.0, deadlines, minimum_mode }))
    }
}

#[derive(Deserialize)]
#[serde(try_from = "MatchFields")]
struct Match(MatchRule);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "fields, for example {vendor: \"10de\"}")]
struct MatchFields {
    #[serde(default, deserialize_with = "present")]
    vendor: Option<Id>,
    #[serde(default, deserialize_with = "present")]
    device: Option<Id>,
    #[serde(default, deserialize_with = "present")]
    class: Option<ClassId>,
    #[serde(default, deserialize_with = "present")]
    address: Option<PciAddress>,
}

impl TryFrom<MatchFields> for Match {
    type Error = String;

    fn try_from(fields: MatchFields) -> Result<Self, String> {
        let rule = MatchRule {
            vendor: fields.vendor.map(|id| id.0),
            device: fields.device.map(|id| id.0),
            class: fields.class.map(|class| class.0),
            address: fields.address,
        };
        if rule == MatchRule::default() {
            return Err("it is empty, which would make every PCI function of the node ours".to_owned());
        }
        if let MatchRule { vendor: None, device: Some(device), .. } = rule {
            return Err(format!(
                "device {device:04x} means another model with each vendor: expected vendor beside it"
            ));
        }
        if let Some((class, what)) = rule.lifeline() {
            return Err(format!(
                "class {class:06x} is {what}, which the node may live on, so nothing is ours by that alone: \
                 expected address, or vendor and device, beside it"
            ));
        }
        Ok(Self(rule))
    }
}

#[derive(Deserialize)]
#[serde(try_from = "ScrubFields")]
struct Scrub(ScrubRule);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "fields, for example {bars: [0]}")]
struct ScrubFields {
    #[serde(default, deserialize_with = "present")]
    bars: Option<Vec<Bar>>,
    #[serde(default, deserialize_with = "present")]
    library: Option<Library>,
}

impl TryFrom<ScrubFields> for Scrub {
    type Error = String;

    fn try_from(fields: ScrubFields) -> Result<Self, String> {
        match (fields.bars, fields.library) {
            (Some(bars), None) => {
                let bars: Vec<u8> = bars.into_iter().map(|bar| bar.0).collect();
                if bars.is_empty() {
                    return Err(
                        "bars is empty: expected the numbers of all memory BARs, for example [0]".to_owned()
                    );
                }
                let twice = bars.iter().enumerate().find(|(index, bar)| bars[..*index].contains(bar));
                match twice {
                    Some((_, bar)) => Err(format!("bars names BAR {bar} twice: expected each BAR once")),
                    None => Ok(Self(ScrubRule::Bars(bars))),
                }
            }
            (None, Some(library)) => Ok(Self(ScrubRule::Library(library.0))),
            (Some(_), Some(_)) => Err("it names both bars and library: expected one of them".to_owned()),
            (None, None) => Err("it is empty, and without a scrub the device is never granted".to_owned()),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "fields, for example {wait: 20s}")]
struct Release {
    #[serde(default, deserialize_with = "present")]
    wait: Option<Wait>,
    #[serde(default, deserialize_with = "present")]
    patience: Option<Limit>,
    #[serde(default, deserialize_with = "present")]
    retry: Option<Limit>,
    #[serde(default, deserialize_with = "present")]
    attempts: Option<Attempts>,
    #[serde(default, rename = "firstProofWithin", deserialize_with = "present")]
    first_proof_within: Option<Span>,
}

impl From<Release> for ReleasePolicy {
    fn from(file: Release) -> Self {
        let default = Self::default();
        let limit = |given: Option<Limit>, default: Duration| given.map_or(default, |limit| limit.0);
        Self {
            wait: file.wait.map_or(default.wait, |wait| wait.0),
            patience: limit(file.patience, default.patience),
            retry: limit(file.retry, default.retry),
            attempts: file.attempts.map_or(default.attempts, |attempts| attempts.0),
            first_proof_within: file.first_proof_within.map_or(default.first_proof_within, |span| span.0),
        }
    }
}
