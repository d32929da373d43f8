//! A small shell for simulated pods: enough for what people try with `kubectl exec`.
//!
//! It is pure: bytes and time come in, bytes and an exit code go out.

mod commands;
mod container;
mod disk;
mod tar;
mod terminal;
#[cfg(test)]
mod tests;
mod words;

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;

use crate::{
    registry::Env,
    streaming::{Program, StreamOptions, Written},
};
use commands::{Call, Ran};
use container::absolute;
use disk::{DISK_BYTES_MAX, Node};
use terminal::{Key, Terminal, with_returns};
use words::{Command, Output, Piece, Pipeline, When, Word, parse};

pub(in crate::sim) use {container::Container, disk::Disks};

/// Bytes of input that wait for whoever reads them: an archive of all that a container can have written.
const INPUT_BYTES_MAX: usize = 2 * DISK_BYTES_MAX;
/// Shells within shells.
const LEVELS_MAX: usize = 16;
/// Bytes that are written before more is made of a script.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Bytes of a command with its arguments: variables that contain one another grow fast.
const WORDS_BYTES_MAX: usize = 128 << 10;

/// A command that was asked for, and the shell that it may be.
pub(in crate::sim) struct Shell {
    container: Container,
    env: Env,
    variables: Vec<(String, String)>,
    directory: String,
    levels: Vec<Level>,
    /// The exit code of the last command.
    last: u8,
    waits: Option<Waits>,
    terminal: Option<Terminal>,
    input: Vec<u8>,
    input_ended: bool,
    is_prompted: bool,
    /// There is more to do at once.
    is_busy: bool,
}

/// One shell.
#[derive(Default)]
struct Level {
    pending: VecDeque<Pipeline>,
    reads_input: bool,
}

/// What a command waits for.
enum Waits {
    Sleep(Duration),
    /// It writes on its input.
    Copy,
    /// It wants all of its input, and its output may go to a file.
    Collect(Vec<String>, Option<Output>),
}

impl Shell {
    /// A command in a container.
    pub(in crate::sim) fn new(container: Container, env: Env, words: &[String], asked: StreamOptions) -> Self {
        let words = words.iter().map(|word| vec![Piece::Text(word.clone())]).collect();
        let commands = vec![Command { words, ..Command::default() }];
        let pending = VecDeque::from([Pipeline { when: When::Always, commands }]);
        Self {
            env,
            variables: container.variables.clone(),
            container,
            directory: "/".to_owned(),
            levels: vec![Level { pending, reads_input: false }],
            last: 0,
            waits: None,
            terminal: asked.tty.then(Terminal::default),
            input: Vec::new(),
            input_ended: !asked.stdin,
            is_prompted: false,
            is_busy: false,
        }
    }

    /// Runs until it waits or ends.
    fn advance(&mut self, out: &mut Written) {
        let mut own = Written::default();
        self.is_busy = true;
        while self.is_busy && own.stdout.len() < OUTPUT_BYTES_MAX {
            self.is_busy = self.step(&mut own);
        }
        if self.levels.is_empty() && self.waits.is_none() {
            own.exit = Some(self.last);
        }
        if self.terminal.is_some() {
            own.stdout.append(&mut own.stderr);
            own.stdout = with_returns(&own.stdout);
        }
        out.stdout.append(&mut own.stdout);
        out.stderr.append(&mut own.stderr);
        out.exit = own.exit;
    }

    /// Does one thing. False: it waits, or it has ended.
    fn step(&mut self, out: &mut Written) -> bool {
        match self.waits.take() {
            Some(Waits::Copy) => {
                out.stdout.append(&mut self.input);
                if !self.input_ended {
                    self.waits = Some(Waits::Copy);
                }
                return self.waits.is_none();
            }
            Some(Waits::Collect(words, output)) if self.input_ended => {
                self.collected(&words, output.as_ref(), out);
                return true;
            }
            Some(waits) => {
                self.waits = Some(waits);
                return false;
            }
            None => {}
        }
        let Some(level) = self.levels.last_mut() else { return false };
        if let Some(pipeline) = level.pending.pop_front() {
            let runs = match pipeline.when {
                When::Always => true,
                When::Succeeded => self.last == 0,
                When::Failed => self.last != 0,
            };
            if runs {
                self.pipeline(&pipeline, out);
            }
            return true;
        }
        if !level.reads_input {
            self.levels.pop();
            return true;
        }
        self.read_line(out)
    }

    /// Runs a command that has all of its input.
    fn collected(&mut self, words: &[String], output: Option<&Output>, out: &mut Written) {
        let input = std::mem::take(&mut self.input);
        let mut own = Written::default();
        self.last = match self.call(words, Some(&input), &mut own) {
            Ran::Done(code) => code,
            _ => 0,
        };
        if let Some(output) = output {
            self.write(output, std::mem::take(&mut own.stdout), &mut own.stderr);
        }
        out.stdout.append(&mut own.stdout);
        out.stderr.append(&mut own.stderr);
    }

