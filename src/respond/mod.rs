//! Errors become HTTP here: one file per room, where each cause stands beside its reason and its code.
//!
//! A room returns the error of its file, and `?` makes of it the `Status` that a client sees, or the `Reply` of a write, which
//! has warnings, too. What a member refuses is no error here: its answer is the client's. Statuses that a decoder of
//! `kubefold_wire` gave pass as they are. May name: `config`, `observe`, `placement`, `search`, `store`, `upstream`.

mod access;
mod answer;
mod discovery;
mod own;
mod placement;
mod read;
mod review;
mod route;
mod search;
mod serve;
mod stores;
mod stream;
mod ui;
mod upstream;
mod view;
mod write;

#[cfg(test)]
mod tests;

pub use self::{
    access::AccessError,
    answer::{NotBuilt, PlainRefusal},
    discovery::DiscoveryError,
    own::OwnError,
    placement::Unplaced,
    read::ReadError,
    review::ReviewError,
    route::RouteError,
    search::SearchRefused,
    serve::GateError,
    stores::StoresError,
    stream::StreamError,
    ui::UiRefused,
    view::{ImpersonationRefused, ViewError},
    write::{InvalidField, ObjectRef, PartError, Settling, WriteError},
};
pub use crate::upstream::{Blame, Retry};

use kubefold_wire::status::Status;

/// An error that a client is answered with. Its text says what failed, where, and what to do.
pub trait ApiError: std::error::Error + Into<Status> {
    /// Says who has to act.
    fn blame(&self) -> Blame;

    /// Says when the same request may be sent again.
    fn retry(&self) -> Retry;
}
