//! Kinds as values beside Rust types.
//!
//! [`Kind::of`] takes a type of anybody's, that derives serde and nothing else, and a kind's names; what is special to the
//! kind are functions of that type. Underneath it is a kind like any other: what a `CustomResourceDefinition` says of
//! a kind, this says, too, and the registry does with it what it does with those.
//!
//! - `codec`: JSON of a version to the hub's type, and back
//! - `strategy`: the functions, as a registry calls them
//! - `schema`: what schemars derives, as a structural schema
//! - `version`: further versions

mod codec;
mod schema;
mod strategy;
#[cfg(test)]
mod tests;
mod version;

use std::{fmt::Display, sync::Arc};

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    definitions,
    kinds::{self, AnyRest, Compose, Connect, Context, Dependency, Kind, Propagation, Rest, Subresource},
    schema::{builtin, builtin_kind},
};
use kubefold_wire::{access, status::Cause};

use codec::Codec;
use strategy::{Hooks, Typed};
pub use version::Version;

/// Why a kind cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    /// Its names, schema or columns are not as Kubernetes wants them. Fields are those of a `CustomResourceDefinition`.
    #[error("the kind {name} cannot be served: {}", .causes.iter().map(Cause::text).collect::<Vec<_>>().join("; "))]
    Invalid {
        /// Such as `posts.blog.example.com`.
        name: String,
        /// What is wrong.
        causes: Vec<Cause>,
    },
    /// Its definition has a version of which nobody says how it is converted.
    #[error(
        "the version {version} of {name} has no conversion; add it with TypedKind::version, or take it out of the definition"
    )]
    NoConversion {
        /// Such as `posts.blog.example.com`.
        name: String,
        /// Such as `v1alpha1`.
        version: String,
    },
    /// It is one of Kubernetes' own kinds, whose names, schema, columns and versions are Kubernetes' own.
    #[error(
        "{group}/{version} {kind} is a built-in kind: its names, scope, schema, columns, subresources and versions cannot \
         be set; leave them out, or serve it in a group of your own"
    )]
    BuiltIn {
        /// Such as `batch`.
        group: String,
        /// Such as `v1`.
        version: String,
        /// Such as `Job`.
        kind: String,
    },
}

/// What can be served: a [`TypedKind`], or a [`Kind`] that is there already.
pub trait IntoKinds {
    /// One kind for each version.
    ///
    /// Errors: it is not as Kubernetes wants it.
    fn into_kinds(self) -> Result<Vec<Kind>, KindError>;
}

impl IntoKinds for Kind {
    fn into_kinds(self) -> Result<Vec<Kind>, KindError> {
        Ok(vec![self])
    }
}

impl<T: Send + Sync + 'static> IntoKinds for TypedKind<T> {
    fn into_kinds(self) -> Result<Vec<Kind>, KindError> {
        self.build()
    }
}

/// A kind whose objects are a Rust type: names, schema, subresources, columns, and functions of the type.
///
/// `T` is the whole object as the functions see it. It need not have a field for metadata: what a type does not know of an
/// object stays as it is.
///
/// Functions run in this order (source: kubernetes/apiserver `pkg/registry/rest/create.go`, `update.go`):
///
/// | request | functions |
/// |---|---|
/// | create | `default`, `prepare_create`, `validate`, `admit`, `warn`, `canonicalize` |
/// | update, patch, apply | `default`, `prepare_update`, `validate`, `validate_update`, `admit`, `warn`, `warn_update`, `canonicalize` |
/// | update of `/status` | `default`, `validate_status`, `canonicalize` |
/// | every answer and every event | `decorate` |
///
/// Between them Kubernetes' own is done: `generation`, the status that only `/status` changes, managed fields, conflicts.
#[must_use = "a kind is served once a server has it"]
pub struct TypedKind<T> {
    /// As a `CustomResourceDefinition`.
    definition: Value,
    /// The same when nothing was set yet: names alone.
    bare: Value,
    hub: String,
    hooks: Hooks<T>,
    codecs: Vec<Codec<T>>,
    connects: Vec<Connected>,
    rest: Option<Answered>,
    composer: Option<Arc<dyn Compose>>,
    aliases: Vec<Alias>,
}

/// What answers in place of the storage.
struct Answered {
    verbs: Vec<String>,
    rest: Arc<dyn AnyRest>,
}

struct Connected {
    name: String,
    verbs: Vec<String>,
    connect: Arc<dyn Connect>,
}

