//! PostgreSQL: connections to it, and the tables that say who has a database.

mod keeper;
mod link;
mod tables;
mod value;

pub(crate) use self::keeper::keeper;
pub use self::{
    keeper::identity_of,
    link::{Dialer, Link},
};
