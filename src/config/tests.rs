//! Every refusal by its text and line, the example file, and following a file.

use std::{fs, path::Path, time::Duration};

use super::*;

/// A folder with the files that the configurations below name.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let pair = || {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["x".into()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    let (certificate, key) = pair();
    let (ca, other_key) = pair();
    fs::write(at("ca.crt"), ca).unwrap();
    fs::write(at("client.crt"), certificate).unwrap();
    fs::write(at("client.key"), key).unwrap();
    fs::write(at("other.key"), other_key).unwrap();
    fs::write(at("garbage"), "garbage").unwrap();
    fs::write(at("token"), "secret\n").unwrap();
    fs::write(at("empty"), "").unwrap();
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(at("broken.crt"), broken).unwrap();
    fs::write(at("kubeconfig"), kubeconfig("https://127.0.0.1:6443")).unwrap();
    folder
}

fn kubeconfig(server: &str) -> String {
    format!(
        r#"apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server}", certificate-authority: ca.crt}}}}]
users:
- {{name: u, user: {{client-certificate: client.crt, client-key: client.key}}}}
- {{name: plugin, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: /no/such/plugin, interactiveMode: Never}}}}}}
contexts:
- {{name: good, context: {{cluster: c, user: u}}}}
- {{name: exec, context: {{cluster: c, user: plugin}}}}
- {{name: nocluster, context: {{cluster: gone, user: u}}}}
- {{name: nouser, context: {{cluster: c, user: gone}}}}
"#
    )
}

fn refusal(folder: &Path, yaml: &str) -> String {
    let file = folder.join("clusters.yaml");
    fs::write(&file, yaml).unwrap();
    let error = load(&file).expect_err(yaml);
    error.to_string().replace(&format!("{}/", folder.display()), "")
}

#[test]
fn what_the_mirror_cannot_store_is_refused() {
    let folder = folder();
    let cases = [
        (
            "members:\n- {name: east, inCluster: true}\nmirror: {stored: [events, pods]}\n",
            "clusters.yaml:3: \"pods\" cannot be in the mirror's tables alone: kubefold needs its objects in memory; remove it from \"stored\"",
        ),
        (
            "members:\n- {name: east, inCluster: true}\nmirror: {stored: [\"*.apps\"]}\n",
            "clusters.yaml:3: \"*.apps\" cannot be in the mirror's tables alone: kubefold needs its objects in memory; remove it from \"stored\"",
        ),
        (
            "members:\n- {name: east, inCluster: true}\nmirror: {stored: [events], exclude: [events]}\n",
            "clusters.yaml:3: \"events\" is in both \"stored\" and \"exclude\"; remove it from one of the two",
        ),
        (
            "members:\n- {name: east, inCluster: true}\nmirror: {stored: [Event]}\n",
            "clusters.yaml:3: \"Event\" is not a resource; write its plural like \"events\" or \"leases.coordination.k8s.io\", or \"*.example.com\"",
        ),
        (
            "members:\n- {name: east, inCluster: true}\nmirror: {memory: 1Gi, storable: [pods]}\n",
            "clusters.yaml:3: \"pods\" cannot be in the mirror's tables alone: kubefold needs its objects in memory; remove it from \"storable\"",
        ),
        (
            "members:\n- {name: east, inCluster: true}\nmirror: {memory: 1Ki, storable: [events]}\n",
            "clusters.yaml:3: \"memory: 1Ki\" is not a quantity of at least 1Mi; write it like \"4Gi\"",
        ),
        (
            "members:\n- {name: east, inCluster: true}\nmirror: {memory: 1Gi}\n",
            "clusters.yaml:3: \"memory\" needs \"storable\", the kinds that may be in the mirror's tables alone once it is too little, and \"storable\" needs \"memory\"; give both or neither",
        ),
    ];
    for (yaml, expected) in cases {
        assert_eq!(refusal(folder.path(), yaml), expected);
    }
}

