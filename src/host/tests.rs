use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

use super::{trust::Read, *};
use crate::{
    authn::Sources,
    config::{Access, MemberName, ServiceRef},
};

fn authority() -> String {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
}

/// As a kube-apiserver 1.36 writes it.
fn written<'a>(client: &'a str, proxy: &'a str, names: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("client-ca-file", client),
        ("requestheader-client-ca-file", proxy),
        ("requestheader-allowed-names", names),
        ("requestheader-username-headers", r#"["X-Remote-User"]"#),
        ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
        ("requestheader-uid-headers", r#"["X-Remote-Uid"]"#),
        ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
    ]
}

#[test]
fn the_hosts_config_map_says_who_is_a_front_proxy_and_by_which_headers() {
    let [client, proxy] = [authority(), authority()];
    let Read { trust, faults } = Trust::of(&written(&client, &proxy, r#"["front-proxy"]"#), "east");
    assert!(faults.is_empty());
    assert_eq!(trust.client_authority.unwrap().bundle, client);
    let proxies = trust.front_proxies.unwrap();
    assert_eq!(
        (proxies.bundle, proxies.names, proxies.cluster.as_deref()),
        (proxy, vec!["front-proxy".to_owned()], Some("east"))
    );
    assert_eq!(proxies.headers.user, ["x-remote-user"]);
    assert_eq!(proxies.headers.extra_prefixes, ["x-remote-extra-"]);
}

/// An empty list of names allows every certificate of the authority, so a list that is broken must not be an empty one.
#[test]
fn what_is_broken_in_the_config_map_lets_nobody_in() {
    let [client, proxy] = [authority(), authority()];
    for (data, fault) in [
        (written(&client, &proxy, "front-proxy"), "requestheader-allowed-names: "),
        (written(&client, "-----BEGIN CERTIFICATE-----\nMII", "[]"), "requestheader-client-ca-file: "),
        (written("", &proxy, "{}"), "requestheader-allowed-names: "),
    ] {
        let Read { trust, faults } = Trust::of(&data, "east");
        assert_eq!(trust.front_proxies, None);
        assert!(faults.len() == 1 && faults[0].starts_with(fault), "{faults:?}");
    }
    let Read { trust, faults } = Trust::of(&[], "east");
    assert!(trust == Trust::default() && faults.is_empty());
}

fn host(member: Option<&str>) -> Arc<Host> {
    let service = ServiceRef { namespace: "kubefold".into(), name: "kubefold".into() };
    let member = member.and_then(MemberName::new);
    let aggregation = Aggregation { access: Access::InCluster, member, service, groups: Vec::new() };
    let authentication = Arc::new(Authentication::read(Sources::default()).unwrap());
    Host::new(Some(&aggregation), authentication)
}

/// The attack: a ServiceAccount of a member is judged as the one that has its name in the host.
#[tokio::test]
async fn whoever_is_somebody_elsewhere_alone_is_nobody_to_the_host() {
    let of = |domain: Option<&str>| Caller {
        user: "system:serviceaccount:shop:bot".to_owned(),
        domain: domain.map(str::to_owned),
        ..Caller::default()
    };
    for (host, here) in [(host(None), OUTSIDE), (host(Some("east")), "east")] {
        let action = Action { verb: "list".to_owned(), resource: "members".to_owned(), ..Action::default() };
        let denied = host.judge(&of(Some("west")), &action).await.unwrap();
        assert_eq!(denied, Judgement::Denied("the caller is somebody in west alone".into()));
        assert!(!host.is_domain_of(&of(Some("west"))) && !host.is_domain_of(&of(None)));
        assert!(host.is_domain_of(&of(Some(here))));
        // Nothing can be asked before kubefold has logged in.
        assert!(matches!(host.judge(&of(Some(here)), &action).await, Some(Judgement::Unknown(_))));
        host.configure(None);
        assert!(!host.is_domain_of(&of(Some(here))) && host.judge(&of(None), &action).await.is_none());
    }
}
