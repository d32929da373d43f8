//! Pods of several members, and a store that has them: what benches share.

use std::sync::Arc;

use kubefold::{
    config::{Config, MemberName, Names},
    store::{FleetStore, Identities, KindSpec, LogLimits, Naming, Revisions, SLICE_ITEMS_MAX, Shared},
};
use kubefold_wire::resource::{Gvk, Gvr};

/// The members' lists, as they come.
pub(crate) struct Fleet {
    pub(crate) names: Vec<MemberName>,
    pub(crate) items: Vec<Vec<String>>,
}

impl Fleet {
    pub(crate) fn new(members: usize, pods: usize) -> Self {
        let names = (0..members).map(|at| MemberName::new(&format!("member-{at}")).unwrap()).collect();
        let items: Vec<Vec<String>> =
            (0..members).map(|member| (0..pods).map(|at| pod(member, at)).collect()).collect();
        Self { names, items }
    }

    pub(crate) fn store(&self) -> FleetStore {
        let config = Config {
            members: Vec::new(),
            names: Names::Suffixed,
            shared: Vec::new(),
            policies: Vec::new(),
            overrides: Vec::new(),
            unmatched: Default::default(),
            kinds: Vec::new(),
            subjects: Vec::new(),
            client_authorities: Vec::new(),
            aliases: Vec::new(),
            mirror: Default::default(),
            aggregation: None,
            own: Default::default(),
        };
        let shared = Shared {
            naming: Arc::new(Naming::new(&config)),
            identities: Arc::new(Identities::default()),
            revisions: Arc::new(Revisions::volatile()),
            log_limits: LogLimits::default(),
        };
        let spec = KindSpec::new(Gvr::new("", "v1", "pods"), Gvk::new("", "v1", "Pod"), true);
        let store = FleetStore::new(Arc::new(spec), shared, |_| {});
        self.names.iter().for_each(|name| store.join(name, "uid"));
        store
    }

    pub(crate) fn list(&self, store: &FleetStore) {
        for (name, items) in self.names.iter().zip(&self.items) {
            store.begin_list(name);
            let mut slice: Vec<&str> = Vec::with_capacity(SLICE_ITEMS_MAX);
            for items in items.chunks(SLICE_ITEMS_MAX) {
                slice.clear();
                slice.extend(items.iter().map(String::as_str));
                assert!(store.list_slice(name, &slice).is_empty());
            }
            let doomed = store.end_list(name, 20_000_000);
            assert!(doomed.is_empty());
        }
    }

    pub(crate) fn filled(&self) -> FleetStore {
        let store = self.store();
        self.list(&store);
        store
    }
}

/// The next state of a pod.
pub(crate) fn changed(item: &str, revision: &mut u64) -> String {
    *revision += 1;
    let at = item.find("\"resourceVersion\":\"").unwrap() + 19;
    let end = at + item[at..].find('"').unwrap();
    format!("{}{revision}{}", &item[..at], &item[end..])
}

fn pod(member: usize, at: usize) -> String {
    let (namespace, name) = (at % 97, format!("web-{at:06}-{:05x}", at * 7919 % 1_048_576));
    let uid = format!("{member:08x}-0000-4000-8000-{at:012x}");
    let owner = format!("{member:08x}-0000-4000-9000-{:012x}", at / 10);
    let fields = |manager: &str, count: usize| {
        let leaves: String =
            (0..count).map(|leaf| format!(r#""f:field{leaf}":{{".":{{}},"f:value":{{}},"f:other":{{}}}},"#)).collect();
        format!(
            r#"{{"manager":"{manager}","operation":"Update","apiVersion":"v1","time":"2026-11-20T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{{leaves}"f:labels":{{".":{{}},"f:app":{{}}}}}}}}}}"#
        )
    };
    let env: String = (0..24)
        .map(|number| format!(r#"{{"name":"SETTING_{number}","value":"the value of setting {number}"}},"#))
        .collect();
    let conditions: Vec<String> = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|kind| format!(r#"{{"type":"{kind}","observedGeneration":1,"status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-20T10:00:03Z"}}"#))
        .collect();
    format!(
        r#"{{"metadata":{{"name":"{name}","generateName":"web-","namespace":"team-{namespace}","uid":"{uid}","resourceVersion":"{}","generation":1,"creationTimestamp":"2026-11-20T10:00:00Z","labels":{{"app":"web","pod-template-hash":"5d59d67564","tier":"front","team":"team-{namespace}"}},"annotations":{{"prometheus.io/scrape":"true","checksum/config":"3f1c6c1c5f0f4a7f8d4c61f7c2b1a9d8"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-{}","uid":"{owner}","controller":true,"blockOwnerDeletion":true}}],"managedFields":[{},{}]}},"spec":{{"volumes":[{{"name":"kube-api-access-x","projected":{{"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"name":"kube-root-ca.crt","items":[{{"key":"ca.crt","path":"ca.crt"}}]}}}}],"defaultMode":420}}}}],"containers":[{{"name":"web","image":"registry.example.com/team/web:1.27.3","ports":[{{"containerPort":8080,"protocol":"TCP"}}],"env":[{env}{{"name":"LAST","value":"1"}}],"resources":{{"limits":{{"cpu":"500m","memory":"256Mi"}},"requests":{{"cpu":"100m","memory":"128Mi"}}}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","nodeName":"node-{}","securityContext":{{}},"schedulerName":"default-scheduler","tolerations":[{{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}},"status":{{"phase":"Running","conditions":[{}],"hostIP":"10.0.0.1","podIP":"10.1.2.3","startTime":"2026-11-20T10:00:00Z","containerStatuses":[{{"name":"web","state":{{"running":{{"startedAt":"2026-11-20T10:00:02Z"}}}},"ready":true,"restartCount":0,"image":"registry.example.com/team/web:1.27.3","started":true}}],"qosClass":"Burstable"}}}}"#,
        1_000_000 + at,
        at / 10,
        fields("kube-controller-manager", 14),
        fields("kubelet", 18),
        at % 50,
        conditions.join(","),
    )
}
