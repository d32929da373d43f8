//! Writes: creates, changes, deletes, and what a create would come to.

mod field;

use std::{error::Error, fmt, str::Utf8Error};

use http::StatusCode;

use crate::{
    config::MemberName,
    respond::{ApiError, Blame, Retry},
};
use kubefold_wire::{
    golang::Quoted,
    locate::NotAnObject,
    resource::{Gvk, Gvr},
    status::{Cause, Reason, Status, qualified},
};

pub use field::{InvalidField, PartError};

/// The object that a write is about, by its visible name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    /// Its resource.
    pub gvr: Gvr,
    /// Its name.
    pub name: String,
}

/// `deployments.apps "web"`, as Kubernetes' messages have it.
impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.gvr.qualified(), self.name)
    }
}

/// Who finishes a write whose outcome is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// Nobody: a member is atomic.
    Nobody,
    /// kubefold, if the home did it.
    IfDone,
    /// kubefold, or else it takes back what was made.
    DoneOrUndone,
}

impl fmt::Display for Settling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nobody => "it may land within 40 s",
            Self::IfDone => "it may land within 40 s; until then the name is held, then kubefold finishes it if it did",
            Self::DoneOrUndone => {
                "it may land within 40 s; until then the name is held, then kubefold finishes it or takes it back"
            }
        })
    }
}

