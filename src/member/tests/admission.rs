//! Cold starts of many members at once.

use futures::future::join_all;

use super::*;
use crate::{
    member::{
        admission::Admission,
        reflector::{Reflector, ReflectorState},
    },
    store::{FleetStore, Identities, KindSpec, LogLimits, Naming, Revisions, Shared},
};
use kubefold_wire::resource::{Gvk, Gvr};

const MEMBERS: usize = 12;
const PAGES: usize = 3;
const ITEMS: usize = 20;

/// What the members saw of those who list them.
#[derive(Default)]
struct Seen {
    now: AtomicUsize,
    most: AtomicUsize,
    pages: AtomicUsize,
}

/// Lists in pages of twenty objects, and watches without events. Each page takes its time, in turns of the scheduler.
fn cluster(seen: &Arc<Seen>) -> Handler {
    let seen = Arc::clone(seen);
    handler(move |request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            if query.contains("watch=1") {
                let silence = futures::stream::pending::<Result<Frame<Bytes>, BodyError>>();
                return Ok(Response::new(StreamBody::new(silence).boxed_unsync()));
            }
            seen.most.fetch_max(seen.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            seen.now.fetch_sub(1, Ordering::SeqCst);
            seen.pages.fetch_add(1, Ordering::SeqCst);
            let after = query.split('&').find_map(|parameter| parameter.strip_prefix("continue="));
            let page: usize = after.map_or(0, |token| token.parse().unwrap());
            Ok(Response::new(full(page_of(page))))
        }
    })
}

fn page_of(page: usize) -> String {
    let items: Vec<String> = (page * ITEMS..(page + 1) * ITEMS)
        .map(|at| {
            format!(
                r#"{{"metadata":{{"name":"o-{at}","namespace":"default","uid":"u-{at}","resourceVersion":"7"}},"data":{{}}}}"#
            )
        })
        .collect();
    let (token, remaining) = match page + 1 {
        PAGES => (String::new(), String::new()),
        next => (next.to_string(), format!(r#","remainingItemCount":{}"#, (PAGES - next) * ITEMS)),
    };
    format!(
        r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"9","continue":"{token}"{remaining}}},"items":[{}]}}"#,
        items.join(",")
    )
}

struct Fleet {
    members: Vec<Arc<Member>>,
    store: Arc<FleetStore>,
    admission: Arc<Admission>,
    cancel: CancellationToken,
}

fn fleet(fakes: &[Fake], admission: Admission) -> Fleet {
    let common = Common { admission: Arc::new(admission), ..Common::default() };
    let config = |(at, fake): (usize, &Fake)| fake.config(&format!("m-{at}"));
    let configs: Vec<_> = fakes.iter().enumerate().map(config).collect();
    let shared = Shared {
        naming: Arc::new(Naming::new(&registry::fleet(configs.clone()))),
        identities: Arc::new(Identities::default()),
        revisions: Arc::new(Revisions::volatile()),
        log_limits: LogLimits::default(),
    };
    let spec = KindSpec::new(Gvr::new("", "v1", "configmaps"), Gvk::new("", "v1", "ConfigMap"), true);
    Fleet {
        members: configs.iter().map(|config| fake::member_among(config, &common)).collect(),
        store: Arc::new(FleetStore::new(Arc::new(spec), shared, |_| {})),
        admission: common.admission,
        cancel: CancellationToken::new(),
    }
}

impl Fleet {
    /// Follows every member, until cancelled.
    async fn follow(&self) {
        join_all(self.members.iter().map(|member| {
            let (member, store) = (Arc::clone(member), Arc::clone(&self.store));
            let state: Arc<ReflectorState> = Arc::default();
            Reflector { member, store, of_parts: false, mirror: None, turn: None, state, cancel: self.cancel.clone() }
                .run()
        }))
        .await;
    }

    async fn filled(&self) {
        let mut changes = self.store.subscribe();
        while !self.members.iter().all(|member| self.store.is_filled(member.name())) {
            changes.changed().await.unwrap();
        }
    }
}

async fn clusters(seen: &Arc<Seen>) -> Vec<Fake> {
    join_all((0..MEMBERS).map(|_| Fake::http2(cluster(seen)))).await
}

#[tokio::test]
async fn a_cold_start_of_many_members_stays_within_the_budget_and_ends() {
    let seen = Arc::default();
    let fakes = clusters(&seen).await;
    // Two first pages of five hundred objects of four KiB, by the first guess.
    let fleet = fleet(&fakes, Admission::new(4 << 20, 1));
    tokio::select! {
        () = fleet.follow() => unreachable!("nobody cancelled it"),
        () = fleet.filled() => {}
    }
    assert_eq!(seen.pages.load(Ordering::SeqCst), MEMBERS * PAGES);
    assert_eq!(fleet.store.snapshot().objects.len(), MEMBERS * PAGES * ITEMS);
    assert_eq!(fleet.admission.pages_bytes(), 0);
}

#[tokio::test]
async fn pages_larger_than_the_budget_come_one_by_one() {
    let seen = Arc::default();
    let fakes = clusters(&seen).await;
    let fleet = fleet(&fakes, Admission::new(1, 1));
    tokio::select! {
        () = fleet.follow() => unreachable!("nobody cancelled it"),
        () = fleet.filled() => {}
    }
    assert_eq!(seen.most.load(Ordering::SeqCst), 1, "one page after the other");
    assert_eq!(seen.pages.load(Ordering::SeqCst), MEMBERS * PAGES);
}

#[tokio::test]
async fn reflectors_that_end_give_back_what_they_had() {
    let fake = Fake::http2(silence()).await;
    let fleet = fleet(&[fake], Admission::new(1, 1));
    let room = fleet.admission.page(1).await;
    tokio::select! {
        () = fleet.follow() => unreachable!("it waits for its page"),
        () = async { drop(room); tokio::task::yield_now().await } => {}
    }
    assert_eq!(fleet.admission.pages_bytes(), 0);
    assert_eq!(fleet.admission.slice(|| 1).await, 1);
}

#[tokio::test]
async fn reflectors_of_many_kinds_ask_together_which_cluster_a_member_is() {
    let fake = Fake::http2(mirror()).await;
    let registry = registry::registry();
    registry.apply(&registry::fleet(vec![registry::eager(fake.config("east"))])).unwrap();
    let member = registry.get("east").unwrap();
    registry::until(&member, |health| *health == Health::Ready).await;
    let identified = || fake.state.identified.load(Ordering::Relaxed);
    let ask = async |continues_nothing| {
        let before = identified();
        let kinds = join_all((0..30).map(|_| member.share_identity(continues_nothing))).await;
        assert!(kinds.into_iter().all(|incarnation| incarnation.unwrap() == 1));
        identified() - before
    };
    assert_eq!((identified(), ask(true).await), (1, 0), "the probe has just asked");
    let asked = ask(false).await;
    assert!((1..=2).contains(&asked), "who goes on asks anew, together with the others: {asked} requests");
    fake.state.ready.store(503, Ordering::Relaxed);
    registry::until(&member, |health| matches!(health, Health::Degraded { .. })).await;
    let before = identified();
    fake.state.ready.store(200, Ordering::Relaxed);
    registry::until(&member, |health| *health == Health::Ready).await;
    assert_eq!((ask(true).await, identified() - before), (0, 1), "once for an outage");
}
