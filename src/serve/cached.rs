//! What a standby answers from its watch caches, once the holder has said that it may: docs/design/members.md#watch-caches.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Request, Response, header, request::Parts};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    read::{CachedReader, CachedWatch, ForCache},
    respond::GateError,
    serve::{
        handing::{Asked, Handing},
        holder::{Holder, HolderBody},
    },
    stores::{CacheFilling, Unreadable, WatchCache},
};
use kubefold_serving::replica::{self, CacheAnswer, CacheAsked};
use kubefold_wire::body::{Body, BodyError, empty};

/// The holder is asked again after this for what fills a watch cache; twice as long each time that it gives nothing of use.
const FILL_AGAIN: Duration = Duration::from_millis(200);
const FILL_AGAIN_MAX: Duration = Duration::from_secs(10);
/// And for this long whether a watch may go on.
const GOES_ON_WITHIN: Duration = Duration::from_mins(1);
const GOES_ON_EVERY: Duration = Duration::from_millis(200);
/// How often it is looked which watch caches nobody uses.
const SWEEP_EVERY: Duration = Duration::from_mins(1);
/// What an answer from the cache says of its body itself.
const OF_BODY: [header::HeaderName; 3] = [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING];

/// A request without a body, to be sent as often as it has to be.
struct Again(Parts);

impl Again {
    fn request(&self, cache: Option<CacheAsked>) -> Request<Body> {
        let mut request = Request::from_parts(self.0.clone(), empty());
        cache.into_iter().for_each(|asked| replica::ask_of_cache(request.headers_mut(), asked));
        request
    }
}

impl Handing {
    /// Answers a list or watch from the watch cache of its kind where that can be, and hands it on otherwise.
    pub(super) async fn read(
        self: &Arc<Self>,
        cached: &Arc<CachedReader>,
        read: ForCache,
        parts: Parts,
        asked: &Asked,
    ) -> Result<Response<Body>, GateError> {
        let again = Again(parts);
        let mut response = self.ask(again.request(Some(read.asks())), None, asked).await?;
        match replica::take_cache_answer(response.headers_mut()) {
            None => return Ok(response),
            Some(CacheAnswer::Eligible) => {
                self.begin(cached, &read);
                return Ok(response);
            }
            Some(answer) if read.is_watch() => {
                if let Some(CachedWatch { response: watch, members }) =
                    cached.watch(&read, &again.0.headers, answer).await
                {
                    let (head, control) = response.into_parts();
                    let (mut answer, events) = watch.into_parts();
                    with_head(&mut answer.headers, &head.headers);
                    let until = read.lasts().map(|lasts| Instant::now() + lasts);
                    let asking = Asking { handing: Arc::clone(self), again, asked: asked.clone(), members, until };
                    let following = Following { asking, events, control: Some(control), is_over: false };
                    self.counted_from_cache();
                    return Ok(Response::from_parts(answer, following.into_body()));
                }
            }
            Some(answer) => {
                if let Some(mut list) = cached.list(&read, &again.0.headers, answer).await {
                    with_head(list.headers_mut(), response.headers());
                    self.counted_from_cache();
                    return Ok(list);
                }
            }
        }
        self.ask(again.request(None), None, asked).await
    }

    /// Begins to fill the watch cache of a kind, if there is none.
    fn begin(&self, cached: &Arc<CachedReader>, read: &ForCache) {
        if let Some(cache) = cached.caches().begin(read.gvr()) {
            let filling = fill(Arc::clone(&self.holder), Arc::clone(cached), cache);
            self.tasks.spawn(filling);
        }
    }

    /// Lets go of watch caches that nobody uses. Cancel: safe.
    pub async fn sweep(self: Arc<Self>) {
        while let Some(cached) = &self.cached {
            sleep(SWEEP_EVERY).await;
            cached.caches().sweep();
        }
    }
}

/// The holder's word goes with the answer: warnings, and the id of the request in its audit log.
fn with_head(headers: &mut HeaderMap, holders: &HeaderMap) {
    for (name, value) in holders {
        if !OF_BODY.contains(name) && headers.get_all(name).iter().all(|known| known != value) {
            headers.append(name, value.clone());
        }
    }
}

