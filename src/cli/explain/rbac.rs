//! What RBAC objects of a member say of somebody, and what would allow him more. Values in, values out.

use serde::Deserialize;

/// Who asks.
pub(super) struct Who {
    pub(super) user: String,
    pub(super) groups: Vec<String>,
}

/// What is asked for.
pub(super) struct Wish<'a> {
    pub(super) verb: &'a str,
    pub(super) group: &'a str,
    pub(super) resource: &'a str,
    pub(super) subresource: &'a str,
    pub(super) name: Option<&'a str>,
    /// Empty: in all, or in none.
    pub(super) namespace: &'a str,
}

/// Objects of one kind.
#[derive(Deserialize)]
pub(super) struct List<T> {
    pub(super) items: Vec<T>,
}

/// A RoleBinding or a ClusterRoleBinding.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Binding {
    metadata: Metadata,
    #[serde(default)]
    subjects: Vec<Subject>,
    role_ref: RoleRef,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: Option<String>,
}

#[derive(Deserialize)]
struct Subject {
    kind: String,
    name: String,
    namespace: Option<String>,
}

#[derive(Deserialize)]
struct RoleRef {
    kind: String,
    name: String,
}

/// A ClusterRole.
#[derive(Deserialize)]
pub(super) struct Role {
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Rule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

impl Binding {
    /// Whether it is about this caller. What everybody has by his login says nothing of him.
    pub(super) fn names(&self, who: &Who) -> bool {
        self.subjects.iter().any(|subject| match &*subject.kind {
            "User" => subject.name == who.user,
            "Group" => !subject.name.starts_with("system:") && who.groups.contains(&subject.name),
            "ServiceAccount" => {
                let namespace = subject.namespace.as_deref().unwrap_or_default();
                who.user == format!("system:serviceaccount:{namespace}:{}", subject.name)
            }
            _ => false,
        })
    }

    /// `RoleBinding "dev/shop" of ClusterRole "view"`, as an API server says it.
    pub(super) fn text(&self) -> String {
        let Self { metadata: Metadata { name, namespace }, role_ref, .. } = self;
        let (kind, name) = match namespace {
            Some(namespace) => ("RoleBinding", format!("{name}/{namespace}")),
            None => ("ClusterRoleBinding", name.clone()),
        };
        format!("{kind} \"{name}\" of {} \"{}\"", role_ref.kind, role_ref.name)
    }
}

impl Role {
    /// Source: `RuleAllows` of kubernetes/plugin/pkg/auth/authorizer/rbac, for requests about resources.
    pub(super) fn allows(&self, wish: &Wish<'_>) -> bool {
        let has = |all: &[String], one: &str| all.iter().any(|each| each == "*" || each == one);
        let resource = wish.full_resource();
        let of_any = format!("*/{}", wish.subresource);
        self.rules.iter().any(|rule| {
            let is_named = rule
                .resources
                .iter()
                .any(|each| *each == "*" || *each == resource || (!wish.subresource.is_empty() && *each == of_any));
            let names = &rule.resource_names;
            let is_for_name = names.is_empty() || wish.name.is_some_and(|name| names.iter().any(|each| each == name));
            has(&rule.verbs, wish.verb) && has(&rule.api_groups, wish.group) && is_named && is_for_name
        })
    }
}

impl Wish<'_> {
    /// `pods/log`.
    fn full_resource(&self) -> String {
        let Self { resource, subresource, .. } = self;
        if subresource.is_empty() { (*resource).to_owned() } else { format!("{resource}/{subresource}") }
    }

    /// The commands that allow it in a member: a role, if none of Kubernetes' own has it, and a binding.
    pub(super) fn remedy(&self, context: &str, user: &str, role: Option<&str>) -> Vec<String> {
        let Self { verb, group, resource, subresource, name, namespace } = self;
        let kubectl = format!("kubectl --context {} create", quoted(context));
        let (prefix, place) = match namespace.is_empty() {
            true => ("cluster", String::new()),
            false => ("", format!(" -n {}", quoted(namespace))),
        };
        // Names of RBAC objects may have everything but these.
        let fit = |text: String| text.replace(['/', '%'], "-");
        let user_flag = format!("--user={}", quoted(user));
        if let Some(role) = role {
            let binding = quoted(&fit(format!("{user}-{role}")));
            return vec![format!("{kubectl} {prefix}rolebinding {binding} --clusterrole={role} {user_flag}{place}")];
        }
        let made = quoted(&fit(format!("{user}-{verb}-{}", self.full_resource())));
        let dot = if group.is_empty() { String::new() } else { format!(".{group}") };
        let slash = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        let of_name = name.map(|name| format!(" --resource-name={}", quoted(name))).unwrap_or_default();
        let what =
            format!("--verb={} --resource={}{of_name}", quoted(verb), quoted(&format!("{resource}{dot}{slash}")));
        vec![
            format!("{kubectl} {prefix}role {made} {what}{place}"),
            format!("{kubectl} {prefix}rolebinding {made} --{prefix}role={made} {user_flag}{place}"),
        ]
    }
}

