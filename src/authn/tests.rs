//! Tokens of files and of an issuer of this process, which speaks HTTPS.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use parking_lot::Mutex;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use super::{bearer::PROTOCOL, *};
use kubefold_wire::body::full;

/// An issuer's key, which it calls by a name.
struct Key {
    name: &'static str,
    pkcs8: Vec<u8>,
    point: Vec<u8>,
}

impl Key {
    fn new(name: &'static str) -> Self {
        let pkcs8 = rcgen::KeyPair::generate().unwrap().serialize_der();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8).unwrap();
        Self { name, point: pair.public_key().as_ref().to_vec(), pkcs8 }
    }

    fn jwk(&self) -> Value {
        let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&self.point[range]);
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": self.name, "x": part(1..33), "y": part(33..65)})
    }

    fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.name.to_owned()), ..Header::new(Algorithm::ES256) };
        encode(&header, claims, &EncodingKey::from_ec_der(&self.pkcs8)).unwrap()
    }
}

struct Provider {
    url: String,
    ca: String,
    keys: Arc<Mutex<Vec<Value>>>,
    asked: Arc<AtomicUsize>,
}

impl Provider {
    /// What a good token of it says.
    fn claims(&self) -> Value {
        json!({"iss": self.url, "aud": "kubefold", "exp": now_s() + 100_000, "sub": "jane", "uid": "u"})
    }
}

/// Moves the clock without waiting.
async fn forward(by: Duration) {
    tokio::time::pause();
    tokio::time::advance(by).await;
    tokio::time::resume();
}

/// Serves a discovery document and keys.
async fn provider() -> Provider {
    let _again = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let key = rcgen::KeyPair::generate().unwrap();
    let made = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let tls = rustls::ServerConfig::builder().with_no_client_auth();
    let tls = tls.with_single_cert(vec![made.der().clone()], private).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let (keys, asked): (Arc<Mutex<Vec<Value>>>, Arc<AtomicUsize>) = Default::default();
    let provider = Provider { url: url.clone(), ca: made.pem(), keys: Arc::clone(&keys), asked: Arc::clone(&asked) };
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    TaskTracker::new().spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let Ok(tls) = acceptor.accept(tcp).await else { continue };
            let (url, keys, asked) = (url.clone(), Arc::clone(&keys), Arc::clone(&asked));
            TaskTracker::new().spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let answer = match request.uri().path() {
                        "/keys" => {
                            asked.fetch_add(1, Ordering::Relaxed);
                            json!({"keys": *keys.lock()})
                        }
                        _ => json!({"issuer": url, "jwks_uri": format!("{url}/keys")}),
                    };
                    async move { Ok::<_, std::convert::Infallible>(Response::new(full(answer.to_string()))) }
                });
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ended = builder.serve_connection(TokioIo::new(tls), service).await;
            });
        }
    });
    provider
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn bearing(token: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
    headers
}

fn configuration(provider: &Provider, more: &str) -> String {
    let ca = provider.ca.lines().map(|line| format!("      {line}\n")).collect::<String>();
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: {}\n    \
         audiences: [kubefold]\n    certificateAuthority: |\n{ca}  claimMappings:\n    username: {{claim: sub, prefix: 'oidc:'}}\n    \
         groups: {{claim: groups, prefix: 'oidc:'}}\n    uid: {{claim: uid}}\n{more}",
        provider.url
    )
}

fn authentication(folder: &std::path::Path, text: &str) -> Authentication {
    let path = folder.join("authentication.yaml");
    std::fs::write(&path, text).unwrap();
    Authentication::read(Sources { configuration: Some(path), ..Sources::default() }).unwrap()
}

