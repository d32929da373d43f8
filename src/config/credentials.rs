//! A member given by its address: where it is, whom to trust there, and as whom to log in.

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::{
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use serde_saphyr::Spanned;

use crate::config::{
    PemSource, Problem, ServerAccess,
    checked::{Checked, fault},
    files::Files,
    raw::RawMember,
};

/// The first field that only a `server:` member may have.
pub(super) fn first_given(raw: &RawMember) -> Option<(&'static str, &Spanned<String>)> {
    [
        ("certificateAuthority", &raw.certificate_authority),
        ("certificateAuthorityData", &raw.certificate_authority_data),
        ("clientCertificate", &raw.client_certificate),
        ("clientCertificateData", &raw.client_certificate_data),
        ("clientKey", &raw.client_key),
        ("clientKeyData", &raw.client_key_data),
        ("token", &raw.token),
        ("tokenFile", &raw.token_file),
        ("tlsServerName", &raw.tls_server_name),
        ("proxyURL", &raw.proxy_url),
    ]
    .into_iter()
    .find_map(|(field, value)| value.as_ref().map(|at| (field, at)))
}

/// Checks a `server:` member whole.
pub(super) fn access(server: &Spanned<String>, raw: &RawMember, files: &mut Files) -> Checked<ServerAccess> {
    url("server", server, &["https", "http"], "https://host:port")?;
    if let Some(proxy) = &raw.proxy_url {
        url("proxyURL", proxy, &["http", "https", "socks5"], "http://host:port or socks5://host:port")?;
    }
    if let Some(name) = raw.tls_server_name.as_ref().filter(|name| name.value.is_empty()) {
        return fault(name, Problem::Empty { field: "tlsServerName" });
    }
    let file = Given { field: "certificateAuthority", value: raw.certificate_authority.as_ref() };
    let data = Given { field: "certificateAuthorityData", value: raw.certificate_authority_data.as_ref() };
    let authority = pem(file, data, files)?;
    if let Some((field, at, source)) = &authority {
        certificates(field, source.pem.as_bytes()).or_else(|problem| fault(at, problem))?;
    }
    let (token, token_file) = token(raw, files)?;
    Ok(ServerAccess {
        impersonator_token: None,
        withheld: None,
        server: server.value.trim_end_matches('/').to_owned(),
        certificate_authority: authority.map(|(_, _, source)| source),
        client_certificate: client_certificate(raw, files)?,
        token,
        token_file,
        tls_server_name: raw.tls_server_name.as_ref().map(|at| at.value.clone()),
        proxy_url: raw.proxy_url.as_ref().map(|at| at.value.clone()),
    })
}

fn url(field: &'static str, at: &Spanned<String>, schemes: &[&str], example: &'static str) -> Checked<()> {
    let refuse = |cause: String| fault(at, Problem::InvalidUrl { field, value: at.value.clone(), cause, example });
    let uri = match at.value.parse::<http::Uri>() {
        Ok(uri) => uri,
        Err(error) => return refuse(error.to_string()),
    };
    match uri.scheme_str() {
        None => return refuse("no scheme".to_owned()),
        Some(scheme) if !schemes.contains(&scheme) => return refuse(format!("scheme {scheme} is not supported")),
        Some(_) => {}
    }
    if uri.query().is_some() {
        return refuse("it has a query".to_owned());
    }
    // A proxy's address may hold a user and password; a member's credential has its own fields.
    if field == "server" && uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return fault(
            at,
            Problem::InvalidUrl { field, value: "(withheld)".into(), cause: "it holds a user".into(), example },
        );
    }
    Ok(())
}

fn token(raw: &RawMember, files: &mut Files) -> Checked<(Option<String>, Option<std::path::PathBuf>)> {
    if let (Some(_), Some(at)) = (&raw.token, &raw.token_file) {
        return fault(at, Problem::Exclusive { one: "token", other: "tokenFile" });
    }
    if let Some(at) = &raw.token {
        let token = at.value.trim();
        return if token.is_empty() {
            fault(at, Problem::Empty { field: "token" })
        } else {
            Ok((Some(token.to_owned()), None))
        };
    }
    Ok((None, token_file("tokenFile", raw.token_file.as_ref(), files)?))
}

/// The token of whoever impersonates, where that is another than kubefold reads as.
pub(super) fn impersonator(raw: &RawMember, files: &mut Files) -> Checked<Option<std::path::PathBuf>> {
    let path = token_file("impersonatorTokenFile", raw.impersonator_token_file.as_ref(), files)?;
    let certificate = raw.client_certificate.as_ref().or(raw.client_certificate_data.as_ref());
    match (&path, certificate) {
        // A kube-apiserver would know kubefold by the certificate.
        (Some(_), Some(at)) => {
            fault(at, Problem::Exclusive { one: "clientCertificate", other: "impersonatorTokenFile" })
        }
        _ => Ok(path),
    }
}

