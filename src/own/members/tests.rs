//! Members of ClusterProfiles, over an inventory that a test writes.

use std::{collections::BTreeMap, sync::Arc};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use http::Response;
use kubefold_sql::KeyFile;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    JoinError, Members,
    inventory::read,
    merged,
    object::MemberObject,
    objects,
    renew::{Renewal, renew_member},
};
use crate::{
    config::{ClusterProfiles, Config, MEMBERS_MAX, MemberConfig, MemberName, Names, member_of},
    member::{
        Member,
        fake::{Fake, handler},
    },
    own::OwnObjects,
    stores::tests::stores_of,
};
use kubefold_apiserver::{
    registry::{DeleteOptions, ListOptions, WriteOptions},
    storage::{Bounds, Memory},
};
use kubefold_wire::body::full;

/// The server of members of a file.
async fn served(members: &Arc<Members>) -> OwnObjects {
    let folder = tempfile::tempdir().unwrap();
    let key = KeyFile::new(None, folder.path()).key(false).unwrap();
    let storage = Arc::new(Memory::new(Bounds::default()));
    OwnObjects::start(storage, members.kind().unwrap(), key).await.unwrap()
}

/// It is said only when it is so: kubefold is ready by it.
#[tokio::test]
async fn members_are_objects_when_it_is_said() {
    let fake = Fake::http2(handler(|_| async { Ok(Response::new(full("{}"))) })).await;
    let config = fake.config("hub");
    let members = Members::new(stores_of(vec![config.clone()]), &Config::of(vec![config]));
    let own = Arc::new(served(&members).await);
    assert!(!members.are_written());
    let written = async {
        while !members.are_written() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = Arc::clone(&members).follow(Arc::clone(&own)) => panic!("it follows until it is dropped"),
        () = written => {}
    }
    let names: Vec<String> =
        objects(own.registry(), "").await.unwrap().into_iter().map(|object| object.metadata.name).collect();
    assert_eq!(names, ["hub"]);
}

const PROFILES: &str = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/fleet/clusterprofiles";
const SECRETS: &str = "/api/v1/namespaces/fleet/secrets";

/// What the inventory's cluster has, by collection.
type Content = Arc<Mutex<BTreeMap<&'static str, Vec<Value>>>>;

struct Bed {
    fake: Fake,
    content: Content,
    hub: Arc<Member>,
    members: Arc<Members>,
    own: OwnObjects,
    source: ClusterProfiles,
}

impl Bed {
    async fn start() -> Self {
        let content: Content = Content::default();
        let listed = Arc::clone(&content);
        let answer = handler(move |request| {
            let items = listed.lock().get(request.uri().path()).cloned().unwrap_or_default();
            // A real server lists what the selector says; the caller sorts out what it does not.
            let list = json!({"metadata": {"resourceVersion": "7"}, "items": items}).to_string();
            async move { Ok(Response::new(full(list))) }
        });
        let fake = Fake::http2(answer).await;
        let stores = stores_of(vec![fake.config("hub")]);
        let hub = stores.registry().members()[0].clone();
        while !hub.health().is_reachable() {
            tokio::task::yield_now().await;
        }
        let source = ClusterProfiles {
            member: MemberName::new("hub").unwrap(),
            namespace: "fleet".to_owned(),
            selector: String::new(),
            secret_namespace: "fleet".to_owned(),
        };
        let file = Config { cluster_profiles: Some(source.clone()), ..Config::of(vec![fake.config("hub")]) };
        let members = Members::new(stores, &file);
        let own = served(&members).await;
        Self { fake, content, hub, members, own, source }
    }

    fn put(&self, collection: &'static str, objects: Vec<Value>) {
        self.content.lock().insert(collection, objects);
    }

    /// One look at the inventory; what is told of it.
    async fn look(&self) -> (&'static str, &'static str, String) {
        self.hub.check_identity().await.unwrap();
        let (found, _) = read(&self.hub, &self.source, &mut BTreeMap::new()).await.unwrap();
        self.members.reconcile(&self.own, &self.source, &self.hub, found).await.unwrap();
        let told = self.members.state.lock().inventory.clone().unwrap();
        (told.status, told.reason, told.message)
    }

    /// The names of the members that are objects, and of those that are in the fleet.
    async fn there(&self) -> (Vec<String>, Vec<String>) {
        let all = objects(self.own.registry(), "").await.unwrap();
        let joined = self.members.state.lock().joined.iter().map(|member| member.name.to_string()).collect();
        // They are in the order of their times, which may be of one second or of two.
        let mut names: Vec<String> = all.into_iter().map(|object| object.metadata.name).collect();
        names.sort();
        (names, joined)
    }