#[tokio::test]
async fn a_token_of_an_issuer_says_who_asks_and_until_when() {
    let (provider, folder, key) = (provider().await, tempfile::tempdir().unwrap(), Key::new("one"));
    provider.keys.lock().push(key.jwk());
    let rules = "  claimValidationRules:\n  - {claim: hd, requiredValue: example.com}\n";
    let authentication = authentication(folder.path(), &configuration(&provider, rules));
    let ends = now_s() + 600;
    let good = json!({
        "iss": provider.url, "aud": ["other", "kubefold"], "exp": ends, "sub": "jane", "uid": "u-1", "hd": "example.com",
        "groups": ["dev", "ops"],
    });
    let bearer = authentication.bearer(&bearing(&key.sign(&good))).await.unwrap();
    assert_eq!((bearer.caller.user.as_str(), bearer.ends_s), ("oidc:jane", Some(ends)));
    assert_eq!(bearer.caller.groups, ["oidc:dev", "oidc:ops", "system:authenticated"]);
    assert_eq!(bearer.caller.uid.as_deref(), Some("u-1"));
    // A browser's WebSocket says the same in its protocols.
    let mut socket = HeaderMap::new();
    let protocols = format!("v5.channel.k8s.io, {PROTOCOL}{}", URL_SAFE_NO_PAD.encode(key.sign(&good)));
    socket.insert("sec-websocket-protocol", protocols.parse().unwrap());
    assert_eq!(authentication.bearer(&socket).await.unwrap(), bearer);

    let with = |claim: &str, value: Value| {
        let mut claims = good.clone();
        claims[claim] = value;
        claims
    };
    let one = with("groups", json!("dev"));
    assert_eq!(authentication.bearer(&bearing(&key.sign(&one))).await.unwrap().caller.groups.len(), 2);
    for (claim, value) in [
        ("aud", json!("other")),
        ("iss", json!("https://other.example")),
        ("exp", json!(now_s() - 1)),
        ("nbf", json!(now_s() + 3600)),
        ("hd", json!("example.org")),
        ("sub", json!("")),
        ("sub", json!(7)),
        ("groups", json!([7])),
        ("uid", Value::Null),
    ] {
        let token = key.sign(&with(claim, value.clone()));
        assert_eq!(authentication.bearer(&bearing(&token)).await, None, "{claim}: {value}");
    }
    for headers in [HeaderMap::new(), bearing("x.y"), bearing(""), bearing("a.b.c")] {
        assert_eq!(authentication.bearer(&headers).await, None);
    }
}

#[tokio::test]
async fn nobody_signs_for_an_issuer() {
    let (provider, folder, key) = (provider().await, tempfile::tempdir().unwrap(), Key::new("one"));
    provider.keys.lock().push(key.jwk());
    let authentication = authentication(folder.path(), &configuration(&provider, ""));
    let claims = provider.claims();
    assert!(authentication.bearer(&bearing(&key.sign(&claims))).await.is_some());
    // Another key of the same name; no signature; a secret that is the public key.
    let stranger = Key::new("one").sign(&claims);
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let unsigned = format!("{}.{}.", part(json!({"alg": "none", "kid": "one"})), part(claims.clone()));
    let header = Header { kid: Some("one".into()), ..Header::new(Algorithm::HS256) };
    let shared = encode(&header, &claims, &EncodingKey::from_secret(&key.point)).unwrap();
    for forged in [stranger, unsigned, shared] {
        assert_eq!(authentication.bearer(&bearing(&forged)).await, None, "{forged}");
    }
    // Users and groups of Kubernetes' own are no issuer's to give.
    let text = configuration(&provider, "").replace("prefix: 'oidc:'", "prefix: ''");
    let bare = self::authentication(folder.path(), &text);
    let of = |sub: &str| json!({"iss": provider.url, "aud": "kubefold", "exp": now_s() + 600, "sub": sub, "uid": "u", "groups": ["system:masters", "kubefold:admins", "dev"]});
    assert_eq!(bare.bearer(&bearing(&key.sign(&of("system:admin")))).await, None);
    let jane = bare.bearer(&bearing(&key.sign(&of("jane")))).await.unwrap();
    assert_eq!(jane.caller.groups, ["dev", "system:authenticated"]);
}

