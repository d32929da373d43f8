//! Which API a request speaks to: the fleet's, in one of its modes, or one member's; and the fleet's label selectors.
//!
//! May name: no other room.

mod mode;
mod selector;

use kubefold_wire::info::{PathError, decode_segment, segments, without_tail};

pub use {
    mode::Mode,
    selector::{CLUSTER_LABEL, FleetSelector, ListOptions, list_options},
};

/// The whole fleet as one subresource, so that a host's kube-aggregator passes it on: a kubeconfig's server may end in it. The
/// name `proxy` tells a kube-apiserver that a request may take longer than 60 s.
///
/// Source: kubernetes/kubernetes `pkg/controlplane/apiserver/config.go`, `LongRunningFunc`.
pub const FLEET_PROXY: &str = "/apis/kubefold.io/v1alpha1/fleets/main/proxy";

/// What a request for [`FLEET_PROXY`] asks the fleet for, path and query; `None` if it is for something else.
pub fn through_proxy(path_and_query: &str) -> Option<String> {
    let rest = path_and_query.strip_prefix(FLEET_PROXY)?;
    match rest.as_bytes().first() {
        Some(b'/') => Some(rest.to_owned()),
        None | Some(b'?') => Some(format!("/{rest}")),
        Some(_) => None,
    }
}

/// Which API a request speaks to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// The merged API, at `/`, `/views/lenient/` and `/views/strict/`.
    Fleet(Mode),
    /// One member's own API, at `/clusters/<member>/`.
    Member {
        /// The member's name as asked for; it need not exist.
        name: String,
        /// Path and query for the member, byte for byte as the client sent them. Starts with `/`.
        rest: String,
    },
}

impl View {
    /// Splits a member's prefix off. `rest` keeps raw bytes, dots and encoded slashes included: the member alone reads it,
    /// with the caller's own rights, and a service proxy's paths may hold anything. So may they in the fleet view: what
    /// follows `proxy` is not looked at.
    ///
    /// Errors: a member's name that is no text; a path of the fleet view that is no path.
    pub fn of(path_and_query: &str) -> Result<Self, PathError> {
        let (mode, rest) = Mode::split(path_and_query);
        // Behind a view's prefix is the fleet alone: a member's own API has no members to leave out.
        let inner = path_and_query.strip_prefix("/clusters/");
        let Some(inner) = inner else {
            segments(without_tail(rest.split('?').next().unwrap_or_default()))?;
            return Ok(Self::Fleet(mode));
        };
        let end = inner.find(['/', '?']).unwrap_or(inner.len());
        let (name, rest) = inner.split_at(end);
        if name.is_empty() {
            return Ok(Self::Fleet(Mode::Whole));
        }
        let name = decode_segment(name)?;
        let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
        Ok(Self::Member { name, rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fleet_view_refuses_what_the_member_view_passes_on() {
        for (path, expected) in [
            ("/api/v1/namespaces/../secrets", PathError::Dots),
            ("/api/v1/./pods", PathError::Dots),
            ("/api/v1/%2e%2E/pods", PathError::Dots),
            ("/api/v1/namespaces/a%2Fb/pods", PathError::EncodedSlash),
            ("/api/v1/namespaces/a%5cb/pods", PathError::EncodedSlash),
            ("/api/v1/pods%", PathError::Encoding),
            ("/api/v1/pods%4", PathError::Encoding),
            ("/api/v1/pods%zz", PathError::Encoding),
            ("/api/v1/pods%ff", PathError::Encoding),
            ("/api/v1/pods%00", PathError::Encoding),
        ] {
            assert_eq!(View::of(path), Err(expected), "{path}");
            // The member alone reads what is sent to it.
            let member = View::Member { name: "east".into(), rest: path.into() };
            assert_eq!(View::of(&format!("/clusters/east{path}")), Ok(member), "{path}");
        }
    }

    #[test]
    fn the_proxy_is_the_fleet_whatever_follows() {
        for (rest, expected) in [
            ("", Some("/")),
            ("?a=b", Some("/?a=b")),
            ("/", Some("/")),
            ("/api/v1/pods?watch=1", Some("/api/v1/pods?watch=1")),
            ("/clusters/east//api/v1/a%40b", Some("/clusters/east//api/v1/a%40b")),
            ("x/api", None),
        ] {
            assert_eq!(through_proxy(&format!("{FLEET_PROXY}{rest}")).as_deref(), expected, "{rest}");
        }
        assert_eq!(through_proxy("/api/v1/pods"), None);
    }

    #[test]
    fn the_member_view_keeps_raw_bytes() {
        let member = |name: &str, rest: &str| View::Member { name: name.into(), rest: rest.into() };
        let cases = [
            ("/", View::Fleet(Mode::Whole)),
            ("/api/v1/pods", View::Fleet(Mode::Whole)),
            ("/clusters", View::Fleet(Mode::Whole)),
            ("/clusters/", View::Fleet(Mode::Whole)),
            ("/clustersx/east", View::Fleet(Mode::Whole)),
            ("/views/lenient/api/v1/pods", View::Fleet(Mode::Lenient)),
            ("/views/strict/clusters/east/api", View::Fleet(Mode::Strict)),
            ("/clusters/east", member("east", "/")),
            ("/clusters/east?a=b", member("east", "/?a=b")),
            ("/clusters/east/", member("east", "/")),
            ("/clusters/east//api/v1/", member("east", "//api/v1/")),
            ("/clusters/east/api/v1/pods/a%40b?x=%2F..&watch=1", member("east", "/api/v1/pods/a%40b?x=%2F..&watch=1")),
            ("/clusters/e%61st/api", member("east", "/api")),
        ];
        for (target, expected) in cases {
            assert_eq!(View::of(target).unwrap(), expected, "{target}");
        }
    }
}
