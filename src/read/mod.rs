//! The fleet view, read: get, list and watch.
//!
//! May name: `wire`, `config`, `observe`, `placement`, `store`, `member`.

mod answer;
mod filter;
mod fresh;
mod get;
mod list;
mod options;
mod resolve;
mod watch;

use std::sync::Arc;

use http::{HeaderMap, Response};
use tokio_util::sync::CancellationToken;

use crate::{
    member::stores::{Ready, Stores},
    read::{
        filter::Filter,
        fresh::{Need, prove, scope_of},
        options::Options,
        resolve::{Named, resolve},
        watch::Surroundings,
    },
    wire::{
        accept::{accept_header, negotiate, not_acceptable},
        body::Body,
        caller::Caller,
        mode::Mode,
        resource::Gvr,
        status::Status,
        warning::Warnings,
    },
};

pub use {fresh::Freshness, options::query_value};

/// What a read is about.
#[derive(Clone, Debug)]
pub struct Target {
    /// The resource.
    pub gvr: Gvr,
    /// Empty for all namespaces, and for cluster-scoped kinds.
    pub namespace: String,
    /// The name, of one object.
    pub name: String,
}

/// One read as it came.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// The query, without its question mark.
    pub query: &'a str,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// Through which view of the fleet.
    pub mode: Mode,
}

/// Answers reads.
pub struct Reader {
    stores: Arc<Stores>,
    freshness: Freshness,
    /// Ends watches cleanly when kubefold goes.
    drain: CancellationToken,
}

impl Reader {
    /// Makes a reader.
    pub fn new(stores: Arc<Stores>, freshness: Freshness, drain: CancellationToken) -> Self {
        Self { stores, freshness, drain }
    }

    /// Answers a get.
    ///
    /// Errors: as a kube-apiserver, and 503 while a member that decides is unknown.
    pub async fn get(&self, target: &Target, asked: Asked<'_>) -> Result<Response<Body>, Status> {
        acceptable(asked.headers)?;
        get::get(&self.stores, target, asked, self.freshness).await
    }

    /// Says whether a name is one of this kind's.
    ///
    /// Errors: 404 or 409 as a get answers.
    pub fn exists(&self, ready: &Ready, target: &Target) -> Result<(), Status> {
        match resolve(&self.stores.shared().naming, ready.store(), target)? {
            Named::Visible(_) | Named::Shorthand(_) => Ok(()),
            Named::Nothing => Err(resolve::not_found(ready.store(), target)),
        }
    }

    /// Answers a list or a watch.
    ///
    /// Errors: as a kube-apiserver, and 503 while a member is unknown.
    pub async fn list_or_watch(
        &self,
        target: &Target,
        watch: bool,
        asked: Asked<'_>,
    ) -> Result<Response<Body>, Status> {
        acceptable(asked.headers)?;
        let naming = Arc::clone(&self.stores.shared().naming);
        let mut options = Options::parse(asked.query, watch, |name| naming.is_member(name))?;
        // `/api/v1/watch/.../<name>`: the path says what a field selector would.
        if !target.name.is_empty() && options.fields.name().is_none() {
            options.fields = options.fields.with_name(&target.name);
        }
        let split = options.fields.name().and_then(|name| naming.split(name));
        let only = split.map(|(_, member)| member.clone());
        let mut ready = self.stores.ready_in(&target.gvr, only.as_ref(), asked.mode).await?;
        let own = split.map(|(own, _)| own).or_else(|| options.fields.name());
        let need = Need::of_options(&options, asked.headers, self.freshness);
        if need != Need::Nothing {
            let due = (need, scope_of(target, &options, own));
            Box::pin(prove(&self.stores, &mut ready, due, only.as_ref(), asked)).await?;
        }
        let filter = self.filter(target, &options, &ready)?;
        let last = self.stores.shared().revisions.last();
        let mut response = if watch {
            let is_strict = asked.mode == Mode::Strict;
            let around = Surroundings { last, stale: self.stale(&ready), is_strict, drain: self.drain.clone() };
            watch::watch(ready.store(), &options, filter, around)
        } else {
            list::list(ready.store(), &options, filter, last)?
        };
        let mut warnings = Warnings::default();
        ready.warnings.iter().for_each(|warning| warnings.add(warning));
        warnings.write_to(response.headers_mut());
        Ok(response)
    }

    /// A list or watch of one name selects and names the same object for its whole life.
    fn filter(&self, target: &Target, options: &Options, ready: &Ready) -> Result<Filter, Status> {
        let mut filter = Filter {
            namespace: target.namespace.clone(),
            labels: options.labels.clone(),
            fields: options.fields.clone(),
            echo: None,
        };
        let Some(name) = options.fields.name().map(str::to_owned) else { return Ok(filter) };
        let namespace = options.fields.namespace().unwrap_or(&target.namespace);
        let asked = Target { namespace: namespace.to_owned(), name: name.clone(), ..target.clone() };
        if let Named::Shorthand(entry) = resolve(&self.stores.shared().naming, ready.store(), &asked)? {
            filter.fields = filter.fields.with_name(entry.name());
            filter.echo = Some(name);
        }
        Ok(filter)
    }

    fn stale(&self, ready: &Ready) -> watch::Stale {
        let (stores, running) = (Arc::clone(&self.stores), Arc::clone(&ready.running));
        Box::new(move || stores.stale(&running))
    }
}

fn acceptable(headers: &HeaderMap) -> Result<(), Status> {
    negotiate(accept_header(headers), &[]).map(|_| ()).ok_or_else(not_acceptable)
}
