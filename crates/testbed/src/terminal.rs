//! A program on a terminal, and the screen that a person sees.

use std::{
    io::Write as _,
    num::NonZeroU16,
    path::Path,
    process::{ChildStdin, Stdio},
};

use super::{Process, directory};

mod picture;

/// Rows and columns of a screen.
pub type ScreenSize = [NonZeroU16; 2];
/// Of a screen that cuts nothing.
const LARGE: ScreenSize = [NonZeroU16::new(50).unwrap(), NonZeroU16::new(200).unwrap()];

/// A running program that believes in a terminal.
pub struct Terminal {
    process: Process,
    keys: ChildStdin,
    home: tempfile::TempDir,
    size: ScreenSize,
}

impl Terminal {
    /// Starts a program in an empty home, on a large screen.
    pub fn start(program: &Path, args: &[&str]) -> Self {
        Self::start_with(program, args, LARGE, &[])
    }

    /// Starts a program on a screen of this size, in a home with these files: paths and texts. A path may begin with `XDG_CONFIG_HOME/`.
    pub fn start_with(program: &Path, args: &[&str], size: ScreenSize, files: &[(&str, &str)]) -> Self {
        let home = directory::temporary("terminal");
        for (path, text) in files {
            let path = home.path().join(path);
            let folder = path.parent().expect("a file of the home");
            std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text)).expect("a home to write to");
        }
        let words = std::iter::once(program.to_str().expect("UTF-8")).chain(args.iter().copied());
        let command = words.map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let [rows, columns] = size;
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
        Self { process, keys, home, size }
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).and_then(|()| self.keys.flush()).expect("a running program");
    }

    /// The text on the screen now.
    pub fn screen(&self) -> String {
        self.parser().screen().contents()
    }

    /// The screen now, as an SVG with this description.
    pub fn picture(&self, description: &str) -> String {
        picture::drawn(self.parser().screen(), description)
    }

    fn parser(&self) -> vt100::Parser {
        let mut parser = vt100::Parser::new(self.size[0], self.size[1], 0);
        parser.process(&std::fs::read(self.home.path().join("screen")).unwrap_or_default());
        parser
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
