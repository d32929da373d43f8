//! How the parts of an object compare, for people and for programs.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::compare::{Row, Why};
use crate::cli::{
    paint::{Paint, paint},
    status::{name, table},
};

/// Characters of a value that are shown.
const VALUE_MAX: usize = 40;
/// How many of them are before the first one that differs.
const BEFORE: usize = 10;

/// How the parts of an object compare.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Comparison {
    pub(super) resource: String,
    /// Absent for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    pub(super) name: String,
    /// Whether a part is not what it is to be.
    pub(super) differs: bool,
    /// The home first.
    pub(super) members: Vec<Asked>,
    pub(super) fields: Vec<Row>,
}

/// What a member answered.
#[derive(Debug, Serialize)]
pub(super) struct Asked {
    pub(super) name: String,
    pub(super) part: Part,
    /// Why it is so, where that is to be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Part {
    /// It is what the fleet view shows, and what the others are to be.
    Home,
    Present,
    /// It is being deleted.
    Deleting,
    /// It is gone, or not made yet.
    Missing,
    /// The member did not say.
    Unread,
}

/// One table of the fields in which parts differ, and a line for each part that is not there.
pub(super) fn render(compared: &Comparison, colours: bool) -> String {
    let mut out = String::new();
    if !compared.fields.is_empty() {
        out = fields(compared, colours);
    }
    let what = name(&compared.resource, &compared.namespace, &compared.name);
    for one in &compared.members {
        let said = match one.part {
            Part::Missing => "has no part",
            Part::Deleting => "deletes its part",
            Part::Unread => "was not read",
            Part::Home | Part::Present => continue,
        };
        // Writing to memory has no way to fail.
        let _infallible = writeln!(out, "{}: {} {said}", what, paint(&one.name, Paint::Bad, colours));
    }
    out
}

fn fields(compared: &Comparison, colours: bool) -> String {
    let values = |row: &Row, member: &str| row.values.get(member).cloned();
    let home = compared.members.first().map_or("", |home| home.name.as_str());
    // Of a large fleet, those that are what the home is are many.
    let is_shown = |one: &&Asked| {
        let is_other = |row: &Row| values(row, &one.name) != values(row, home);
        one.name == home || matches!(one.part, Part::Present | Part::Deleting) && compared.fields.iter().any(is_other)
    };
    let shown: Vec<&str> = compared.members.iter().filter(is_shown).map(|one| one.name.as_str()).collect();
    let title = |member: &&str| if *member == home { format!("{member} (home)") } else { (*member).to_owned() };
    let mut rows = vec![vec!["FIELD".to_owned()]];
    rows.iter_mut().for_each(|head| {
        head.extend(shown.iter().map(title));
        head.extend(["WANTED", "WHY"].map(str::to_owned));
    });
    for row in &compared.fields {
        let texts: Vec<String> = row.values.values().chain(&row.wanted).map(text).collect();
        let from = begin(&texts);
        let cell = |member: &&str| {
            let text = values(row, member).as_ref().map_or_else(|| "-".to_owned(), |value| clipped(&text(value), from));
            let is_wrong = row.members.iter().any(|wrong| wrong == member);
            if is_wrong { paint(&text, Paint::Bad, colours) } else { text }
        };
        let wanted = row.wanted.as_ref().map_or_else(|| "-".to_owned(), |value| clipped(&text(value), from));
        let mut cells = vec![row.field.clone()];
        cells.extend(shown.iter().map(cell));
        cells.extend([wanted, why(row, colours)]);
        rows.push(cells);
    }
    table(&rows)
}

fn why(row: &Row, colours: bool) -> String {
    let members = row.members.join(", ");
    let (text, colour) = match row.why {
        Why::Divided => ("divided".to_owned(), Paint::Dim),
        Why::Overridden => ("overridden".to_owned(), Paint::Dim),
        Why::Behind => (format!("behind in {members}"), Paint::Odd),
        Why::Edited => (format!("edited in {members}"), Paint::Bad),
        Why::Differs => (format!("differs in {members}"), Paint::Odd),
        Why::Assigned => ("assigned".to_owned(), Paint::Dim),
        Why::Status => ("status".to_owned(), Paint::Dim),
    };
    paint(&text, colour, colours)
}

/// A value on one line.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() && !text.contains(char::is_control) => text.clone(),
        other => other.to_string(),
    }
}

/// Where what is shown of these texts begins, so that it has the first difference.
fn begin(texts: &[String]) -> usize {
    let Some((first, others)) = texts.split_first() else { return 0 };
    let alike = |other: &String| first.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    if texts.iter().all(|text| text.chars().count() <= VALUE_MAX) {
        return 0;
    }
    others.iter().filter(|other| *other != first).map(alike).min().unwrap_or(0).saturating_sub(BEFORE)
}

fn clipped(text: &str, from: usize) -> String {
    let shown: String = text.chars().skip(from).take(VALUE_MAX).collect();
    let (before, behind) = (from > 0, text.chars().count() > from + VALUE_MAX);
    format!("{}{shown}{}", if before { "..." } else { "" }, if behind { "..." } else { "" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(field: &str, why: Why, wanted: Option<Value>, values: Value) -> Row {
        let members = if why == Why::Edited { vec!["west".to_owned()] } else { Vec::new() };
        let Value::Object(values) = values else { panic!("{values}") };
        Row { field: field.into(), why, members, wanted, values }
    }

    fn asked(name: &str, part: Part) -> Asked {
        Asked { name: name.into(), part, why: None }
    }

    #[test]
    fn a_field_is_a_row_and_a_member_a_column() {
        let mut compared = Comparison {
            resource: "deployments.apps".into(),
            namespace: "shop".into(),
            name: "web".into(),
            differs: true,
            members: vec![
                asked("east", Part::Home),
                asked("west", Part::Present),
                asked("north", Part::Present),
                asked("south", Part::Missing),
            ],
            fields: vec![
                row(
                    ".spec.paused",
                    Why::Edited,
                    Some(json!(false)),
                    json!({"east": false, "west": true, "north": false}),
                ),
                row(".spec.x", Why::Overridden, None, json!({"west": "a"})),
            ],
        };
        let wanted = "FIELD          east (home)   west   WANTED   WHY\n\
                      .spec.paused   false         true   false    edited in west\n\
                      .spec.x        -             a      -        overridden\n\
                      deployments.apps/web in shop: south has no part\n";
        assert_eq!(render(&compared, false), wanted);
        compared.fields.clear();
        assert_eq!(render(&compared, false), "deployments.apps/web in shop: south has no part\n");
    }

    #[test]
    fn of_a_long_value_that_is_shown_which_differs() {
        let same = "x".repeat(100);
        let texts = [format!("{same}one"), format!("{same}two")];
        let from = begin(&texts);
        assert_eq!(clipped(&texts[1], from), "...xxxxxxxxxxtwo");
        assert_eq!(clipped(&"y".repeat(50), 0), format!("{}...", "y".repeat(40)));
        assert_eq!(
            (text(&json!("a\nb")), text(&json!("")), text(&json!("a b"))),
            ("\"a\\nb\"".into(), "\"\"".into(), "a b".into())
        );
        // A character is no byte.
        assert_eq!(clipped("äöü", 1), "...öü");
    }
}
