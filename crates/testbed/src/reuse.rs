//! Members that one test after another uses, each as if it had just been started.
//!
//! A start is most of what a member costs a test. So a member whose test has passed waits for the next test that wants one
//! of its name and options, and is made then what it was when it was started, or discarded where that is in doubt.

use std::mem;

use parking_lot::Mutex;

use super::{Member, MemberOptions};

/// Members that wait, the latest last. Units: members. Each costs memory alone: its servers are stopped while they wait, since
/// each member that runs takes a twentieth of a core from the tests.
const IDLE_MAX: usize = 8;
/// They are there until the process ends, whose children they are.
static IDLE: Mutex<Vec<Member>> = Mutex::new(Vec::new());

/// A member that is as it was when it was started: one that waits, or a new one.
pub(crate) async fn take(name: &str, options: MemberOptions) -> Member {
    while let Some(member) = idle(name, &options) {
        match member.reset().await {
            Ok(()) => return member,
            Err(cause) => super::figure(&format!("{name} is not used again: {cause}")),
        }
    }
    Member::start(name, options).await
}

/// Keeps the members of a test that has passed for another one.
pub(crate) fn give_back(members: &mut Vec<Member>) {
    let reusable = mem::take(members).into_iter().filter(Member::is_reusable).inspect(Member::freeze);
    let mut idle = IDLE.lock();
    idle.extend(reusable);
    let surplus = idle.len().saturating_sub(IDLE_MAX);
    let surplus: Vec<Member> = idle.drain(..surplus).collect();
    drop(idle);
    drop(surplus);
}

fn idle(name: &str, options: &MemberOptions) -> Option<Member> {
    let mut idle = IDLE.lock();
    let found = idle.iter().rposition(|member| member.name() == name && member.options() == options)?;
    let member = idle.remove(found);
    member.thaw();
    Some(member)
}
