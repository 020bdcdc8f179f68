//! What the server has, as far as we have heard: by the watch, and by the answers to our own writes.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::ResourceSlice;

use super::pool::name;
use crate::api::Event;

#[derive(Debug, Default)]
pub(super) struct Mirror {
    slices: BTreeMap<String, ResourceSlice>,
    /// A list that is still coming in.
    incoming: Option<BTreeMap<String, ResourceSlice>>,
    complete: bool,
    /// The highest generation that anybody can have seen.
    generation: i64,
}

impl Mirror {
    /// The slices by name; `None` before the first list has ended.
    pub(super) fn slices(&self) -> Option<&BTreeMap<String, ResourceSlice>> {
        self.complete.then_some(&self.slices)
    }

    /// The highest generation seen so far.
    pub(super) fn generation(&self) -> i64 {
        self.generation
    }

    /// Takes in what the watch tells.
    pub(super) fn hear(&mut self, event: Event<ResourceSlice>) {
        match event {
            Event::Init => self.incoming = Some(BTreeMap::new()),
            Event::InitApply(slice) => {
                if let Some(incoming) = &mut self.incoming {
                    incoming.insert(name(&slice).to_owned(), slice);
                }
            }
            Event::InitDone => {
                let incoming = self.incoming.take().unwrap_or_default();
                self.replace(incoming.into_values());
            }
            Event::Apply(slice) => self.put(slice),
            Event::Delete(slice) => {
                // An old one of that name may be reported gone after its successor was made.
                if self.slices.get(name(&slice)).is_some_and(|have| have.metadata.uid == slice.metadata.uid) {
                    self.remove(name(&slice));
                }
            }
        }
    }

    /// The whole list is known anew.
    pub(super) fn replace(&mut self, slices: impl IntoIterator<Item = ResourceSlice>) {
        self.slices.clear();
        slices.into_iter().for_each(|slice| self.put(slice));
        self.complete = true;
    }

    /// One slice is known anew. What is older than what is known comes late and says nothing.
    pub(super) fn put(&mut self, slice: ResourceSlice) {
        self.generation = self.generation.max(slice.spec.pool.generation);
        let known = self.slices.get(name(&slice));
        if known.is_none_or(|known| version(known) <= version(&slice)) {
            self.slices.insert(name(&slice).to_owned(), slice);
        }
    }

    /// One slice is gone.
    pub(super) fn remove(&mut self, name: &str) {
        self.slices.remove(name);
    }
}

/// Versions are numbers that rise over all slices.
fn version(slice: &ResourceSlice) -> Option<u64> {
    slice.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests;
