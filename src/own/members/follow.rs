//! How members are, written down in their objects once a second, and what happens to them.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    KIND, Members,
    known::Known,
    member_referent,
    object::{Condition, MemberObject, MemberSpec, MemberStatus, Refusal},
    told::{between, left},
};
use crate::{
    member::Member,
    own::{
        GROUP, OwnObjects,
        counts::{Counts, held},
        events::{Recorder, now},
    },
};
use kubefold_apiserver::{
    kinds::Kind,
    registry::{DeleteOptions, Registry, WriteOptions},
};
use kubefold_wire::status::{Reason, Status};

/// How often it is looked how members are. A state that changes is seen so late at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Numbers that change all the time are written down so often at most.
const COUNT_EVERY: Duration = Duration::from_secs(10);

struct Following {
    members: Arc<Members>,
    own: Arc<OwnObjects>,
    kind: Arc<Kind>,
    recorder: Recorder,
    counted: BTreeMap<String, Instant>,
    counts: Arc<Counts>,
    /// The UIDs of the objects that were there.
    there: BTreeMap<String, String>,
}

impl Members {
    /// Keeps the objects as the members are, until cancelled.
    pub async fn follow(self: Arc<Self>, own: Arc<OwnObjects>) {
        let Some(kind) = own.registry().kind(GROUP, KIND) else { return };
        let Some(recorder) = Recorder::new(own.system().registry().clone()) else { return };
        let (counted, there, counts) = (BTreeMap::new(), BTreeMap::new(), Arc::new(Counts::default()));
        let (stores, counting, members) = (Arc::clone(&self.stores), Arc::clone(&counts), Arc::clone(&self));
        let mut following = Following { members: self, own, kind, recorder, counted, counts, there };
        let looking = async {
            loop {
                if let Err(status) = following.look().await {
                    tracing::warn!(error = status.message, "members are not written down as objects");
                }
                members.are_written.store(true, Ordering::Release);
                sleep(LOOK_EVERY).await;
            }
        };
        let counting = async {
            loop {
                counting.ask(&stores).await;
                sleep(LOOK_EVERY).await;
            }
        };
        tokio::join!(looking, counting);
    }
}

impl Following {
    fn registry(&self) -> &Registry {
        self.own.registry()
    }

    /// Writes down what has changed.
    async fn look(&mut self) -> Result<(), Status> {
        // A Secret or a finalizer may have gone in another way than by a request.
        self.members.refresh(&self.own).await?;
        let known = self.members.readings.all(self.registry()).await?;
        let mut known: BTreeMap<String, Arc<Known>> =
            known.into_iter().map(|known| (known.object.metadata.name.clone(), known)).collect();
        self.tell_who_left(&known).await?;
        let all = self.members.stores.registry().members();
        for member in all.iter() {
            let name = member.name().as_str();
            let there = match known.remove(name) {
                Some(there) => there,
                // Its object was just deleted.
                None if self.members.state.lock().joined(name).is_some() => continue,
                None => {
                    let object = json!({"metadata": {"name": name}, "spec": MemberSpec::shown(&member.config())});
                    let written = self.registry().create(&self.kind, "", object, &WriteOptions::default()).await?;
                    let Some(made) = Known::read(written.object.value()) else { continue };
                    self.there.insert(name.to_owned(), made.uid.clone());
                    Arc::new(made)
                }
            };
            self.write(name, &there, Some(member)).await?;
        }
        for (name, there) in known {
            if there.object.is_joined() {
                self.write(&name, &there, None).await?;
            } else {
                self.registry().delete(&self.kind, "", &name, &DeleteOptions::default()).await?;
            }
        }
        self.recorder.sweep().await
    }

    /// An object that is gone was a member.
    async fn tell_who_left(&mut self, known: &BTreeMap<String, Arc<Known>>) -> Result<(), Status> {
        let now: BTreeMap<String, String> =
            known.iter().map(|(name, known)| (name.clone(), known.uid.clone())).collect();
        let before = std::mem::replace(&mut self.there, now);
        for (name, uid) in before.into_iter().filter(|(name, uid)| self.there.get(name) != Some(uid)) {
            self.recorder.record(&member_referent(name, uid), &left()).await?;
        }
        Ok(())
    }

