//! What SQLite and PostgreSQL say in different ways.

/// What is bound to a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Number(f64),
}

/// Whose SQL it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite from 3.47 on.
    Sqlite,
    /// PostgreSQL from 12 on.
    Postgres,
}

impl Dialect {
    /// The place of a parameter.
    pub(super) fn place(self, number: usize, parameter: &Parameter) -> String {
        match (self, parameter) {
            (Self::Sqlite, _) => format!("?{number}"),
            (Self::Postgres, Parameter::Text(_)) => format!("${number}::text"),
            (Self::Postgres, Parameter::Integer(_)) => format!("${number}::bigint"),
            (Self::Postgres, Parameter::Number(_)) => format!("${number}::double precision::text::numeric"),
        }
    }

    /// The JSON of an object.
    pub(super) fn document(self) -> &'static str {
        match self {
            Self::Sqlite => "CAST(o.document AS TEXT)",
            // `json` keeps numbers as they are written, and `jsonb` does not. A text with a NUL would fail the whole search.
            Self::Postgres => r"replace(convert_from(o.document, 'UTF8'), '\u0000', '\ufffd')::json",
        }
    }

    /// Around a parameter that is a JSON array of texts: a query of them.
    pub(super) fn texts(self) -> [&'static str; 2] {
        match self {
            Self::Sqlite => ["SELECT value FROM json_each(", ")"],
            Self::Postgres => ["SELECT json_array_elements_text((", ")::json)"],
        }
    }

    /// Behind a text: it is compared by its bytes.
    pub(super) fn by_bytes(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " COLLATE \"C\"",
        }
    }

    /// The function that finds a text in another, and counts from 1.
    pub(super) fn place_of_text(self) -> &'static str {
        match self {
            Self::Sqlite => "instr",
            Self::Postgres => "strpos",
        }
    }
}
