//! What a server of MySQL says, by what it is about.

use mysql_async::{DriverError, Error, IoError, ServerError};

use crate::failure::{Failure, FailureKind as Kind};

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match &error {
            Error::Server(error) => Self { kind: kind_of(error), why: told(error) },
            Error::Io(IoError::Tls(error)) => Self { kind: Kind::Tls, why: error.to_string() },
            Error::Io(IoError::Io(error)) => {
                let of_tls = error.get_ref().is_some_and(|cause| cause.is::<rustls::Error>());
                Self { kind: if of_tls { Kind::Tls } else { Kind::Away }, why: error.to_string() }
            }
            Error::Driver(DriverError::NoClientSslFlagFromServer) => {
                Self { kind: Kind::Tls, why: "the server has none".to_owned() }
            }
            Error::Driver(
                DriverError::UnknownAuthPlugin { .. }
                | DriverError::MysqlOldPasswordDisabled
                | DriverError::CleartextPluginDisabled,
            ) => Self { kind: Kind::Access, why: error.to_string() },
            Error::Driver(DriverError::ConnectionClosed) => Self::away("the connection was lost"),
            // The server and the driver do not understand each other any more.
            Error::Driver(_) | Error::Other(_) | Error::Url(_) => Self::away(&error.to_string()),
        }
    }
}

/// Source: MySQL's and MariaDB's references of server errors.
fn kind_of(error: &ServerError) -> Kind {
    match error.code {
        // ER_CON_COUNT_ERROR, ER_SERVER_SHUTDOWN, ER_NORMAL_SHUTDOWN, ER_HOST_IS_BLOCKED, ER_NET_*, ER_TOO_MANY_USER_CONNECTIONS,
        // ER_USER_LIMIT_REACHED, ER_CONNECTION_KILLED (MariaDB), ER_CLIENT_INTERACTION_TIMEOUT.
        1040 | 1053 | 1077 | 1129 | 1156..=1161 | 1203 | 1226 | 1927 | 4031 => Kind::Away,
        // ER_ACCESS_DENIED, for a database, a table, a column, without a password, for a statement; ER_HOST_NOT_PRIVILEGED,
        // ER_MUST_CHANGE_PASSWORD, ER_ACCOUNT_HAS_BEEN_LOCKED of either.
        1044 | 1045 | 1130 | 1142 | 1143 | 1227 | 1698 | 1820 | 1862 | 3118 | 4151 => Kind::Access,
        1049 => Kind::NoDatabase,
        // ER_OPTION_PREVENTS_STATEMENT, ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, ER_READ_ONLY_MODE.
        1290 | 1792 | 1836 => Kind::ReadOnly,
        // ER_DISK_FULL, ER_RECORD_FILE_FULL, ER_NET_PACKET_TOO_LARGE.
        1021 | 1114 | 1153 => Kind::Full,
        // ER_GET_ERRNO with ENOSPC.
        1030 if error.message.contains("error 28 ") => Kind::Full,
        // ER_CRASHED_ON_USAGE, ER_CRASHED_ON_REPAIR, ER_INDEX_CORRUPT, ER_TABLE_CORRUPT.
        1194 | 1195 | 1712 | 1877 => Kind::Damaged,
        // ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK.
        1205 | 1213 => Kind::Undone,
        _ => Kind::Other,
    }
}

/// What a server said, in one line.
fn told(error: &ServerError) -> String {
    let why = error.message.split_whitespace().collect::<Vec<_>>().join(" ");
    match error.code {
        1153 => format!("{why} (its max_allowed_packet)"),
        code => format!("{why} (error {code})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SqlError;

    fn failure(code: u16, message: &str) -> Failure {
        let (message, state) = (message.to_owned(), "HY000".to_owned());
        Failure::from(Error::Server(ServerError { code, message, state }))
    }

    #[test]
    fn an_error_of_the_server_says_whether_something_is_stored() {
        for (code, message) in [
            (1114, "The table 'kubefold_changes' is full"),
            (1030, "Got error 28 \"No space left on device\" from storage engine InnoDB"),
            (1153, "Got a packet bigger than 'max_allowed_packet' bytes"),
        ] {
            let failed = failure(code, message);
            // A commit that failed is certain only where the server undid it.
            assert!(failed.kind == Kind::Full && !failed.is_certain(), "{code}");
            let failed = SqlError::from(failed);
            assert!(
                failed.is_full() && !failed.is_outcome_unknown() && failed.in_commit().is_outcome_unknown(),
                "{code}"
            );
        }
        let deadlock = failure(1213, "Deadlock found when trying to get lock");
        assert!(deadlock.is_certain() && !SqlError::from(deadlock).in_commit().is_outcome_unknown());
        assert!(!failure(1180, "Got error 5 during COMMIT").is_certain());
        assert!(
            failure(1053, "Server shutdown in progress").is_away() && !failure(1064, "You have an error").is_away()
        );
        assert!(SqlError::from(failure(1712, "Index things is corrupted")).is_damaged());
    }
}
