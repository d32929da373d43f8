//! The fleet view, streamed: logs, exec, attach, port-forward, applications behind `proxy`, and what else below an object
//! speaks another protocol.
//!
//! All of them are one member's, and pass as its member view would pass them ([`crate::member::view`]): only the name in the path is
//! another, and in what the member refuses.
//!
//! May name: `answer`, `stores`, `member` and what is below them; not its peers.

mod holder;
mod identifier;
mod pass;
mod refusal;

pub use {
    holder::{StreamAsked, answer},
    pass::is_stream,
};
