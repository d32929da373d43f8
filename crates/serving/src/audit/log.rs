//! The audit log itself: a bounded queue of events, and the thread that writes them to a file.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use tokio::sync::mpsc::{self, error::TryRecvError};

use super::policy::Policy;
use crate::network::Network;

/// Events that wait to be written. When the queue is full, writes are refused and reads go on without an event.
const QUEUE_MAX: usize = 10_000;
/// Events are written together, about so many bytes at once.
const BATCH_BYTES: usize = 256 << 10;
/// What cannot be written is tried again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// At the end of the process the disk has so many tries more.
const LAST_TRIES: u32 = 3;
/// Standard output.
const STDOUT: &str = "-";

/// One event, as a line of JSON.
pub(super) type Line = Vec<u8>;

/// Which file, and how much of it is kept. The names of the settings are those of a kube-apiserver (`--audit-log-...`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// Where events go; `-` is standard output.
    pub path: PathBuf,
    /// A file that would grow beyond this is set aside, and a new one begun. Units: bytes.
    pub bytes_max: u64,
    /// Files set aside that are kept; 0 is all.
    pub backups_max: usize,
    /// How long files set aside are kept; `None` is for ever.
    pub age_max: Option<Duration>,
}

/// Why there is no audit log.
#[derive(Debug, thiserror::Error)]
#[error("the audit log {} cannot be written ({source}); check the directory and its permissions", .path.display())]
pub struct AuditLogError {
    path: PathBuf,
    source: io::Error,
}

/// What has become of events.
#[derive(Debug, Default)]
pub struct Counts {
    written: AtomicU64,
    lost: AtomicU64,
    errors: AtomicU64,
}

impl Counts {
    /// Events that are in the file.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Events of reads for which the queue had no place.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Failed tries to write.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    pub(super) fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// The audit log, as requests see it.
#[derive(Debug)]
pub struct AuditLog {
    pub(super) policy: ArcSwap<Policy>,
    pub(super) lines: mpsc::Sender<Line>,
    pub(super) counts: Arc<Counts>,
    /// Proxies whose word counts about where a request comes from.
    pub(super) proxies: Vec<Network>,
}

impl AuditLog {
    /// Opens the log. The writer is to be run on a thread of its own; it ends when nobody has the log any more.
    ///
    /// Errors: the file cannot be opened. Blocks.
    pub fn open(file: LogFile, policy: Policy, proxies: Vec<Network>) -> Result<(Arc<Self>, LogWriter), AuditLogError> {
        let mut output = Output { file, current: None };
        let path = output.file.path.clone();
        output.open().map_err(|source| AuditLogError { path, source })?;
        Ok(Self::with_queue(output, policy, proxies, QUEUE_MAX))
    }

    pub(super) fn with_queue(
        output: Output,
        policy: Policy,
        proxies: Vec<Network>,
        queue_max: usize,
    ) -> (Arc<Self>, LogWriter) {
        let (sender, lines) = mpsc::channel(queue_max);
        let counts = Arc::new(Counts::default());
        let writer = LogWriter { lines, output, counts: Arc::clone(&counts) };
        (Arc::new(Self { policy: ArcSwap::from_pointee(policy), lines: sender, counts, proxies }), writer)
    }

    /// Judges requests by another policy from here on.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
    }

