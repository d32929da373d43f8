//! The query as SQL, for rows that no memory holds: the same rows, in the same order and pages, as the evaluator over memory
//! finds.
//!
//! The statements read three tables, which `mirror` makes and fills:
//!
//! - `feeds (id, "group", version, resource, member, revision)`: one member's objects of one kind
//! - `objects (id, feed, key, uid, revision, digest, document, deleted_us, namespace, name, created_us, owner)`: the JSON of an object,
//!   and of what is looked for what [`Indexed`] finds in it. `deleted_us` is 0 for an object that exists, and otherwise when it
//!   was deleted. Units: microseconds of Unix time
//! - `labels (object, key, value, number)`: a row for each label; `number` is there where the value is a whole number
//!
//! Whatever is asked for is a bound parameter, and never text of a statement.

mod dialect;
mod fields;
mod indexed;
mod order;
mod select;
mod text;

pub use self::{
    dialect::{Dialect, Parameter},
    indexed::{Indexed, Label},
    select::Selection,
    text::Statement,
};