#[test]
fn whole_file_refusals_say_line_and_remedy() {
    let folder = folder();
    let cases = [
        ("", "clusters.yaml: no member is configured; add at least one under \"members:\""),
        ("members: []\n", "clusters.yaml: no member is configured; add at least one under \"members:\""),
        (
            "members:\n- name: east\n  inCluster: true\n  colour: red\n",
            "clusters.yaml:4: unknown field \"colour\"; remove it, or use one of: name, kubeconfig, context, server, certificateAuthority, certificateAuthorityData, clientCertificate, clientCertificateData, clientKey, clientKeyData, token, tokenFile, impersonatorTokenFile, renewTokens, tlsServerName, proxyURL, inCluster, weight, labels, taints, absent, rebuilt, deadlines, inFlightMax",
        ),
        (
            "member:\n",
            "clusters.yaml:1: unknown field \"member\"; remove it, or use one of: members, names, shared, policies, unmatched, kinds, subjects, clientAuthorities, admins, viewers, aliases, collections, shadowResources, aggregation, mirror, clusterProfiles",
        ),
        (
            "members:\n- {name: east, inCluster: true}\naliases:\n- {from: apis.abc.com/v1, to: apps/v1}\n",
            "clusters.yaml:4: \"apps/v1\" has no aliases; write kubefold.io/v1alpha1",
        ),
        (
            "members:\n- {name: east, inCluster: true}\naliases:\n- {from: batch/v1, to: kubefold.io/v1alpha1}\n",
            "clusters.yaml:4: \"batch/v1\" is no group and version that can be an alias; write a domain and a version, such as apis.example.com/v1, of a group that is neither Kubernetes' nor kubefold's own",
        ),
        (
            "members:\n- {name: east, inCluster: true}\naliases:\n- {from: a.b/v1, to: kubefold.io/v1alpha1}\n- {from: a.b/v2, to: kubefold.io/v1alpha1}\n",
            "clusters.yaml:5: the group \"a.b\" is an alias twice; keep one of the two",
        ),
        (
            "members:\n- name: east\n  inCluster: true\n  name: west\n",
            "clusters.yaml:4: the field \"name\" is given twice; keep one of the two",
        ),
        (
            "members:\n- name: east\n  inCluster: true\n  deadlines: {connect: 5s, conect: 5s}\n",
            "clusters.yaml:4: unknown field \"conect\"; remove it, or use one of: connect, read, write, probe",
        ),
        (
            "members:\n- name: east\n  inCluster: true\nnames: short\n",
            "clusters.yaml:4: \"names: short\" is unknown; use \"suffixed\" or \"plain\"",
        ),
        (
            "names: plain\nmembers:\n- {name: east, inCluster: true}\n- {name: west, inCluster: true}\n",
            "clusters.yaml:1: \"names: plain\" needs exactly one member, and 2 are configured; use \"names: suffixed\"",
        ),
        (
            "members:\n- {name: east, inCluster: true}\nshared:\n- resource: ''\n",
            "clusters.yaml:4: a shared rule without a resource; name the plural resource, for example \"configmaps\"",
        ),
        (
            "members:\n- {name: east, inCluster: true}\nsubjects:\n- {member: west, namespace: ci, name: bot, user: bot}\n",
            "clusters.yaml:4: there is no member \"west\"; use one of: east",
        ),
        (
            "members:\n- {name: east, inCluster: true}\nsubjects:\n- {member: east, namespace: ci, name: bot, user: ''}\n",
            "clusters.yaml:4: \"user\" is empty; give it a value or remove it",
        ),
        ("members:\n- inCluster: true\n", "clusters.yaml:2: the field \"name\" is missing; add it"),
    ];
    for (yaml, expected) in cases {
        assert_eq!(refusal(folder.path(), yaml), expected, "{yaml}");
    }
    let broken = refusal(folder.path(), "members:\n- name: [east\n  weight: 1\n");
    assert!(broken.starts_with("clusters.yaml:") && broken.contains("not valid YAML"), "{broken}");
    let typed = refusal(folder.path(), "members:\n- name: east\n  inCluster: true\n  weight: heavy\n");
    assert!(typed.starts_with("clusters.yaml:4: not valid YAML for a clusters.yaml: "), "{typed}");
    assert!(!typed.contains('\n'), "one line: {typed}");
}

