use hyper::Method;
use hyper::Uri;

use super::objects::Key;
use super::refusal::Refusal;
use super::{Kind, Verb};

/// What a request asks.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) verb: Verb,
    pub(super) kind: Kind,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    /// Everything after the question mark.
    query: String,
}

impl Route {
    pub(super) fn of(method: &Method, uri: &Uri) -> Result<Self, Refusal> {
        let unknown = || Refusal::unknown(uri.path());
        let parts: Vec<_> = uri.path().split('/').skip(1).collect();
        let (kind, namespace, name) = match parts[..] {
            ["api", "v1", "nodes"] => (Kind::Nodes, None, ""),
            ["api", "v1", "nodes", name] => (Kind::Nodes, None, name),
            ["apis", "resource.k8s.io", "v1", "resourceslices"] => (Kind::Slices, None, ""),
            ["apis", "resource.k8s.io", "v1", "resourceslices", name] => (Kind::Slices, None, name),
            ["apis", "resource.k8s.io", "v1", "resourceclaims"] => (Kind::Claims, None, ""),
            ["apis", "resource.k8s.io", "v1", "namespaces", space, "resourceclaims"] => {
                (Kind::Claims, Some(space), "")
            }
            ["apis", "resource.k8s.io", "v1", "namespaces", space, "resourceclaims", name] => {
                (Kind::Claims, Some(space), name)
            }
            _ => return Err(unknown()),
        };
        let query = uri.query().unwrap_or_default().to_owned();
        let watches = value(&query, "watch").is_some_and(|watch| watch == "true" || watch == "1");
        let verb = match (method, name) {
            (&Method::GET, "") if watches => Verb::Watch,
            (&Method::GET, "") => Verb::List,
            (&Method::GET, _) => Verb::Get,
            (&Method::POST, "") => Verb::Create,
            (&Method::PUT, name) if !name.is_empty() => Verb::Update,
            (&Method::DELETE, name) if !name.is_empty() => Verb::Delete,
            _ => return Err(Refusal::scripted(405)),
        };
        Ok(Self { verb, kind, namespace: namespace.map(str::to_owned), name: name.to_owned(), query })
    }

    pub(super) fn key(&self) -> Key {
        let namespace = self.namespace.clone().unwrap_or_default();
        Key { kind: self.kind, namespace, name: self.name.clone() }
    }

    pub(super) fn is_dry(&self) -> bool {
        value(&self.query, "dryRun").is_some_and(|run| run == "All")
    }

    pub(super) fn fields(&self) -> String {
        value(&self.query, "fieldSelector").unwrap_or_default()
    }

    pub(super) fn version(&self) -> Option<u64> {
        value(&self.query, "resourceVersion")?.parse().ok().filter(|version| *version > 0)
    }

    pub(super) fn seconds(&self) -> u64 {
        value(&self.query, "timeoutSeconds").and_then(|seconds| seconds.parse().ok()).unwrap_or(1800)
    }
}

/// A parameter of a query, decoded.
fn value(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, text) = pairs.find(|(found, _)| *found == name)?;
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let hex = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
                rest = tail;
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).ok()
}
