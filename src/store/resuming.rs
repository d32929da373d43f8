//! A store that goes on where that of an earlier process ended: docs/design/revisions.md#restarts.

use crate::store::{
    earlier::{Earlier, Later},
    fleet_store::FleetStore,
    log::ReadAfter,
    recognizing::Recognizing,
    revision::Revision,
    sequencer::Sequencer,
};

impl Sequencer {
    /// Knows objects again that an earlier process showed. Nothing is here yet.
    fn recognize(&mut self, earlier: Earlier) {
        // Otherwise it could not be told by whom a revision was given.
        if earlier.last < self.shared.revisions.first() && !self.opened {
            self.log.resume_behind(earlier.missing(), earlier.last, self.shared.revisions.next());
            self.recognizing = Some(Recognizing::new(earlier));
        }
    }

    /// What comes from now on is told by the members.
    fn end_filling(&mut self) {
        if let Some(recognizing) = self.recognizing.as_mut().filter(|one| !one.is_filled) {
            recognizing.is_filled = true;
            // Who holds an object back does so until the store opens.
            while self.show_unshown(usize::MAX) {}
        }
    }

    fn may_resume(&self, is_level: bool) -> bool {
        let is_whole = |one: &Recognizing| one.is_filled && one.is_whole(self.objects.len(), is_level);
        !self.opened && self.recognizing.as_ref().is_some_and(is_whole)
    }

    /// Goes on where an earlier process ended, if the log has all that came since. Says whether it has.
    fn resume(&mut self, is_level: bool) -> bool {
        while self.may_resume(is_level) && self.show_unshown(usize::MAX) {}
        let may_resume = self.may_resume(is_level);
        if may_resume {
            (self.opened, self.recognizing) = (true, None);
            self.head = self.log.head().0;
        }
        may_resume
    }
}

impl FleetStore {
    /// What it shows, with everything up to a revision that was given out for any kind. `None`: nobody has read it.
    ///
    /// Shape: reads the bytes of all objects.
    pub fn shown(&self, up_to: Revision) -> Option<Earlier> {
        let published = self.published_at(up_to);
        published.opened.then(|| {
            let (since, events) = self.log.all_up_to(published.snapshot.revision);
            Earlier::of(&published.snapshot, up_to, &events, since)
        })
    }

    /// What has changed of that since an event, whose revision is `after`. `None`: the log does not reach so far.
    ///
    /// Shape: reads the bytes of the objects that changed.
    pub fn shown_after(&self, after: Revision, up_to: Revision) -> Option<Later> {
        let head = self.head_at(up_to);
        let mut records = Vec::new();
        let read = if head > after {
            self.log.read_after(after, usize::MAX, usize::MAX, &mut records)
        } else {
            ReadAfter::Read
        };
        // What was logged after the snapshot is told the next time.
        records.retain(|record| record.revision <= head);
        (read == ReadAfter::Read).then(|| Later::of(head.max(after), &records))
    }

    /// Knows objects again that an earlier process showed, until [`Self::resume`] or [`Self::open`]. Nothing is in the store yet.
    pub fn recognize(&self, earlier: Earlier) {
        self.change(|inner| inner.recognize(earlier));
    }

    /// It has all that an earlier process had kept. What comes now is told by the members.
    pub fn filled_from_mirror(&self) {
        self.show_all();
        self.change(Sequencer::end_filling);
    }

    /// Goes on where an earlier process ended, if that can be by now: each object has looked as it did then, and what came since is
    /// logged. `is_level`: its members have told all that they had when it began. Says whether it does.
    pub fn resume(&self, is_level: bool) -> bool {
        self.peek(|inner| inner.may_resume(is_level)) && self.change(|inner| inner.resume(is_level))
    }
}