impl Kind {
    /// A kind of a Rust type. Its plural is the lowercase kind with an `s`, its objects are in namespaces, and it has no
    /// schema: any field is taken that serde takes.
    ///
    /// With the group, version and kind of one of Kubernetes' own kinds (`batch`, `v1`, `Job` of k8s-openapi) it is that
    /// kind, with Kubernetes' schema, defaults and validation before the functions that are given here.
    pub fn of<T>(group: &str, version: &str, kind: &str) -> TypedKind<T>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let singular = kind.to_lowercase();
        let plural = plural_of(&singular);
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group,
                "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
                "scope": "Namespaced",
                "versions": [{
                    "name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": open},
                }],
            },
        });
        TypedKind::new(definition, version)
    }

    /// A kind of a Rust type whose names, schema, columns and subresources a `CustomResourceDefinition` says: that of kube's
    /// derive, as JSON (`serde_json::to_value(Post::crd())`), or one of a file. The type is that of the storage version.
    pub fn defined<T>(definition: Value) -> TypedKind<T>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let versions = access::items(&definition, "/spec/versions");
        let stored = versions.iter().find(|version| access::is_true(version, "/storage"));
        let version = stored.map(|version| access::text(version, "/name")).unwrap_or_default().to_owned();
        TypedKind::new(definition, &version)
    }
}

