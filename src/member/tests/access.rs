//! Credentials and the ways to a member: plugins, proxies, and what does not work.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use super::{
    registry::{eager, fleet, registry, until},
    *,
};
use crate::{
    config::{Access, ServerAccess},
    upstream::access::Credentials,
};

async fn seen(member: &Member) -> Result<String, UpstreamError> {
    let response = member.send(own("/x"), Class::Read).await?;
    let body = collect(response.into_body(), 10_000).await?;
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

/// A kubeconfig for `fake` whose user is `user` (YAML in flow style).
fn kubeconfig(folder: &std::path::Path, fake: &Fake, user: &str) -> MemberConfig {
    let access = fake.access("");
    std::fs::write(folder.join("ca.crt"), access.certificate_authority.unwrap().pem).unwrap();
    let path = folder.join("kubeconfig");
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: x, \
         clusters: [{{name: c, cluster: {{server: \"{}\", certificate-authority: ca.crt}}}}], \
         users: [{{name: u, user: {user}}}], contexts: [{{name: x, context: {{cluster: c, user: u}}}}]}}",
        access.server
    );
    std::fs::write(&path, text).unwrap();
    MemberConfig { access: Access::Kubeconfig { path, context: None, digest: 0 }, ..fake.config("east") }
}

#[tokio::test]
async fn a_plugin_gives_the_token_and_is_asked_again_when_it_is_refused() {
    let fake = Fake::http2(mirror()).await;
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("current");
    let script = format!(
        r#"printf '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"%s"}}}}' $(cat {})"#,
        token.display()
    );
    std::fs::write(folder.path().join("plugin"), script).unwrap();
    std::fs::write(&token, "one").unwrap();
    let user = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [{}], interactiveMode: Never}}}}",
        folder.path().join("plugin").display()
    );
    let member = fake::member(&kubeconfig(folder.path(), &fake, &user));
    assert!(seen(&member).await.unwrap().contains("authorization: Bearer one\n"));
    std::fs::write(&token, "two").unwrap();
    assert!(seen(&member).await.unwrap().contains("Bearer one\n"), "it gave no expiry");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    member.upstream.credential_refused().await;
    assert!(seen(&member).await.unwrap().contains("Bearer two\n"));
}

#[tokio::test]
async fn an_access_that_does_not_hold_says_why() {
    let fake = Fake::http2(mirror()).await;
    let folder = tempfile::tempdir().unwrap();
    for (user, cause) in [
        ("{as: admin}", "kubefold impersonates its callers itself"),
        ("{tokenFile: gone}", "gone: No such file"),
        ("{exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin}}", "unable to run auth exec"),
        ("{client-certificate: gone.crt, client-key: gone.key}", "gone.crt"),
    ] {
        let member = fake::member(&kubeconfig(folder.path(), &fake, user));
        let error = seen(&member).await.unwrap_err();
        assert!(matches!(error.failure, Failure::Credential(_)), "{error:?}");
        assert!(error.cause().contains(cause), "{user}: {error}");
        assert_eq!((error.blame(), error.may_have_arrived()), (Blame::Kubefold, false));
    }
}

#[tokio::test]
async fn what_a_plugin_writes_is_told_to_nobody() {
    let fake = Fake::http2(mirror()).await;
    let folder = tempfile::tempdir().unwrap();
    for script in ["echo s3cret; echo s3cret >&2; exit 3", "printf '{\"token\": s3cret'", "echo s3cret"] {
        std::fs::write(folder.path().join("plugin"), script).unwrap();
        let user = format!(
            "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [{}, s3cret], interactiveMode: Never}}}}",
            folder.path().join("plugin").display()
        );
        let member = fake::member(&kubeconfig(folder.path(), &fake, &user));
        let error = seen(&member).await.unwrap_err();
        assert!(matches!(error.failure, Failure::Credential(_)), "{error:?}");
        assert!(error.cause().contains("its credential plugin"), "{error}");
        assert!(!error.to_string().contains("s3cret"), "{script}: {error}");
    }
}

