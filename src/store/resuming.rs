//! A store that goes on where that of an earlier process ended.

use crate::store::{
    earlier::{Earlier, Recognizing},
    fleet_store::FleetStore,
    sequencer::{MemberState, Sequencer},
};

impl Sequencer {
    /// Begins to log where an earlier process ended, if all is shown as it was then. Says whether it is.
    fn resume(&mut self) -> bool {
        while self.show_unshown(usize::MAX) {}
        let recognizing = self.recognizing.take().filter(|_| !self.opened);
        let Some(Recognizing { earlier, .. }) = recognizing.filter(|one| one.is_whole(self.objects.len())) else {
            return false;
        };
        self.opened = true;
        self.head = earlier.head;
        self.log.resume_at(earlier.head, earlier.last, self.shared.revisions.next());
        true
    }
}

impl FleetStore {
    /// What it shows. `None`: nobody has read it, or it knows of deletions that its members have yet to tell of. Another process would take
    /// what they tell before for news.
    ///
    /// Shape: reads the bytes of all objects.
    pub fn shown(&self) -> Option<Earlier> {
        let last = self.last();
        let published = self.published_at(last);
        let is_ahead = self.peek(|inner| inner.members.iter().any(MemberState::is_ahead));
        (published.opened && !is_ahead).then(|| Earlier::of(&published.snapshot, last))
    }

    /// Knows objects again that an earlier process showed, until [`Self::resume`]. Nothing is in the store yet.
    pub fn recognize(&self, earlier: Earlier) {
        self.change(|inner| {
            // Otherwise it could not be told by whom a revision was given.
            if earlier.last < inner.shared.revisions.first() && !inner.opened {
                inner.recognizing = Some(Recognizing::new(earlier));
            }
        });
    }

    /// Goes on where an earlier process ended, if all objects are shown as they were then, and there are no others. Otherwise the
    /// store opens as ever. Says whether it goes on.
    pub fn resume(&self) -> bool {
        self.show_all();
        self.change(Sequencer::resume)
    }
}
