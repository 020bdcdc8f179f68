use serde_json::{Value, json};

/// Why a request is not carried out, as an API server says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: u16,
    message: String,
}

impl Refusal {
    pub(super) fn not_found(what: &str, name: &str) -> Self {
        Self { code: 404, message: format!("{what} {name:?} not found") }
    }

    pub(super) fn exists(what: &str, name: &str) -> Self {
        Self { code: 409, message: format!("{what} {name:?} already exists") }
    }

    pub(super) fn conflict(what: &str, name: &str, why: &str) -> Self {
        Self { code: 409, message: format!("Operation cannot be fulfilled on {what} {name:?}: {why}") }
    }

    pub(super) fn invalid(name: &str, why: &str) -> Self {
        Self { code: 422, message: format!("ResourceSlice.resource.k8s.io {name:?} is invalid: {why}") }
    }

    pub(super) fn unknown(path: &str) -> Self {
        Self { code: 404, message: format!("the server could not find the requested resource: {path}") }
    }

    pub(super) fn bad_request(why: impl std::fmt::Display) -> Self {
        Self { code: 400, message: why.to_string() }
    }

    pub(super) fn expired() -> Self {
        Self { code: 410, message: "too old resource version".to_owned() }
    }

    /// What a script says, whatever was asked.
    pub(super) fn scripted(code: u16) -> Self {
        Self { code, message: format!("scripted: {}", reason(code)) }
    }

    /// The `Status` object that stands for it.
    pub(super) fn status(&self) -> Value {
        let Self { code, message } = self;
        // As API priority and fairness asks it.
        let details = if *code == 429 { json!({"retryAfterSeconds": 1}) } else { json!({}) };
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
