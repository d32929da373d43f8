//! Callers whom a front proxy logged in, and names in headers.
//!
//! Source: kubernetes/apiserver `pkg/authentication/request/headerrequest/requestheader.go`.

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use crate::{authenticate::AUTHENTICATED, caller::Caller};

/// The headers in which a front proxy names callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyHeaders {
    /// The user: the first of them that is not empty counts.
    pub user: Vec<HeaderName>,
    /// Groups: those of all of them.
    pub groups: Vec<HeaderName>,
    /// The UID: as for the user.
    pub uid: Vec<HeaderName>,
    /// What the names of headers begin with that say more; in lower case.
    pub extra_prefixes: Vec<String>,
}

impl ProxyHeaders {
    /// Whom they name; `None` if nobody. What of that the front proxy may say, is its own.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let user = first(headers, &self.user)?;
        let mut groups = Vec::new();
        for value in self.groups.iter().flat_map(|name| headers.get_all(name)).filter(|value| !value.is_empty()) {
            groups.push(text(value)?);
        }
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        let mut caller = Caller { user, groups, uid: first(headers, &self.uid), ..Caller::default() };
        for (prefix, name) in
            self.extra_prefixes.iter().flat_map(|prefix| headers.keys().map(move |name| (prefix, name)))
        {
            let Some(key) = name.as_str().strip_prefix(prefix.as_str()) else { continue };
            let key = unescaped(key);
            for value in headers.get_all(name) {
                let value = text(value)?;
                caller.extra.entry(key.clone()).or_default().push(value);
            }
        }
        Some(caller)
    }

    /// Removes them.
    pub(crate) fn strip(&self, headers: &mut HeaderMap) {
        let begins = |name: &&HeaderName| self.extra_prefixes.iter().any(|prefix| name.as_str().starts_with(prefix));
        let extra: Vec<HeaderName> = headers.keys().filter(begins).cloned().collect();
        for name in extra.iter().chain(&self.user).chain(&self.groups).chain(&self.uid) {
            headers.remove(name);
        }
    }
}

/// Of the first header that has a value; of several values of one header the first counts.
fn first(headers: &HeaderMap, names: &[HeaderName]) -> Option<String> {
    text(names.iter().filter_map(|name| headers.get(name)).find(|value| !value.is_empty())?)
}

/// As Go's `url.PathUnescape`; a key with a broken escape stays as it is.
fn unescaped(key: &str) -> String {
    let is_escape = |rest: &str| rest.as_bytes().get(..2).is_some_and(|pair| pair.iter().all(u8::is_ascii_hexdigit));
    let is_sound = key.split('%').skip(1).all(is_escape);
    let decoded = percent_decode_str(key).decode_utf8().ok().filter(|_| is_sound);
    decoded.map_or_else(|| key.to_owned(), |key| key.into_owned())
}

