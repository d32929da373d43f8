//! How many pods each replica set of a deployment has next.
//!
//! Source: kubernetes `pkg/controller/deployment/rolling.go`, `recreate.go`, `sync.go`.

use super::{DESIRED, MAX, Rollout, Set};
use crate::sim::{
    fields::{annotation, count},
    replicaset::members,
};

impl Rollout<'_> {
    /// Replaces old pods by new ones, a few at a time.
    pub(super) fn roll(&mut self) {
        if self.sync_new(true) {
            return;
        }
        let Some(new) = self.new.clone() else { return };
        let to = if new.wanted() > self.wanted { self.wanted } else { self.new_replicas(new.wanted()) };
        if self.scale_set(&new, to, false) || self.reduce_old(&new) {
            return self.progress();
        }
        if self.is_complete() {
            self.clean_up();
        }
        self.progress();
    }

    /// Ends all old pods before it makes new ones.
    pub(super) fn recreate(&mut self) {
        if self.new.is_some() && self.sync_new(false) {
            return;
        }
        let active: Vec<Set> = self.old.iter().filter(|set| set.wanted() > 0).cloned().collect();
        let mut scaled = false;
        for set in &active {
            scaled |= self.scale_set(set, 0, false);
        }
        if scaled || self.has_old_pods() {
            return self.progress();
        }
        if self.new.is_none() {
            self.sync_new(true);
            return;
        }
        if let Some(new) = self.new.clone() {
            let to = self.wanted;
            self.scale_set(&new, to, false);
        }
        if self.is_complete() {
            self.clean_up();
        }
        self.progress();
    }

    fn has_old_pods(&self) -> bool {
        self.old.iter().any(|set| {
            let entry = self.context.world.get(&set.key);
            let mut pods = entry.into_iter().flat_map(|entry| members(self.context, entry));
            set.has("replicas") > 0 || pods.any(|(_, _, pod)| !pod.finished())
        })
    }

    /// How many pods the newest set may have, beside the others.
    pub(super) fn new_replicas(&self, has: i64) -> i64 {
        if !self.is_rolling {
            return self.wanted;
        }
        let present: i64 = self.sets().map(Set::wanted).sum();
        let most = self.wanted + self.surge;
        if present >= most {
            return has;
        }
        has + (most - present).min(self.wanted - has)
    }

    fn reduce_old(&mut self, new: &Set) -> bool {
        let old_count: i64 = self.old.iter().map(Set::wanted).sum();
        if old_count == 0 {
            return false;
        }
        let total = old_count + new.wanted();
        let min_available = self.wanted - self.unavailable;
        let new_unavailable = new.wanted() - new.has("availableReplicas");
        let mut room = total - min_available - new_unavailable;
        if room <= 0 {
            return false;
        }
        // Pods that are not available go first; they would be in the way.
        let mut sizes: Vec<i64> = self.old.iter().map(Set::wanted).collect();
        for (set, size) in self.old.iter().zip(&mut sizes) {
            let unhealthy = (*size - set.has("availableReplicas")).clamp(0, room.max(0));
            *size -= unhealthy;
            room -= unhealthy;
        }
        let available = self.sum("availableReplicas");
        let mut reducible = available - min_available;
        for size in &mut sizes {
            let fewer = reducible.clamp(0, *size);
            *size -= fewer;
            reducible -= fewer;
        }
        let old = self.old.clone();
        let mut scaled = false;
        for (set, size) in old.iter().zip(sizes) {
            scaled |= self.scale_set(set, size, false);
        }
        scaled
    }

    /// The deployment's own number has changed since its sets were scaled.
    pub(super) fn is_scaling_event(&self) -> bool {
        self.sets().filter(|set| set.wanted() > 0).any(|set| {
            let desired = annotation(&set.tree, DESIRED);
            !desired.is_empty() && desired != self.wanted.to_string()
        })
    }

    /// Scales all sets in proportion. Answers whether that writes.
    pub(super) fn scale(&mut self) -> bool {
        let active: Vec<Set> = self.sets().filter(|set| set.wanted() > 0).cloned().collect();
        let newest = self.new.clone().or_else(|| self.old.iter().max_by_key(|set| set.revision()).cloned());
        let one = match active.as_slice() {
            [] => newest,
            [one] => Some(one.clone()),
            _ => None,
        };
        if let Some(one) = one {
            let to = self.wanted;
            return self.scale_set(&one, to, true);
        }
        let is_saturated = self.new.as_ref().is_some_and(|new| {
            let desired: Option<i64> = annotation(&new.tree, DESIRED).parse().ok();
            new.wanted() == self.wanted && desired == Some(self.wanted) && new.has("availableReplicas") == self.wanted
        });
        if is_saturated {
            let old: Vec<Set> = self.old.iter().filter(|set| set.wanted() > 0).cloned().collect();
            let mut scaled = false;
            for set in &old {
                scaled |= self.scale_set(set, 0, true);
            }
            return scaled;
        }
        self.is_rolling && self.scale_in_proportion(active)
    }

    fn scale_in_proportion(&mut self, mut active: Vec<Set>) -> bool {
        let total: i64 = active.iter().map(Set::wanted).sum();
        let most = if self.wanted > 0 { self.wanted + self.surge } else { 0 };
        let to_add = most - total;
        active.sort_by(|left, right| {
            let by_age = left.created.cmp(&right.created).then_with(|| left.key.cmp(&right.key));
            let by_age = if to_add > 0 { by_age.reverse() } else { by_age };
            right.wanted().cmp(&left.wanted()).then(by_age)
        });
        let mut added = 0;
        let mut sizes = Vec::new();
        for set in &active {
            let part = if to_add == 0 || to_add == added { 0 } else { self.fraction(set) };
            let part = if to_add > 0 { part.min(to_add - added) } else { part.max(to_add - added) };
            sizes.push(set.wanted() + if to_add == 0 { 0 } else { part });
            added += if to_add == 0 { 0 } else { part };
        }
        if let Some(first) = sizes.first_mut() {
            *first = (*first + to_add - added).max(0);
        }
        let mut scaled = false;
        for (set, size) in active.iter().zip(sizes) {
            scaled |= self.scale_set(set, size, true);
        }
        scaled
    }

    /// The change of a set that keeps its part of the whole.
    fn fraction(&self, set: &Set) -> i64 {
        if self.wanted == 0 {
            return -set.wanted();
        }
        let before = annotation(&set.tree, MAX).parse().ok().filter(|most: &i64| *most != 0);
        let before = before.unwrap_or_else(|| count(&self.tree, "/status/replicas"));
        if before == 0 {
            return 0;
        }
        let scaled = set.wanted() * (self.wanted + self.surge);
        // Half is rounded up.
        (2 * scaled + before).div_euclid(2 * before) - set.wanted()
    }
}