/// Why a write is not done, or may not be. What a member refuses is no error of kubefold's, and has the member's words.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The path of a write to one object ends before its name.
    #[error("name must be provided")]
    NameMissing,
    /// A binding names no pod.
    #[error("Name parameter required.")]
    BindingNameMissing,
    /// The body of a PUT that makes an object does not name it.
    #[error("the name of the object ({0} based on URL) was undeterminable: name must be provided")]
    NameUndeterminable(
        /// The name in the path.
        String,
    ),
    /// Body and path name two objects.
    #[error("the name of the object ({name}) does not match the name on the URL ({url})")]
    NameMismatch {
        /// The name in the body.
        name: String,
        /// The name in the path.
        url: String,
    },
    /// The same of a body that is no object but is about one.
    #[error("name in URL does not match name in {0} object")]
    SubjectMismatch(
        /// The body's kind.
        &'static str,
    ),
    /// The body is no text.
    #[error(transparent)]
    Text(#[from] Utf8Error),
    /// The body is no object that a name can be set in.
    #[error(transparent)]
    Unstampable(#[from] NotAnObject),
    /// The body is not what the request takes.
    #[error("the body is no {what}: {cause}")]
    Body {
        /// What it takes.
        what: &'static str,
        /// The cause.
        cause: String,
    },
    /// The body is posted as an event and is none.
    #[error("the body is no event")]
    NoEvent,
    /// The body has no kind, by which its resource would be found.
    #[error("the body is not an object: it has no apiVersion and kind")]
    NoKind,
    /// An `apiVersion` with two slashes.
    #[error("{} is not a valid apiVersion", Quoted(.0))]
    ApiVersion(
        /// What stands there.
        String,
    ),
    /// No member serves the kind. In kubectl's words.
    #[error("no matches for kind {kind} in version {api_version}", api_version = Quoted(.api_version), kind = Quoted(.kind))]
    NoMatch {
        /// The kind.
        kind: String,
        /// Its `apiVersion`.
        api_version: String,
    },
    /// No member is known to serve the kind, and some have not said.
    #[error(
        "no matches for kind {kind} in version {api_version} yet: kubefold does not know yet what every member serves", api_version = Quoted(.api_version), kind = Quoted(.kind))]
    NoMatchYet {
        /// The kind.
        kind: String,
        /// Its `apiVersion`.
        api_version: String,
    },
    /// The kind has no create.
    #[error("{} cannot be created", .0.qualified())]
    NotCreatable(
        /// The resource.
        Gvr,
    ),
    /// A parameter of the query that is no value of its type.
    #[error("{name}={value} is not understood", value = Quoted(.value))]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// Its value, decoded.
        value: String,
    },
    /// Fields stand twice in the body, and `fieldValidation=Strict` forbids that. In the words of a kube-apiserver.
    ///
    /// Source: kubernetes/apiserver `pkg/endpoints/handlers/create.go`, `patch.go`.
    #[error("{decoding}: {found}")]
    Repeated {
        /// What was being read.
        decoding: String,
        /// Which fields.
        found: String,
    },
    /// A dry run of another kind than `All`.
    #[error("{options}.meta.k8s.io \"\" is invalid: {}", dry_run(.value))]
    DryRun {
        /// The kind of the options that it stands in.
        options: String,
        /// What is asked for.
        value: String,
    },
    /// A patch of a kind that no kube-apiserver takes.
    #[error("415: Unsupported Media Type")]
    PatchType,
    /// A scale that is no number, and that the home took.
    #[error("spec.replicas is no number")]
    Replicas,
    /// The object cannot be as it is.
    #[error("{} {name} is invalid: {field}", qualified(&gvk.group, &gvk.kind), name = Quoted(.name))]
    Invalid {
        /// Its kind.
        gvk: Gvk,
        /// Its name, where it has one.
        name: String,
        /// What is wrong with it.
        #[source]
        field: InvalidField,
    },
    /// No object has the name.
    #[error("{} {} not found", .0.gvr.qualified(), Quoted(&.0.name))]
    NotFound(
        /// The object.
        ObjectRef,
    ),
    /// The name is that of one part of a placed object.
    #[error(
        "{} is the part in member {member} of {} {own}: write to {own} as a whole, or to the part in its member \
         (kubectl --context fleet-{member})",
        Quoted(&part.name), part.gvr.qualified(), own = Quoted(.own))]
    PartAlone {
        /// The part, by the name that the client used.
        part: ObjectRef,
        /// The name of the whole.
        own: String,
        /// The part's member.
        member: MemberName,
    },
    /// The object has another revision than the client expects. In the words of a kube-apiserver.
    ///
    /// Source: kubernetes/apiserver `pkg/registry/generic/registry/store.go` `OptimisticLockErrorMsg`.
    #[error(
        "Operation cannot be fulfilled on {0}: the object has been modified; please apply your changes to the latest \
         version and try again"
    )]
    Stale(
        /// The object.
        ObjectRef,
    ),
    /// A precondition does not hold.
    ///
    /// Source: kubernetes/apiserver `pkg/storage/interfaces.go` `Preconditions.Check`.
    #[error(
        "Operation cannot be fulfilled on {object}: Precondition failed: {field} in precondition: {expected}, \
         {field} in object meta: {is}"
    )]
    Precondition {
        /// The object.
        object: ObjectRef,
        /// `UID` or `ResourceVersion`.
        field: &'static str,
        /// What the client expects.
        expected: String,
        /// What the object has; empty where there is no object.
        is: String,
    },
    /// A precondition of a delete does not hold. The words of Kubernetes' have the kind where the resource belongs.
    ///
    /// Source: kubernetes/apiserver `pkg/registry/rest/delete.go` `BeforeDelete`.
    #[error(
        "Operation cannot be fulfilled on {kind} {name}: the {field} in the precondition ({expected}) does not match the \
         {field} in record ({is}). The object might have been {what}",
        kind = qualified(&gvk.group, &gvk.kind), name = Quoted(.name),
        what = if *.field == "UID" { "deleted and then recreated" } else { "modified" }
    )]
    NotInRecord {
        /// Of the object.
        gvk: Gvk,
        /// The object's.
        name: String,
        /// `UID` or `ResourceVersion`.
        field: &'static str,
        /// What the client expects.
        expected: String,
        /// What the object has.
        is: String,
    },
    /// The name is in use.
    #[error("{object} already exists{holders}")]
    AlreadyExists {
        /// The object.
        object: ObjectRef,
        /// ` in member east`, where that says more than the name; otherwise empty.
        holders: String,
    },
    /// Another write has the key.
    #[error("another write to {0} is under way, or its outcome is not known yet: try again in a minute")]
    Taken(
        /// The object.
        ObjectRef,
    ),
    /// A delete of it is not finished: a change would make anew what is gone already.
    #[error("{object} is not changed: it is being deleted, and is not gone yet in {}. Try again once it is", names(.members))]
    Deleting {
        /// The object.
        object: ObjectRef,
        /// The members that still have a part of it.
        members: Vec<MemberName>,
    },
    /// An earlier create of the name may still have made an object in a member that cannot be asked.
    #[error(
        "an earlier create of {object} is not settled: whether member {home} made it is not known while that cannot be \
         reached. It is finished or taken back when the member returns, or is taken out of the configuration"
    )]
    Unsettled {
        /// The object.
        object: ObjectRef,
        /// The member.
        home: MemberName,
    },
    /// The write cannot be entered in the journal.
    #[error(transparent)]
    Journal(
        /// The journal's own error.
        Box<dyn Error + Send + Sync>,
    ),
    /// A command names a member that is not configured.
    #[error("there is no member {name:?}; the members are {}", names(.members))]
    MemberUnknown {
        /// What it names.
        name: String,
        /// The configured members.
        members: Vec<MemberName>,
    },
    /// A command names no object.
    #[error("name an object: its type and its name")]
    ObjectUnnamed,
    /// A command names a type that no member serves.
    #[error("no member serves the type {0:?}")]
    KindUnknown(
        /// What it names.
        String,
    ),
    /// A command names no member.
    #[error("name a member: {}", names(.0))]
    MemberUnnamed(
        /// The configured members.
        Vec<MemberName>,
    ),
    /// The home decides, and it does not answer. Nothing was done.
    #[error("{object} is not {done}: its home, member {home}, cannot be reached: {cause}")]
    HomeUnreachable {
        /// The object.
        object: ObjectRef,
        /// `changed` or `deleted`.
        done: &'static str,
        /// The member.
        home: MemberName,
        /// The cause.
        cause: String,
    },
    /// The home, of whose scale the whole's is made, does not answer.
    #[error("{object} cannot be read: its home, member {home}: {cause}")]
    ScaleUnread {
        /// The object.
        object: ObjectRef,
        /// The member.
        home: MemberName,
        /// The cause.
        cause: String,
    },
    /// A write with one target was not sent.
    #[error("member {member} cannot be reached, nothing was sent: {cause}")]
    NotSent {
        /// The object.
        object: ObjectRef,
        /// The target.
        member: MemberName,
        /// The cause.
        cause: String,
    },
    /// The read of a subresource was sent and not answered.
    #[error("member {member} gave no answer: {cause}")]
    NoAnswer {
        /// The object.
        object: ObjectRef,
        /// The member.
        member: MemberName,
        /// The cause.
        cause: String,
    },
    /// A member that must take its part did not answer the dry run.
    #[error("member {member} did not answer the dry run, so nothing was made: {cause}")]
    DryRunUnanswered {
        /// The object.
        object: ObjectRef,
        /// The member.
        member: MemberName,
        /// The cause.
        cause: String,
    },
    /// A part could not be made, and what was made before it is taken back.
    #[error("{object} is not created: member {member} could not be reached: {cause} ({undone})")]
    NotCreated {
        /// The object.
        object: ObjectRef,
        /// The member.
        member: MemberName,
        /// The cause.
        cause: String,
        /// What came of the parts that were made.
        undone: String,
    },
    /// The whole of a budget lets no more pods go, whatever its part in the pod's member says. In the words of a kube-apiserver.
    ///
    /// Source: kubernetes `pkg/registry/core/pod/storage/eviction.go` `checkAndDecrement`.
    #[error("Cannot evict pod as it would violate the pod's disruption budget.")]
    Budget {
        /// The budget.
        budget: String,
        /// So many pods must be healthy, in all members together.
        desired: i64,
        /// So many are.
        healthy: i64,
    },
    /// Another eviction has the budget, for longer than one waits.
    #[error("Cannot evict pod as it would violate the pod's disruption budget.")]
    BudgetHeld {
        /// The budget.
        budget: String,
    },
    /// No member is up that an event could go to.
    #[error("no member is up that could take the event")]
    NoMemberUp,
    /// Members were asked and did not say whether they did it.
    #[error("the outcome of {doing} {object} is unknown: {}; {settling}: read the object before you try again", .causes.join("; "))]
    OutcomeUnknown {
        /// What was asked: `creating`.
        doing: String,
        /// The object.
        object: ObjectRef,
        /// One sentence per member.
        causes: Vec<String>,
        /// Who finishes it.
        settling: Settling,
    },
    /// An answer that cannot be written.
    #[error(transparent)]
    Unwritable(#[from] serde_json::Error),
    /// What cannot be, unless kubefold or a member has a bug.
    #[error("{0}")]
    Internal(
        /// One sentence.
        &'static str,
    ),
}

