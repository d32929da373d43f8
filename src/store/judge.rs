//! Parts are judged anew when the record of their placement changes.

use std::sync::Arc;

use crate::store::{
    dress::{Dressed, Prepared},
    entry::Key,
    fleet_store::FleetStore,
    fold::Fold,
    hold::HoldKind,
    part::Part,
    references::References,
    sequencer::Sequencer,
};

impl FleetStore {
    /// Judges the parts under a plain key anew: the record of their placement has changed. What that changes is one event,
    /// after the hold if the key is held.
    pub fn judge_parts(&self, key: &str) {
        self.change(|inner| inner.judge_parts(key));
    }

    /// Judges the children of the placed object of that key anew: they are called after it.
    pub fn judge_children(&self, key: &str, uid: &str) {
        let is_its = |fold: &Fold| {
            let child = fold.parts.iter().find(|part| part.marker.as_ref().is_some_and(|marker| marker.is_child));
            // Its marker has the child's own UID; the copy that it is made from names the placement.
            child.is_some_and(|part| memchr::memmem::find(part.document.text().as_bytes(), uid.as_bytes()).is_some())
        };
        let children: Vec<Key> = self.peek(|inner| {
            let called_so = inner.placed.range(Key::from(key)..).take_while(|child| child.starts_with(key));
            called_so.filter(|child| inner.folds.get(*child).is_some_and(is_its)).cloned().collect()
        });
        children.iter().for_each(|key| self.judge_parts(key));
    }

    /// The placed objects, by plain key, with their parts, the home's first.
    pub fn placed(&self) -> Vec<(String, Vec<Arc<Part>>)> {
        let is_placed = |parts: &Vec<Arc<Part>>| {
            parts.first().and_then(|part| part.marker.as_ref()).is_some_and(|marker| !marker.is_child)
        };
        self.peek(|inner| {
            let chosen =
                |key: &Key| Some((key.to_string(), inner.folds.get(key)?.chosen().into_iter().cloned().collect()));
            inner.placed.iter().filter_map(chosen).filter(|(_, parts)| is_placed(parts)).collect()
        })
    }
}

impl Sequencer {
    fn judge_parts(&mut self, key: &str) {
        // What is being read now was judged by the earlier record.
        self.epoch += 1;
        let Some(fold) = self.folds.get(key) else { return };
        let parts: Vec<Arc<Part>> = fold.parts.iter().filter(|part| part.marker.is_some()).cloned().collect();
        self.hold(key, HoldKind::Stands);
        for part in parts {
            self.judge_part_anew(key, &part);
        }
        self.release(key, HoldKind::Stands);
    }

    fn judge_part_anew(&mut self, key: &str, part: &Arc<Part>) {
        let Some((at, dressing)) = self.index_of(&part.member).and_then(|at| Some((at, self.dressing(at)?))) else {
            return;
        };
        let text = part.document.text().into_owned();
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut references = References::new(&dressing.kinds, &dressing.member);
        let prepared = dressing.prepare(&text, &mut references, &mut scratch, |_| None, |_, _| false);
        if let Ok(Prepared { incoming, dressed, .. }) = prepared {
            match dressed {
                Dressed::Part(again) => {
                    let (incarnation, seen) = (part.incarnation, part.seen);
                    self.put_part(key, Part { incarnation, seen, ..*again });
                }
                Dressed::Entry(_) => {
                    self.part_turns_member_local(key, &part.member, incoming.facts.uid);
                    if let Some(entry) = self.rewrite_member_local(at, &incoming, part.seen, &mut scratch) {
                        entry.provenance.set(part.member_rv, part.incarnation, part.seen);
                        self.put_own(entry);
                    }
                }
                Dressed::Nothing => self.part_turns_member_local(key, &part.member, incoming.facts.uid),
            }
        }
        self.scratch = scratch;
    }
}
