//! What must hold of a custom resource's values, beyond their shape.

use crate::patterns::Pattern;
use serde_json::Value;

/// What must hold of a value. Nodes are those of the same [`Types`](super::Types).
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// Such as `integer`; two for `x-kubernetes-int-or-string`; none: any.
    pub types: Vec<String>,
    /// Only such as are checked.
    pub format: Option<String>,
    /// The greatest number.
    pub maximum: Option<f64>,
    /// Whether it is one too many.
    pub exclusive_maximum: bool,
    /// The least number.
    pub minimum: Option<f64>,
    /// Whether it is one too few.
    pub exclusive_minimum: bool,
    /// What a number is a multiple of.
    pub multiple_of: Option<f64>,
    /// Units: characters.
    pub length_max: Option<i64>,
    /// Units: characters.
    pub length_min: Option<i64>,
    /// What a text matches somewhere.
    pub pattern: Option<Pattern>,
    /// Items of a list.
    pub items_max: Option<i64>,
    /// Items of a list.
    pub items_min: Option<i64>,
    /// No two items are equal.
    pub unique_items: bool,
    /// Keys of an object.
    pub properties_max: Option<i64>,
    /// Keys of an object.
    pub properties_min: Option<i64>,
    /// The values that there are.
    pub values: Vec<Value>,
    /// Nodes that all fit.
    pub all_of: Vec<usize>,
    /// Nodes of which one or more fit.
    pub any_of: Vec<usize>,
    /// Nodes of which exactly one fits.
    pub one_of: Vec<usize>,
    /// A node that does not fit.
    pub not: Option<usize>,
    /// What the schema of an object wants of its `metadata`, whose shape is known.
    pub metadata: Option<usize>,
}
