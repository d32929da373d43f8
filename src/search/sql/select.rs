//! A search over the rows of one kind, as statements.

use crate::search::{
    Condition, Owners, Query, Value,
    sql::{
        Dialect, Parameter, fields, order,
        text::{Statement, Writer},
    },
};
use kubefold_wire::{
    resource::Gvr,
    selector::{Operator, Requirement},
};

/// Which rows a query is asked of. Shape: one kind, some members.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// The kind's resource.
    pub gvr: &'a Gvr,
    /// The kind's name.
    pub kind: &'a str,
    /// The members whose objects the caller may list; absent for all.
    pub members: Option<&'a [&'a str]>,
    /// The one namespace of which he may list them; empty for all.
    pub namespace: &'a str,
    /// Who has to control what is found.
    pub owners: Owners<'a>,
}

const COLUMNS: &str = "SELECT f.member, o.key, o.uid, o.revision, o.deleted_us, o.digest, o.document";

/// By what rows are found first, where the indexes give several ways: what is named by few objects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lead {
    /// By the members' objects of the kind, or what was deleted of them.
    Kind,
    /// By who controls them.
    Owner,
    /// By the label that this requirement of the query is about.
    Label(usize),
}

impl Lead {
    fn of(query: &Query, owners: Owners<'_>) -> Self {
        if owners.is_some() {
            return Self::Owner;
        }
        let names_values = |requirement: &Requirement| requirement.operator == Operator::In;
        query.labels.iter().position(names_values).map_or(Self::Kind, Self::Label)
    }
}

/// How the labels table is asked about a requirement.
#[derive(Clone, Copy)]
enum LabelLookup {
    /// First: the rows are those that it names.
    First,
    /// As the engine likes.
    Either,
    /// Once for each row that is found by something else, which few are. PostgreSQL would rather join all objects with a label, which
    /// may be millions, where its statistics are of a time before the rows came.
    EachRow,
}

impl LabelLookup {
    fn of(lead: Lead, requirement: usize, dialect: Dialect) -> Self {
        match (lead, dialect) {
            (Lead::Label(leading), _) if leading == requirement => Self::First,
            (Lead::Kind, _) | (_, Dialect::Sqlite) => Self::Either,
            (Lead::Owner | Lead::Label(_), Dialect::Postgres | Dialect::Mysql) => Self::EachRow,
        }
    }
}

impl Query {
    /// The rows of one page: `f.member`, then `o.key`, `o.uid`, `o.revision`, `o.deleted_us`, `o.digest` and `o.document`.
    ///
    /// Shape: one row more than [`Page::size`](crate::search::Page::size) allows, if there is one: then rows follow. Their order is
    /// the query's.
    pub fn page_statement(&self, of: &Selection<'_>, dialect: Dialect) -> Statement {
        let mut out = Writer::new(dialect);
        out.push(COLUMNS);
        self.conditions(of, &mut out);
        // SQLite would rather go over all objects in this order than look a name up. A plus keeps it from that.
        let is_named = of.namespace.is_empty() && self.names.iter().any(|names| names.operator == Operator::In);
        out.push(if is_named && dialect == Dialect::Sqlite { " ORDER BY +" } else { " ORDER BY " });
        order::order_by(&mut out, &self.order);
        let rows = |number: usize| Parameter::Integer(i64::try_from(number).unwrap_or(i64::MAX));
        let size = self.page.size().map_or(usize::MAX, |size| size.saturating_add(1));
        out.push(" LIMIT ").bind(rows(size)).push(" OFFSET ").bind(rows(self.page.offset));
        out.finish()
    }

    /// All rows that match, in whatever order, as those of [`Self::page_statement`].
    pub fn rows_statement(&self, of: &Selection<'_>, dialect: Dialect) -> Statement {
        let mut out = Writer::new(dialect);
        out.push(COLUMNS);
        self.conditions(of, &mut out);
        out.finish()
    }

    /// How many rows match, behind the place where the page begins: one number.
    pub fn count_statement(&self, of: &Selection<'_>, dialect: Dialect) -> Statement {
        let mut out = Writer::new(dialect);
        out.push("SELECT count(*)");
        self.conditions(of, &mut out);
        out.finish()
    }

    /// The UIDs of the rows that match, whatever the page.
    pub fn uids_statement(&self, of: &Selection<'_>, dialect: Dialect) -> Statement {
        let mut out = Writer::new(dialect);
        out.push("SELECT o.uid");
        self.conditions(of, &mut out);
        out.finish()
    }

