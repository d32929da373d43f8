//! Who logs in to a fleet with a token, and what he may do there: what members allow him.

use std::{path::Path, process::Stdio, time::Duration};

use http::{Method, StatusCode};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use testbed::{
    Api, FleetFile, Kubectl, Kubefold, Member, Port, Testbed, client, eventually,
    samples::{config_map, namespace},
};

const SOON: Duration = Duration::from_secs(60);

/// A provider of OpenID Connect, at whose login form a person sits.
struct Provider {
    url: String,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// Ends with the test.
    _process: Child,
}

impl Provider {
    /// Its certificate is one of a member's authority.
    async fn start(member: &Member) -> Self {
        let port = Port::reserve();
        let file = |name: &str| member.dir().join(name);
        let mut command = Command::new(client("oidc"));
        command.arg(port.number().to_string()).args(["server.crt", "server.key", "ca.crt"].map(file));
        let mut process =
            command.kill_on_drop(true).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the provider");
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = format!("https://localhost:{}", port.number());
        let mut provider = Self { url, input: process.stdin.take().unwrap(), output, _process: process };
        provider.line("ready").await;
        provider
    }

    /// The first line that begins so; it says other things, too.
    async fn line(&mut self, beginning: &str) -> String {
        let found = async {
            loop {
                let line = self.output.next_line().await.unwrap().expect("the provider goes on");
                if line.starts_with(beginning) {
                    return line;
                }
            }
        };
        tokio::time::timeout(SOON, found).await.expect("a line of the provider")
    }

    /// Logs a user in, and gives the ID token.
    async fn token(&mut self, user: &str, groups: &str) -> String {
        self.input.write_all(format!("{user} {groups}\n").as_bytes()).await.unwrap();
        // As every JSON Web Token begins.
        self.line("eyJ").await
    }

    fn configuration(&self, member: &Member) -> String {
        let ca = member.ca_pem().lines().map(|line| format!("      {line}\n")).collect::<String>();
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: {}\n    \
             audiences: [kubefold]\n    certificateAuthority: |\n{ca}  claimMappings:\n    \
             username: {{claim: sub, prefix: 'oidc:'}}\n    groups: {{claim: groups, prefix: 'oidc:'}}\n",
            self.url
        )
    }
}

fn as_token(fleet: &Kubefold, home: &Path) -> Kubectl {
    Kubectl::new(&fleet.kubeconfig_of_nobody(), home)
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_logs_in_by_a_token_may_do_what_members_allow() {
    let bed = Testbed::shared(&["east", "west"]).await;
    let (east, west) = (&bed["east"], &bed["west"]);
    for member in [east, west] {
        namespace(member, "login").await;
        member.api().await.create("/api/v1/namespaces/login/configmaps", &config_map("kept", json!({"a": "x"}))).await;
    }
    for args in [
        &["create", "role", "login", "-n", "login", "--verb=get,list,watch", "--resource=configmaps"][..],
        &["create", "rolebinding", "login", "-n", "login", "--role=login", "--group=oidc:dev", "--user=robot"],
    ] {
        east.kubectl(args).await.ok();
    }
    let mut provider = Provider::start(east).await;
    let folder = tempfile::tempdir().unwrap();
    let [configuration, tokens] = ["authentication.yaml", "tokens.csv"].map(|file| folder.path().join(file));
    std::fs::write(&configuration, provider.configuration(east)).unwrap();
    std::fs::write(&tokens, "robots-own,robot,,\n").unwrap();
    let flags =
        ["--authentication-config", configuration.to_str().unwrap(), "--token-auth-file", tokens.to_str().unwrap()];
    let fleet = Kubefold::start_with(&FleetFile::default().member(east, 1).member(west, 1), &flags).await;

    // kubectl, as a person uses it: the token is the provider's own.
    let (jane, eve) = (provider.token("jane", "dev,ops").await, provider.token("eve", "").await);
    let kubectl = as_token(&fleet, folder.path());
    let run = async |token: &str, args: &[&str]| {
        let token = format!("--token={token}");
        kubectl.run(&[args, &[token.as_str()]].concat()).await
    };
    let who = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}"];
    assert_eq!(run(&jane, &who).await.ok(), r#"oidc:jane ["oidc:dev","oidc:ops","system:authenticated"]"#);
    assert_eq!(run(&eve, &who).await.ok(), r#"oidc:eve ["system:authenticated"]"#);
    assert_eq!(run("robots-own", &who).await.ok(), r#"robot ["system:authenticated"]"#);

    // What a member allows that user, and no more.
    let maps = |member: &str| format!("/clusters/{member}/api/v1/namespaces/login/configmaps");
    let nobody = Api::from_kubeconfig(&fleet.kubeconfig_of_nobody(), None).await;
    let as_ = |token: &str| nobody.clone().with_token(token);
    for token in [jane.as_str(), "robots-own"] {
        let api = as_(token);
        let listed = api.get(&maps("east")).await;
        assert!(listed["items"].as_array().unwrap().iter().any(|item| item["metadata"]["name"] == "kept"), "{listed}");
        let refused = api.request(Method::GET, &maps("west"), "").await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused}");
        let refused = api.request(Method::POST, &maps("east"), json!({}).to_string()).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused}");
    }
    assert_eq!(as_(&eve).request(Method::GET, &maps("east"), "").await.status, StatusCode::FORBIDDEN);

    // Nobody's tokens, and one that was changed.
    let (head, _) = jane.rsplit_once('.').unwrap();
    for token in ["robots-ow", "a.b.c", &format!("{head}.c2lnbmF0dXJl"), &format!("{head}.")] {
        let refused = as_(token).request(Method::GET, &maps("east"), "").await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{token}: {refused}");
    }

    // A token that is taken out of the file counts no longer, and kubefold goes on.
    std::fs::write(&tokens, "another,robot,,\n").unwrap();
    eventually(SOON, async || {
        let answer = as_("robots-own").request(Method::GET, &maps("east"), "").await;
        if answer.status == StatusCode::UNAUTHORIZED { Ok(()) } else { Err(answer) }
    })
    .await;
    as_("another").get(&maps("east")).await;
    assert!(!fleet.log().contains("robots-own") && !fleet.log().contains(head), "no token is in the log");
}
