use serde_json::{Value, json};

/// Why a request is not carried out, as an API server says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: u16,
    message: String,
    /// The object that it is about, where it names one.
    name: Option<String>,
}

impl Refusal {
    fn of(code: u16, message: String) -> Self {
        Self { code, message, name: None }
    }

    pub(super) fn not_found(what: &str, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::of(404, format!("{what} {name:?} not found")) }
    }

    pub(super) fn exists(what: &str, name: &str) -> Self {
        Self::of(409, format!("{what} {name:?} already exists"))
    }

    pub(super) fn conflict(what: &str, name: &str, why: &str) -> Self {
        Self::of(409, format!("Operation cannot be fulfilled on {what} {name:?}: {why}"))
    }

    pub(super) fn invalid(name: &str, why: &str) -> Self {
        Self::of(422, format!("ResourceSlice.resource.k8s.io {name:?} is invalid: {why}"))
    }

    pub(super) fn unknown(path: &str) -> Self {
        Self::of(404, format!("the server could not find the requested resource: {path}"))
    }

    pub(super) fn bad_request(why: impl std::fmt::Display) -> Self {
        Self::of(400, why.to_string())
    }

    pub(super) fn expired() -> Self {
        Self::of(410, "too old resource version".to_owned())
    }

    /// What a script says, whatever was asked.
    pub(super) fn scripted(code: u16) -> Self {
        Self::of(code, format!("scripted: {}", reason(code)))
    }

    /// The `Status` object that stands for it.
    pub(super) fn status(&self) -> Value {
        let Self { code, message, name } = self;
        let details = match name {
            Some(name) => json!({"name": name}),
            // As API priority and fairness asks it.
            None if *code == 429 => json!({"retryAfterSeconds": 1}),
            None => json!({}),
        };
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason(*code), "code": code, "details": details,
        })
    }
}

fn reason(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        _ => "InternalError",
    }
}
