//! Answers in protobuf, beside a kube-apiserver's.

use kubefold_wire::protobuf::{self, Payload, Records};

use super::*;

/// What client-go sends with typed clients.
const TYPED: &str = "application/vnd.kubernetes.protobuf,application/json";

fn table_client() -> String {
    let protobuf = partial("Table", "v1").replace("application/json", "application/vnd.kubernetes.protobuf");
    format!("{protobuf},{},application/json", partial("Table", "v1"))
}

/// Which media type who accepts several is answered in, and what it says, of everything that a client reads.
#[tokio::test(flavor = "multi_thread")]
async fn who_prefers_protobuf_is_answered_as_by_a_kube_apiserver() {
    let pair = pair(Testbed::shared(&["east"]).await, "prefer-protobuf").await;
    let watch = "watch=1&timeoutSeconds=1&labelSelector=app";
    let initial = format!("{watch}&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let objects = [TYPED.to_owned(), format!("{TYPED};q=0.5"), metadata_client("PartialObjectMetadata")];
    let lists = [TYPED.to_owned(), metadata_client("PartialObjectMetadataList")];
    let mut seen = Vec::new();
    for (all, name) in [(&pair.maps, "texts"), (&pair.gadgets, "cog")] {
        for accept in &objects {
            for path in [format!("{all}/{name}%40east"), format!("{all}?{watch}"), format!("{all}?{initial}")] {
                seen.push(same_said(&pair, &path, accept).await);
            }
            // There is no such object: the failure is told in the same media type.
            same_said(&pair, &format!("{all}/nope"), accept).await;
        }
        for accept in &lists {
            for query in ["labelSelector=app", "labelSelector=none", "limit=1&labelSelector=app"] {
                // Tokens are blanked in what has a fixed order alone.
                if all == &pair.maps || !query.contains("limit") {
                    seen.push(same_said(&pair, &format!("{all}?{query}"), accept).await);
                }
            }
        }
    }
    assert!(seen.iter().any(|said| said.contains("initial-events-end")), "{seen:?}");
    // A Table has no message: what is accepted beside it is taken, or nothing.
    let (table, table_alone) = (table_client(), table_client().split(',').next().unwrap().to_owned());
    for path in [pair.maps.clone(), format!("{}?{watch}", pair.maps), pair.gadgets.clone()] {
        let (_, ours) = pair.both(&Method::GET, &path, &[(header::ACCEPT, &table)], "").await;
        assert_eq!(heads(&ours)[0].as_deref(), Some("application/json"), "{path}");
        let (theirs, ours) = pair.both(&Method::GET, &path, &[(header::ACCEPT, &table_alone)], "").await;
        assert_eq!((ours.status, &ours.body), (StatusCode::NOT_ACCEPTABLE, &theirs.body), "{path}");
    }
}

/// Compares status, heads and what the bodies say.
async fn same_said(pair: &Pair, path: &str, accept: &str) -> String {
    let (theirs, ours) = pair.both(&Method::GET, path, &[(header::ACCEPT, accept)], "").await;
    let said = |answer: &Answer| {
        // A kube-apiserver has an empty token in lists of custom resources.
        let lines = lines(answer).join("\n").replace("\"continue\":\"\",", "");
        until_bookmark(&without_token(&normal(lines.as_bytes())))
    };
    let (ours, theirs) = (said(&ours), said(&theirs));
    // A custom resource keeps the order of its own keys.
    let values = |said: &str| said.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>().ok();
    let are_equal = ours == theirs || values(&ours).is_some_and(|ours| values(&theirs) == Some(ours));
    assert!(are_equal, "{path} {accept}: {ours}\nand the member: {theirs}");
    ours
}

/// The documents of an answer as JSON: one, or those of the events of a watch.
pub(super) fn lines(answer: &Answer) -> Vec<String> {
    let media_type = answer.headers[header::CONTENT_TYPE].to_str().unwrap();
    let read = |object: &[u8]| String::from_utf8(protobuf::to_json(object).unwrap()).unwrap();
    match media_type {
        "application/vnd.kubernetes.protobuf" => vec![read(&answer.body)],
        "application/vnd.kubernetes.protobuf;stream=watch" => {
            let (mut rest, mut events) = (&*answer.body, Vec::new());
            while let Some((length, frame)) = rest.split_first_chunk() {
                let (event, behind) = frame.split_at(u32::from_be_bytes(*length) as usize);
                let [event_type, raw] = fields(event)[..] else { panic!("{event:?}") };
                let event_type = std::str::from_utf8(event_type).unwrap();
                events.push(format!("{{\"type\":\"{event_type}\",\"object\":{}}}", read(fields(raw)[0])));
                rest = behind;
            }
            events
        }
        _ => vec![String::from_utf8(answer.body.to_vec()).unwrap()],
    }
}

/// The fields of a message, of which all are bytes.
fn fields(message: &[u8]) -> Vec<&[u8]> {
    let bytes = |record| match record {
        Ok((_, Payload::Bytes(bytes))) => bytes,
        other => panic!("{other:?}"),
    };
    Records::new(message).map(bytes).collect()
}

/// Whether the client accepts JSON, too: what the fleet view gives in protobuf is its own JSON, as Go would encode that.
async fn made_of_its_json(ours: &Api, path: &str) {
    eventually(SOON, async || {
        let json = ask(ours, &Method::GET, path, &[(header::ACCEPT, "application/json")], "").await;
        let made = ask(ours, &Method::GET, path, &[(header::ACCEPT, TYPED)], "").await;
        let wanted = protobuf::from_json(std::str::from_utf8(&json.body).unwrap()).unwrap();
        // Somebody may have written between the two.
        if made.body == wanted { Ok(()) } else { Err(format!("{path}: {json}")) }
    })
    .await;
}

/// Objects and lists of every built-in kind, byte for byte; and what the fleet view gives in protobuf is what it gives in JSON.
#[tokio::test(flavor = "multi_thread")]
async fn every_kind_is_written_in_protobuf_as_a_kube_apiserver_writes_it() {
    let pair = pair(Testbed::shared(&["east"]).await, "protobuf").await;
    let accept = [(header::ACCEPT, protobuf::MEDIA_TYPE)];
    let mut compared = (0, 0);
    for path in resources(&pair.theirs).await {
        let list = same_bytes(&pair.theirs, &path).await;
        compared.0 += 1;
        let ours = ask(&pair.ours, &Method::GET, &path, &accept, "").await;
        assert_eq!(
            (ours.status.as_u16(), heads(&ours)[0].as_deref()),
            (200, Some(protobuf::MEDIA_TYPE)),
            "{path}: {ours}"
        );
        let read: Value = serde_json::from_slice(&protobuf::to_json(&ours.body).unwrap()).unwrap();
        let plain = pair.ours.get(&path).await;
        assert_eq!((&read["kind"], &read["apiVersion"]), (&plain["kind"], &plain["apiVersion"]), "{path}");
        made_of_its_json(&pair.ours, &path).await;
        for item in list["items"].as_array().unwrap().iter().take(4) {
            let (namespace, name) = (&item["metadata"]["namespace"], item["metadata"]["name"].as_str().unwrap());
            let (collection, plural) = path.rsplit_once('/').unwrap();
            let of = namespace.as_str().map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
            same_bytes(&pair.theirs, &format!("{collection}{of}/{plural}/{}", name.replace(':', "%3A"))).await;
            compared.1 += 1;
        }
    }
    assert!(compared.0 > 50 && compared.1 > 30, "{compared:?}");

    // A failure is told in protobuf, too; and custom resources have none.
    for path in [format!("{}/nope", pair.maps), pair.gadgets.clone(), format!("{}/cog%40east", pair.gadgets)] {
        let (theirs, ours) = pair.both(&Method::GET, &path, &accept, "").await;
        assert_eq!((ours.status, &ours.body, heads(&ours)), (theirs.status, &theirs.body, heads(&theirs)), "{path}");
    }
}

/// The collections of built-in kinds.
async fn resources(api: &Api) -> Vec<String> {
    let mut paths = Vec::new();
    let groups = api.get("/apis").await;
    let versions = groups["groups"].as_array().unwrap().iter().flat_map(|group| group["versions"].as_array().unwrap());
    let served = versions.map(|version| format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
    for root in served.chain(["/api/v1".to_owned()]).filter(|root| !root.contains("kubefold.io")) {
        let list = api.get(&root).await;
        let listed = list["resources"].as_array().unwrap().iter();
        let listed = listed.filter(|resource| resource["verbs"].as_array().unwrap().contains(&json!("list")));
        paths.extend(listed.map(|resource| format!("{root}/{}", resource["name"].as_str().unwrap())));
    }
    paths
}

/// Compares what an API server gives in protobuf with what kubefold makes of its JSON, at one revision.
async fn same_bytes(api: &Api, path: &str) -> Value {
    let accept = [(header::ACCEPT, protobuf::MEDIA_TYPE)];
    eventually(SOON, async || {
        let json = ask(api, &Method::GET, path, &[(header::ACCEPT, "application/json")], "").await;
        let theirs = ask(api, &Method::GET, path, &accept, "").await;
        let text = std::str::from_utf8(&json.body).unwrap();
        let ours = protobuf::from_json(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        // Somebody may have written between the two.
        if ours == theirs.body { Ok(json.json()) } else { Err(format!("{path}: {text}")) }
    })
    .await
}
