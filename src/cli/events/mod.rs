//! `kubefold events`: the events of all members, in the order of time.

mod event;
mod followed;

use anyhow::Context;
use clap_complete::ArgValueCompleter;
use futures::TryStreamExt;
use http::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use self::{
    event::{Event, Shown},
    followed::{Followed, Line, Next, in_order},
};
use crate::cli::{
    can_i::find,
    client::{Ask, Connection, Output, Refused, Session, Unreached},
    completion,
    named::{Named, named_in_one},
    paint, print as print_text, say,
    status::Columns,
};
use kubefold_wire::{access::text, resource::api_version};

/// Events that one answer has.
const PAGE: usize = 500;
/// A watch is begun again then, so that one is noticed of which nothing comes any more. Units: seconds.
const WATCH_S: u32 = 300;

#[derive(Debug, clap::Args)]
pub(super) struct Events {
    /// Print those that are there, and what comes, until interrupted.
    #[arg(short, long)]
    watch: bool,
    /// The namespace. Default: the context's.
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces", add = ArgValueCompleter::new(completion::namespaces))]
    namespace: Option<String>,
    /// The events of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only what is about this object: pod/web-0@east, or deployment/web.
    #[arg(long = "for", value_name = "TYPE/NAME", value_parser = named_in_one, add = ArgValueCompleter::new(completion::objects))]
    about: Option<Named>,
    /// Only of these members; may be repeated.
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', add = ArgValueCompleter::new(completion::members))]
    member: Vec<String>,
    /// Only of these types.
    #[arg(long, value_name = "TYPE", value_enum, ignore_case = true, value_delimiter = ',')]
    types: Vec<Type>,
    /// Print the events for programs.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    #[command(flatten)]
    connection: Connection,
}

/// How an event is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
enum Type {
    Normal,
    Warning,
}

/// Prints them on standard output.
pub(super) fn run(flags: &Events) -> anyhow::Result<()> {
    let asked = Asked::of(flags)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(async {
        let session = flags.connection.open().await?;
        if flags.watch { asked.follow(&session).await } else { asked.print(&session).await }
    }))
}

/// Which events are wanted, and how.
struct Asked<'a> {
    flags: &'a Events,
    /// The collection, with its selectors.
    url: String,
    /// The namespace; empty: all.
    namespace: String,
}

impl<'a> Asked<'a> {
    fn of(flags: &'a Events) -> anyhow::Result<Self> {
        let namespace = match &flags.namespace {
            _ if flags.all_namespaces => String::new(),
            Some(namespace) => namespace.clone(),
            None => flags.connection.namespace()?,
        };
        let mut query = form_urlencoded::Serializer::new(String::new());
        if !flags.member.is_empty() {
            query.append_pair("labelSelector", &format!("kubefold.io/cluster in ({})", flags.member.join(",")));
        }
        let mut fields = Vec::new();
        if let Some(Named { kind, name }) = &flags.about {
            let found = find(&flags.connection, kind)?;
            fields.push(format!("involvedObject.kind={}", found.kind));
            fields.push(format!("involvedObject.apiVersion={}", api_version(&found.group, &found.version)));
            // Without a member it may be the name of several members' objects.
            fields.extend(name.contains('@').then(|| format!("involvedObject.name={name}")));
        }
        if let [one] = flags.types.as_slice() {
            fields.push(format!("type={one:?}"));
        }
        if !fields.is_empty() {
            query.append_pair("fieldSelector", &fields.join(","));
        }
        let within = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        Ok(Self { flags, url: format!("/api/v1{within}/events?{}", query.finish()), namespace })
    }