#[test]
fn wrong_columns_and_labels_of_shadow_resources_are_refused() {
    let folder = folder();
    let with = |what: &str, entry: &str| {
        format!("members:\n- {{name: east, inCluster: true}}\nshadowResources:\n  {what}:\n{entry}")
    };
    let cases = [
        (
            with("columns", "  - {name: 'a\"b', path: .kind}\n"),
            "\"name: a\"b\" cannot be the name of a column; use 1 to 63 letters, digits, blanks, \"-\", \"_\", \"/\", \"%\", \".\"",
        ),
        (
            with("columns", "  - {name: Status, path: .kind}\n"),
            "ShadowResources have a column \"Status\" already; give this one another name",
        ),
        (
            with("columns", "  - {name: A, path: '.items[?('}\n"),
            "\"path: .items[?(\" is not a JSONPath; write it without braces, like \".spec.version\"",
        ),
        (
            with("columns", "  - {name: A, path: '{.kind}'}\n"),
            "\"path: {.kind}\" is not a JSONPath; write it without braces, like \".spec.version\"",
        ),
        (
            with("columns", "  - {name: A, path: .kind, type: text}\n"),
            "\"type: text\" is unknown; use \"string\", \"integer\", \"number\", \"boolean\" or \"date\"",
        ),
        (
            with("columns", "  - {name: A, path: .kind, kinds: [redis]}\n"),
            "\"redis\" is not a kind; write it like \"Deployment\", or with its group like \"Widget.example.com\"",
        ),
        (
            with("labels", "  - {key: kubefold.io/kind, path: .kind}\n"),
            "label key \"kubefold.io/kind\" is kubefold's own; use a prefix other than kubefold.io",
        ),
        (
            with("labels", "  - {key: a/b, path: .data.p, kinds: [Secret]}\n"),
            "a label shows its value to everybody who may read the ShadowResource, and is not made of a Secret; use another kind",
        ),
    ];
    for (yaml, expected) in cases {
        assert_eq!(refusal(folder.path(), &yaml), format!("clusters.yaml:5: {expected}"), "{yaml}");
    }
    let twice = with("columns", "  - {name: A, path: .kind}\n  - {name: a, path: .kind}\n");
    let refused = refusal(folder.path(), &twice);
    assert!(refused.starts_with("clusters.yaml:6: ShadowResources have a column \"a\" already"), "{refused}");
    let good = with("columns", "  - {name: VERSION, path: .spec.version, kinds: [Redis.example.com, Deployment]}\n");
    fs::write(folder.path().join("clusters.yaml"), good).unwrap();
    let column = load(&folder.path().join("clusters.yaml")).unwrap().shadow_fields.columns.remove(0);
    assert_eq!((&*column.type_, column.priority, &*column.value.path), ("string", 0, ".spec.version"));
    assert!(column.value.kinds[0].matches("example.com", "Redis") && !column.value.kinds[0].matches("", "Redis"));
    assert!(column.value.kinds[1].matches("apps", "Deployment"));
}

#[test]
fn a_collection_has_a_name_of_its_own_and_resources() {
    let folder = folder();
    for (yaml, expected) in [
        (
            "members:\n- {name: east, inCluster: true}\ncollections:\n- {name: any, resources: [pods]}\n",
            "clusters.yaml:4: the collection \"any\" is there already; choose another name",
        ),
        (
            "members:\n- {name: east, inCluster: true}\ncollections:\n- {name: mine, resources: []}\n",
            "clusters.yaml:4: the collection \"mine\" has no resources; name some, such as deployments.apps",
        ),
        (
            "members:\n- {name: east, inCluster: true}\ncollections:\n- {name: My, resources: [pods]}\n",
            "clusters.yaml:4: \"My\" is no name of a collection; write a DNS label",
        ),
    ] {
        assert_eq!(refusal(folder.path(), yaml), expected, "{yaml}");
    }
}

