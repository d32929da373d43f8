//! Policies that ask what somebody may do, by roles that both servers have.

use kubefold_apiserver::{Authorization, Caller};

use super::*;

const MUTATING: [&str; 2] = [
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
];
const DRY: &str = "/api/v1/namespaces/shop/configmaps?dryRun=All";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const BOT: &str = "authorizer.serviceAccount('shop', 'bot')";

/// Questions, each with a text as the answer. `BOT` is an account that may get pods of one namespace.
const ASKED: &[&str] = &[
    "string(authorizer.group('').resource('configmaps').namespace('shop').check('create').allowed())",
    "authorizer.group('').resource('configmaps').namespace('shop').check('create').reason()",
    "string(authorizer.group('').resource('configmaps').namespace('shop').check('delete').allowed())",
    "authorizer.group('').resource('configmaps').namespace('shop').check('delete').reason()",
    "string(authorizer.group('').resource('configmaps').check('create').allowed())",
    "string(authorizer.group('apps').resource('deployments').namespace('shop').name('x').check('get').allowed())",
    "string(authorizer.requestResource.check('create').allowed())",
    "authorizer.requestResource.check('create').reason()",
    "string(authorizer.requestResource.check('delete').allowed())",
    "string(authorizer.requestResource.namespace('default').check('create').allowed())",
    "string(authorizer.requestResource.subresource('x').check('create').allowed())",
    "string(BOT.group('').resource('pods').namespace('shop').check('get').allowed())",
    "BOT.group('').resource('pods').namespace('shop').check('get').reason()",
    "string(BOT.group('').resource('pods').namespace('shop').name('a').check('get').allowed())",
    "string(BOT.group('').resource('pods').namespace('shop').name('').check('get').allowed())",
    "string(BOT.group('').resource('pods').namespace('shop').subresource('log').check('get').allowed())",
    "string(BOT.group('').resource('pods').namespace('default').check('get').allowed())",
    "string(BOT.group('').resource('pods').check('get').allowed())",
    "string(BOT.group('x').resource('pods').namespace('shop').check('get').allowed())",
    "string(BOT.group('').resource('pods').namespace('shop').check('list').allowed())",
    "string(BOT.group('').resource('pods').namespace('shop').check('GET').allowed())",
    "string(BOT.group('').resource('pods').namespace('shop').fieldSelector('spec.nodeName=a').check('get').allowed())",
    "string(BOT.group('').resource('pods').namespace('shop').labelSelector('a in (').check('get').allowed())",
    "string(BOT.group('').resource('pods').namespace('shop').labelSelector('a=b').check('get').errored())",
    "BOT.group('').resource('pods').namespace('shop').check('get').error()",
    "string(BOT.group('').resource('secrets').namespace('shop').check('get').errored())",
    "BOT.group('').resource('secrets').namespace('shop').check('get').error()",
    "BOT.group('').resource('secrets').namespace('shop').check('get').reason()",
    "string(BOT.path('/healthz').check('get').allowed())",
    "string(BOT.path('healthz').check('get').allowed())",
    "string(BOT.path('/metrics').check('get').allowed())",
    "BOT.path('/metrics').check('get').reason()",
    "string(authorizer.path('/metrics').check('get').allowed())",
    "string(authorizer.path('/api').check('get').allowed())",
    "authorizer.serviceAccount('shop', 'lost').group('').resource('pods').check('get').reason()",
    "string(authorizer.serviceAccount('shop', 'lost').group('').resource('pods').check('get').errored())",
    "authorizer.serviceAccount('shop', 'a.b').group('').resource('pods').check('get').reason()",
    "string([authorizer][0].group('').resource('pods').check('get').allowed())",
    "string(['get', 'list'].map(verb, BOT.group('').resource('pods').namespace('shop').check(verb).allowed()) == [true, false])",
    "string(type(authorizer) == type(BOT))",
];

/// A policy that writes the answers into the object.
fn told() -> Case {
    let mutation = |(index, asked): (usize, &&str)| {
        let expression = format!("Object{{data: Object.data{{q{index}: {}}}}}", asked.replace("BOT", BOT));
        json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
    };
    let mutations: Vec<Value> = ASKED.iter().enumerate().map(mutation).collect();
    let spec = json!({"reinvocationPolicy": "Never", "mutations": mutations});
    case("told", spec, json!({}), vec![step("POST", DRY, red("told", "told"))])
}

