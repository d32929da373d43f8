//! What rules find out of URLs, at a kube-apiserver and at the embedded server.

use serde_json::{Value, json};

use super::writes::{Server, step};

const LINKS: &str = "/apis/urls.example.com/v1/namespaces/default/links";

/// What Go's own tests have of URLs, and more of their kind.
const URLS: &[&str] = &[
    "https://user:pass@example.com:80/path?query=val#fragment",
    "/absolute-path",
    "https://a:b:c/",
    "../relative-path",
    "",
    "*",
    "/",
    "//",
    "///x",
    "//a:b:c/x",
    "//host/x",
    "http:",
    "http://",
    "http:/x",
    "http:///x",
    "HTTP://Example.COM/Up",
    "mailto:ann@example.com?subject=a+b",
    ":x",
    "1http://x/",
    "a_b://x/",
    "http://example.com",
    "http://example.com:",
    "http://example.com:80/",
    "http://example.com:8x/",
    "http://example.com:-1/",
    "http://a b.com/",
    "http://a%20b.com/",
    "http://%41.com/",
    "http://%c3%a4.com/",
    "http://ä.com/ä?ä=ä#ä",
    "http://[::1]/",
    "http://[::1]:80/",
    "http://[::1]x/",
    "http://[::1/",
    "http://x[::1]/",
    "http://[1.2.3.4]/",
    "http://[::ffff:1.2.3.4]/",
    "http://[fe80::1%25en0]:8080/",
    "http://[fe80::1%25%65n0]/",
    "http://[fe80::1%en0]/",
    "http://1.2.3.4:80/",
    "http://a@b@c/",
    "http://a:b@c/",
    "http://a%3ab:c%40d@e/",
    "http://a b@c/",
    "http://@c/",
    "http://a<b>c/",
    "http://a\"b/",
    "http://a^b/",
    "http://x/a b",
    "http://x/a%20b",
    "http://x/a%2fb",
    "http://x/a%2Fb c",
    "http://x/%",
    "http://x/%z1",
    "http://x/%1",
    "http://x/a(b)*!'[c]",
    "http://x/\u{e4}\u{1f600}",
    "http://x/a;b,c=d",
    "http://x?",
    "http://x??",
    "http://x/?a=1&b=2&a=3",
    "http://x/?a=%zz&b=1",
    "http://x/?a;b&c=1",
    "http://x/?a+b=c+d&e",
    "http://x/?=1&&b",
    "http://x/#",
    "http://x/#%zz",
    "http://x/?q#%zz",
    "http://x/#a#b",
    "http://x/# (!)",
    "http://x/a#b?c",
    "http://x/a\u{7f}",
    "http://x/a\tb",
    "x:y:z",
    "http://a,b:1,c:2/",
    "postgres://a:1,b:2/x",
    "postgres://a:1,b:x/x",
];

/// Each is told as a message. What is put together of them would cost too much by estimate: nobody knows how long they are.
const PARTS: &[&str] = &[
    "url(self).getScheme()",
    "url(self).getHost()",
    "url(self).getHostname()",
    "url(self).getPort()",
    "url(self).getEscapedPath()",
    "url(self).getQuery()['a'][0]",
    "url(self).getQuery()['a'][1]",
    "url(self).getQuery()['b'][0]",
    "url(self).getQuery()['c'][0]",
    "url(self).getQuery()['a b'][0]",
    "url(self).getQuery()['\u{e4}'][0]",
    "url(self).getQuery()[''][0]",
];

/// Each is broken by some URLs, and cannot be evaluated with those that are none.
const RULES: &[&str] = &[
    "!isURL(self)",
    "url(self).getQuery().size() == 0",
    "url(self).getQuery().size() == 1",
    "url(self) == url(self) && url(self).getHost().size() < 0",
    "url(self) != url('http://x/a%2fb')",
    "!isURL(self) || url(self) != url('http://x/%61%20b')",
    "!isURL(self) || url(self) != url('http://x?')",
    "!isURL(self) || url(self) != url('http://a:b@c/')",
    "!isURL(self) || url(self) != url('http://x/#a%23b')",
    "!isURL(self) || url(self) != url('http://%C3%A4.com/\u{e4}?\u{e4}=\u{e4}#\u{e4}')",
    "!isURL(self) || !(url(self) in [url('/'), url('http:/x'), url('///x')])",
];

fn definition() -> Value {
    let parts = PARTS.iter().map(|part| json!({"rule": "false", "messageExpression": part}));
    let rules: Vec<Value> = parts.chain(RULES.iter().map(|rule| json!({"rule": rule}))).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "links.urls.example.com"},
        "spec": {"group": "urls.example.com", "scope": "Namespaced",
            "names": {"plural": "links", "kind": "Link"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"urls": {"type": "array", "maxItems": 100, "items": {
                    "type": "string", "maxLength": 64, "x-kubernetes-validations": rules}}}}}}]},
    })
}

/// Compares what both servers say of each URL.
pub(super) async fn compare(real: &Server, own: &Server, wrong: &mut String) {
    for server in [real, own] {
        server.define(&definition(), LINKS).await;
    }
    for url in URLS {
        let link =
            json!({"apiVersion": "urls.example.com/v1", "kind": "Link", "metadata": {"name": "it"}, "urls": [url]});
        let step = step("POST", LINKS, link);
        let (said, told) = (real.answer(&step).await, own.answer(&step).await);
        assert_eq!(said.0, 422, "{url}: {}", said.1);
        if said != told {
            wrong.push_str(&format!("{url}\n  said {}\n  told {}\n\n", said.1, told.1));
        }
    }
}
