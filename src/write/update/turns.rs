//! What waits for a part is brought in turns, one request for what one writer changed: so its member judges each writer's changes
//! as his, and notes who made them.

use http::StatusCode;
use serde_json::Value;

use crate::{
    config::MemberName,
    member::call::Document,
    placement::merge::Change,
    write::{
        Writer,
        fleet::Fleet,
        journal::{Entry, Step},
        steps::{Outcome, Silent},
        update::{
            part::{Asking, Brought, Held, Manner, SCALE, document},
            task::{Task, applies_in},
        },
    },
};
use kubefold_wire::warning::Warnings;

/// Updates that follow each other and are one writer's, in one manner: together they are one request.
#[derive(Clone, Debug)]
pub(super) struct Turn<'a> {
    /// As the journal numbers them.
    ids: Vec<u64>,
    /// One of them: all ask alike.
    by: &'a Entry,
    manner: Manner,
    changes: Vec<Change>,
}

/// The turns in which a part gets what each of these updates has still to do there, oldest first. An apply is in none of them.
///
/// Shape: `lists` has the changes of each update, in their order.
pub(super) fn turns<'a>(updates: &'a [Entry], lists: &[Vec<Change>], member: &MemberName) -> Vec<Turn<'a>> {
    let mut turns: Vec<Turn<'a>> = Vec::new();
    for (update, changes) in updates.iter().zip(lists).filter(|(update, _)| !applies_in(update, member)) {
        let manner = Task::of(update).map_or_else(Manner::merge_patch, |task| task.manner);
        match turns.last_mut().filter(|turn| turn.goes_on_with(update, &manner)) {
            Some(turn) => {
                turn.ids.push(update.id);
                turn.changes.extend_from_slice(changes);
            }
            None => turns.push(Turn { ids: vec![update.id], by: update, manner, changes: changes.clone() }),
        }
    }
    turns
}

/// What came of each update of these turns.
pub(super) fn steps(turns: &[Turn<'_>], brought: &[Brought]) -> Vec<(u64, Step)> {
    let of = |(turn, came): (&Turn<'_>, &Brought)| {
        let step = came.step();
        turn.ids.iter().map(move |id| (*id, step.clone())).collect::<Vec<_>>()
    };
    turns.iter().zip(brought).flat_map(of).collect()
}

impl Turn<'_> {
    fn asking(&self) -> Asking<'_> {
        let Entry { key, caller, user_agent, query, .. } = self.by;
        Asking { key, caller, user_agent: user_agent.as_deref(), query, manner: &self.manner }
    }

    fn goes_on_with(&self, update: &Entry, manner: &Manner) -> bool {
        let (by, is_plain) = (self.by, manner.managed_fields.is_none());
        let is_same = by.caller == update.caller && by.user_agent == update.user_agent && by.query == update.query;
        is_same && is_plain && self.manner == *manner
    }

    /// Why it waits: it changes something at the place of what has failed.
    fn waits_for(&self, failed: &[&Change]) -> Option<String> {
        let at = self.changes.iter().find(|change| failed.iter().any(|failed| failed.touches(&change.at)))?;
        Some(format!("an earlier change of {} has not reached it yet", at.path()))
    }
}

impl<F: Fleet> Writer<F> {
    /// Brings a part what waits for it. Gives what came of each turn. What a member refuses keeps back what changes the same
    /// places, and nothing else.
    pub(super) async fn bring_turns(
        &self,
        part: &mut Held,
        turns: &[Turn<'_>],
        home: &Value,
        said: &mut Warnings,
    ) -> Vec<Brought> {
        let mut brought = Vec::with_capacity(turns.len());
        let (mut failed, mut silent): (Vec<&Change>, Option<String>) = Default::default();
        let mut turns = turns.iter().peekable();
        while let Some(turn) = turns.next() {
            if let Some(cause) = silent.clone().or_else(|| turn.waits_for(&failed)) {
                failed.extend(&turn.changes);
                brought.push(Brought::Answered(Outcome::NotSent(cause)));
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
            brought.push(came);
        }
        brought
    }

    async fn bring_turn(&self, part: &mut Held, turn: &Turn<'_>, home: &Value, said: &mut Warnings) -> Brought {
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
        let key = &turn.by.key;
        let is_object = turn.manner.subresource != SCALE;
        let now = if is_object { document(key, answer) } else { self.read_part(key, part).await? };
        if let Some(now) = now {
            part.document = now;
        }
        Ok(())
    }
}
