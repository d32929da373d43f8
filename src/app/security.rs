//! Certificates to serve with, authorities that are believed, and the files that say so: all of it is followed.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use http::Uri;
use parking_lot::Mutex;
use tokio::{sync::watch, time::sleep};

use crate::{
    app::options::ServingOptions,
    authn::Authentication,
    config::{ClientAuthorityRule, MemberName},
    host::{Host, HostServing},
    member::{authority::client_authorities, registry::Registry},
    serve::{Auditing, Published, StateDir, authority, expiry::Expiries, revoked},
};
use kubefold_serving::tls::{Believed, ClientAuthority, FrontProxies, Tls, TlsFiles, read_given};

/// How often it is looked whether certificates have changed, or are to be renewed.
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// Members that say at the same time whose certificates they accept are heard together.
const TOGETHER: Duration = Duration::from_secs(1);

/// Authorities of client certificates that are not files.
#[derive(Clone, Copy, Default)]
pub(super) struct Authorities<'a> {
    /// Those of the configuration.
    pub(super) configured: &'a [ClientAuthorityRule],
    /// Those that members accept.
    pub(super) members: &'a [(MemberName, Arc<str>)],
    /// What the host says.
    pub(super) host: Option<&'a HostServing>,
}

/// Certificates to serve with, and what a client must trust.
#[derive(PartialEq, Eq)]
pub(super) struct Security {
    pub(super) files: TlsFiles,
    pub(super) trust: String,
    /// The own authority.
    own: String,
    /// Those of `--client-ca-file` and of the configuration.
    given: String,
}

impl Security {
    /// Takes the given certificates, and makes what is not given in the state directory.
    ///
    /// Of an authority that the fleet and a member have, the fleet's word counts.
    pub(super) fn prepare(
        options: &ServingOptions,
        state: &StateDir,
        authorities: Authorities<'_>,
    ) -> anyhow::Result<Self> {
        let Authorities { configured, members, host } = authorities;
        let trust = host.and_then(|host| host.trust.as_deref());
        let of_host = host.and_then(|host| host.server_name.clone());
        let address =
            options.external_url.as_ref().and_then(Uri::host).map(|host| host.trim_matches(['[', ']']).to_owned());
        let extra: Vec<String> = options.names.iter().cloned().chain(address).chain(of_host).collect();
        let names: BTreeSet<String> = authority::serving_names(options.listen.ip(), &extra);
        let revoked = revoked::read(state.path())?;
        let own = authority::ensure(state, &names, &revoked, SystemTime::now())?;
        let given = options.client_ca.as_ref().map(|path| read_given("--client-ca-file", path)).transpose()?;
        let of_fleet = |bundle: &String, believed| ClientAuthority { bundle: bundle.clone(), believed };
        let configured_of_fleet = configured.iter().filter(|rule| rule.member.is_none()).map(|rule| &rule.bundle.pem);
        let client_authorities = std::iter::once(of_fleet(&own.ca_certificate, Believed::Everything))
            .chain(given.iter().chain(configured_of_fleet).map(|bundle| of_fleet(bundle, Believed::PeopleOnly)))
            .chain(trust.and_then(|trust| trust.client_authority.clone()))
            .chain(of_members(configured, members))
            .collect();
        let of_configuration = configured.iter().map(|rule| rule.bundle.pem.as_str());
        let given = given.as_deref().into_iter().chain(of_configuration).collect::<Vec<_>>().join("\n");
        let given_proxies = options.front_proxy.as_ref().map(|proxy| {
            let bundle = read_given("--requestheader-client-ca-file", &proxy.ca)?;
            let headers = Arc::new(proxy.headers.clone());
            anyhow::Ok(FrontProxies { bundle, names: proxy.names.clone(), headers, cluster: None })
        });
        let of_host = trust.and_then(|trust| trust.front_proxies.clone());
        let front_proxies = given_proxies.transpose()?.into_iter().chain(of_host).collect();
        let (certificate, key, trust) = match &options.serving_certificate {
            Some((certificate, key)) => {
                let chain = read_given("--tls-cert-file", certificate)?;
                (chain.clone(), read_given("--tls-key-file", key)?, chain)
            }
            None => (own.serving_certificate, own.serving_key, own.ca_certificate.clone()),
        };
        let replica = match options.has_replicas {
            true => Some(authority::ensure_replica(state, &revoked, SystemTime::now())?),
            false => None,
        };
        let files = TlsFiles { certificate, key, client_authorities, front_proxies, revoked, replica };
        Ok(Self { files, trust, own: own.ca_certificate, given })
    }

    /// Says when they end.
    pub(super) fn tell(&self, expiries: &Expiries) {
        let given = Some(("client_ca", self.given.as_str()));
        let proxies = self.files.front_proxies.iter().map(|proxies| match proxies.cluster {
            Some(_) => ("host_front_proxy_ca", proxies.bundle.as_str()),
            None => ("front_proxy_ca", proxies.bundle.as_str()),
        });
        let bundles: Vec<_> = std::iter::once(("own_ca", self.own.as_str())).chain(given).chain(proxies).collect();
        expiries.set(&self.files.certificate, &bundles);
    }
}