/// Fills a watch cache until nobody uses it, from whoever is the holder.
async fn fill(holder: Arc<Holder>, cached: Arc<CachedReader>, cache: Arc<WatchCache>) {
    let filling = async {
        let mut again = FILL_AGAIN;
        loop {
            let filled = fill_once(&holder, &cached, &cache).await;
            tracing::debug!(kind = %cache.gvr().label(), ?filled, "a watch cache is not filled any more");
            let is_of_use = match filled {
                Ok(came) => came,
                // The next holder may be there at once.
                Err(error) => !error.is::<Unreadable>(),
            };
            again = if is_of_use { FILL_AGAIN } else { FILL_AGAIN_MAX.min(2 * again) };
            sleep(again).await;
        }
    };
    cache.until().run_until_cancelled(filling).await;
}

/// Says whether something came. Errors: the holder cannot be reached, or breaks off; [`Unreadable`].
async fn fill_once(holder: &Holder, cached: &CachedReader, cache: &WatchCache) -> Result<bool, BodyError> {
    let HolderBody { mut body, epoch } = holder.ask(&cache.asks().to_target()).await?;
    let (mut filling, mut came) = (CacheFilling::of(cache, cached.caches(), epoch), false);
    while let Some(frame) = body.frame().await {
        if let Ok(bytes) = frame?.into_data() {
            filling.push(&bytes)?;
            came = true;
        }
    }
    Ok(came)
}

/// A watch that is answered from a watch cache, for as long as the holder of the moment says that its caller may have it.
struct Following {
    asking: Asking,
    events: Body,
    /// From the holder: nothing while it may go on. `None`: that is not known, and nothing is told.
    control: Option<Body>,
    is_over: bool,
}

/// How it is asked whether it may go on.
struct Asking {
    handing: Arc<Handing>,
    again: Again,
    asked: Asked,
    members: Option<u64>,
    /// It lasts no longer.
    until: Option<Instant>,
}

/// What comes next of it.
enum Next {
    Told(Bytes),
    /// The holder ends it.
    Ended(Bytes),
    /// The holder has gone.
    Unknown,
    Over,
}

impl Following {
    fn into_body(self) -> Body {
        let chunks = stream::unfold(self, |mut following| async {
            let chunk = following.next().await?;
            Some((Ok::<_, BodyError>(Frame::data(chunk)), following))
        });
        StreamBody::new(Box::pin(chunks)).boxed_unsync()
    }

    async fn next(&mut self) -> Option<Bytes> {
        while !self.is_over {
            let Some(control) = &mut self.control else {
                let draining = self.asking.handing.draining.clone();
                let Some(control) = draining.run_until_cancelled(self.asking.goes_on()).await else {
                    // This process ends, or takes over and goes on behind what came before the holder went.
                    self.is_over = true;
                    return self.rest().await;
                };
                self.is_over = control.is_none();
                self.control = control;
                continue;
            };
            let next = tokio::select! {
                biased;
                said = data(control) => said.map_or(Next::Unknown, Next::Ended),
                told = data(&mut self.events) => told.map_or(Next::Over, Next::Told),
            };
            match next {
                Next::Told(chunk) => return Some(chunk),
                Next::Ended(chunk) => {
                    self.is_over = true;
                    return Some(chunk);
                }
                Next::Unknown => self.control = None,
                Next::Over => self.is_over = true,
            }
        }
        None
    }

    /// What it is told at its end.
    async fn rest(&mut self) -> Option<Bytes> {
        let mut rest = Vec::new();
        while let Some(chunk) = data(&mut self.events).await {
            rest.extend_from_slice(&chunk);
        }
        (!rest.is_empty()).then(|| rest.into())
    }
}

impl Asking {
    /// Asks whoever is the holder by now whether it may go on. `None`: it may not, or nobody says so.
    async fn goes_on(&self) -> Option<Body> {
        let end = Instant::now() + GOES_ON_WITHIN;
        let end = self.until.map_or(end, |until| until.min(end));
        let asking = async {
            loop {
                let request = self.again.request(Some(CacheAsked::GoesOn));
                if let Ok(mut response) = self.handing.ask(request, None, &self.asked).await {
                    let answer = replica::take_cache_answer(response.headers_mut());
                    let is_same = matches!(answer, Some(CacheAnswer::At { members, .. }) if members == self.members);
                    // Another answer is for its client's next watch.
                    if is_same || !response.status().is_server_error() {
                        return is_same.then(|| response.into_body());
                    }
                }
                sleep(GOES_ON_EVERY).await;
            }
        };
        timeout_at(end, asking).await.ok()?
    }
}

/// The next bytes of a body. `None`: it has ended, or is broken off.
async fn data(body: &mut Body) -> Option<Bytes> {
    loop {
        let frame = body.frame().await?.ok()?;
        match frame.into_data() {
            Ok(bytes) if !bytes.is_empty() => return Some(bytes),
            _ => {}
        }
    }
}
