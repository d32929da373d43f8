//! Who logs in by the word of others: of front proxies, of a webhook, of members. And who logs in no longer.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};

use testbed::{
    Answer, Api, Authority, FleetFile, Identity, Kubectl, Kubefold, Member, MemberOptions, Testbed, eventually,
    samples::{config_map, keys, namespace},
};

const SOON: Duration = Duration::from_secs(60);
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// Lets this user or group read config maps of a namespace, in which there is one.
async fn reads(member: &Member, within: &str, whom: &str) {
    namespace(member, within).await;
    member.api().await.create(&maps(within), &config_map("kept", json!({"a": "x"}))).await;
    let role = ["create", "role", "reads", "-n", within, "--verb=get,list,watch", "--resource=configmaps"];
    member.kubectl(&role).await.ok();
    member.kubectl(&["create", "rolebinding", "reads", "-n", within, "--role=reads", whom]).await.ok();
}

fn maps(within: &str) -> String {
    format!("/api/v1/namespaces/{within}/configmaps")
}

async fn get(api: &Api, path: &str) -> Answer {
    api.request(Method::GET, path, "").await
}

/// Who asks, as the server sees it.
async fn who(api: &Api, headers: &[(&str, &str)]) -> Answer {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let json = "application/json";
    let request = Request::post(WHO).header("content-type", json).header("accept", json);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    api.send(request.body(Bytes::from(review.to_string())).unwrap()).await.unwrap()
}

fn user(answer: &Answer) -> Value {
    answer.ok()["status"]["userInfo"].clone()
}

async fn is_nobody(api: &Api, path: &str) {
    eventually(SOON, async || {
        let answer = get(api, path).await;
        if answer.status == StatusCode::UNAUTHORIZED { Ok(()) } else { Err(answer) }
    })
    .await;
}

async fn api_with(fleet: &Kubefold, name: &str, identity: &Identity) -> Api {
    Api::from_kubeconfig(&fleet.kubeconfig_with(name, identity), None).await
}

