//! What earlier workloads of a name left in the members: a new one goes where that is, and takes it over.

use futures::future::join_all;
use http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::{
    config::MemberName,
    member::call::Answer,
    placement::children::{Orphans, children, orphans},
    write::fleet::{Fleet, Key},
};
use kubefold_wire::{matching::ObjectSelector, path::ApiPath};

/// Asks every member that is up for what the workload of this body adopts.
///
/// Shape: one request to each member, for the objects that the selector takes.
pub(super) async fn find<F: Fleet>(fleet: &F, key: &Key, body: &str) -> Option<Orphans> {
    let gvr = children(&key.gvk)?;
    let body: Value = serde_json::from_str(body).ok()?;
    let selector = ObjectSelector::of(body.pointer("/spec/selector")?)?;
    let labels: Vec<String> = selector.match_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let query = format!("labelSelector={}", utf8_percent_encode(&labels.join(","), NON_ALPHANUMERIC));
    let path = ApiPath::within(&gvr, &key.namespace);
    let (path, query) = (&path, &query);
    let asked = fleet.up().into_iter().map(|member| async move {
        let answer = fleet.list(&member, path.clone(), query.clone()).await;
        (member, items(&answer))
    });
    let held: Vec<(MemberName, Vec<Value>)> = join_all(asked).await;
    let held = held.iter().flat_map(|(member, items)| items.iter().map(move |item| (member, item)));
    orphans(&key.gvk, &key.name, &selector, held)
}

/// Of a member that does not tell nothing is known, as of one that is down.
fn items(answer: &Answer) -> Vec<Value> {
    let Answer::Answered { code: StatusCode::OK, body, .. } = answer else { return Vec::new() };
    let mut list: Value = serde_json::from_slice(body).unwrap_or_default();
    match list.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}
