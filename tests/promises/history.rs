//! What clients saw and what members went through: what the checkers judge.
//!
//! Times are those of the virtual clock, since the world began.

use std::{collections::BTreeMap, fmt, time::Duration};

use http::Method;
use kubefold_serving::caller::Caller;
use serde_json::Value;

use crate::kinds::Kind;

/// Prefix of kubefold's own annotations.
pub(crate) const OWN: &str = "kubefold.io/";

/// An object as it was seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// As it stood there.
    pub(crate) revision: String,
    /// Without `kind` and `apiVersion`, which the items of a list lack.
    pub(crate) body: Value,
}

impl Seen {
    /// Reads an object's JSON.
    pub(crate) fn of(text: &str) -> Self {
        Self::of_value(serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}")))
    }

    pub(crate) fn of_value(mut body: Value) -> Self {
        let text = |path: &str| body.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let (uid, revision) = (text("/metadata/uid"), text("/metadata/resourceVersion"));
        if let Some(fields) = body.as_object_mut() {
            fields.shift_remove("kind");
            fields.shift_remove("apiVersion");
        }
        Self { namespace, name, uid, revision, body }
    }

    /// The revision as a number; 0 where it is none.
    pub(crate) fn number(&self) -> u64 {
        self.revision.parse().unwrap_or_default()
    }

    /// `namespace/name`.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.body.get("metadata")?.get("annotations")?.get(name)?.as_str()
    }

    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.body.get("metadata")?.get("labels")?.get(name)?.as_str()
    }

    /// The member that a member-local object is of.
    pub(crate) fn cluster(&self) -> Option<&str> {
        self.annotation("kubefold.io/cluster")
    }
}

/// What happened in a member.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) at: Duration,
    pub(crate) kind: &'static Kind,
    pub(crate) changed: Changed,
}

#[derive(Clone, Debug)]
pub(crate) enum Changed {
    /// It is read from the beginning: first, or because it was restored. What follows up to `Synced` is all that it has.
    Afresh,
    Synced,
    Added(Seen),
    Modified(Seen),
    Deleted(Seen),
}

/// A request as a member got it.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) at: Duration,
    pub(crate) method: Method,
    /// Decoded.
    pub(crate) path: String,
    /// Whom the member took the sender for.
    pub(crate) caller: Option<Caller>,
}

/// A get or a list, all pages of it.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) client: usize,
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: String,
    /// `None`: a list.
    pub(crate) name: Option<String>,
    /// What else was asked: prefix and query.
    pub(crate) asked: String,
    /// It named no revision, so it includes what was written before.
    pub(crate) is_fresh: bool,
    /// 0: there was no answer.
    pub(crate) code: u16,
    pub(crate) message: String,
    pub(crate) warnings: Vec<String>,
    /// The list's revision, of each page.
    pub(crate) revisions: Vec<String>,
    pub(crate) objects: Vec<Seen>,
}

impl Read {
    pub(crate) fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Says whether it names this member in a warning, or in what it says of its failure.
    pub(crate) fn names(&self, member: &str) -> bool {
        self.warnings.iter().any(|text| names(text, member))
    }
}

/// Says whether a text speaks about a member.
pub(crate) fn names(text: &str, member: &str) -> bool {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|word| word == member)
}

/// What was done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Update,
    Patch,
    Apply,
    Scale,
    Delete,
}

/// A write through kubefold.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) client: usize,
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) verb: Verb,
    /// 0: there was no answer.
    pub(crate) code: u16,
    pub(crate) message: String,
    pub(crate) warnings: Vec<String>,
    /// The object of the answer; `None` where it is none (a status, a scale).
    pub(crate) object: Option<Seen>,
}

impl Write {
    pub(crate) fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Type {
    Added,
    Modified,
    Deleted,
}

/// An event of a watch.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) event_type: Type,
    pub(crate) object: Seen,
}

/// How a watch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client left.
    Left,
    /// A clean end, or the connection broke.
    Ended,
    /// An `ERROR` with this code.
    Failed(u64),
}

/// One watch, from its opening to its end.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) client: usize,
    pub(crate) began: Duration,
    pub(crate) kind: &'static Kind,
    /// Empty: of all namespaces.
    pub(crate) namespace: String,
    /// What the client held when it began, by key: a list's objects. Empty for a WatchList.
    pub(crate) held: BTreeMap<String, Seen>,
    /// The revision that it began after; `None` for a WatchList.
    pub(crate) from: Option<u64>,
    pub(crate) code: u16,
    pub(crate) events: Vec<Event>,
    /// Of a WatchList: how many of the events are the objects of the beginning, and as of which revision they are.
    pub(crate) initial: Option<(usize, u64)>,
    /// It has not ended yet.
    pub(crate) is_open: bool,
    /// Of all bookmarks, as they stood there.
    pub(crate) bookmarks: Vec<String>,
    pub(crate) end: End,
}

impl Watched {
    /// The events that are news: not the objects that a WatchList begins with.
    pub(crate) fn news(&self) -> &[Event] {
        match (self.from, self.initial) {
            (Some(_), _) => &self.events,
            (None, Some((count, _))) => self.events.get(count..).unwrap_or_default(),
            (None, None) => &[],
        }
    }

    /// From which revision on it told everything.
    pub(crate) fn since(&self) -> Option<u64> {
        self.from.or_else(|| self.initial.map(|(_, revision)| revision))
    }

    /// Up to which revision it told everything.
    pub(crate) fn until(&self) -> Option<u64> {
        let since = self.since()?;
        let bookmarks = self.bookmarks.iter().filter_map(|text| text.parse().ok());
        let events = self.news().iter().map(|event| event.object.number());
        Some(bookmarks.chain(events).fold(since, u64::max))
    }
}

