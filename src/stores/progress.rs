//! How far the members are whose objects of a kind are being listed for the first time, and how long a read waits for them.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    config::MemberName,
    member::Member,
    stores::{Running, UNKNOWN_WAIT_MAX},
};

/// How long a read waits for members that are unknown and get further: as long as a kube-apiserver works on a request
/// (kubernetes/apiserver `pkg/server/config.go`, `RequestTimeout`).
pub const FILLING_WAIT_MAX: Duration = Duration::from_secs(60);

/// How far the first list of a member's objects of a kind is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filling {
    /// The member.
    pub member: MemberName,
    /// Objects that are in the store.
    pub listed: u64,
    /// About how many there are. Absent while the member has not said that.
    pub total: Option<u64>,
}

impl Running {
    /// How far the members are that are being listed.
    pub fn filling(&self) -> Vec<Filling> {
        let feeds = self.feeds.lock();
        let far = feeds.iter().filter(|(member, _)| !self.store.is_filled(member)).filter_map(|(member, feed)| {
            let progress = feed.state.progress()?;
            Some(Filling { member: member.clone(), listed: progress.listed, total: progress.total })
        });
        let mut filling: Vec<Filling> = far.collect();
        filling.sort_by(|one, other| one.member.cmp(&other.member));
        filling
    }

    /// Until when a read that came at `came` waits for these members, if none of them gets further; never longer than
    /// until `limit`.
    pub(super) fn waits_until(&self, unknown: &[Arc<Member>], came: Instant, limit: Instant) -> Instant {
        let feeds = self.feeds.lock();
        let rose = |member: &Arc<Member>| Some(feeds.get(member.name())?.state.progress()?.rose());
        let last = unknown.iter().map(|member| rose(member).map_or(came, |rose| rose.max(came))).min();
        (last.unwrap_or(came) + UNKNOWN_WAIT_MAX).min(limit)
    }

    /// `east has listed 12,000 of about 60,000 pods`, while it lists.
    pub(super) fn describe_filling(&self, member: &MemberName) -> Option<String> {
        let progress = self.feeds.lock().get(member)?.state.progress()?;
        let (resource, listed) = (&self.store.spec().gvr.resource, grouped(progress.listed));
        Some(match progress.total {
            Some(total) => format!("{member} has listed {listed} of about {} {resource}", grouped(total)),
            None => format!("{member} has listed {listed} {resource} so far"),
        })
    }
}

/// `60,000`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let written = [0, 999, 1_000, 60_000, 1_234_567].map(grouped);
        assert_eq!(written, ["0", "999", "1,000", "60,000", "1,234,567"]);
    }
}