fn judged() -> Vec<Case> {
    let dry = |name: &str| vec![step("POST", DRY, red(name, name))];
    let of = |name: &'static str, expression: &str| case(name, validations(&[expression]), json!({}), dry(name));
    let allowed = "authorizer.requestResource.check('create').allowed()";
    let may_delete = "authorizer.requestResource.check('delete').allowed()";
    vec![
        of("may", allowed),
        of("may-not", may_delete),
        of("of-bot", &format!("{BOT}.group('').resource('pods').namespace('shop').check('list').allowed()")),
        of("no-path", "authorizer.path('').check('get').allowed()"),
        of("blank-path", "authorizer.path(' ').check('get').allowed()"),
        of("no-resource", "authorizer.group('').resource(' ').check('get').allowed()"),
        of("no-account", "authorizer.serviceAccount('shop', 'B_t').path('/x').check('get').allowed()"),
        of("no-space", "authorizer.serviceAccount('a.b', 'bot').path('/x').check('get').allowed()"),
        of("twice", &format!("{allowed} && {may_delete}")),
        // A question costs more than a third of what an expression may.
        of("thrice", &format!("{allowed} && {allowed} && {allowed}")),
        of("either", &format!("{allowed} || {allowed} || {allowed}")),
        of("in-turn", "['a', 'b', 'c'].all(name, authorizer.requestResource.name(name).check('create').allowed())"),
        case(
            "if-may",
            json!({
                "matchConditions": [{"name": "a", "expression": may_delete}],
                "validations": [{"expression": "false", "message": "may delete"}],
            }),
            json!({}),
            dry("if-may"),
        ),
        case(
            "variable",
            json!({
                "variables": [{"name": "may", "expression": may_delete}, {"name": "all", "expression": "authorizer.group('')"}],
                "validations": [
                    {"expression": "variables.may", "messageExpression": "'may: ' + string(variables.may)", "message": "fallen back"},
                    {"expression": "variables.all.resource('configmaps').namespace('shop').check('delete').allowed()", "message": "of a variable"},
                ],
            }),
            json!({}),
            dry("variable"),
        ),
        case(
            "noted",
            json!({"auditAnnotations": [{"key": "a", "valueExpression": "authorizer.path('/x').check('get').reason()"}]}),
            json!({}),
            dry("noted"),
        ),
    ]
}

fn roles() -> Vec<Step> {
    let bind = |name: &str, role: &str, subject: Value| {
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
        json!({"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})
    };
    let account = |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": "shop"});
    let ann = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann"});
    let rule = |resources: &[&str], verbs: &[&str]| json!({"apiGroups": [""], "resources": resources, "verbs": verbs});
    let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
    vec![
        step("POST", ROLES, role("maps", json!([rule(&["configmaps"], &["create", "update"])]))),
        step("POST", ROLES, role("pods", json!([rule(&["pods"], &["get"])]))),
        step("POST", ROLES, role("health", json!([{"nonResourceURLs": ["/healthz"], "verbs": ["get"]}]))),
        step("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings", bind("maps", "maps", ann)),
        step(
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings",
            bind("pods", "pods", account("bot")),
        ),
        step("POST", BINDINGS, bind("health", "health", account("bot"))),
        step("POST", BINDINGS, bind("lost", "nowhere", account("lost"))),
    ]
}

/// A webhook that nobody answers for, and that is asked about nothing: nobody may do what its condition wants.
fn webhook() -> Value {
    let condition = format!("{BOT}.group('').resource('secrets').check('get').allowed()");
    json!({"metadata": {"name": "unasked"}, "webhooks": [{
        "name": "unasked.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": rules(&[""], &["v1"], &["configmaps"]),
        "objectSelector": {"matchLabels": {"case": "unasked"}}, "matchConditions": [{"name": "a", "expression": condition}],
    }]})
}

#[tokio::test]
async fn policies_ask_what_somebody_may_do_as_at_a_kube_apiserver() {
    const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let member = Member::start("authorizer", MemberOptions::default()).await;
    let running = Own::new().built_in(BuiltIn::All).authorize(Authorization::Rbac).start().await.unwrap();
    let somebody = |user: &str, groups: &[&str]| Caller {
        user: user.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..Caller::default()
    };
    let own = |caller: Caller| Server::Asked(Box::new(Server::Embedded(running.service())), caller);
    let admins = [
        Server::Real(Box::new(member.api().await)),
        own(somebody("admin", &["system:masters", "system:authenticated"])),
    ];
    let ann = somebody("ann", &["system:authenticated"]);
    let real = Server::Asked(Box::new(Server::Real(Box::new(member.api().await))), ann.clone());
    let anns = [real, own(ann)];
    let mut cases = judged();
    cases.push(case("last", validations(&["false"]), json!({}), Vec::new()));
    for server in &admins {
        install(server, &cases, POLICIES, &json!({"validationActions": ["Deny"]})).await;
        for step in roles() {
            assert_eq!(server.raw(&step).await.0, 201, "{} of {}", server.name(), step.body);
        }
        for (path, body) in [(MUTATING[0], told().policy()), (WEBHOOKS, webhook())] {
            let (code, body) = server.raw(&step("POST", path, body)).await;
            assert_eq!(code, 201, "{}: {body}", server.name());
        }
        for binding in told().bindings(&json!({})) {
            assert_eq!(server.raw(&step("POST", MUTATING[1], binding)).await.0, 201);
        }
        eventually(EFFECT, async || {
            let (last, told) = (map("last", "last", json!({})), map("told", "told", json!({})));
            let last = server.raw(&step("POST", DRY, last)).await.0;
            let (code, told) = server.raw(&step("POST", DRY, told)).await;
            (last == 422 && told["data"]["q0"].is_string())
                .then_some(())
                .ok_or_else(|| format!("{last}, {code}: {told}"))
        })
        .await;
    }
    let mut steps: Vec<Step> = cases.into_iter().flat_map(|case| case.steps).collect();
    steps.extend(told().steps);
    steps.push(step("POST", DRY, red("unasked", "unasked")));
    for [real, own] in [admins, anns] {
        let again = steps.iter().map(|one| step(one.method, one.path, one.body.clone()));
        let (wrong, count) = differences(&real, &own, again).await;
        assert!(wrong.is_empty(), "of {count}:\n{wrong}");
    }
    running.end().await;
}
