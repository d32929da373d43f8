//! Expressions of admission policies and of match conditions: what they may name, and what they give.
//!
//! Source: kubernetes/apiserver `pkg/admission/plugin/cel/`.

use std::{
    fmt,
    sync::{
        Arc, LazyLock, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use cel::{
    Context, ExecutionError,
    common::{
        traits::Indexer,
        types::{CelBool, CelString, MAP_TYPE, NULL_TYPE, Type},
        value::{CowVal, Val},
    },
};
use serde_json::{Map, Value, json};

use super::{
    check::Names,
    library::{AUTHORIZER, Access, Of, RESOURCE_CHECK},
    patches::{self, JSON_PATCH, OBJECT, PatchValueError},
    program::{CompileError, Failure, Program, environment},
    schemas::{DYN, PLAIN_NAMES, TYPE_NAME, type_of_self},
    types::{Fields, Object, Type as Checked},
    values,
};

/// What the expressions of one policy, one binding and one parameter may cost together, and each kind of them anew.
///
/// Source: kubernetes/apiserver `pkg/apis/cel/config.go` `RuntimeCELCostBudget`.
pub(crate) const COST_MAX: u64 = 10_000_000;
/// The same of match conditions. Source: `RuntimeCELCostBudgetMatchConditions`.
pub(crate) const MATCH_COST_MAX: u64 = 2_500_000;

/// A variable of its own, whose name looks like a field of another one.
const REQUEST_RESOURCE: &str = "authorizer.requestResource";

/// What an expression must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    /// Truth.
    Bool,
    /// A text.
    Text,
    /// A text or null.
    TextOrNull,
    /// An object with the fields to set.
    Object,
    /// The operations of a JSON patch.
    JsonPatch,
    /// Anything.
    Anything,
}

impl Gives {
    fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Text => "string",
            Self::TextOrNull => "one of [string null_type]",
            Self::Object => OBJECT,
            Self::JsonPatch => "list(JSONPatch)",
            Self::Anything => "dyn",
        }
    }

    fn takes(self, of: &Checked<'_>) -> bool {
        let is_named =
            |of: &Checked<'_>, wanted: &str| matches!(of, Checked::Object(Object { name, .. }) if name == wanted);
        match self {
            Self::Anything => true,
            Self::Bool => *of == Checked::Bool,
            Self::Text => *of == Checked::Text,
            Self::TextOrNull => matches!(of, Checked::Text | Checked::Null),
            Self::Object => is_named(of, OBJECT),
            Self::JsonPatch => matches!(of, Checked::List(item) if is_named(item, JSON_PATCH)),
        }
    }

    /// Whether such an expression may ask what the sender of the request may do. What he is told may not depend on that.
    fn may_ask(self) -> bool {
        self != Self::Text
    }

    /// Whether such an expression says how an object is changed, so that it has types and functions of its own.
    fn is_patch(self) -> bool {
        matches!(self, Self::Object | Self::JsonPatch)
    }
}

/// An expression, which may not compile: it was stored by another version.
pub(crate) struct Expression {
    source: String,
    program: Result<Program, CompileError>,
}

impl Expression {
    /// As it was written.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Why it is none; `None`: it is one.
    pub(crate) fn wrong(&self) -> Option<&CompileError> {
        self.program.as_ref().err()
    }
}

/// What expressions may name beside `object`, `oldObject`, `request`, `namespaceObject` and `authorizer`.
pub(crate) struct Scope {
    has_params: bool,
    /// The types of `variables`, by their names. `None`: there is no such name.
    types: Option<Vec<(String, Checked<'static>)>>,
    variables: Vec<Expression>,
}

impl Scope {
    /// With `params`, and with `variables`, of which there are none yet.
    pub(crate) fn new(has_params: bool, has_variables: bool) -> Self {
        Self { has_params, types: has_variables.then(Vec::new), variables: Vec::new() }
    }

    /// Declares a variable, which later ones may use, and says why it is none.
    pub(crate) fn declare(&mut self, name: &str, source: &str) -> Option<CompileError> {
        let (variable, of) = self.read(source, Gives::Anything);
        let wrong = variable.wrong().cloned();
        if let Some(types) = &mut self.types {
            types.push((name.to_owned(), of));
            self.variables.push(variable);
        }
        wrong
    }