/// Any bytes may stand in a header; those that are no text name nobody.
fn text(value: &HeaderValue) -> Option<String> {
    std::str::from_utf8(value.as_bytes()).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::peer::FrontProxy;

    fn rules() -> ProxyHeaders {
        let names = |names: &[&'static str]| names.iter().map(|name| HeaderName::from_static(name)).collect();
        ProxyHeaders {
            user: names(&["x-remote-user", "x-user"]),
            groups: names(&["x-remote-group", "x-group"]),
            uid: names(&["x-remote-uid"]),
            extra_prefixes: vec!["x-remote-extra-".into(), "x-more-".into()],
        }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn caller(pairs: &[(&'static str, &'static str)]) -> Option<Caller> {
        named_by(None, pairs)
    }

    fn named_by(cluster: Option<&str>, pairs: &[(&'static str, &'static str)]) -> Option<Caller> {
        let (name, headers_of, cluster) = ("front-proxy".to_owned(), Arc::new(rules()), cluster.map(Arc::from));
        FrontProxy { name, not_after_s: 0, headers: headers_of, cluster }.caller(&headers(pairs))
    }

    /// The cases of Kubernetes' `requestheader_test.go`.
    #[test]
    fn headers_are_read_as_a_kube_apiserver_reads_them() {
        assert_eq!(caller(&[]), None);
        assert_eq!(caller(&[("x-remote-user", ""), ("x-remote-group", "a")]), None);
        let second = caller(&[("x-remote-user", ""), ("x-user", "jane")]).unwrap();
        assert_eq!(
            (second.user.as_str(), second.groups.as_slice()),
            ("jane", &["system:authenticated".to_owned()][..])
        );
        let one = caller(&[("x-user", "second"), ("x-remote-user", "first"), ("x-remote-user", "other")]).unwrap();
        assert_eq!(one.user, "first");
        let jane = caller(&[
            ("x-remote-user", "jane"),
            ("x-remote-group", "one"),
            ("x-remote-group", ""),
            ("x-remote-group", "two"),
            ("x-group", "three"),
            ("x-remote-uid", "u-1"),
            ("x-remote-extra-key1", "alfa"),
            ("x-remote-extra-key1", "bravo"),
            ("x-more-key1", "charlie"),
            ("x-remote-extra-example.com%2froles%2Fa", "x"),
            ("x-remote-extra-bad%zz%41", "kept"),
            ("x-remote-extra-authentication.kubernetes.io%2fcredential-id", "JTI=1"),
        ]);
        let jane = jane.unwrap();
        assert_eq!(jane.groups, ["one", "two", "three", "system:authenticated"]);
        assert_eq!((jane.uid.as_deref(), jane.domain), (Some("u-1"), None));
        let extra: Vec<_> = jane.extra.iter().map(|(key, values)| (key.as_str(), values.join(","))).collect();
        let wanted = [("bad%zz%41", "kept"), ("example.com/roles/a", "x"), ("key1", "alfa,bravo,charlie")];
        assert_eq!(extra, wanted.map(|(key, values)| (key, values.to_owned())));
    }

    /// The attack: a proxy before another server makes a node, a controller or a viewer of this one.
    #[test]
    fn a_front_proxy_names_people_only() {
        assert_eq!(caller(&[("x-remote-user", "system:node:n1"), ("x-remote-group", "system:nodes")]), None);
        let groups = ["system:nodes", "kubefold:admins", "system:masters", "dev", "system:authenticated"];
        let pairs: Vec<_> = groups.iter().map(|group| ("x-remote-group", *group)).collect();
        let jane = caller(&[&[("x-remote-user", "jane")], pairs.as_slice()].concat()).unwrap();
        assert_eq!(jane.groups, ["system:masters", "dev", "system:authenticated"]);
    }

    /// Its own API server knows who is a component of a cluster, and says so for that cluster alone.
    #[test]
    fn a_clusters_api_server_names_its_components_in_that_cluster() {
        let masters = ("x-remote-group", "system:masters");
        let aggregator = [("x-remote-user", "system:kube-aggregator"), masters, ("x-remote-group", "kubefold:admins")];
        let aggregator = named_by(Some("host"), &aggregator).unwrap();
        assert_eq!(aggregator.groups, ["system:masters", "system:authenticated"]);
        assert!(!aggregator.is_in("system:masters") && aggregator.domain.as_deref() == Some("host"));
        let jane = [("x-remote-user", "jane"), masters, ("x-remote-group", "system:nodes")];
        let jane = named_by(Some("host"), &jane).unwrap();
        assert_eq!(jane.groups, ["system:masters", "system:authenticated"]);
        assert!(jane.is_in("system:masters") && jane.domain.is_none());
        assert_eq!(named_by(Some("host"), &[("x-remote-user", "kubefold:mover")]), None);
    }

    #[test]
    fn what_is_no_text_names_nobody() {
        let mut unfit = headers(&[("x-remote-user", "jane")]);
        unfit.append("x-remote-group", HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(rules().caller(&unfit), None);
    }

    #[test]
    fn nothing_of_them_is_left() {
        let pairs = [
            ("x-user", "a"),
            ("x-group", "a"),
            ("x-more-key", "a"),
            ("x-remote-uid", "a"),
            ("x-remote-extra-a", "a"),
            ("accept", "a"),
        ];
        let mut sent = headers(&pairs);
        rules().strip(&mut sent);
        assert_eq!(sent.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
