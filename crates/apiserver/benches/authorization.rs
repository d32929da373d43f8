//! What a decision of access costs with 10,000 bindings of as many users: `cargo bench -p kubefold-apiserver --bench authorization`.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it prints what it finds, and a failure is the end of it")]

use std::{hint::black_box, sync::Arc, time::Duration};

use kubefold_apiserver::{
    Caller, Memory,
    rbac::{self, Attributes, Resource},
    registry::{Env, WriteOptions},
    serve::{bootstrap, built_in},
};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const BINDINGS: usize = 10_000;
const DECISIONS: u32 = 20_000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let registry = built_in(Arc::new(Memory::default()), Env::default());
    bootstrap(&registry).await.unwrap();
    let kind = registry.kind(rbac::GROUP, "RoleBinding").unwrap();
    for number in 0..BINDINGS {
        let binding = json!({
            "metadata": {"name": format!("b{number}")},
            "roleRef": {"apiGroup": rbac::GROUP, "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": rbac::GROUP, "kind": "User", "name": format!("u{number}")}],
        });
        registry.create(&kind, "default", binding, &WriteOptions::default()).await.unwrap();
    }
    let stop = CancellationToken::new();
    let authorizer = rbac::start(&registry, &TaskTracker::new(), &stop).await.unwrap();
    let of = |resource: &'static str| Resource { resource, namespace: "default", name: "x", ..Resource::default() };
    for (what, resource, allowed) in [("allowed", "pods", true), ("refused", "nodes", false)] {
        let caller = |number: u32| Caller {
            user: format!("u{}", number as usize % BINDINGS),
            groups: ["dev", "ops", "system:authenticated"].map(str::to_owned).to_vec(),
            ..Caller::default()
        };
        let callers: Vec<Caller> = (0..DECISIONS).map(caller).collect();
        let began = Instant::now();
        for caller in &callers {
            let decision = authorizer.decide(black_box(caller), &Attributes::resource("get", of(resource)));
            assert_eq!(decision.allowed, allowed);
        }
        let each: Duration = began.elapsed() / DECISIONS;
        println!("{what}: {:.2} us a decision, with {BINDINGS} bindings", each.as_secs_f64() * 1e6);
    }
    stop.cancel();
}
