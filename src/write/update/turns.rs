//! What waits for a part is brought in turns, one request for what one writer changed: so its member judges each writer's changes
//! as his, and notes who made them.

use std::borrow::Cow;

use http::StatusCode;
use serde_json::Value;

use crate::{
    config::MemberName,
    member::call::Document,
    placement::merge::Change,
    write::{
        Writer,
        fleet::{Fleet, Key},
        journal::{Entry, Step},
        steps::{Outcome, Silent},
        update::{
            part::{Asking, Brought, Held, Manner, Ownership, SCALE, document},
            task::Task,
        },
    },
};
use kubefold_serving::caller::Caller;
use kubefold_wire::warning::Warnings;

/// Updates that follow each other and are one writer's, in one manner: together they are one request.
#[derive(Clone, Debug)]
pub(super) struct Turn<'a> {
    /// As the journal numbers them.
    ids: Vec<u64>,
    key: &'a Key,
    caller: &'a Caller,
    user_agent: Option<&'a str>,
    query: &'a str,
    manner: Cow<'a, Manner>,
    changes: Vec<Change>,
}

/// The turns in which a part gets what each of these updates has still to do there, oldest first. An apply is in none of them.
///
/// Shape: `lists` has the changes of each update, in their order.
pub(super) fn turns<'a>(updates: &'a [Entry], lists: &[Vec<Change>], member: &MemberName) -> Vec<Turn<'a>> {
    let mut turns = Vec::new();
    for (update, changes) in updates.iter().zip(lists) {
        let task = Task::of(update);
        if task.as_ref().and_then(|task| task.in_part(update, member)).is_some_and(|part| part.apply.is_some()) {
            continue;
        }
        let manner = Cow::Owned(task.map_or_else(Manner::merge_patch, |task| task.manner));
        let Entry { id, key, caller, user_agent, query, .. } = update;
        let user_agent = user_agent.as_deref();
        add(&mut turns, Turn { ids: vec![*id], key, caller, user_agent, query, manner, changes: changes.clone() });
    }
    turns
}

/// Adds a turn, or has the last one go on with it.
pub(super) fn add<'a>(turns: &mut Vec<Turn<'a>>, next: Turn<'a>) {
    match turns.last_mut().filter(|turn| turn.goes_on_with(&next)) {
        Some(turn) => {
            turn.ids.extend(next.ids);
            turn.changes.extend(next.changes);
        }
        None => turns.push(next),
    }
}

/// What a part is to apply after its turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applying<'a> {
    /// As the journal numbers it.
    pub(super) id: u64,
    pub(super) asking: Asking<'a>,
    pub(super) body: &'a Value,
    pub(super) ownership: &'a Ownership,
}

/// What came of bringing a part what waited for it.
#[derive(Debug, Default)]
pub(super) struct Came {
    /// Of each update.
    pub(super) steps: Vec<(u64, Step)>,
    /// The last answer of the member, if it changed the part.
    pub(super) latest: Option<Document>,
}

impl Came {
    fn add(&mut self, ids: &[u64], brought: Brought) {
        let step = brought.step();
        self.steps.extend(ids.iter().map(|id| (*id, step.clone())));
        if let Brought::Answered(Outcome::Done { body, .. }) = brought {
            self.latest = Some(body);
        }
    }
}

impl<'a> Turn<'a> {
    /// That of a write which is in hand.
    pub(super) fn of(id: u64, asking: Asking<'a>, changes: &[Change]) -> Self {
        let Asking { key, caller, user_agent, query, manner } = asking;
        let (ids, manner, changes) = (vec![id], Cow::Borrowed(manner), changes.to_vec());
        Self { ids, key, caller, user_agent, query, manner, changes }
    }

