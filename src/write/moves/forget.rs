//! What waits for a member is given up, since an operator knows that it is not to be done any more.

use super::report::{LeftObject, MovesReport};
use crate::{
    config::MemberName,
    respond::WriteError,
    write::{
        Writer,
        fleet::Fleet,
        journal::{Entry, Step, Verb},
    },
};

impl<F: Fleet> Writer<F> {
    /// Ends what unfinished writes have still to do in a member, and forgets the parts there that were replaced.
    ///
    /// Errors: the disk refuses.
    pub(super) async fn forget(&self, member: &MemberName, dry: bool) -> Result<MovesReport, WriteError> {
        let mut report = self.nothing_done();
        for entry in self.journal.open_entries() {
            let Some(target) = entry.targets.iter().find(|target| target.member == *member && target.step.is_open())
            else {
                continue;
            };
            let what = format!("{:?} in member {}", entry.verb, target.member).to_lowercase();
            report.left.push(LeftObject::of(&entry.key, format!("the unfinished {what} is forgotten")));
            if !dry {
                self.end_write_to(&entry, member).await;
            }
        }
        for mut placement in self.journal.placements() {
            let before = placement.moved.superseded.len();
            placement.moved.superseded.retain(|lost| lost.member != *member);
            if placement.moved.superseded.len() == before {
                continue;
            }
            let why = format!("its former part in member {member} stays, as an object of that member");
            report.left.push(LeftObject::of(&placement.key, why));
            if !dry {
                self.keep_moved(&placement).await.map_err(|error| WriteError::Journal(error.into()))?;
            }
        }
        Ok(report)
    }

    /// Ends what an unfinished write has still to do in a member. What only that member knows of it is lost.
    pub(super) async fn end_write_to(&self, entry: &Entry, member: &MemberName) {
        let is_home = entry.targets.first().is_some_and(|home| home.member == *member);
        if is_home && entry.verb != Verb::Delete {
            tracing::warn!(object = %entry.key, %member, "an unfinished write is given up: its home was lost");
            return self.journal.finish(entry.id);
        }
        self.journal.step(entry.id, member, Step::Done { uid: None }).await;
        if self.journal.open_entry(entry.id).is_some_and(|(entry, _)| entry.unfinished().next().is_none()) {
            self.journal.finish(entry.id);
        }
    }
}
