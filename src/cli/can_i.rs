//! `kubefold can-i`: what each member says of what somebody may do, and why.

use anyhow::{Context, bail};
use clap_complete::ArgValueCompleter;
use http::Method;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    cli::{
        client::{Ask, Connection, Output, Refused},
        completion, print as print_text,
        served::{self, ServedResource},
        status::table,
    },
    status::{FleetStatus, STATUS_PATH},
};
use kubefold_wire::golang::Quoted;

/// Where a member is asked.
const REVIEWS: &str = "apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

#[derive(Debug, clap::Args)]
pub(super) struct CanI {
    #[command(flatten)]
    question: Question,
    /// Print the answers for programs.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// What may somebody do?
#[derive(Debug, clap::Args)]
pub(super) struct Question {
    /// The verb, such as `list`.
    pub(super) verb: String,
    /// The resource, such as `pods`, `deployments.apps` or `pods/log`.
    #[arg(add = ArgValueCompleter::new(completion::kinds))]
    resource: String,
    /// The name of one object, as the member knows it.
    pub(super) name: Option<String>,
    /// The namespace. Default: the context's.
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces", add = ArgValueCompleter::new(completion::namespaces))]
    namespace: Option<String>,
    /// Ask about all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Ask about this user, as whom the member must let you act.
    #[arg(long = "as", value_name = "USER")]
    pub(super) user: Option<String>,
    /// A group of that user; may be repeated.
    #[arg(long = "as-group", value_name = "NAME", requires = "user")]
    pub(super) groups: Vec<String>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// What the members answered.
pub(super) struct Answers {
    pub(super) resource: Resource,
    /// Empty: in all, or in none.
    pub(super) namespace: String,
    /// In configuration order.
    pub(super) said: Vec<Said>,
}

/// What one member says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Said {
    pub(super) member: String,
    /// Absent where the member did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allowed: Option<bool>,
    /// Why: the rule, where the member names it.
    pub(super) why: String,
}

/// A resource, as members are asked about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) resource: String,
    /// `Deployment`.
    pub(super) kind: String,
    pub(super) subresource: String,
    pub(super) namespaced: bool,
}

/// Prints it on standard output.
pub(super) fn print(flags: &CanI) -> anyhow::Result<()> {
    let Answers { said, .. } = flags.question.ask()?;
    print_text(&match flags.output {
        None => render(&said),
        Some(output) => output.text(&said)?,
    })
}

impl Question {
    /// Asks each member.
    ///
    /// Errors: kubefold cannot be asked, or no member serves the resource.
    pub(super) fn ask(&self) -> anyhow::Result<Answers> {
        let members = self.members()?;
        let resource = find(&self.connection, &self.resource)?;
        let namespace = match &self.namespace {
            _ if self.all_namespaces || !resource.namespaced => String::new(),
            Some(namespace) => namespace.clone(),
            None => self.connection.namespace()?,
        };
        let Resource { group, version, resource: plural, subresource, .. } = &resource;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": self.verb, "group": group, "version": version, "resource": plural, "subresource": subresource,
                "namespace": namespace, "name": self.name.as_deref().unwrap_or_default(),
            }},
        });
        let headers: Vec<(&str, &str)> = self
            .user
            .iter()
            .map(|user| ("Impersonate-User", user.as_str()))
            .chain(self.groups.iter().map(|group| ("Impersonate-Group", group.as_str())))
            .collect();
        let ask = |member: String| {
            let path = format!("/clusters/{member}/{REVIEWS}");
            let ask =
                Ask { method: Method::POST, path: &path, headers: &headers, body: review.to_string().into_bytes() };
            said(member, self.connection.ask_with(ask))
        };
        let said = members.into_iter().map(ask).collect();
        Ok(Answers { resource, namespace, said })
    }

    /// Who the members are. kubefold tells that to those who operate it; others have a kubeconfig with a context for each.
    fn members(&self) -> anyhow::Result<Vec<String>> {
        match self.connection.ask(Method::GET, STATUS_PATH, Vec::new()) {
            Ok(status) => {
                let status: FleetStatus =
                    serde_json::from_str(&status).context("the server is not a kubefold of this version")?;
                Ok(status.members.into_iter().map(|member| member.name).collect())
            }
            Err(error) if error.downcast_ref::<Refused>().is_some_and(Refused::is_forbidden) => {
                let members = self.connection.members()?;
                if members.is_empty() {
                    Err(error.context("the kubeconfig has no context of a member"))
                } else {
                    Ok(members)
                }
            }
            Err(error) => Err(error.context("cannot read who the members are")),
        }
    }
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

pub(super) fn render(said: &[Said]) -> String {
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
pub(super) fn find(connection: &Connection, asked: &str) -> anyhow::Result<Resource> {
    for path in served::PATHS {
        if let Some(found) = found(served::read(connection, path)?, asked) {
            return Ok(found);
        }
    }
    bail!("no member serves a resource {}; see kubectl api-resources", Quoted(asked))
}

/// Finds it among those: by its plural, its singular or a short name, with or without its group.
fn found(served: Vec<ServedResource>, asked: &str) -> Option<Resource> {
    let asked = asked.to_ascii_lowercase();
    let (asked, subresource) = asked.split_once('/').unwrap_or((&asked, ""));
    let (name, wanted_group) = asked.split_once('.').map_or((asked, None), |(name, group)| (name, Some(group)));
    let mut of_group = served.into_iter().filter(|one| wanted_group.is_none_or(|wanted| wanted == one.group));
    let ServedResource { group, version, resource, kind, is_namespaced, .. } =
        of_group.find(|one| one.is_called(name))?;
    Some(Resource { group, version, resource, kind, subresource: subresource.to_owned(), namespaced: is_namespaced })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<ServedResource> {
        let resource = |resource: &str, singular: &str, short: &str, scope: &str| json!({"resource": resource, "singularResource": singular, "shortNames": [short], "scope": scope});
        served::all(&json!({"items": [
            {"metadata": {"name": "apps"}, "versions": [
                {"version": "v1", "resources": [resource("deployments", "deployment", "deploy", "Namespaced")]}]},
            {"metadata": {"name": "example.com"}, "versions": [
                {"version": "v2", "resources": [resource("deployments", "deployment", "ed", "Cluster")]}]},
        ]}))
    }

    #[test]
    fn a_resource_is_found_by_every_name_that_it_has() {
        let of =
            |asked: &str| found(known(), asked).map(|one| (one.group, one.version, one.subresource, one.namespaced));
        let deployments = |subresource: &str| Some(("apps".into(), "v1".into(), subresource.into(), true));
        for asked in ["deployments", "deployment", "Deployment", "deploy", "deployments.apps"] {
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
