//! What a request may use: the members that allow it, and what its client is told of the others.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    access::{
        Access, Impersonator,
        in_use::{AnswerId, Seen},
        question::Question,
        record::{Decided, Record, Word},
    },
    config::MemberName,
    member::review::Action,
    respond::AccessError,
    store::{Audience, Entry, Sight},
    view::Mode,
};
use kubefold_serving::caller::Caller;
use kubefold_wire::{golang::Quoted, resource::Gvr};

/// What members decided about one question. The default is everything, in every member: each judges itself what comes to it.
#[derive(Clone, Default)]
pub struct Grant {
    audience: Audience,
    limits: Option<Limits>,
}

/// What limits it, and by which question.
#[derive(Clone)]
struct Limits {
    decided: Arc<Decided>,
    renewal: Renewal,
}

/// What members decided about all that a request comes to. What it does not come to is not asked.
#[derive(Clone, Default)]
pub struct Grants {
    /// What it asks for.
    pub asked: Grant,
    /// A change of an object: to get it.
    pub get: Grant,
    /// What may make an object: to create it.
    pub create: Grant,
}

/// A question that is asked again while its answer is used.
#[derive(Clone)]
pub struct Renewal {
    access: Arc<Access>,
    /// Held: what members said to it is not forgotten meanwhile.
    record: Arc<Record>,
    through: Option<Arc<Impersonator>>,
    only: Option<MemberName>,
    /// Members that allow it with the selectors alone, and what they say of that.
    selected: Option<Arc<[Selected]>>,
}

/// A member, and what it says of the same with selectors.
type Selected = (MemberName, Arc<Record>);

/// A question that is asked again while its answer is used, once for all who use it, and how much has been seen of the answer.
pub struct Following {
    renewal: Renewal,
    seen: Seen,
}

/// What has become of a grant.
pub enum Renewed {
    /// It holds as it was.
    Same,
    /// More members allow it by now.
    More(Audience),
    /// A member does not allow it any more, or cannot say.
    Ended(Box<AccessError>),
}

impl Grant {
    pub(super) fn new(decided: Arc<Decided>, renewal: Renewal) -> Self {
        Self { audience: decided.audience.clone(), limits: Some(Limits { decided, renewal }) }
    }

    /// The members that allow it.
    pub fn audience(&self) -> &Audience {
        &self.audience
    }

    /// Asks again while the answer is used. `None`: it ends with its credential alone.
    pub fn renewal(&self) -> Option<&Renewal> {
        self.limits.as_ref().map(|limits| &limits.renewal)
    }

    /// What members decided, and about which question. `None`: nobody was asked.
    fn decided(&self) -> Option<(&Decided, &Question<'static>)> {
        self.limits.as_ref().map(|limits| (&*limits.decided, &**limits.renewal.record.question()))
    }

    /// Refuses what no member allows, and what not every member has said, where that is not left out: `mode` says so.
    pub fn check(&self, mode: Mode) -> Result<(), AccessError> {
        let Some((decided, Question { caller, action })) = self.decided() else { return Ok(()) };
        let Decided { denied, unsaid, aged, .. } = decided;
        let is_strict = mode == Mode::Strict;
        let nobody = matches!(&self.audience, Audience::Members(members) if members.is_empty());
        if (nobody && unsaid.is_empty()) || (is_strict && !denied.is_empty()) {
            return Err(forbidden(caller, action, denied));
        }
        if nobody || (mode != Mode::Lenient && !unsaid.is_empty()) || (is_strict && !aged.is_empty()) {
            return Err(unknown(caller, action, unsaid.iter().chain(aged)));
        }
        Ok(())
    }

    /// Refuses a write that no member allows, or of which one that answers has not said. A member that is down judges it
    /// itself when it catches up.
    pub fn check_write(&self) -> Result<(), AccessError> {
        let Some((decided, Question { caller, action })) = self.decided() else { return Ok(()) };
        let Decided { denied, unsaid, .. } = decided;
        let nobody = matches!(&self.audience, Audience::Members(members) if members.is_empty());
        if nobody && unsaid.is_empty() {
            return Err(forbidden(caller, action, denied));
        }
        let mut silent = unsaid.iter().filter(|word| nobody || !word.is_down).peekable();
        if silent.peek().is_some() { Err(unknown(caller, action, silent)) } else { Ok(()) }
    }

