//! What the server can show: taints are dropped without a word where their feature is off (1.34, 1.35), and an effect
//! that it does not know is refused.

use k8s_openapi::api::resource::v1::{Device, DeviceTaint, ResourceSlice};

use super::device::NONE;
use super::pool::same;

/// What is known of the server.
#[derive(Debug, Default)]
pub(super) struct Features {
    taints: Taints,
    /// It refuses taints without effect.
    effects_only: bool,
}

#[derive(Debug, Default, PartialEq)]
enum Taints {
    #[default]
    Unknown,
    Kept,
    /// They were dropped when these devices were to be written; with others it is asked again.
    Dropped(Vec<Device>),
}

/// How a slice came back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// As it was sent.
    Same,
    /// Without taints.
    Untainted,
    /// Otherwise.
    Other,
}

impl Features {
    /// Whether it must be asked, before devices are shown that must not be used, if it will say so. What it once
    /// answered of other devices counts no more then: it may have been upgraded.
    pub(super) fn must_ask(&mut self, devices: &[Device]) -> bool {
        let known = match &self.taints {
            Taints::Kept => true,
            Taints::Dropped(asked) => asked == devices,
            Taints::Unknown => false,
        };
        let must = !known && devices.iter().any(must_not_be_used);
        if must {
            self.taints = Taints::Unknown;
        }
        must
    }

    /// The devices as far as the server can show them, and the names of those that it cannot.
    pub(super) fn fit(&self, devices: &[Device]) -> (Vec<Device>, Vec<String>) {
        let mut left_out = Vec::new();
        let mut fit = Vec::new();
        let drops = matches!(self.taints, Taints::Dropped(_));
        for device in devices {
            if drops && must_not_be_used(device) {
                left_out.push(device.name.clone());
                continue;
            }
            let mut device = device.clone();
            if drops || self.effects_only {
                let taints =
                    device.taints.take().map(|taints| taints.into_iter().filter(has_effect).collect());
                device.taints = taints.filter(|taints: &Vec<_>| !taints.is_empty());
            }
            fit.push(device);
        }
        (fit, left_out)
    }

    /// Taints stand there already, so they are kept.
    pub(super) fn kept(&mut self) {
        self.taints = Taints::Kept;
    }

    /// Takes in how the server answered a slice, for the sake of these devices.
    pub(super) fn learn(&mut self, devices: &[Device], sent: &ResourceSlice, got: &ResourceSlice) -> Answer {
        if same(sent, got) {
            if has_taints(sent) {
                self.kept();
            }
            return Answer::Same;
        }
        if !has_taints(sent) || !same(&untainted(sent), &untainted(got)) {
            return Answer::Other;
        }
        self.taints = Taints::Dropped(devices.to_vec());
        Answer::Untainted
    }

    /// It refused these devices; whether it may be for an effect that it does not know, which is left out from now on.
    pub(super) fn refused(&mut self, slice: &ResourceSlice) -> bool {
        let mut taints =
            slice.spec.devices.iter().flatten().flat_map(|device| device.taints.iter().flatten());
        let news = !self.effects_only && taints.any(|taint| !has_effect(taint));
        self.effects_only |= news;
        news
    }
}

pub(super) fn has_taints(slice: &ResourceSlice) -> bool {
    slice.spec.devices.iter().flatten().any(|device| device.taints.is_some())
}

/// Whether a device that stands there without its taints would be given to somebody.
fn must_not_be_used(device: &Device) -> bool {
    device.taints.iter().flatten().any(has_effect)
}

fn has_effect(taint: &DeviceTaint) -> bool {
    taint.effect != NONE
}

fn untainted(slice: &ResourceSlice) -> ResourceSlice {
    let mut slice = slice.clone();
    for device in slice.spec.devices.iter_mut().flatten() {
        device.taints = None;
    }
    slice
}

#[cfg(test)]
mod tests;
