use super::*;

/// Types, statuses and reasons of conditions.
fn conditions(object: &Value) -> Vec<[String; 4]> {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let field = |condition: &Value, name: &str| condition[name].as_str().unwrap_or_default().to_owned();
    conditions.iter().map(|c| ["type", "status", "reason", "message"].map(|name| field(c, name))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_comes_to_life() {
    let mut town = Town::new(3).await;
    town.create("deployments", deployment("web", 3)).await.unwrap();
    town.live(20).await;
    let web = town.get("deployments", "web").await.unwrap();
    let counts = json!({
        "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
        "terminatingReplicas": 0, "conditions": web["status"]["conditions"],
    });
    assert_eq!(web["status"], counts);
    let sets = town.names("replicasets").await;
    let [set] = sets.as_slice() else { panic!("{sets:?}") };
    let progressed = format!("ReplicaSet \"{set}\" has successfully progressed.");
    assert_eq!(
        conditions(&web),
        [
            ["Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability."],
            ["Progressing", "True", "NewReplicaSetAvailable", &progressed],
        ]
        .map(|words| words.map(str::to_owned))
    );
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    assert_eq!(town.told("web").await, [format!("ScalingReplicaSet: Scaled up replica set {set} from 0 to 3")]);
    let pods = town.list("pods").await;
    assert_eq!(pods.len(), 3);
    for pod in &pods {
        assert_eq!(pod["status"]["phase"], "Running");
        assert_eq!(pod["metadata"]["ownerReferences"][0]["name"], set.as_str());
        let told = town.told(pod["metadata"]["name"].as_str().unwrap()).await;
        let reasons: Vec<&str> = told.iter().filter_map(|words| words.split(':').next()).collect();
        assert_eq!(reasons, ["Scheduled", "Pulling", "Pulled", "Created", "Started"]);
    }
    let mut nodes: Vec<&str> = pods.iter().map(|pod| pod["spec"]["nodeName"].as_str().unwrap()).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["node-0", "node-1", "node-2"], "pods of one owner lie apart");
}

#[tokio::test(start_paused = true)]
async fn a_rollout_goes_and_comes_back() {
    let mut town = Town::new(3).await;
    town.create("deployments", deployment("web", 4)).await.unwrap();
    town.live(20).await;
    let first = town.names("replicasets").await.remove(0);
    town.edit("deployments", "web", |web| {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:1.28".into()
    })
    .await;
    town.live(1).await;
    let midway = town.list("pods").await;
    let alive = midway.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).count();
    assert!((3..=5).contains(&alive), "25% more or fewer: {alive}");
    town.live(40).await;
    let sets = town.list("replicasets").await;
    let size = |set: &Value| set["spec"]["replicas"].as_i64().unwrap();
    assert_eq!(sets.iter().map(size).sum::<i64>(), 4);
    let old = town.get("replicasets", &first).await.unwrap();
    assert_eq!((size(&old), &old["status"]["replicas"]), (0, &json!(0)));
    // What `kubectl rollout undo` sends.
    let template = old["spec"]["template"].clone();
    town.edit("deployments", "web", |web| {
        let mut template = template.clone();
        template["metadata"]["labels"].as_object_mut().unwrap().shift_remove("pod-template-hash");
        web["spec"]["template"] = template;
    })
    .await;
    town.live(40).await;
    let web = town.get("deployments", "web").await.unwrap();
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    let back = town.get("replicasets", &first).await.unwrap();
    assert_eq!(back["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"], "1");
    assert_eq!(size(&back), 4);
    assert_eq!(town.list("pods").await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_recreates_ends_the_old_first() {
    let mut town = Town::new(2).await;
    let mut web = deployment("web", 3);
    web["spec"]["strategy"] = json!({"type": "Recreate"});
    town.create("deployments", web).await.unwrap();
    town.live(20).await;
    town.edit("deployments", "web", |web| web["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:2".into())
        .await;
    for _ in 0..20 {
        town.live(1).await;
        let pods = town.list("pods").await;
        let images: std::collections::BTreeSet<&str> =
            pods.iter().map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap()).collect();
        assert!(images.len() <= 1, "{images:?}");
    }
    let web = town.get("deployments", "web").await.unwrap();
    assert_eq!(web["status"]["availableReplicas"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_cannot_go_on_says_so() {
    let mut town = Town::new(1).await;
    let mut web = deployment("web", 1);
    web["spec"]["progressDeadlineSeconds"] = 30.into();
    web["spec"]["template"]["spec"]["containers"][0]["image"] = "does-not-exist:1".into();
    town.create("deployments", web).await.unwrap();
    town.live(60).await;
    let web = town.get("deployments", "web").await.unwrap();
    let set = town.names("replicasets").await.remove(0);
    let late = format!("ReplicaSet \"{set}\" has timed out progressing.");
    assert!(conditions(&web).contains(&["Progressing", "False", "ProgressDeadlineExceeded", &late].map(str::to_owned)));
    let pod = town.list("pods").await.remove(0);
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ImagePullBackOff");
    let told = town.told(pod["metadata"]["name"].as_str().unwrap()).await;
    assert!(told.contains(&"Failed: Error: ErrImagePull".to_owned()), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crashing_pod_backs_off() {
    let mut town = Town::new(1).await;
    let mut web = deployment("web", 1);
    web["spec"]["template"]["metadata"]["annotations"] = json!({"kubefold.io/sim": "crash"});
    town.create("deployments", web).await.unwrap();
    town.live(90).await;
    let pod = town.list("pods").await.remove(0);
    let status = &pod["status"]["containerStatuses"][0];
    assert_eq!(status["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 1);
    assert!((2..=4).contains(&status["restartCount"].as_i64().unwrap()), "{status}");
    let events = town.list("events").await;
    let backoff = events.iter().find(|event| event["reason"] == "BackOff").unwrap();
    assert!(backoff["count"].as_i64().unwrap() > 1, "the same again is counted: {backoff}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_nowhere_waits() {
    let mut town = Town::new(2).await;
    let mut web = deployment("web", 1);
    web["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64".into();
    town.create("deployments", web).await.unwrap();
    town.live(5).await;
    let pod = town.list("pods").await.remove(0);
    let words = "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are \
                 available: 2 Preemption is not helpful for scheduling.";
    assert_eq!(
        conditions(&pod),
        [["PodScheduled".to_owned(), "False".to_owned(), "Unschedulable".to_owned(), words.to_owned()]]
    );
    assert_eq!(town.told(pod["metadata"]["name"].as_str().unwrap()).await, [format!("FailedScheduling: {words}")]);
    // A larger node takes it.
    let mut node = json!({"metadata": {"name": "large"}});
    node["status"] = json!({"capacity": {"cpu": "128", "memory": "512Gi", "pods": "110"}});
    town.create("nodes", node.clone()).await.unwrap();
    let kind = town.kind("nodes");
    let options = WriteOptions { part: crate::registry::Part::Status, ..WriteOptions::default() };
    town.registry
        .modify(&kind, "", "large", &options, |large| {
            large["status"] =
                json!({"capacity": node["status"]["capacity"], "allocatable": node["status"]["capacity"]});
            Ok(())
        })
        .await
        .unwrap();
    town.live(10).await;
    let pod = town.list("pods").await.remove(0);
    assert_eq!((&pod["spec"]["nodeName"], &pod["status"]["phase"]), (&json!("large"), &json!("Running")));
}

#[tokio::test(start_paused = true)]
async fn a_job_completes() {
    let mut town = Town::new(2).await;
    let mut template = pod_template("sum");
    template["spec"]["restartPolicy"] = "Never".into();
    let spec = json!({"completions": 3, "parallelism": 2, "template": template, "ttlSecondsAfterFinished": 60});
    town.create("jobs", json!({"metadata": {"name": "sum"}, "spec": spec})).await.unwrap();
    town.live(5).await;
    let job = town.get("jobs", "sum").await.unwrap();
    assert_eq!((&job["status"]["active"], &job["status"]["ready"]), (&json!(2), &json!(2)));
    town.live(30).await;
    let job = town.get("jobs", "sum").await.unwrap();
    assert_eq!(job["status"]["succeeded"], 3);
    let words = "Reached expected number of succeeded pods";
    assert_eq!(
        conditions(&job),
        [
            ["SuccessCriteriaMet", "True", "CompletionsReached", words],
            ["Complete", "True", "CompletionsReached", words]
        ]
        .map(|words| words.map(str::to_owned))
    );
    let told = town.told("sum").await;
    assert_eq!(told.last().unwrap(), "Completed: Job completed");
    assert_eq!(told.iter().filter(|words| words.starts_with("SuccessfulCreate: Created pod: sum-")).count(), 3);
    let pods = town.list("pods").await;
    assert!(pods.iter().all(|pod| pod["status"]["phase"] == "Succeeded" && pod["metadata"]["finalizers"].is_null()));
    town.live(60).await;
    assert!(town.get("jobs", "sum").await.is_none() && town.list("pods").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_too_often_ends() {
    let mut town = Town::new(2).await;
    let mut template = pod_template("bad");
    template["spec"]["restartPolicy"] = "Never".into();
    template["metadata"]["annotations"] = json!({"kubefold.io/sim": "fail"});
    let spec = json!({"backoffLimit": 1, "template": template});
    town.create("jobs", json!({"metadata": {"name": "bad"}, "spec": spec})).await.unwrap();
    town.live(120).await;
    let job = town.get("jobs", "bad").await.unwrap();
    assert_eq!(job["status"]["failed"], 2);
    let words = "Job has reached the specified backoff limit";
    assert_eq!(
        conditions(&job),
        [["FailureTarget", "True", "BackoffLimitExceeded", words], ["Failed", "True", "BackoffLimitExceeded", words]]
            .map(|words| words.map(str::to_owned))
    );
    assert_eq!(town.told("bad").await.last().unwrap(), &format!("BackoffLimitExceeded: {words}"));
}

#[tokio::test(start_paused = true)]
async fn a_cron_job_makes_jobs() {
    let mut town = Town::new(1).await;
    let mut template = pod_template("tick");
    template["spec"]["restartPolicy"] = "OnFailure".into();
    let spec = json!({"schedule": "*/2 * * * *", "jobTemplate": {"spec": {"template": template}}});
    town.create("cronjobs", json!({"metadata": {"name": "tick"}, "spec": spec})).await.unwrap();
    town.live(11 * 60).await;
    let cron = town.get("cronjobs", "tick").await.unwrap();
    assert_eq!(cron["status"]["lastScheduleTime"], "2026-03-01T12:10:00Z");
    assert_eq!(town.list("jobs").await.len(), 3, "older ones went");
    let told = town.told("tick").await;
    assert!(told.iter().any(|words| words.starts_with("SawCompletedJob: Saw completed job: tick-")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_comes_one_by_one() {
    let mut town = Town::new(2).await;
    let class = json!({
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubefold.io/provisioner",
    });
    town.create("storageclasses", class).await.unwrap();
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let spec = json!({
        "serviceName": "db", "replicas": 3, "selector": {"matchLabels": {"app": "db"}}, "template": pod_template("db"),
        "volumeClaimTemplates": [claim],
    });
    town.create("statefulsets", json!({"metadata": {"name": "db"}, "spec": spec})).await.unwrap();
    town.live(2).await;
    assert_eq!(town.names("pods").await, ["db-0"]);
    town.live(30).await;
    assert_eq!(town.names("pods").await, ["db-0", "db-1", "db-2"]);
    let db = town.get("statefulsets", "db").await.unwrap();
    assert_eq!((&db["status"]["readyReplicas"], &db["status"]["currentReplicas"]), (&json!(3), &json!(3)));
    assert_eq!(town.names("controllerrevisions").await.len(), 1);
    let claims = town.list("persistentvolumeclaims").await;
    assert!(claims.len() == 3 && claims.iter().all(|claim| claim["status"]["phase"] == "Bound"), "{claims:?}");
    town.edit("statefulsets", "db", |db| db["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:2".into())
        .await;
    town.live(60).await;
    let db = town.get("statefulsets", "db").await.unwrap();
    assert_eq!(db["status"]["currentRevision"], db["status"]["updateRevision"]);
    let pods = town.list("pods").await;
    assert!(pods.iter().all(|pod| pod["spec"]["containers"][0]["image"] == "nginx:2"));
    town.edit("statefulsets", "db", |db| db["spec"]["replicas"] = 1.into()).await;
    town.live(20).await;
    assert_eq!(town.names("pods").await, ["db-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_has_a_pod_on_each_node() {
    let mut town = Town::new(3).await;
    let spec = json!({"selector": {"matchLabels": {"app": "agent"}}, "template": pod_template("agent")});
    town.create("daemonsets", json!({"metadata": {"name": "agent"}, "spec": spec})).await.unwrap();
    town.live(15).await;
    let agent = town.get("daemonsets", "agent").await.unwrap();
    assert_eq!(
        (&agent["status"]["desiredNumberScheduled"], &agent["status"]["numberAvailable"]),
        (&json!(3), &json!(3))
    );
    town.create("nodes", json!({"metadata": {"name": "node-3"}})).await.unwrap();
    town.live(15).await;
    assert_eq!(town.list("pods").await.len(), 4);
    town.delete("nodes", "node-0", Propagation::Background).await;
    town.live(15).await;
    assert_eq!(town.list("pods").await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_service_has_endpoints_of_ready_pods() {
    let mut town = Town::new(2).await;
    town.create("deployments", deployment("web", 2)).await.unwrap();
    let spec = json!({"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    town.create("services", json!({"metadata": {"name": "web"}, "spec": spec})).await.unwrap();
    town.live(20).await;
    let endpoints = town.get("endpoints", "web").await.unwrap();
    assert_eq!(endpoints["subsets"][0]["addresses"].as_array().unwrap().len(), 2);
    assert_eq!(endpoints["subsets"][0]["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    let slices = town.list("endpointslices").await;
    let [slice] = slices.as_slice() else { panic!("{slices:?}") };
    assert_eq!(slice["endpoints"].as_array().unwrap().len(), 2);
    assert_eq!(slice["endpoints"][0]["conditions"], json!({"ready": true, "serving": true, "terminating": false}));
    town.edit("deployments", "web", |web| web["spec"]["replicas"] = 0.into()).await;
    town.live(20).await;
    assert!(town.get("endpoints", "web").await.unwrap()["subsets"].as_array().is_none_or(Vec::is_empty));
    town.delete("services", "web", Propagation::Background).await;
    town.live(5).await;
    assert!(town.list("endpointslices").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn events_go_after_an_hour() {
    let mut town = Town::new(1).await;
    town.create("deployments", deployment("web", 1)).await.unwrap();
    town.live(60).await;
    assert!(!town.list("events").await.is_empty());
    town.live(3600).await;
    assert!(town.list("events").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_runs_of_one_seed_are_equal() {
    let run = async |seed: u64| {
        let mut town = Town::seeded(seed, 3).await;
        town.create("deployments", deployment("web", 5)).await.unwrap();
        town.live(10).await;
        town.edit("deployments", "web", |web| {
            web["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:2".into()
        })
        .await;
        town.live(60).await;
        let range = crate::storage::Range::default();
        let page = town.registry.storage().range(range).await.unwrap();
        let text = page.records.iter().map(|record| {
            let json = crate::registry::Object::of_record(record).bare().to_owned();
            // Under another seed the clock begins elsewhere.
            format!("{} {} {json}", record.key, record.revision)
        });
        text.collect::<Vec<_>>()
    };
    let (one, other) = (run(7).await, run(7).await);
    assert_eq!(one, other);
    assert_ne!(one, run(8).await);
}
