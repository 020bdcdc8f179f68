use std::collections::BTreeMap;

use super::at;

/// What stands in the policy file.
#[derive(Clone)]
pub(crate) struct Policy {
    whole: Option<String>,
    hasty: Vec<(usize, String)>,
    deadlines: BTreeMap<&'static str, &'static str>,
    release: BTreeMap<&'static str, &'static str>,
}

impl Default for Policy {
    /// First proofs at once, nobody is waited for long, a quarantine stays.
    fn default() -> Self {
        let release = [("firstProofWithin", "0s"), ("patience", "100ms"), ("attempts", "0")];
        Self { whole: None, hasty: Vec::new(), deadlines: BTreeMap::new(), release: BTreeMap::from(release) }
    }
}

impl Policy {
    /// This text and nothing else.
    pub(crate) fn of(text: &str) -> Self {
        Self { whole: Some(text.to_owned()), ..Self::default() }
    }

    /// A device whose reset has so long and no longer. Others keep the usual time, so that a slow machine costs
    /// nothing but this.
    pub(crate) fn hasty(mut self, device: usize, reset: &str) -> Self {
        self.hasty.push((device, reset.to_owned()));
        self
    }

    /// A step's deadline for all devices.
    pub(crate) fn deadline(mut self, step: &'static str, time: &'static str) -> Self {
        self.deadlines.insert(step, time);
        self
    }

    /// A field of `release`.
    pub(crate) fn release(mut self, field: &'static str, value: &'static str) -> Self {
        self.release.insert(field, value);
        self
    }

    pub(crate) fn text(&self) -> String {
        if let Some(text) = &self.whole {
            return text.clone();
        }
        let mut text = "apiVersion: cleanslate.dev/v1alpha1\nkind: NodePolicy\ndevices:\n".to_owned();
        for (device, reset) in &self.hasty {
            text += &format!(
                "- match: {{vendor: \"1234\", device: \"c1ea\", address: \"{}\"}}\n  scrub: {{bars: [0]}}\n  \
                 deadlines: {{reset: {reset}}}\n",
                at(*device)
            );
        }
        text += &format!(
            "- match: {{vendor: \"1234\", device: \"c1ea\"}}\n  scrub: {{bars: [0]}}\n  deadlines: {{{}}}\n\
             release: {{{}}}\n",
            fields(&self.deadlines),
            fields(&self.release)
        );
        text
    }
}

fn fields(map: &BTreeMap<&str, &str>) -> String {
    map.iter().map(|(field, value)| format!("{field}: {value}")).collect::<Vec<_>>().join(", ")
}