/// The authorities of each domain: what the configuration says of a member, and what that one says itself, are of one.
fn of_members(configured: &[ClientAuthorityRule], members: &[(MemberName, Arc<str>)]) -> Vec<ClientAuthority> {
    let configured = configured.iter().filter_map(|rule| Some((rule.member.as_ref()?, rule.bundle.pem.as_str())));
    let mut of_domains: BTreeMap<&MemberName, Vec<&str>> = BTreeMap::new();
    for (member, bundle) in configured.chain(members.iter().map(|(member, bundle)| (member, &**bundle))) {
        of_domains.entry(member).or_default().push(bundle);
    }
    let of_domain = |(member, bundles): (&MemberName, Vec<&str>)| ClientAuthority {
        bundle: bundles.join("\n"),
        believed: Believed::InDomain(member.as_str().into()),
    };
    of_domains.into_iter().map(of_domain).collect()
}

/// What was last said to be wrong with files. They are read again and again, and one fault is logged once.
#[derive(Default)]
struct Complaint(Option<String>);

impl Complaint {
    /// The value, or `None` and a line in the log: a file that is half written is whole a moment later.
    fn unless_good<T>(&mut self, read: anyhow::Result<T>, consequence: &str) -> Option<T> {
        let fault = read.as_ref().err().map(|error| format!("{error:#}"));
        if let Some(error) = fault.as_ref().filter(|_| fault != self.0) {
            tracing::warn!(error, "{consequence}");
        }
        self.0 = fault;
        read.ok()
    }
}

/// Serves with every later good set of certificates: those of files that have changed, those that members accept by now, and
/// the own when they come to their end. Connections that are open keep theirs; who logs in on them is judged by what is in
/// force now.
pub(super) struct Renewal {
    pub(super) options: ServingOptions,
    pub(super) security: Security,
    pub(super) tls: Arc<ArcSwap<Tls>>,
    pub(super) published: Arc<Mutex<Published>>,
    pub(super) authentication: Arc<Authentication>,
    pub(super) auditing: Option<Auditing>,
    /// The members, where there is a fleet.
    pub(super) registry: Option<Arc<Registry>>,
    /// The host, where there may be one.
    pub(super) host: Option<Arc<Host>>,
    pub(super) expiries: Expiries,
    pub(super) state: Arc<StateDir>,
}

impl Renewal {
    /// Until cancelled.
    pub(super) async fn run(mut self) {
        let [mut of_tokens, mut of_certificates, mut of_audit] = [(); 3].map(|()| Complaint::default());
        let mut authorities = self.registry.as_ref().map(|registry| registry.authority_changes());
        let mut of_host = self.host.as_ref().map(|host| host.changes());
        loop {
            tokio::select! {
                () = sleep(RENEW_EVERY) => {}
                () = changed(authorities.as_mut()) => sleep(TOGETHER).await,
                () = changed(of_host.as_mut()) => {}
            }
            of_host.iter_mut().for_each(watch::Receiver::mark_unchanged);
            authorities.iter_mut().for_each(watch::Receiver::mark_unchanged);
            let reloaded = self.authentication.reload().map_err(anyhow::Error::from);
            if of_tokens.unless_good(reloaded, "keeps the bearer tokens that it accepts") == Some(true) {
                tracing::info!("accepts other bearer tokens");
            }
            let reloaded = self.auditing.as_ref().map_or(Ok(false), Auditing::reload).map_err(anyhow::Error::from);
            if of_audit.unless_good(reloaded, "keeps the audit policy that it has") == Some(true) {
                tracing::info!("audits by another policy");
            }
            let prepared = self.prepared();
            let consequence = "keeps the certificates that it has, and those that are revoked";
            if let Some(Some((tls, now))) = of_certificates.unless_good(prepared, consequence) {
                self.take(tls, now);
            }
        }
    }

    /// What is in force from now on, if that is something else.
    fn prepared(&self) -> anyhow::Result<Option<(Tls, Security)>> {
        let configured = self.registry.as_ref().map(|registry| registry.configured_authorities()).unwrap_or_default();
        let members = self.registry.as_ref().map(|registry| client_authorities(registry)).unwrap_or_default();
        let host = self.host.as_ref().map(|host| host.serving());
        let authorities = Authorities { configured: &configured, members: &members, host: host.as_ref() };
        let now = Security::prepare(&self.options, &self.state, authorities)?;
        Ok(if now == self.security { None } else { Some((Tls::new(&now.files)?, now)) })
    }

    fn take(&mut self, tls: Tls, now: Security) {
        self.tls.store(Arc::new(tls));
        self.security = now;
        self.security.tell(&self.expiries);
        tracing::info!("serves with other certificates, client authorities or revoked certificates");
        let mut published = self.published.lock();
        if published.certificate_authority == self.security.trust {
            return;
        }
        published.certificate_authority.clone_from(&self.security.trust);
        if let Err(error) = published.write(&self.state) {
            tracing::error!("cannot write serving.json, so new kubeconfigs trust the old certificate: {error}");
        }
    }
}