    /// What has become of events.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// Writes events, in the order in which they came.
#[derive(Debug)]
pub struct LogWriter {
    lines: mpsc::Receiver<Line>,
    output: Output,
    counts: Arc<Counts>,
}

impl LogWriter {
    /// Writes until nobody has the log any more and the queue is empty. Blocks.
    pub fn run(mut self) {
        let mut batch = Vec::new();
        while let Some(line) = self.lines.blocking_recv() {
            batch.extend(line);
            let mut events = 1;
            while batch.len() < BATCH_BYTES {
                match self.lines.try_recv() {
                    Ok(line) => batch.extend(line),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
                events += 1;
            }
            if self.write(&batch) {
                self.counts.written.fetch_add(events, Ordering::Relaxed);
            } else {
                self.counts.lost.fetch_add(events, Ordering::Relaxed);
            }
            batch.clear();
        }
    }

    /// Tries until it is written: events are not dropped, and meanwhile the queue fills. Says whether it is.
    fn write(&mut self, batch: &[u8]) -> bool {
        let (mut rest, mut complained, mut tries_left) = (batch, false, LAST_TRIES);
        loop {
            let (written, failed) = self.output.write(rest);
            rest = rest.get(written..).unwrap_or_default();
            let Err(error) = failed else {
                if complained {
                    tracing::info!("writes the audit log again");
                }
                return true;
            };
            self.counts.errors.fetch_add(1, Ordering::Relaxed);
            if !complained {
                complained = true;
                let path = self.output.file.path.display();
                tracing::error!(%path, %error, "cannot write the audit log; writes of clients are refused once its queue is full");
            }
            if self.lines.is_closed() && self.lines.is_empty() {
                tries_left -= 1;
                if tries_left == 0 {
                    return false;
                }
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }
}

/// The file, and those that were set aside.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) file: LogFile,
    pub(super) current: Option<(fs::File, u64)>,
}

impl Output {
    fn is_stdout(&self) -> bool {
        self.file.path.as_os_str() == STDOUT
    }

    pub(super) fn open(&mut self) -> io::Result<()> {
        if !self.is_stdout() && self.current.is_none() {
            let file = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&self.file.path)?;
            let size = file.metadata()?.len();
            self.current = Some((file, size));
        }
        Ok(())
    }

    /// Writes, and says how much of it is written, whatever happened.
    pub(super) fn write(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        if self.is_stdout() {
            let mut out = io::stdout().lock();
            let (written, result) = write_counted(&mut out, bytes);
            return (written, result.and_then(|()| out.flush()));
        }
        if let Err(error) = self.make_room(bytes.len() as u64) {
            return (0, Err(error));
        }
        let Some((file, size)) = &mut self.current else { return (0, Err(io::ErrorKind::NotFound.into())) };
        let (written, result) = write_counted(file, bytes);
        *size += written as u64;
        if result.is_err() {
            // It may have been moved away: next time the path counts.
            self.current = None;
        }
        (written, result)
    }

    /// Opens the file if it is not open, or begins a new one if it would grow too large.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        self.open()?;
        let is_full = self.current.as_ref().is_some_and(|(_, size)| *size > 0 && size + bytes > self.file.bytes_max);
        if is_full {
            self.current = None;
            fs::rename(&self.file.path, self.set_aside())?;
            self.open()?;
            self.prune();
        }
        Ok(())
    }

    /// Beginning and end of the names of files set aside: `audit-<time>.log` beside `audit.log`.
    fn around(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let (stem, extension) = (text(self.file.path.file_stem()), text(self.file.path.extension()));
        let end = if extension.is_empty() { String::new() } else { format!(".{extension}") };
        (format!("{stem}-"), end)
    }

    fn set_aside(&self) -> PathBuf {
        let (beginning, end) = self.around();
        let time = Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S%.6f");
        self.file.path.with_file_name(format!("{beginning}{time}{end}"))
    }

    /// Removes files set aside that are too many, or too old. What cannot be removed stays.
    fn prune(&self) {
        let (beginning, end) = self.around();
        let folder =
            self.file.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        let Ok(entries) = fs::read_dir(folder) else { return };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let time_of = |name: &String| name.strip_prefix(&beginning)?.strip_suffix(&end).map(str::len);
        // As `2026-11-24T20-17-00.000000`.
        let mut aside: Vec<String> = names.filter(|name| time_of(name) == Some(26)).collect();
        aside.sort_unstable_by(|a, b| b.cmp(a));
        let kept = if self.file.backups_max == 0 { aside.len() } else { self.file.backups_max };
        let is_old = |name: &String| {
            let modified = fs::metadata(folder.join(name)).and_then(|file| file.modified());
            let age = modified.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
            self.file.age_max.is_some_and(|max| age.is_some_and(|age| age > max))
        };
        for name in aside.iter().enumerate().filter(|(at, name)| *at >= kept || is_old(name)).map(|(_, name)| name) {
            if let Err(error) = fs::remove_file(folder.join(name)) {
                tracing::warn!(name, %error, "cannot remove an old audit log");
            }
        }
    }
}

fn write_counted(out: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match out.write(rest) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(some) => written += some,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}