/// Something that was done to a member.
#[derive(Clone, Debug)]
pub(crate) struct Injected {
    pub(crate) at: Duration,
    pub(crate) member: usize,
    pub(crate) what: String,
}

/// Everything that happened under one seed.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) namespace: String,
    /// Names of the members, in the configuration's order.
    pub(crate) members: Vec<&'static str>,
    /// What happened in each of them.
    pub(crate) changes: Vec<Vec<Change>>,
    /// What each of them was asked.
    pub(crate) heard: Vec<Vec<Heard>>,
    pub(crate) reads: Vec<Read>,
    pub(crate) writes: Vec<Write>,
    pub(crate) watches: Vec<Watched>,
    pub(crate) injected: Vec<Injected>,
    /// When all faults were taken away, and all members were current again.
    pub(crate) calm_at: Duration,
    /// What each member held in the end, by kind: as the kinds are.
    pub(crate) held: Vec<Vec<(&'static Kind, Vec<Seen>)>>,
    /// Users and groups of the clients.
    pub(crate) clients: Vec<Caller>,
}

impl History {
    /// Events of all watches of a kind that are news, each once, by revision.
    pub(crate) fn events(&self, kind: &Kind) -> BTreeMap<u64, &Event> {
        let watches = self.watches.iter().filter(|watch| watch.kind == kind);
        watches.flat_map(Watched::news).map(|event| (event.object.number(), event)).collect()
    }

    /// Every object that a client saw, and where.
    pub(crate) fn sightings(&self) -> impl Iterator<Item = (&'static Kind, &Seen, String)> {
        let reads = self.reads.iter().filter(|read| read.succeeded()).flat_map(|read| {
            read.objects
                .iter()
                .map(move |seen| (read.kind, seen, format!("a read at {:?} ({})", read.began, read.asked)))
        });
        let writes = self.writes.iter().filter(|write| write.succeeded()).filter_map(|write| {
            let seen = write.object.as_ref()?;
            Some((write.kind, seen, format!("the answer to {:?} at {:?}", write.verb, write.began)))
        });
        let watches = self.watches.iter().flat_map(|watch| {
            let of = move |event: &Event| {
                format!("{:?} at {:?} of the watch of {:?}", event.event_type, event.at, watch.began)
            };
            watch.events.iter().map(move |event| (watch.kind, &event.object, of(event)))
        });
        reads.chain(writes).chain(watches)
    }

    pub(crate) fn injected_between(&self, from: Duration, to: Duration) -> bool {
        self.injected.iter().any(|one| one.at >= from && one.at <= to)
    }
}

/// For a failed assertion: everything in the order of time, one thing a line.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<(Duration, String)> = Vec::new();
        for one in &self.injected {
            lines.push((one.at, format!("{} {}", self.members[one.member], one.what)));
        }
        for (member, changes) in self.members.iter().zip(&self.changes) {
            for change in changes {
                let told = match &change.changed {
                    Changed::Afresh => "is read afresh".to_owned(),
                    Changed::Synced => "is read".to_owned(),
                    Changed::Added(seen) => format!("added {}", brief(seen)),
                    Changed::Modified(seen) => format!("modified {}", brief(seen)),
                    Changed::Deleted(seen) => format!("deleted {}", brief(seen)),
                };
                lines.push((change.at, format!("  {member}: {} {told}", change.kind.plural)));
            }
        }
        for write in &self.writes {
            let shown = write.object.as_ref().map(brief).unwrap_or_default();
            lines.push((
                write.began,
                format!("client {} {:?} {} {} ...", write.client, write.verb, write.kind.plural, write.name),
            ));
            lines.push((
                write.ended,
                format!(
                    "client {} {:?} {} {} -> {} {} {shown} {:?}",
                    write.client, write.verb, write.kind.plural, write.name, write.code, write.message, write.warnings
                ),
            ));
        }
        for read in &self.reads {
            let shown: Vec<String> = read.objects.iter().map(brief).collect();
            lines.push((
                read.ended,
                format!(
                    "client {} read {} {} {} (from {:?}) -> {} {} {:?} [{}] {:?}",
                    read.client,
                    read.kind.plural,
                    read.name.as_deref().unwrap_or("*"),
                    read.asked,
                    read.began,
                    read.code,
                    read.message,
                    read.revisions,
                    shown.join(", "),
                    read.warnings
                ),
            ));
        }
        for (number, watch) in self.watches.iter().enumerate() {
            lines.push((
                watch.began,
                format!(
                    "watch {number} of client {}: {} in {:?} from {:?}",
                    watch.client, watch.kind.plural, watch.namespace, watch.from
                ),
            ));
            for event in &watch.events {
                lines.push((event.at, format!("watch {number}: {:?} {}", event.event_type, brief(&event.object))));
            }
        }
        lines.sort_by_key(|(at, _)| *at);
        for (at, line) in lines {
            writeln!(f, "{:>9.3} {line}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

/// One object in few words.
pub(crate) fn brief(seen: &Seen) -> String {
    let uid: String = seen.uid.chars().take(4).collect();
    let note =
        seen.body.pointer("/data/note").or_else(|| seen.body.pointer("/spec/replicas")).cloned().unwrap_or_default();
    let behind = seen.annotation("kubefold.io/behind").map(|text| format!(" behind {text}")).unwrap_or_default();
    format!("{}#{uid}@{}={note}{behind}", seen.name, seen.revision)
}