#[test]
fn a_missing_configuration_says_so() {
    let folder = folder();
    let error = load(&folder.path().join("nowhere.yaml")).unwrap_err().to_string();
    assert!(
        error.ends_with("nowhere.yaml: the file cannot be read (No such file or directory); give the path of a readable clusters.yaml"),
        "{error}"
    );
}

#[allow(clippy::too_many_lines, reason = "a table")]
/// Each case is a member's body; the name stands on line 2, the body's first line on line 3.
#[test]
fn member_refusals_say_member_line_and_remedy() {
    let folder = folder();
    let cases: &[(&str, &str)] = &[
        (
            "  weight: 1",
            "2: member \"east\": no way to reach it is given; set exactly one of \"kubeconfig\", \"server\", \"inCluster: true\"",
        ),
        (
            "  kubeconfig: kubeconfig\n  server: https://h",
            "4: member \"east\": both \"kubeconfig\" and \"server\" are given; keep exactly one of \"kubeconfig\", \"server\", \"inCluster: true\"",
        ),
        (
            "  server: https://h\n  inCluster: true",
            "4: member \"east\": both \"server\" and \"inCluster\" are given; keep exactly one of \"kubeconfig\", \"server\", \"inCluster: true\"",
        ),
        (
            "  server: https://h\n  context: good",
            "4: member \"east\": \"context\" has no meaning without \"kubeconfig\"; remove it, or add \"kubeconfig\"",
        ),
        (
            "  inCluster: true\n  token: t",
            "4: member \"east\": \"token\" has no meaning without \"server\"; remove it, or add \"server\"",
        ),
        (
            "  inCluster: true\n  weight: -1",
            "4: member \"east\": weight -1 is out of range; use a whole number from 0 to 1000000",
        ),
        (
            "  inCluster: true\n  weight: 1000001",
            "4: member \"east\": weight 1000001 is out of range; use a whole number from 0 to 1000000",
        ),
        (
            "  inCluster: true\n  inFlightMax: 0",
            "4: member \"east\": inFlightMax 0 is out of range; use a whole number from 1 to 100000",
        ),
        (
            "  inCluster: true\n  deadlines:\n    read: 5",
            "5: member \"east\": deadline \"read: 5\" is not a duration from 1ms to 1h; write it like \"5s\" or \"1m30s\"",
        ),
        (
            "  inCluster: true\n  deadlines:\n    write: 2h",
            "5: member \"east\": deadline \"write: 2h\" is not a duration from 1ms to 1h; write it like \"5s\" or \"1m30s\"",
        ),
        (
            "  inCluster: true\n  labels:\n    'a b': c",
            "5: member \"east\": label key \"a b\" is not valid; use an optional DNS prefix and \"/\", then at most 63 letters, digits, \"-\", \"_\", \".\"",
        ),
        (
            "  inCluster: true\n  labels:\n    'a/b/c': c",
            "5: member \"east\": label key \"a/b/c\" is not valid; use an optional DNS prefix and \"/\", then at most 63 letters, digits, \"-\", \"_\", \".\"",
        ),
        (
            "  inCluster: true\n  labels:\n    kubefold.io/x: c",
            "5: member \"east\": label key \"kubefold.io/x\" is kubefold's own; use a prefix other than kubefold.io",
        ),
        (
            "  inCluster: true\n  labels:\n    a: '-x'",
            "5: member \"east\": label value \"-x\" of \"a\" is not valid; use at most 63 letters, digits, \"-\", \"_\", \".\", a letter or digit first and last",
        ),
        (
            "  server: h:6443",
            "3: member \"east\": \"server: h:6443\" is not a valid address (no scheme); write it as https://host:port",
        ),
        (
            "  server: ftp://h",
            "3: member \"east\": \"server: ftp://h\" is not a valid address (scheme ftp is not supported); write it as https://host:port",
        ),
        (
            "  server: https://u:p@h",
            "3: member \"east\": \"server: (withheld)\" is not a valid address (it holds a user); write it as https://host:port",
        ),
        (
            "  server: https://h?a=b",
            "3: member \"east\": \"server: https://h?a=b\" is not a valid address (it has a query); write it as https://host:port",
        ),
        (
            "  server: https://h\n  proxyURL: socks4://h",
            "4: member \"east\": \"proxyURL: socks4://h\" is not a valid address (scheme socks4 is not supported); write it as http://host:port or socks5://host:port",
        ),
        (
            "  server: https://h\n  tlsServerName: ''",
            "4: member \"east\": \"tlsServerName\" is empty; give it a value or remove it",
        ),
        (
            "  server: https://h\n  certificateAuthority: gone.crt",
            "4: member \"east\": certificateAuthority file gone.crt cannot be read (No such file or directory); correct the path or its permissions",
        ),
        (
            "  server: https://h\n  certificateAuthority: garbage",
            "4: member \"east\": certificateAuthority holds no PEM certificate; give a file or text with a BEGIN CERTIFICATE block",
        ),
        (
            "  server: https://h\n  certificateAuthority: ca.crt\n  certificateAuthorityData: x",
            "5: member \"east\": both \"certificateAuthority\" and \"certificateAuthorityData\" are given; keep one of the two",
        ),
        (
            "  server: https://h\n  certificateAuthorityData: x",
            "4: member \"east\": certificateAuthorityData is neither PEM nor base64 of PEM; paste the value as a kubeconfig has it",
        ),
        (
            "  server: https://h\n  clientCertificate: client.crt",
            "4: member \"east\": \"clientCertificate\" has no meaning without \"clientKey\"; remove it, or add \"clientKey\"",
        ),
        (
            "  server: https://h\n  clientKey: client.key",
            "4: member \"east\": \"clientKey\" has no meaning without \"clientCertificate\"; remove it, or add \"clientCertificate\"",
        ),
        (
            "  server: https://h\n  clientCertificate: client.crt\n  clientKey: garbage",
            "5: member \"east\": clientKey holds no PEM private key; give a file or text with a BEGIN PRIVATE KEY block",
        ),
        (
            "  server: https://h\n  token: t\n  tokenFile: token",
            "5: member \"east\": both \"token\" and \"tokenFile\" are given; keep one of the two",
        ),
        ("  server: https://h\n  token: ''", "4: member \"east\": \"token\" is empty; give it a value or remove it"),
        (
            "  server: https://h\n  tokenFile: empty",
            "4: member \"east\": \"tokenFile\" is empty; give it a value or remove it",
        ),
        (
            "  server: https://h\n  tokenFile: gone",
            "4: member \"east\": tokenFile file gone cannot be read (No such file or directory); correct the path or its permissions",
        ),
        (
            "  kubeconfig: gone",
            "3: member \"east\": kubeconfig file gone cannot be read (No such file or directory); correct the path or its permissions",
        ),
        (
            "  kubeconfig: .",
            "3: member \"east\": kubeconfig file . cannot be read (it is not a regular file); correct the path or its permissions",
        ),
        (
            "  kubeconfig: empty",
            "3: member \"east\": kubeconfig empty is not one (it has no contexts); check it with \"kubectl --kubeconfig empty config view\"",
        ),
        (
            "  kubeconfig: kubeconfig",
            "3: member \"east\": kubeconfig kubeconfig has no current context; set \"context:\" to one of: good, exec, nocluster, nouser",
        ),
        (
            "  kubeconfig: kubeconfig\n  context: bad",
            "4: member \"east\": kubeconfig kubeconfig has no context \"bad\"; use one of: good, exec, nocluster, nouser",
        ),
        (
            "  kubeconfig: kubeconfig\n  context: nocluster",
            "4: member \"east\": context \"nocluster\" of kubeconfig kubeconfig names the cluster \"gone\", which is not in it; repair the kubeconfig",
        ),
        (
            "  kubeconfig: kubeconfig\n  context: nouser",
            "4: member \"east\": context \"nouser\" of kubeconfig kubeconfig names the user \"gone\", which is not in it; repair the kubeconfig",
        ),
    ];
    for (body, expected) in cases {
        let text = refusal(folder.path(), &format!("members:\n- name: east\n{body}\n"));
        assert_eq!(text, format!("clusters.yaml:{expected}"), "{body}");
    }
    let mismatch = "  server: https://h\n  clientCertificate: client.crt\n  clientKey: other.key";
    let text = refusal(folder.path(), &format!("members:\n- name: east\n{mismatch}\n"));
    assert!(
        text.starts_with("clusters.yaml:5: member \"east\": the client key does not belong to the client certificate"),
        "{text}"
    );
    let broken =
        refusal(folder.path(), "members:\n- name: east\n  server: https://h\n  certificateAuthority: broken.crt\n");
    assert!(
        broken.starts_with("clusters.yaml:4: member \"east\": certificateAuthority holds a broken certificate ("),
        "{broken}"
    );
    let text = refusal(folder.path(), "members:\n- name: east\n  kubeconfig: garbage\n");
    assert!(text.starts_with("clusters.yaml:3: member \"east\": kubeconfig garbage is not one ("), "{text}");
    assert!(!text.contains('\n'), "one line: {text}");
}