    /// Reads an expression.
    pub(crate) fn compile(&self, source: &str, gives: Gives) -> Expression {
        self.read(source, gives).0
    }

    /// Reads an expression, and says the type of a variable of it.
    fn read(&self, source: &str, gives: Gives) -> (Expression, Checked<'static>) {
        let mut variable = Checked::Dyn;
        let names = Names { variables: self.names(gives), has_patch_types: gives.is_patch(), sizes: None };
        let program = Program::read(source, names).and_then(|(program, of)| {
            variable = of.as_variable();
            if gives.takes(&of) {
                return Ok(program);
            }
            Err(CompileError::OtherType { gives: gives.name().to_owned(), got: of.declared() })
        });
        (Expression { source: source.to_owned(), program }, variable)
    }

    fn names(&self, gives: Gives) -> Vec<(String, Checked<'_>)> {
        let library = |name: &str| Checked::object(name, Fields::None);
        let mut names = vec![
            ("object", Checked::Dyn),
            ("oldObject", Checked::Dyn),
            ("request", type_of_self(&REQUEST, false)),
            ("namespaceObject", type_of_self(&NAMESPACE, false)),
        ];
        if gives.may_ask() {
            names.push(("authorizer", library(AUTHORIZER)));
            names.push((REQUEST_RESOURCE, library(RESOURCE_CHECK)));
        }
        if self.has_params {
            names.push(("params", Checked::Dyn));
        }
        if let Some(types) = &self.types {
            names.push(("variables", Checked::object("kubernetes.variables", Fields::Variables(types))));
        }
        names.into_iter().map(|(name, of)| (name.to_owned(), of)).collect()
    }
}

/// The values that expressions see. What is absent is null.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'v> {
    /// As the request wants it; absent where it deletes.
    pub(crate) object: Option<&'v Value>,
    /// As it is; absent where the request makes it.
    pub(crate) old_object: Option<&'v Value>,
    /// An `AdmissionRequest`.
    pub(crate) request: &'v Value,
    /// The namespace of the object; absent where it lies in none.
    pub(crate) namespace: Option<&'v Value>,
    /// A parameter of a binding.
    pub(crate) params: Option<&'v Value>,
    /// What the sender of the request may do; `None`: there is no `authorizer`.
    pub(crate) access: Option<&'v Access>,
}

/// What an expression gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Truth.
    Truth(bool),
    /// A text.
    Text(String),
    /// Null.
    Null,
    /// Another value, by its type.
    Other(String),
}

/// Why an expression gives nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExpressionError {
    /// It is none.
    #[error("compilation error: {0}")]
    Compile(CompileError),
    /// It has no value.
    #[error("expression '{expression}' resulted in error: {failure}")]
    Failed {
        /// As it was written.
        expression: String,
        /// Why not.
        failure: Failure,
    },
}

/// Why no expression of a scope is evaluated any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EvaluationError {
    /// The functions of all expressions cannot be declared.
    #[error(transparent)]
    Environment(CompileError),
    /// The expressions together cost more than they may.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    OutOfBudget,
}

/// Why an expression does not say how an object is changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatchError {
    /// It is no expression.
    #[error(transparent)]
    Compile(CompileError),
    /// It has no value.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// It is not evaluated.
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    /// It has a value of another kind.
    #[error(transparent)]
    Value(#[from] PatchValueError),
}

/// Why a variable has no value.
#[derive(Debug, thiserror::Error)]
enum VariableError {
    #[error("composited variable \"{name}\" fails to compile: {error}")]
    Compile { name: String, error: CompileError },
    #[error("composited variable \"{name}\" fails to evaluate: {failure}")]
    Failed { name: String, failure: Failure },
}

/// Evaluates expressions of one scope with the same values. Each variable is evaluated once, when it is first used.
pub(crate) struct Evaluation<'v> {
    shared: Arc<Shared<'v>>,
    left: u64,
}