/// Source: kubernetes/apimachinery `pkg/api/meta/restmapper.go`, `UnsafeGuessKindToResource`.
fn plural_of(singular: &str) -> String {
    match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if singular.ends_with('s') => format!("{singular}es"),
        None => format!("{singular}s"),
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> TypedKind<T> {
    fn new(definition: Value, hub: &str) -> Self {
        let api_version = format!("{}/{hub}", access::text(&definition, "/spec/group"));
        Self {
            bare: definition.clone(),
            definition,
            hub: hub.to_owned(),
            hooks: Hooks::default(),
            codecs: vec![Codec::of_hub(api_version)],
            connects: Vec::new(),
            rest: None,
            composer: None,
            aliases: Vec::new(),
        }
    }

    /// Serves the same objects in another group, too. They are stored as those of this one.
    pub fn alias(mut self, group: &str, version: &str) -> Self
    where
        T: Serialize + DeserializeOwned,
    {
        let codec = Codec::of_hub(format!("{group}/{version}"));
        self.codecs.push(codec);
        self.aliases.push(Alias { group: group.to_owned(), version: version.to_owned() });
        self
    }

    /// Has something else say what is shown of an object that is stored, and carry out what is written.
    pub fn composed(mut self, composer: impl Compose) -> Self {
        self.composer = Some(Arc::new(composer));
        self
    }

    /// Has something else answer for the objects, in place of a storage. What it does not serve is refused.
    pub fn rest<R: Rest<Object = T>>(mut self, rest: R) -> Self {
        let verbs = R::VERBS.iter().map(|verb| (*verb).to_owned()).collect();
        self.rest = Some(Answered { verbs, rest: Arc::new(rest) });
        self
    }
}

/// Names, and what discovery, printing and documents say of it.
impl<T: Send + Sync + 'static> TypedKind<T> {
    /// The name in paths, where it is not the kind with an `s`.
    pub fn plural(mut self, plural: &str) -> Self {
        let name = format!("{plural}.{}", access::text(&self.definition, "/spec/group"));
        self.put("/metadata", "name", name.into());
        self.put("/spec/names", "plural", plural.into());
        self
    }

    /// One more name for `kubectl get`.
    pub fn short_name(mut self, name: &str) -> Self {
        self.push("/spec/names", "shortNames", name.into());
        self
    }

    /// One more group of kinds that `kubectl get` lists with it, such as `all`.
    pub fn category(mut self, category: &str) -> Self {
        self.push("/spec/names", "categories", category.into());
        self
    }

    /// Its objects lie in no namespace.
    pub fn cluster_scoped(mut self) -> Self {
        self.put("/spec", "scope", "Cluster".into());
        self
    }

    /// One more column behind the name: its type (`string`, `integer`, `number`, `boolean`, `date`), and the path of the
    /// value, such as `.spec.author`. Without any there is the age.
    pub fn column(mut self, name: &str, kind: &str, path: &str) -> Self {
        self.push_to_hub("additionalPrinterColumns", json!({"name": name, "type": kind, "jsonPath": path}));
        self
    }

    /// The same for `kubectl get -o wide` only.
    pub fn wide_column(mut self, name: &str, kind: &str, path: &str) -> Self {
        let column = json!({"name": name, "type": kind, "jsonPath": path, "priority": 1});
        self.push_to_hub("additionalPrinterColumns", column);
        self
    }

    /// One more field that `--field-selector` may name: the path of a text, a number or a truth, such as `.spec.author`.
    pub fn selectable_field(mut self, path: &str) -> Self {
        self.push_to_hub("selectableFields", json!({"jsonPath": path}));
        self
    }

    /// Has `/status`: writes of the object leave the status alone, and writes of the status all else.
    pub fn status(mut self) -> Self {
        let hub = self.hub_version();
        version::subresource(hub, "status", json!({}));
        self
    }

    /// Has `/scale`: the paths of the wanted number of replicas (below `.spec`), of the present one (below `.status`), and of
    /// the selector as a text, if there is one.
    pub fn scale(mut self, spec_replicas: &str, status_replicas: &str, selector: Option<&str>) -> Self {
        let mut scale = json!({"specReplicasPath": spec_replicas, "statusReplicasPath": status_replicas});
        if let Some(selector) = selector {
            scale["labelSelectorPath"] = selector.into();
        }
        let hub = self.hub_version();
        version::subresource(hub, "scale", scale);
        self
    }

    /// Takes the schema that the type derives with schemars: unknown fields are dropped with a warning (or refused, as
    /// kubectl asks for), wrong values are refused, defaults are filled in, and `kubectl explain` tells its doc comments.
    pub fn schema(self) -> Self
    where
        T: JsonSchema,
    {
        self.schema_value(schema::structural::<T>())
    }

    /// Takes a structural schema as it stands in a `CustomResourceDefinition`, below `openAPIV3Schema`.
    pub fn schema_value(mut self, schema: Value) -> Self {
        let hub = self.hub_version();
        kinds::put(hub, "schema", Some(json!({"openAPIV3Schema": schema})));
        self
    }

    /// One more version. Objects are stored in the hub's, which is the one that [`Kind::of`] names.
    pub fn version(mut self, version: Version<T>) -> Self {
        let api_version = format!("{}/{}", access::text(&self.definition, "/spec/group"), version.name());
        let Version { definition, codec } = version;
        self.push("/spec", "versions", definition);
        self.codecs.push(codec(api_version));
        self
    }

    /// One more path below an object, such as `posts/hello/export`, and who answers it. `verbs` are those of `get`, `create`
    /// (POST), `update` (PUT), `patch` and `delete` that are answered. One that is there already, such as `status`, is replaced.
    pub fn connect(mut self, name: &str, verbs: &[&str], connect: impl Connect) -> Self {
        let verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        self.connects.push(Connected { name: name.to_owned(), verbs, connect: Arc::new(connect) });
        self
    }

    fn hub_version(&mut self) -> &mut Value {
        let hub = self.hub.clone();
        let versions = self.definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
        let found = versions.and_then(|all| all.iter_mut().find(|one| access::text(one, "/name") == hub));
        // A definition without versions is refused when it is built.
        found.unwrap_or(&mut self.bare)
    }

    fn push_to_hub(&mut self, list: &str, item: Value) {
        push(self.hub_version(), list, item);
    }

    fn put(&mut self, at: &str, field: &str, value: Value) {
        if let Some(place) = self.definition.pointer_mut(at) {
            kinds::put(place, field, Some(value));
        }
    }

    fn push(&mut self, at: &str, list: &str, item: Value) {
        if let Some(place) = self.definition.pointer_mut(at) {
            push(place, list, item);
        }
    }
}

fn push(place: &mut Value, list: &str, item: Value) {
    let Some(fields) = place.as_object_mut() else { return };
    let items = fields.entry(list.to_owned()).or_insert_with(|| json!([]));
    if let Some(items) = items.as_array_mut() {
        items.push(item);
    }
}

