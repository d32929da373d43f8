//! Objects as those see them who may see some of their parts alone.

use std::sync::Arc;

use crate::store::{
    audience::{Audience, Sight},
    entry::{Entry, Holders},
    fleet_store::FleetStore,
    incoming::Scratch,
    parts::{PartList, Parts},
    sequencer::Sequencer,
};

impl FleetStore {
    /// What may be seen of an object: itself, or what the parts of some members make. `None`: nothing.
    ///
    /// Shape: of an object that is seen whole, constant time; otherwise a walk through the document of its first part.
    pub fn seen_by(&self, audience: &Audience, entry: &Arc<Entry>) -> Option<Arc<Entry>> {
        match audience.sight(entry) {
            Sight::Whole => Some(Arc::clone(entry)),
            Sight::Parts => self.peek(|inner| inner.project(entry, audience)).map(Arc::new),
            Sight::Nothing => None,
        }
    }
}

impl Sequencer {
    /// What the parts that may be seen make.
    fn project(&self, entry: &Entry, audience: &Audience) -> Option<Entry> {
        let all = entry.parts.as_ref()?;
        let mut list: Vec<_> =
            all.list.iter().filter(|part| audience.sees_member(&part.member)).map(Arc::clone).collect();
        // As of all parts: that of a shared object which is not being deleted has its body.
        let is_shared = list.iter().all(|part| part.marker.is_none());
        let body = list.iter().position(|part| !part.deleting).filter(|_| is_shared);
        if let Some(front) = body.and_then(|body| list.get_mut(..=body)) {
            front.rotate_right(1);
        }
        let holders: Holders = list.iter().map(|part| part.member.clone()).collect();
        let seen = |members: &[_]| members.iter().filter(|name| audience.sees_member(name)).cloned().collect();
        let parts = Parts {
            list: PartList::of(&list),
            behind: seen(&all.behind),
            differs: seen(&all.differs),
            revision: all.revision,
        };
        self.folded(parts, &holders, Some(entry.uid()), &mut Scratch::default())
    }
}