struct Shared<'v> {
    context: Context<'v, 'v>,
    scope: &'v Scope,
    /// Those of the variables, in their order.
    values: Vec<OnceLock<Result<Box<dyn Val + 'v>, VariableError>>>,
    /// What variables cost since somebody last asked.
    spent: AtomicU64,
}

impl<'v> Evaluation<'v> {
    /// With a budget.
    ///
    /// Errors: the functions of all expressions cannot be declared.
    pub(crate) fn new(scope: &'v Scope, inputs: Inputs<'v>, budget: u64) -> Result<Self, EvaluationError> {
        let mut context = Context::with_env(environment().map_err(EvaluationError::Environment)?);
        let absent = &Value::Null;
        let named = [
            ("object", inputs.object),
            ("oldObject", inputs.old_object),
            ("request", Some(inputs.request)),
            ("namespaceObject", inputs.namespace),
            ("params", inputs.params),
        ];
        for (name, value) in named {
            context.add_variable_as_val(name, values::raw(value.unwrap_or(absent)));
        }
        if let Some(access) = inputs.access {
            context.add_variable_as_val("authorizer", Box::new(Of(access.clone())));
            context.add_variable_as_val(REQUEST_RESOURCE, Box::new(access.of_request(inputs.request)));
        }
        let values = scope.variables.iter().map(|_| OnceLock::new()).collect();
        Ok(Self { shared: Arc::new(Shared { context, scope, values, spent: AtomicU64::new(0) }), left: budget })
    }

    /// What is left of the budget.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// What an expression gives, or why it gives nothing.
    ///
    /// Errors: all of them together cost too much.
    pub(crate) fn evaluate(
        &mut self,
        expression: &Expression,
    ) -> Result<Result<Outcome, ExpressionError>, EvaluationError> {
        Ok(self.value(expression)?.map(|value| outcome(value.as_ref())))
    }

    /// The object with the fields to set that an expression gives.
    ///
    /// Errors: it gives none.
    pub(crate) fn object(&mut self, expression: &Expression) -> Result<Value, PatchError> {
        Ok(patches::object(self.patch(expression)?.as_ref())?)
    }

    /// The operations of a JSON patch that an expression gives.
    ///
    /// Errors: it gives none.
    pub(crate) fn operations(&mut self, expression: &Expression) -> Result<Vec<Map<String, Value>>, PatchError> {
        Ok(patches::operations(self.patch(expression)?.as_ref())?)
    }

    fn patch(&mut self, expression: &Expression) -> Result<Box<dyn Val + 'v>, PatchError> {
        match self.value(expression)? {
            Err(ExpressionError::Compile(error)) => Err(PatchError::Compile(error)),
            value => Ok(value?),
        }
    }

    /// The value of an expression, or why it has none.
    ///
    /// Errors: all of them together cost too much.
    fn value(
        &mut self,
        expression: &Expression,
    ) -> Result<Result<Box<dyn Val + 'v>, ExpressionError>, EvaluationError> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(error) => return Ok(Err(ExpressionError::Compile(error.clone()))),
        };
        let (value, cost) = program.value(&Shared::context(&self.shared));
        let cost = cost.saturating_add(self.shared.spent.swap(0, Ordering::Relaxed));
        self.left = self.left.checked_sub(cost).ok_or(EvaluationError::OutOfBudget)?;
        Ok(value.map_err(|failure| ExpressionError::Failed { expression: expression.source.clone(), failure }))
    }
}

fn outcome(value: &dyn Val) -> Outcome {
    if let Some(truth) = value.downcast_ref::<CelBool>() {
        Outcome::Truth(*truth.inner())
    } else if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        Outcome::Text(text.inner().to_owned())
    } else if *value.get_type() == NULL_TYPE {
        Outcome::Null
    } else {
        Outcome::Other(value.get_type().name().to_owned())
    }
}

