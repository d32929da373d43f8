//! Whom a client asks to be, by its `Impersonate-*` headers.
//!
//! Source: kubernetes/apiserver `pkg/endpoints/filters/impersonation.go`.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use crate::{authenticate::AUTHENTICATED, caller::Caller};

const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Each is asked for on its own: so many at most.
const PARTS_MAX: usize = 64;

/// What a client asks to be; whether it may is for each server to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impersonation {
    /// User name; never empty.
    pub user: String,
    /// Groups as they were named.
    pub groups: Vec<String>,
    /// UID.
    pub uid: Option<String>,
    /// By key, in lower case.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Headers that name nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpersonationError {
    /// Groups, a UID or more, of no user.
    #[error("the request has {0} and no Impersonate-User header")]
    NoUser(HeaderName),
    /// A header that a kube-apiserver does not know.
    #[error("the header {0} says nothing that is known; use Impersonate-User, -Group, -Uid or -Extra-<key>")]
    Unknown(HeaderName),
    /// A header twice, or no text.
    #[error("the header {0} is there twice, or holds what is no text")]
    Unfit(HeaderName),
    /// Too many groups and extras.
    #[error("the request names more than {PARTS_MAX} groups and extras to impersonate")]
    TooMany,
}

impl Impersonation {
    /// Reads the headers; `None` where there are none.
    pub fn by(headers: &HeaderMap) -> Result<Option<Self>, ImpersonationError> {
        let mut wanted = Self::default();
        let named: Vec<&HeaderName> = headers.keys().filter(|name| name.as_str().starts_with(PREFIX)).collect();
        let Some(first) = named.first() else { return Ok(None) };
        for name in &named {
            let unfit = || ImpersonationError::Unfit((*name).clone());
            let text = |value: &HeaderValue| value.to_str().map(str::to_owned).map_err(|_| unfit());
            let values: Vec<String> = headers.get_all(*name).iter().map(text).collect::<Result<_, _>>()?;
            let only = || match values.as_slice() {
                [one] => Ok(one.clone()),
                _ => Err(unfit()),
            };
            match name.as_str() {
                USER => wanted.user = only()?,
                UID => wanted.uid = Some(only()?).filter(|uid| !uid.is_empty()),
                GROUP => wanted.groups = values,
                other => {
                    let key = other.strip_prefix(EXTRA).filter(|key| !key.is_empty());
                    let key = key.ok_or_else(|| ImpersonationError::Unknown((*name).clone()))?;
                    let key = percent_decode_str(key).decode_utf8().map_err(|_| unfit())?.to_lowercase();
                    wanted.extra.entry(key).or_default().extend(values);
                }
            }
        }
        if wanted.user.is_empty() {
            return Err(ImpersonationError::NoUser((*first).clone()));
        }
        let parts = wanted.groups.len() + wanted.extra.values().map(Vec::len).sum::<usize>();
        if parts > PARTS_MAX { Err(ImpersonationError::TooMany) } else { Ok(Some(wanted)) }
    }

    /// Namespace and name, if the user is a service account.
    pub fn service_account(&self) -> Option<(&str, &str)> {
        let (namespace, name) = self.user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
    }

    /// Who it is then, with the groups that a server adds: somebody where whoever asks is somebody.
    pub fn caller(&self, by: &Caller) -> Caller {
        let mut groups = self.groups.clone();
        if let (true, Some((namespace, _))) = (groups.is_empty(), self.service_account()) {
            groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        }
        let known = if self.user == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
        if !groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED) {
            groups.push(known.to_owned());
        }
        let (user, uid, extra, domain) = (self.user.clone(), self.uid.clone(), self.extra.clone(), by.domain.clone());
        Caller { user, groups, uid, extra, domain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(pairs: &[(&'static str, &'static str)]) -> Result<Option<Impersonation>, ImpersonationError> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        Impersonation::by(&headers)
    }

    #[test]
    fn a_user_comes_with_groups_uid_and_more() {
        assert_eq!(by(&[("accept", "x")]), Ok(None));
        let jane = by(&[
            ("impersonate-user", "jane"),
            ("impersonate-group", "dev"),
            ("impersonate-group", "ops"),
            ("impersonate-uid", "u-1"),
            ("impersonate-extra-example.com%2froles", "a"),
            ("impersonate-extra-example.com%2froles", "b"),
        ]);
        let caller = jane.unwrap().unwrap().caller(&Caller::default());
        assert_eq!((caller.user.as_str(), caller.uid.as_deref()), ("jane", Some("u-1")));
        assert_eq!(caller.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(caller.extra["example.com/roles"], ["a", "b"]);
        let robot = by(&[("impersonate-user", "system:serviceaccount:ci:robot")]).unwrap().unwrap();
        assert_eq!(robot.service_account(), Some(("ci", "robot")));
        let groups = ["system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"];
        assert_eq!(robot.caller(&Caller::default()).groups, groups);
        let nobody = by(&[("impersonate-user", "system:anonymous")]).unwrap().unwrap();
        assert_eq!(nobody.caller(&Caller::default()).groups, ["system:unauthenticated"]);
        let of_east = Caller { domain: Some("east".into()), ..Caller::default() };
        assert_eq!(nobody.caller(&of_east).domain.as_deref(), Some("east"), "nobody leaves a server's domain so");
    }

    #[test]
    fn what_names_nobody_is_refused() {
        for name in ["impersonate-group", "impersonate-uid", "impersonate-extra-a"] {
            assert!(matches!(by(&[(name, "x")]), Err(ImpersonationError::NoUser(_))), "{name}");
        }
        assert!(matches!(by(&[("impersonate-user", "")]), Err(ImpersonationError::NoUser(_))));
        let unknown = by(&[("impersonate-user", "a"), ("impersonate-anything", "x")]);
        assert!(matches!(unknown, Err(ImpersonationError::Unknown(_))));
        let twice = by(&[("impersonate-user", "a"), ("impersonate-user", "b")]);
        assert!(matches!(twice, Err(ImpersonationError::Unfit(_))));
        let many: Vec<_> =
            std::iter::repeat_n(("impersonate-group", "g"), 65).chain([("impersonate-user", "a")]).collect();
        assert_eq!(by(&many), Err(ImpersonationError::TooMany));
    }
}