    /// The tokens that kubefold keeps, by Secret, as they are encoded.
    async fn tokens(&self) -> Vec<(String, String)> {
        let registry = self.own.system().registry();
        let kind = registry.kind("", "Secret").unwrap();
        let listed = registry.list(&kind, "kubefold-system", &ListOptions::default()).await.unwrap();
        let token = |value: Value| value["data"]["token"].as_str().unwrap_or_default().to_owned();
        listed.objects.iter().map(|secret| (secret.name().to_owned(), token(secret.value()))).collect()
    }
}

fn profile(name: &str) -> Value {
    let cluster = json!({"server": format!("https://{name}.example.com:6443")});
    json!({"metadata": {"name": name, "resourceVersion": "5"}, "spec": {"clusterManager": {"name": "ours"}},
        "status": {"accessProviders": [{"name": "secretreader", "cluster": cluster}]}})
}

fn secret(name: &str, revision: &str, token: &str) -> Value {
    json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name, "namespace": "fleet",
        "resourceVersion": revision}, "data": {"token": token}})
}

#[tokio::test]
async fn a_member_of_a_profile_goes_by_a_list_of_its_own_cluster_alone() {
    let bed = Bed::start().await;
    assert_eq!(bed.look().await, ("True", "Followed", "0 ClusterProfiles of fleet are members".to_owned()));
    bed.put(PROFILES, vec![profile("spoke")]);
    let (status, reason, message) = bed.look().await;
    assert_eq!((status, reason), ("False", "SecretNotFound"), "{message}");
    assert!(message.contains("the Secret fleet/spoke there does not exist"), "{message}");
    // It is shown, and nobody waits for it.
    assert_eq!(bed.there().await, (vec!["spoke".to_owned()], vec![]));
    bed.put(SECRETS, vec![secret("spoke", "1", "b25l"), secret("other", "2", "eA==")]);
    assert_eq!(bed.look().await.1, "Followed");
    assert_eq!(bed.there().await, (vec!["spoke".to_owned()], vec!["spoke".to_owned()]));
    assert_eq!(bed.tokens().await, [("cluster-profile.spoke".to_owned(), "b25l".to_owned())]);
    bed.put(SECRETS, vec![secret("spoke", "3", "dHdv")]);
    bed.look().await;
    assert_eq!(bed.tokens().await[0].1, "dHdv");
    // Without its Secret it stays, with what it has.
    bed.put(SECRETS, vec![]);
    assert_eq!(bed.look().await.1, "SecretNotFound");
    assert_eq!((bed.there().await.1, bed.tokens().await[0].1.as_str()), (vec!["spoke".to_owned()], "dHdv"));
    // Another cluster has none of it, which says nothing of the one before.
    bed.put(PROFILES, vec![]);
    let uid = std::mem::replace(&mut *bed.fake.state.uid.lock(), "another".to_owned());
    let (_, reason, message) = bed.look().await;
    assert!(reason == "OtherCluster" && message.contains("spoke: "), "{reason}: {message}");
    assert_eq!(bed.there().await.1, ["spoke"]);
    *bed.fake.state.uid.lock() = uid;
    assert_eq!(bed.look().await.1, "Followed");
    assert_eq!(bed.there().await, (vec![], vec![]));
    assert_eq!(bed.tokens().await, []);
}

#[tokio::test]
async fn a_profile_whose_name_is_taken_or_no_name_is_refused_and_told() {
    let bed = Bed::start().await;
    let kind = bed.own.registry().kind("kubefold.io", "Member").unwrap();
    let object = json!({"metadata": {"name": "mine"}, "spec": {"server": "https://mine:6443"}});
    bed.own.registry().create(&kind, "", object, &WriteOptions::default()).await.unwrap();
    bed.put(PROFILES, vec![profile("hub"), profile("mine"), profile("a.b"), profile("strict"), profile("good")]);
    let taken = ["hub", "mine", "a.b", "strict", "good"].map(|name| secret(name, "1", "b25l"));
    bed.put(SECRETS, taken.to_vec());
    let (status, reason, message) = bed.look().await;
    assert_eq!((status, reason), ("False", "Refused"), "{message}");
    for why in [
        "hub: clusters.yaml has a member of this name",
        "mine: a Member object has this name",
        "a.b: \"a.b\" is not a valid name",
        "strict: the name \"strict\" is kubefold's own",
    ] {
        assert!(message.contains(why), "{why}: {message}");
    }
    assert!(!message.contains("good"), "{message}");
    assert_eq!(bed.there().await, (vec!["good".to_owned(), "mine".to_owned()], vec!["good".to_owned()]));
    // Nobody else makes one, and nobody makes an object one.
    let of_profile = json!({"member": "hub", "namespace": "fleet", "name": "x", "clusterUID": "u"});
    let forged = json!({"metadata": {"name": "x"}, "spec": {"server": "https://x", "clusterProfileRef": of_profile}});
    let refused = bed.own.registry().create(&kind, "", forged, &WriteOptions::default()).await.unwrap_err();
    assert!(refused.message.contains("spec.clusterProfileRef is kubefold's own"), "{}", refused.message);
    let change = |object: &mut Value| {
        object["spec"]["clusterProfileRef"] = of_profile.clone();
        Ok(())
    };
    let refused = bed.own.registry().modify(&kind, "", "mine", &WriteOptions::default(), change).await.unwrap_err();
    assert!(refused.message.contains("spec.clusterProfileRef is kubefold's own"), "{}", refused.message);
    let refused = bed.members.check_change(&bed.own, "good").await.unwrap_err();
    assert!(refused.message.contains("it is of ClusterProfile fleet/good of hub; change that"), "{}", refused.message);
    // Without an inventory nobody is of one.
    bed.members.forget_profiles(&bed.own).await.unwrap();
    assert_eq!((bed.there().await.0, bed.tokens().await.len()), (vec!["mine".to_owned()], 0));
}