fn token_file(
    field: &'static str,
    at: Option<&Spanned<String>>,
    files: &mut Files,
) -> Checked<Option<std::path::PathBuf>> {
    let Some(at) = at else { return Ok(None) };
    let path = files.resolve(&at.value);
    match files.read(&path) {
        Ok(bytes) if bytes.trim_ascii().is_empty() => fault(at, Problem::Empty { field }),
        Ok(_) => Ok(Some(path)),
        Err(cause) => fault(at, Problem::FileUnreadable { field, path, cause }),
    }
}

fn client_certificate(raw: &RawMember, files: &mut Files) -> Checked<Option<(PemSource, PemSource)>> {
    let file = Given { field: "clientCertificate", value: raw.client_certificate.as_ref() };
    let data = Given { field: "clientCertificateData", value: raw.client_certificate_data.as_ref() };
    let certificate = pem(file, data, files)?;
    let file = Given { field: "clientKey", value: raw.client_key.as_ref() };
    let data = Given { field: "clientKeyData", value: raw.client_key_data.as_ref() };
    let key = pem(file, data, files)?;
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some((field, at, _)), None) => fault(at, Problem::FieldWithout { field, needs: "clientKey" }),
        (None, Some((field, at, _))) => fault(at, Problem::FieldWithout { field, needs: "clientCertificate" }),
        (Some((field, at, certificate)), Some((key_field, key_at, key))) => {
            let chain = certificates(field, certificate.pem.as_bytes()).or_else(|problem| fault(at, problem))?;
            pair(chain, key_field, key.pem.as_bytes()).or_else(|problem| fault(key_at, problem))?;
            Ok(Some((certificate, key)))
        }
    }
}

/// A field of the configuration, and its value if it is given.
struct Given<'a> {
    field: &'static str,
    value: Option<&'a Spanned<String>>,
}

/// PEM text from a file, or written out as PEM or, as kubeconfigs do, as base64 of PEM.
fn pem<'a>(
    file: Given<'a>,
    data: Given<'a>,
    files: &mut Files,
) -> Checked<Option<(&'static str, &'a Spanned<String>, PemSource)>> {
    let (file_field, data_field) = (file.field, data.field);
    match (file.value, data.value) {
        (None, None) => Ok(None),
        (Some(_), Some(at)) => fault(at, Problem::Exclusive { one: file_field, other: data_field }),
        (Some(at), None) => {
            let path = files.resolve(&at.value);
            let bytes = files
                .read(&path)
                .or_else(|cause| fault(at, Problem::FileUnreadable { field: file_field, path: path.clone(), cause }))?;
            match String::from_utf8(bytes) {
                Ok(pem) => Ok(Some((file_field, at, PemSource { pem, file: Some(path) }))),
                Err(_) => fault(at, Problem::InvalidData { field: file_field }),
            }
        }
        (None, Some(at)) => match decode(&at.value) {
            Some(pem) => Ok(Some((data_field, at, PemSource { pem, file: None }))),
            None => fault(at, Problem::InvalidData { field: data_field }),
        },
    }
}

/// The certificates in a file.
pub(super) fn bundle(field: &'static str, at: &Spanned<String>, files: &mut Files) -> Checked<PemSource> {
    match pem(Given { field, value: Some(at) }, Given { field, value: None }, files)? {
        Some((_, at, source)) => {
            certificates(field, source.pem.as_bytes()).or_else(|problem| fault(at, problem))?;
            Ok(source)
        }
        None => fault(at, Problem::Empty { field }),
    }
}

/// Reads PEM, or base64 of PEM.
pub(super) fn decode(text: &str) -> Option<String> {
    if text.trim_start().starts_with("-----BEGIN ") {
        return Some(text.to_owned());
    }
    let packed: String = text.split_ascii_whitespace().collect();
    String::from_utf8(STANDARD.decode(packed).ok()?).ok().filter(|pem| pem.contains("-----BEGIN "))
}

/// Every certificate of a bundle; at least one, and each must parse.
pub(super) fn certificates(field: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let broken = |cause: String| Problem::BrokenCertificate { field, cause };
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| broken(error.to_string()))?;
    if chain.is_empty() {
        return Err(Problem::NoCertificate { field });
    }
    for certificate in &chain {
        x509_parser::parse_x509_certificate(certificate).map_err(|error| broken(error.to_string()))?;
    }
    Ok(chain)
}

/// Holds that the key is one, and belongs to the chain's first certificate.
pub(super) fn pair(chain: Vec<CertificateDer<'static>>, key_field: &'static str, key: &[u8]) -> Result<(), Problem> {
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Problem::NoKey { field: key_field })?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
        .map(drop)
        .map_err(|error| Problem::KeyMismatch { cause: error.to_string() })
}
