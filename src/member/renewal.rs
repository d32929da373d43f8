//! The tokens with which kubefold logs in to members, renewed while they are good.

use std::{
    collections::HashSet,
    fs, io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    authn::claims,
    config::Access,
    member::{
        Member, MemberId,
        call::{Answer, Call},
        registry::Registry,
    },
};
use kubefold_serving::{authenticate::AUTHENTICATED, caller::Caller};
use kubefold_wire::{path::ApiPath, resource::Gvr};

/// How often it is looked whether a token is to be renewed.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What a ServiceAccount's token says of itself.
#[derive(Debug, Deserialize)]
struct Claims {
    iat: u64,
    exp: u64,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Kubernetes,
}

#[derive(Debug, Deserialize)]
struct Kubernetes {
    namespace: String,
    serviceaccount: Account,
}

#[derive(Debug, Deserialize)]
struct Account {
    name: String,
}

/// Why a token is not renewed.
#[derive(Debug, thiserror::Error)]
pub enum RenewalError {
    /// The file of the token cannot be read or written.
    #[error("{0}")]
    File(io::Error),
    /// The token does not say when it ends.
    #[error("it is no token of a ServiceAccount with an end; renewTokens is for those")]
    Form,
    /// It is too late. Units: seconds.
    #[error("it ended {0}s ago; make a new one, or run kubefold unjoin and kubefold join")]
    Ended(u64),
    /// The member does not allow it.
    #[error("the member answered {0}; see deploy/member-rbac.yaml")]
    Refused(StatusCode),
    /// The member cannot be asked.
    #[error("{0}")]
    Member(String),
    /// The member gave something else.
    #[error("the member's answer has no token")]
    Answer,
}

/// A token that kubefold logs in with, and as whom its renewal is asked for.
#[derive(Clone, Copy)]
pub struct HeldToken<'a> {
    /// The token.
    pub token: &'a str,
    /// It is the impersonator's, who can ask for nothing but as somebody: as itself.
    pub impersonates: bool,
}

/// What became of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// A new one; `None`: the time for that has not come.
    pub token: Option<String>,
    /// When the one that counts ends, in Unix seconds.
    pub ends_s: u64,
}

/// A token in a file, and as whom its renewal is asked for.
struct Held<'a> {
    path: &'a Path,
    /// The impersonator can ask for nothing but as somebody: as itself.
    impersonates: bool,
}

/// Renews every token when its member is reached, and at half of its life, until cancelled.
pub async fn keep_tokens(registry: &Registry) {
    let mut known: HashSet<MemberId> = HashSet::new();
    let mut complaint = String::new();
    loop {
        let members = registry.members();
        let renewed = join_all(members.iter().map(|member| renew_member(member, !known.contains(&member.id())))).await;
        known = members.iter().filter(|member| member.health().is_reachable()).map(|member| member.id()).collect();
        let faults: Vec<String> = members
            .iter()
            .zip(renewed)
            .flat_map(|(member, faults)| {
                let of_file =
                    |(path, fault): FaultOfFile| format!("member {}: {}: {fault}", member.name(), path.display());
                faults.into_iter().map(of_file).collect::<Vec<_>>()
            })
            .collect();
        let fault = faults.join("; ");
        // Said once until it is another one.
        if fault != complaint && !fault.is_empty() {
            tracing::warn!(fault, "cannot renew the tokens that kubefold logs in with");
        }
        complaint = fault;
        sleep(LOOK_EVERY).await;
    }
}

/// A file, and why its token is not renewed.
type FaultOfFile = (PathBuf, RenewalError);

async fn renew_member(member: &Member, is_first: bool) -> Vec<FaultOfFile> {
    let config = member.config();
    if !config.renew_tokens || !member.health().is_reachable() {
        return Vec::new();
    }
    let own = match &config.access {
        Access::Server(server) => server.token_file.as_deref(),
        Access::Kubeconfig { .. } | Access::InCluster => None,
    };
    let own = own.map(|path| Held { path, impersonates: false });
    let impersonator = config.impersonator.as_deref().map(|path| Held { path, impersonates: true });
    let mut faults = Vec::new();
    for held in own.into_iter().chain(impersonator) {
        faults.extend(renew(member, &held, is_first).await.err().map(|fault| (held.path.to_path_buf(), fault)));
    }
    faults
}