#[tokio::test]
async fn a_credential_that_others_could_read_is_told() {
    let folder = tempfile::tempdir().unwrap();
    for (cluster, exposed) in [
        ("{server: 'https://east.example'}", None),
        ("{server: 'http://east.example'}", Some("its connection is not encrypted (http)")),
        ("{server: 'http://127.0.0.1:8001'}", None),
        (
            "{server: 'https://east.example', insecure-skip-tls-verify: true}",
            Some("its certificate is not verified (insecure-skip-tls-verify)"),
        ),
    ] {
        let path = folder.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {cluster}}}]\n\
             users: [{{name: c, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n"
        );
        std::fs::write(&path, text).unwrap();
        let credentials = Credentials::read(&Access::Kubeconfig { path, context: None, digest: 0 }, None).unwrap();
        assert_eq!(credentials.exposed, exposed, "{cluster}");
    }
}

#[tokio::test]
async fn a_kubeconfig_that_leads_elsewhere_is_another_incarnation() {
    let (fake, other) = (Fake::http2(mirror()).await, Fake::http2(mirror()).await);
    let folder = tempfile::tempdir().unwrap();
    let registry = registry();
    registry.apply(&fleet(vec![eager(kubeconfig(folder.path(), &fake, "{token: a}"))])).unwrap();
    let member = registry.get("east").unwrap();
    until(&member, |health| *health == Health::Ready).await;
    kubeconfig(folder.path(), &other, "{token: longer-one}");
    member.incarnations().wait_for(|incarnation| *incarnation == 3).await.unwrap();
    assert_eq!(member.cluster_uid().as_deref(), Some(other.state.uid.lock().as_str()));
}

/// Takes one SOCKS 5 or CONNECT request per connection, notes it, and leads it to where it wants.
async fn proxy(listener: TcpListener, mut notes: mpsc::Sender<String>) {
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut head = [0; 1024];
        let count = client.read(&mut head).await.unwrap();
        let address = if head[0] == 5 {
            client.write_all(&[5, 0]).await.unwrap();
            assert_eq!(client.read(&mut head).await.unwrap(), 10);
            client.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0]).await.unwrap();
            notes.send("socks5".to_owned()).await.unwrap();
            format!("127.0.0.1:{}", u16::from_be_bytes([head[8], head[9]]))
        } else {
            let asked = String::from_utf8_lossy(&head[..count]).into_owned();
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let address = asked.split(' ').nth(1).unwrap().to_owned();
            notes.send(asked).await.unwrap();
            address
        };
        let mut server = TcpStream::connect(address).await.unwrap();
        TaskTracker::new().spawn(async move { copy_bidirectional(&mut client, &mut server).await });
    }
}

#[tokio::test]
async fn proxies_are_on_the_way_and_tls_goes_through_them() {
    let fake = Fake::http2(mirror()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (notes, mut noted) = mpsc::channel(1);
    TaskTracker::new().spawn(proxy(listener, notes));
    for (url, note) in [
        (format!("socks5://{address}"), "socks5"),
        (format!("http://me:p%40ss@{address}"), "proxy-authorization: Basic bWU6cEBzcw==\r\n"),
    ] {
        let access = ServerAccess { proxy_url: Some(url), ..fake.access("") };
        let member = fake::member(&fake::config("east", access));
        assert!(seen(&member).await.unwrap().starts_with("GET /x\n"));
        let asked = noted.next().await.unwrap();
        assert!(asked.to_ascii_lowercase().contains(&note.to_ascii_lowercase()), "{asked}");
    }
    let access = ServerAccess { proxy_url: Some(format!("https://{address}")), ..fake.access("") };
    let error = seen(&fake::member(&fake::config("east", access))).await.unwrap_err();
    assert!(error.cause().contains("http and socks5 are supported"), "{error}");
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_is_told_from_one_that_is_away() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut silent = fake::config(
        "east",
        ServerAccess { server: format!("https://{}", listener.local_addr().unwrap()), ..ServerAccess::default() },
    );
    silent.deadlines.connect = Duration::from_millis(300);
    let member = fake::member(&silent);
    // All that wait for one connection share its failure: nobody waits a turn each.
    let all = futures::future::join_all((0..20).map(|_| member.send(own("/x"), Class::Write))).await;
    for error in all.into_iter().map(|answer| answer.err().unwrap()) {
        assert!(matches!(error.failure, Failure::HandshakeTimeout(_)), "{error:?}");
        assert!(!error.may_have_arrived());
    }
    let mut connections = 0;
    while futures::FutureExt::now_or_never(listener.accept()).is_some() {
        connections += 1;
    }
    assert_eq!(connections, 1);
}