#[test]
fn names_are_dns_labels_and_unique() {
    let folder = folder();
    for name in ["East", "a.b", "-a", "a-", "a@b", "''", "a/b"] {
        let text = refusal(folder.path(), &format!("members:\n- name: {name}\n  inCluster: true\n"));
        assert!(
            text.starts_with("clusters.yaml:2: member ") && text.contains("is not a valid name; use a DNS label"),
            "{text}"
        );
    }
    let reserved = "members:\n- name: strict\n  inCluster: true\n";
    let refused = refusal(folder.path(), reserved);
    assert!(refused.contains("the context fleet-strict is a view of the whole fleet"), "{refused}");
    let twice = "members:\n- name: east\n  inCluster: true\n- name: east\n  inCluster: true\n";
    assert_eq!(
        refusal(folder.path(), twice),
        "clusters.yaml:4: member \"east\": the name is taken by the member on line 2; give each member its own name"
    );
}

#[test]
fn a_full_configuration_is_read() {
    let folder = folder();
    let yaml = r#"
members:
- name: east
  kubeconfig: kubeconfig
  context: exec
  weight: 2
  labels: {region: eu, example.com/tier: gold}
  deadlines: {connect: 1s, read: 1m30s, write: 45s, probe: 500ms}
  inFlightMax: 50
- name: west
  server: https://west.example:6443/
  certificateAuthority: ca.crt
  clientCertificate: client.crt
  clientKey: client.key
  tlsServerName: kubernetes
  proxyURL: socks5://127.0.0.1:1080
  absent: true
- name: here
  inCluster: true
names: suffixed
"#;
    let file = folder.path().join("clusters.yaml");
    fs::write(&file, yaml).unwrap();
    let config = load(&file).unwrap();
    let [east, west, here] = config.members.as_slice() else { panic!("three members") };
    assert!(matches!(&east.access, Access::Kubeconfig { path, context: Some(context), .. }
        if *path == folder.path().join("kubeconfig") && context == "exec"));
    assert_eq!((east.weight, east.in_flight_max, east.absent), (Weight(2), 50, false));
    assert_eq!(east.deadlines.read, Duration::from_secs(90));
    assert_eq!(east.labels["example.com/tier"], "gold");
    let Access::Server(server) = &west.access else { panic!("a server") };
    assert_eq!(server.server, "https://west.example:6443");
    assert!(server.certificate_authority.is_some() && server.client_certificate.is_some());
    assert!(west.absent && west.weight == Weight(1) && west.in_flight_max == 200);
    assert_eq!(here.access, Access::InCluster);
    assert!(config.shared.iter().any(|rule| rule.resource == "namespaces"));
    let shown = format!("{config:?}");
    assert!(!shown.contains("PRIVATE KEY") && !shown.contains("BEGIN CERTIFICATE"), "credentials stay out of logs");
}

