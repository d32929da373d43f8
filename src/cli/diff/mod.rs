//! `kubefold diff`: the parts of one object, field by field.

mod compare;
mod page;

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap_complete::ArgValueCompleter;
use futures::future::join_all;
use http::Method;
use serde_json::Value;

use self::{
    compare::{Also, Held, Parts, compare},
    page::{Asked, Comparison, Part},
};
use crate::cli::{
    can_i::{Resource, find},
    client::{Ask, Connection, Output, Refused, Session},
    completion, ended,
    named::{Named, named},
    paint, print as print_text, say,
};
use kubefold_wire::{access::text, golang::Quoted, path::ApiPath, resource::Gvr};

/// The parts differ, as of diff(1).
const EXIT_DIFFERS: u8 = 1;
/// They could not be compared.
const EXIT_FAILED: u8 = 2;
/// Who has a part, the home first; whose part an unfinished write has not reached; and whose part was edited or deleted.
const CLUSTERS: &str = "/metadata/annotations/kubefold.io~1clusters";
const BEHIND: &str = "/metadata/annotations/kubefold.io~1behind";
const DIFFERS: &str = "/metadata/annotations/kubefold.io~1differs";
/// The member that alone has the object.
const CLUSTER: &str = "/metadata/annotations/kubefold.io~1cluster";

#[derive(Debug, clap::Args)]
pub(super) struct Diff {
    /// The object, as for kubectl: deployment/web, or deployment web.
    #[arg(value_name = "TYPE/NAME", required = true, num_args = 1..=2, add = ArgValueCompleter::new(completion::objects))]
    object: Vec<String>,
    /// The object's namespace. Default: the context's.
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(completion::namespaces))]
    namespace: Option<String>,
    /// Compare also what servers and controllers assign, such as UIDs, and the status.
    #[arg(long)]
    all: bool,
    /// Compare also the status.
    #[arg(long)]
    status: bool,
    /// Print the whole answer, for programs.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    #[command(flatten)]
    connection: Connection,
}

/// Prints it on standard output. Gives 0 where the parts are as they are to be, 1 where they differ, and 2 where it fails.
pub(super) fn run(flags: &Diff) -> ExitCode {
    match flags.run() {
        Ok(differs) => ExitCode::from(if differs { EXIT_DIFFERS } else { 0 }),
        Err(error) => ended(Err(error), EXIT_FAILED),
    }
}

