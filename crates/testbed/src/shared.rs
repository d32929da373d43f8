//! Members that several tests of one process use at once.
//!
//! The first test that asks starts them, on a thread of its own, so that they depend on no test's runtime. They run until
//! the process ends, whose children they are (see [`crate::process`]); the next process removes their directories.

use std::{any::Any, sync::OnceLock, thread};

use futures::future::{LocalBoxFuture, join_all};

use super::{Member, MemberOptions};

/// Members that are started once. Each test works in a namespace of its own there, gives its own names to what no
/// namespace holds, and leaves the members as they run.
pub struct SharedMembers {
    names: &'static [&'static str],
    options: fn() -> MemberOptions,
    fill: fn(&[Member]) -> LocalBoxFuture<'_, ()>,
    /// The members, or why they are not there.
    started: OnceLock<Result<Vec<Member>, String>>,
}

const NAMES: &[&str] = &["east", "west", "north"];
/// What [`crate::Testbed::shared`] hands out.
pub(crate) static PLAIN: SharedMembers = SharedMembers::filled(NAMES, |_| Box::pin(async {}));
/// What [`crate::Testbed::shared_with_workloads`] hands out.
pub(crate) static WITH_WORKLOADS: SharedMembers = SharedMembers {
    names: NAMES,
    options: || MemberOptions::with_workloads(1),
    fill: |_| Box::pin(async {}),
    started: OnceLock::new(),
};

impl SharedMembers {
    /// Members of these names, without controllers, with objects that every test finds there.
    pub const fn filled(names: &'static [&'static str], fill: fn(&[Member]) -> LocalBoxFuture<'_, ()>) -> Self {
        Self { names, options: MemberOptions::default, fill, started: OnceLock::new() }
    }

    /// The first of the members, which must have these names; starts all of them if nobody has.
    ///
    /// Errors: why they did not start, for each test that asks, or which of their servers has ended since.
    pub(crate) fn first(&'static self, names: &[&str]) -> Result<&'static [Member], String> {
        assert!(self.names.starts_with(names), "{names:?} are not the first of {:?}", self.names);
        let started = self.started.get_or_init(|| {
            let keeper = thread::Builder::new().name("testbed-shared".into());
            let thread = keeper.spawn(|| self.start()).expect("a thread");
            thread.join().map_err(|panic| message(panic.as_ref()))
        });
        let members = started.as_ref().map_err(|cause| format!("the shared members did not start: {cause}"))?;
        match ended(members) {
            None => Ok(&members[..names.len()]),
            Some(servers) => Err(format!("a server of the shared members has ended:\n{servers}")),
        }
    }

    fn start(&self) -> Vec<Member> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let members = self.names.iter().map(|name| Member::start(name, (self.options)()));
            let mut members = join_all(members).await;
            members.iter_mut().for_each(Member::share);
            (self.fill)(&members).await;
            members
        })
    }
}

/// The servers that no longer run, each with the end of its log; `None` if all run.
pub(crate) fn ended(members: &[Member]) -> Option<String> {
    let ended: Vec<String> = members.iter().flat_map(Member::ended).collect();
    (!ended.is_empty()).then(|| ended.join("\n"))
}

/// The text of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text").to_owned()
}
