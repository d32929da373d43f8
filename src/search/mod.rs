//! Search: one typed query over the objects of the fleet, whoever evaluates it.
//!
//! A query is about *rows*: one object of one member, under its own name, as its member sent it. [`Query`] says which rows, in
//! which order, and which page of them. Two evaluators read it: that of this room, over rows in memory ([`Query::admits`],
//! [`Query::admits_document`], [`Order::key`]), and that of the mirror, which makes SQL of the same fields. What both have to
//! agree on stands beside each field. Pure. May name: nothing but `kubefold_wire`.

mod collections;
mod error;
mod facts;
mod fields;
mod order;
mod page;
mod parameters;
mod paths;
mod query;
pub mod sql;
mod time;

#[cfg(test)]
mod tests;

pub use self::{
    collections::{Collection, CollectionKinds, KindName},
    error::SearchError,
    facts::Facts,
    fields::{FieldOperator, FieldTerm},
    order::{Order, OrderBy, OrderField, Value},
    page::{Page, Paged, Position, Ranked, Top},
    parameters::{Parameters, is_search_label, searches},
    paths::{GROUP, PathOf, VERSION},
    query::{Condition, Created, GroupResource, Owner, OwnerBy, Owners, Query, controller},
    time::micros,
};
