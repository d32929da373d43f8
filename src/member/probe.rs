//! Keeps a member's health: asks `/readyz` in turn, and at once when traffic fails.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tokio::time::{Instant, sleep};

use crate::{
    member::Member,
    upstream::{Failure, Health, Outgoing, OutgoingError, UpstreamError, cause::Cause, collect, health::Input},
};

/// Between two probes of a member that is not ready, at most: its return is what everybody waits for.
const RECOVERY_PACE_MAX: Duration = Duration::from_millis(500);
/// Between two probes, however many requests fail.
const PROBE_GAP: Duration = Duration::from_millis(200);
/// Between two probes of any members that are ready: many members are probed less often each. A request that fails has its
/// member probed at once.
const PROBE_SPACING: Duration = Duration::from_millis(40);
/// `/readyz?verbose` lists its checks.
const READYZ_BYTES_MAX: usize = 64 << 10;
/// So many of them are remembered; a kube-apiserver has 40.
const CHECKS_MAX: usize = 100;

/// Probes without end: whoever runs it drops it when the member is removed.
pub(super) async fn run(member: Arc<Member>) {
    let mut twin = member.twin.subscribe();
    loop {
        if member.upstream.follow_files().await {
            member.moved();
        }
        let before = member.health();
        member.probe_state.ask();
        let (told, cause) = probe(&member).await;
        if !matches!(told, Input::ProbeFailed { .. }) {
            member.probe_state.probe_answered();
        }
        member.probe_state.feed(told);
        let after = member.health();
        if before.name() != after.name() {
            tell(&member, &after, cause);
            if after.is_down() {
                member.upstream.cut_http1();
            }
        }
        let is_ready = member.health() == Health::Ready;
        let pace = pace(member.upstream.deadlines().probe, member.cluster_uids.count(), is_ready);
        tokio::select! {
            () = sleep(pace) => {}
            () = member.probe_state.probe_wanted() => sleep(PROBE_GAP).await,
            _ = twin.changed() => member.hold_twin(),
        }
    }
}

/// Between two probes of one of so many members.
fn pace(configured: Duration, members: usize, is_ready: bool) -> Duration {
    let members = u32::try_from(members).unwrap_or(u32::MAX);
    if is_ready { configured.max(PROBE_SPACING.saturating_mul(members)) } else { configured.min(RECOVERY_PACE_MAX) }
}

/// One line for each change of state: retries say nothing.
fn tell(member: &Member, health: &Health, cause: Option<Cause>) {
    let cause = cause.map_or("none", Cause::as_str);
    match health {
        Health::Unknown => {}
        Health::Ready => tracing::info!(member = %member.name, "{}", member.describe()),
        Health::Degraded { .. } | Health::Down { .. } => {
            tracing::warn!(member = %member.name, cause, "{}", member.describe());
        }
    }
}

/// Asks once.
async fn probe(member: &Member) -> (Input, Option<Cause>) {
    match readyz(member).await {
        Ok(None) => {}
        Ok(Some((code, cause))) => return (Input::ProbeUnready { cause }, Cause::of_status(code)),
        Err(error) => return failed(member, &error),
    }
    if member.probe_state.health() == Health::Ready && member.cluster_uid().is_some() {
        return (Input::ProbeReady, None);
    }
    // Ready again: before anybody reads from it, make sure that it is still the same cluster.
    match member.check_identity().await {
        Ok(_) => (Input::ProbeReady, None),
        Err(UpstreamError { failure: Failure::Answer(cause), .. }) => {
            (Input::ProbeUnready { cause }, Some(Cause::Unexpected))
        }
        Err(error) => failed(member, &error),
    }
}

fn failed(member: &Member, error: &UpstreamError) -> (Input, Option<Cause>) {
    let cause = Cause::of_failure(&error.failure);
    if let Some(cause) = cause {
        member.meter().failed(cause);
        member.probe_state.note(&error.cause());
    }
    let certain = matches!(error.failure, Failure::Refused(_) | Failure::Resolve { .. } | Failure::Credential(_));
    if matches!(error.failure, Failure::HeadTimeout(_) | Failure::BodyTimeout(_)) {
        // The connection may be dead and the member alive: the next probe opens another one.
        member.upstream.retire_connections();
    }
    (Input::ProbeFailed { cause: error.cause().into(), certain }, cause)
}

/// `None` if it says yes, otherwise what it says.
async fn readyz(member: &Member) -> Result<Option<(StatusCode, Arc<str>)>, UpstreamError> {
    let request = Outgoing::document("/readyz?verbose");
    let unfit = |error: OutgoingError| UpstreamError::new(&member.name, Failure::Request(error.to_string().into()));
    let request = request.map_err(unfit)?;
    let asked = Instant::now();
    let response = member.upstream.probe(request).await?;
    member.probe_state.answered_after(asked.elapsed());
    let code = response.status();
    let body = collect(response.into_body(), READYZ_BYTES_MAX).await?;
    Cause::of_status(code).into_iter().for_each(|cause| member.meter().failed(cause));
    let said: Arc<str> = match code {
        StatusCode::OK => {
            member.probe_state.set_passed(marked(&String::from_utf8_lossy(&body), "[+]").take(CHECKS_MAX));
            return Ok(None);
        }
        StatusCode::UNAUTHORIZED => {
            member.upstream.credential_refused().await;
            "it refuses kubefold's own credential (401)".into()
        }
        StatusCode::FORBIDDEN => "it does not let kubefold read /readyz (403)".into(),
        _ => unready(code, &body).into(),
    };
    member.probe_state.note(&said);
    Ok(Some((code, said)))
}

/// The checks of an answer that have a mark: `[+]` for those that passed, `[-]` for those that did not.
fn marked<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> + Clone {
    text.lines().filter_map(move |line| line.strip_prefix(mark)?.split_whitespace().next())
}

/// `not ready (500): etcd, informer-sync`: the checks that a kube-apiserver marks with `[-]`.
fn unready(code: StatusCode, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let checks: Vec<_> = marked(&text, "[-]").take(8).collect();
    match checks.as_slice() {
        [] => format!("not ready ({})", code.as_u16()),
        checks => format!("not ready ({}): {}", code.as_u16(), checks.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_members_are_probed_less_often_each_unless_their_return_is_waited_for() {
        let configured = Duration::from_secs(2);
        assert_eq!([3, 50, 200].map(|members| pace(configured, members, true).as_millis()), [2000, 2000, 8000]);
        assert_eq!(pace(configured, 200, false), RECOVERY_PACE_MAX);
    }

    #[test]
    fn the_failing_checks_are_named() {
        let body = b"[+]ping ok\n[-]etcd failed: reason withheld\n[+]log ok\nreadyz check failed\n";
        assert_eq!(unready(StatusCode::INTERNAL_SERVER_ERROR, body), "not ready (500): etcd");
        assert_eq!(unready(StatusCode::BAD_GATEWAY, b"oops"), "not ready (502)");
    }
}
