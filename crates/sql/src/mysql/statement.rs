//! The statements that [`crate::Sql`] takes, in MySQL's words.
//!
//! They are few, and the program's own: so they are read word by word. A keyword is in capitals, and a name in small letters. What
//! is changed: the places of parameters, `ON CONFLICT`, names that are keywords in MySQL, and the names of tables, which have no
//! schema there: `kubefold.files` is `kubefold_files`.

use std::ops::Range;

/// A statement in MySQL's words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Translated {
    pub(super) text: String,
    /// Which parameter stands in each place, counted from 0.
    pub(super) order: Vec<usize>,
    /// It inserts one row, or changes the one that is there. MySQL counts that as two rows.
    pub(super) is_upsert: bool,
    /// Where in the text the one row of an `INSERT` is that has all parameters: `(?, ?)`.
    row: Option<Range<usize>>,
}

/// A group of tables, by what their names begin with, and their names without that.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) prefix: String,
    pub(super) tables: Vec<String>,
}

impl Translated {
    pub(super) fn of(statement: &str, names: &Names) -> Self {
        let statement = upsert(statement);
        let is_insert = statement.trim_start().starts_with("INSERT");
        let mut to = Writer { out: String::with_capacity(statement.len()), order: Vec::new() };
        // Of the row: where it begins, how many parentheses are open, and how many parameters stand before it.
        let (mut row, mut begun) = (None, None::<(usize, usize, usize)>);
        let (mut rest, mut is_values) = (&*statement, false);
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '\'' | '"' => quoted(rest, first),
                '?' => 1 + digits(&rest[1..]),
                _ if is_of_word(first) => rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()),
                _ => first.len_utf8(),
            };
            let (token, after) = rest.split_at(length);
            rest = after;
            if first == '(' {
                match &mut begun {
                    Some((_, open, _)) => *open += 1,
                    None if is_values => begun = Some((to.out.len(), 1, to.order.len())),
                    None => {}
                }
            }
            is_values = is_insert && (token == "VALUES" || (is_values && token == " "));
            rest = to.token(token, rest, names);
            if first == ')'
                && let Some((from, open, before)) = &mut begun
            {
                *open -= 1;
                if *open == 0 {
                    row = (*before == 0).then_some((*from..to.out.len(), to.order.len()));
                    begun = None;
                }
            }
        }
        let Writer { out: text, order } = to;
        let is_upsert = row.is_some() && text.contains("ON DUPLICATE KEY UPDATE");
        let row = row.filter(|(_, parameters)| *parameters == order.len()).map(|(row, _)| row);
        Self { text, order, is_upsert, row }
    }

    /// The statement for so many rows at once. `None`: it is none of one row.
    pub(super) fn of_rows(&self, rows: usize) -> Option<String> {
        let Range { start, end } = self.row.clone()?;
        let row = &self.text[start..end];
        let mut text = self.text[..start].to_owned();
        for number in 0..rows {
            text.push_str(if number == 0 { "" } else { ", " });
            text.push_str(row);
        }
        text.push_str(&self.text[end..]);
        Some(text)
    }
}

struct Writer {
    out: String,
    order: Vec<usize>,
}

impl Writer {
    /// Appends a token, and what belongs to it of the rest. Gives the rest behind that.
    fn token<'s>(&mut self, token: &str, rest: &'s str, names: &Names) -> &'s str {
        let second = rest.strip_prefix('.');
        match token {
            "excluded" if second.is_some() => {
                let rest = second.unwrap_or_default();
                let (name, rest) = rest.split_at(rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()));
                self.out.extend(["VALUES(", name_of(name), ")"]);
                return rest;
            }
            "kubefold" if second.is_some() => {
                let rest = second.unwrap_or_default();
                let (name, rest) = rest.split_at(rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()));
                self.out.extend(["kubefold_", name]);
                return rest;
            }
            _ if names.tables.iter().any(|table| table == token) => {
                self.out.push_str(&names.prefix);
                self.out.push_str(token);
            }
            _ => match token.strip_prefix('?').and_then(|number| number.parse::<usize>().ok()) {
                Some(number) => {
                    self.out.push('?');
                    self.order.push(number.saturating_sub(1));
                }
                None => self.out.push_str(name_of(token)),
            },
        }
        rest
    }
}

/// A name that is a keyword of MySQL, in quotes.
fn name_of(word: &str) -> &str {
    if word == "key" { "\"key\"" } else { word }
}

/// `ON CONFLICT (key) DO UPDATE SET` and `DO NOTHING` in MySQL's words, where a statement has them.
fn upsert(statement: &str) -> String {
    let upsert = || {
        let (before, rest) = statement.split_once("ON CONFLICT (")?;
        let (columns, rest) = rest.split_once(')')?;
        let rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix("DO UPDATE SET") {
            return Some(format!("{before}ON DUPLICATE KEY UPDATE{rest}"));
        }
        let rest = rest.strip_prefix("DO NOTHING")?;
        let first = columns.split(',').next().unwrap_or_default().trim();
        Some(format!("{before}ON DUPLICATE KEY UPDATE {first} = {first}{rest}"))
    };
    upsert().unwrap_or_else(|| statement.to_owned())
}

