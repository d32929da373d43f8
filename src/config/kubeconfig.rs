//! A member given by a kubeconfig: the file, the context in it, and the certificates that it names.
//!
//! An exec plugin that is not installed is not refused here: the member is then down, with that cause.

use std::path::Path;

use kube::config::{AuthInfo, Cluster, Kubeconfig};
use secrecy::ExposeSecret;
use serde_saphyr::Spanned;
use sha2::{Digest, Sha256};

use crate::config::{
    Access, Problem,
    checked::{Checked, fault},
    credentials,
    files::Files,
};

/// Checks that the kubeconfig can be used, and digests what it depends on.
pub(super) fn access(at: &Spanned<String>, context: Option<&Spanned<String>>, files: &mut Files) -> Checked<Access> {
    let path = files.resolve(&at.value);
    let mut digest = Sha256::new();
    let place = context.unwrap_or(at);
    if let Err(problem) = check(&path, context.map(|at| at.value.as_str()), files, &mut digest) {
        return match problem {
            Problem::NoContext { .. } | Problem::KubeconfigDangling { .. } => fault(place, problem),
            other => fault(at, other),
        };
    }
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(digest.finalize());
    let digest = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    Ok(Access::Kubeconfig { path, context: context.map(|at| at.value.clone()), digest })
}

fn check(path: &Path, context: Option<&str>, files: &mut Files, digest: &mut Sha256) -> Result<(), Problem> {
    let bytes = files.read(path).map_err(|cause| Problem::FileUnreadable {
        field: "kubeconfig",
        path: path.to_path_buf(),
        cause,
    })?;
    digest.update(&bytes);
    let invalid = |cause: String| Problem::KubeconfigInvalid { path: path.to_path_buf(), cause };
    let parsed = Kubeconfig::read_from(path).map_err(|error| invalid(one_line(&error)))?;
    let known = || parsed.contexts.iter().map(|named| named.name.clone()).collect::<Vec<_>>();
    if parsed.contexts.is_empty() {
        return Err(invalid("it has no contexts".to_owned()));
    }
    let Some(name) = context.or(parsed.current_context.as_deref()).filter(|name| !name.is_empty()) else {
        return Err(Problem::NoCurrentContext { path: path.to_path_buf(), known: known() });
    };
    let chosen = parsed.contexts.iter().find(|named| named.name == name).and_then(|named| named.context.as_ref());
    let Some(chosen) = chosen else {
        return Err(Problem::NoContext { path: path.to_path_buf(), context: name.to_owned(), known: known() });
    };
    let dangling = |what, target: &str| Problem::KubeconfigDangling {
        path: path.to_path_buf(),
        context: name.to_owned(),
        what,
        name: target.to_owned(),
    };
    let cluster = parsed.clusters.iter().find(|named| named.name == chosen.cluster);
    let cluster = cluster.and_then(|named| named.cluster.as_ref());
    check_cluster(cluster.ok_or_else(|| dangling("cluster", &chosen.cluster))?, files, digest)?;
    if let Some(user) = chosen.user.as_ref().filter(|user| !user.is_empty()) {
        let info = parsed.auth_infos.iter().find(|named| named.name == *user);
        let info = info.and_then(|named| named.auth_info.as_ref());
        check_user(info.ok_or_else(|| dangling("user", user))?, files, digest)?;
    }
    Ok(())
}

/// kube's errors span lines and name their causes apart; ours are one sentence.
fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text.lines().map(str::trim).filter(|line| !line.is_empty()).take(1).collect()
}

fn check_cluster(cluster: &Cluster, files: &mut Files, digest: &mut Sha256) -> Result<(), Problem> {
    let field = "certificate-authority of the kubeconfig";
    let data = cluster.certificate_authority_data.as_deref();
    match pem(field, data, cluster.certificate_authority.as_deref(), files, digest)? {
        Some(authority) => credentials::certificates(field, &authority).map(drop),
        None => Ok(()),
    }
}

fn check_user(user: &AuthInfo, files: &mut Files, digest: &mut Sha256) -> Result<(), Problem> {
    let field = "client-certificate of the kubeconfig";
    let data = user.client_certificate_data.as_deref();
    let Some(chain) = pem(field, data, user.client_certificate.as_deref(), files, digest)? else { return Ok(()) };
    let chain = credentials::certificates(field, &chain)?;
    let key_field = "client-key of the kubeconfig";
    let data = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    match pem(key_field, data, user.client_key.as_deref(), files, digest)? {
        Some(key) => credentials::pair(chain, key_field, &key),
        None => Err(Problem::NoKey { field: key_field }),
    }
}

/// The text of a certificate or key: inline data wins over a file, as in client-go.
fn pem(
    field: &'static str,
    data: Option<&str>,
    file: Option<&str>,
    files: &mut Files,
    digest: &mut Sha256,
) -> Result<Option<Vec<u8>>, Problem> {
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        return credentials::decode(data).map(|pem| Some(pem.into_bytes())).ok_or(Problem::InvalidData { field });
    }
    let Some(file) = file.filter(|file| !file.is_empty()) else { return Ok(None) };
    let path = Path::new(file);
    let bytes = files.read(path).map_err(|cause| Problem::FileUnreadable { field, path: path.to_path_buf(), cause })?;
    digest.update(&bytes);
    Ok(Some(bytes))
}