    /// Writes to a file. One that cannot be written is the command's failure.
    fn write(&mut self, output: &Output, written: Vec<u8>, errors: &mut Vec<u8>) {
        let mut room = WORDS_BYTES_MAX;
        let path = absolute(&self.directory, &self.expanded(&output.path, &mut room));
        if path == "/dev/null" {
            return;
        }
        let before = match self.container.at(&path) {
            Some(Node::File(bytes)) if output.appends => bytes,
            _ => Bytes::new(),
        };
        let parent = self.container.at(&absolute(&path, ".."));
        let failed = match parent {
            Some(Node::Directory) => {
                let node = Node::File([&before[..], &written].concat().into());
                self.container.write(&path, node).err().map(|error| error.to_string())
            }
            _ => Some("nonexistent directory".to_owned()),
        };
        if let Some(why) = failed {
            errors.extend_from_slice(format!("sh: can't create {path}: {why}\n").as_bytes());
            self.last = 1;
        }
    }

    /// The next line of a shell that reads them.
    fn read_line(&mut self, out: &mut Written) -> bool {
        let end = self.input.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let end = end.or_else(|| Some(self.input.len()).filter(|length| self.input_ended && *length > 0));
        if let Some(end) = end {
            let line: Vec<u8> = self.input.drain(..end).collect();
            self.is_prompted = false;
            self.script(&String::from_utf8_lossy(&line), out);
            return true;
        }
        if self.input_ended {
            self.levels.pop();
            return true;
        }
        if self.terminal.is_some() && !self.is_prompted {
            out.stdout.extend_from_slice(format!("{} # ", self.directory).as_bytes());
            self.is_prompted = true;
        }
        false
    }

    fn script(&mut self, script: &str, out: &mut Written) {
        match parse(script) {
            Ok(pipelines) => {
                if let Some(level) = self.levels.last_mut() {
                    level.pending.extend(pipelines);
                }
            }
            Err(error) => {
                out.stderr.extend_from_slice(format!("sh: {error}\n").as_bytes());
                self.last = 2;
            }
        }
    }

    fn pipeline(&mut self, pipeline: &Pipeline, out: &mut Written) {
        let mut input: Option<Vec<u8>> = None;
        let count = pipeline.commands.len();
        for (place, command) in pipeline.commands.iter().enumerate() {
            let mut room = WORDS_BYTES_MAX;
            let words: Vec<String> = command.words.iter().map(|word| self.expanded(word, &mut room)).collect();
            if room == 0 {
                out.stderr.extend_from_slice(b"sh: argument list too long\n");
                self.last = 126;
                return;
            }
            let Some(words) = self.assigned(&words) else { continue };
            let mut own = Written::default();
            let ran = self.call(words, input.as_deref(), &mut own);
            if command.errors_to_output {
                own.stdout.append(&mut own.stderr);
            }
            if command.no_errors {
                own.stderr.clear();
            }
            out.stderr.append(&mut own.stderr);
            let is_last = place + 1 == count;
            if let Ran::Done(code) = ran {
                self.last = code;
            }
            let waits = is_last && matches!(ran, Ran::Copy | Ran::Collect);
            match (&command.output, is_last) {
                (Some(_), _) if waits => {}
                (Some(output), _) => {
                    self.write(output, std::mem::take(&mut own.stdout), &mut out.stderr);
                    input = Some(Vec::new());
                }
                (None, true) => out.stdout.append(&mut own.stdout),
                (None, false) => input = Some(own.stdout),
            }
            match ran {
                Ran::Done(_) => {}
                // Within a pipeline nothing takes time.
                _ if !is_last => self.last = 0,
                Ran::Sleep(time) => (self.last, self.waits) = (0, Some(Waits::Sleep(time))),
                Ran::Copy if command.output.is_none() => (self.last, self.waits) = (0, Some(Waits::Copy)),
                Ran::Copy | Ran::Collect => self.waits = Some(Waits::Collect(words.to_vec(), command.output.clone())),
                Ran::Shell | Ran::Script(_) if command.output.is_some() => {
                    out.stderr.extend_from_slice(
                        b"sh: the shell of the simulation does not write what a script prints to a file\n",
                    );
                    self.last = 2;
                }
                Ran::Shell => self.nested(true, "", out),
                Ran::Script(script) => self.nested(false, &script, out),
                Ran::Exit(code) => {
                    self.last = code;
                    self.levels.pop();
                    return;
                }
            }
        }
    }

    fn nested(&mut self, reads_input: bool, script: &str, out: &mut Written) {
        if self.levels.len() >= LEVELS_MAX {
            out.stderr.extend_from_slice(b"sh: can't fork: Resource temporarily unavailable\n");
            self.last = 2;
            return;
        }
        (self.last, self.is_prompted) = (0, false);
        self.levels.push(Level { reads_input, ..Level::default() });
        self.script(script, out);
    }