/// The flags of a kube-apiserver and of kubefold are the same, and so is what they read out of the headers.
#[tokio::test(flavor = "multi_thread")]
async fn a_front_proxy_says_who_asks() {
    let folder = tempfile::tempdir().unwrap();
    let [authority, other] = ["front-proxy-ca", "other-ca"].map(Authority::new);
    let ca = written(folder.path(), "front-proxy-ca.crt", &authority.cert_pem());
    let flags = [
        format!("--requestheader-client-ca-file={}", ca.display()),
        "--requestheader-allowed-names=front-proxy,second-proxy".to_owned(),
        "--requestheader-username-headers=X-Remote-User,X-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group,X-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-,X-More-".to_owned(),
    ];
    let options = MemberOptions { apiserver_args: flags.to_vec(), ..MemberOptions::default() };
    let bed = Testbed::start_each(&[("east", options), ("west", MemberOptions::default())]).await;
    for member in bed.members() {
        reads(member, "proxied", if member.name() == "east" { "--group=dev" } else { "--user=nobody" }).await;
    }
    let file = bed.members().iter().fold(FleetFile::default(), |file, member| file.member(member, 1));
    let fleet = Kubefold::start_with(&file, &flags.each_ref().map(String::as_str)).await;

    let identity = authority.client("front-proxy", None);
    let proxy = api_with(&fleet, "proxy", &identity).await;
    let direct = Api::from_kubeconfig(&bed["east"].kubeconfig_with("front-proxy", &identity), None).await;
    for headers in [
        &[("X-Remote-User", "jane")][..],
        &[("X-User", "second"), ("X-Remote-User", "first"), ("X-Remote-User", "third"), ("X-Group", "a")],
        &[
            ("X-Remote-User", ""),
            ("X-User", "jane"),
            ("X-Remote-Group", "dev"),
            ("X-Remote-Group", ""),
            ("X-Group", "b"),
        ],
        &[("X-Remote-User", "jane"), ("X-Remote-Group", "system:authenticated"), ("X-Remote-Group", "dev")],
        &[
            ("X-Remote-User", "jane"),
            ("X-Remote-Extra-Example.com%2FScopes", "one"),
            ("X-More-Example.com%2Fscopes", "two"),
            ("X-Remote-Extra-Bad%zz", "three"),
        ],
    ] {
        let (seen, wanted) = (who(&proxy, headers).await, who(&direct, headers).await);
        assert_eq!(user(&seen), user(&wanted), "{headers:?}");
    }
    // What members allow that user.
    let as_jane = [("X-Remote-User", "jane"), ("X-Remote-Group", "dev"), ("X-Remote-Group", "system:nodes")];
    let ask = async |api: &Api, path: &str, headers: &[(&str, &str)]| {
        let request = headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
        api.send(request.body(Bytes::new()).unwrap()).await.unwrap()
    };
    let [east, west] = ["east", "west"].map(|member| format!("/clusters/{member}{}", maps("proxied")));
    assert!(keys(&ask(&proxy, &east, &as_jane).await.ok()).contains(&"proxied/kept".to_owned()));
    assert_eq!(ask(&proxy, &west, &as_jane).await.status, StatusCode::FORBIDDEN);
    assert_eq!(user(&who(&proxy, &as_jane).await)["groups"], json!(["dev", "system:authenticated"]));
    // Who names nobody, or one of Kubernetes' own, and whoever is no front proxy.
    for nobody in [&[][..], &[("X-Remote-Group", "dev")], &[("X-Remote-User", "system:node:n1")]] {
        assert_eq!(ask(&proxy, &east, nobody).await.status, StatusCode::UNAUTHORIZED, "{nobody:?}");
    }
    for (name, identity) in
        [("unnamed", authority.client("somebody", None)), ("foreign", other.client("front-proxy", None))]
    {
        let answer = ask(&api_with(&fleet, name, &identity).await, &east, &as_jane).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{name}: {answer}");
    }
    let eve = Api::from_kubeconfig(&fleet.kubeconfig_for("eve", None), None).await;
    assert_eq!(user(&who(&eve, &as_jane).await)["username"], "eve", "her headers say nothing");
    // A watch of the old authority ends with it, and another one counts without a restart.
    let request = as_jane
        .iter()
        .fold(Request::get(format!("{east}?watch=true")), |request, (name, value)| request.header(*name, *value));
    let mut watch = proxy.watch_by(request.body(Bytes::new()).unwrap()).await;
    fs::write(&ca, other.cert_pem()).unwrap();
    while watch.next(SOON).await.is_some() {}
    assert_eq!(ask(&proxy, &east, &as_jane).await.status, StatusCode::UNAUTHORIZED);
    let second = api_with(&fleet, "second", &other.client("second-proxy", None)).await;
    assert_eq!(ask(&second, &east, &as_jane).await.status, StatusCode::OK);
}

