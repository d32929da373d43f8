//! The page of `kubefold ui`: what its local server does not answer, or cannot.

use std::net::SocketAddr;

use http::StatusCode;

use crate::respond::{ApiError, Blame, Retry};
use kubefold_wire::status::{Reason, Status};

/// Why the local server of `kubefold ui` gives no answer.
#[derive(Debug, thiserror::Error)]
pub enum UiRefused {
    /// A `Host` that does not name the listener: a name of somebody else leads here (DNS rebinding).
    #[error("this is kubefold ui at {listens}: open it by its address, and not by another name")]
    Host {
        /// Where it listens.
        listens: SocketAddr,
    },
    /// A browser asks on behalf of another page.
    #[error("another page asked for this; kubefold ui answers its own page alone")]
    OtherPage,
    /// No token, or an old one.
    #[error("kubefold ui does not know you: open the address that it printed in the terminal, which has a token")]
    NoToken,
    /// A method other than GET, or for what is no order.
    #[error("kubefold ui reads, and orders drain and rebalance; use kubectl for other changes")]
    Method,
    /// An order that the page does not make.
    #[error("kubefold ui does not take this order: {0}")]
    Order(String),
    /// A change of protocol.
    #[error("kubefold ui opens no tunnels; use kubectl for exec, attach and port-forward")]
    Upgrade,
    /// A subresource that does more than to read.
    #[error("kubefold ui does not ask for {0}; use kubectl")]
    Subresource(String),
    /// A path that may mean another one behind a proxy.
    #[error("the path is ambiguous: write it without dot segments and without encoded separators")]
    Path,
    /// A path of nothing.
    #[error("nothing is here")]
    NoSuchPath,
    /// Nobody answered.
    #[error("cannot reach kubefold at {url}: {cause}")]
    Unreached {
        /// Of the kubeconfig.
        url: String,
        /// What failed, and what to do.
        cause: String,
    },
    /// Nobody answered an order.
    #[error(
        "kubefold at {url} did not answer the order ({cause}); it may have been taken, so look at what moves first"
    )]
    OrderLost {
        /// Of the kubeconfig.
        url: String,
        /// What failed.
        cause: String,
    },
    /// No answer in time.
    #[error("kubefold at {url} did not answer within {seconds} s")]
    Late {
        /// Of the kubeconfig.
        url: String,
        /// Units: seconds.
        seconds: u64,
    },
}

impl ApiError for UiRefused {
    fn blame(&self) -> Blame {
        match self {
            Self::Unreached { .. } | Self::Late { .. } | Self::OrderLost { .. } => Blame::Kubefold,
            _ => Blame::Downstream,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            // Of reads alone.
            Self::Unreached { .. } | Self::Late { .. } => Retry::Always,
            _ => Retry::Never,
        }
    }
}

impl From<UiRefused> for Status {
    fn from(error: UiRefused) -> Self {
        let message = error.to_string();
        match error {
            UiRefused::Host { .. } | UiRefused::OtherPage | UiRefused::Upgrade | UiRefused::Subresource(_) => {
                Self::forbidden(message)
            }
            UiRefused::NoToken => Self::new(StatusCode::UNAUTHORIZED, Reason::Unauthorized, message),
            UiRefused::Method => Self::method_not_allowed(message),
            UiRefused::Path | UiRefused::Order(_) => Self::bad_request(message),
            UiRefused::NoSuchPath => Self::new(StatusCode::NOT_FOUND, Reason::NotFound, message),
            UiRefused::Unreached { .. } | UiRefused::OrderLost { .. } => {
                Self::new(StatusCode::BAD_GATEWAY, Reason::InternalError, message)
            }
            UiRefused::Late { .. } => Self::new(StatusCode::GATEWAY_TIMEOUT, Reason::Timeout, message),
        }
    }
}
