//! Devices as slices of one pool, and what has to be written so that the server has these and no others.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sha2::{Digest, Sha256};

/// Devices in a slice, where any of them may have taints.
const MOST: usize = 64;
/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// The pool of this node.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) driver: String,
    /// Also the pool's name.
    pub(super) node: String,
    /// The UID of the node's object, which owns the slices: they go with it.
    pub(super) owner: String,
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    Create(ResourceSlice),
    Update(ResourceSlice),
    Delete(ResourceSlice),
}

impl Change {
    /// The slice as it will be; `None` for one that goes.
    pub(super) fn written(&self) -> Option<&ResourceSlice> {
        match self {
            Self::Create(slice) | Self::Update(slice) => Some(slice),
            Self::Delete(_) => None,
        }
    }
}

impl Pool {
    /// The changes that make `stored` what `devices` say, in their order; none where it is so already. No generation
    /// goes below `floor`, which consumers may have seen.
    pub(super) fn plan(
        &self,
        devices: &[Device],
        stored: &BTreeMap<String, ResourceSlice>,
        floor: i64,
    ) -> Vec<Change> {
        let wanted = self.slices(devices);
        let pool = |slice: &&ResourceSlice| slice.spec.pool.name == self.node;
        let generation = |slice: &ResourceSlice| slice.spec.pool.generation;
        let highest = stored.values().filter(pool).map(generation).max().unwrap_or(0).max(floor).max(1);
        let changes = changes(&wanted, stored, highest);
        // What consumers go by now, as long as none of it changes: a slice can be put back, and what they do not
        // see yet be completed, without a new generation. One change at a time they see as a whole.
        let stays = |slice: &&ResourceSlice| wanted.iter().any(|want| same(want, slice));
        let settled =
            stored.values().filter(pool).filter(|slice| generation(slice) == highest).all(|s| stays(&s));
        if settled || changes.len() <= 1 {
            changes
        } else {
            self::changes(&wanted, stored, highest.saturating_add(1))
        }
    }

    /// The slices of these devices, their generation still open; no devices are one empty slice.
    fn slices(&self, devices: &[Device]) -> Vec<ResourceSlice> {
        let mut parts: Vec<_> = devices.chunks(MOST).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let count = i64::try_from(parts.len()).unwrap_or(i64::MAX);
        let slice = |(index, part): (usize, &[Device])| ResourceSlice {
            metadata: ObjectMeta {
                name: Some(self.name(index)),
                owner_references: Some(vec![self.owner()]),
                ..ObjectMeta::default()
            },
            spec: ResourceSliceSpec {
                driver: self.driver.clone(),
                node_name: Some(self.node.clone()),
                pool: ResourcePool { name: self.node.clone(), generation: 0, resource_slice_count: count },
                devices: (!part.is_empty()).then(|| part.to_vec()),
                ..ResourceSliceSpec::default()
            },
        };
        parts.into_iter().enumerate().map(slice).collect()
    }

    /// Fixed, so that a create whose answer was lost is never done twice.
    pub(super) fn name(&self, index: usize) -> String {
        let tail = format!("-{}-{index:02}", self.driver);
        let node = &self.node;
        if node.len() + tail.len() <= LONGEST_NAME {
            return format!("{node}{tail}");
        }
        let digest: String = Sha256::digest(node).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let room = LONGEST_NAME.saturating_sub(tail.len() + 1 + digest.len());
        let start = node.get(..room).unwrap_or_default().trim_end_matches(['.', '-']);
        format!("{start}-{digest}{tail}")
    }

    fn owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.node.clone(),
            uid: self.owner.clone(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }
}

fn changes(
    wanted: &[ResourceSlice],
    stored: &BTreeMap<String, ResourceSlice>,
    generation: i64,
) -> Vec<Change> {
    let mut changes = Vec::new();
    for want in wanted {
        let mut want = want.clone();
        want.spec.pool.generation = generation;
        match stored.get(name(&want)) {
            None => changes.push(Change::Create(want)),
            Some(have) if have.spec.pool.generation == generation && same(&want, have) => {}
            Some(have) => changes.push(Change::Update(over(want, have))),
        }
    }
    let surplus = stored.values().filter(|have| wanted.iter().all(|want| name(want) != name(have)));
    changes.extend(surplus.cloned().map(Change::Delete));
    changes
}

/// The slice in place of one that is there: under its version, with what others noted on it, and with the time since
/// when each taint stands.
fn over(mut want: ResourceSlice, have: &ResourceSlice) -> ResourceSlice {
    let owners = want.metadata.owner_references.take();
    want.metadata = ObjectMeta { owner_references: owners, managed_fields: None, ..have.metadata.clone() };
    let before = have.spec.devices.iter().flatten();
    let before: BTreeMap<_, _> = before.map(|device| (&device.name, &device.taints)).collect();
    for device in want.spec.devices.iter_mut().flatten() {
        let Some(taints) = before.get(&device.name) else { continue };
        for taint in device.taints.iter_mut().flatten() {
            let mut old = taints.iter().flatten();
            let old = old
                .find(|old| (&old.key, &old.value, &old.effect) == (&taint.key, &taint.value, &taint.effect));
            taint.time_added = old.and_then(|old| old.time_added.clone());
        }
    }
    want
}

/// Whether a slice says what it should: everything but the generation and times, which are no content.
pub(super) fn same(want: &ResourceSlice, have: &ResourceSlice) -> bool {
    name(want) == name(have)
        && want.metadata.owner_references == have.metadata.owner_references
        && content(&want.spec) == content(&have.spec)
}

fn content(spec: &ResourceSliceSpec) -> ResourceSliceSpec {
    let mut spec = spec.clone();
    spec.pool.generation = 0;
    spec.devices = spec.devices.filter(|devices| !devices.is_empty());
    for device in spec.devices.iter_mut().flatten() {
        device.taints = device.taints.take().filter(|taints| !taints.is_empty());
        for taint in device.taints.iter_mut().flatten() {
            taint.time_added = None;
        }
    }
    spec
}

pub(super) fn name(slice: &ResourceSlice) -> &str {
    slice.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