impl<'v> Shared<'v> {
    fn context<'c>(shared: &'c Arc<Self>) -> Context<'c, 'v> {
        let mut context = shared.context.new_inner_scope();
        context.add_variable_as_val("variables", Box::new(Variables(Arc::clone(shared))));
        context
    }

    /// The value of a variable; `None`: there is no such variable.
    fn variable<'c>(shared: &'c Arc<Self>, name: &str) -> Option<Result<&'c (dyn Val + 'v), &'c VariableError>> {
        let types = shared.scope.types.as_deref().unwrap_or_default();
        let at = types.iter().position(|(known, _)| known == name)?;
        let variable = shared.scope.variables.get(at)?;
        let value = shared.values.get(at)?.get_or_init(|| {
            let name = name.to_owned();
            let program = match &variable.program {
                Ok(program) => program,
                Err(error) => return Err(VariableError::Compile { name, error: error.clone() }),
            };
            let (value, cost) = program.value(&Self::context(shared));
            shared.spent.fetch_add(cost, Ordering::Relaxed);
            value.map_err(|failure| VariableError::Failed { name, failure })
        });
        Some(value.as_ref().map(AsRef::as_ref))
    }
}

/// `variables`.
struct Variables<'v>(Arc<Shared<'v>>);

impl fmt::Debug for Variables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("variables")
    }
}

impl Val for Variables<'_> {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        Box::new(Self(Arc::clone(&self.0)))
    }
}

impl Indexer for Variables<'_> {
    fn get<'b, 'w>(&'b self, name: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let name = name.downcast_ref::<CelString<'_>>().map(|name| name.inner().to_owned()).unwrap_or_default();
        match Shared::variable(&self.0, &name) {
            Some(Ok(value)) => Ok(CowVal::Borrowed(value)),
            Some(Err(why)) => Err(ExecutionError::function_error("variables", why.to_string())),
            None => Err(ExecutionError::NoSuchKey(Arc::new(name))),
        }
    }

    fn steal<'w>(self: Box<Self>, name: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.get(name).map(CowVal::into_owned)
    }
}

/// Source: `pkg/admission/plugin/cel/compile.go` `BuildRequestType`.
static REQUEST: LazyLock<Value> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": text});
    let named = |name: &str, last: &str| object(name, json!({"group": text, "version": text, last: text}));
    let kind = named("kubernetes.GroupVersionKind", "kind");
    let resource = named("kubernetes.GroupVersionResource", "resource");
    let user = json!({
        "username": text, "uid": text, "groups": texts, "extra": {"type": "object", "additionalProperties": texts},
    });
    object(
        "kubernetes.AdmissionRequest",
        json!({
            "kind": kind, "resource": resource, "subResource": text,
            "requestKind": kind, "requestResource": resource, "requestSubResource": text,
            "name": text, "namespace": text, "operation": text, "userInfo": object("kubernetes.UserInfo", user),
            "dryRun": {"type": "boolean"}, "options": {"type": DYN},
        }),
    )
});

/// Source: `pkg/admission/plugin/cel/compile.go` `BuildNamespaceType`.
static NAMESPACE: LazyLock<Value> = LazyLock::new(|| {
    let (text, number, time) =
        (json!({"type": "string"}), json!({"type": "integer"}), json!({"type": "string", "format": "date-time"}));
    let texts = json!({"type": "array", "items": text});
    let map = json!({"type": "object", "additionalProperties": text});
    let condition = object(
        "kubernetes.NamespaceCondition",
        json!({"status": text, "type": text, "lastTransitionTime": time, "message": text, "reason": text}),
    );
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        json!({
            "name": text, "generateName": text, "namespace": text, "labels": map, "annotations": map, "UID": text,
            "creationTimestamp": time, "deletionGracePeriodSeconds": number, "deletionTimestamp": time,
            "generation": number, "resourceVersion": text, "finalizers": texts,
        }),
    );
    let status = json!({"conditions": {"type": "array", "items": condition}, "phase": text});
    object(
        "kubernetes.Namespace",
        json!({
            "metadata": metadata,
            "spec": object("kubernetes.NamespaceSpec", json!({"finalizers": texts})),
            "status": object("kubernetes.NamespaceStatus", status),
        }),
    )
});

/// A schema whose type has this name, and whose fields have their own.
fn object(name: &str, fields: Value) -> Value {
    json!({"type": "object", TYPE_NAME: name, PLAIN_NAMES: true, "properties": fields})
}
