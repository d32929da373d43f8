//! Calls of etcd: gRPC over hyper's client, which connects anew where a connection is lost and knows whether a request left it.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures::{channel::mpsc, stream};
use http::{Uri, uri::PathAndQuery};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as Hyper, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use prost::Message;
use rustls::ClientConfig;
use tokio::time::timeout;
use tonic::{Request, Streaming, body::Body, client::Grpc};
use tonic_prost::ProstCodec;

use crate::storage::etcd::{
    error::Failure,
    keys::Span,
    messages::{
        CompactionRequest, CompactionResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
        WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse, signed,
    },
};

/// A call without an answer fails. etcd itself gives up before. Source: etcd `server/config/config.go`, `ReqTimeout`.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Source: kubernetes/apiserver `pkg/storage/storagebackend/factory/etcd3.go`.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests for progress that wait on a watch. Further ones say nothing more.
const PROGRESS_MAX: usize = 1;

/// Calls the members of one etcd, one of them as long as it can be connected to.
pub(super) struct Client {
    members: Vec<Grpc<Hyper<HttpsConnector<HttpConnector>, Body>>>,
    /// Which of them is called.
    current: AtomicUsize,
}

impl Client {
    /// Of the members at these addresses, such as `http://10.0.0.1:2379`.
    pub(super) fn new(members: &[Uri], tls: ClientConfig) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_nodelay(true);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http2().wrap_connector(tcp);
        let hyper = Hyper::builder(TokioExecutor::new())
            .http2_only(true)
            .timer(TokioTimer::new())
            .http2_adaptive_window(true)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .http2_keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .http2_keep_alive_while_idle(true)
            .build(connector);
        let member = |uri: &Uri| Grpc::with_origin(hyper.clone(), uri.clone()).max_decoding_message_size(usize::MAX);
        Self { members: members.iter().map(member).collect(), current: AtomicUsize::new(0) }
    }

    pub(super) async fn range(&self, range: RangeRequest) -> Result<RangeResponse, Failure> {
        self.call("/etcdserverpb.KV/Range", range).await
    }

    pub(super) async fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, Failure> {
        self.call("/etcdserverpb.KV/Txn", txn).await
    }

    pub(super) async fn compact(&self, revision: u64) -> Result<(), Failure> {
        let compaction = CompactionRequest { revision: signed(revision) };
        let _done: CompactionResponse = self.call("/etcdserverpb.KV/Compact", compaction).await?;
        Ok(())
    }

    /// All changes of keys from a revision on.
    pub(super) async fn watch(&self, keys: Span, from: u64) -> Result<Watch, Failure> {
        let create = WatchCreateRequest {
            key: keys.from,
            range_end: keys.end,
            start_revision: signed(from),
            progress_notify: true,
        };
        let create = WatchRequest { create: Some(create), progress: None };
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        for _ in &self.members {
            let (at, mut member) = self.member();
            let (asked, requests) = mpsc::channel(PROGRESS_MAX);
            let requests = Request::new(futures::StreamExt::chain(stream::iter([create.clone()]), requests));
            let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
            let opened = timeout(CALL_TIMEOUT, member.streaming(requests, path.clone(), codec)).await;
            match opened.map(|opened| opened.map_err(|status| Failure::of(&status))) {
                Ok(Ok(answer)) => return Ok(Watch { told: answer.into_inner(), asked }),
                Ok(Err(Failure::NotSent(_))) if self.members.len() > 1 => self.leave(at),
                Ok(Err(failure)) => return Err(failure),
                Err(_) => {
                    self.leave(at);
                    return Err(no_answer());
                }
            }
        }
        Err(Failure::NotSent("no member can be connected to".to_owned()))
    }

    /// Calls a member; the next, as long as one cannot be connected to.
    async fn call<M, A>(&self, path: &'static str, message: M) -> Result<A, Failure>
    where
        M: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut failed = Failure::NotSent("it has no members".to_owned());
        for _ in &self.members {
            let (at, mut member) = self.member();
            let (request, codec) = (Request::new(message.clone()), ProstCodec::<M, A>::default());
            let answered = timeout(CALL_TIMEOUT, member.unary(request, PathAndQuery::from_static(path), codec)).await;
            let Ok(answered) = answered else {
                self.leave(at);
                return Err(no_answer());
            };
            failed = match answered {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => Failure::of(&status),
            };
            if matches!(failed, Failure::NotSent(_) | Failure::Lost(_)) {
                self.leave(at);
            }
            if !matches!(failed, Failure::NotSent(_)) {
                return Err(failed);
            }
        }
        Err(failed)
    }

    /// The member that is called, and which one it is.
    fn member(&self) -> (usize, Grpc<Hyper<HttpsConnector<HttpConnector>, Body>>) {
        let at = self.current.load(Ordering::Relaxed);
        (at, self.members[at % self.members.len()].clone())
    }

    /// Calls another one from now on, unless somebody has left this one already.
    fn leave(&self, at: usize) {
        let _left_already = self.current.compare_exchange(at, at.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn no_answer() -> Failure {
    Failure::Lost(format!("no answer within {} s", CALL_TIMEOUT.as_secs()))
}

/// An open watch.
pub(super) struct Watch {
    told: Streaming<WatchResponse>,
    asked: mpsc::Sender<WatchRequest>,
}

impl Watch {
    /// What it tells next.
    ///
    /// Errors: it is over. Cancel: safe.
    pub(super) async fn next(&mut self) -> Result<WatchResponse, Failure> {
        match self.told.message().await {
            Ok(Some(told)) => Ok(told),
            Ok(None) => Err(Failure::Lost("the watch has ended".to_owned())),
            Err(status) => Err(Failure::of(&status)),
        }
    }

    /// Asks how far it is.
    pub(super) fn ask_progress(&mut self) {
        let progress = WatchRequest { create: None, progress: Some(WatchProgressRequest {}) };
        // One that waits is answered for all.
        let _is_asked = self.asked.try_send(progress);
    }
}

/// One key, as it was at a revision; 0 is now.
pub(super) fn one(key: Bytes, revision: u64) -> RangeRequest {
    RangeRequest { key, revision: signed(revision), ..RangeRequest::default() }
}