    async fn print(&self, session: &Session) -> anyhow::Result<()> {
        let events = in_order(self.list(session).await?.items);
        if events.is_empty() && self.flags.output.is_none() {
            let of =
                if self.namespace.is_empty() { String::new() } else { format!(" in {} namespace", self.namespace) };
            say(&format!("No events found{of}."));
            return Ok(());
        }
        print_text(&match self.flags.output {
            None => {
                let shown = self.shown();
                let rows = events.iter().map(|event| Event(event).row(shown));
                Columns::default().lines(&std::iter::once(shown.head()).chain(rows).collect::<Vec<_>>())
            }
            Some(output) => {
                output.text(&json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": events}))?
            }
        })
    }

    /// Prints what is there and what comes.
    ///
    /// Errors: the first answer is a refusal, or standard output is closed.
    async fn follow(&self, session: &Session) -> anyhow::Result<()> {
        let (mut followed, mut columns) = (Followed::default(), Columns::default());
        if self.flags.output.is_none() {
            print_text(&columns.lines(&[self.shown().head()]))?;
        }
        let (mut is_first, mut told) = (true, String::new());
        loop {
            let done = match followed.next().clone() {
                Next::List => match self.list(session).await {
                    Ok(list) => {
                        let new = followed.listed(list.items, &list.revision);
                        new.iter().try_for_each(|event| self.tell(event, &mut columns))?;
                        (is_first, told) = (false, String::new());
                        continue;
                    }
                    Err(error) => Err(error),
                },
                Next::Watch(revision) => self.watch(session, &revision, &mut followed, &mut columns).await,
            };
            match done {
                Ok(()) => told.clear(),
                Err(error) if is_first || !is_passing(&error) => return Err(error),
                Err(error) if is_gone(&error) => followed.expired(),
                Err(error) => {
                    let why = format!("{error:#}");
                    if why != told {
                        say(&format!("the watch was interrupted, and goes on when it can: {why}"));
                    }
                    told = why;
                }
            }
            sleep(followed.pause()).await;
        }
    }

    /// Follows one connection until it ends.
    ///
    /// Errors: why it ended, if not in order.
    async fn watch(
        &self,
        session: &Session,
        revision: &str,
        followed: &mut Followed,
        columns: &mut Columns,
    ) -> anyhow::Result<()> {
        let url = format!(
            "{}&watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}&resourceVersion={revision}",
            self.url
        );
        let ask = ask(&url);
        let mut lines = Box::pin(session.lines(&ask).await?);
        while let Some(line) = lines.try_next().await.map_err(Interrupted::Lost)? {
            match followed.line(&serde_json::from_str(&line).map_err(|_| Interrupted::NoJson)?) {
                Line::Print(event) => self.tell(&event, columns)?,
                Line::Nothing => {}
                Line::Ended(why) if why.is_empty() => return Ok(()),
                Line::Ended(why) => return Err(Interrupted::Told(why).into()),
            }
        }
        Ok(())
    }

    async fn list(&self, session: &Session) -> anyhow::Result<List> {
        let mut list = List::default();
        let mut token = String::new();
        loop {
            let url = format!("{}&limit={PAGE}{token}", self.url);
            let page: Value = serde_json::from_str(&session.ask(ask(&url)).await?).context("the answer is no JSON")?;
            let Value::Array(items) = page["items"].clone() else { break };
            list.items.extend(items.into_iter().filter(|event| self.is_wanted(Event(event))));
            text(&page, "/metadata/resourceVersion").clone_into(&mut list.revision);
            match text(&page, "/metadata/continue") {
                "" => break,
                next => {
                    let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
                    token = format!("&continue={next}");
                }
            }
        }
        Ok(list)
    }

    /// What no selector says.
    fn is_wanted(&self, event: Event<'_>) -> bool {
        let is_of = |kind: &Type| match kind {
            Type::Normal => event.kind() == "Normal",
            Type::Warning => event.kind() == "Warning",
        };
        let is_about = self.flags.about.as_ref().is_none_or(|about| event.is_about(&about.name));
        is_about && (self.flags.types.is_empty() || self.flags.types.iter().any(is_of))
    }

    fn tell(&self, event: &Value, columns: &mut Columns) -> anyhow::Result<()> {
        if !self.is_wanted(Event(event)) {
            return Ok(());
        }
        print_text(&match self.flags.output {
            None => columns.lines(&[Event(event).row(self.shown())]),
            Some(Output::Json) => Output::Json.text(event)?,
            Some(Output::Yaml) => format!("---\n{}", Output::Yaml.text(event)?),
        })
    }

    fn shown(&self) -> Shown {
        let now_micros = jiff::Timestamp::now().as_microsecond();
        Shown { namespaces: self.namespace.is_empty(), colours: paint::on_stdout(), now_micros }
    }
}

#[derive(Default)]
struct List {
    items: Vec<Value>,
    revision: String,
}

fn ask(path: &str) -> Ask<'_> {
    Ask { method: Method::GET, path, headers: &[("Accept", "application/json")], body: Vec::new() }
}

/// Why a watch ended.
#[derive(Debug, thiserror::Error)]
enum Interrupted {
    #[error("the connection was lost ({0})")]
    Lost(std::io::Error),
    #[error("a line of the watch is no JSON")]
    NoJson,
    #[error("{0}")]
    Told(String),
}

/// Says whether it may be another time: nobody answers, or answers that it cannot now.
fn is_passing(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Refused>();
    error.is::<Unreached>()
        || error.is::<Interrupted>()
        || refused.is_some_and(|refused| matches!(refused.code(), 410 | 429 | 500..))
}

fn is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.code() == 410)
}
