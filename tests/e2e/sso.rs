//! People log in by `kubefold login`: kubectl runs it, a browser opens once, and tokens are renewed by themselves.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use testbed::{
    FleetFile, Kubectl, Kubefold, Member, Testbed, eventually,
    samples::{config_map, namespace},
};

use crate::provider::{Desk, Provider};

const SOON: Duration = Duration::from_secs(60);
const WHO: [&str; 4] = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}"];
const JANE: &str = r#"oidc:jane ["oidc:dev","system:authenticated"]"#;

/// A fleet that knows the provider's users, and a namespace in which the first member lets the developers read.
async fn fleet(east: &Member, west: &Member, provider: &mut Provider, folder: &Path, space: &str) -> Kubefold {
    for member in [east, west] {
        namespace(member, space).await;
        let maps = format!("/api/v1/namespaces/{space}/configmaps");
        member.api().await.create(&maps, &config_map("kept", json!({}))).await;
    }
    for args in [
        &["create", "role", "sso", "-n", space, "--verb=get,list,watch", "--resource=configmaps"][..],
        &["create", "rolebinding", "sso", "-n", space, "--role=sso", "--group=oidc:dev"],
    ] {
        east.kubectl(args).await.ok();
    }
    provider.account("jane", "dev").await;
    let configuration = folder.join("authentication.yaml");
    fs::write(&configuration, provider.configuration(east)).unwrap();
    let flags = ["--authentication-config", configuration.to_str().unwrap()];
    Kubefold::start_with(&FleetFile::default().member(east, 1).member(west, 1), &flags).await
}

/// The kubeconfig that an administrator hands out.
async fn handed_out(fleet: &Kubefold, east: &Member, provider: &Provider, folder: &Path, flags: &[&str]) -> PathBuf {
    let ca = east.dir().join("ca.crt");
    let issuer = ["--oidc-issuer-url", &provider.url, "--oidc-client-id", "kubefold"];
    // This provider gives refresh tokens to those who agreed to that.
    let authority = ["--oidc-certificate-authority", ca.to_str().unwrap(), "--oidc-auth-param", "prompt=consent"];
    let made = fleet.command(&[&["kubeconfig"], &issuer[..], &authority, flags].concat()).await;
    assert!(made.status.success(), "{made:?}");
    let path = folder.join("sso.kubeconfig");
    fs::write(&path, made.stdout).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_logs_in_by_a_browser_once() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let folder = tempfile::tempdir().unwrap();
    let mut provider = Provider::start(east).await;
    let fleet = fleet(east, west, &mut provider, folder.path(), "sso-browser").await;
    let kubeconfig = handed_out(&fleet, east, &provider, folder.path(), &[]).await;
    let text = fs::read_to_string(&kubeconfig).unwrap();
    assert!(!text.contains("client-key-data") && !text.contains("token:"), "no secret: {text}");
    let desk = Desk::of("jane", folder.path(), east);
    let kubectl = desk.kubectl(&kubeconfig);

    // So short that it has to be renewed when it is next used.
    provider.life(10).await;
    let said = kubectl.run(&WHO).await;
    assert_eq!(said.ok(), JANE, "{said}");
    assert!(said.stderr.contains(&format!("log in in the browser that opens, or at {}", provider.url)), "{said}");
    let sent = desk.opened();
    assert!(sent.len() == 1 && sent[0].contains("code_challenge_method=S256"), "{sent:?}");
    eventually(SOON, async || desk.shown().contains("You are logged in").then_some(()).ok_or_else(|| desk.shown()))
        .await;

    provider.life(600).await;
    let said = kubectl.run(&["get", "configmaps", "-n", "sso-browser", "-o", "name"]).await;
    assert_eq!(said.ok(), "configmap/kept@east\n", "{said}");
    assert!(provider.grants("refresh_token").await > 0, "the token was renewed");
    let renewed = provider.grants("refresh_token").await;
    let said = kubectl.in_context("fleet-east").run(&WHO).await;
    assert_eq!((said.ok(), &*said.stderr), (JANE, ""), "{said}");
    assert_eq!(provider.grants("refresh_token").await, renewed, "a token that lasts is used again");
    assert_eq!(provider.grants("authorization_code").await, 1);
    assert_eq!(desk.opened().len(), 1, "nobody was asked again");
    only_the_user_reads_what_is_kept(folder.path());
    jane_asks_why(&desk, &kubeconfig).await;

    // Two programs at once, after a logout.
    let out = desk.kubefold(&["logout", "--issuer-url", "https://other.example"], &[]).await;
    assert_eq!(String::from_utf8_lossy(&out.stdout), "nobody was logged in\n");
    let out = desk.kubefold(&["logout"], &[]).await;
    assert_eq!(String::from_utf8_lossy(&out.stdout), format!("logged out jane at {}\n", provider.url), "{out:?}");
    let (one, other) = tokio::join!(kubectl.run(&WHO), kubectl.run(&WHO));
    assert_eq!((one.ok(), other.ok()), (JANE, JANE));
    assert_eq!(desk.opened().len(), 2, "one asked the person, the other one waited");
    assert_eq!(provider.grants("authorization_code").await, 2);
}

