//! Parts that left their placement while their member could not be reached: they go once it answers.

use std::sync::Arc;

use http::StatusCode;

use super::{
    advance::Advanced,
    part::{Stays, unavailable},
};
use crate::{
    config::MemberName,
    member::call::Answer,
    placement::moved::Superseded,
    write::{
        Writer,
        fleet::{Fleet, Part},
        journal::Placement,
        steps::Seen,
    },
};

impl<F: Fleet> Writer<F> {
    /// Deletes superseded parts whose members answer again, once what took their place is available. Another object under
    /// the name stays.
    pub(super) async fn remove_superseded(self: &Arc<Self>, mut placement: Placement) -> Advanced {
        let mut waits = None;
        for lost in placement.moved.superseded.clone() {
            match self.remove_lost(&placement, &lost).await {
                Ok(()) => placement.moved.superseded.retain(|one| *one != lost),
                Err(Stays(why)) => waits = Some(why),
            }
        }
        let is_changed = self.journal.placement(&placement.uid).is_some_and(|now| now.moved != placement.moved);
        if is_changed && let Err(error) = self.keep_moved(&placement).await {
            return Advanced::Waits(error.to_string());
        }
        match waits {
            Some(why) => Advanced::Waits(why),
            None => Advanced::Finished,
        }
    }

    /// Errors: why it is not gone.
    async fn remove_lost(&self, placement: &Placement, lost: &Superseded) -> Result<(), Stays> {
        let key = &placement.key;
        let is_it = |member: &MemberName| self.fleet.cluster_uid(member).as_ref() == Some(&lost.cluster_uid);
        let up = self.fleet.up();
        let Some(member) = up.into_iter().find(is_it) else {
            return Err(Stays(format!("member {} does not answer", lost.member)));
        };
        let body = match self.fleet.look(&member, key).await {
            Answer::Answered { code: StatusCode::OK, body, .. } => body,
            Answer::Answered { code: StatusCode::NOT_FOUND, .. } => return Ok(()),
            Answer::Answered { code, .. } => return Err(Stays(format!("member {member}: it answered {code}"))),
            Answer::NotSent(why) | Answer::Unknown(why) => return Err(Stays(format!("member {member}: {why}"))),
        };
        let seen = Seen::of(&body);
        if seen.uid.as_ref() != Some(&lost.uid) {
            return Ok(());
        }
        let division = self.division(key);
        if let Some(why) = self.fleet.parts(key).iter().find_map(|part| unavailable(key, division, part, None)) {
            return Err(Stays(why));
        }
        if seen.deleting {
            return Err(Stays(format!("the part in member {member} is being deleted")));
        }
        tracing::info!(object = %key, %member, "a part that was replaced while its member was lost is deleted");
        let part = Part {
            member: member.clone(),
            cluster_uid: lost.cluster_uid.clone(),
            uid: lost.uid.clone(),
            resource_version: String::new(),
            json: body.bytes,
        };
        match self.delete_part_of(key, &part).await {
            // It is looked at again.
            Ok(()) => Err(Stays(format!("the part in member {member} is being deleted"))),
            Err(problem) => Err(Stays(problem.to_string())),
        }
    }
}
