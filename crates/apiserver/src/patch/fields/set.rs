//! A set of paths, as a tree.

use std::collections::{BTreeMap, BTreeSet};

use super::Element;

/// A set of paths into an object. That a path is in it says nothing of those below or above it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Paths of one step.
    pub(super) members: BTreeSet<Element>,
    /// Longer paths by their first step. None is empty.
    pub(super) children: BTreeMap<Element, Self>,
}

impl Set {
    /// The set of these paths of names.
    pub fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<Element> = path.iter().map(|name| Element::Field((*name).to_owned())).collect();
            set.insert(&path);
        }
        set
    }

    /// Adds a path. The empty one, the object itself, has no owner.
    pub fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Says whether a path is in it.
    pub fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|child| child.has(rest)),
        }
    }

    /// Says whether a path of one step is in it.
    pub fn holds(&self, element: &Element) -> bool {
        self.members.contains(element)
    }

    /// What is below a step.
    pub fn below(&self, element: &Element) -> Option<&Self> {
        self.children.get(element)
    }

    /// Sets what is below a step, and adds the step itself.
    pub fn replace(&mut self, step: Element, member: bool, below: Self) {
        if member {
            self.members.insert(step.clone());
        }
        self.children.insert(step, below);
    }

    /// Says whether no path is in it.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// The first steps of its paths, and whether the step is a path itself.
    pub fn steps(&self) -> impl Iterator<Item = (&Element, bool)> {
        let longer = self.children.keys().filter(|step| !self.members.contains(*step)).map(|step| (step, false));
        longer.chain(self.members.iter().map(|step| (step, true)))
    }

    /// Paths in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.members.extend(other.members.iter().cloned());
        for (step, child) in &other.children {
            let mine = all.children.entry(step.clone()).or_default();
            *mine = mine.union(child);
        }
        all
    }

    /// Paths in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let members = self.members.intersection(&other.members).cloned().collect();
        let both = |(step, child): (&Element, &Self)| {
            let both = child.intersection(other.children.get(step)?);
            (!both.is_empty()).then(|| (step.clone(), both))
        };
        Self { members, children: self.children.iter().filter_map(both).collect() }
    }

    /// Paths in this and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// Paths in this that are neither in the other nor below one of it.
    #[must_use]
    pub fn difference_below(&self, other: &Self) -> Self {
        self.without(other, true)
    }

    fn without(&self, other: &Self, below: bool) -> Self {
        let members = self.members.difference(&other.members).cloned().collect();
        let rest = |(step, child): (&Element, &Self)| {
            if below && other.members.contains(step) {
                return None;
            }
            let rest = match other.children.get(step) {
                Some(theirs) => child.without(theirs, below),
                None => child.clone(),
            };
            (!rest.is_empty()).then(|| (step.clone(), rest))
        };
        Self { members, children: self.children.iter().filter_map(rest).collect() }
    }

    /// All paths, those of one step first.
    pub fn paths(&self) -> Vec<Vec<Element>> {
        let mut all = Vec::new();
        self.walk(&mut Vec::new(), &mut all);
        all
    }

    fn walk(&self, prefix: &mut Vec<Element>, all: &mut Vec<Vec<Element>>) {
        for member in &self.members {
            let mut path = prefix.clone();
            path.push(member.clone());
            all.push(path);
        }
        for (step, child) in &self.children {
            prefix.push(step.clone());
            child.walk(prefix, all);
            prefix.pop();
        }
    }
}
