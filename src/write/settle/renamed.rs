//! Members that have another name by now: what waits for their clusters goes on under it.

use std::collections::BTreeMap;

use crate::{
    config::MemberName,
    write::{
        Writer,
        fleet::Fleet,
        journal::{Entry, Verb},
        update::renamed_task,
    },
};

impl<F: Fleet> Writer<F> {
    /// Has the open entries about an object have the names that its clusters have by now. To be called under the hold of its key.
    pub(super) async fn under_names_of_now(&self, of: &Entry) {
        // All of them at once: what waits for one member is brought together, in its order.
        let about = |entry: &Entry| entry.uid == of.uid && entry.key.gvr.resource == of.key.gvr.resource;
        for mut entry in self.journal.open_entries().into_iter().filter(about) {
            let names = self.names_of_now(&entry);
            if names.is_empty() {
                continue;
            }
            for (was, now) in &names {
                tracing::info!(object = %entry.key, was, member = %now, "what waits for a member goes on under its new name");
            }
            entry.rename(&names);
            if entry.verb == Verb::Update
                && let Some(body) = renamed_task(&entry, &names)
            {
                entry.body = body;
            }
            self.journal.rename(entry).await;
        }
    }

    /// The new names of members, by the ones that an entry has.
    fn names_of_now(&self, entry: &Entry) -> BTreeMap<String, MemberName> {
        let members = self.fleet.members();
        let gone = entry.targets.iter().filter(|target| !members.contains(&target.member));
        let renamed = gone.filter_map(|target| {
            let is_it = |name: &&MemberName| self.fleet.cluster_uid(name).as_ref() == Some(&target.cluster_uid);
            Some((target.member.to_string(), members.iter().find(is_it)?.clone()))
        });
        renamed.collect()
    }

    /// A member that is not reached yet and may be one that had another name.
    pub(in crate::write) fn may_be_renamed(&self) -> Option<MemberName> {
        let is_unknown =
            |member: &MemberName| self.fleet.cluster_uid(member).is_none() && !self.fleet.is_absent(member);
        self.fleet.members().into_iter().find(is_unknown)
    }
}
