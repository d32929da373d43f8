//! Reads what a request is about, and picks who answers it.
//!
//! May name: `discovery`, `read`, `write`, `member`, and what is below them.

mod info;

use arc_swap::ArcSwap;
use http::{Request, Response, StatusCode};

use crate::{
    config::Config,
    wire::{
        body::Body,
        status::{Reason, Status},
    },
};

pub use info::{PathError, RequestInfo, View};

/// Picks who answers a request.
pub struct Router {
    config: ArcSwap<Config>,
}

impl Router {
    /// Routes for this fleet.
    pub fn new(config: Config) -> Self {
        Self { config: ArcSwap::from_pointee(config) }
    }

    /// Routes for another fleet from now on.
    pub fn apply(&self, config: Config) {
        self.config.store(config.into());
    }

    /// Answers a request that was let in; its `Caller` is in its extensions.
    pub async fn route<B: Send>(&self, request: Request<B>) -> Response<Body> {
        let target = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        match View::of(target) {
            Ok(View::Member { name, rest }) => self.member_view(&name, &rest, request),
            Ok(View::Fleet) => match RequestInfo::of(request.method(), request.uri().path(), request.uri().query()) {
                Ok(info) => self.fleet_view(&info, request),
                Err(error) => Status::bad_request(error.to_string()).into_response(),
            },
            Err(error) => Status::bad_request(error.to_string()).into_response(),
        }
    }

    /// The member's own API answers.
    fn member_view<B>(&self, name: &str, _rest: &str, _request: Request<B>) -> Response<Body> {
        let config = self.config.load();
        let known: Vec<_> = config.members.iter().map(|member| member.name.as_str()).collect();
        if !known.contains(&name) {
            let message = format!("there is no member {name:?}; the members are {}", known.join(", "));
            return Status::new(StatusCode::NOT_FOUND, Reason::NotFound, message).into_response();
        }
        Status::no_such_path().into_response()
    }

    /// Discovery, read and write answer.
    fn fleet_view<B>(&self, _info: &RequestInfo, _request: Request<B>) -> Response<Body> {
        Status::no_such_path().into_response()
    }
}