/// The webhook is a kube-apiserver that knows opaque tokens.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_says_whose_a_token_is_that_nobody_else_knows() {
    let folder = tempfile::tempdir().unwrap();
    let tokens =
        "of-jane,jane,u-1,\"dev,system:nodes,kubefold:admins\"\nof-node,system:node:n1,,system:nodes\nof-eve,eve,,\n";
    let tokens = written(folder.path(), "tokens.csv", tokens);
    let audited = MemberOptions { audit: true, ..MemberOptions::default() };
    let knows =
        MemberOptions { apiserver_args: vec![format!("--token-auth-file={}", tokens.display())], ..audited.clone() };
    let bed = Testbed::start_each(&[("east", audited), ("knowing", knows)]).await;
    let (east, knowing) = (&bed["east"], &bed["knowing"]);
    reads(east, "hooked", "--user=jane").await;
    east.kubectl(&["create", "serviceaccount", "bot", "-n", "hooked"]).await.ok();
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let kubeconfig = fs::read_to_string(knowing.kubeconfig()).unwrap();
    let kubeconfig = kubeconfig.replace(&knowing.server_url(), &format!("{}{reviews}", knowing.server_url()));
    let webhook = written(folder.path(), "webhook.kubeconfig", &kubeconfig);
    let flags = [
        format!("--authentication-token-webhook-config-file={}", webhook.display()),
        "--authentication-token-webhook-cache-ttl=1s".to_owned(),
    ];
    let fleet =
        Kubefold::start_with(&FleetFile::default().member(east, 1), &flags.each_ref().map(String::as_str)).await;
    let nobody = Api::from_kubeconfig(&fleet.kubeconfig_of_nobody(), None).await;
    let as_ = |token: &str| nobody.clone().with_token(token);
    let jane = as_("of-jane");
    let path = maps("hooked");
    let told = json!({"username": "jane", "uid": "u-1", "groups": ["dev", "system:authenticated"]});
    assert_eq!(user(&who(&jane, &[]).await), told);
    assert_eq!(keys(&get(&jane, &path).await.ok()), ["hooked/kept@east"]);
    assert_eq!(get(&jane, "/metrics").await.status, StatusCode::FORBIDDEN, "it names nobody of kubefold's own");
    assert_eq!(user(&who(&as_("of-eve"), &[]).await)["username"], "eve");
    for other in ["of-node", "of-nobody", "a.b.c"] {
        assert_eq!(get(&as_(other), &path).await.status, StatusCode::UNAUTHORIZED, "{other}");
    }
    // A member's token is shown to that member alone, and the others to no member.
    let asked = |member: &Member| {
        let is_review = |event: &&Value| event["objectRef"]["resource"] == "tokenreviews";
        member.audit().iter().filter(is_review).count()
    };
    assert_eq!(asked(east), 0);
    let before = asked(knowing);
    assert!(before >= 4, "{before}");
    let bot = east.kubectl(&["create", "token", "bot", "-n", "hooked"]).await.ok().trim().to_owned();
    assert_eq!(user(&who(&as_(&bot), &[]).await)["username"], "system:serviceaccount:hooked:bot");
    let (signed, _) = bot.rsplit_once('.').unwrap();
    assert_eq!((asked(east), asked(knowing)), (1, before));
    assert_eq!(get(&as_(&format!("{signed}.c2lnbmF0dXJl")), &path).await.status, StatusCode::UNAUTHORIZED);
    // The webhook is down: its last answer counts, and tokens that it never answered for are refused.
    knowing.stop_apiserver();
    let fresh = Duration::from_secs(2);
    let begun = tokio::time::Instant::now();
    eventually(SOON, async || {
        assert_eq!(user(&who(&jane, &[]).await), told);
        if begun.elapsed() > fresh { Ok(()) } else { Err("its word is still fresh") }
    })
    .await;
    assert_eq!(get(&as_("of-someone"), &path).await.status, StatusCode::UNAUTHORIZED);
    assert!(
        fleet.log().contains("the token webhook does not say whose a token is") && !fleet.log().contains("of-jane")
    );
    // Another webhook has said nothing yet.
    written(folder.path(), "webhook.kubeconfig", &kubeconfig.replace("tokenreviews", "nothing"));
    is_nobody(&jane, &path).await;
    written(folder.path(), "webhook.kubeconfig", &kubeconfig);
    knowing.start_apiserver().await;
    eventually(SOON, async || {
        let answer = who(&jane, &[]).await;
        if answer.status.is_success() { Ok(()) } else { Err(answer) }
    })
    .await;
}

/// Has a certificate made for a user, as Kubernetes' documentation says, and all of it through the fleet.
async fn signed(fleet: &Kubefold, member: &str, user: &str, group: &str) -> Identity {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, user);
    params.distinguished_name.push(rcgen::DnType::OrganizationName, group);
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    let request = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, request);
    let name = format!("{user}@{member}");
    let manifest = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name}, "spec": {"request": request, "signerName": "kubernetes.io/kube-apiserver-client",
            "expirationSeconds": 3600, "usages": ["client auth"]}});
    fleet.as_admin().run_with_input(&["create", "-f", "-"], &manifest.to_string()).await.ok();
    fleet.kubectl(&["certificate", "approve", &name]).await.ok();
    let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
    let api = fleet.api().await;
    let certificate = eventually(SOON, async || {
        let made = api.get(&path).await;
        made["status"]["certificate"].as_str().map(str::to_owned).ok_or(made)
    })
    .await;
    let certificate = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, certificate).unwrap();
    Identity { cert_pem: String::from_utf8(certificate).unwrap(), key_pem: key.serialize_pem() }
}