/// A member of a name, as a file has it.
fn entry(name: &str) -> MemberConfig {
    let fields = json!({"name": name, "server": "https://member:6443", "token": "t"});
    member_of(fields.as_object().unwrap().clone()).unwrap()
}

#[tokio::test]
async fn a_member_joins_no_full_fleet_and_none_whose_names_are_plain() {
    let full = Config::of((0..MEMBERS_MAX).map(|at| entry(&format!("m{at}"))).collect());
    let plain = Config { names: Names::Plain, ..Config::of(vec![entry("only")]) };
    for (file, why) in [
        (&full, "257 members are in clusters.yaml and objects together, and at most 256 are served; split the fleet"),
        (&plain, "\"names: plain\" of clusters.yaml needs exactly one member"),
    ] {
        let members = Members::new(stores_of(Vec::new()), file);
        let own = served(&members).await;
        let kind = own.registry().kind("kubefold.io", "Member").unwrap();
        let object = json!({"metadata": {"name": "more"}, "spec": {"server": "https://more:6443"}});
        let refused = own.registry().create(&kind, "", object, &WriteOptions::default()).await.unwrap_err();
        assert!(refused.code == 403 && refused.message.contains(why), "{}", refused.message);
        assert!(objects(own.registry(), "").await.unwrap().is_empty());
    }
    // The same of a file that comes later.
    assert_eq!(merged(&full, &[entry("more")]).unwrap_err(), JoinError::TooMany { count: MEMBERS_MAX + 1 });
    assert_eq!(merged(&plain, &[entry("more")]).unwrap_err(), JoinError::PlainNames);
    assert_eq!(merged(&plain, &[entry("only")]).unwrap_err(), JoinError::Twice(MemberName::new("only").unwrap()));
    let both = merged(&Config::of(vec![entry("east")]), &[entry("west")]).unwrap();
    assert_eq!(both.members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["east", "west"]);
}

#[tokio::test]
async fn a_token_that_is_not_renewed_says_why() {
    let bed = Bed::start().await;
    let spec = json!({"server": "https://hub", "renewTokens": true, "credentialsSecretRef": {"name": "s"}});
    let object: MemberObject = serde_json::from_value(json!({"metadata": {"name": "hub"}, "spec": spec})).unwrap();
    let why = async || match renew_member(&bed.own, &object, &bed.hub, true).await {
        (Renewal::Failed { why }, false) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why().await, "the Secret s: it does not exist");
    let registry = bed.own.system().registry();
    let kind = registry.kind("", "Secret").unwrap();
    let claims = json!({"iat": 1, "exp": 2, "kubernetes.io": {"namespace": "n", "serviceaccount": {"name": "a"}}});
    let ended = format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims.to_string()));
    // The member of this test makes no tokens.
    let claims = claims.to_string().replace("\"exp\":2", "\"exp\":99999999999");
    let good = format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims));
    for (key, token, told) in [
        ("ca.crt", "x", "the Secret s: it has no token; renewTokens is for tokens of ServiceAccounts"),
        ("token", "abc", "the Secret s: token: it is no token of a ServiceAccount with an end"),
        ("impersonator-token", ended.as_str(), "the Secret s: impersonator-token: it ended "),
        ("token", good.as_str(), "the Secret s: token: the member's answer has no token"),
    ] {
        let mut data = json!({});
        data[key] = STANDARD.encode(token).into();
        let secret = json!({"metadata": {"name": "s", "namespace": "kubefold-system"}, "data": data});
        registry.create(&kind, "kubefold-system", secret, &WriteOptions::default()).await.unwrap();
        let said = why().await;
        assert!(said.starts_with(told) && !said.contains(token), "{said}");
        registry.delete(&kind, "kubefold-system", "s", &DeleteOptions::default()).await.unwrap();
    }
}
