//! Lists and watches of a store, whether reflectors fill it or another process does.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Poll, ready},
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio_util::sync::CancellationToken;

use crate::{
    access::{Following, Renewal, Renewed},
    answer::{RequestContext, form::Form, table::Tables},
    read::{
        answer::{json_response, watch_response},
        blocks::Blocks,
        filter::Filter,
        list::{self, Shape},
        turns::Turns,
        watch::{self, Surroundings},
        watcher::{Stale, Telling, error_frame},
    },
    store::{Audience, Entry, FleetStore, RETAINED_FOR, Revision},
    view::{ListOptions, Mode},
};
use kubefold_serving::{
    audit::{self, Notes},
    delivery::DeliverWithin,
    encode::encode_watch,
    replica::{CacheAnswer, CacheAsked},
};
use kubefold_wire::{
    body::{Body, BodyError, empty},
    media::{Encoding, Media, Negotiated},
    options::{At, Match},
    status::Status,
};

/// What all of them share.
pub(super) struct Bodies {
    /// What long reads of all callers take.
    pub(super) turns: Arc<Turns>,
    /// What was compressed for lists.
    blocks: Blocks,
    telling: Telling,
}

/// What a list or watch is of, and what it is to be.
pub(super) struct Selected<'a> {
    pub(super) store: &'a Arc<FleetStore>,
    pub(super) options: &'a ListOptions,
    pub(super) filter: Filter,
    pub(super) tables: &'a Tables,
    /// As it fits the kind.
    pub(super) wanted: Negotiated,
    pub(super) asked: RequestContext<'a>,
    /// The latest revision given out, for any kind.
    pub(super) last: Revision,
}

impl Selected<'_> {
    fn is_socket(&self) -> bool {
        self.asked.headers.contains_key(header::UPGRADE)
    }

    /// How the events of a watch are written, and in which encoding. Without a form it ends at its first event.
    fn of_events(&self) -> (Option<Form>, Encoding) {
        let (spec, mut encoding) = (self.store.spec(), self.wanted.encoding);
        let form = Form::of_object(self.wanted.transform, spec, self.tables).ok();
        if encoding.media == Media::Protobuf && self.store.had_unfit() {
            // Such a watch would end at the first object that protobuf has no form for.
            self.store.count_unfit();
            encoding = encoding.without_protobuf();
        }
        let is_protobuf = encoding.media == Media::Protobuf && !self.is_socket();
        (form.map(|form| if is_protobuf { form.in_protobuf(spec) } else { form }), encoding)
    }

    /// Says whether a watch begins where it wants to.
    pub(super) fn watch_begins(&self) -> bool {
        match self.options.at {
            At::Revision(asked) if asked > self.last.0 => false,
            At::Revision(asked) if self.options.send_initial_events != Some(true) => {
                self.store.begins(Revision(asked), &self.filter.interest(self.store.spec()))
            }
            _ => true,
        }
    }

    /// What a standby may do with it that handed it on. `None`: it is to be answered here. A standby answers what is the same for
    /// everybody who may see the kind in every member, and what it has: the objects of now, and events.
    pub(super) fn of_cache(&self, asked: CacheAsked, watch: bool) -> Option<CacheAnswer> {
        let Self { store, options, filter, last, .. } = self;
        let sees_all = filter.limit.as_ref().is_none_or(|limit| limit.is_all);
        let is_for_all = sees_all && self.asked.mode == Mode::Whole && filter.echo.is_none();
        let is_of_now = options.token.is_none() && options.limit.is_none() && options.matching != Match::Exact;
        if !is_for_all || !is_of_now || Tables::are_wanted(self.wanted.transform) || self.is_socket() {
            return None;
        }
        match asked {
            CacheAsked::Eligible => Some(CacheAnswer::Eligible),
            // A refusal is given here.
            _ if !watch && matches!(options.at, At::Revision(asked) if asked > last.0) => None,
            CacheAsked::GoesOn if !watch => None,
            CacheAsked::Begins if watch && !self.watch_begins() => None,
            CacheAsked::Begins | CacheAsked::GoesOn => {
                let (head, members) = (store.head_at(*last).0, filter.audience().digest());
                Some(CacheAnswer::At { head, last: last.0, members })
            }
        }
    }
}

impl Bodies {
    /// As long as something may be told.
    pub(super) fn new(telling: Telling) -> Self {
        Self { turns: Arc::default(), blocks: Blocks::default(), telling }
    }

