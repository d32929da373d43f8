//! `kubefold auth explain`: why members allow or deny something, what would allow it, and what the fleet view makes of it.

mod rbac;

use std::fmt::Write as _;

use anyhow::Context;
use http::Method;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use self::rbac::{Binding, List, Role, Who, Wish};
use crate::cli::{
    can_i::{Answers, Question, Said, render},
    client::{Ask, Connection, Output},
    print as print_text,
};

const WHO_AM_I: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const RBAC: &str = "apis/rbac.authorization.k8s.io/v1";
/// Kubernetes' own roles for people, the smallest first.
const ROLES: [&str; 3] = ["view", "edit", "admin"];

#[derive(Debug, clap::Args)]
pub(super) struct Auth {
    #[command(subcommand)]
    command: AuthCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AuthCommand {
    /// Print why each member allows or denies something, what would allow it, and what the fleet view does.
    #[command(after_help = super::help::EXPLAIN)]
    Explain(Explain),
}

#[derive(Debug, clap::Args)]
struct Explain {
    #[command(flatten)]
    question: Question,
    /// Print the explanation for programs.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// What is printed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    user: String,
    groups: Vec<String>,
    members: Vec<Said>,
    /// Commands that would allow it in the members that deny it.
    to_allow: Vec<String>,
    /// What a request in the fleet view comes to.
    fleet_view: String,
}

/// Prints it on standard output.
pub(super) fn run(flags: &Auth) -> anyhow::Result<()> {
    let AuthCommand::Explain(Explain { question, output }) = &flags.command;
    let Answers { resource, namespace, mut said } = question.ask()?;
    let who = who(question)?;
    let wish = Wish {
        verb: &question.verb,
        group: &resource.group,
        resource: &resource.resource,
        subresource: &resource.subresource,
        name: question.name.as_deref(),
        namespace: &namespace,
    };
    let mut to_allow = Vec::new();
    for one in said.iter_mut().filter(|one| one.allowed == Some(false)) {
        let member = Member { connection: &question.connection, name: &one.member };
        if one.why.is_empty() {
            one.why = member.why_not(&who, &wish);
        }
        let role = ROLES.into_iter().find(|role| member.role(role).is_some_and(|role| role.allows(&wish)));
        to_allow.extend(wish.remedy(&format!("fleet-{}", one.member), &who.user, role));
    }
    let fleet_view = fleet_view(&question.verb, &said);
    let made = Explanation { user: who.user, groups: who.groups, members: said, to_allow, fleet_view };
    print_text(&match output {
        None => text(&made),
        Some(output) => output.text(&made)?,
    })
}

/// Whom the members judge.
fn who(question: &Question) -> anyhow::Result<Who> {
    if let Some(user) = &question.user {
        return Ok(Who { user: user.clone(), groups: question.groups.clone() });
    }
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let answer = question.connection.ask(Method::POST, WHO_AM_I, review.into_bytes());
    let answer: Value = serde_json::from_str(&answer.context("cannot read who you are")?)?;
    let info = &answer["status"]["userInfo"];
    let groups = info["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    Ok(Who { user: info["username"].as_str().unwrap_or_default().to_owned(), groups: groups.collect() })
}

/// A member, asked as the one who runs the command.
struct Member<'a> {
    connection: &'a Connection,
    name: &'a str,
}

impl Member<'_> {
    fn read<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        let path = format!("/clusters/{}/{RBAC}/{path}", self.name);
        let ask = Ask { method: Method::GET, path: &path, headers: &[], body: Vec::new() };
        serde_json::from_str(&self.connection.ask_with(ask).ok()?).ok()
    }

    fn role(&self, name: &str) -> Option<Role> {
        self.read(&format!("clusterroles/{name}"))
    }

    /// Which bindings there are that do not suffice.
    fn why_not(&self, who: &Who, wish: &Wish<'_>) -> String {
        let everywhere: Option<List<Binding>> = self.read("clusterrolebindings");
        let here: Option<List<Binding>> = match wish.namespace {
            "" => Some(List { items: Vec::new() }),
            namespace => self.read(&format!("namespaces/{namespace}/rolebindings")),
        };
        let (Some(everywhere), Some(here)) = (everywhere, here) else {
            return "no rule allows it; this login may not read which bindings there are".to_owned();
        };
        let bindings: Vec<String> =
            here.items.iter().chain(&everywhere.items).filter(|one| one.names(who)).map(Binding::text).collect();
        match bindings.len() {
            0 => "no binding names the user or one of the groups".to_owned(),
            1 => format!("{} does not allow it", bindings.join("")),
            _ => format!("none of these allows it: {}", bindings.join(", ")),
        }
    }
}

