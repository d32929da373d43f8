//! A real browser with a person before it, by `tests/clients/node/ui.mjs`.

use std::{
    io::Write,
    process::{ChildStdin, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use super::{Process, client, directory, eventually};

/// For one order: the browser starts, and a member is found down, within it. Longer than `SOON_MS` of the script, which says what it saw.
const SOON: Duration = Duration::from_secs(90);

/// For an audit, which looks at the page in four ways.
const AUDIT: Duration = SOON.saturating_mul(4);

/// A running browser.
pub struct Browser {
    process: Process,
    stdin: ChildStdin,
    home: tempfile::TempDir,
    orders: usize,
}

impl Browser {
    /// Starts Chromium, without a window. Where there is none, and Debian's packages can be installed, it is installed.
    pub fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/chromium.sh");
        let found = Command::new(script).arg("--install").stderr(Stdio::inherit()).output().expect("run the script");
        assert!(found.status.success(), "{script} failed: {}", found.status);
        let chromium = String::from_utf8(found.stdout).expect("a path");
        let home = directory::temporary("browser");
        let errors = std::fs::File::create(home.path().join("stderr")).expect("a log");
        let log = home.path().join("stdout");
        let mut process = Process::spawn_with("browser", &client("ui"), &[chromium.trim()], &log, |command| {
            command.stdin(Stdio::piped()).stderr(errors).env("HOME", home.path());
        });
        let stdin = process.take_stdin().expect("a pipe");
        Self { process, stdin, home, orders: 0 }
    }

    /// Waits until a text is seen in the element with a selector.
    pub async fn see(&mut self, within: &str, text: &str) {
        self.obey(json!({"do": "see", "within": within, "text": text})).await;
    }

    /// Waits until a text is nowhere in it.
    pub async fn miss(&mut self, within: &str, text: &str) {
        self.obey(json!({"do": "miss", "within": within, "text": text})).await;
    }

    /// Presses keys, one after another, as `ArrowDown`.
    pub async fn press(&mut self, keys: &[&str]) {
        for key in keys {
            self.obey(json!({"do": "press", "key": key})).await;
        }
    }

    /// Types a text.
    pub async fn write(&mut self, text: &str) {
        self.obey(json!({"do": "type", "text": text})).await;
    }

    /// Chooses what has a text, in the element with a selector.
    pub async fn click(&mut self, within: &str, text: &str) {
        self.obey(json!({"do": "click", "within": within, "text": text})).await;
    }

    /// Opens an address, and gives the status of the answer.
    pub async fn open(&mut self, url: &str) -> u64 {
        self.obey(json!({"do": "open", "url": url})).await["status"].as_u64().unwrap_or_default()
    }

    /// `{"focus", "url", "cookies", "rows"}`: where the focus is, cookies that scripts see, rows of a grid in the document.
    pub async fn state(&mut self) -> Value {
        self.obey(json!({"do": "state"})).await
    }

    /// What axe finds on the page in both widths and colour schemes, what is too wide, and what the browser complained of.
    pub async fn audit(&mut self) -> Vec<String> {
        let found = self.obey_within(AUDIT, json!({"do": "audit"})).await;
        found["found"].as_array().into_iter().flatten().map(ToString::to_string).collect()
    }

    async fn obey(&mut self, order: Value) -> Value {
        self.obey_within(SOON, order).await
    }

    async fn obey_within(&mut self, bound: Duration, order: Value) -> Value {
        writeln!(self.stdin, "{order}").expect("a running browser");
        let at = self.orders;
        self.orders += 1;
        let answer = eventually(bound, async || {
            let output = self.process.output();
            let whole = output.rfind('\n').map_or("", |end| &output[..end]);
            whole.lines().nth(at).map(str::to_owned).ok_or_else(|| format!("no answer to {order}: {}", self.errors()))
        })
        .await;
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(answer["type"], "DONE", "{order}: {}", answer["error"].as_str().unwrap_or_default());
        answer
    }

    fn errors(&self) -> String {
        std::fs::read_to_string(self.home.path().join("stderr")).unwrap_or_default()
    }
}