    /// Ends watches cleanly when kubefold goes.
    pub(super) fn drain(&self) -> &CancellationToken {
        &self.telling.drain
    }

    /// Answers a list.
    ///
    /// Errors: as a kube-apiserver.
    pub(super) async fn list(&self, read: Selected<'_>) -> Result<Response<Body>, Status> {
        let Selected { store, options, filter, tables, wanted, asked, last } = read;
        let (spec, mut encoding) = (store.spec(), wanted.encoding);
        let mut form = Form::of_list(wanted.transform, spec, tables)?;
        if encoding.media == Media::Protobuf {
            form = form.in_protobuf(spec);
        }
        if form.is_protobuf() {
            // What is not made in it has no form in it.
            encoding = encoding.without_protobuf();
        }
        let shape = self.shape(form, encoding);
        let mut pace = self.turns.pace(asked.caller);
        let mut listed = Box::pin(async {
            let response = list::list(store, options, filter, shape, last).await?;
            Ok::<_, Status>(asked.encoded(response, encoding).await)
        });
        let mut response = pace.run(listed.as_mut()).await?.map(|body| pace.body(body));
        // Its snapshot lives no longer than those of paged lists do.
        response.extensions_mut().insert(DeliverWithin(RETAINED_FOR));
        Ok(response)
    }

    /// How a list is written. YAML and indented JSON are compressed when they are made.
    fn shape(&self, form: Form, encoding: Encoding) -> Shape<'_> {
        let is_plain = form.is_protobuf() || (encoding.media == Media::Json && !encoding.pretty);
        Shape { form, blocks: is_plain.then_some(&self.blocks), gzip: encoding.gzip }
    }

    /// Answers a watch.
    pub(super) fn watch(&self, read: Selected<'_>, known: Option<Arc<Entry>>, stale: Stale) -> Response<Body> {
        let (is_socket, (form, encoding)) = (read.is_socket(), read.of_events());
        let Selected { store, options, filter, asked, last, .. } = read;
        let is_strict = asked.mode == Mode::Strict;
        let rights = asked.grants.asked.renewal().map(Renewal::follow);
        let (pace, telling) = (self.turns.pace(asked.caller), self.telling.clone());
        let around = Surroundings { last, known, stale, is_strict, rights, pace, telling, form };
        let response = watch::watch(store, options, filter, around);
        if is_socket { response } else { encode_watch(response, encoding) }
    }

    /// The answer to a standby that writes the body itself. To that of a watch it gives nothing but its end: the caller may not go on.
    pub(super) fn elsewhere(&self, read: &Selected<'_>, at: CacheAnswer, watch: bool) -> Response<Body> {
        let mut response = if watch {
            let (form, encoding) = read.of_events();
            let rights = read.asked.grants.asked.renewal().map(Renewal::follow);
            let form = form.unwrap_or_default();
            let media = form.media();
            let audience = read.filter.audience().clone();
            let followed =
                Followed { rights, audience, form, drain: self.telling.drain.clone(), notes: audit::notes() };
            encode_watch(watch_response(media, followed.into_body()), encoding)
        } else {
            json_response(empty())
        };
        response.extensions_mut().insert(at);
        response
    }
}

/// The rights of a watch that a standby answers.
struct Followed {
    rights: Option<Following>,
    audience: Audience,
    form: Form,
    drain: CancellationToken,
    /// Of its request's audit event.
    notes: Option<Notes>,
}

impl Followed {
    /// An event that ends the watch, once a right is withdrawn; nothing when kubefold goes: the next holder is asked.
    fn into_body(self) -> Body {
        let end =
            stream::once(self.ended()).filter_map(async |end| end.map(|end| Ok::<_, BodyError>(Frame::data(end))));
        StreamBody::new(Box::pin(end)).boxed_unsync()
    }

    async fn ended(self) -> Option<Bytes> {
        let Self { mut rights, audience, form, drain, notes } = self;
        let ended = poll_fn(|cx| {
            let Some(rights) = &mut rights else { return Poll::Pending };
            loop {
                if rights.has_news()
                    && let Renewed::Ended(error) = rights.look(&audience)
                {
                    return Poll::Ready(error);
                }
                ready!(rights.poll_news(cx));
            }
        });
        let error = drain.run_until_cancelled(ended).await?;
        if let Some(notes) = &notes {
            notes.annotate("kubefold.io/ended", error.to_string());
        }
        Some(form.line(error_frame(*error)).into())
    }
}