/// As a shell takes it for one word.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@=,+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wish<'a>(verb: &'a str, group: &'a str, resource: &'a str, subresource: &'a str) -> Wish<'a> {
        Wish { verb, group, resource, subresource, name: None, namespace: "shop" }
    }

    #[test]
    fn a_binding_is_about_users_groups_and_service_accounts() {
        let binding = |subject: serde_json::Value| -> Binding {
            let role = json!({"kind": "ClusterRole", "name": "view"});
            let made =
                json!({"metadata": {"name": "dev", "namespace": "shop"}, "subjects": [subject], "roleRef": role});
            serde_json::from_value(made).unwrap()
        };
        let jane = Who { user: "jane".into(), groups: vec!["dev".into(), "system:authenticated".into()] };
        let bot = Who { user: "system:serviceaccount:ci:bot".into(), groups: Vec::new() };
        assert!(binding(json!({"kind": "User", "name": "jane"})).names(&jane));
        assert!(binding(json!({"kind": "Group", "name": "dev"})).names(&jane));
        assert!(!binding(json!({"kind": "Group", "name": "jane"})).names(&jane));
        assert!(!binding(json!({"kind": "Group", "name": "system:authenticated"})).names(&jane));
        let account = binding(json!({"kind": "ServiceAccount", "name": "bot", "namespace": "ci"}));
        assert!(account.names(&bot) && !account.names(&jane));
        assert_eq!(account.text(), r#"RoleBinding "dev/shop" of ClusterRole "view""#);
    }

    #[test]
    fn a_role_allows_what_a_rule_has() {
        let rules = json!({"rules": [
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]},
            {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*/scale"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"]},
            {"verbs": ["get"], "nonResourceURLs": ["/healthz"]},
        ]});
        let role: Role = serde_json::from_value(rules).unwrap();
        assert!(role.allows(&wish("list", "", "pods", "")) && role.allows(&wish("get", "", "pods", "log")));
        assert!(
            !role.allows(&wish("delete", "", "pods", "")) && !role.allows(&wish("list", "metrics.k8s.io", "pods", ""))
        );
        assert!(role.allows(&wish("patch", "apps", "deployments", "scale")));
        assert!(!role.allows(&wish("patch", "apps", "deployments", "")));
        assert!(!role.allows(&wish("get", "", "secrets", "")));
        assert!(role.allows(&Wish { name: Some("one"), ..wish("get", "", "secrets", "") }));
    }

    #[test]
    fn a_remedy_is_ready_to_run() {
        let scale = wish("patch", "apps", "deployments", "scale");
        assert_eq!(
            scale.remedy("fleet-east", "oidc:jane", Some("edit")),
            [
                "kubectl --context fleet-east create rolebinding oidc:jane-edit --clusterrole=edit --user=oidc:jane -n shop"
            ]
        );
        assert_eq!(
            scale.remedy("fleet-east", "Jane Doe", None),
            [
                "kubectl --context fleet-east create role 'Jane Doe-patch-deployments-scale' --verb=patch \
                 --resource=deployments.apps/scale -n shop",
                "kubectl --context fleet-east create rolebinding 'Jane Doe-patch-deployments-scale' \
                 --role='Jane Doe-patch-deployments-scale' --user='Jane Doe' -n shop",
            ]
        );
        let nodes = Wish { namespace: "", name: Some("n1"), ..wish("get", "", "nodes", "") };
        assert_eq!(
            nodes.remedy("c", "jane", None),
            [
                "kubectl --context c create clusterrole jane-get-nodes --verb=get --resource=nodes --resource-name=n1",
                "kubectl --context c create clusterrolebinding jane-get-nodes --clusterrole=jane-get-nodes --user=jane",
            ]
        );
    }
}
