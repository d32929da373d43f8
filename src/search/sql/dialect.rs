//! What SQLite, PostgreSQL and MySQL say in different ways.

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
    /// MySQL from 8.0 on, and MariaDB from 10.6 on. Its columns of text are bytes. Of documents it is asked nothing: MariaDB reads no
    /// JSON that is nested more than 32 deep. See `Query::for_columns`.
    Mysql,
}

impl Dialect {
    /// The place of a parameter.
    pub(super) fn place(self, number: usize, parameter: &Parameter) -> String {
        match (self, parameter) {
            (Self::Sqlite | Self::Mysql, _) => format!("?{number}"),
            (Self::Postgres, Parameter::Text(_)) => format!("${number}::text"),
            (Self::Postgres, Parameter::Integer(_)) => format!("${number}::bigint"),
            (Self::Postgres, Parameter::Number(_)) => format!("${number}::double precision::text::numeric"),
        }
    }

    /// The JSON of an object.
    pub(super) fn document(self) -> &'static str {
        match self {
            Self::Mysql => "o.document",
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
            Self::Mysql => [
                "SELECT CAST(one.text AS BINARY) FROM JSON_TABLE(",
                ", '$[*]' COLUMNS (text VARCHAR(2048) CHARACTER SET utf8mb4 PATH '$')) AS one",
            ],
        }
    }

    /// Behind a text: it is compared by its bytes.
    pub(super) fn by_bytes(self) -> &'static str {
        match self {
            Self::Sqlite | Self::Mysql => "",
            Self::Postgres => " COLLATE \"C\"",
        }
    }

    /// Around a parameter in the letters of ASCII: whether an object's name has that text in it, where those letters may be capitals.
    pub(super) fn name_has(self) -> [&'static str; 2] {
        match self {
            Self::Sqlite => ["instr(lower(o.name), ", ") > 0"],
            Self::Postgres => ["strpos(lower(o.name COLLATE \"C\"), ", ") > 0"],
            // `lower` changes no bytes.
            Self::Mysql => {
                ["INSTR(LOWER(CONVERT(CONVERT(o.name USING utf8mb4) USING ascii)), CONVERT(", " USING ascii)) > 0"]
            }
        }
    }
}