    /// Sets the variables that a command begins with. `None`: it is nothing else.
    fn assigned<'w>(&mut self, words: &'w [String]) -> Option<&'w [String]> {
        let is_name =
            |name: &str| !name.is_empty() && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
        let mut rest = words;
        while let Some((first, others)) = rest.split_first()
            && self.levels.len() > 1
            && let Some((name, value)) = first.split_once('=').filter(|(name, _)| is_name(name))
        {
            self.variables.retain(|(known, _)| known != name);
            self.variables.push((name.to_owned(), value.to_owned()));
            rest = others;
        }
        if rest.is_empty() {
            self.last = 0;
        }
        (!rest.is_empty()).then_some(rest)
    }

    fn call(&mut self, words: &[String], input: Option<&[u8]>, out: &mut Written) -> Ran {
        let mut call = Call {
            container: &self.container,
            variables: &mut self.variables,
            directory: &mut self.directory,
            input,
            last: self.last,
            now: self.env.now(),
            out: Vec::new(),
            errors: Vec::new(),
        };
        let ran = call.run(words);
        out.stdout.append(&mut call.out);
        out.stderr.append(&mut call.errors);
        ran
    }

    /// A word with the values of its variables, as long as there is room.
    fn expanded(&self, word: &Word, room: &mut usize) -> String {
        let mut out = String::new();
        for piece in word {
            let value = match piece {
                Piece::Text(text) => text.clone(),
                Piece::Variable(name) if name == "?" => self.last.to_string(),
                Piece::Variable(name) if name == "$" => "1".to_owned(),
                Piece::Variable(name) if name == "#" => "0".to_owned(),
                Piece::Variable(name) => {
                    let known = self.variables.iter().find(|(known, _)| known == name);
                    known.map_or_else(String::new, |(_, value)| value.clone())
                }
            };
            *room = room.saturating_sub(value.len());
            if *room == 0 {
                break;
            }
            out.push_str(&value);
        }
        out
    }

    fn key(&mut self, key: &Key, out: &mut Written) {
        match key {
            Key::Line(line) => self.input.extend_from_slice(line),
            Key::EndOfInput => match self.waits.take() {
                Some(Waits::Copy) => out.stdout.append(&mut self.input),
                Some(Waits::Collect(words, output)) => self.collected(&words, output.as_ref(), out),
                Some(waits) => self.waits = Some(waits),
                None => drop(self.levels.pop()),
            },
            Key::Interrupt => {
                self.input.clear();
                (self.waits, self.is_prompted, self.last) = (None, false, 130);
                self.levels.iter_mut().for_each(|level| level.pending.clear());
            }
        }
    }
}

impl Program for Shell {
    fn start(&mut self, out: &mut Written) {
        let first = self.levels.first().and_then(|level| level.pending.front());
        let word = first.and_then(|pipeline| pipeline.commands.first()?.words.first());
        let mut room = WORDS_BYTES_MAX;
        let word = word.map(|word| self.expanded(word, &mut room)).unwrap_or_default();
        let failed = match self.container.program(&word) {
            Some(Node::Program) => return self.advance(out),
            Some(_) => (126, "permission denied"),
            None if word.contains('/') => (127, "no such file or directory"),
            None => (127, "executable file not found in $PATH"),
        };
        let (code, why) = failed;
        let stat = if word.contains('/') { "stat " } else { "" };
        let named = if word.contains('/') { word } else { format!("{word:?}") };
        // Source: opencontainers/runc `libcontainer/standard_init_linux.go`, and what Docker says before it.
        let message = format!(
            "OCI runtime exec failed: exec failed: unable to start container process: exec: {stat}{named}: {why}: unknown\r\n"
        );
        out.stdout.extend_from_slice(message.as_bytes());
        out.exit = Some(code);
    }

    fn input(&mut self, bytes: &[u8], out: &mut Written) {
        if self.terminal.is_none() {
            let room = INPUT_BYTES_MAX.saturating_sub(self.input.len());
            self.input.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
            return self.advance(out);
        }
        for byte in bytes {
            let key = self.terminal.as_mut().and_then(|terminal| terminal.key(*byte, &mut out.stdout));
            if let Some(key) = key.filter(|_| out.exit.is_none()) {
                let mut own = Written::default();
                self.key(&key, &mut own);
                out.stdout.extend(with_returns(&[own.stdout, own.stderr].concat()));
                self.advance(out);
            }
        }
    }

    fn end_of_input(&mut self, out: &mut Written) {
        self.input_ended = true;
        self.advance(out);
    }

    fn sleeps(&self) -> Option<Duration> {
        match self.waits {
            Some(Waits::Sleep(time)) => Some(time),
            _ => self.is_busy.then_some(Duration::ZERO),
        }
    }

    fn woken(&mut self, out: &mut Written) {
        self.waits = self.waits.take().filter(|waits| !matches!(waits, Waits::Sleep(_)));
        self.advance(out);
    }
}
