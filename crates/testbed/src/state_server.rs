//! A server of databases in which a fleet's state can stand, whichever it is.

use std::fmt;

use super::{MariadbServer, PostgresServer};

/// The name of the database.
const DATABASE: &str = "state";

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateEngine {
    Postgres,
    Mysql,
}

/// As kubefold names it.
impl fmt::Display for StateEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "PostgreSQL",
            Self::Mysql => "MySQL",
        })
    }
}

/// A running server.
pub enum StateServer {
    Postgres(PostgresServer),
    Mysql(MariadbServer),
}

impl StateServer {
    /// Starts one and waits until it answers.
    pub fn start(engine: StateEngine) -> Self {
        match engine {
            StateEngine::Postgres => Self::Postgres(PostgresServer::start()),
            StateEngine::Mysql => Self::Mysql(MariadbServer::start()),
        }
    }

    /// Starts one that listens for TLS, too, and in whose database the user `jane` may make nothing yet.
    pub fn start_with_tls(engine: StateEngine) -> Self {
        match engine {
            StateEngine::Postgres => Self::Postgres(PostgresServer::start_with_tls()),
            StateEngine::Mysql => {
                let server = MariadbServer::start_with_tls();
                server.sql(&format!("CREATE DATABASE {DATABASE}; GRANT SELECT ON {DATABASE}.* TO jane@'%'"));
                Self::Mysql(server)
            }
        }
    }

    /// The URL of its database, by its socket.
    pub fn url(&self) -> String {
        match self {
            Self::Postgres(server) => server.database(DATABASE, None),
            Self::Mysql(server) => server.url(DATABASE),
        }
    }

    /// Where it listens for TLS.
    pub fn address(&self) -> String {
        match self {
            Self::Postgres(server) => server.address(),
            Self::Mysql(server) => server.address(),
        }
    }

    /// The URL of its database for `jane`, over TLS, at a port of this machine.
    pub fn tls_url(&self, port: u16) -> String {
        match self {
            Self::Postgres(server) => {
                server.database(DATABASE, None);
                format!("postgres://jane:s3cret@localhost:{port}/{DATABASE}?sslmode=require")
            }
            Self::Mysql(_) => format!("mysql://jane:s3cret@localhost:{port}/{DATABASE}?ssl-mode=REQUIRED"),
        }
    }

    /// What has to be run before `jane` may make the tables.
    pub fn grant(&self) -> String {
        match self {
            Self::Postgres(_) => format!("GRANT CREATE ON DATABASE \"{DATABASE}\" TO \"jane\""),
            Self::Mysql(_) => format!("GRANT ALL ON `{DATABASE}`.* TO 'jane'@'%'"),
        }
    }

    /// The authority of its certificate.
    pub fn authority(&self) -> std::path::PathBuf {
        match self {
            Self::Postgres(server) => server.authority(),
            Self::Mysql(server) => server.authority(),
        }
    }

    /// Runs statements in its database, and returns what they print.
    pub fn sql(&self, statements: &str) -> String {
        match self {
            Self::Postgres(server) => server.sql_in(DATABASE, statements),
            Self::Mysql(server) => server.sql(&format!("USE {DATABASE}; {statements}")),
        }
    }

    /// The name of a table of a group.
    pub fn table(&self, schema: &str, table: &str) -> String {
        match self {
            Self::Postgres(_) => format!("{schema}.{table}"),
            Self::Mysql(_) => format!("{schema}_{table}"),
        }
    }

    /// How many rows of a table have a text in a column of bytes.
    pub fn rows_with(&self, table: &str, column: &str, text: &str) -> String {
        let column = match self {
            Self::Postgres(_) => format!("encode({column}, 'escape')"),
            Self::Mysql(_) => column.to_owned(),
        };
        self.sql(&format!("SELECT count(*) FROM {table} WHERE {column} LIKE '%{text}%'"))
    }

    /// Says whether a table is there.
    pub fn has_table(&self, name: &str) -> bool {
        self.sql(&format!("SELECT count(*) FROM information_schema.tables WHERE table_name = '{name}'")) == "1"
    }

    /// Has the state be what it was at its beginning, as a backup that is restored does.
    pub fn rewind(&self) {
        self.sql(&format!("UPDATE {} SET epoch = 1, beat = 1", self.table("kubefold", "holder")));
        if let Self::Mysql(_) = self {
            self.sql("UPDATE kubefold_epoch SET epoch = 1");
        }
    }

    /// Has no table of the state take a row more, as the server says it of a full disk, until [`Self::make_room`].
    pub fn fill(&self) {
        match self {
            Self::Postgres(_) => drop(self.sql(
                "CREATE FUNCTION public.no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full';
                END $$;
                DO $$ DECLARE one record; BEGIN
                    FOR one IN SELECT schemaname, tablename FROM pg_tables WHERE schemaname LIKE 'kubefold%' LOOP
                        EXECUTE format(
                            'CREATE TRIGGER no_room BEFORE INSERT ON %I.%I FOR EACH ROW EXECUTE FUNCTION public.no_room()',
                            one.schemaname, one.tablename);
                    END LOOP;
                END $$",
            )),
            Self::Mysql(_) => self.each_table(|table| {
                format!(
                    "CREATE TRIGGER no_room_{table} BEFORE INSERT ON {table} FOR EACH ROW
                        SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table {table} is full'"
                )
            }),
        }
    }

    /// There is room again.
    pub fn make_room(&self) {
        match self {
            Self::Postgres(_) => drop(self.sql("DROP FUNCTION public.no_room CASCADE")),
            Self::Mysql(_) => self.each_table(|table| format!("DROP TRIGGER no_room_{table}")),
        }
    }

    fn each_table(&self, statement: impl Fn(&str) -> String) {
        let tables = self.sql("SHOW TABLES LIKE 'kubefold%'");
        let statements: Vec<String> = tables.lines().map(statement).collect();
        self.sql(&statements.join("; "));
    }

    /// All its processes stop in their tracks.
    pub fn pause(&self) {
        match self {
            Self::Postgres(server) => server.pause(),
            Self::Mysql(server) => server.pause(),
        }
    }

    /// They go on where they stopped.
    pub fn resume(&self) {
        match self {
            Self::Postgres(server) => server.resume(),
            Self::Mysql(server) => server.resume(),
        }
    }

    /// `kill -9` for all its processes.
    pub fn kill(&self) {
        match self {
            Self::Postgres(server) => server.kill(),
            Self::Mysql(server) => server.kill(),
        }
    }

    /// Starts it again with the data that it has, and waits until it answers.
    pub fn restart(&self) {
        match self {
            Self::Postgres(server) => server.restart(),
            Self::Mysql(server) => server.restart(),
        }
    }
}