/// Once somebody has said something else; never where there is nobody.
async fn changed(authorities: Option<&mut watch::Receiver<u64>>) {
    if let Some(authorities) = authorities
        && authorities.changed().await.is_ok()
    {
        return;
    }
    pending().await
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustls::pki_types::{CertificateDer, pem::PemObject};
    use tokio_util::{sync::CancellationToken, task::TaskTracker};
    use x509_parser::extensions::GeneralName;

    use super::*;
    use crate::{authn, host::Trust};

    /// A kube-aggregator verifies that the certificate has the name of the Service.
    #[test]
    fn a_host_names_the_certificate_and_has_its_front_proxies_believed() {
        let folder = tempfile::tempdir().unwrap();
        let options = ServingOptions::new(([127, 0, 0, 1], 0).into(), folder.path().join("state"));
        let state = StateDir::open(&options.state_dir).unwrap();
        let alone = Security::prepare(&options, &state, Authorities::default()).unwrap();
        let bundle = alone.trust.clone();
        let believed = Believed::OfCluster("host".into());
        let headers = kubefold_serving::front_proxy::ProxyHeaders {
            user: Vec::new(),
            groups: Vec::new(),
            uid: Vec::new(),
            extra_prefixes: Vec::new(),
        };
        let proxies =
            FrontProxies { bundle: bundle.clone(), names: Vec::new(), headers: headers.into(), cluster: None };
        let trust = Trust {
            front_proxies: Some(proxies.clone()),
            client_authority: Some(ClientAuthority { bundle, believed: believed.clone() }),
        };
        let host = HostServing { trust: Some(Arc::new(trust)), server_name: Some("kubefold.kubefold.svc".to_owned()) };
        let behind = Security::prepare(&options, &state, Authorities { host: Some(&host), ..Authorities::default() });
        let files = behind.unwrap().files;
        assert_eq!(files.front_proxies, [proxies]);
        assert_eq!(files.client_authorities.last().map(|authority| &authority.believed), Some(&believed));
        let names = |pem: &str| {
            let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).unwrap();
            let names = parsed.subject_alternative_name().unwrap().unwrap().value.general_names.clone();
            names.contains(&GeneralName::DNSName("kubefold.kubefold.svc"))
        };
        assert!(names(&files.certificate) && !names(&alone.files.certificate));
    }

    /// A certificate that is good, a file that is not whole yet, and a certificate that is revoked.
    #[tokio::test(start_paused = true)]
    async fn certificates_that_change_are_served_and_broken_ones_are_not() {
        let (folder, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let given = folder.path().join("given.pem");
        let options = ServingOptions::new(([127, 0, 0, 1], 0).into(), folder.path().join("state"));
        let options = ServingOptions { client_ca: Some(given.clone()), ..options };
        let state = Arc::new(StateDir::open(&options.state_dir).unwrap());
        let other = StateDir::open(others.path().join("state").as_path()).unwrap();
        let names = authority::serving_names([127, 0, 0, 1].into(), &[]);
        let ensure = |state: &StateDir| authority::ensure(state, &names, &BTreeSet::new(), SystemTime::now()).unwrap();
        let [own, second] = [&*state, &other].map(|state| ensure(state).ca_certificate);
        fs::write(&given, &own).unwrap();
        let security = Security::prepare(&options, &state, Authorities::default()).unwrap();
        let tls = Arc::new(ArcSwap::from_pointee(Tls::new(&security.files).unwrap()));
        let published =
            Published { url: String::new(), fleet: true, members: Vec::new(), certificate_authority: String::new() };
        let until = CancellationToken::new();
        let renewal = Renewal {
            options,
            security,
            tls: Arc::clone(&tls),
            published: Arc::new(Mutex::new(published)),
            authentication: Arc::new(Authentication::read(authn::Sources::default()).unwrap()),
            auditing: None,
            registry: Some(Arc::new(Registry::new(TaskTracker::new(), until.clone()))),
            host: None,
            expiries: Expiries::default(),
            state: Arc::clone(&state),
        };
        TaskTracker::new().spawn(until.clone().run_until_cancelled_owned(renewal.run()));
        let [given, revoked] = [given, state.path().join(revoked::FILE)];
        let digest = format!("{} jane\n", "0a".repeat(32));
        // What is there, what a writer has half done, what is whole, again nothing new, and the same of the other file.
        let writes: [(_, &str, bool); 7] = [
            (&given, &own, false),
            (&given, "-----BEGIN CERTIFICATE-----\nMII", false),
            (&given, &second, true),
            (&given, &second, false),
            (&revoked, "0a0a", false),
            (&revoked, &digest, true),
            (&revoked, &digest, false),
        ];
        for (at, (path, text, is_other)) in writes.into_iter().enumerate() {
            fs::write(path, text).unwrap();
            let before = tls.load_full();
            sleep(RENEW_EVERY + Duration::from_secs(1)).await;
            assert_eq!(!Arc::ptr_eq(&before, &tls.load_full()), is_other, "{at}");
        }
        assert!(tls.load().revoked.contains(&[10; 32]));
        until.cancel();
    }
}
