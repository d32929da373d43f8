//! Writes that went around the fleet view, through a member's own: what the next read must first make sure of.

use std::{collections::HashMap, sync::Arc};

use http::StatusCode;

use crate::{
    config::MemberName,
    stores::{Running, Stores},
};
use kubefold_wire::info::RequestInfo;

/// Namespaces of one kind that are marked apart, of all members; with more, all of them are.
const NAMESPACES_MAX: usize = 64;

/// Which objects of a kind may have changed without the store knowing: by member and namespace (empty: any).
#[derive(Debug, Default)]
pub(super) struct Marks {
    count: u64,
    places: HashMap<Place, u64>,
}

/// A member's namespace.
pub(super) type Place = (MemberName, String);

impl Marks {
    fn set(&mut self, member: &MemberName, namespace: &str) {
        self.count += 1;
        let place = (member.clone(), namespace.to_owned());
        if self.places.len() < NAMESPACES_MAX || self.places.contains_key(&place) {
            self.places.insert(place, self.count);
            return;
        }
        let mut members: Vec<MemberName> = self.places.drain().map(|((member, _), _)| member).collect();
        members.push(member.clone());
        self.places.extend(members.into_iter().map(|member| ((member, String::new()), self.count)));
    }

    /// What a read of a namespace (empty: of all) must make sure of, and what to settle then.
    pub(super) fn due(&self, only: Option<&MemberName>, namespace: &str) -> Vec<(Place, u64)> {
        let is_due = |(member, marked): &Place| {
            only.is_none_or(|only| only == member) && (namespace.is_empty() || marked.is_empty() || marked == namespace)
        };
        self.places.iter().filter(|(place, _)| is_due(place)).map(|(place, mark)| (place.clone(), *mark)).collect()
    }

    /// A proof that began with this mark succeeded; a later mark stays.
    pub(super) fn settle(&mut self, place: &Place, mark: u64) {
        if self.places.get(place).is_some_and(|last| *last <= mark) {
            self.places.remove(place);
        }
    }
}

/// Marks when it is dropped: the answer of a write is out then, or will never be.
pub struct Marking {
    running: Vec<Arc<Running>>,
    member: MemberName,
    namespace: String,
    /// It is done as a whole or not at all.
    is_whole: bool,
}

impl Marking {
    /// Marks, unless the member has refused and so changed nothing.
    pub fn answered(mut self, code: StatusCode) {
        if self.is_whole && code.is_client_error() {
            self.running.clear();
        }
    }
}

impl Drop for Marking {
    fn drop(&mut self) {
        for running in &self.running {
            running.marks.lock().set(&self.member, &self.namespace);
        }
    }
}

impl Stores {
    /// Marks a kind of a member when the guard is dropped, in every version and group that serves it.
    ///
    /// A store that does not run yet needs no mark: it begins with a list.
    pub fn marking(&self, member: &MemberName, info: &RequestInfo) -> Marking {
        let (group, resource) = (&info.api_group, &info.resource);
        // Events are the one kind that is served in two groups.
        let is_kind = |of: &str| of == group || (resource == "events" && matches!(of, "" | "events.k8s.io"));
        // `namespaces/x` is about an object that lies in no namespace.
        let namespace = if resource == "namespaces" { "" } else { &info.namespace };
        let all = self.running.lock();
        let running = all.iter().filter(|(gvr, _)| *gvr.resource == **resource && is_kind(&gvr.group));
        let running = running.map(|(_, running)| Arc::clone(running)).collect();
        Marking {
            running,
            member: member.clone(),
            namespace: namespace.to_owned(),
            is_whole: info.verb != "deletecollection",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> MemberName {
        MemberName::new(text).unwrap()
    }

    fn due(marks: &Marks, only: Option<&str>, namespace: &str) -> Vec<(String, u64)> {
        let only = only.map(name);
        let mut due: Vec<(String, u64)> = marks
            .due(only.as_ref(), namespace)
            .into_iter()
            .map(|((member, namespace), mark)| (format!("{member}/{namespace}"), mark))
            .collect();
        due.sort();
        due
    }

    #[test]
    fn a_read_owes_the_marks_of_its_namespace_and_members() {
        let mut marks = Marks::default();
        marks.set(&name("east"), "a");
        marks.set(&name("west"), "a");
        marks.set(&name("west"), "b");
        assert_eq!(due(&marks, None, "a"), [("east/a".to_owned(), 1), ("west/a".to_owned(), 2)]);
        assert_eq!(due(&marks, Some("west"), "").len(), 2);
        assert_eq!(due(&marks, None, "c"), []);
    }

    #[test]
    fn a_mark_that_came_while_it_was_proven_stays() {
        let mut marks = Marks::default();
        let place = (name("east"), "a".to_owned());
        marks.set(&place.0, "a");
        marks.set(&place.0, "a");
        marks.settle(&place, 1);
        assert_eq!(due(&marks, None, "a"), [("east/a".to_owned(), 2)]);
        marks.settle(&place, 2);
        assert_eq!(due(&marks, None, "a"), []);
    }

    #[test]
    fn too_many_namespaces_are_all_of_them() {
        let mut marks = Marks::default();
        for number in 0..=NAMESPACES_MAX {
            marks.set(&name(if number % 2 == 0 { "east" } else { "west" }), &format!("n{number}"));
        }
        let all = due(&marks, None, "anything");
        assert_eq!(all.iter().map(|(place, _)| place.as_str()).collect::<Vec<_>>(), ["east/", "west/"]);
    }
}
