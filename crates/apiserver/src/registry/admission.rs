//! The one place that every write passes before it is stored: who refuses it.
//!
//! Source: kubernetes/apiserver `pkg/admission/`, `pkg/registry/rest/{create,update,delete}.go`.

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::{
    kinds::Kind,
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

/// Admits writes, after the rules of the kind itself.
pub trait Admission: Send + Sync + 'static {
    /// Says whether anybody at all wants to see writes.
    fn is_idle(&self) -> bool;

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
        admission.validate(self, &request, None).await.map_err(|status| *status)
    }

    /// Has an object looked at that is made below another one, or is a question: it is not stored. The options say
    /// where it is made.
    ///
    /// Errors: the whole answer.
    pub async fn admit_posted(
        &self,
        kind: &Kind,
        namespace: &str,
        object_type: Gvk,
        object: &Value,
        options: &WriteOptions,
    ) -> Result<(), Status> {
        let Some(admission) = self.admission_of(options) else { return Ok(()) };
        let name = meta::text(object, "name").to_owned();
        let of = Admitted { kind, namespace, name: &name, operation: Operation::Create, old: None };
        let request = AdmissionRequest { object_type, ..of.request(options, None) };
        admission.validate(self, &request, Some(object)).await.map_err(|status| *status)
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