    /// Writes down how one is. Without a member, it is not in the fleet.
    async fn write(&mut self, name: &str, there: &Known, member: Option<&Arc<Member>>) -> Result<(), Status> {
        let Known { object, uid, .. } = there;
        let refusal = self.members.state.lock().refused.get(name).cloned();
        let before = object.status.clone().unwrap_or_default();
        let status = self.status(object, &before, member, refusal.as_ref());
        // What people write is theirs.
        let shown = member.filter(|_| !object.is_joined()).map(|member| MemberSpec::shown(&member.config()));
        let is_same = shown.as_ref().is_none_or(|shown| *shown == object.spec);
        if is_same && !self.is_news(name, &before, &status) {
            return Ok(());
        }
        let change = |object: &mut Value| {
            if let Some(shown) = &shown {
                object["spec"] = json!(shown);
            }
            object["status"] = json!(status);
            Ok(())
        };
        match self.registry().modify_all(&self.kind, "", name, &WriteOptions::default(), change).await {
            // It was deleted meanwhile.
            Err(status) if status.reason == Reason::NotFound => return Ok(()),
            other => drop(other?),
        }
        let member = member_referent(name.to_owned(), uid.clone());
        for told in between(&before, &status) {
            self.recorder.record(&member, &told).await?;
        }
        Ok(())
    }

    /// Says whether a status is to be written: at once where the state has changed or a number became known, now and then where
    /// numbers have changed.
    fn is_news(&mut self, name: &str, before: &MemberStatus, status: &MemberStatus) -> bool {
        if before == status {
            return false;
        }
        let bare = |status: &MemberStatus| {
            let [nodes, pods] = [status.nodes, status.pods].map(|number| number.map(|_| 0));
            MemberStatus { nodes, pods, lag: String::new(), ..status.clone() }
        };
        let now = Instant::now();
        let is_due = self.counted.get(name).is_none_or(|last| now.duration_since(*last) >= COUNT_EVERY);
        let is_news = bare(before) != bare(status) || is_due;
        if is_news {
            self.counted.insert(name.to_owned(), now);
        }
        is_news
    }

    fn status(
        &self,
        object: &MemberObject,
        before: &MemberStatus,
        member: Option<&Arc<Member>>,
        refusal: Option<&Refusal>,
    ) -> MemberStatus {
        let mut status = match member {
            Some(member) => self.health(before, member),
            None => MemberStatus { state: "unknown".to_owned(), lag: "0s".to_owned(), ..MemberStatus::default() },
        };
        let (reason, message) =
            refusal.map_or(("Accepted", String::new()), |refusal| (refusal.reason(), refusal.to_string()));
        if member.is_none() {
            status.cause.clone_from(&message);
            status.conditions.push(condition(before, "Ready", "False", reason, &message));
        }
        if object.is_joined() {
            let accepted = if refusal.is_some() { "False" } else { "True" };
            status.conditions.push(condition(before, "Accepted", accepted, reason, &message));
        }
        let (inventory, renewal) = {
            let state = self.members.state.lock();
            (state.inventory.clone(), state.renewals.get(&object.metadata.name).cloned())
        };
        if let Some((renewed, reason, message)) = renewal.map(|renewal| renewal.told()) {
            status.conditions.push(condition(before, "TokensRenewed", renewed, reason, &message));
        }
        if let Some(told) = inventory.filter(|told| told.member.as_str() == object.metadata.name) {
            status.conditions.push(condition(before, "ClusterProfiles", told.status, told.reason, &told.message));
        }
        status.source = object.source();
        status
    }

    fn health(&self, before: &MemberStatus, member: &Arc<Member>) -> MemberStatus {
        let stores = &self.members.stores;
        let health = member.health();
        let server = stores.member_catalog(member.name()).and_then(|catalog| catalog.server.clone());
        let version = server.as_ref().and_then(|server| server.document.get("gitVersion")?.as_str());
        let cause = health.cause().map(ToString::to_string).unwrap_or_default();
        let ready = match health.name() {
            "ready" => "True",
            "unknown" => "Unknown",
            _ => "False",
        };
        let mut reason = health.name().to_owned();
        reason.get_mut(..1).into_iter().for_each(str::make_ascii_uppercase);
        // What is not known yet is not forgotten: another UID than before is another cluster.
        let cluster_uid = member.cluster_uid().map_or_else(|| before.cluster_uid.clone(), |uid| uid.to_string());
        MemberStatus {
            source: String::new(),
            state: health.name().to_owned(),
            version: version.unwrap_or_default().to_owned(),
            cluster_uid,
            nodes: self.count("nodes", member),
            pods: self.count("pods", member),
            lag: format!("{}s", stores.following(member.name()).lag.as_secs()),
            conditions: vec![condition(before, "Ready", ready, &reason, &cause)],
            cause,
        }
    }

    /// How many objects of a kind a member has, if kubefold follows them.
    fn count(&self, resource: &str, member: &Member) -> Option<usize> {
        held(&self.members.stores, resource, member).or_else(|| self.counts.of(resource, member))
    }
}

/// A condition, with the time since which its status is what it is.
fn condition(before: &MemberStatus, of: &str, status: &str, reason: &str, message: &str) -> Condition {
    let same = before.condition(of).filter(|before| before.status == status);
    Condition {
        r#type: of.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: same.map_or_else(now, |before| before.last_transition_time.clone()),
    }
}
