//! What befalls members.

use kubefold_apiserver::faults::{Fault, Matching, Rule};

use crate::{chance::Chance, kinds::KINDS, play::Stage};

/// One kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The process is killed, and started again.
    Killed,
    /// It is killed, its etcd goes back to a backup, and it is started again.
    Restored,
    /// Its certificate ends.
    Uncertified,
    /// 500, 502, 503 or 504, though nothing was done.
    Broken,
    /// 429 with a `Retry-After`.
    Throttled,
    /// 500 or 504, though the write was carried out.
    Lost,
    /// Answers come late.
    Late,
    /// Answers do not come.
    Hanging,
    /// Connections close without an answer.
    Closed,
    /// Bodies break off.
    Cut,
    /// Compressed bodies end half-way.
    Truncated,
    /// A login page in place of answers.
    LoginPage,
    /// 410 to lists and watches.
    Expired,
}

/// All of them.
pub(crate) const ALL: &[Trouble] = &[
    Trouble::Killed,
    Trouble::Restored,
    Trouble::Uncertified,
    Trouble::Broken,
    Trouble::Throttled,
    Trouble::Lost,
    Trouble::Late,
    Trouble::Hanging,
    Trouble::Closed,
    Trouble::Cut,
    Trouble::Truncated,
    Trouble::LoginPage,
    Trouble::Expired,
];

/// All but those that take back what members have said.
pub(crate) const WITHOUT_RESTORE: &[Trouble] = &[
    Trouble::Killed,
    Trouble::Uncertified,
    Trouble::Broken,
    Trouble::Throttled,
    Trouble::Lost,
    Trouble::Late,
    Trouble::Hanging,
    Trouble::Closed,
    Trouble::Cut,
    Trouble::Truncated,
    Trouble::LoginPage,
    Trouble::Expired,
];

/// What makes a member unreachable or silent.
pub(crate) const OUTAGES: &[Trouble] = &[
    Trouble::Killed,
    Trouble::Killed,
    Trouble::Restored,
    Trouble::Uncertified,
    Trouble::Hanging,
    Trouble::Closed,
    Trouble::Broken,
];

/// Troubles come and go, so many of them.
pub(crate) async fn befall(stage: &Stage<'_>, mut chance: Chance, troubles: &[Trouble], count: usize) {
    let mut backups: Vec<_> = stage.world.members.iter().map(|member| member.backup()).collect();
    for _ in 0..count {
        chance.think(300, 6_000).await;
        let at = chance.below(stage.world.members.len());
        let member = &stage.world.members[at];
        let time = chance.time(500, 20_000);
        let trouble = chance.of_all(troubles);
        match trouble {
            Trouble::Killed => {
                stage.note(at, format!("is killed for {time:?}"));
                member.endpoint.kill();
                tokio::time::sleep(time).await;
                member.endpoint.revive().await.expect("its own address");
            }
            Trouble::Restored => {
                stage.note(at, "is killed and restored".to_owned());
                member.endpoint.kill();
                member.restore(&backups[at]);
                stage.world.is_missed(at).await;
                member.endpoint.revive().await.expect("its own address");
            }
            Trouble::Uncertified => {
                stage.note(at, format!("shows an old certificate for {time:?}"));
                member.endpoint.expire(true).expect("a certificate");
                // Connections that stand are not asked for it again.
                member.endpoint.kill();
                stage.world.next_tick().await;
                member.endpoint.revive().await.expect("its own address");
                tokio::time::sleep(time).await;
                member.endpoint.expire(false).expect("a certificate");
            }
            _ => {
                let rule = rule(trouble, &mut chance);
                stage.note(at, format!("{rule:?} for {time:?}"));
                member.endpoint.faults().add(rule).expect("a good rule");
                tokio::time::sleep(time).await;
                member.endpoint.faults().clear();
            }
        }
        stage.note(at, "is left alone".to_owned());
        if chance.one_in(3) {
            backups[at] = member.backup();
        }
    }
}

fn rule(trouble: Trouble, chance: &mut Chance) -> Rule {
    let fault = match trouble {
        Trouble::Broken => Fault::Status { code: chance.of_all(&[500, 502, 503, 504]), retry_after: None },
        Trouble::Throttled => Fault::Status { code: 429, retry_after: Some(1) },
        Trouble::Lost => Fault::Lost { code: chance.of_all(&[500, 504]) },
        Trouble::Late => Fault::Latency { millis: 50 + chance.below(4_000) as u64 },
        Trouble::Hanging => Fault::Hang,
        Trouble::Closed => Fault::Close,
        Trouble::Cut => Fault::Cut { after: chance.below(1_500) as u64 },
        Trouble::Truncated => Fault::TruncatedGzip,
        Trouble::LoginPage => Fault::WrongContent,
        Trouble::Expired => Fault::Expired,
        Trouble::Killed | Trouble::Restored | Trouble::Uncertified => unreachable!("these are no rules"),
    };
    let mut on = Matching::default();
    if !chance.one_in(3) {
        on.path = Some(format!("/{}", chance.of_all(&KINDS).plural));
    }
    on.method = match trouble {
        Trouble::Expired => Some("GET".to_owned()),
        // What a lost answer is of: a write. The others are only reads that fail.
        Trouble::Lost => Some(chance.of_all(&["POST", "PUT", "PATCH", "DELETE"]).to_owned()),
        _ if chance.one_in(3) => Some(chance.of_all(&["GET", "POST", "PATCH", "PUT", "DELETE"]).to_owned()),
        _ => None,
    };
    if trouble == Trouble::Expired {
        on.watch = Some(true);
    }
    let every = chance.of_all(&[None, None, Some(2), Some(3)]);
    Rule { on, fault, times: None, every }
}
