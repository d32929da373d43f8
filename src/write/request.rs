//! A write as it arrives: who, what, and the query that goes on to members.

use std::borrow::Cow;

use bytes::Bytes;
use http::Method;
use percent_encoding::percent_decode_str;

use crate::{
    config::MemberName,
    respond::{InvalidField, WriteError},
    write::fleet::Key,
};
use kubefold_serving::caller::Caller;
use kubefold_wire::resource::{Gvk, Gvr};

/// The field manager of what kubefold itself divides.
pub(super) const OWN_MANAGER: &str = "kubefold";

/// A write of the fleet view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asks.
    pub caller: Caller,
    /// `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: Method,
    /// The resource in the URL.
    pub gvr: Gvr,
    /// Its kind.
    pub gvk: Gvk,
    /// The namespace in the URL; empty if there is none.
    pub namespace: String,
    /// The name in the URL, as the client wrote it; empty if there is none.
    pub name: String,
    /// The subresource in the URL; empty if there is none.
    pub subresource: String,
    /// The query, encoded, without `?`.
    pub query: String,
    /// The media type of the body as it came, without parameters: of a patch it says which kind of patch it is.
    pub content_type: String,
    /// The client's own.
    pub user_agent: Option<String>,
    /// Members that do not let the caller create such an object.
    pub refusing: Vec<MemberName>,
    /// JSON, whatever it came as; a `DELETE` may have none.
    pub body: Bytes,
}

impl Request {
    pub(super) fn key(&self, name: &str) -> Key {
        Key { gvr: self.gvr.clone(), gvk: self.gvk.clone(), namespace: self.namespace.clone(), name: name.to_owned() }
    }

    /// What is wrong with the object of that name that the body is.
    pub(super) fn invalid(&self, name: &str, field: InvalidField) -> WriteError {
        WriteError::Invalid { gvk: self.gvk.clone(), name: name.to_owned(), field }
    }

    /// The query as members get it. `dryRun` is set by who sends; `pretty` would make an answer's bytes differ from the
    /// watch's.
    pub(super) fn passed_query(&self) -> String {
        let kept = self.query.split('&').filter(|pair| {
            let name = decoded(pair.split('=').next().unwrap_or_default());
            !pair.is_empty() && name != "dryRun" && name != "pretty"
        });
        kept.collect::<Vec<_>>().join("&")
    }

    /// The query of a write with one target: the member judges all of it. `pretty` would make an answer's bytes differ from
    /// the watch's.
    pub(super) fn forwarded_query(&self) -> String {
        let kept = self
            .query
            .split('&')
            .filter(|pair| !pair.is_empty() && decoded(pair.split('=').next().unwrap_or_default()) != "pretty");
        kept.collect::<Vec<_>>().join("&")
    }

    /// Says whether the query asks for a dry run.
    ///
    /// Errors: it asks for another than `All` (kubernetes/apimachinery `validation.ValidateDryRun`).
    pub(super) fn dry_run(&self, options: &str) -> Result<bool, WriteError> {
        dry_run(values(&self.query, "dryRun"), options)
    }
}

/// Judges the values of `dryRun`; `options` is the kind that they stand in.
///
/// Errors: one is not `All`.
pub(super) fn dry_run(values: impl Iterator<Item = String>, options: &str) -> Result<bool, WriteError> {
    let mut dry = false;
    for value in values {
        if value != "All" {
            return Err(WriteError::DryRun { options: options.to_owned(), value });
        }
        dry = true;
    }
    Ok(dry)
}

/// The values of one parameter of a query, decoded.
pub(super) fn values<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = String> + 'a {
    query.split('&').filter(|pair| !pair.is_empty()).filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(key) == name).then(|| decoded(value).into_owned())
    })
}

/// A query with one parameter more.
pub(super) fn with_dry_run(query: &str) -> String {
    if query.is_empty() { "dryRun=All".to_owned() } else { format!("{query}&dryRun=All") }
}

fn decoded(text: &str) -> Cow<'_, str> {
    let spaced: Cow<'_, str> = if text.contains('+') { text.replace('+', " ").into() } else { text.into() };
    match percent_decode_str(&spaced).decode_utf8_lossy() {
        Cow::Borrowed(same) if same.len() == spaced.len() => spaced,
        other => Cow::Owned(other.into_owned()),
    }
}