/// What is special to its objects.
impl<T: Send + Sync + 'static> TypedKind<T> {
    /// Fills in what a client left out. It sees nothing but the object, since it runs for every object that a client sends,
    /// new or not; what depends on the caller or the time is for [`TypedKind::prepare_create`].
    pub fn default(mut self, default: impl Fn(&mut T) + Send + Sync + 'static) -> Self {
        self.hooks.default = Some(Box::new(default));
        self
    }

    /// Names other objects that [`Context::others`] is to have, as they are stored.
    pub fn wants(mut self, wants: impl Fn(&T) -> Vec<Dependency> + Send + Sync + 'static) -> Self {
        self.hooks.wants = Some(Box::new(wants));
        self
    }

    /// Admits a valid object that is new, or a valid change of an old one. An error is a 403 in Kubernetes' words, with its text
    /// as the reason. An old object that is none of the type is `None`, too.
    pub fn admit<E: Display>(
        mut self,
        admit: impl Fn(&T, Option<&T>, Context<'_>) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        let admit = move |new: &T, old: Option<&T>, context: Context<'_>| {
            admit(new, old, context).err().map(|why| why.to_string())
        };
        self.hooks.admit = Some(Box::new(admit));
        self
    }

    /// Sets in a new object what a client may not decide. The status is cleared before where there is `/status`.
    pub fn prepare_create(mut self, prepare: impl Fn(&mut T, Context<'_>) + Send + Sync + 'static) -> Self {
        self.hooks.prepare_create = Some(Box::new(prepare));
        self
    }

    /// Sets in the new state (the first) what a client may not decide, by the old one.
    pub fn prepare_update(mut self, prepare: impl Fn(&mut T, &T, Context<'_>) + Send + Sync + 'static) -> Self {
        self.hooks.prepare_update = Some(Box::new(prepare));
        self
    }

    /// Says what is wrong with an object, new or changed, beyond its schema. Each cause names a field.
    pub fn validate(mut self, validate: impl Fn(&T, Context<'_>) -> Vec<Cause> + Send + Sync + 'static) -> Self {
        self.hooks.validate = Some(Box::new(validate));
        self
    }

    /// Says what is wrong with a change, new and old, beyond what [`TypedKind::validate`] says of the new state.
    pub fn validate_update(
        mut self,
        validate: impl Fn(&T, &T, Context<'_>) -> Vec<Cause> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.validate_update = Some(Box::new(validate));
        self
    }

    /// Says what is wrong with a change of the status, new and old, beyond the schema.
    pub fn validate_status(
        mut self,
        validate: impl Fn(&T, &T, Context<'_>) -> Vec<Cause> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.validate_status = Some(Box::new(validate));
        self
    }

    /// Warns whoever writes an object, new or changed.
    pub fn warn(mut self, warn: impl Fn(&T, Context<'_>) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.hooks.warn = Some(Box::new(warn));
        self
    }

    /// Warns whoever changes an object, new and old, in addition.
    pub fn warn_update(mut self, warn: impl Fn(&T, &T, Context<'_>) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.hooks.warn_update = Some(Box::new(warn));
        self
    }

    /// Brings a valid object into the one form that is stored: sorts, trims, drops what is there twice.
    pub fn canonicalize(mut self, canonicalize: impl Fn(&mut T) + Send + Sync + 'static) -> Self {
        self.hooks.canonicalize = Some(Box::new(canonicalize));
        self
    }

    /// Adds to what is shown, and is never stored. It runs for every object of every answer.
    pub fn decorate(mut self, decorate: impl Fn(&mut T) + Send + Sync + 'static) -> Self {
        self.hooks.decorate = Some(Box::new(decorate));
        self
    }

    /// Gives objects that are deleted time to end, in seconds, by the object and by what the client asked for; `None`: it
    /// goes at once. Who ends it deletes it again with no seconds left.
    pub fn grace(mut self, grace: impl Fn(&T, Option<i64>) -> Option<i64> + Send + Sync + 'static) -> Self {
        self.hooks.grace = Some(Box::new(grace));
        self
    }

    /// Whether a PUT to a name that is free makes an object. It does not by itself.
    pub fn create_on_update(mut self, creates: bool) -> Self {
        self.hooks.creates_on_update = Some(creates);
        self
    }

    /// Whether an update without a `resourceVersion` is taken. It is not by itself.
    pub fn unconditional_update(mut self, updates: bool) -> Self {
        self.hooks.updates_unconditionally = Some(updates);
        self
    }

    /// What becomes of dependents when the one who deletes an object does not say. [`Propagation::Background`] by itself.
    pub fn propagation(mut self, propagation: Propagation) -> Self {
        self.hooks.propagation = Some(propagation);
        self
    }

    /// One more finalizer that every object gets once it is deleted: it stays until a controller takes it away.
    pub fn finalizer(mut self, finalizer: &'static str) -> Self {
        self.hooks.finalizers.push(finalizer);
        self
    }
}

impl<T: Send + Sync + 'static> TypedKind<T> {
    /// The `CustomResourceDefinition` that says the same of names, schema, columns and subresources to a kube-apiserver.
    pub fn definition(&self) -> &Value {
        &self.definition
    }

    /// One kind for each version that is served.
    ///
    /// Errors: it is not as Kubernetes wants it.
    pub fn build(self) -> Result<Vec<Kind>, KindError> {
        let Self { mut definition, bare, hub, hooks, codecs, connects, rest, composer, aliases } = self;
        let text = |at: &str| access::text(&bare, at).to_owned();
        let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
        let is_built_in = builtin_kind(&group, &hub, &kind).is_some();
        let inner = if is_built_in {
            if definition != bare || codecs.len() > 1 {
                return Err(KindError::BuiltIn { group, version: hub, kind });
            }
            let all = kinds::built_in(&builtin()).into_iter();
            all.filter(|known| known.group == group && known.version == hub && known.kind == kind).collect()
        } else {
            version::inherit(&mut definition, &hub);
            let name = access::text(&definition, "/metadata/name").to_owned();
            let others: Vec<Value> = aliases.iter().map(|alias| alias.definition(&definition, &hub)).collect();
            let known =
                |version: &&Value| codecs.iter().any(|codec| is_version(codec, &group, access::text(version, "/name")));
            if let Some(version) = access::items(&definition, "/spec/versions").iter().find(|version| !known(version)) {
                return Err(KindError::NoConversion { name, version: access::text(version, "/name").to_owned() });
            }
            let mut inner = Vec::new();
            for mut definition in std::iter::once(definition).chain(others) {
                let kinds = definitions::kinds_of(&mut definition);
                inner.extend(kinds.map_err(|causes| KindError::Invalid { name: name.clone(), causes })?);
            }
            inner
        };
        let codecs: Arc<[Arc<Codec<T>>]> = codecs.into_iter().map(Arc::new).collect();
        let Some(stored) = codecs.first().cloned() else { return Ok(Vec::new()) };
        let hub_inner = inner.iter().find(|kind| kind.version == hub).map(|kind| Arc::clone(&kind.strategy));
        let hooks = Arc::new(hooks);
        let wrap = |mut kind: Kind| {
            let own = codecs.iter().find(|codec| is_version(codec, &kind.group, &kind.version)).unwrap_or(&stored);
            let strategy = Typed {
                stored_inner: hub_inner.clone().unwrap_or_else(|| Arc::clone(&kind.strategy)),
                inner: kind.strategy,
                own: Arc::clone(own),
                codecs: Arc::clone(&codecs),
                stored: Arc::clone(&stored),
                hooks: Arc::clone(&hooks),
                group: kind.group.clone(),
                plural: kind.plural.clone(),
                is_built_in,
            };
            kind.strategy = Arc::new(strategy);
            for Connected { name, verbs, connect } in &connects {
                let (name, verbs) = (name.clone(), verbs.clone());
                kind.connects.insert(name.clone(), Arc::clone(connect));
                let kind_name = kind.kind.clone();
                kind.subresources.retain(|there| there.name != name);
                kind.subresources.push(Subresource { name, group: None, version: None, kind: kind_name, verbs });
            }
            if let Some(Answered { verbs, rest }) = &rest {
                kind.verbs.clone_from(verbs);
                kind.rest = Some(Arc::clone(rest));
            }
            kind.composer.clone_from(&composer);
            kind.alias_of = (kind.group != group).then(|| group.clone());
            kind
        };
        Ok(inner.into_iter().map(wrap).collect())
    }
}

/// Another group in which a kind is served.
struct Alias {
    group: String,
    version: String,
}

impl Alias {
    /// The definition that says the same in this group and version.
    fn definition(&self, of: &Value, hub: &str) -> Value {
        let mut definition = of.clone();
        let plural = access::text(of, "/spec/names/plural").to_owned();
        definition["metadata"]["name"] = format!("{plural}.{}", self.group).into();
        definition["spec"]["group"] = self.group.as_str().into();
        if let Some(versions) = definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut) {
            versions.retain(|version| access::text(version, "/name") == hub);
            for version in versions {
                version["name"] = self.version.as_str().into();
            }
        }
        definition
    }
}

/// A core kind's is `/v1`.
fn is_version<T>(codec: &Codec<T>, group: &str, version: &str) -> bool {
    codec.api_version.rsplit_once('/') == Some((group, version))
}
