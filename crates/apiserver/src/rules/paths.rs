//! Where in a schema the value of an expression is described.
//!
//! Source: google/cel-go `checker/cost.go` `exprPaths`.

use std::{cell::RefCell, rc::Rc};

/// Names from a variable on: `self`, `ports`, `@items`. Empty: the value is described nowhere.
///
/// It is a slice of Go with its room: what is appended to two paths of one origin may overwrite each other's last name, and a
/// kube-apiserver's estimates are those of what is left then.
#[derive(Clone, Default)]
pub(super) struct Path {
    names: Rc<RefCell<Vec<String>>>,
    length: usize,
    room: usize,
}

impl Path {
    pub(super) fn of(name: &str) -> Self {
        Self::default().inside(name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The path with one more name, as Go's `append`.
    pub(super) fn inside(&self, name: &str) -> Self {
        let length = self.length + 1;
        if length > self.room {
            let mut names = self.names();
            names.push(name.to_owned());
            return Self { names: Rc::new(RefCell::new(names)), length, room: (self.room * 2).max(1) };
        }
        let mut names = self.names.borrow_mut();
        match names.get_mut(self.length) {
            Some(last) => name.clone_into(last),
            None => names.push(name.to_owned()),
        }
        Self { names: Rc::clone(&self.names), length, room: self.room }
    }

    /// The same in a list of its own, which overwrites nothing.
    pub(super) fn inside_copy(&self, name: &str) -> Self {
        let mut names = self.names();
        names.push(name.to_owned());
        let length = names.len();
        Self { names: Rc::new(RefCell::new(names)), length, room: length }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.names.borrow().iter().take(self.length).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_overwrite_each_other_as_in_go() {
        let item = Path::of("self").inside("list").inside("@items");
        let tags = item.inside("tags");
        let inner = tags.inside("@items");
        assert_eq!(item.inside("name").names(), ["self", "list", "@items", "name"]);
        assert_eq!(tags.names(), ["self", "list", "@items", "name"]);
        assert_eq!(inner.names(), ["self", "list", "@items", "tags", "@items"]);
        let list = Path::of("self").inside("list");
        let item = list.inside("@items");
        let _ = list.inside("@other");
        assert_eq!(item.names(), ["self", "list", "@items"]);
        assert!(Path::default().is_empty() && Path::default().names().is_empty());
    }
}
