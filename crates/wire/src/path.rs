//! Paths of resources at an API server, made of segments that are encoded one by one.

use std::{borrow::Cow, fmt};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::resource::Gvr;

/// What stays as it is in one segment (RFC 3986, section 3.3), as Go writes it: redirects of a kube-apiserver are compared
/// with such paths.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':')
    .remove(b'@')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'=');
/// How often servers on the way may decode a path.
const DECODED_MAX: usize = 3;

/// The path of a collection, an object or a subresource.
///
/// Whatever a segment is made of, it is one segment for the server that decodes the path once: it ends nowhere early, and
/// begins neither another one nor a query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ApiPath(String);

impl ApiPath {
    /// `/apis/apps/v1`, or `/api/v1` for the core group.
    pub fn of_group_version(group: &str, version: &str) -> Self {
        match group {
            "" => Self("/api".to_owned()).then(version),
            group => Self("/apis".to_owned()).then(group).then(version),
        }
    }

    /// The path of a whole collection: `/apis/apps/v1/deployments`.
    pub fn of(gvr: &Gvr) -> Self {
        Self::of_group_version(&gvr.group, &gvr.version).then(&gvr.resource)
    }

    /// The path of a collection in one namespace: `/api/v1/namespaces/default/pods`. Without a namespace, of the whole one.
    pub fn within(gvr: &Gvr, namespace: &str) -> Self {
        match namespace {
            "" => Self::of(gvr),
            namespace => {
                Self::of_group_version(&gvr.group, &gvr.version).then("namespaces").then(namespace).then(&gvr.resource)
            }
        }
    }

    /// The path of an object in a collection, or of a subresource of an object; an empty segment adds nothing.
    #[must_use]
    pub fn then(mut self, segment: &str) -> Self {
        match segment {
            "" => return self,
            // To whoever cleans paths these two are none, encoded or not. To a kube-apiserver they are names that nothing has.
            "." => self.0.push_str("/%2E"),
            ".." => self.0.push_str("/%2E%2E"),
            segment => {
                self.0.push('/');
                self.0.extend(utf8_percent_encode(segment, SEGMENT));
            }
        }
        self
    }

    /// The encoded path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ApiPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq<&str> for ApiPath {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

/// Says whether some server or proxy may read an encoded path as one of another folder: it decodes more than once, takes `\`
/// for `/`, or leaves out what follows a `;`.
pub fn may_lead_elsewhere(path: &str) -> bool {
    let mut text = Cow::Borrowed(path);
    for _ in 0..=DECODED_MAX {
        let leads = text.split(['/', '\\']).any(|segment| {
            let name = segment.split(';').next().unwrap_or_default();
            matches!(name, "." | "..")
        });
        if leads {
            return true;
        }
        let decoded = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if decoded == *text {
            return false;
        }
        text = Cow::Owned(decoded);
    }
    // Nobody encodes so often.
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::info::segments;

    #[test]
    fn collections_and_objects_have_the_paths_of_kubernetes() {
        let (pods, deployments) = (Gvr::new("", "v1", "pods"), Gvr::new("apps", "v1", "deployments"));
        assert_eq!(ApiPath::of(&pods), "/api/v1/pods");
        assert_eq!(ApiPath::within(&pods, "web"), "/api/v1/namespaces/web/pods");
        assert_eq!(ApiPath::within(&deployments, "").then("web").then("scale"), "/apis/apps/v1/deployments/web/scale");
        assert_eq!(ApiPath::of(&pods).then(""), "/api/v1/pods");
    }

    #[test]
    fn a_segment_ends_nowhere_early() {
        let secrets = Gvr::new("", "v1", "secrets");
        let path = ApiPath::within(&secrets, "team/configmaps?");
        assert_eq!(path, "/api/v1/namespaces/team%2Fconfigmaps%3F/secrets");
        let twice = ApiPath::within(&secrets, "team%2Fconfigmaps");
        assert_eq!(twice, "/api/v1/namespaces/team%252Fconfigmaps/secrets");
        assert!(!ApiPath::of(&secrets).then("..").as_str().contains(".."));
    }

    #[test]
    fn paths_that_somebody_cleans_are_told() {
        for path in [
            "/a/../b",
            "/a/./b",
            "/a/..",
            "/%2e%2E/b",
            "/..%2f..%2fx",
            "/a\\..\\b",
            "/a%5c..%5cb",
            "/a/..;x=1/b",
            "/%252e%252e/b",
            "/a%252f..%252fb",
            "/%2525252525252e/b",
        ] {
            assert!(may_lead_elsewhere(path), "{path}");
        }
        for path in ["/api/v1/namespaces/a.b/pods/..x", "/a/...", "/a%2Fb", "/a/b;c", "/api/v1/pods/web-0%40east"] {
            assert!(!may_lead_elsewhere(path), "{path}");
        }
    }

    proptest! {
        /// What a server that decodes once reads is what was put in.
        #[test]
        fn segments_round_trip(namespace in "[^\0]{1,12}", name in "[^\0]{1,12}") {
            let gvr = Gvr::new("apps", "v1", "deployments");
            let path = ApiPath::within(&gvr, &namespace).then(&name);
            let raw: Vec<&str> = path.as_str().split('/').skip(1).collect();
            prop_assert_eq!(raw.len(), 7, "{}", path);
            prop_assert!(!path.as_str().contains(['?', '#', ' ']));
            prop_assert!(path.as_str().parse::<http::Uri>().is_ok());
            let decoded = |raw: &str| percent_decode_str(raw).decode_utf8().unwrap().into_owned();
            prop_assert_eq!((decoded(raw[4]), decoded(raw[6])), (namespace.clone(), name.clone()));
            // kubefold's own reading refuses some, and reads no other path.
            if let Ok(read) = segments(path.as_str()) {
                prop_assert_eq!((&read[4], &read[6]), (&namespace, &name));
            }
        }
    }
}