/// What a request in the fleet view comes to. docs/authentication.md has the rules.
fn fleet_view(verb: &str, said: &[Said]) -> String {
    let of = |allowed| {
        said.iter().filter(|one| one.allowed == allowed).map(|one| one.member.as_str()).collect::<Vec<_>>().join(", ")
    };
    let (yes, no, unknown) = (of(Some(true)), of(Some(false)), of(None));
    let mut text = match (verb, yes.is_empty(), no.is_empty()) {
        (_, true, _) if unknown.is_empty() => "403, in every view".to_owned(),
        (_, _, true) if unknown.is_empty() => "every member allows it: as in one cluster".to_owned(),
        (_, true, _) => "no member that answered allows it".to_owned(),
        (_, _, true) => format!("allowed in {yes}"),
        ("list" | "watch", ..) => {
            format!("the answer has the objects of {yes}, and a Warning names {no}; /views/strict/ answers 403")
        }
        ("get", ..) => format!("objects of {yes} are shown, and of an object with parts also in {no} the rest"),
        ("create", ..) => format!("objects are made in {yes} only; what is for {no} by name is refused with 403"),
        ("update" | "patch" | "delete", ..) => {
            format!("objects of {yes} can be changed; an object that has a part in {no}, too, is refused with 403")
        }
        _ => format!("allowed for what is in {yes}; 403 for what is in {no}"),
    };
    if !unknown.is_empty() {
        let _infallible =
            write!(text, "; {unknown} did not say: a list is 503, and a table or /views/lenient/ is without it");
    }
    text
}

fn text(made: &Explanation) -> String {
    let Explanation { user, groups, members, to_allow, fleet_view } = made;
    let groups = if groups.is_empty() { String::new() } else { format!(", groups {}", groups.join(", ")) };
    let mut out = format!("user {user}{groups}\n\n{}\nin the fleet view: {fleet_view}\n", render(members));
    if !to_allow.is_empty() {
        let _infallible = write!(out, "\nto allow it:\n  {}\n", to_allow.join("\n  "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(all: &[(&str, Option<bool>)]) -> Vec<Said> {
        let one = |(member, allowed): &(&str, Option<bool>)| Said {
            member: (*member).to_owned(),
            allowed: *allowed,
            why: String::new(),
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn the_fleet_view_is_what_the_members_allow() {
        let (yes, no) = (Some(true), Some(false));
        for (verb, members, begin) in [
            ("list", [yes, yes], "every member allows it"),
            ("list", [no, no], "403, in every view"),
            ("list", [yes, no], "the answer has the objects of east, and a Warning names west"),
            ("get", [no, yes], "objects of west are shown"),
            ("create", [yes, no], "objects are made in east only"),
            ("delete", [yes, no], "objects of east can be changed; an object that has a part in west"),
            ("list", [yes, None], "allowed in east; west did not say"),
            ("list", [no, None], "no member that answered allows it; west did not say"),
            ("bind", [yes, no], "allowed for what is in east; 403 for what is in west"),
        ] {
            let all = said(&[("east", members[0]), ("west", members[1])]);
            let text = fleet_view(verb, &all);
            assert!(text.starts_with(begin), "{verb} {members:?}: {text}");
        }
    }
}
