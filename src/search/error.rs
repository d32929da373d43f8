//! Why a query is refused: what is not understood is an error that says where, and is never left out.

use kubefold_wire::selector::SelectorError;

/// Why a query is no query. Each is the asker's mistake.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// A search label, or a parameter, that there is not.
    #[error("{0}: there is no such search parameter")]
    Unknown(String),
    /// Raw SQL, which runs nowhere.
    #[error("{0}: raw SQL is not run; fieldSelector selects by any field of an object")]
    Sql(String),
    /// An operator that the parameter has no meaning for.
    #[error("{parameter}: the operator {operator} is not understood here; {allowed}")]
    Operator {
        /// The label or parameter.
        parameter: String,
        /// The operator as it is written.
        operator: &'static str,
        /// What may stand there.
        allowed: &'static str,
    },
    /// A parameter with several values that may have one.
    #[error("{parameter}: it has {found} values, and may have one")]
    Values {
        /// The label or parameter.
        parameter: String,
        /// How many there are.
        found: usize,
    },
    /// A value that is no number, time, boolean or token, where one belongs.
    #[error("{parameter}: {value:?} is {why}")]
    Value {
        /// The label or parameter.
        parameter: String,
        /// The value.
        value: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A term of a field selector.
    #[error("fieldSelector: {term:?}: {why}")]
    Field {
        /// The term.
        term: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A field that objects are not ordered by.
    #[error(
        "orderby: {0:?} is no field to order by: cluster, namespace, name, kind, created_at, deleted_at, resource_version, or a path such \
         as .status.phase"
    )]
    Order(String),
    /// A label selector that Kubernetes does not understand either, in its words.
    #[error("{0}")]
    Labels(#[from] SelectorError),
    /// `since` is after `before`.
    #[error("since is after before")]
    Times,
    /// Terms that together can never be met, or that are given twice.
    #[error("{0} is given twice, with different values")]
    Twice(String),
    /// An owner's kind or depth without its name or UID.
    #[error("{0} says whose: it needs an owner's name or UID")]
    NoOwner(&'static str),
    /// More than is evaluated for each row.
    #[error("{what}: there are {found}, and may be {max}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        max: usize,
    },
}
