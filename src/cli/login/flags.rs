//! What `kubefold login` is told: the issuer, the client, and how the person logs in.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::anyhow;

use crate::cli::https_url;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Login {
    /// The URL of the OpenID Connect issuer, exactly as kubefold serve knows it.
    #[arg(long, value_name = "URL", value_parser = issuer_url)]
    pub(super) issuer_url: String,
    /// The id that the issuer knows this program by; it is the audience of the tokens.
    #[arg(long, value_name = "ID")]
    pub(super) client_id: String,
    /// A file with the client's secret, where the issuer gave it one.
    #[arg(long, value_name = "FILE")]
    pub(super) client_secret_file: Option<PathBuf>,
    /// One more scope to ask for, such as groups; may be repeated. openid is asked for always, offline_access where the issuer has it.
    #[arg(long, value_name = "SCOPE")]
    pub(super) scope: Vec<String>,
    /// The authority that signed the issuer's certificate (PEM). Default: those that this machine trusts.
    #[arg(long, value_name = "FILE", conflicts_with = "certificate_authority_data")]
    pub(super) certificate_authority: Option<PathBuf>,
    /// The same as base64, as a kubeconfig has it.
    #[arg(long, value_name = "BASE64")]
    pub(super) certificate_authority_data: Option<String>,
    /// How to log in: loopback opens a browser on this machine; device shows a code to type in on any other one.
    #[arg(long, value_enum, default_value_t = Flow::Loopback)]
    pub(super) flow: Flow,
    /// Where the browser brings the answer, a loopback address or localhost; if repeated, the first that is free.
    #[arg(long, value_name = "HOST:PORT", value_parser = Listen::parse, default_value = "127.0.0.1:0")]
    pub(super) listen: Vec<Listen>,
    /// One more parameter of the login, such as prompt=consent; may be repeated. See docs/security/README.md.
    #[arg(long, value_name = "NAME=VALUE", value_parser = Parameter::parse)]
    pub(super) auth_param: Vec<Parameter>,
    /// Open no browser: only say where to log in.
    #[arg(long)]
    pub(super) no_browser: bool,
}

/// How a person logs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli) enum Flow {
    /// The authorization code flow with PKCE over a loopback redirect (RFC 8252, RFC 7636).
    Loopback,
    /// Device authorization (RFC 8628).
    Device,
}

/// Where the browser brings the answer, and the name of that place in the redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Listen {
    pub(super) host: String,
    pub(super) address: SocketAddr,
}

#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum ListenError {
    #[error("write it as 127.0.0.1:8000, or 127.0.0.1:0 for any free port")]
    Form,
    #[error("the answer of the login must reach no other machine: use localhost or a loopback address")]
    NotLoopback,
}

impl Listen {
    pub(in crate::cli) fn parse(text: &str) -> Result<Self, ListenError> {
        let (host, port) = text.rsplit_once(':').ok_or(ListenError::Form)?;
        let port = port.parse().map_err(|_| ListenError::Form)?;
        let ip = match host {
            // Some issuers let only this name pass; browsers try both families.
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            _ => host.trim_matches(['[', ']']).parse().map_err(|_| ListenError::Form)?,
        };
        if !ip.is_loopback() {
            return Err(ListenError::NotLoopback);
        }
        Ok(Self { host: host.to_owned(), address: SocketAddr::new(ip, port) })
    }
}

/// A parameter of the login that the issuer wants beside the usual ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Parameter {
    pub(super) name: String,
    pub(super) value: String,
}

#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum ParameterError {
    #[error("write it as name=value, such as prompt=consent")]
    Form,
    #[error("{0} is set by kubefold login itself")]
    Own(String),
}

impl Parameter {
    /// What the loopback flow sets, and what would send the answer elsewhere.
    const OWN: [&str; 9] = [
        "response_type",
        "client_id",
        "redirect_uri",
        "scope",
        "state",
        "nonce",
        "code_challenge",
        "code_challenge_method",
        "response_mode",
    ];

    pub(in crate::cli) fn parse(text: &str) -> Result<Self, ParameterError> {
        let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or(ParameterError::Form)?;
        if Self::OWN.contains(&name) {
            return Err(ParameterError::Own(name.to_owned()));
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

/// An issuer is compared letter by letter, so it stays as it was written.
pub(in crate::cli) fn issuer_url(text: &str) -> Result<String, anyhow::Error> {
    https_url(text).map_err(|error| anyhow!("{error}"))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_reaches_no_other_machine() {
        for (text, host, address) in [
            ("127.0.0.1:0", "127.0.0.1", "127.0.0.1:0"),
            ("localhost:8000", "localhost", "127.0.0.1:8000"),
            ("[::1]:8000", "[::1]", "[::1]:8000"),
        ] {
            let expected = Listen { host: host.to_owned(), address: address.parse().unwrap() };
            assert_eq!(Listen::parse(text).unwrap(), expected);
        }
        assert!(Parameter::parse("redirect_uri=https://eve.example").is_err() && Parameter::parse("prompt").is_err());
        for text in ["0.0.0.0:8000", "10.0.0.1:80", "login.example.com:80", "127.0.0.1", "8000", "127.0.0.1:x"] {
            assert!(Listen::parse(text).is_err(), "{text}");
        }
    }
}