    /// Refuses what a member does not allow, or has not said while it answers: for what is in all of them. One that is down
    /// counts where nothing is known of it, if nobody else allows it.
    pub fn check_everywhere(&self) -> Result<(), AccessError> {
        self.check_write()?;
        let Some((decided, Question { caller, action })) = self.decided() else { return Ok(()) };
        if decided.denied.is_empty() { Ok(()) } else { Err(forbidden(caller, action, &decided.denied)) }
    }

    /// The members that do not allow it.
    pub fn refusing(&self) -> Vec<MemberName> {
        let denied = self.limits.iter().flat_map(|limits| &limits.decided.denied);
        denied.map(|word| word.member.clone()).collect()
    }

    /// Refuses a change of an object of which a member does not allow it that has a part. A member that is down judges it
    /// itself when it catches up.
    pub fn check_whole(&self, entry: &Entry) -> Result<(), AccessError> {
        let Some((decided, Question { caller, action })) = self.decided() else { return Ok(()) };
        if self.audience.sight(entry) == Sight::Whole {
            return Ok(());
        }
        let of_parts = |words: &[Word]| {
            words.iter().filter(|word| entry.holders.contains(&word.member)).cloned().collect::<Vec<_>>()
        };
        let denied = of_parts(&decided.denied);
        if denied.is_empty() {
            let unsaid = of_parts(&decided.unsaid);
            let mut silent = unsaid.iter().filter(|word| !word.is_down).peekable();
            return if silent.peek().is_some() { Err(unknown(caller, action, silent)) } else { Ok(()) };
        }
        let has = |word: Word| {
            let why = format!("it does not allow this, and has a part{}", reason(&word.why));
            Word { why: why.into(), ..word }
        };
        Err(forbidden(caller, action, &denied.into_iter().map(has).collect::<Vec<_>>()))
    }

    /// One sentence for each member that is left out, or taken at its last word.
    pub fn warnings(&self) -> Vec<String> {
        let Some((decided, Question { caller, action })) = self.decided() else { return Vec::new() };
        let (user, verb, resource) = (Quoted(&caller.user), &action.verb, qualified(action));
        let Decided { denied, unsaid, aged, .. } = decided;
        let denied = denied.iter().map(|Word { member, .. }| {
            format!("member {member} does not allow user {user} to {verb} {resource}; they are left out")
        });
        let unsaid = unsaid.iter().map(|Word { member, why, .. }| {
            format!("whether member {member} allows user {user} to {verb} {resource} is not known ({why}); they are left out")
        });
        let aged = aged.iter().map(|Word { member, why, .. }| {
            format!("member {member} has not said again what user {user} may do: {why}")
        });
        denied.chain(unsaid).chain(aged).collect()
    }
}

impl Renewal {
    pub(super) fn new(
        access: &Arc<Access>,
        record: Arc<Record>,
        through: Option<Arc<Impersonator>>,
        only: Option<MemberName>,
    ) -> Self {
        Self { access: Arc::clone(access), record, through, only, selected: None }
    }

    /// The same, where a member is asked with the selectors.
    pub(super) fn selecting(mut self, member: MemberName, record: Arc<Record>) -> Self {
        let before = self.selected.iter().flat_map(|selected| selected.iter().cloned());
        self.selected = Some(before.chain([(member, record)]).collect());
        self
    }

    /// Has the question asked again for as long as what is returned is held, and once for all who follow it.
    pub fn follow(&self) -> Following {
        let Self { access, record, through, only, selected } = self;
        let selected = selected.iter().flat_map(|selected| selected.iter());
        let id = AnswerId {
            record: Arc::as_ptr(record).addr(),
            through: through.as_ref().map(|through| Arc::as_ptr(through).addr()),
            only: only.clone(),
            selected: selected.map(|(_, record)| Arc::as_ptr(record).addr()).collect(),
        };
        let renewal = self.clone();
        Following { renewal: self.clone(), seen: access.in_use(|in_use| in_use.follow(id, move || renewal.decided())) }
    }

    /// What has become of what `audience` was allowed.
    pub fn look(&self, audience: &Audience) -> Renewed {
        self.judge(&self.decided(), audience)
    }

