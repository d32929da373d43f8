//! `tar`, with which `kubectl cp` copies files.

use std::io::{self, Cursor, Read as _};

use bytes::Bytes;
use tar::{Archive, Builder, EntryType, Header};

use super::{
    commands::{Call, Ran},
    container::{PROGRAM, absolute},
    disk::{DISK_BYTES_MAX, Node},
};

/// What `tar` is asked to do.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked<'a> {
    /// `c`, `x` or `t`.
    mode: Option<char>,
    /// `-`: its standard input or output.
    file: Option<&'a str>,
    directory: Option<&'a str>,
    paths: Vec<&'a str>,
}

/// What is wrong with the arguments.
#[derive(Debug, thiserror::Error)]
enum ArgumentError<'a> {
    #[error("unrecognized option '{0}'")]
    Unknown(&'a str),
    #[error("invalid option -- '{0}'")]
    UnknownLetter(char),
    #[error("option requires an argument -- '{0}'")]
    Missing(char),
}

impl<'a> Asked<'a> {
    fn of(args: &[&'a str]) -> Result<Self, ArgumentError<'a>> {
        let (mut asked, mut rest) = (Self::default(), args.iter().copied().enumerate());
        while let Some((place, arg)) = rest.next() {
            if arg.starts_with("--") {
                // Whose files are, and which modes they have, is nothing here.
                if !["--no-same-permissions", "--no-same-owner"].contains(&arg) {
                    return Err(ArgumentError::Unknown(arg));
                }
                continue;
            }
            let letters = match arg.strip_prefix('-') {
                Some(letters) if !letters.is_empty() => letters,
                None if place == 0 => arg,
                _ => {
                    asked.paths.push(arg);
                    continue;
                }
            };
            for letter in letters.chars() {
                let mut next = || rest.next().map(|(_, arg)| arg);
                let missing = || ArgumentError::Missing(letter);
                match letter {
                    'c' | 'x' | 't' => asked.mode = Some(letter),
                    'f' => asked.file = Some(next().ok_or_else(missing)?),
                    'C' => asked.directory = Some(next().ok_or_else(missing)?),
                    'm' | 'o' | 'p' => {}
                    _ => return Err(ArgumentError::UnknownLetter(letter)),
                }
            }
        }
        Ok(asked)
    }
}

impl Call<'_> {
    pub(super) fn tar(&mut self, args: &[&str]) -> Ran {
        let asked = match Asked::of(args) {
            Ok(asked) => asked,
            Err(why) => return self.fail(1, &format!("tar: {why}")),
        };
        let Some(file) = asked.file.filter(|_| asked.mode.is_some()) else {
            return self.fail(1, "usage: tar c|x|t f FILE|- [-C DIR] [PATH]...");
        };
        let directory = absolute(self.directory, asked.directory.unwrap_or("."));
        if self.container.at(&directory) != Some(Node::Directory) {
            let named = asked.directory.unwrap_or_default();
            return self.fail(1, &format!("tar: can't change directory to '{named}': No such file or directory"));
        }
        if asked.mode == Some('c') {
            return self.pack(&directory, file, &asked.paths);
        }
        let archive = match file {
            "-" => match self.input {
                Some(input) => Bytes::copy_from_slice(input),
                None => return Ran::Collect,
            },
            file => match self.container.at(&absolute(self.directory, file)) {
                Some(Node::File(archive)) => archive,
                _ => return self.fail(1, &format!("tar: can't open '{file}': No such file or directory")),
            },
        };
        match self.unpack(&directory, &archive, asked.mode == Some('t')) {
            Ok(code) => Ran::Done(code),
            Err(error) => self.fail(1, &format!("tar: {error}")),
        }
    }

    fn pack(&mut self, directory: &str, file: &str, paths: &[&str]) -> Ran {
        let (mut archive, mut code) = (Builder::new(Vec::new()), 0);
        for path in paths {
            let from = absolute(directory, path);
            if path.starts_with('/') {
                self.errors.extend_from_slice(b"tar: removing leading '/' from member names\n");
            }
            if self.container.at(&from).is_none() {
                self.fail(1, &format!("tar: {path}: No such file or directory"));
                code = 1;
                continue;
            }
            let name = path.trim_start_matches('/').trim_end_matches('/');
            if let Err(error) = self.pack_node(&mut archive, &from, name) {
                return self.fail(1, &format!("tar: {error}"));
            }
        }
        let bytes = match archive.into_inner() {
            Ok(bytes) => bytes,
            Err(error) => return self.fail(1, &format!("tar: {error}")),
        };
        if file == "-" {
            self.out.extend(bytes);
        } else if let Err(error) = self.container.write(&absolute(self.directory, file), Node::File(bytes.into())) {
            return self.fail(1, &format!("tar: can't open '{file}': {error}"));
        }
        Ran::Done(code)
    }

    /// Errors: more bytes than a container can have written.
    fn pack_node(&self, archive: &mut Builder<Vec<u8>>, from: &str, name: &str) -> io::Result<()> {
        if archive.get_ref().len() > 2 * DISK_BYTES_MAX {
            return Err(io::Error::other("the archive is too large for the simulation"));
        }
        let Some(node) = self.container.at(from) else { return Ok(()) };
        let mut header = Header::new_gnu();
        header.set_mtime(u64::try_from(self.now.as_second()).unwrap_or_default());
        match node {
            Node::Directory => {
                header.set_entry_type(EntryType::Directory);
                header.set_mode(0o755);
                header.set_size(0);
                // A directory of no name is the one that tar is in: it has no entry of its own.
                if !name.is_empty() {
                    archive.append_data(&mut header, format!("{name}/"), io::empty())?;
                }
                for inside in self.container.below(from) {
                    let name = if name.is_empty() { inside.clone() } else { format!("{name}/{inside}") };
                    self.pack_node(archive, &absolute(from, &inside), &name)?;
                }
                Ok(())
            }
            Node::File(bytes) => {
                header.set_mode(0o644);
                header.set_size(bytes.len() as u64);
                archive.append_data(&mut header, name, Cursor::new(bytes))
            }
            Node::Program => {
                header.set_mode(0o755);
                header.set_size(PROGRAM.len() as u64);
                archive.append_data(&mut header, name, PROGRAM)
            }
        }
    }

    /// Writes the files of an archive, or their names alone. Answers its exit code.
    ///
    /// Errors: it is no archive, or it is cut off.
    fn unpack(&mut self, directory: &str, archive: &[u8], names_only: bool) -> io::Result<u8> {
        let (mut archive, mut code) = (Archive::new(archive), 0);
        for entry in archive.entries()? {
            let mut entry = entry?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            if names_only {
                self.out.extend_from_slice(format!("{name}\n").as_bytes());
                continue;
            }
            let node = match entry.header().entry_type() {
                EntryType::Directory => Node::Directory,
                EntryType::Regular | EntryType::Continuous => {
                    let mut bytes = Vec::new();
                    entry.by_ref().take(DISK_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
                    Node::File(bytes.into())
                }
                _ => {
                    self.fail(
                        1,
                        &format!("tar: {name}: the simulation has files and directories, no links and devices"),
                    );
                    code = 1;
                    continue;
                }
            };
            if let Err(error) = self.container.write(&absolute(directory, name.trim_start_matches('/')), node) {
                self.fail(1, &format!("tar: can't open '{name}': {error}"));
                code = 1;
            }
        }
        Ok(code)
    }
}
