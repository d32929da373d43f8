//! A real client-go informer (`tests/testbed/cmd/informer`).

use std::{io::Write, path::Path, process::ChildStdin, process::Stdio, time::Duration};

use serde_json::Value;

use super::{Process, binary, directory, eventually};

/// A running informer and every line that it has printed.
pub(crate) struct Informer {
    process: Process,
    stdin: ChildStdin,
    home: tempfile::TempDir,
}

impl Informer {
    /// Starts one; `watchlist` says whether it fills its store by a streaming list or by pages.
    pub(crate) fn start(kubeconfig: &Path, context: Option<&str>, resource: &str, watchlist: bool) -> Self {
        let home = directory::temporary("informer");
        let mut args = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--resource={resource}"),
            format!("--watchlist={watchlist}"),
        ];
        args.extend(context.map(|context| format!("--context={context}")));
        let errors = std::fs::File::create(home.path().join("stderr")).expect("a log");
        let mut process =
            Process::spawn_with("informer", &binary("informer"), &args, &home.path().join("stdout"), |command| {
                command.stdin(Stdio::piped()).stderr(errors);
            });
        let stdin = process.take_stdin().expect("a pipe");
        Self { process, stdin, home }
    }

    /// Every event so far: `{"type", "key", "rv", "uid", "changed"}`, and the answers to [`Self::dump`].
    pub(crate) fn events(&self) -> Vec<Value> {
        let output = self.process.output();
        // The last line may be half written.
        let whole = output.rfind('\n').map_or("", |end| &output[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    /// The events of one type.
    pub(crate) fn events_of(&self, kind: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["type"] == kind).collect()
    }

    /// Waits until its handlers have seen the whole first list.
    pub(crate) async fn synced(&self, deadline: Duration) {
        eventually(deadline, async || match self.events_of("SYNCED").is_empty() {
            false => Ok(()),
            true => Err(format!("the informer has not synced: {}", self.errors())),
        })
        .await;
    }

    /// Its store now: `{"ns/name": {"rv", "uid", "data"}}`.
    pub(crate) async fn dump(&mut self) -> Value {
        let before = self.events_of("DUMP").len();
        self.stdin.write_all(b"dump\n").expect("a running informer");
        eventually(Duration::from_secs(10), async || {
            self.events_of("DUMP").get(before).map(|dump| dump["items"].clone()).ok_or("no dump yet")
        })
        .await
    }

    /// What it wrote to stderr.
    pub(crate) fn errors(&self) -> String {
        std::fs::read_to_string(self.home.path().join("stderr")).unwrap_or_default()
    }
}