    fn asking(&self) -> Asking<'_> {
        let Self { key, caller, user_agent, query, manner, .. } = self;
        Asking { key, caller, user_agent: *user_agent, query, manner }
    }

    fn goes_on_with(&self, next: &Self) -> bool {
        let is_same = self.caller == next.caller && self.user_agent == next.user_agent && self.query == next.query;
        is_same && next.manner.managed_fields.is_none() && self.manner == next.manner
    }

    /// Why it waits: it changes something at the place of what has failed.
    fn waits_for(&self, failed: &[&Change]) -> Option<String> {
        let at = self.changes.iter().find(|change| failed.iter().any(|failed| failed.touches(&change.at)))?;
        Some(format!("an earlier change of {} has not reached it yet", at.path()))
    }
}

impl<F: Fleet> Writer<F> {
    /// Brings a part what waits for it, and then has it apply what it is to apply, if all of that is there. What a member refuses
    /// keeps back what changes the same places, and nothing else.
    pub(super) async fn bring_turns(
        &self,
        part: &mut Held,
        turns: &[Turn<'_>],
        applying: Option<Applying<'_>>,
        home: &Value,
        said: &mut Warnings,
    ) -> Came {
        let mut all = Came::default();
        let (mut failed, mut silent): (Vec<&Change>, Option<String>) = Default::default();
        let mut turns = turns.iter().peekable();
        while let Some(turn) = turns.next() {
            if let Some(cause) = silent.clone().or_else(|| turn.waits_for(&failed)) {
                failed.extend(&turn.changes);
                all.add(&turn.ids, Brought::Answered(Outcome::NotSent(cause)));
                continue;
            }
            let came = self.bring_turn(part, turn, home, said).await;
            match &came {
                Brought::Same | Brought::Gone => {}
                Brought::Answered(Outcome::Done { body, .. }) => {
                    let renewed = if turns.peek().is_some() { self.renew(part, turn, body).await } else { Ok(()) };
                    silent = renewed.err().map(|Silent(cause)| cause);
                }
                Brought::Answered(Outcome::Refused { .. }) => failed.extend(&turn.changes),
                Brought::Answered(Outcome::NotSent(cause) | Outcome::Unknown(cause)) => silent = Some(cause.clone()),
            }
            all.add(&turn.ids, came);
        }
        if let Some(Applying { id, asking, body, ownership }) = applying {
            let came = match all.steps.iter().find_map(|(_, step)| step.cause()) {
                Some(cause) => Brought::Answered(Outcome::NotSent(cause.to_owned())),
                None => self.apply_other(asking, part, body, ownership, said).await,
            };
            all.add(&[id], came);
        }
        all
    }

    async fn bring_turn(&self, part: &mut Held, turn: &Turn<'_>, home: &Value, said: &mut Warnings) -> Brought {
        self.journal.sending(&turn.ids, &part.member).await;
        let came = self.bring(turn.asking(), part, &turn.changes, false, said).await.0;
        let level: Vec<&Change> = turn.changes.iter().filter(|change| change.is_level()).collect();
        let renewed = match &came {
            _ if level.is_empty() => return came,
            Brought::Same => Ok(()),
            Brought::Answered(Outcome::Done { body, .. }) => self.renew(part, turn, body).await,
            Brought::Gone | Brought::Answered(_) => return came,
        };
        if let Err(Silent(cause)) = renewed {
            return Brought::Answered(Outcome::NotSent(cause));
        }
        let manner = Manner::merge_patch();
        let asking = Asking { manner: &manner, ..turn.asking() };
        match self.own_as_home(asking, part, home, &level, said).await {
            Some(body) => Brought::Answered(Outcome::Done { code: StatusCode::OK, body }),
            None => came,
        }
    }

    /// Has a part be known as a turn has left it.
    ///
    /// Errors: its member does not say.
    async fn renew(&self, part: &mut Held, turn: &Turn<'_>, answer: &Document) -> Result<(), Silent> {
        let key = turn.key;
        let is_object = turn.manner.subresource != SCALE;
        let now = if is_object { document(key, answer) } else { self.read_part(key, part).await? };
        if let Some(now) = now {
            part.document = now.into();
        }
        Ok(())
    }
}