#[tokio::test]
async fn keys_are_followed_and_made_up_ones_cost_the_issuer_nothing() {
    let (provider, folder) = (provider().await, tempfile::tempdir().unwrap());
    let [one, two] = [Key::new("one"), Key::new("two")];
    provider.keys.lock().push(one.jwk());
    let authentication = authentication(folder.path(), &configuration(&provider, ""));
    let claims = provider.claims();
    let knows = async |key: &Key| authentication.bearer(&bearing(&key.sign(&claims))).await.is_some();
    assert!(knows(&one).await);
    for _ in 0..20 {
        assert!(!knows(&two).await);
    }
    assert_eq!(provider.asked.load(Ordering::Relaxed), 1);
    *provider.keys.lock() = vec![two.jwk()];
    forward(Duration::from_secs(11)).await;
    assert!(knows(&two).await, "a key that is not known is asked for");
    assert!(!knows(&one).await, "a key that the issuer names no longer is nobody's");
    assert_eq!(provider.asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn an_issuer_that_is_away_takes_no_key_back() {
    let (provider, folder, key) = (provider().await, tempfile::tempdir().unwrap(), Key::new("one"));
    provider.keys.lock().push(key.jwk());
    let authentication = authentication(folder.path(), &configuration(&provider, ""));
    let claims = provider.claims();
    let token = key.sign(&claims);
    assert!(authentication.bearer(&bearing(&token)).await.is_some());
    // Not what it was asked for.
    *provider.keys.lock() = vec![json!("broken")];
    forward(Duration::from_mins(6)).await;
    assert!(authentication.bearer(&bearing(&token)).await.is_some());
    assert_eq!(provider.asked.load(Ordering::Relaxed), 2, "it was asked");
}

#[test]
fn a_signature_is_judged_and_not_what_is_signed() {
    let [one, two] = [Key::new("one"), Key::new("two")];
    let signed = |token: &str, keys: &[&Key]| {
        let unknown = json!({"kty": "of tomorrow", "kid": "new"});
        let keys: Vec<_> = keys.iter().map(|key| key.jwk()).chain([unknown]).collect();
        serde_json::from_value::<SigningKeys>(json!({"keys": keys})).unwrap().signed(token)
    };
    let token = one.sign(&json!({"sub": "x", "exp": 1}));
    assert!(signed(&token, &[&two, &one]));
    assert!(!signed(&token, &[&two]));
    assert!(!signed(&token, &[]));
    assert!(!signed(&token, &[&Key::new("one")]), "another key of the same name");
    assert!(!signed("nonsense", &[&one]));
}

#[tokio::test]
async fn tokens_of_a_file_are_a_kube_apiservers_and_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.csv");
    std::fs::write(&path, "abc,jane,u-1,\"dev,ops\"\n\ndef, bot ,,\n").unwrap();
    let authentication = Authentication::read(Sources { tokens: Some(path.clone()), ..Sources::default() }).unwrap();
    let jane = authentication.bearer(&bearing("abc")).await.unwrap();
    assert_eq!((jane.caller.user.as_str(), jane.caller.uid.as_deref(), jane.ends_s), ("jane", Some("u-1"), None));
    assert_eq!(jane.caller.groups, ["dev", "ops", "system:authenticated"]);
    assert_eq!(authentication.bearer(&bearing("def")).await.unwrap().caller.user, "bot");
    assert_eq!(authentication.bearer(&bearing("ab")).await, None);
    let mut basic = HeaderMap::new();
    basic.insert("authorization", HeaderValue::from_static("Basic abc"));
    assert_eq!(authentication.bearer(&basic).await, None);
    assert!(!authentication.reload().unwrap());
    std::fs::write(&path, "new,jane,u-1\n").unwrap();
    assert!(authentication.reload().unwrap());
    assert_eq!(authentication.bearer(&bearing("abc")).await, None);
    std::fs::write(&path, "broken\n").unwrap();
    assert!(authentication.reload().is_err());
    assert!(authentication.bearer(&bearing("new")).await.is_some(), "what is broken changes nothing");
}

#[test]
fn what_is_not_understood_is_refused_where_it_stands() {
    for (text, cause) in [
        ("a,b", "line 1: it has fewer than three fields"),
        ("x,y,z\na,\"b,c", "line 2: a quote is not closed"),
        ("a,,c", "its token or user is empty"),
        ("a,b,c\na,d,e", "line 2: another line has the same token"),
    ] {
        let error = Tokens::parse(text).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(cause), "{text}: {error}");
    }
    let base = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    let issuer = |url: &str, more: &str| format!("{base}jwt: [{{issuer: {{url: '{url}', audiences: [a]}}, {more}}}]\n");
    let named = "claimMappings: {username: {claim: sub, prefix: ''}}";
    assert_eq!(configuration::parse(&issuer("https://a.example", named)).unwrap().len(), 1);
    for (text, cause) in [
        ("kind: x\napiVersion: y\n".to_owned(), "are not apiserver.config.k8s.io/v1"),
        (format!("{base}colour: red\n"), "unknown field"),
        (format!("{base}anonymous: {{enabled: true}}\n"), "anonymous is not supported"),
        (issuer("http://a.example", named), "jwt[0].issuer.url is no https URL"),
        (
            issuer("https://a.example", "claimMappings: {username: {claim: sub}}"),
            "username has no prefix; write \"\" for none",
        ),
        (
            issuer("https://a.example", "claimMappings: {username: {expression: claims.sub}}"),
            "username has an expression, which needs CEL",
        ),
        (
            issuer("https://a.example", &format!("{named}, userValidationRules: [{{expression: a}}]")),
            "userValidationRules needs CEL",
        ),
        (
            issuer("https://a.example", &format!("{named}, claimValidationRules: [{{expression: a}}]")),
            "claimValidationRules[0] has an expression",
        ),
        (issuer("https://a.example", named).replace("audiences: [a]", "audiences: [a, b]"), "has to be MatchAny"),
        (issuer("https://a.example", named).replace("audiences: [a]", "audiences: []"), "names no audience"),
    ] {
        let error = configuration::parse(&text).unwrap_err().to_string();
        assert!(error.contains(cause) && error.lines().count() == 1, "{text}: {error}");
    }
}
