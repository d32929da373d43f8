//! How far a member's list is while its objects are not held completely.

use tokio::time::Instant;

/// How far a list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Objects that are in the store.
    pub(crate) listed: u64,
    /// About how many there are. Absent while no page said how many remain.
    pub(crate) total: Option<u64>,
    /// Most objects that any attempt had in the store: an attempt that begins anew is no progress until it gets further.
    most: u64,
    rose: Instant,
    is_queued: bool,
}

impl Progress {
    /// A list that begins, after an attempt that may have failed.
    pub(crate) fn begin(before: Option<Self>) -> Self {
        let first = Self { listed: 0, total: None, most: 0, rose: Instant::now(), is_queued: false };
        Self { listed: 0, is_queued: false, ..before.unwrap_or(first) }
    }

    /// The next page waits for room among those of other members and kinds.
    pub(crate) fn queue(&mut self) {
        self.is_queued = true;
    }

    /// It is asked for.
    pub(crate) fn let_in(&mut self) {
        if std::mem::take(&mut self.is_queued) {
            self.rose = Instant::now();
        }
    }

    /// A page came with so many objects, and so many remain after it, if the member says so.
    pub(crate) fn page(&mut self, objects: usize, remain: Option<i64>) {
        if let Some(remain) = remain.and_then(|remain| u64::try_from(remain).ok()) {
            self.total = Some(self.listed + objects as u64 + remain);
        }
    }

    /// So many more are in the store.
    pub(crate) fn add(&mut self, objects: usize) {
        self.listed += objects as u64;
        if self.listed > self.most {
            (self.most, self.rose) = (self.listed, Instant::now());
        }
    }

    /// When it last got further. What waits for kubefold itself is not to blame: that is now.
    pub(crate) fn rose(&self) -> Instant {
        if self.is_queued { Instant::now() } else { self.rose }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_was_never_listed_before_is_progress() {
        let second = Duration::from_secs(1);
        let mut progress = Progress::begin(None);
        let began = progress.rose();
        advance(second).await;
        progress.page(500, Some(59_500));
        progress.add(256);
        assert_eq!((progress.listed, progress.total, progress.rose()), (256, Some(60_000), began + second));
        advance(second).await;
        let mut again = Progress::begin(Some(progress));
        again.add(256);
        assert_eq!((again.listed, again.rose()), (256, began + second), "it is where it was before");
        again.add(1);
        assert_eq!(again.rose(), began + 2 * second);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_room_is_not_to_blame() {
        let mut progress = Progress::begin(None);
        progress.queue();
        advance(Duration::from_secs(60)).await;
        assert_eq!(progress.rose(), Instant::now());
        progress.let_in();
        let let_in = Instant::now();
        advance(Duration::from_secs(1)).await;
        assert_eq!(progress.rose(), let_in);
        progress.page(1, Some(-1));
        assert_eq!(progress.total, None);
    }
}
