//! `kubefold can-i`: what each member says of what somebody may do, and why.

use anyhow::{Context, bail};
use http::Method;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    cli::{
        client::{Ask, Connection, Output},
        print as print_text,
        status::table,
    },
    status::{FleetStatus, STATUS_PATH},
};
use kubefold_wire::golang::Quoted;

/// Where a member is asked.
const REVIEWS: &str = "apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// Discovery of a whole API in one document.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[derive(Debug, clap::Args)]
pub(super) struct CanI {
    /// The verb, such as `list`.
    verb: String,
    /// The resource, such as `pods`, `deployments.apps` or `pods/log`.
    resource: String,
    /// The name of one object, as the member knows it.
    name: Option<String>,
    /// The namespace. Default: the context's.
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// Ask about all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Ask about this user, as whom the member must let you act.
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,
    /// A group of that user; may be repeated.
    #[arg(long = "as-group", value_name = "NAME", requires = "user")]
    groups: Vec<String>,
    #[command(flatten)]
    connection: Connection,
    /// Print the answers for programs.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// What one member says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Said {
    member: String,
    /// Absent where the member did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<bool>,
    /// Why: the rule, where the member names it.
    why: String,
}

/// A resource, as members are asked about it.
#[derive(Debug, PartialEq, Eq)]
struct Resource {
    group: String,
    version: String,
    resource: String,
    subresource: String,
    namespaced: bool,
}

/// Prints it on standard output.
pub(super) fn print(flags: &CanI) -> anyhow::Result<()> {
    let connection = &flags.connection;
    let status = connection.ask(Method::GET, STATUS_PATH, Vec::new()).context("cannot read who the members are")?;
    let status: FleetStatus = serde_json::from_str(&status).context("the server is not a kubefold of this version")?;
    let resource = find(connection, &flags.resource)?;
    let namespace = match &flags.namespace {
        _ if flags.all_namespaces || !resource.namespaced => String::new(),
        Some(namespace) => namespace.clone(),
        None => connection.namespace()?,
    };
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "verb": flags.verb, "group": resource.group, "version": resource.version, "resource": resource.resource,
            "subresource": resource.subresource, "namespace": namespace, "name": flags.name.as_deref().unwrap_or_default(),
        }},
    });
    let headers: Vec<(&str, &str)> = flags
        .user
        .iter()
        .map(|user| ("Impersonate-User", user.as_str()))
        .chain(flags.groups.iter().map(|group| ("Impersonate-Group", group.as_str())))
        .collect();
    let said: Vec<Said> = status
        .members
        .iter()
        .map(|member| {
            let path = format!("/clusters/{}/{REVIEWS}", member.name);
            let ask =
                Ask { method: Method::POST, path: &path, headers: &headers, body: review.to_string().into_bytes() };
            said(member.name.to_string(), connection.ask_with(ask))
        })
        .collect();
    print_text(&match flags.output {
        None => render(&said),
        Some(output) => output.text(&said)?,
    })
}

fn said(member: String, answer: anyhow::Result<String>) -> Said {
    let review = match answer.and_then(|text| Ok(serde_json::from_str::<Value>(&text)?)) {
        Ok(review) => review,
        Err(error) => return Said { member, allowed: None, why: format!("{error:#}") },
    };
    let text = |what: &str| review["status"][what].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let why: Vec<String> = ["reason", "evaluationError"].into_iter().filter_map(text).collect();
    Said { member, allowed: review["status"]["allowed"].as_bool(), why: why.join("; ") }
}

fn render(said: &[Said]) -> String {
    let head = ["MEMBER", "ALLOWED", "WHY"].map(str::to_owned);
    let row = |one: &Said| {
        let allowed = match one.allowed {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        };
        [one.member.clone(), allowed.to_owned(), one.why.clone()]
    };
    let rows: Vec<[String; 3]> = std::iter::once(head).chain(said.iter().map(row)).collect();
    table(&rows)
}

