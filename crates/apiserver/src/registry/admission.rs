//! The one place that every write passes before it is stored: who refuses it.
//!
//! Source: kubernetes/apiserver `pkg/admission/`, `pkg/registry/rest/{create,update,delete}.go`.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::{
    kinds::Kind,
    patch::managed::check_entries,
    registry::{DeleteOptions, Facet, Part, Registry, WriteOptions, managed::arranged, meta, namespace},
};
use kubefold_wire::{resource::Gvk, status::Status};

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It makes an object.
    Create,
    /// It changes one.
    Update,
    /// It begins to delete one.
    Delete,
}

impl Operation {
    /// As an `AdmissionRequest` says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    fn options(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// A write, as those see it that admit it.
#[derive(Clone)]
pub struct AdmissionRequest<'a> {
    /// The resource that is written.
    pub kind: &'a Kind,
    /// Such as `status`; empty: the object itself.
    pub subresource: &'a str,
    /// The type of the object that is written: another one below some subresources.
    pub object_type: Gvk,
    /// That of the object, or the name of a namespace that is written itself; empty if it lies in none.
    pub namespace: &'a str,
    /// Empty if it is not known yet, or if a collection is deleted.
    pub name: &'a str,
    /// What is done.
    pub operation: Operation,
    /// What is there; `None` for a create.
    pub old: Option<&'a Value>,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`, as the client said them.
    pub options: Value,
    /// Nothing is stored.
    pub dry_run: bool,
}

/// Those that change writes, in their order. Each remembers for itself who is to be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// Admission policies.
    Policies,
    /// Webhooks.
    Webhooks,
}

/// What is remembered of those that changed a write, for a second round: one that wants so is asked again if the object changed
/// after it.
///
/// Source: kubernetes/apiserver `pkg/admission/reinvocation.go`, `pkg/admission/plugin/{webhook,policy}/mutating/`
/// `reinvocationcontext.go`.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    is_second: bool,
    is_changed: bool,
    policies: Asked,
    webhooks: Asked,
}

#[derive(Clone, Debug, Default)]
struct Asked {
    /// Who was asked since the last change, and may be asked again.
    asked: BTreeSet<String>,
    /// Who is to be asked again.
    again: BTreeSet<String>,
    /// The object after the first round.
    last: Option<Value>,
}

impl Rounds {
    fn of(&mut self, plugin: Plugin) -> &mut Asked {
        match plugin {
            Plugin::Policies => &mut self.policies,
            Plugin::Webhooks => &mut self.webhooks,
        }
    }

    /// Begins with this object. What somebody else changed since the first round counts as a change.
    pub fn begin(&mut self, plugin: Plugin, object: Option<&Value>) {
        let is_second = self.is_second;
        let Asked { asked, again, last } = self.of(plugin);
        if is_second && last.as_ref() != object {
            again.append(asked);
        }
    }

    /// Goes on to the second round, if there is to be one.
    pub fn begin_second(&mut self) -> bool {
        let goes_on = self.is_changed && !self.is_second;
        self.is_second |= goes_on;
        goes_on
    }

    /// Whether somebody changed the object in any round.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Says whether somebody is to be asked in this round.
    pub fn asks(&mut self, plugin: Plugin, id: &str) -> bool {
        !self.is_second || self.of(plugin).again.contains(id)
    }

    /// Whether this is the second round.
    pub fn is_second(&self) -> bool {
        self.is_second
    }

    /// Somebody was asked, and may be asked again after the next change.
    pub fn asked(&mut self, plugin: Plugin, id: &str) {
        self.of(plugin).asked.insert(id.to_owned());
    }

    /// The object was changed.
    pub fn changed(&mut self, plugin: Plugin) {
        let Asked { asked, again, .. } = self.of(plugin);
        again.append(asked);
        self.is_changed = true;
    }

    /// Ends with this object.
    pub fn end(&mut self, plugin: Plugin, object: Option<&Value>) {
        self.of(plugin).last = object.cloned();
    }
}

/// Admits writes, after the rules of the kind itself.
pub trait Admission: Send + Sync + 'static {
    /// Says whether anybody at all wants to see writes.
    fn is_idle(&self) -> bool;

    /// Says whether anybody wants to change writes.
    fn mutates(&self) -> bool;

    /// Changes what is to be written, before it is validated; `None`: a delete, of which nothing can be changed.
    ///
    /// Errors: the whole answer.
    fn mutate<'a>(
        &'a self,
        registry: &'a Registry,
        request: &'a AdmissionRequest<'a>,
        object: Option<Value>,
        rounds: &'a mut Rounds,
    ) -> BoxFuture<'a, Result<Option<Value>, Box<Status>>>;

    /// Looks at what is to be written, which is valid; `None`: a delete.
    ///
    /// Errors: the whole answer.
    fn validate<'a>(
        &'a self,
        registry: &'a Registry,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Box<Status>>>;
}

/// What is admitted of a write.
#[derive(Clone, Copy)]
pub(super) struct Admitted<'a> {
    pub(super) kind: &'a Kind,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) operation: Operation,
    pub(super) old: Option<&'a Value>,
}

impl Registry {
    fn admission_of(&self, options: &WriteOptions) -> Option<&dyn Admission> {
        let admission = self.admission.as_deref().filter(|admission| !admission.is_idle())?;
        // What only controllers change is nobody's to admit.
        (options.part != Part::Special || !options.subresource.is_empty()).then_some(admission)
    }

    /// Says whether somebody looks at such a write, for which it may have to wait.
    pub(super) fn is_admitted(&self, options: &WriteOptions) -> bool {
        self.admission_of(options).is_some()
    }