/// The statements of a text that has several.
pub(super) fn each(statements: &str) -> Vec<&str> {
    let (mut all, mut from, mut at) = (Vec::new(), 0, 0);
    while let Some(first) = statements[at..].chars().next() {
        match first {
            '\'' | '"' => at += quoted(&statements[at..], first),
            ';' => {
                all.push(&statements[from..at]);
                at += 1;
                from = at;
            }
            _ => at += first.len_utf8(),
        }
    }
    all.push(&statements[from..]);
    all.retain(|one| !one.trim().is_empty());
    all
}

/// The tables that statements make.
pub(crate) fn tables_of(migrations: &[&str]) -> Vec<String> {
    let made = migrations.iter().flat_map(|migration| migration.split("CREATE TABLE IF NOT EXISTS ").skip(1));
    made.map(|rest| rest.split(|c| !is_of_word(c)).next().unwrap_or_default().to_owned()).collect()
}

/// How long a text in quotes is that something begins with.
fn quoted(text: &str, quote: char) -> usize {
    text[1..].find(quote).map_or(text.len(), |end| end + 2)
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names { prefix: "kubefold_mirror_".to_owned(), tables: vec!["objects".to_owned(), "feeds".to_owned()] }
    }

    fn translated(statement: &str) -> Translated {
        Translated::of(statement, &names())
    }

    #[test]
    fn statements_are_said_in_the_words_of_mysql() {
        for (statement, expected, order) in [
            ("SELECT 1", "SELECT 1", &[][..]),
            (
                "SELECT key, o.key FROM objects o JOIN feeds f ON f.id = o.feed WHERE o.name = ?2 AND f.\"group\" = ?1",
                "SELECT \"key\", o.\"key\" FROM kubefold_mirror_objects o JOIN kubefold_mirror_feeds f ON f.id = o.feed \
                 WHERE o.name = ? AND f.\"group\" = ?",
                &[1, 0],
            ),
            (
                "SELECT objects.document FROM objects WHERE text = '?1 key''s objects' AND n IN (?1, ?1, ?10)",
                "SELECT kubefold_mirror_objects.document FROM kubefold_mirror_objects \
                 WHERE text = '?1 key''s objects' AND n IN (?, ?, ?)",
                &[0, 0, 9],
            ),
            (
                "INSERT INTO kubefold.files VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET content = excluded.content",
                "INSERT INTO kubefold_files VALUES (?, ?) ON DUPLICATE KEY UPDATE content = VALUES(content)",
                &[0, 1],
            ),
            (
                "INSERT INTO feeds (key) VALUES (?1)\n    ON CONFLICT (key, member) DO UPDATE SET key = excluded.key",
                "INSERT INTO kubefold_mirror_feeds (\"key\") VALUES (?)\n    \
                 ON DUPLICATE KEY UPDATE \"key\" = VALUES(\"key\")",
                &[0],
            ),
            (
                "INSERT INTO labels VALUES (?1) ON CONFLICT (object, key) DO NOTHING",
                "INSERT INTO labels VALUES (?) ON DUPLICATE KEY UPDATE object = object",
                &[0],
            ),
        ] {
            let translated = translated(statement);
            assert_eq!((&*translated.text, &*translated.order), (expected, order));
        }
    }

    #[test]
    fn several_rows_are_inserted_by_one_statement() {
        let one =
            translated("INSERT INTO feeds (a, b) VALUES (?2, lower(?1)) ON CONFLICT (a) DO UPDATE SET b = excluded.b");
        assert_eq!(
            one.of_rows(2).unwrap(),
            "INSERT INTO kubefold_mirror_feeds (a, b) VALUES (?, lower(?)), (?, lower(?)) ON DUPLICATE KEY UPDATE b = VALUES(b)"
        );
        assert_eq!(one.of_rows(1).unwrap(), one.text);
        for other in [
            "DELETE FROM feeds WHERE id = ?1",
            "UPDATE feeds SET a = ?1",
            "INSERT INTO feeds SELECT id, ?1 FROM objects",
            "INSERT INTO feeds VALUES (1) ON CONFLICT (a) DO UPDATE SET b = ?1",
        ] {
            assert_eq!(translated(other).of_rows(2), None, "{other}");
        }
    }

    #[test]
    fn statements_are_told_from_one_another_and_name_their_tables() {
        let text =
            "CREATE TABLE IF NOT EXISTS a (b INT); SELECT ';', \";\" ;\nCREATE TABLE IF NOT EXISTS c_d(e INT);\n";
        let all: Vec<&str> = each(text).into_iter().map(str::trim).collect();
        assert_eq!(
            all,
            ["CREATE TABLE IF NOT EXISTS a (b INT)", "SELECT ';', \";\"", "CREATE TABLE IF NOT EXISTS c_d(e INT)"]
        );
        assert_eq!(tables_of(&[text, "DROP TABLE x"]), ["a", "c_d"]);
    }
}
