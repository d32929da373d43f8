//! The commands of a simulated container.

use std::time::Duration;

use bytes::Bytes;

use super::{
    container::{Container, PROGRAM, PROGRAMS, absolute},
    disk::Node,
};

/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 3600);

/// What a command does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// It ended with a code.
    Done(u8),
    /// It sleeps, and succeeds.
    Sleep(Duration),
    /// It writes on what it reads, until there is no more.
    Copy,
    /// It needs all of its input first.
    Collect,
    /// It is a shell that reads its input.
    Shell,
    /// It is a shell with a script.
    Script(String),
    /// It ends the shell.
    Exit(u8),
}

/// What a command sees, and writes to.
pub(super) struct Call<'a> {
    pub(super) container: &'a Container,
    pub(super) variables: &'a mut Vec<(String, String)>,
    pub(super) directory: &'a mut String,
    /// What the command before it in a pipeline wrote, or all of the input.
    pub(super) input: Option<&'a [u8]>,
    pub(super) last: u8,
    pub(super) now: jiff::Timestamp,
    pub(super) out: Vec<u8>,
    pub(super) errors: Vec<u8>,
}

impl Call<'_> {
    /// Runs a command.
    pub(super) fn run(&mut self, words: &[String]) -> Ran {
        let Some((name, args)) = words.split_first() else { return Ran::Done(0) };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let program = name.rsplit('/').next().unwrap_or_default();
        match (self.container.program(name), name.as_str()) {
            (Some(Node::Program), _) => self.program(program, &args),
            (_, "cd" | "exit" | "export" | "unset" | "clear" | ":") => self.builtin(program, &args),
            (Some(_), _) => self.fail(126, &format!("sh: {name}: Permission denied")),
            (None, _) => self.fail(127, &format!("sh: {name}: not found")),
        }
    }

    fn builtin(&mut self, name: &str, args: &[&str]) -> Ran {
        match (name, args) {
            ("exit", []) => return Ran::Exit(self.last),
            ("exit", [code, ..]) => {
                let code = code.parse::<i64>().map_or(2, |code| (code & 0xff) as u8);
                return Ran::Exit(code);
            }
            ("cd", _) => {
                let path = absolute(self.directory, args.first().copied().unwrap_or("/root"));
                if self.container.at(&path) != Some(Node::Directory) {
                    return self.fail(2, &format!("sh: cd: can't cd to {path}: No such file or directory"));
                }
                *self.directory = path;
            }
            ("export", _) => {
                for (name, value) in args.iter().filter_map(|arg| arg.split_once('=')) {
                    self.set(name, value);
                }
            }
            ("unset", _) => self.variables.retain(|(known, _)| !args.contains(&known.as_str())),
            ("clear", _) => self.out.extend_from_slice(b"\x1b[H\x1b[2J"),
            _ => {}
        }
        Ran::Done(0)
    }

    fn program(&mut self, name: &str, args: &[&str]) -> Ran {
        let words = args.join(" ");
        match name {
            "true" => {}
            "false" => return Ran::Done(1),
            "help" => self.line(&format!(
                "A simulated container: nothing runs in it. Commands: {} cd exit export",
                PROGRAMS.join(" ")
            )),
            "hostname" => self.line(&self.container.hostname.clone()),
            "whoami" => self.line("root"),
            "nproc" => self.line("2"),
            "id" => self.line("uid=0(root) gid=0(root) groups=0(root)"),
            "pwd" => self.line(&self.directory.clone()),
            "date" => self.line(&self.now.strftime("%a %b %e %H:%M:%S UTC %Y").to_string()),
            "uname" if args.contains(&"-a") => {
                self.line(&format!("Linux {} 6.12.0-simulated #1 SMP x86_64 GNU/Linux", self.container.hostname));
            }
            "uname" => self.line("Linux"),
            "ps" => {
                self.line("PID   USER     TIME  COMMAND");
                self.line(&format!("    1 root      0:00 {}", self.container.command));
                self.line(&format!("   17 root      0:00 ps {words}"));
            }
            "echo" => match args.strip_prefix(&["-n"]) {
                Some(rest) => self.out.extend_from_slice(rest.join(" ").as_bytes()),
                None => self.line(&words),
            },
            "printf" => {
                let text = args.first().copied().unwrap_or_default();
                let text = text.replace("\\n", "\n").replace("\\t", "\t");
                let filled = args.iter().skip(1).fold(text, |text, arg| text.replacen("%s", arg, 1));
                self.out.extend_from_slice(filled.as_bytes());
            }
            "env" | "printenv" => return self.environment(args),
            "sleep" => return self.sleep(args),
            "test" => return Ran::Done(u8::from(!self.holds(args))),
            "which" => return self.which(args),
            "ls" => return self.list(args),
            "mkdir" | "touch" => return self.make(name, args),
            "rm" => return self.remove(args),
            "tar" => return self.tar(args),
            "sh" | "ash" | "bash" => return self.shell(args),
            _ => return self.filter(name, args),
        }
        Ran::Done(0)
    }

    fn line(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(b'\n');
    }

    pub(super) fn fail(&mut self, code: u8, why: &str) -> Ran {
        self.errors.extend_from_slice(why.as_bytes());
        self.errors.push(b'\n');
        Ran::Done(code)
    }

    /// Sets a variable.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    fn environment(&mut self, names: &[&str]) -> Ran {
        let asked = |name: &String| names.is_empty() || names.contains(&name.as_str());
        let found: Vec<String> = self
            .variables
            .iter()
            .filter(|(name, _)| asked(name))
            .map(|(name, value)| if names.is_empty() { format!("{name}={value}") } else { value.clone() })
            .collect();
        found.iter().for_each(|line| self.line(line));
        Ran::Done(u8::from(found.is_empty()))
    }

    fn sleep(&mut self, args: &[&str]) -> Ran {
        let seconds = args.first().and_then(|arg| arg.trim_end_matches('s').parse::<f64>().ok());
        match seconds.map(Duration::try_from_secs_f64) {
            Some(Ok(time)) => Ran::Sleep(time.min(SLEEP_MAX)),
            _ => self.fail(1, &format!("sleep: invalid number '{}'", args.join(" "))),
        }
    }

    fn holds(&self, args: &[&str]) -> bool {
        match args {
            ["-e", path] => self.container.at(&absolute(self.directory, path)).is_some(),
            ["-d", path] => self.container.at(&absolute(self.directory, path)) == Some(Node::Directory),
            ["-f", path] => {
                matches!(self.container.at(&absolute(self.directory, path)), Some(Node::File(_) | Node::Program))
            }
            ["-z", text] => text.is_empty(),
            ["-n", text] | [text] => !text.is_empty(),
            [one, "=", other] => one == other,
            [one, "!=", other] => one != other,
            _ => false,
        }
    }

    fn which(&mut self, args: &[&str]) -> Ran {
        let known: Vec<&&str> =
            args.iter().filter(|name| self.container.program(name) == Some(Node::Program)).collect();
        known.iter().for_each(|name| self.line(&format!("/bin/{name}")));
        Ran::Done(u8::from(known.len() < args.len()))
    }

    fn list(&mut self, args: &[&str]) -> Ran {
        let (flags, paths): (Vec<&str>, Vec<&str>) = args.iter().partition(|arg| arg.starts_with('-'));
        let is_long = flags.iter().any(|flags| flags.contains('l'));
        let paths = if paths.is_empty() { vec!["."] } else { paths };
        let mut code = 0;
        for path in &paths {
            let full = absolute(self.directory, path);
            let Some(node) = self.container.at(&full) else {
                self.fail(1, &format!("ls: {path}: No such file or directory"));
                code = 1;
                continue;
            };
            let (base, names) = match node {
                Node::Directory => (full.clone(), self.container.below(&full)),
                _ => (String::new(), vec![(*path).to_owned()]),
            };
            if paths.len() > 1 && node == Node::Directory {
                self.line(&format!("{path}:"));
            }
            for name in names {
                let (row, node) = (name.clone(), self.container.at(&absolute(&base, &name)));
                match is_long {
                    true => self.line(&long_row(&row, node.as_ref())),
                    false => self.line(&row),
                }
            }
        }
        Ran::Done(code)
    }

    /// Makes directories, or empty files.
    fn make(&mut self, name: &str, args: &[&str]) -> Ran {
        let (flags, paths): (Vec<&str>, Vec<&str>) = args.iter().partition(|arg| arg.starts_with('-'));
        let with_parents = flags.contains(&"-p");
        let mut code = 0;
        for path in paths {
            let full = absolute(self.directory, path);
            let known = self.container.at(&full);
            let parent = absolute(&full, "..");
            let made = match (name, known) {
                ("touch", Some(_)) => continue,
                ("mkdir", Some(_)) if !with_parents => Err("File exists".to_owned()),
                _ if !with_parents && self.container.at(&parent).is_none() => {
                    Err("No such file or directory".to_owned())
                }
                ("touch", None) => self.container.write(&full, Node::File(Bytes::new())).map_err(|e| e.to_string()),
                _ => self.container.write(&full, Node::Directory).map_err(|error| error.to_string()),
            };
            if let Err(why) = made {
                let what = if name == "mkdir" { "can't create directory" } else { "can't create" };
                self.fail(1, &format!("{name}: {what} '{path}': {why}"));
                code = 1;
            }
        }
        Ran::Done(code)
    }

    fn remove(&mut self, args: &[&str]) -> Ran {
        let (flags, paths): (Vec<&str>, Vec<&str>) = args.iter().partition(|arg| arg.starts_with('-'));
        let has = |letter: char| flags.iter().any(|flags| flags.contains(letter));
        let mut code = 0;
        for path in paths {
            let full = absolute(self.directory, path);
            let removed = match self.container.at(&full) {
                None if has('f') => continue,
                None => Err("No such file or directory".to_owned()),
                Some(Node::Directory) if !has('r') && !has('R') => Err("Is a directory".to_owned()),
                Some(_) => self.container.remove(&full).map_err(|error| error.to_string()),
            };
            if let Err(why) = removed {
                self.fail(1, &format!("rm: can't remove '{path}': {why}"));
                code = 1;
            }
        }
        Ran::Done(code)
    }

    fn shell(&mut self, args: &[&str]) -> Ran {
        match args {
            ["-c", script, ..] | [_, "-c", script, ..] => Ran::Script((*script).to_owned()),
            ["-c"] => self.fail(2, "sh: -c requires an argument"),
            [file, ..] if !file.starts_with('-') => self.fail(2, &format!("sh: can't open '{file}'")),
            _ => match self.input {
                Some(script) => Ran::Script(String::from_utf8_lossy(script).into_owned()),
                None => Ran::Shell,
            },
        }
    }

    /// Commands that read files or their input.
    fn filter(&mut self, name: &str, args: &[&str]) -> Ran {
        let is_flag = |arg: &&&str| arg.starts_with('-') && arg.len() > 1;
        let flags: Vec<&str> = args.iter().filter(is_flag).copied().collect();
        let mut rest: Vec<&str> = args.iter().filter(|arg| !is_flag(arg)).copied().collect();
        let pattern = if name == "grep" && !rest.is_empty() { rest.remove(0) } else { "" };
        if name == "grep" && pattern.is_empty() {
            return self.fail(2, "usage: grep [-ivc] PATTERN [FILE]...");
        }
        let count = flags.iter().find_map(|flag| flag.trim_start_matches(['-', 'n']).parse::<usize>().ok());
        let count = match (count, name, flags.contains(&"-n"), rest.first().map(|first| first.parse::<usize>())) {
            (None, "head" | "tail", true, Some(Ok(count))) => {
                rest.remove(0);
                count
            }
            (count, ..) => count.unwrap_or(10),
        };
        rest.retain(|path| *path != "-");
        let Some(bytes) = self.read(name, &rest) else {
            return if name == "cat" { Ran::Copy } else { Ran::Collect };
        };
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let has = |flag: char| flags.iter().any(|flags| flags.contains(flag));
        let failed = !self.errors.is_empty();
        match name {
            "cat" => self.out.extend_from_slice(&bytes),
            "head" => lines.iter().take(count).for_each(|line| self.line(line)),
            "tail" => lines.iter().skip(lines.len().saturating_sub(count)).for_each(|line| self.line(line)),
            "wc" if has('l') => self.line(&lines.len().to_string()),
            "wc" => self.line(&format!("{} {} {}", lines.len(), text.split_whitespace().count(), bytes.len())),
            _ => {
                let fold = |text: &str| if has('i') { text.to_lowercase() } else { text.to_owned() };
                let found: Vec<&&str> =
                    lines.iter().filter(|line| fold(line).contains(&fold(pattern)) != has('v')).collect();
                match has('c') {
                    true => self.line(&found.len().to_string()),
                    false => found.iter().for_each(|line| self.line(line)),
                }
                return Ran::Done(if failed { 2 } else { u8::from(found.is_empty()) });
            }
        }
        Ran::Done(u8::from(failed))
    }

    /// The bytes of these files, or else of the input. `None`: there is no input yet.
    fn read(&mut self, name: &str, paths: &[&str]) -> Option<Vec<u8>> {
        if paths.is_empty() {
            return self.input.map(<[u8]>::to_vec);
        }
        let mut bytes = Vec::new();
        for path in paths {
            match self.container.at(&absolute(self.directory, path)) {
                Some(Node::File(content)) => bytes.extend_from_slice(&content),
                Some(Node::Directory) => drop(self.fail(1, &format!("{name}: {path}: Is a directory"))),
                Some(Node::Program) => bytes.extend_from_slice(PROGRAM),
                None => drop(self.fail(1, &format!("{name}: {path}: No such file or directory"))),
            }
        }
        Some(bytes)
    }
}

fn long_row(name: &str, node: Option<&Node>) -> String {
    let (mode, bytes) = match node {
        Some(Node::File(text)) => ("-rw-r--r--", text.len()),
        Some(Node::Program) => ("-rwxr-xr-x", 1024),
        _ => ("drwxr-xr-x", 4096),
    };
    format!("{mode}    1 root     root     {bytes:>9} {name}")
}