    /// What is to be written after one round of those that change it.
    ///
    /// Errors: the whole answer.
    pub(super) async fn mutated(
        &self,
        of: &Admitted<'_>,
        mut object: Value,
        options: &WriteOptions,
        rounds: &mut Rounds,
    ) -> Result<Value, Status> {
        let Some(admission) = self.admission_of(options).filter(|admission| admission.mutates()) else {
            return Ok(object);
        };
        let old = of.old.map(|old| seen(of.kind, old, options)).transpose()?;
        let request = of.request(options, old.as_ref());
        let shown = match options.facet {
            None => arranged(of.kind, object.clone()),
            Some(facet) => (facet.of)(of.kind, &object)?,
        };
        let new = admission.mutate(self, &request, Some(shown), rounds).await.map_err(|status| *status)?;
        match (options.facet, new.filter(|_| rounds.is_changed())) {
            (_, None) => {}
            (None, Some(new)) => object = self.with_valid_managers(new, &object),
            (Some(facet), Some(new)) => (facet.set)(of.kind, &mut object, &new)?,
        }
        Ok(object)
    }

    /// Puts managers of fields back that an object had before, if the new ones are none.
    ///
    /// Source: kubernetes/apimachinery `pkg/util/managedfields/internal/`, kubernetes/apiserver
    /// `pkg/endpoints/handlers/fieldmanager/admission.go`.
    fn with_valid_managers(&self, mut object: Value, before: &Value) -> Value {
        let managers = meta::field(&object, "managedFields");
        let known = meta::field(before, "managedFields");
        if managers != known
            && let Err(error) = check_entries(Some(managers))
        {
            self.warn(&format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
                 mutating admission controller; please fix your requests: {error}"
            ));
            meta::set(&mut object, "managedFields", Some(known.clone()).filter(|known| !known.is_null()));
        }
        object
    }

    /// Has what is to be written looked at.
    ///
    /// Errors: the whole answer.
    pub(super) async fn admit(&self, of: &Admitted<'_>, object: &Value, options: &WriteOptions) -> Result<(), Status> {
        let Some(admission) = self.admission_of(options) else { return Ok(()) };
        let old = of.old.map(|old| seen(of.kind, old, options)).transpose()?;
        let request = of.request(options, old.as_ref());
        let object = match options.facet {
            None => arranged(of.kind, object.clone()),
            Some(facet) => (facet.of)(of.kind, object)?,
        };
        admission.validate(self, &request, Some(&object)).await.map_err(|status| *status)
    }

    /// Has a delete looked at. `name` is empty if a collection is deleted.
    ///
    /// Errors: the whole answer.
    pub(super) async fn admit_delete(&self, of: &Admitted<'_>, options: &DeleteOptions) -> Result<(), Status> {
        let Some(admission) = self.admission.as_deref().filter(|admission| !admission.is_idle()) else { return Ok(()) };
        let write = WriteOptions { dry_run: options.dry_run, said: options.said.clone(), ..WriteOptions::default() };
        let request = of.request(&write, of.old);
        if admission.mutates() {
            let mut rounds = Rounds::default();
            admission.mutate(self, &request, None, &mut rounds).await.map_err(|status| *status)?;
        }
        admission.validate(self, &request, None).await.map_err(|status| *status)
    }

    /// Admits an object that is made below another one, or is a question: it is not stored. The options say where it is made.
    /// Answers what became of it.
    ///
    /// Errors: the whole answer.
    pub async fn admit_posted(
        &self,
        kind: &Kind,
        namespace: &str,
        object_type: Gvk,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Value, Status> {
        let Some(admission) = self.admission_of(options) else { return Ok(object) };
        let name = meta::text(&object, "name").to_owned();
        let of = Admitted { kind, namespace, name: &name, operation: Operation::Create, old: None };
        let request = AdmissionRequest { object_type, ..of.request(options, None) };
        if admission.mutates() {
            let mut rounds = Rounds::default();
            loop {
                let new =
                    admission.mutate(self, &request, Some(object), &mut rounds).await.map_err(|status| *status)?;
                object = new.unwrap_or_default();
                if !rounds.begin_second() {
                    break;
                }
            }
        }
        admission.validate(self, &request, Some(&object)).await.map_err(|status| *status)?;
        Ok(object)
    }
}

fn seen(kind: &Kind, object: &Value, options: &WriteOptions) -> Result<Value, Status> {
    options.facet.map_or_else(|| Ok(object.clone()), |facet| (facet.of)(kind, object))
}

impl<'a> Admitted<'a> {
    fn request(&self, options: &'a WriteOptions, old: Option<&'a Value>) -> AdmissionRequest<'a>
    where
        Self: 'a,
    {
        let Self { kind, namespace, name, operation, .. } = *self;
        let subresource = match (options.subresource.as_str(), options.part) {
            ("", Part::Status) => "status",
            (said, _) => said,
        };
        let object_type = match options.facet {
            Some(Facet { object_type: [group, version, kind], .. }) => Gvk::new(group, version, kind),
            None => Gvk::new(&kind.group, &kind.version, &kind.kind),
        };
        let mut said = Map::new();
        said.insert("kind".into(), operation.options().into());
        said.insert("apiVersion".into(), "meta.k8s.io/v1".into());
        if options.dry_run {
            said.insert("dryRun".into(), json!(["All"]));
        }
        said.extend(options.said.as_object().cloned().unwrap_or_default());
        let namespace = match () {
            () if namespace::is_namespace(kind) => name,
            () if kind.namespaced => namespace,
            () => "",
        };
        let dry_run = options.dry_run;
        AdmissionRequest {
            kind,
            subresource,
            object_type,
            namespace,
            name,
            operation,
            old,
            options: said.into(),
            dry_run,
        }
    }
}