    /// Appends the tables, and what has to hold.
    fn conditions(&self, of: &Selection<'_>, out: &mut Writer) {
        let lead = Lead::of(self, of.owners);
        // SQLite, which has counted nothing, would rather go over all objects of the kind. A plus keeps it from that.
        let of_kind = if lead == Lead::Kind || out.dialect != Dialect::Sqlite { "" } else { "+" };
        out.push(" FROM feeds f JOIN objects o ON ").push(of_kind).push("o.feed = f.id WHERE ");
        out.push("f.\"group\" = ").bind_text(&of.gvr.group);
        out.push(" AND f.version = ").bind_text(&of.gvr.version);
        out.push(" AND f.resource = ").bind_text(&of.gvr.resource);
        if let Some(members) = of.members {
            out.push(" AND f.member").among(members);
        }
        let time = if self.deleted {
            out.push(" AND o.deleted_us > 0");
            "o.deleted_us"
        } else {
            // What is there of a feed without a revision is of several moments.
            // Rows of kinds that are in memory have no name beside them, and are in none of the indexes.
            out.push(" AND f.revision > 0 AND o.deleted_us = 0 AND o.name IS NOT NULL");
            "o.created_us"
        };
        if !of.namespace.is_empty() {
            out.push(" AND o.namespace = ").bind_text(of.namespace);
        }
        if let Some(since) = self.created.since {
            out.push(" AND ").push(time).push(" >= ").bind(Parameter::Integer(since));
        }
        if let Some(before) = self.created.before {
            out.push(" AND ").push(time).push(" < ").bind(Parameter::Integer(before));
        }
        if let Some(owners) = of.owners {
            let mut uids: Vec<&str> = owners.iter().map(String::as_str).collect();
            uids.sort_unstable();
            out.push(" AND o.owner").among(&uids);
        }
        for (column, conditions) in
            [("f.member", &self.clusters), ("o.namespace", &self.namespaces), ("o.name", &self.names)]
        {
            conditions.iter().for_each(|condition| text_condition(column, condition, out));
        }
        for part in self.fuzzy.iter().filter(|part| !part.is_empty()) {
            let [before, behind] = out.dialect.name_has();
            out.push(" AND ").push(before).bind_text(&part.to_ascii_lowercase()).push(behind);
        }
        for (at, requirement) in self.labels.iter().enumerate() {
            label(requirement, LabelLookup::of(lead, at, out.dialect), out);
        }
        for term in &self.fields {
            out.push(" AND ");
            fields::term(out, term);
        }
        if let Some(place) = &self.page.after {
            let kind = Value::Text(format!("{}.{}", of.kind, of.gvr.group));
            order::from(out, &self.order, place);
            out.push(" AND ");
            order::behind(out, &self.order, place, &kind);
        }
    }
}

/// Appends whether a column meets a condition; an empty text is none.
fn text_condition(column: &str, condition: &Condition, out: &mut Writer) {
    let values: Vec<&str> = condition.values.iter().map(String::as_str).filter(|value| !value.is_empty()).collect();
    out.push(" AND ");
    match condition.operator {
        Operator::In => drop(out.push(column).among(&values)),
        Operator::NotIn => drop(out.push("NOT (").push(column).among(&values).push(")")),
        Operator::Exists => drop(out.push(column).push(" <> ''")),
        Operator::NotExists => drop(out.push(column).push(" = ''")),
        // No condition of a text has these.
        Operator::Greater | Operator::Less => drop(out.push("1 = 0")),
    }
}

/// Appends whether an object's labels meet a requirement.
fn label(requirement: &Requirement, lookup: LabelLookup, out: &mut Writer) {
    let Requirement { key, operator, values } = requirement;
    let all: Vec<&str> = values.iter().map(String::as_str).collect();
    let is_absence = matches!(operator, Operator::NotIn | Operator::NotExists);
    out.push(match (lookup, is_absence) {
        (LabelLookup::First, _) => " AND o.id IN (SELECT l.object FROM labels l WHERE ",
        (LabelLookup::Either, false) => " AND EXISTS (SELECT 1 FROM labels l WHERE l.object = o.id AND ",
        (LabelLookup::Either, true) => " AND NOT EXISTS (SELECT 1 FROM labels l WHERE l.object = o.id AND ",
        // A subquery with a limit is none that PostgreSQL makes a join of.
        (LabelLookup::EachRow, _) => " AND (SELECT 1 FROM labels l WHERE l.object = o.id AND ",
    });
    out.push("l.key = ").bind_text(key);
    match operator {
        Operator::In | Operator::NotIn => drop(out.push(" AND l.value").among(&all)),
        Operator::Exists | Operator::NotExists => {}
        Operator::Greater | Operator::Less => {
            let comparison = if *operator == Operator::Greater { " > " } else { " < " };
            match values.first().and_then(|value| value.parse().ok()) {
                Some(bound) => drop(out.push(" AND l.number").push(comparison).bind(Parameter::Integer(bound))),
                None => drop(out.push(" AND 1 = 0")),
            }
        }
    }
    out.push(match (lookup, is_absence) {
        (LabelLookup::First | LabelLookup::Either, _) => ")",
        (LabelLookup::EachRow, false) => " LIMIT 1) IS NOT NULL",
        (LabelLookup::EachRow, true) => " LIMIT 1) IS NULL",
    });
}
