//! `kubefold revoke`: withdraws client certificates before they end.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use kube::config::Kubeconfig;
use rustls::pki_types::{CertificateDer, pem::PemObject};

use crate::{
    cli::print,
    serve::revoked::{self, Revocation, RevokedError},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use kubefold_serving::fingerprint::{fingerprint, signed_part};

#[derive(Debug, clap::Args)]
pub(super) struct Revoke {
    /// The state directory of `kubefold serve`, which need not run.
    #[arg(long, value_name = "DIR")]
    state_dir: PathBuf,
    /// A kubeconfig, of which every client certificate is revoked; a file with a client certificate (PEM); or a certificate's
    /// SHA-256 fingerprint.
    #[arg(value_name = "KUBECONFIG | CERTIFICATE | FINGERPRINT", required = true)]
    what: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
enum RevokeError {
    #[error("{what}: it is no SHA-256 fingerprint, and no file that can be read ({source})")]
    Unreadable { what: String, source: io::Error },
    #[error("{what}: it is neither a certificate (PEM) nor a kubeconfig ({source})")]
    Form { what: String, source: Box<kube::config::KubeconfigError> },
    #[error("{what}: it has no client certificate; a token is withdrawn where it was made")]
    None { what: String },
    #[error("{what}: its client certificate {named} is broken")]
    Broken { what: String, named: String },
    #[error(transparent)]
    Revoked(#[from] RevokedError),
}

/// Writes it down, and says what is new.
pub(super) fn run(flags: &Revoke) -> anyhow::Result<()> {
    let text = revoke(&flags.state_dir, &flags.what)?;
    print(&text)
}

fn revoke(dir: &Path, what: &[String]) -> Result<String, RevokeError> {
    let mut revocations = Vec::new();
    for what in what {
        revocations.extend(meant(what)?);
    }
    let new = revoked::add(dir, &revocations)?;
    let line = |one: &Revocation| {
        let state = if new.contains(one) { "revoked" } else { "was revoked before" };
        format!("{}: {state}\n", one.whose)
    };
    Ok(revocations.iter().map(line).collect())
}

/// The certificates that an argument means.
fn meant(what: &str) -> Result<Vec<Revocation>, RevokeError> {
    let path = Path::new(what);
    if let Some(digest) = revoked::digest(what).filter(|_| !path.exists()) {
        return Ok(vec![Revocation { digest, whose: format!("sha256:{}", revoked::hex(&digest)) }]);
    }
    let what = || what.to_owned();
    let bytes = fs::read(path).map_err(|source| RevokeError::Unreadable { what: what(), source })?;
    if CertificateDer::from_pem_slice(&bytes).is_ok() {
        return Ok(vec![revocation(&bytes).ok_or_else(|| RevokeError::Broken { what: what(), named: String::new() })?]);
    }
    let kubeconfig = Kubeconfig::read_from(path);
    let kubeconfig = kubeconfig.map_err(|source| RevokeError::Form { what: what(), source: source.into() })?;
    let mut found = Vec::new();
    for user in kubeconfig.auth_infos {
        let Some(login) = user.auth_info else { continue };
        let broken = || RevokeError::Broken { what: what(), named: user.name.clone() };
        let pem = match (&login.client_certificate_data, &login.client_certificate) {
            (Some(data), _) if !data.is_empty() => STANDARD.decode(data).map_err(|_| broken())?,
            (_, Some(file)) => {
                fs::read(file).map_err(|source| RevokeError::Unreadable { what: file.clone(), source })?
            }
            (_, None) => continue,
        };
        found.push(revocation(&pem).ok_or_else(broken)?);
    }
    if found.is_empty() { Err(RevokeError::None { what: what() }) } else { Ok(found) }
}

/// The first certificate of a chain is its holder's.
fn revocation(pem: &[u8]) -> Option<Revocation> {
    let certificate = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
    let end = jiff::Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()?;
    let whose = format!("{}, until {end}, sha256:{}", parsed.subject(), revoked::hex(&fingerprint(&certificate)));
    Some(Revocation { digest: signed_part(&certificate)?, whose })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::serve::{
        StateDir, authority,
        login::{NewLogin, issue},
    };

    #[test]
    fn a_certificate_is_named_by_a_kubeconfig_a_file_or_its_fingerprint() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(&folder.path().join("state")).unwrap();
        authority::ensure(&state, &[].into(), &[].into(), SystemTime::now()).unwrap();
        let wanted = NewLogin { user: "jane".into(), groups: vec!["dev".into()], life: Duration::from_hours(8) };
        let login = issue(state.path(), &wanted, SystemTime::now()).unwrap();
        let [file, kubeconfig, empty] =
            ["jane.crt", "jane.kubeconfig", "none.kubeconfig"].map(|name| folder.path().join(name));
        fs::write(&file, &login.certificate).unwrap();
        let user = format!(
            "users: [{{name: jane, user: {{client-certificate-data: {}}}}}]\n",
            STANDARD.encode(&login.certificate)
        );
        fs::write(&kubeconfig, format!("apiVersion: v1\nkind: Config\n{user}")).unwrap();
        fs::write(&empty, "apiVersion: v1\nkind: Config\n").unwrap();
        let by = |what: &str| revoke(state.path(), &[what.to_owned()]);
        let said = by(kubeconfig.to_str().unwrap()).unwrap();
        assert!(said.starts_with("O=dev, CN=jane, until ") && said.ends_with(": revoked\n"), "{said}");
        assert!(by(file.to_str().unwrap()).unwrap().ends_with(": was revoked before\n"));
        let digest = fingerprint(&CertificateDer::from_pem_slice(login.certificate.as_bytes()).unwrap());
        assert!(by(&revoked::hex(&digest)).unwrap().ends_with(": revoked\n"));
        assert_eq!(revoked::read(state.path()).unwrap().len(), 2);
        for (what, cause) in [
            (empty.to_str().unwrap(), "it has no client certificate"),
            ("nothing", "no SHA-256 fingerprint, and no file"),
            (&*state.path().join("ca.key").display().to_string(), "neither a certificate"),
        ] {
            let error = by(what).unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
        }
    }
}
