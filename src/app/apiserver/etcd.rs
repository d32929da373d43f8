//! Which etcd, as an operator writes it.

use std::{fmt, str::FromStr, time::Duration};

use http::uri::Authority;
use kubefold_wire::duration;

/// etcd's own.
const PORT: u16 = 2379;

/// `etcd://HOST:PORT[,HOST:PORT]/PREFIX?tls=true&compaction-interval=5m`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUrl {
    /// Such as `10.0.0.1:2379`.
    pub members: Vec<String>,
    /// Without slashes at its ends. `None`: as a kube-apiserver's.
    pub prefix: Option<String>,
    /// It names a user, perhaps with a password, and is refused. It is read all the same: who refuses a URL while it is read tells it.
    pub has_user: bool,
    /// Also without a certificate that is given.
    pub tls: bool,
    /// Zero: others compact. `None`: as a kube-apiserver.
    pub compaction_interval: Option<Duration>,
}

/// What is wrong with a URL of etcd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum EtcdUrlError {
    #[error("etcd has members with hosts; write etcd://HOST:2379 or etcd://HOST:2379,HOST:2379/PREFIX")]
    Members,
    #[error("a URL of etcd has no parameter {0:?}; there are tls=true and compaction-interval=5m")]
    Parameter(String),
}

impl FromStr for EtcdUrl {
    type Err = EtcdUrlError;

    fn from_str(text: &str) -> Result<Self, EtcdUrlError> {
        let rest = text.strip_prefix("etcd://").ok_or(EtcdUrlError::Members)?;
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (members, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (has_user, members) = members.rsplit_once('@').map_or((false, members), |(_, members)| (true, members));
        let prefix = Some(prefix.trim_matches('/').to_owned()).filter(|prefix| !prefix.is_empty());
        let members = members.split(',').map(member).collect::<Option<_>>().ok_or(EtcdUrlError::Members)?;
        let mut url = Self { members, prefix, has_user, tls: false, compaction_interval: None };
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let wrong = || EtcdUrlError::Parameter(parameter.to_owned());
            match parameter.split_once('=').ok_or_else(wrong)? {
                ("tls", "true") => url.tls = true,
                ("compaction-interval", interval) => {
                    let nanoseconds = duration::parse(interval).ok().and_then(|interval| interval.try_into().ok());
                    url.compaction_interval = Some(Duration::from_nanos(nanoseconds.ok_or_else(wrong)?));
                }
                _ => return Err(wrong()),
            }
        }
        Ok(url)
    }
}

/// Host and port.
fn member(text: &str) -> Option<String> {
    let authority: Authority = text.parse().ok()?;
    let (host, port) = (authority.host(), authority.port_u16());
    let is_whole = !host.is_empty() && (port.is_some() || authority.as_str() == host);
    is_whole.then(|| format!("{host}:{}", port.unwrap_or(PORT)))
}

impl fmt::Display for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}", self.members.join(","))?;
        self.prefix.iter().try_for_each(|prefix| write!(f, "/{prefix}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_etcd_says_which_members_and_which_keys() {
        let url = |members: &[&str]| EtcdUrl {
            members: members.iter().map(|member| (*member).to_owned()).collect(),
            prefix: None,
            has_user: false,
            tls: false,
            compaction_interval: None,
        };
        let prefix = Some("a/b".to_owned());
        for (text, read, told) in [
            ("etcd://h", Ok(url(&["h:2379"])), "etcd://h:2379"),
            ("etcd://h:1,[::1]:2/", Ok(url(&["h:1", "[::1]:2"])), "etcd://h:1,[::1]:2"),
            ("etcd://h/a/b/?tls=true", Ok(EtcdUrl { prefix, tls: true, ..url(&["h:2379"]) }), "etcd://h:2379/a/b"),
            (
                "etcd://h?compaction-interval=0",
                Ok(EtcdUrl { compaction_interval: Some(Duration::ZERO), ..url(&["h:2379"]) }),
                "etcd://h:2379",
            ),
            ("etcd:", Err(EtcdUrlError::Members), ""),
            ("etcd://", Err(EtcdUrlError::Members), ""),
            ("etcd://a,,b", Err(EtcdUrlError::Members), ""),
            ("etcd://h:x", Err(EtcdUrlError::Members), ""),
            ("etcd://u:p@h", Ok(EtcdUrl { has_user: true, ..url(&["h:2379"]) }), "etcd://h:2379"),
            ("etcd://h?tls=maybe", Err(EtcdUrlError::Parameter("tls=maybe".to_owned())), ""),
            (
                "etcd://h?compaction-interval=-5m",
                Err(EtcdUrlError::Parameter("compaction-interval=-5m".to_owned())),
                "",
            ),
        ] {
            let found = text.parse::<EtcdUrl>();
            assert_eq!(found, read, "{text}");
            assert!(found.is_err() || found.is_ok_and(|url| url.to_string() == told), "{text}");
        }
    }
}
