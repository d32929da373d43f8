//! Members that join later: what was made through the fleet to be in every member under one name is made in them, too.
//!
//! That is an unfinished create of whoever made the object, which waits for the new member as it would for one that was
//! down. What only members themselves made is never copied.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    config::MemberName,
    write::{
        Writer,
        fleet::{Ask, Fleet, Measure, Part, Visible},
        journal::{Entry, EntryTarget, Everywhere, Listed, Step, Verb},
        update::body_of_missing,
    },
};

/// Kinds that others need: objects live in namespaces, and definitions make kinds.
const FIRST: [&str; 2] = ["namespaces", "customresourcedefinitions"];
/// Kinds that give power or secrets: they go nowhere unasked.
const NEVER_UNASKED: [(&str, &str); 5] = [
    ("", "secrets"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
];
/// How long one object may keep the others waiting.
const EACH_WITHIN: Duration = Duration::from_secs(60);

impl<F: Fleet> Writer<F> {
    /// Makes in members that joined what was made through the fleet to be everywhere: to be called whenever a member is reached
    /// that was not before. Returns at once; the work runs in the writer's tasks.
    pub fn extend(self: &Arc<Self>) {
        let this = Arc::clone(self);
        self.tasks.spawn(async move {
            this.cancel.run_until_cancelled(this.extend_all()).await;
        });
    }

    /// Notes a shared object that the caller has just created: members that join later get it. The members of now count as
    /// done, also those in which the caller may not create it.
    pub(super) async fn keep_everywhere(&self, entry: &Entry) {
        let listed = |member: MemberName| Some(Listed { cluster_uid: self.fleet.cluster_uid(&member)?, member });
        self.keep_with(entry, self.fleet.members().into_iter().filter_map(listed).collect()).await;
    }

    /// The same of one that stands after all; one of the members that it was planned for may have joined a moment ago.
    pub(super) async fn keep_settled(&self, entry: &Entry) {
        let listed =
            |target: &EntryTarget| Listed { member: target.member.clone(), cluster_uid: target.cluster_uid.clone() };
        self.keep_with(entry, entry.targets.iter().map(listed).collect()).await;
    }

    async fn keep_with(&self, entry: &Entry, members: Vec<Listed>) {
        let uid = match entry.shared {
            true => self.fleet.shared_uid(&entry.key),
            false => entry.everywhere.then(|| entry.uid.clone()),
        };
        let Some(uid) = uid else { return };
        let made = Everywhere {
            key: entry.key.clone(),
            uid,
            caller: entry.caller.clone(),
            query: entry.query.clone(),
            user_agent: entry.user_agent.clone(),
            members,
        };
        self.journal.keep_everywhere(made).await;
    }

    async fn extend_all(self: &Arc<Self>) {
        let mut all = self.journal.everywhere().await;
        all.retain(|made| !NEVER_UNASKED.contains(&(&*made.key.gvr.group, &*made.key.gvr.resource)));
        all.sort_by_key(|made| !FIRST.contains(&&*made.key.gvr.resource));
        for made in all {
            let newcomers = self.newcomers(&made);
            if !newcomers.is_empty()
                && tokio::time::timeout(EACH_WITHIN, self.extend_one(&made, newcomers)).await.is_err()
            {
                tracing::warn!(object = %made.key, "it is made in the members that joined at another time");
            }
        }
    }

    /// The members that are up and joined after the object was made. One that is another cluster than it was is none, unless
    /// the configuration says that it was rebuilt: it may be a mistake in a kubeconfig.
    fn newcomers(&self, made: &Everywhere) -> Vec<Listed> {
        let is_new = |newcomer: &Listed| {
            let is_known = made.members.iter().any(|known| known.cluster_uid == newcomer.cluster_uid);
            let is_other = made.members.iter().any(|known| known.member == newcomer.member);
            !is_known && (!is_other || self.fleet.is_rebuilt(&newcomer.member))
        };
        let listed = |member: MemberName| Some(Listed { cluster_uid: self.fleet.cluster_uid(&member)?, member });
        self.fleet.up().into_iter().filter_map(listed).filter(is_new).collect()
    }

    async fn extend_one(self: &Arc<Self>, made: &Everywhere, newcomers: Vec<Listed>) {
        let key = &made.key;
        if self.fleet.shared_uid(key).is_none() {
            match self.extend_placement(made, &newcomers).await {
                Ok(false) => {}
                Ok(true) => {
                    let members = made.members.iter().cloned().chain(newcomers).collect();
                    self.journal.keep_everywhere(Everywhere { members, ..made.clone() }).await;
                }
                Err(why) => tracing::warn!(object = %key, %why, "it is made in members that joined at another time"),
            }
            return;
        }
        // It waits until it is known what the members hold.
        let ask = Ask { key, owners: &[], pods: None, claims: &[], measure: Measure::Nothing };
        drop(self.fleet.facts(ask).await);
        let Some(hold) = self.fleet.hold(key).await else { return };
        // Where it is not known what there is, another time.
        let Some((visible, parts)) = self.fleet.whole(&hold, key) else { return };
        let is_it = made.uid.is_empty() || visible.uid == made.uid;
        if !is_it || visible.deleting {
            // It is gone, or another object that somebody made in a member.
            return self.journal.forget_everywhere(key, &made.uid).await;
        }
        let holds = |newcomer: &Listed| parts.iter().any(|part| part.member == newcomer.member);
        let (there, missing): (Vec<Listed>, Vec<Listed>) = newcomers.into_iter().partition(holds);
        let members = made.members.iter().chain(&there).chain(&missing).cloned().collect();
        let known = Everywhere { uid: visible.uid.clone(), members, ..made.clone() };
        if let Some(entry) = entry_of(made, &visible, &parts, missing) {
            let members: Vec<String> = entry.targets.iter().skip(1).map(|target| target.member.to_string()).collect();
            match self.journal.begin(entry).await {
                Ok(entry) => {
                    tracing::info!(object = %key, members = members.join(", "), "it is made in members that joined");
                    self.settle_held(entry.id, hold);
                }
                Err(error) => {
                    tracing::warn!(object = %key, %error, "it cannot be made in members that joined");
                    return;
                }
            }
        }
        self.journal.keep_everywhere(known).await;
    }
}

/// An unfinished create that has still to make these parts; `None`: there is none.
fn entry_of(made: &Everywhere, visible: &Visible, parts: &[Part], missing: Vec<Listed>) -> Option<Entry> {
    let home = parts.first().filter(|_| !missing.is_empty())?;
    let shown: Value = serde_json::from_slice(&visible.body).ok()?;
    let first = EntryTarget {
        step: Step::Done { uid: Some(home.uid.clone()) },
        ..EntryTarget::new(home.member.clone(), home.cluster_uid.clone())
    };
    let others = missing.into_iter().map(|listed| EntryTarget::new(listed.member, listed.cluster_uid));
    Some(Entry {
        query: made.query.clone(),
        user_agent: made.user_agent.clone(),
        body: body_of_missing(shown),
        targets: [first].into_iter().chain(others).collect(),
        shared: true,
        ..Entry::new(Verb::Create, made.key.clone(), visible.uid.clone(), made.caller.clone())
    })
}
