//! The shares of quotas that are divided follow what is used, and what is about to be.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::Method;

use crate::{
    placement::quota::Extent,
    write::{
        Writer,
        fleet::{Fleet, Key},
        quotas::{Pods, Quotas},
        request::{OWN_MANAGER, Request},
        steps::mover,
        update::{Aim, MERGE_PATCH, is_quota, redivide},
        workloads::QUOTA,
    },
};
use kubefold_wire::{
    golang::Quoted,
    resource::{Gvk, Gvr},
    status::Failure,
    warning::Warnings,
};

impl<F: Fleet> Writer<F> {
    /// Has the shares of quotas follow what a workload is about to ask of the members, as far as the wholes allow.
    pub(super) async fn make_room(
        self: &Arc<Self>,
        namespace: &str,
        quotas: &Quotas,
        asked: &Pods,
        warnings: &mut Warnings,
    ) {
        let (asked, short) = quotas.short(asked);
        for quota in short {
            let aim = Aim { extent: Extent::Difference, asked: asked.clone() };
            let request = of_quota(namespace, &quota);
            let Some(reply) = Box::pin(redivide(self, &request, &aim)).await else { continue };
            if let Some(failure) = Failure::of(&reply.body).filter(|_| !reply.code.is_success()) {
                warnings.add(&format!(
                    "resourcequota {} is not divided anew, and some of the pods may wait: {}",
                    Quoted(&quota),
                    failure.message
                ));
            }
        }
    }
}

/// Divides a quota as if nobody had a share, but for what is used. Nobody waits to be told.
pub(super) async fn divide_anew<F: Fleet>(writer: &Arc<Writer<F>>, key: &Key) {
    let aim = Aim { extent: Extent::Anew, asked: BTreeMap::new() };
    let told = Box::pin(redivide(writer, &of_quota(&key.namespace, &key.name), &aim)).await;
    if let Some(reply) = told.filter(|reply| !reply.code.is_success()) {
        let why = Failure::of(&reply.body).map(|failure| failure.message).unwrap_or_default();
        tracing::warn!(object = %key, %why, "a quota is not divided anew");
    }
}

/// Divides all quotas anew that are wanted.
pub(super) async fn divide_all_anew<F: Fleet>(writer: &Arc<Writer<F>>, is_wanted: impl Fn(&Key) -> bool + Send) {
    for placed in writer.fleet.placed().await {
        if is_quota(&placed.key) && is_wanted(&placed.key) {
            divide_anew(writer, &placed.key).await;
        }
    }
}

/// The mover's write that has a quota's shares made anew: a patch of nothing.
fn of_quota(namespace: &str, name: &str) -> Request {
    let (group, version, resource, kind) = QUOTA;
    Request {
        caller: mover(),
        method: Method::PATCH,
        gvr: Gvr::new(group, version, resource),
        gvk: Gvk::new(group, version, kind),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: String::new(),
        query: format!("fieldManager={OWN_MANAGER}"),
        content_type: MERGE_PATCH.to_owned(),
        user_agent: None,
        refusing: Vec::new(),
        body: Bytes::from_static(b"{}"),
    }
}
