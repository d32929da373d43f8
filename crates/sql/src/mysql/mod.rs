//! MySQL and MariaDB: connections to them, and the tables that say who has a database.
//!
//! The driver is `mysql_async`: it speaks to both with `caching_sha2_password` and `mysql_native_password`, and its TLS is
//! rustls with aws-lc-rs. `sqlx` brings a pool and macros that nothing here needs, and the driver `mysql` blocks without a
//! bound.

mod error;
mod keeper;
mod link;
mod statement;
mod tables;
mod target;

pub use self::{
    keeper::identity_of,
    link::{Dialer, Found, Link, Settings},
    target::{MysqlIdentity, MysqlTls, Target, UrlError},
};
pub(crate) use self::{keeper::keeper, statement::tables_of};
