//! Informers of real client libraries (`tests/clients`), which all print the same lines and obey the same orders.

use std::{io::Write, path::Path, process::ChildStdin, process::Stdio, time::Duration};

use serde_json::Value;

use super::{Process, client, directory, eventually};

/// A running informer and every line that it has printed.
pub struct Informer {
    process: Process,
    stdin: ChildStdin,
    home: tempfile::TempDir,
}

impl Informer {
    /// Starts client-go's; `watchlist` says whether it fills its store by a streaming list or by pages.
    pub fn start(kubeconfig: &Path, context: Option<&str>, resource: &str, watchlist: bool) -> Self {
        let mode = if resource == "configmaps" { "typed" } else { "dynamic" };
        let (mode, resource) = (format!("--mode={mode}"), format!("--resource={resource}"));
        let watchlist = format!("--watchlist={watchlist}");
        let context = context.map(|context| format!("--context={context}"));
        let args: Vec<&str> = [&mode, &resource, &watchlist].into_iter().chain(&context).map(String::as_str).collect();
        Self::of("go", kubeconfig, &args)
    }

    /// Starts a client program with its own arguments.
    pub fn of(program: &str, kubeconfig: &Path, args: &[&str]) -> Self {
        Self::of_flag(program, "--kubeconfig", kubeconfig, args)
    }

    /// The same where another flag takes the kubeconfig.
    pub fn of_flag(program: &str, flag: &str, kubeconfig: &Path, args: &[&str]) -> Self {
        let home = directory::temporary("informer");
        let kubeconfig = format!("{flag}={}", kubeconfig.display());
        let args: Vec<&str> = std::iter::once(kubeconfig.as_str()).chain(args.iter().copied()).collect();
        let errors = std::fs::File::create(home.path().join("stderr")).expect("a log");
        let mut process =
            Process::spawn_with(program, &client(program), &args, &home.path().join("stdout"), |command| {
                command.stdin(Stdio::piped()).stderr(errors);
            });
        let stdin = process.take_stdin().expect("a pipe");
        Self { process, stdin, home }
    }

    /// Every event so far: `{"type", "key", "rv", "uid", "changed"}`, and the answers to [`Self::dump`].
    pub fn events(&self) -> Vec<Value> {
        let output = self.process.output();
        // The last line may be half written.
        let whole = output.rfind('\n').map_or("", |end| &output[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    /// The events of one type.
    pub fn events_of(&self, kind: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["type"] == kind).collect()
    }

    /// Waits until its handlers have seen the whole first list.
    pub async fn synced(&self, deadline: Duration) {
        eventually(deadline, async || match self.events_of("SYNCED").is_empty() {
            false => Ok(()),
            true => Err(format!("the informer has not synced: {}", self.errors())),
        })
        .await;
    }

    /// Its store now: `{"ns/name": {"rv", "uid", "data"}}`.
    pub async fn dump(&mut self) -> Value {
        self.obey("dump", "DUMP").await["items"].take()
    }

    /// A list that it reads from the server, in pages of a size or in one piece: `{"items": [{"key", "rv", "uid",
    /// "data"}], "revisions": ["of each page"]}`.
    pub async fn list(&mut self, page_items: Option<usize>) -> Value {
        let order = page_items.map_or_else(|| "list".to_owned(), |size| format!("pages {size}"));
        let list = self.obey(&order, "LIST").await;
        assert!(list["error"].is_null(), "{order}: {}", list["error"]);
        list
    }

    /// Has it create a config map, and gives the answer, as an item of [`Self::list`]; only Java's does.
    pub async fn create(&mut self, name: &str) -> Value {
        let made = self.obey(&format!("create {name}"), "CREATE").await;
        assert!(made["error"].is_null(), "create {name}: {}", made["error"]);
        made
    }

    async fn obey(&mut self, order: &str, answer: &str) -> Value {
        let before = self.events_of(answer).len();
        writeln!(self.stdin, "{order}").expect("a running informer");
        eventually(Duration::from_secs(20), async || {
            self.events_of(answer).get(before).cloned().ok_or_else(|| format!("no {answer} yet: {}", self.errors()))
        })
        .await
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// What it wrote to stderr.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.home.path().join("stderr")).unwrap_or_default()
    }
}