fn dry_run(value: &str) -> String {
    format!("dryRun: Unsupported value: {}: supported values: \"All\"", Quoted(value))
}

fn names(members: &[MemberName]) -> String {
    members.iter().map(MemberName::as_str).collect::<Vec<_>>().join(", ")
}

impl ApiError for WriteError {
    fn blame(&self) -> Blame {
        match self {
            Self::Unsettled { home: member, .. }
            | Self::HomeUnreachable { home: member, .. }
            | Self::ScaleUnread { home: member, .. }
            | Self::NotSent { member, .. }
            | Self::NoAnswer { member, .. }
            | Self::DryRunUnanswered { member, .. }
            | Self::NotCreated { member, .. } => Blame::Member(member.clone()),
            Self::NoMatchYet { .. }
            | Self::Journal(_)
            | Self::NoMemberUp
            | Self::OutcomeUnknown { .. }
            | Self::Unwritable(_)
            | Self::Internal(_) => Blame::Kubefold,
            // The request, or another one that came before it.
            _ => Blame::Downstream,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            // Nothing was sent, or a dry run alone.
            Self::NoMatchYet { .. }
            | Self::Taken(_)
            | Self::Deleting { .. }
            | Self::Unsettled { .. }
            | Self::Journal(_)
            | Self::HomeUnreachable { .. }
            | Self::ScaleUnread { .. }
            | Self::NotSent { .. }
            | Self::NoAnswer { .. }
            | Self::DryRunUnanswered { .. }
            | Self::NoMemberUp
            | Self::Budget { .. }
            | Self::BudgetHeld { .. } => Retry::Always,
            Self::NotCreated { .. } | Self::OutcomeUnknown { .. } | Self::Unwritable(_) | Self::Internal(_) => {
                Retry::IfRead
            }
            // It is refused for what it is.
            _ => Retry::Never,
        }
    }
}