    /// What members say by now, without waiting; what is due is asked.
    fn decided(&self) -> Arc<Decided> {
        let Self { access, record, through, only, selected } = self;
        let only = only.as_ref();
        let mut now = access.peek(record, only);
        for (member, record) in selected.iter().flat_map(|selected| selected.iter()) {
            now = Arc::new(now.selected(member, &access.peek(record, Some(member))));
        }
        if let Some(original) = through {
            for part in &original.parts {
                let of_part = access.peek(&access.record(&original.caller, part, record.owner()), only);
                now = Arc::new(now.and(&of_part.because(&original.cannot(part))));
            }
        }
        now
    }

    /// What has become of what `audience` was allowed, where members say this.
    fn judge(&self, now: &Decided, audience: &Audience) -> Renewed {
        let Question { caller, action } = &**self.record.question();
        let of = |words: &[Word]| -> Vec<Word> {
            words.iter().filter(|word| audience.sees_member(&word.member)).cloned().collect()
        };
        let (lost, unsaid) = (of(&now.denied), of(&now.unsaid));
        if !lost.is_empty() {
            return Renewed::Ended(Box::new(forbidden(caller, action, &lost)));
        }
        // It is asked again while the answer is used.
        if unsaid.iter().any(|word| word.may_come) {
            return Renewed::Same;
        }
        if !unsaid.is_empty() {
            return Renewed::Ended(Box::new(unknown(caller, action, unsaid.iter())));
        }
        let Audience::Members(members) = &now.audience else { return Renewed::Same };
        if members.iter().all(|member| audience.sees_member(member)) {
            return Renewed::Same;
        }
        Renewed::More(audience.or(&now.audience))
    }
}

impl Following {
    /// Says whether something has changed since the last look. The first one is due.
    pub fn has_news(&self) -> bool {
        self.seen.has_news()
    }

    /// Waits until it has news.
    pub fn poll_news(&self, cx: &Context<'_>) -> Poll<()> {
        self.seen.poll_news(cx)
    }

    /// What has become of what `audience` was allowed.
    pub fn look(&mut self, audience: &Audience) -> Renewed {
        self.renewal.judge(&self.seen.take(), audience)
    }
}

/// `deployments.apps`, `pods/log`, or a path.
fn qualified(action: &Action) -> String {
    if !action.path.is_empty() {
        return action.path.clone();
    }
    let resource = Gvr::new(&action.group, &action.version, &action.resource).qualified();
    if action.subresource.is_empty() { resource } else { format!("{resource}/{}", action.subresource) }
}

fn reason(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

fn forbidden(caller: &Caller, action: &Action, denied: &[Word]) -> AccessError {
    let said = denied.iter().filter(|word| !word.why.is_empty());
    let reasons = said.map(|Word { member, why, .. }| format!("member {member}: {why}")).collect();
    forbidden_because(caller, action, reasons)
}

/// In the words of a kube-apiserver, with who does not allow it.
pub(super) fn forbidden_because(caller: &Caller, action: &Action, reasons: Vec<String>) -> AccessError {
    let (user, verb) = (caller.user.clone(), action.verb.clone());
    if !action.path.is_empty() {
        return AccessError::Path { user, verb, path: action.path.clone() };
    }
    let gvr = Gvr::new(&action.group, &action.version, &action.resource);
    let what = match action.name.as_str() {
        "" => gvr.qualified(),
        name => format!("{} {}", gvr.qualified(), Quoted(name)),
    };
    let resource = match action.subresource.as_str() {
        "" => action.resource.clone(),
        subresource => format!("{}/{subresource}", action.resource),
    };
    let place = match action.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {}", Quoted(namespace)),
    };
    AccessError::Forbidden { what, user, verb, resource, gvr, name: action.name.clone(), place, reasons }
}

fn unknown<'w>(caller: &Caller, action: &Action, words: impl Iterator<Item = &'w Word>) -> AccessError {
    not_known(caller, action, words.map(|Word { member, why, .. }| format!("member {member}: {why}")).collect())
}

/// Whoever decides has not said.
pub(super) fn not_known(caller: &Caller, action: &Action, causes: Vec<String>) -> AccessError {
    AccessError::Unknown { user: caller.user.clone(), verb: action.verb.clone(), resource: qualified(action), causes }
}
