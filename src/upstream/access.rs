//! From a member's [`Access`] to an address, a TLS identity and a credential, by kube's own rules.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::Empty;
use hyper_util::client::proxy::matcher::Matcher;
use kube::{
    client::{AuthError, ConfigExt},
    config::{Config, KubeConfigOptions, Kubeconfig},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use secrecy::ExposeSecret;
use tower::{BoxError, Layer, ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::{
    authn::ends_s,
    config::{Access, PemSource, ServerAccess},
    upstream::error::{Failure, find},
};
use kubefold_wire::golang::Quoted;

/// Where a pod finds its service account (kube reads the same paths).
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Characters of a plugin's standard error that are logged.
const PLUGIN_SAID_MAX: usize = 1000;

/// Adds `Authorization`, refreshing what expires.
type Authorizer = BoxCloneSyncService<Request<Empty<Bytes>>, Response<Option<HeaderValue>>, BoxError>;

/// Everything that it takes to speak to a member, as it was when it was read.
pub(crate) struct Credentials {
    /// Scheme, authority and path prefix of the API server.
    pub(crate) base: Uri,
    /// Trust and client certificate; ALPN offers HTTP/2 and 1.1.
    pub(crate) tls: Arc<rustls::ClientConfig>,
    /// The same without HTTP/2, in which nothing can be upgraded.
    pub(crate) tls_http1: Arc<rustls::ClientConfig>,
    /// The name to verify, when not the host's.
    pub(crate) server_name: Option<String>,
    /// An `http` or `socks5` proxy on the way.
    pub(crate) proxy: Option<Uri>,
    /// How others on the way could read the credential, if they could.
    pub(crate) exposed: Option<&'static str>,
    /// True if a program gave it, which may know a newer one by now.
    pub(crate) from_plugin: bool,
    authorizer: Option<Authorizer>,
    /// The `Authorization` of requests that are made for a caller, where it is another.
    impersonator: Option<HeaderValue>,
    /// When what is read here ends, in Unix seconds, as far as that is known.
    expiries: Vec<(&'static str, u64)>,
}

/// For whom a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// kubefold itself.
    OwnBehalf,
    /// A caller.
    CallersBehalf,
}

impl Credentials {
    /// Reads them all; `impersonator` is a token file. Exec plugins run here, so it blocks.
    pub(crate) fn read(access: &Access, impersonator: Option<&Path>) -> Result<Self, Failure> {
        let refuse = |text: String| Failure::Credential(text.into());
        let server = match access {
            Access::Server(server) => Some(server),
            Access::Kubeconfig { .. } | Access::InCluster => None,
        };
        if let Some(withheld) = server.and_then(|server| server.withheld.as_ref()) {
            return Err(refuse(withheld.clone()));
        }
        let written = server.and_then(|server| server.impersonator_token.as_deref());
        let config = kube_config(access).map_err(|error| untold(&*error))?;
        let login = &config.auth_info;
        if (impersonator.is_some() || written.is_some())
            && (login.client_certificate.is_some() || login.client_certificate_data.is_some())
        {
            return Err(refuse(
                "its client certificate would count instead of impersonatorTokenFile; log in with a token".into(),
            ));
        }
        let impersonator = impersonator.map(bearer_of).or_else(|| written.map(bearer)).transpose();
        let impersonator = impersonator.map_err(|error| refuse(error.to_string()))?;
        if config.auth_info.impersonate.is_some() || config.auth_info.impersonate_groups.is_some() {
            return Err(refuse("its kubeconfig user has `as`; kubefold impersonates its callers itself".into()));
        }
        if let Some(scheme) = config.proxy_url.as_ref().map(|proxy| proxy.scheme_str().unwrap_or_default())
            && !matches!(scheme, "http" | "socks5")
        {
            return Err(refuse(format!(
                "its proxy URL has scheme {scheme}; http and socks5 are supported",
                scheme = Quoted(scheme)
            )));
        }
        let mut tls = config.rustls_client_config().map_err(|error| refuse(error.to_string()))?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut tls_http1 = tls.clone();
        tls_http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        let expiries = expiries(&config, impersonator.as_ref());
        let layer = config.auth_layer().map_err(|error| untold(&error))?;
        let authorizer = layer.map(|layer| {
            // kube's layer wraps a whole client; here the client only hands back the header.
            let inner = service_fn(|request: Request<Empty<Bytes>>| async move {
                Ok::<_, BoxError>(Response::new(request.headers().get(header::AUTHORIZATION).cloned()))
            });
            BoxCloneSyncService::new(layer.layer(inner))
        });
        Ok(Self {
            from_plugin: config.auth_info.exec.is_some() || config.auth_info.auth_provider.is_some(),
            exposed: exposed(&config),
            base: config.cluster_url,
            tls: Arc::new(tls),
            tls_http1: Arc::new(tls_http1),
            server_name: config.tls_server_name,
            proxy: config.proxy_url,
            authorizer,
            impersonator,
            expiries,
        })
    }

    /// Those of a server that is known by TLS alone, under a name that its address does not say.
    pub(crate) fn of_tls(base: Uri, tls: &rustls::ClientConfig, server_name: &str) -> Self {
        let with = |protocols: &[&[u8]]| {
            let mut tls = tls.clone();
            tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(tls)
        };
        Self {
            base,
            tls: with(&[b"h2", b"http/1.1"]),
            tls_http1: with(&[b"http/1.1"]),
            server_name: Some(server_name.to_owned()),
            proxy: None,
            exposed: None,
            from_plugin: false,
            authorizer: None,
            impersonator: None,
            expiries: Vec::new(),
        }
    }

    /// When they end, in Unix seconds, each by what it is called; those of a program are not known.
    pub(crate) fn expiries(&self) -> &[(&'static str, u64)] {
        &self.expiries
    }

    /// Whether callers' requests have a credential of their own.
    pub(crate) fn has_impersonator(&self) -> bool {
        self.impersonator.is_some()
    }

    /// The `Authorization` of the next request.
    pub(crate) async fn authorization(&self, on: On) -> Result<Option<HeaderValue>, Failure> {
        if let (On::CallersBehalf, Some(impersonator)) = (on, &self.impersonator) {
            return Ok(Some(impersonator.clone()));
        }
        let Some(authorizer) = &self.authorizer else { return Ok(None) };
        let request = Request::new(Empty::new());
        let answered = authorizer.clone().oneshot(request).await;
        answered.map(Response::into_body).map_err(|error| untold(&*error))
    }
}

/// The ends of what a member is logged in to with. A token that is no JSON Web Token may have one, but does not say so.
fn expiries(config: &Config, impersonator: Option<&HeaderValue>) -> Vec<(&'static str, u64)> {
    let login = &config.auth_info;
    let token = login.token.as_ref().map(|token| token.expose_secret().to_owned());
    let impersonator = impersonator.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer ").map(str::to_owned));
    let of_data = login.client_certificate_data.as_ref().and_then(|data| BASE64.decode(data).ok());
    let chain = of_data.or_else(|| fs::read(login.client_certificate.as_ref()?).ok());
    [
        ("token", token.as_deref().and_then(ends_s)),
        ("impersonator_token", impersonator.as_deref().and_then(ends_s)),
        ("client_certificate", chain.as_deref().and_then(certificate_ends_s)),
    ]
    .into_iter()
    .filter_map(|(what, end)| Some((what, end?)))
    .collect()
}

fn certificate_ends_s(pem: &[u8]) -> Option<u64> {
    let certificate = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
    u64::try_from(parsed.validity().not_after.timestamp()).ok()
}

fn bearer_of(path: &Path) -> Result<HeaderValue, BoxError> {
    bearer(&fs::read_to_string(path).map_err(|error| format!("token file {}: {error}", path.display()))?)
}

fn bearer(token: &str) -> Result<HeaderValue, BoxError> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// A credential that may impersonate everybody goes where anybody could read it; on this machine nobody is on the way.
fn exposed(config: &Config) -> Option<&'static str> {
    let is_here = config.cluster_url.host().is_some_and(is_loopback);
    match config.cluster_url.scheme_str() {
        Some("https") if config.accept_invalid_certs => {
            Some("its certificate is not verified (insecure-skip-tls-verify)")
        }
        Some("https") => None,
        _ if is_here => None,
        _ => Some("its connection is not encrypted (http)"),
    }
}

/// The failure of credentials, as callers are told it. What a plugin was called with and what it wrote may hold secrets,
/// and a `Status`, a `Warning` and `/readyz?verbose` are for everybody: only the log has its standard error.
fn untold(error: &(dyn Error + 'static)) -> Failure {
    match find::<AuthError>(error) {
        Some(AuthError::AuthExecRun { out, .. }) => {
            let said = String::from_utf8_lossy(&out.stderr);
            let said: String = said.chars().take(PLUGIN_SAID_MAX).collect();
            tracing::warn!(status = %out.status, said = %said.trim(), "a credential plugin failed");
            Failure::Credential(
                format!("its credential plugin failed: {}; kubefold's log says more", out.status).into(),
            )
        }
        // The parser quotes what it does not understand, which may be a token.
        Some(AuthError::AuthExecParse(_)) => Failure::Credential(
            "its credential plugin wrote what is no ExecCredential; run it by hand to see it".into(),
        ),
        Some(_) | None => Failure::Credential(error.to_string().into()),
    }
}

/// The state of every file that credentials were read from: another one means to read them again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(Vec<(PathBuf, Option<(SystemTime, u64)>)>);

impl Fingerprint {
    /// Looks at every file that `access` names, at those that its kubeconfig names, and at the impersonator's.
    pub(crate) fn of(access: &Access, impersonator: Option<&Path>) -> Self {
        let files = files(access).into_iter().chain(impersonator.map(Path::to_path_buf));
        Self(files.map(|path| (path.clone(), state(&path))).collect())
    }

    /// Looks at the same files again: no file is read.
    pub(crate) fn again(&self) -> Self {
        Self(self.0.iter().map(|(path, _)| (path.clone(), state(path))).collect())
    }
}

/// Projected volumes swap symbolic links, which this follows.
fn state(path: &PathBuf) -> Option<(SystemTime, u64)> {
    let file = fs::metadata(path).ok()?;
    Some((file.modified().ok()?, file.len()))
}

fn files(access: &Access) -> Vec<PathBuf> {
    match access {
        Access::InCluster => ["token", "ca.crt"].map(|file| PathBuf::from(SERVICE_ACCOUNT).join(file)).into(),
        Access::Server(server) => {
            let pair = server.client_certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
            let pems = server.certificate_authority.iter().chain(pair);
            pems.filter_map(|pem| pem.file.clone()).chain(server.token_file.clone()).collect()
        }
        Access::Kubeconfig { path, .. } => {
            let mut files = vec![path.clone()];
            let Ok(kubeconfig) = Kubeconfig::read_from(path) else { return files };
            let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
            files.extend(clusters.filter_map(|cluster| cluster.certificate_authority.clone()).map(PathBuf::from));
            for user in kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref()) {
                let named = [&user.client_certificate, &user.client_key, &user.token_file];
                files.extend(named.into_iter().flatten().map(PathBuf::from));
            }
            files
        }
    }
}

/// A client of kube's, for what is no member: few requests, whose bytes are read here.
pub(crate) fn client(access: &Access) -> Result<kube::Client, Failure> {
    let config = kube_config(access).map_err(|error| untold(&*error))?;
    kube::Client::try_from(config).map_err(|error| untold(&error))
}

fn kube_config(access: &Access) -> Result<Config, BoxError> {
    let mut config = match access {
        Access::Kubeconfig { path, context, .. } => from_kubeconfig(path, context.as_deref())?,
        Access::Server(server) => from_server(server)?,
        Access::InCluster => Config::incluster()?,
    };
    // kube would retry a POST that was answered 504 (`kube-client/src/client/retry.rs`). Its client is not
    // used here, but nobody who finds this value shall be surprised.
    config.default_retry = false;
    // kube reads a token file with its last newline, which no header may hold, and only once a minute.
    // The file is part of the fingerprint, so what is read here is never older than one probe.
    if let Some(path) = config.auth_info.token_file.take() {
        let token = fs::read_to_string(&path).map_err(|error| format!("token file {path}: {error}"))?;
        config.auth_info.token = Some(token.trim().to_owned().into());
    }
    Ok(config)
}

fn from_kubeconfig(path: &PathBuf, context: Option<&str>) -> Result<Config, BoxError> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    let context = context.map(str::to_owned).or_else(|| kubeconfig.current_context.clone());
    let named = kubeconfig.contexts.iter().find(|named| Some(&named.name) == context.as_ref());
    let cluster_name = named.and_then(|named| named.context.as_ref()).map(|context| context.cluster.clone());
    let cluster = kubeconfig.clusters.iter().find(|named| Some(&named.name) == cluster_name.as_ref());
    let own_proxy = cluster
        .and_then(|named| named.cluster.as_ref())
        .is_some_and(|cluster| cluster.proxy_url.as_ref().is_some_and(|proxy| !proxy.is_empty()));
    let options = KubeConfigOptions { context, cluster: None, user: None };
    // `Config::from_custom_kubeconfig` is async in name only.
    let mut config = futures::executor::block_on(Config::from_custom_kubeconfig(kubeconfig, &options))?;
    if !own_proxy {
        config.proxy_url = environment_proxy(&config.cluster_url);
    }
    Ok(config)
}

fn from_server(server: &ServerAccess) -> Result<Config, BoxError> {
    let mut config = Config::new(server.server.parse()?);
    if let Some(authority) = &server.certificate_authority {
        let pem = text(authority)?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let certificates = certificates.map_err(|error| format!("certificate authority: {error}"))?;
        config.root_cert = Some(certificates.iter().map(|certificate| certificate.to_vec()).collect());
    }
    if let Some((certificate, key)) = &server.client_certificate {
        config.auth_info.client_certificate_data = Some(BASE64.encode(text(certificate)?));
        config.auth_info.client_key_data = Some(BASE64.encode(text(key)?).into());
    }
    config.auth_info.token = server.token.clone().map(Into::into);
    config.auth_info.token_file = server.token_file.as_ref().map(|path| path.display().to_string());
    config.tls_server_name.clone_from(&server.tls_server_name);
    config.proxy_url = match &server.proxy_url {
        Some(proxy) => Some(proxy.parse()?),
        None => environment_proxy(&config.cluster_url),
    };
    Ok(config)
}

/// The PEM as its file has it now, or as it was configured.
fn text(source: &PemSource) -> Result<String, BoxError> {
    let Some(path) = &source.file else { return Ok(source.pem.clone()) };
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// The proxy that the environment wants for `server`, as client-go would choose: loopback is never proxied, and
/// `NO_PROXY` is about the server. (kube 5.0.0 asks `NO_PROXY` about the proxy: `config/file_loader.rs`.)
fn environment_proxy(server: &Uri) -> Option<Uri> {
    if is_loopback(server.host()?) {
        None
    } else {
        Matcher::from_env().intercept(server).map(|proxy| proxy.uri().clone())
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
