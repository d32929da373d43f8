//! A program on a terminal, and the screen that a person sees.

use std::{
    io::Write as _,
    num::NonZeroU16,
    path::Path,
    process::{ChildStdin, Stdio},
};

use super::{Process, directory};

/// Rows and columns of the screen.
const SIZE: [NonZeroU16; 2] = [NonZeroU16::new(50).unwrap(), NonZeroU16::new(200).unwrap()];

/// A running program that believes in a terminal.
pub struct Terminal {
    process: Process,
    keys: ChildStdin,
    home: tempfile::TempDir,
}

impl Terminal {
    /// Starts a program in an empty home.
    pub fn start(program: &Path, args: &[&str]) -> Self {
        let home = directory::temporary("terminal");
        let words = std::iter::once(program.to_str().expect("UTF-8")).chain(args.iter().copied());
        let command = words.map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let [rows, columns] = SIZE;
        let command = format!("stty rows {rows} cols {columns}; exec {command}");
        let home_path = home.path().to_owned();
        // util-linux: a terminal of its own around a command.
        let script = ["--quiet", "--flush", "--return", "--command", &command, "/dev/null"];
        let mut process =
            Process::spawn_with("script", Path::new("script"), &script, &home.path().join("screen"), |command| {
                command.stdin(Stdio::piped()).stderr(Stdio::null());
                command.env("HOME", &home_path).env("TERM", "xterm-256color").env_remove("KUBECONFIG");
                for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
                    command.env(name, home_path.join(name));
                }
            });
        let keys = process.take_stdin().expect("a pipe");
        Self { process, keys, home }
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).and_then(|()| self.keys.flush()).expect("a running program");
    }

    /// The text on the screen now.
    pub fn screen(&self) -> String {
        let mut parser = vt100::Parser::new(SIZE[0], SIZE[1], 0);
        parser.process(&std::fs::read(self.home.path().join("screen")).unwrap_or_default());
        parser.screen().contents()
    }

    /// Waits until the screen shows all of these.
    pub async fn shows(&mut self, deadline: std::time::Duration, texts: &[&str]) -> String {
        super::eventually(deadline, async || {
            let screen = self.screen();
            match texts.iter().find(|text| !screen.contains(**text)) {
                None => Ok(screen),
                Some(text) => Err(format!("no {text:?} on the screen:\n{screen}")),
            }
        })
        .await
    }

    /// How it ended, or `None` while it runs.
    pub fn exited(&mut self) -> Option<std::process::ExitStatus> {
        self.process.exited()
    }
}