impl Diff {
    fn run(&self) -> anyhow::Result<bool> {
        let Named { kind, name } = named(&self.object)?;
        let resource = find(&self.connection, &kind)?;
        let namespace = match &self.namespace {
            _ if !resource.namespaced => String::new(),
            Some(namespace) => namespace.clone(),
            None => self.connection.namespace()?,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let compared = runtime.block_on(Box::pin(async {
            let session = self.connection.open().await?;
            self.compare(&session, &resource, &namespace, &name).await
        }))?;
        print_text(&match self.output {
            None => page::render(&compared, paint::on_stdout()),
            Some(output) => output.text(&compared)?,
        })?;
        let unread: Vec<&Asked> = compared.members.iter().filter(|one| one.part == Part::Unread).collect();
        if let [first, ..] = unread.as_slice() {
            let names: Vec<&str> = unread.iter().map(|one| one.name.as_str()).collect();
            bail!("no comparison with {}: {}", names.join(", "), first.why.as_deref().unwrap_or_default());
        }
        if self.output.is_none() && compared.fields.is_empty() && !compared.differs {
            let names: Vec<&str> = compared.members.iter().map(|one| one.name.as_str()).collect();
            say(&format!("the parts in {} are equal", names.join(", ")));
        }
        Ok(compared.differs)
    }

    async fn compare(
        &self,
        session: &Session,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<Comparison> {
        let gvr = Gvr::new(&resource.group, &resource.version, &resource.resource);
        let path = if namespace.is_empty() { ApiPath::of(&gvr) } else { ApiPath::within(&gvr, namespace) }.then(name);
        let whole = get(session, path.as_str()).await?;
        let listed = |at: &str| text(&whole, at).split(',').filter(|name| !name.is_empty()).map(str::to_owned);
        let mut members: Vec<String> = listed(CLUSTERS).collect();
        if members.is_empty() {
            match text(&whole, CLUSTER) {
                "" => bail!("{} is kubefold's own: no member has a part of it", Quoted(name)),
                member => bail!("{} is an object of {member} alone; there is nothing to compare", Quoted(name)),
            }
        }
        for name in listed(BEHIND).chain(listed(DIFFERS)) {
            if !members.contains(&name) {
                members.push(name);
            }
        }
        let answers = join_all(members.iter().map(async |member| {
            let path = format!("/clusters/{member}{}", path.as_str());
            get(session, &path).await
        }))
        .await;
        let (mut asked, mut held) = (Vec::new(), Vec::new());
        for (member, answer) in members.into_iter().zip(answers) {
            let (part, why) = state(&answer, asked.is_empty());
            asked.push(Asked { name: member.clone(), part, why });
            held.extend(answer.ok().map(|document| Held { member, document }));
        }
        let behind: Vec<String> = listed(BEHIND).collect();
        let is_gone = |one: &Asked| matches!(one.part, Part::Missing | Part::Deleting);
        // Where the home did not answer, nothing says what the others are to be.
        let is_home_read = asked.first().is_some_and(|home| matches!(home.part, Part::Home | Part::Deleting));
        let also = Also { assigned: self.all, status: self.all || self.status };
        let fields = match held.split_first() {
            Some((home, others)) if is_home_read => {
                compare(&Parts { gvr: &gvr, whole: &whole, home, others, behind: &behind }, also)
            }
            _ => Vec::new(),
        };
        let differs = asked.iter().any(is_gone) || fields.iter().any(|row| row.why.is_difference());
        let (resource, name) = (gvr.qualified(), name.to_owned());
        Ok(Comparison { resource, namespace: namespace.to_owned(), name, differs, members: asked, fields })
    }
}

async fn get(session: &Session, path: &str) -> anyhow::Result<Value> {
    let headers = [("Accept", "application/json")];
    let answer = session.ask(Ask { method: Method::GET, path, headers: &headers, body: Vec::new() }).await?;
    serde_json::from_str(&answer).context("the answer is no JSON")
}

/// What a member's answer says of its part.
fn state(answer: &anyhow::Result<Value>, is_home: bool) -> (Part, Option<String>) {
    match answer {
        Ok(document) if !text(document, "/metadata/deletionTimestamp").is_empty() => (Part::Deleting, None),
        Ok(_) if is_home => (Part::Home, None),
        Ok(_) => (Part::Present, None),
        Err(error) => match error.downcast_ref::<Refused>() {
            Some(refused) if refused.code() == 404 => (Part::Missing, None),
            Some(refused) => (Part::Unread, Some(refused.message().to_owned())),
            None => (Part::Unread, Some(format!("{error:#}"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_that_is_not_read_is_not_one_that_is_gone() {
        let read = Ok(json!({"metadata": {}}));
        assert_eq!((state(&read, true).0, state(&read, false).0), (Part::Home, Part::Present));
        let deleting = Ok(json!({"metadata": {"deletionTimestamp": "2026-11-27T09:00:00Z"}}));
        assert_eq!(state(&deleting, true).0, Part::Deleting);
        let refused = |code: u16| Err(Refused::new("https://fleet", code, "no").into());
        assert_eq!(state(&refused(404), false).0, Part::Missing);
        assert_eq!(state(&refused(503), false), (Part::Unread, Some("no".to_owned())));
        assert_eq!(state(&Err(anyhow::anyhow!("gone")), false).0, Part::Unread);
    }
}
