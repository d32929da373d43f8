//! A database of the system's packages, with its data in a temporary folder, run by a script beside this crate.

use std::{
    fs,
    io::{BufRead, BufReader, Write as _},
    marker::PhantomData,
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
};

use parking_lot::Mutex;

use super::{Authority, Port};

/// Which database.
pub trait Engine: Sized {
    /// The name of the script, and of the authority of the server's certificate.
    const NAME: &'static str;
    /// Makes the user `jane` with the password `s3cret`.
    const MAKE_JANE: &'static str;

    /// Runs statements as an operator does, and returns what they print.
    fn sql(server: &DatabaseServer<Self>, statements: &str) -> String;
}

/// A running server. It ends with this, or with the process, and its data with it.
pub struct DatabaseServer<E> {
    pub(crate) folder: PathBuf,
    /// Where it listens for TLS.
    pub(crate) port: Option<Port>,
    script: Mutex<Script>,
    engine: PhantomData<fn() -> E>,
}

impl<E: Engine> DatabaseServer<E> {
    /// Starts one and waits until it answers.
    pub fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap().keep(), None)
    }

    /// Starts one that listens on 127.0.0.1, too, for TLS and for `jane`, who has the password `s3cret`. Its certificate names
    /// `localhost`, and is of an authority of its own.
    pub fn start_with_tls() -> Self {
        let folder = tempfile::tempdir().unwrap().keep();
        let authority = Authority::new(E::NAME);
        let server = authority.server(&["localhost"]);
        for (name, text) in
            [("ca.crt", authority.cert_pem()), ("server.crt", server.cert_pem), ("server.key", server.key_pem)]
        {
            fs::write(folder.join(name), text).unwrap();
        }
        let server = Self::start_in(folder, Some(Port::reserve()));
        server.sql(E::MAKE_JANE);
        server
    }

    fn start_in(folder: PathBuf, port: Option<Port>) -> Self {
        let mut command = Command::new(format!("{}/{}.sh", env!("CARGO_MANIFEST_DIR"), E::NAME));
        command.arg(&folder).args(port.iter().map(|port| port.number().to_string()));
        let script = Mutex::new(Script::start(&mut command));
        Self { folder, port, script, engine: PhantomData }
    }

    /// All its processes stop in their tracks: connections stay open and new ones are accepted by the kernel, nothing is
    /// answered.
    pub fn pause(&self) {
        self.script.lock().order("pause");
    }

    /// They go on where they stopped.
    pub fn resume(&self) {
        self.script.lock().order("resume");
    }

    /// `kill -9` for all its processes.
    pub fn kill(&self) {
        self.script.lock().order("kill");
    }

    /// Starts it again with the data that it has, and waits until it answers.
    pub fn restart(&self) {
        self.script.lock().order("start");
    }

    /// Where it listens for TLS.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.tls_port())
    }

    pub(crate) fn tls_port(&self) -> u16 {
        self.port.as_ref().expect("a server with TLS").number()
    }

    /// The authority of its certificate.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// Runs statements as an operator does, and returns what they print.
    pub fn sql(&self, statements: &str) -> String {
        E::sql(self, statements)
    }
}

/// Runs a command of an operator, and returns what it prints.
pub(crate) fn printed(command: &mut Command, statements: &str) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{statements}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// What runs a server: it says `ready` once the server answers, and after each order. It ends with its standard input.
struct Script {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Script {
    /// Starts one and waits until its server answers.
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut script = Self { child, said };
        script.is_ready();
        script
    }

    /// Has it do something, and waits until that is done.
    fn order(&mut self, order: &str) {
        writeln!(self.child.stdin.as_mut().expect("it runs"), "{order}").unwrap();
        self.is_ready();
    }

    fn is_ready(&mut self) {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the server does not start; see stderr");
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}
