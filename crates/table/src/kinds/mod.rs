//! The printers of a kube-apiserver's own kinds, one function a kind.
//!
//! Source: kubernetes `pkg/printers/internalversion/printers.go`, whose functions have the same names.

mod access;
mod autoscaling;
mod cluster;
mod containers;
mod event;
mod network;
mod node;
mod pod;
mod resource;
mod storage;
mod workload;

use serde::Deserialize;
use serde_json::Error;

use crate::{
    cells::Cells,
    object::{Map, Object},
};

/// Writes the cells of one object.
pub(super) type Print = fn(&Object<'_>, &mut Cells<'_>) -> Result<(), Error>;

/// The printer of a kind. `None`: it is printed by name and age of creation.
pub(super) fn of(group: &str, kind: &str) -> Option<Print> {
    Some(match (group, kind) {
        ("", "Pod") => pod::pod,
        ("", "Node") => node::node,
        ("" | "events.k8s.io", "Event") => event::event,
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::horizontal_pod_autoscaler,
        ("autoscaling", "Scale") => autoscaling::scale,
        _ => workload::of(group, kind)
            .or_else(|| network::of(group, kind))
            .or_else(|| storage::of(group, kind))
            .or_else(|| access::of(group, kind))
            .or_else(|| resource::of(group, kind))
            .or_else(|| cluster::of(group, kind))?,
    })
}

/// Metadata, as far as some printers read it: what was an annotation before it was a field.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Annotated<'a> {
    annotations: Map<'a>,
}

/// Name and age.
fn name_and_age(_: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    cells.name();
    cells.age();
    Ok(())
}

/// `a,b,c`
fn joined<'t>(texts: impl IntoIterator<Item = &'t str>, comma: &str) -> String {
    let mut out = String::new();
    for (at, text) in texts.into_iter().enumerate() {
        if at > 0 {
            out.push_str(comma);
        }
        out.push_str(text);
    }
    out
}

/// At most three, and how many there are beyond them; `<unset>` for none.
fn with_more(texts: &[String]) -> String {
    const SHOWN_MAX: usize = 3;
    let shown = joined(texts.iter().take(SHOWN_MAX).map(String::as_str), ",");
    match texts.len() {
        len if len > SHOWN_MAX => format!("{shown} + {} more...", len - SHOWN_MAX),
        _ if shown.is_empty() => "<unset>".to_owned(),
        _ => shown,
    }
}