#[tokio::test(flavor = "multi_thread")]
async fn whom_a_member_has_signed_a_certificate_for_acts_in_that_member() {
    let bed = Testbed::shared_with_workloads(&["east", "west"]).await;
    for member in bed.members() {
        reads(member, "signed", "--user=signed-jane").await;
    }
    let file = bed.members().iter().fold(FleetFile::default(), |file, member| file.member(member, 1));
    let fleet = Kubefold::start(&file).await;
    let identity = signed(&fleet, "east", "signed-jane", "dev").await;
    let (path, folder) = (maps("signed"), tempfile::tempdir().unwrap());
    let kubeconfig = fleet.kubeconfig_with("signed-jane", &identity);
    let jane = Api::from_kubeconfig(&kubeconfig, None).await;
    let listed = eventually(SOON, async || {
        let answer = get(&jane, &path).await;
        if answer.status == StatusCode::OK { Ok(answer) } else { Err(answer) }
    })
    .await;
    // The equal name in west is somebody else's.
    let mut seen = keys(&listed.ok());
    seen.retain(|key| key.contains("kept"));
    assert_eq!(seen, ["signed/kept@east"]);
    assert!(listed.warnings().iter().any(|warning| warning.contains("member west")), "{listed}");
    assert_eq!(get(&jane, &format!("/clusters/east{path}")).await.status, StatusCode::OK);
    for foreign in [format!("/clusters/west{path}"), format!("{path}/kept@west"), format!("/views/strict{path}")] {
        let refused = get(&jane, &foreign).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{foreign}: {refused}");
        assert!(refused.json()["message"].as_str().unwrap().contains("member east"), "{refused}");
    }
    let kubectl = Kubectl::new(&kubeconfig, folder.path());
    let whoami = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}"];
    assert_eq!(kubectl.run(&whoami).await.ok(), r#"signed-jane ["dev","system:authenticated"]"#);
    let names = kubectl.run(&["get", "configmaps", "-n", "signed", "-o", "name"]).await.ok().to_owned();
    assert!(names.contains("configmap/kept@east") && !names.contains("west"), "{names}");
    // An administrator of one member is none of the fleet.
    let admin = api_with(&fleet, "admin-of-east", &bed["east"].identity_of("admin", Some("system:masters"))).await;
    let told = user(&who(&admin, &[]).await);
    assert!(told["groups"].as_array().unwrap().contains(&json!("system:masters")), "{told}");
    assert_eq!(get(&admin, "/clusters/east/api/v1/secrets").await.status, StatusCode::OK);
    for path in ["/metrics", "/kubefold/v1/status", "/clusters/west/api/v1/secrets"] {
        let refused = get(&admin, path).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}: {refused}");
    }
    let refused = admin.request(Method::POST, "/kubefold/v1/plan", "{}").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused}");
    // A member that is taken out of the fleet logs nobody in.
    fleet.configure(&FleetFile::default().member(&bed["west"], 1));
    is_nobody(&jane, &path).await;
}

