//! Flags of `serve` about who logs in: a kube-apiserver's own, by their names.

use std::{path::PathBuf, time::Duration};

use clap::builder::NonEmptyStringValueParser;
use http::{HeaderName, header::InvalidHeaderName};

use crate::{
    app::FrontProxy,
    authn::{Sources, WebhookSource},
};
use kubefold_serving::front_proxy::ProxyHeaders;
use kubefold_wire::duration::{self, DurationError};

#[derive(Debug, clap::Args)]
pub(super) struct TokenFlags {
    /// Bearer tokens, as a kube-apiserver reads them: lines of token,user,uid,"group,group". Followed.
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// The OpenID Connect issuers whose tokens kubefold accepts: an AuthenticationConfiguration of a kube-apiserver. Followed.
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<PathBuf>,
    /// A kubeconfig of the webhook that is asked about bearer tokens that nobody else knows. Followed.
    #[arg(long, value_name = "FILE")]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// How long a yes of the webhook counts.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = holds)]
    authentication_token_webhook_cache_ttl: Duration,
    /// The audiences of which a token that the webhook knows must have one, separated by commas. Default: any.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    api_audiences: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct FrontProxyFlags {
    /// The authority (PEM) of a front proxy, which says in headers who sends a request. Followed.
    #[arg(long, value_name = "FILE", requires = "requestheader_allowed_names")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// The common names that a front proxy's certificate may have, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    requestheader_allowed_names: Vec<String>,
    /// The headers in which a front proxy names the user; the first one that is not empty counts.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', default_value = "X-Remote-User", value_parser = header)]
    requestheader_username_headers: Vec<HeaderName>,
    /// The headers in which it names groups.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', default_value = "X-Remote-Group", value_parser = header)]
    requestheader_group_headers: Vec<HeaderName>,
    /// The headers in which it names the user's UID.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', default_value = "X-Remote-Uid", value_parser = header)]
    requestheader_uid_headers: Vec<HeaderName>,
    /// What the names of headers begin with in which it says more of the user.
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',', default_value = "X-Remote-Extra-", value_parser = header)]
    requestheader_extra_headers_prefix: Vec<HeaderName>,
}

impl TokenFlags {
    pub(super) fn sources(self) -> Sources {
        let (holds, audiences) = (self.authentication_token_webhook_cache_ttl, self.api_audiences);
        let webhook = self.authentication_token_webhook_config_file;
        Sources {
            tokens: self.token_auth_file,
            configuration: self.authentication_config,
            webhook: webhook.map(|path| WebhookSource { path, holds, audiences }),
        }
    }
}

impl FrontProxyFlags {
    pub(super) fn front_proxy(self) -> Option<FrontProxy> {
        let headers = ProxyHeaders {
            user: self.requestheader_username_headers,
            groups: self.requestheader_group_headers,
            uid: self.requestheader_uid_headers,
            // A header's name is in lower case here.
            extra_prefixes: self.requestheader_extra_headers_prefix.iter().map(ToString::to_string).collect(),
        };
        Some(FrontProxy { ca: self.requestheader_client_ca_file?, names: self.requestheader_allowed_names, headers })
    }
}

fn header(text: &str) -> Result<HeaderName, InvalidHeaderName> {
    text.trim().parse()
}

/// As Go writes durations.
fn holds(text: &str) -> Result<Duration, DurationError> {
    Ok(Duration::from_nanos(u64::try_from(duration::parse(text)?).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        tokens: TokenFlags,
        #[command(flatten)]
        front_proxy: FrontProxyFlags,
    }

    fn of(flags: &[&str]) -> Result<Flags, clap::Error> {
        Flags::try_parse_from(["kubefold"].iter().chain(flags))
    }

    #[test]
    fn a_front_proxy_has_an_authority_and_names() {
        let ca = "--requestheader-client-ca-file=ca.crt";
        for refused in [
            &[ca][..],
            &[ca, "--requestheader-allowed-names="],
            &[ca, "--requestheader-allowed-names=a,"],
            &[ca, "--requestheader-allowed-names=a", "--requestheader-username-headers="],
            &[ca, "--requestheader-allowed-names=a", "--requestheader-extra-headers-prefix="],
            &[ca, "--requestheader-allowed-names=a", "--requestheader-group-headers=a b"],
        ] {
            assert!(of(refused).is_err(), "{refused:?}");
        }
        assert!(of(&["--requestheader-allowed-names=a"]).unwrap().front_proxy.front_proxy().is_none());
        let proxy =
            of(&[ca, "--requestheader-allowed-names=a,b", "--requestheader-username-headers=X-User,X-Remote-User"]);
        let proxy = proxy.unwrap().front_proxy.front_proxy().unwrap();
        assert_eq!(proxy.names, ["a", "b"]);
        assert_eq!(proxy.headers.user, ["x-user", "x-remote-user"]);
        assert_eq!(proxy.headers.groups, ["x-remote-group"]);
        assert_eq!(proxy.headers.extra_prefixes, ["x-remote-extra-"]);
    }

    #[test]
    fn a_webhook_is_remembered_for_two_minutes_unless_told_otherwise() {
        let file = "--authentication-token-webhook-config-file=w";
        let of = |more: &[&str]| of(&[&[file], more].concat()).unwrap().tokens.sources().webhook.unwrap();
        assert_eq!(of(&[]).holds, Duration::from_mins(2));
        let told = of(&["--authentication-token-webhook-cache-ttl=10s", "--api-audiences=a,b"]);
        assert_eq!((told.holds, told.audiences), (Duration::from_secs(10), vec!["a".to_owned(), "b".to_owned()]));
    }
}