/// Finds what a person calls a resource.
///
/// Errors: no member serves it.
fn find(connection: &Connection, asked: &str) -> anyhow::Result<Resource> {
    let headers = [("Accept", AGGREGATED)];
    for path in ["/api", "/apis"] {
        let answer = connection.ask_with(Ask { method: Method::GET, path, headers: &headers, body: Vec::new() })?;
        let served: Value = serde_json::from_str(&answer).context("discovery cannot be read")?;
        if let Some(found) = found(&served, asked) {
            return Ok(found);
        }
    }
    bail!("no member serves a resource {}; see kubectl api-resources", Quoted(asked))
}

/// Finds it in one document: by its plural, its singular or a short name, with or without its group.
fn found(served: &Value, asked: &str) -> Option<Resource> {
    let (asked, subresource) = asked.split_once('/').unwrap_or((asked, ""));
    let (name, wanted_group) = asked.split_once('.').map_or((asked, None), |(name, group)| (name, Some(group)));
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    let all = |of: &Value| of.as_array().cloned().unwrap_or_default();
    all(&served["items"]).iter().find_map(|item| {
        let group = text(&item["metadata"]["name"]);
        if wanted_group.is_some_and(|wanted| wanted != group) {
            return None;
        }
        all(&item["versions"]).iter().find_map(|version| {
            let is_it = |one: &&Value| {
                one["resource"] == name
                    || one["singularResource"] == name
                    || all(&one["shortNames"]).iter().any(|short| short == name)
            };
            let resources = all(&version["resources"]);
            let one = resources.iter().find(is_it)?;
            Some(Resource {
                group: group.clone(),
                version: text(&version["version"]),
                resource: text(&one["resource"]),
                subresource: subresource.to_owned(),
                namespaced: one["scope"] == "Namespaced",
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> Value {
        let resource = |resource: &str, singular: &str, short: &str, scope: &str| json!({"resource": resource, "singularResource": singular, "shortNames": [short], "scope": scope});
        json!({"items": [
            {"metadata": {"name": "apps"}, "versions": [
                {"version": "v1", "resources": [resource("deployments", "deployment", "deploy", "Namespaced")]}]},
            {"metadata": {"name": "example.com"}, "versions": [
                {"version": "v2", "resources": [resource("deployments", "deployment", "ed", "Cluster")]}]},
        ]})
    }

    #[test]
    fn a_resource_is_found_by_every_name_that_it_has() {
        let of =
            |asked: &str| found(&served(), asked).map(|one| (one.group, one.version, one.subresource, one.namespaced));
        let deployments = |subresource: &str| Some(("apps".into(), "v1".into(), subresource.into(), true));
        for asked in ["deployments", "deployment", "deploy", "deployments.apps"] {
            assert_eq!(of(asked), deployments(""), "{asked}");
        }
        assert_eq!(of("deploy/scale"), deployments("scale"));
        assert_eq!(of("deployments.example.com"), Some(("example.com".into(), "v2".into(), String::new(), false)));
        assert_eq!(of("deployments.apps.example.com"), None);
        assert_eq!(of("widgets"), None);
    }

    #[test]
    fn each_member_has_a_row() {
        let answer = |status: Value| Ok(json!({"status": status}).to_string());
        let rows = [
            said(
                "east".into(),
                answer(json!({"allowed": true, "reason": "RBAC: allowed by RoleBinding \"dev/shop\""})),
            ),
            said("west".into(), answer(json!({"allowed": false}))),
            said("north".into(), Err(anyhow::anyhow!("kubefold answered 503: member north: down"))),
        ];
        let text = render(&rows);
        let wanted = "MEMBER   ALLOWED   WHY\neast     yes       RBAC: allowed by RoleBinding \"dev/shop\"\nwest     no\n\
                      north    unknown   kubefold answered 503: member north: down\n";
        assert_eq!(text, wanted);
    }
}