fn only_the_user_reads_what_is_kept(home: &Path) {
    let cache = home.join(".cache/kubefold/login");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&cache), 0o700);
    let files: Vec<PathBuf> = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect();
    let kept: Vec<&PathBuf> = files.iter().filter(|path| path.extension().unwrap() == "json").collect();
    assert_eq!(kept.iter().map(|path| mode(path)).collect::<Vec<_>>(), [0o600]);
}

/// She may read neither kubefold's status nor anybody's bindings.
async fn jane_asks_why(desk: &Desk, kubeconfig: &Path) {
    let of = ["list", "configmaps", "-n", "sso-browser", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let said = desk.kubefold(&[&["can-i"], &of[..]].concat(), &[]).await;
    let text = String::from_utf8_lossy(&said.stdout);
    let rows: Vec<&str> = text.lines().collect();
    assert!(rows.len() == 3 && rows[1].starts_with("east     yes") && rows[2].starts_with("west     no"), "{said:?}");
    let said = desk.kubefold(&[&["auth", "explain"], &of[..]].concat(), &[]).await;
    let text = String::from_utf8_lossy(&said.stdout);
    for line in [
        "user oidc:jane, groups oidc:dev, system:authenticated\n",
        "no rule allows it; this login may not read which bindings there are\n",
        "in the fleet view: the answer has the objects of east, and a Warning names west; /views/strict/ answers 403\n",
        "  kubectl --context fleet-west create role oidc:jane-list-configmaps --verb=list --resource=configmaps -n sso-browser\n",
    ] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_logs_in_by_a_code_on_another_machine() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    let folder = tempfile::tempdir().unwrap();
    let mut provider = Provider::start(east).await;
    let fleet = fleet(east, west, &mut provider, folder.path(), "sso-device").await;
    let kubeconfig = handed_out(&fleet, east, &provider, folder.path(), &["--oidc-flow", "device"]).await;
    let desk = Desk::of("jane", folder.path(), east);
    let kubectl: Kubectl = desk.kubectl(&kubeconfig);
    let mut waiting = kubectl.start(&WHO);
    let url = eventually(SOON, async || {
        assert_eq!(waiting.exited(), None, "{}", waiting.output());
        let said = waiting.output();
        let (_, rest) = said.split_once("kubefold: open ").ok_or_else(|| said.clone())?;
        let (url, _) =
            rest.split_once(" in a browser on any machine, and check the code ").ok_or_else(|| said.clone())?;
        Ok::<_, String>(url.to_owned())
    })
    .await;
    let page = desk.browse(&url, "jane", east).await;
    assert!(page.starts_with("200 ") && page.contains("Sign-in Success"), "{page}");
    waiting.wait(SOON).await;
    assert!(waiting.output().ends_with(JANE), "{}", waiting.output());
    let again = kubectl.run(&WHO).await;
    assert_eq!((again.ok(), &*again.stderr), (JANE, ""), "{again}");
    assert_eq!(desk.opened().len(), 0, "no browser on this machine");
}

/// Each failure is one sentence that says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_fails_says_why() {
    let bed = Testbed::shared(&["east"]).await;
    let east = &bed["east"];
    let folder = tempfile::tempdir().unwrap();
    let mut provider = Provider::start(east).await;
    provider.account("jane", "").await;
    let desk = Desk::of("jane", folder.path(), east);
    let ca = east.dir().join("ca.crt");
    let ca = ["--certificate-authority", ca.to_str().unwrap()];
    let login = async |issuer: &str, client: &str, more: &[&str], environment: &[(&str, &str)]| {
        let flags = ["login", "--issuer-url", issuer, "--client-id", client];
        desk.kubefold(&[&flags[..], more].concat(), environment).await
    };
    let elsewhere = format!("{}/tenant", provider.url);
    let slash = format!("{}/", provider.url);
    let prefers_old = json!({"apiVersion": "client.authentication.k8s.io/v1alpha1"}).to_string();
    for (said, words) in [
        (login(&elsewhere, "kubefold", &ca, &[]).await, "--issuer-url is not the URL of an OpenID Connect issuer"),
        (login(&slash, "kubefold", &ca, &[]).await, "give --issuer-url exactly so"),
        (
            login(&provider.url, "kubefold", &[], &[]).await,
            "name the authority of its certificate with --certificate-authority",
        ),
        (login("https://localhost:1", "kubefold", &ca, &[]).await, "is --issuer-url right, and is the issuer reached"),
        (
            login(&provider.url, "nobody", &[&ca[..], &["--flow=device"]].concat(), &[]).await,
            r#"may the client "nobody" use the device flow?"#,
        ),
        (
            login(&provider.url, "kubefold", &ca, &[("KUBERNETES_EXEC_INFO", &prefers_old)]).await,
            "write client.authentication.k8s.io/v1 there",
        ),
        (
            login(&provider.url, "kubefold", &[&ca[..], &["--auth-param=max_age=x"]].concat(), &[]).await,
            "refuses the login: invalid_request",
        ),
    ] {
        let text = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.code() == Some(1) && said.stdout.is_empty(), "{said:?}");
        assert!(text.lines().last().unwrap().contains(words), "no {words:?} in {text}");
    }
    let listen = login(&provider.url, "kubefold", &["--listen=0.0.0.0:80"], &[]).await;
    assert_eq!(listen.status.code(), Some(64), "{listen:?}");

    // A client with a secret, and the version that older programs ask for.
    let secret = folder.path().join("secret");
    fs::write(&secret, "of-the-office\n").unwrap();
    let flags = [&ca[..], &["--client-secret-file", secret.to_str().unwrap(), "--listen=localhost:0"]].concat();
    let version = "client.authentication.k8s.io/v1beta1";
    let info = json!({"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": false}}).to_string();
    let said = login(&provider.url, "office", &flags, &[("KUBERNETES_EXEC_INFO", &info)]).await;
    assert!(said.status.success(), "{said:?}\n{}", desk.shown());
    let made: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!((&made["apiVersion"], &made["kind"]), (&json!(version), &json!("ExecCredential")));
    assert!(made["status"]["token"].as_str().unwrap().starts_with("eyJ"), "{made}");
    assert!(made["status"]["expirationTimestamp"].as_str().unwrap().ends_with('Z'), "{made}");
    fs::write(&secret, "another").unwrap();
    desk.kubefold(&["logout"], &[]).await;
    let said = login(&provider.url, "office", &flags, &[]).await;
    assert!(String::from_utf8_lossy(&said.stderr).contains("refuses the token: "), "{said:?}");
}
