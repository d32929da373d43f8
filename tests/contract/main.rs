//! The contract: one set of requests, asked of a kube-apiserver and of kubefold before it, and compared.
//!
//! A *target* is a base URL and a client's identity (`target`). A *check* is one request as data (`check`, `checks`); a
//! *watch* is one that follows a script of changes (`watches`). Every answer is reduced to what must agree (`seen`) and
//! compared aspect by aspect: the status, each header, each key of the body. A difference is allowed only where a rule of
//! `differences` declares it, by an id that `docs/differences.md` explains; and it must still be there.
//!
//! `CONTRACT=<text>` runs only the checks whose label holds that text.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests: a failure is a failed test, in their helper functions too"
)]

mod check;
mod checks;
mod differences;
mod embedded;
mod paging;
mod scripted;
mod seen;
mod several;
mod target;
mod world;

use futures::{StreamExt, future::join_all};

use crate::{check::Check, differences::Differences, embedded::Embedded, target::Target, world::World};

/// Requests under way at once.
const IN_PARALLEL: usize = 24;

#[tokio::test(flavor = "multi_thread")]
async fn kubefold_answers_as_a_kube_apiserver() {
    let world = Box::pin(World::start()).await;
    let World { bed, members, plain, suffixed, several, .. } = &world;
    let checks = selected(checks::all());
    let (mut report, mut differences) = (Vec::new(), Differences::of_kubefold());

    // (b): over the one member, under its own names or under those that kubefold gives. They agree.
    let unpaged: Vec<Check> = checks.iter().filter(|check| !check.is_paged()).cloned().collect();
    for (fleet, checks) in [(plain, &checks), (suffixed, &unpaged)] {
        for (check, seen) in compared(&members[0], fleet, checks).await {
            report.extend(check.verdict(fleet, &seen, &mut differences));
        }
    }
    // (c): over several. They show the union, and refuse alike.
    let verdicts = checks.iter().map(|check| several::verdict(members, plain, several, check));
    report.extend(
        futures::stream::iter(verdicts).buffered(IN_PARALLEL).filter_map(std::future::ready).collect::<Vec<_>>().await,
    );
    for (fleet, of_several) in [(plain, false), (several, true)] {
        report.extend(paging::verdicts(&members[0], fleet, of_several, &mut differences).await);
    }
    // (d): the embedded server by itself, on each storage, with what the one member holds.
    let own = Box::pin(Embedded::on_each_storage(&members[0])).await;
    let targets: Vec<&Target> = own.iter().map(|own| &own.target).collect();
    let mut of_embedded: Vec<Differences> = targets.iter().map(|_| Differences::of_embedded()).collect();
    for (check, seen) in compared_with_each(&members[0], &targets, &checks).await {
        for ((target, seen), differences) in targets.iter().zip(seen).zip(&mut of_embedded) {
            report.extend(check.verdict(target, &seen, differences));
        }
    }
    // All at once: watches that tell of changes.
    report.extend(scripted::verdicts(&bed["east"], &[&members[0], plain, suffixed, several]).await);
    if std::env::var_os("CONTRACT").is_none() {
        report.extend(differences.against());
        report.extend(of_embedded.iter().flat_map(Differences::against));
    }
    assert!(report.is_empty(), "{} checks failed\n{}", report.len(), report.join("\n"));
}

fn selected(checks: Vec<Check>) -> Vec<Check> {
    let only = std::env::var("CONTRACT").unwrap_or_default();
    checks.into_iter().filter(|check| check.label().contains(&only)).collect()
}

/// What differs between two targets, check by check.
async fn compared<'a>(member: &Target, fleet: &Target, checks: &'a [Check]) -> Vec<(&'a Check, Vec<seen::Mismatch>)> {
    let all = compared_with_each(member, &[fleet], checks).await;
    all.into_iter().map(|(check, mismatches)| (check, mismatches.concat())).collect()
}

/// What differs between a member, which is asked once, and each of several targets, check by check.
async fn compared_with_each<'a>(
    member: &Target,
    fleets: &[&Target],
    checks: &'a [Check],
) -> Vec<(&'a Check, Vec<Vec<seen::Mismatch>>)> {
    let compare = async |check: &'a Check| {
        let (said, told) = tokio::join!(member.ask(check), join_all(fleets.iter().map(|fleet| fleet.ask(check))));
        let each = fleets.iter().zip(told).map(|(fleet, told)| mismatches(member, fleet, check, &said, told));
        (check, join_all(each).await)
    };
    futures::stream::iter(checks.iter().map(compare)).buffered(IN_PARALLEL).collect().await
}

async fn mismatches(
    member: &Target,
    fleet: &Target,
    check: &Check,
    said: &seen::Seen,
    told: seen::Seen,
) -> Vec<seen::Mismatch> {
    let in_order = fleet.suffix.is_empty();
    let sorted = |seen: seen::Seen| if in_order { seen } else { seen.sorted() };
    let told = sorted(told);
    let mut mismatches = seen::mismatches(&sorted(said.clone()), &told);
    // What the member's own components renew may have changed in between: then the fleet tells what it is now.
    if mismatches.iter().any(|one| ["body.items", "body.rows", "events"].contains(&one.aspect.as_str())) {
        mismatches = seen::mismatches(&sorted(member.ask(check).await), &told);
    }
    mismatches
}
