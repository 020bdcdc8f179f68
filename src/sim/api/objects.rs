use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::refusal::Refusal;
use super::{Features, Kind, slice};

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// One change of an object, as a watch tells it.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) version: u64,
    pub(super) what: &'static str,
    pub(super) key: Key,
    pub(super) object: Value,
}

/// All objects, and every change that they have been through. Pure: no network, no clock but the wall's.
#[derive(Debug, Default)]
pub(super) struct Objects {
    items: BTreeMap<Key, Value>,
    history: Vec<Event>,
    pub(super) version: u64,
    /// What is older is forgotten.
    floor: u64,
    uids: u64,
    pub(super) features: Features,
}

impl Objects {
    pub(super) fn get(&self, key: &Key) -> Result<Value, Refusal> {
        self.items.get(key).cloned().ok_or_else(|| Refusal::not_found(key.kind.what(), &key.name))
    }

    /// Those of a kind, in a namespace if one is given, whose fields are as wanted.
    pub(super) fn list(&self, kind: Kind, namespace: Option<&str>, fields: &str) -> Vec<Value> {
        let items = self.items.iter();
        items
            .filter(|(key, item)| meant(key, item, kind, namespace, fields))
            .map(|(_, item)| item.clone())
            .collect()
    }

    pub(super) fn create(&mut self, key: &Key, mut object: Value, dry: bool) -> Result<Value, Refusal> {
        if self.items.contains_key(key) {
            return Err(Refusal::exists(key.kind.what(), &key.name));
        }
        if key.kind == Kind::Slices {
            slice::admit(&mut object, None, self.features)?;
        }
        self.uids += 1;
        let metadata = metadata(&mut object)?;
        metadata.insert("uid".to_owned(), format!("{:08x}-0000-4000-8000-000000000000", self.uids).into());
        metadata.insert("creationTimestamp".to_owned(), slice::now().into());
        Ok(self.store(key, "ADDED", object, dry))
    }

    pub(super) fn update(&mut self, key: &Key, mut object: Value, dry: bool) -> Result<Value, Refusal> {
        let old = self.get(key)?;
        for field in ["uid", "resourceVersion"] {
            let given = &object["metadata"][field];
            if !given.is_null() && *given != old["metadata"][field] {
                let why = "the object has been modified; please apply your changes to the latest version and try again";
                return Err(Refusal::conflict(key.kind.what(), &key.name, why));
            }
        }
        if key.kind == Kind::Slices {
            slice::admit(&mut object, Some(&old), self.features)?;
        }
        let metadata = metadata(&mut object)?;
        for field in ["uid", "creationTimestamp", "resourceVersion"] {
            metadata.insert(field.to_owned(), old["metadata"][field].clone());
        }
        // What changes nothing is not stored.
        Ok(if object == old { old } else { self.store(key, "MODIFIED", object, dry) })
    }

    pub(super) fn delete(&mut self, key: &Key, options: &Value) -> Result<(), Refusal> {
        let mut old = self.get(key)?;
        for field in ["uid", "resourceVersion"] {
            let wanted = &options["preconditions"][field];
            if !wanted.is_null() && *wanted != old["metadata"][field] {
                return Err(Refusal::conflict(key.kind.what(), &key.name, "a precondition does not hold"));
            }
        }
        self.items.remove(key);
        self.version += 1;
        old["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.history.push(Event { version: self.version, what: "DELETED", key: key.clone(), object: old });
        Ok(())
    }

    /// The first change after a version, and what it brought the version to.
    ///
    /// `Err`: that version is forgotten.
    pub(super) fn after(
        &self,
        version: u64,
        kind: Kind,
        namespace: Option<&str>,
        fields: &str,
    ) -> Result<Option<&Event>, Refusal> {
        if version < self.floor {
            return Err(Refusal::expired());
        }
        let start = self.history.partition_point(|event| event.version <= version);
        let mut later = self.history[start..].iter();
        Ok(later.find(|event| meant(&event.key, &event.object, kind, namespace, fields)))
    }

    /// Forgets what has been, as a server does after a while.
    pub(super) fn compact(&mut self) {
        self.floor = self.version + 1;
        self.version += 1;
    }

    /// Everything that an object has been.
    pub(super) fn past(&self, kind: Kind, name: &str) -> Vec<Value> {
        let its = self.history.iter().filter(|event| event.key.kind == kind && event.key.name == name);
        its.map(|event| event.object.clone()).collect()
    }

    fn store(&mut self, key: &Key, what: &'static str, mut object: Value, dry: bool) -> Value {
        if dry {
            return object;
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.items.insert(key.clone(), object.clone());
        self.history.push(Event { version: self.version, what, key: key.clone(), object: object.clone() });
        object
    }
}

fn metadata(object: &mut Value) -> Result<&mut Map<String, Value>, Refusal> {
    let object = object.as_object_mut().ok_or_else(|| Refusal::bad_request("the body is no object"))?;
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    metadata.as_object_mut().ok_or_else(|| Refusal::bad_request("metadata is no object"))
}

/// Whether an object is asked for by `kind`, `namespace` and a field selector such as `spec.nodeName=a,spec.driver=b`.
fn meant(key: &Key, object: &Value, kind: Kind, namespace: Option<&str>, fields: &str) -> bool {
    let field = |term: &str| {
        let (path, wanted) = term.split_once('=')?;
        let found = path.split('.').try_fold(object, |value, part| value.get(part))?;
        (found == wanted).then_some(())
    };
    let mut terms = fields.split(',').filter(|term| !term.is_empty());
    key.kind == kind
        && namespace.is_none_or(|namespace| key.namespace == namespace)
        && terms.all(|term| field(term).is_some())
}

#[cfg(test)]
mod tests;