#[test]
fn shared_rules_replace_the_defaults() {
    let folder = folder();
    let file = folder.path().join("clusters.yaml");
    fs::write(&file, "members: [{name: east, inCluster: true}]\nshared: [{resource: namespaces}]\nnames: plain\n")
        .unwrap();
    let config = load(&file).unwrap();
    let rule = SharedRule { group: String::new(), resource: "namespaces".into(), namespace: None, name: None };
    assert_eq!((config.shared, config.names), (vec![rule], Names::Plain));
}

#[test]
fn the_example_is_a_good_configuration() {
    let folder = folder();
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/clusters.example.yaml")).unwrap();
    let file = folder.path().join("clusters.yaml");
    fs::write(&file, text).unwrap();
    fs::write(folder.path().join("east.kubeconfig"), kubeconfig("https://h").replace("name: good", "name: admin@east"))
        .unwrap();
    fs::create_dir(folder.path().join("west")).unwrap();
    for (from, to) in [("ca.crt", "ca.crt"), ("client.crt", "client.crt"), ("client.key", "client.key")] {
        fs::copy(folder.path().join(from), folder.path().join("west").join(to)).unwrap();
    }
    let config = load(&file).unwrap();
    assert_eq!(config.members.len(), 3);
}

/// The clock is paused: seconds pass as soon as nothing else happens.
#[tokio::test(start_paused = true)]
async fn a_changed_file_is_yielded_and_a_bad_one_is_not() {
    let folder = folder();
    let file = folder.path().join("clusters.yaml");
    let replace = |text: &str| {
        // As an editor or a ConfigMap volume does it: another file under the same name.
        let next = folder.path().join("next");
        fs::write(&next, text).unwrap();
        fs::rename(next, &file).unwrap();
    };
    let yaml = "members: [{name: east, kubeconfig: kubeconfig, context: good}]\n";
    replace(yaml);
    let (config, mut reloads) = Reloads::start(&file).await.unwrap();
    assert_eq!(config.members.len(), 1);

    replace("members: [{name: east}]\n");
    let quiet = tokio::time::timeout(Duration::from_secs(5), reloads.next()).await;
    assert!(quiet.is_err(), "a refused file yields nothing");
    for renames in ["names: plain", "shared: []"] {
        replace(&format!("members: [{{name: east, inCluster: true}}]\n{renames}\n"));
        let quiet = tokio::time::timeout(Duration::from_secs(5), reloads.next()).await;
        assert!(quiet.is_err(), "what is visible keeps its name: {renames}");
    }
    replace("members: [{name: east, inCluster: true}]\n");
    assert_eq!(reloads.next().await.unwrap().members[0].access, Access::InCluster);

    replace(yaml);
    let before = reloads.next().await.unwrap();
    let next = folder.path().join("next");
    fs::write(&next, kubeconfig("https://elsewhere")).unwrap();
    fs::rename(next, folder.path().join("kubeconfig")).unwrap();
    let after = reloads.next().await.unwrap();
    assert_ne!(before, after, "a kubeconfig that changed is a configuration that changed");
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_swapped_is_seen_as_kubelet_swaps_them() {
    use std::os::unix::fs::symlink;
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    for (version, name) in [("v1", "east"), ("v2", "west")] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("clusters.yaml"), format!("members: [{{name: {name}, inCluster: true}}]\n"))
            .unwrap();
    }
    symlink("v1", at("..data")).unwrap();
    symlink("..data/clusters.yaml", at("clusters.yaml")).unwrap();
    let (_, mut reloads) = Reloads::start(&at("clusters.yaml")).await.unwrap();
    symlink("v2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    assert_eq!(reloads.next().await.unwrap().members[0].name.as_str(), "west");
}