/// Each could name the other one's users.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_two_members_accept_is_nobodys() {
    let bed = Testbed::start(&["east", "west"], MemberOptions::default()).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let file = FleetFile::default().member(east, 1).member(west, 1);
    let identity = west.identity_of("jane", None);
    let asks = async |fleet: &Kubefold, wanted: StatusCode| {
        let api = api_with(fleet, "jane", &identity).await;
        eventually(SOON, async || {
            let answer = who(&api, &[]).await;
            if answer.status == wanted { Ok(answer) } else { Err(format!("{answer}\n{}", fleet.log())) }
        })
        .await
    };
    let fleet = Kubefold::start(&file).await;
    assert_eq!(user(&asks(&fleet, StatusCode::CREATED).await)["username"], "jane");
    // East says that it accepts them, too.
    let ca = east.dir().join("ca.crt");
    fs::write(&ca, east.ca_pem() + &west.ca_pem()).unwrap();
    east.stop_apiserver();
    east.start_apiserver().await;
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let of_both = west.ca_pem();
    eventually(SOON, async || {
        let said = east.api().await.get(path).await;
        let is_there = said["data"]["client-ca-file"].as_str().is_some_and(|bundle| bundle.contains(of_both.trim()));
        if is_there { Ok(()) } else { Err(said) }
    })
    .await;
    fleet.restart().await;
    eventually(SOON, async || {
        let log = fleet.log();
        if log.contains("these members have one authority of client certificates") { Ok(()) } else { Err(log) }
    })
    .await;
    asks(&fleet, StatusCode::UNAUTHORIZED).await;
    // The remedy: whoever the authority names is somebody in the whole fleet.
    let given = written(fleet.state_dir().parent().unwrap(), "given.crt", &west.ca_pem());
    let fleet = Kubefold::start_with(&file, &["--client-ca-file", given.to_str().unwrap()]).await;
    asks(&fleet, StatusCode::CREATED).await;
}

/// Authorities in the configuration, each with its domain, come and go without a restart.
#[tokio::test(flavor = "multi_thread")]
async fn each_authority_of_the_configuration_has_its_domain() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    for member in [east, west] {
        reads(member, "domains", "--user=jane").await;
    }
    let folder = tempfile::tempdir().unwrap();
    let [partners, of_east, other] = ["partners", "of-east", "other"].map(Authority::new);
    let of_partners = written(folder.path(), "partners.crt", &partners.cert_pem());
    let in_east = written(folder.path(), "of-east.crt", &of_east.cert_pem());
    let file = FleetFile::default().member(east, 1).member(west, 1);
    let with =
        |authorities: &[String]| file.clone().settings(&format!("clientAuthorities: [{}]", authorities.join(", ")));
    let of_fleet = format!("{{file: {}}}", of_partners.display());
    let of_member = format!("{{file: {}, member: east}}", in_east.display());
    let fleet = Kubefold::start(&file).await;
    let path = maps("domains");
    let partner = api_with(&fleet, "partner", &partners.client("jane", None)).await;
    let jane = api_with(&fleet, "jane", &of_east.client("jane", None)).await;
    let admin = api_with(&fleet, "admin", &of_east.client("root", Some("system:masters"))).await;
    for api in [&partner, &jane, &admin] {
        assert_eq!(get(api, &path).await.status, StatusCode::UNAUTHORIZED);
    }
    fleet.configure(&with(&[of_fleet.clone(), of_member.clone()]));
    let shows = async |api: &Api, wanted: &[&str]| {
        eventually(SOON, async || {
            let answer = get(api, &path).await;
            let is_it = answer.status == StatusCode::OK && keys(&answer.json()) == wanted;
            if is_it { Ok(()) } else { Err(answer) }
        })
        .await;
    };
    shows(&partner, &["domains/kept@east", "domains/kept@west"]).await;
    // As certificates of the member's own authority.
    shows(&jane, &["domains/kept@east"]).await;
    assert_eq!(get(&jane, &format!("/clusters/west{path}")).await.status, StatusCode::FORBIDDEN);
    assert_eq!(get(&admin, "/clusters/east/api/v1/nodes").await.status, StatusCode::OK);
    for elsewhere in ["/clusters/west/api/v1/nodes", "/metrics", "/kubefold/v1/status"] {
        let answer = get(&admin, elsewhere).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{elsewhere}: {answer}");
    }
    let [node, everywhere] =
        [&of_east, &partners].map(|authority| authority.client("system:node:n1", Some("system:nodes")));
    let node = api_with(&fleet, "node", &node).await;
    assert_eq!(user(&who(&node, &[]).await)["groups"], json!(["system:nodes", "system:authenticated"]));
    let everywhere = api_with(&fleet, "node-everywhere", &everywhere).await;
    assert_eq!(get(&everywhere, &path).await.status, StatusCode::UNAUTHORIZED);
    // What the member says itself goes on to count.
    let signed = api_with(&fleet, "signed", &east.identity_of("jane", None)).await;
    shows(&signed, &["domains/kept@east"]).await;

    // Another authority in the file, and an entry less.
    let mut watch = jane.watch(&format!("{path}?watch=true")).await;
    fs::write(&in_east, other.cert_pem()).unwrap();
    is_nobody(&jane, &path).await;
    while watch.next(SOON).await.is_some() {}
    shows(&api_with(&fleet, "later", &other.client("jane", None)).await, &["domains/kept@east"]).await;
    fleet.configure(&with(&[of_member]));
    is_nobody(&partner, &path).await;
    // A file that is no certificate is refused, and what counted before goes on to.
    fs::write(&in_east, "-----BEGIN CERTIFICATE-----\nMII").unwrap();
    eventually(SOON, async || if fleet.log().contains("file holds") { Ok(()) } else { Err(fleet.log()) }).await;
    shows(&api_with(&fleet, "last", &other.client("jane", None)).await, &["domains/kept@east"]).await;
}

