//! `kubefold demo kill east`: commands to a demo that runs, and what carries them out in it.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use anyhow::bail;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::BodyExt;

use crate::cli::{client::Connection, print};
use kubefold_apiserver::{Service, endpoint::Endpoint, faults::Rule};
use kubefold_wire::{
    body::{Body, full},
    status::Status,
};

/// The context of the demo's kubeconfig that leads here.
pub(super) const CONTEXT: &str = "demo-control";
/// A rule is a line.
const RULE_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Stop a member, as if its API server had been killed.
    Kill(Member),
    /// Start a killed member again.
    Revive(Member),
    /// Add a fault to a member.
    Fault(FaultArgs),
    /// Remove all faults of a member.
    Calm(Member),
}

#[derive(Debug, clap::Args)]
pub(super) struct Member {
    /// The member's name, such as `east`.
    member: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct FaultArgs {
    /// The member's name, such as `east`.
    member: String,
    /// The fault as JSON, such as `{"fault":{"latency":{"millis":500}}}`; docs/demo.md lists all faults.
    rule: String,
}

/// Sends a command to the demo whose kubeconfig is in this folder.
///
/// Errors: there is none, or it does not do it; each says why in one sentence.
pub(super) fn send(command: &Command, kubeconfig: &Path) -> anyhow::Result<()> {
    if !kubeconfig.exists() {
        bail!("there is no {} in this folder; run this where \"kubefold demo\" was started", kubeconfig.display());
    }
    let (action, member, body) = match command {
        Command::Kill(member) => ("kill", &member.member, Vec::new()),
        Command::Revive(member) => ("revive", &member.member, Vec::new()),
        Command::Calm(member) => ("calm", &member.member, Vec::new()),
        Command::Fault(given) => ("fault", &given.member, given.rule.clone().into_bytes()),
    };
    let connection = Connection::of(Some(kubeconfig.to_owned()), Some(CONTEXT.to_owned()));
    print(&connection.ask(Method::POST, &format!("/members/{member}/{action}"), body)?)
}

/// The members by name.
pub(super) type Members = BTreeMap<String, Arc<Endpoint>>;

/// Carries commands out.
pub(super) struct Control {
    pub(super) members: Members,
}

impl Service for Control {
    fn answer(&self, request: Request<Body>) -> BoxFuture<'_, Response<Body>> {
        Box::pin(async move {
            match self.obey(request).await {
                Ok(said) => Response::new(full(said)),
                Err(status) => status.into_response(),
            }
        })
    }
}

impl Control {
    async fn obey(&self, request: Request<Body>) -> Result<String, Status> {
        let path = request.uri().path().to_owned();
        let (member, action) = path
            .strip_prefix("/members/")
            .and_then(|rest| rest.split_once('/'))
            .filter(|_| request.method() == Method::POST)
            .ok_or_else(Status::no_such_path)?;
        let Some(endpoint) = self.members.get(member) else {
            let names: Vec<&str> = self.members.keys().map(String::as_str).collect();
            return Err(Status::bad_request(format!("the demo has no member {member}; it has {}", names.join(", "))));
        };
        match action {
            "kill" => endpoint.kill(),
            "revive" => endpoint.revive().await.map_err(|error| Status::internal(error.to_string()))?,
            "calm" => endpoint.faults().clear(),
            "fault" => {
                let rule = serde_json::from_slice::<Rule>(&read(request.into_body()).await?)
                    .map_err(|error| Status::bad_request(format!("this is not a valid rule: {error}")))?;
                endpoint.faults().add(rule)?;
            }
            _ => return Err(Status::no_such_path()),
        }
        Ok(told(member, endpoint))
    }
}

async fn read(mut body: Body) -> Result<Vec<u8>, Status> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Status::bad_request(format!("the rule is incomplete: {error}")))?;
        bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
        if bytes.len() > RULE_BYTES_MAX {
            return Err(Status::bad_request(format!("a rule has at most {} KiB", RULE_BYTES_MAX >> 10)));
        }
    }
    Ok(bytes)
}

/// What a member is now, for people.
pub(super) fn told(name: &str, endpoint: &Endpoint) -> String {
    let rules = endpoint.faults().rules().len();
    match (endpoint.is_alive(), rules) {
        (false, _) => format!("{name} is down; lists show its last known state, with a Warning\n"),
        (true, 0) => format!("{name} is up\n"),
        (true, rules) => format!("{name} is up; active faults: {rules}\n"),
    }
}