async fn renew(member: &Member, held: &Held<'_>, is_first: bool) -> Result<(), RenewalError> {
    let path = held.path.to_path_buf();
    let token = tokio::fs::read_to_string(held.path).await.map_err(RenewalError::File)?;
    let token = HeldToken { token: token.trim(), impersonates: held.impersonates };
    let Some(new) = renewed(member, token, is_first).await?.token else { return Ok(()) };
    let to = path.clone();
    let write = tokio::task::spawn_blocking(move || replace(&to, &new)).await;
    write.map_err(|panic| RenewalError::Member(panic.to_string()))?.map_err(RenewalError::File)?;
    tracing::info!(member = %member.name(), path = %path.display(), "renewed a token");
    Ok(())
}

/// Asks a member for a new token in place of one, when the member is first reached, and at half of the token's life.
///
/// Errors: the token has no end, or ended; the member gives none. Cancel: a new token may have been made, and is nobody's.
pub async fn renewed(member: &Member, held: HeldToken<'_>, is_first: bool) -> Result<Renewed, RenewalError> {
    let known: Claims = claims(held.token).ok_or(RenewalError::Form)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if now >= known.exp {
        return Err(RenewalError::Ended(now - known.exp));
    }
    // When a member is reached kubefold may have been away for long, and may be again.
    if now < known.renewed_at() && !is_first {
        return Ok(Renewed { token: None, ends_s: known.exp });
    }
    let token = request(member, &known, held.impersonates).await?;
    let ends_s = claims::<Claims>(&token).map_or(known.exp, |claims| claims.exp);
    Ok(Renewed { token: Some(token), ends_s })
}

impl Claims {
    fn renewed_at(&self) -> u64 {
        self.iat + self.exp.saturating_sub(self.iat) / 2
    }

    /// The account itself.
    fn caller(&self) -> Caller {
        let (namespace, name) = (&self.kubernetes.namespace, &self.kubernetes.serviceaccount.name);
        let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        Caller {
            user: format!("system:serviceaccount:{namespace}:{name}"),
            groups: groups.into_iter().chain([AUTHENTICATED.to_owned()]).collect(),
            ..Caller::default()
        }
    }
}

async fn request(member: &Member, claims: &Claims, impersonates: bool) -> Result<String, RenewalError> {
    let Kubernetes { namespace, serviceaccount: Account { name } } = &claims.kubernetes;
    let spec = json!({"expirationSeconds": claims.exp.saturating_sub(claims.iat)});
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let call = Call {
        method: Method::POST,
        path: ApiPath::within(&Gvr::new("", "v1", "serviceaccounts"), namespace).then(name).then("token"),
        query: String::new(),
        body: Bytes::from(body.to_string()),
        content_type: String::new(),
        user_agent: None,
    };
    let caller = impersonates.then(|| claims.caller());
    match member.call(caller.as_ref(), call).await {
        Answer::Answered { code, body, .. } if code.is_success() => {
            let answer: Value = serde_json::from_slice(&body).map_err(|_| RenewalError::Answer)?;
            answer["status"]["token"].as_str().map(str::to_owned).ok_or(RenewalError::Answer)
        }
        Answer::Answered { code, .. } => Err(RenewalError::Refused(code)),
        Answer::NotSent(cause) | Answer::Unknown(cause) => Err(RenewalError::Member(cause)),
    }
}

/// Whole or not at all.
fn replace(path: &Path, token: &str) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let mut file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&partial)?;
    io::Write::write_all(&mut file, token.as_bytes())?;
    file.sync_all()?;
    fs::rename(&partial, path)
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;

    #[test]
    fn a_token_says_whose_it_is_and_when_it_is_renewed() {
        let payload = json!({"iat": 1000, "exp": 4000, "kubernetes.io": {"namespace": "kubefold",
            "serviceaccount": {"name": "kubefold-reader", "uid": "u"}}});
        let token = format!("e30.{}.x", URL_SAFE_NO_PAD.encode(payload.to_string()));
        let claims: Claims = claims(&token).unwrap();
        assert_eq!(claims.renewed_at(), 2500);
        assert_eq!(claims.caller().user, "system:serviceaccount:kubefold:kubefold-reader");
        let endless = format!("e30.{}.x", URL_SAFE_NO_PAD.encode(r#"{"iat": 1}"#));
        assert!(crate::authn::claims::<Claims>(&endless).is_none());
    }

    #[test]
    fn a_file_is_replaced_whole_and_is_its_owners() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "old and much longer").unwrap();
        replace(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