/// A certificate of kubefold's own, a colleague's, ends before its time, and with it what is open.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_revoked_is_out_and_so_is_what_is_open() {
    let bed = Testbed::shared(&["east"]).await;
    reads(&bed["east"], "revoked", "--group=revoked").await;
    let folder = tempfile::tempdir().unwrap();
    let tokens = written(folder.path(), "tokens.csv", "robots-own,robot,,revoked\n");
    let file = FleetFile::default().member(&bed["east"], 1);
    let fleet = Kubefold::start_with(&file, &["--token-auth-file", tokens.to_str().unwrap()]).await;
    let made = fleet.command(&["kubeconfig", "--user", "jane", "--group", "revoked"]).await;
    let kubeconfig = written(folder.path(), "jane.kubeconfig", std::str::from_utf8(&made.stdout).unwrap());
    let jane = Api::from_kubeconfig(&kubeconfig, None).await;
    let robot = Api::from_kubeconfig(&fleet.kubeconfig_of_nobody(), None).await.with_token("robots-own");
    let path = maps("revoked");
    let kubectl = Kubectl::new(&kubeconfig, folder.path());
    kubectl.run(&["get", "configmaps", "-n", "revoked"]).await.ok();
    let mut watches = Vec::new();
    for (api, path) in [(&jane, path.clone()), (&jane, format!("/clusters/east{path}")), (&robot, path.clone())] {
        let watch = api.watch(&format!("{path}?watch=true")).await;
        assert_eq!(watch.status, StatusCode::OK, "{path}");
        watches.push(watch);
    }
    // By its kubeconfig, which is what an administrator has.
    let done = fleet.command(&["revoke", kubeconfig.to_str().unwrap()]).await;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && said.contains("CN=jane") && said.ends_with(": revoked\n"), "{done:?}");
    written(folder.path(), "tokens.csv", "another,robot,,revoked\n");
    for watch in &mut watches {
        while let Some(event) = watch.next(SOON).await {
            assert_ne!(event["type"], "DELETED", "{event}");
        }
    }
    for api in [&jane, &robot] {
        assert_eq!(get(api, &path).await.status, StatusCode::UNAUTHORIZED);
    }
    let refused = kubectl.run(&["get", "configmaps", "-n", "revoked"]).await;
    assert!(refused.stderr.contains("Unauthorized") || refused.stderr.contains("logged in"), "{refused}");
    // The administrator's own: kubefold makes a new one.
    let old = Api::from_kubeconfig(&fleet.kubeconfig(), None).await;
    let done = fleet.command(&["revoke", fleet.kubeconfig().to_str().unwrap()]).await;
    assert!(done.status.success(), "{done:?}");
    is_nobody(&old, &path).await;
    let new = fleet.command(&["kubeconfig"]).await;
    let new = written(folder.path(), "admin.kubeconfig", std::str::from_utf8(&new.stdout).unwrap());
    assert_eq!(get(&Api::from_kubeconfig(&new, None).await, &path).await.status, StatusCode::OK);
}
