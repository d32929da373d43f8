//! Tokens of a file, as a kube-apiserver reads them.
//!
//! Source: kubernetes/apiserver `pkg/authentication/token/tokenfile/tokenfile.go`.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use crate::authn::AuthnError;
use kubefold_serving::{authenticate::AUTHENTICATED, caller::Caller};

pub(super) const FLAG: &str = "--token-auth-file";

/// Whose token is whose. Tokens themselves are not kept, so that how long a look-up takes says nothing about them.
#[derive(Debug, Default)]
pub(super) struct Tokens(HashMap<[u8; 32], Caller>);

impl Tokens {
    pub(super) fn parse(text: &str) -> Result<Self, AuthnError> {
        let mut known = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let refuse = |cause| AuthnError::Token { flag: FLAG, line: at + 1, cause };
            if line.trim().is_empty() {
                continue;
            }
            let fields = fields(line).ok_or_else(|| refuse("a quote is not closed"))?;
            let [token, user, uid, rest @ ..] = fields.as_slice() else {
                return Err(refuse("it has fewer than three fields"));
            };
            if token.is_empty() || user.is_empty() {
                return Err(refuse("its token or user is empty"));
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default().split(',').map(str::trim);
            let groups = groups.filter(|group| !group.is_empty() && *group != AUTHENTICATED).map(str::to_owned);
            let groups = groups.chain([AUTHENTICATED.to_owned()]).collect();
            let uid = Some(uid.clone()).filter(|uid| !uid.is_empty());
            let caller = Caller { user: user.clone(), groups, uid, ..Caller::default() };
            if known.insert(digest(token), caller).is_some() {
                return Err(refuse("another line has the same token"));
            }
        }
        Ok(Self(known))
    }

    /// Whose a token is, with its digest.
    pub(super) fn caller(&self, token: &str) -> Option<(Caller, [u8; 32])> {
        if self.0.is_empty() {
            return None;
        }
        let digest = digest(token);
        self.of(&digest).map(|caller| (caller.clone(), digest))
    }

    /// Whose the token of this digest is.
    pub(super) fn of(&self, digest: &[u8; 32]) -> Option<&Caller> {
        self.0.get(digest)
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// The fields of a line (RFC 4180); a field in quotes may hold commas. `None` if a quote is not closed.
fn fields(line: &str) -> Option<Vec<String>> {
    let (mut out, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.trim().chars().peekable();
    while let Some(next) = chars.next() {
        match next {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => out.push(std::mem::take(&mut field).trim().to_owned()),
            other => field.push(other),
        }
    }
    out.push(field.trim().to_owned());
    (!quoted).then_some(out)
}