/// No 503 here carries `Retry-After`: client-go would repeat the write on it.
impl From<WriteError> for Status {
    fn from(error: WriteError) -> Self {
        let message = error.to_string();
        match error {
            WriteError::NameMissing
            | WriteError::BindingNameMissing
            | WriteError::NameUndeterminable(_)
            | WriteError::NameMismatch { .. }
            | WriteError::SubjectMismatch(_)
            | WriteError::Text(_)
            | WriteError::Unstampable(_)
            | WriteError::Body { .. }
            | WriteError::NoEvent
            | WriteError::NoKind
            | WriteError::ApiVersion(_)
            | WriteError::Parameter { .. }
            | WriteError::MemberUnknown { .. }
            | WriteError::MemberUnnamed(_)
            | WriteError::ObjectUnnamed
            | WriteError::KindUnknown(_)
            | WriteError::Repeated { .. }
            | WriteError::Replicas => Self::bad_request(message),
            WriteError::NoMatch { .. } => Self::new(StatusCode::NOT_FOUND, Reason::NotFound, message),
            WriteError::NotCreatable(_) => Self::method_not_allowed(message),
            WriteError::PatchType => {
                Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Reason::UnsupportedMediaType, message).detailed()
            }
            WriteError::DryRun { options, value } => {
                Self::invalid("meta.k8s.io", &options, "", vec![Cause::of(&dry_run(&value))])
            }
            WriteError::Invalid { gvk, name, field } => {
                Self::invalid(&gvk.group, &gvk.kind, &name, vec![Cause::of(&field.to_string())])
            }
            WriteError::NotFound(object) => Self::not_found(&object.gvr.group, &object.gvr.resource, &object.name),
            WriteError::PartAlone { part: object, .. }
            | WriteError::Stale(object)
            | WriteError::Precondition { object, .. } => {
                Self::conflict(&object.gvr.group, &object.gvr.resource, &object.name, message)
            }
            WriteError::NotInRecord { gvk, name, .. } => Self::conflict(&gvk.group, &gvk.kind, &name, message),
            WriteError::AlreadyExists { object, .. } => {
                about(&object, Self::new(StatusCode::CONFLICT, Reason::AlreadyExists, message))
            }
            WriteError::OutcomeUnknown { object, .. } => {
                about(&object, Self::new(StatusCode::GATEWAY_TIMEOUT, Reason::Timeout, message))
            }
            WriteError::Taken(object)
            | WriteError::Deleting { object, .. }
            | WriteError::Unsettled { object, .. }
            | WriteError::HomeUnreachable { object, .. }
            | WriteError::ScaleUnread { object, .. }
            | WriteError::NotSent { object, .. }
            | WriteError::NoAnswer { object, .. }
            | WriteError::DryRunUnanswered { object, .. }
            | WriteError::NotCreated { object, .. } => about(&object, Self::unavailable(message)),
            WriteError::NoMatchYet { .. } | WriteError::Journal(_) | WriteError::NoMemberUp => {
                Self::unavailable(message)
            }
            WriteError::Budget { budget, desired, healthy } => by_budget(
                message,
                format!(
                    "The disruption budget {budget} needs {desired} healthy pods and has {healthy} currently in all members"
                ),
            ),
            WriteError::BudgetHeld { budget } => {
                by_budget(message, format!("The disruption budget {budget} is still being processed by the server."))
            }
            WriteError::Unwritable(_) | WriteError::Internal(_) => Self::internal(message),
        }
    }
}

/// 429, which `kubectl drain` repeats.
fn by_budget(message: String, cause: String) -> Status {
    let mut status = Status::new(StatusCode::TOO_MANY_REQUESTS, Reason::TooManyRequests, message);
    status.details.causes.push(Cause { reason: "DisruptionBudget".to_owned(), message: cause, field: String::new() });
    status
}

fn about(object: &ObjectRef, status: Status) -> Status {
    status.about(&object.gvr.group, &object.gvr.resource, &object.name)
}
