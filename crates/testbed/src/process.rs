//! Child processes that cannot outlive the test.
//!
//! Three nets, each for what slips through the one before. `Drop` kills the process group, also while a panic unwinds.
//! The kernel kills the child when the test process dies without unwinding (`setpriv --pdeathsig`). Where there is no
//! setpriv, a shell watches its parent and does the same, a second later.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        OnceLock,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::eventually::eventually;

/// How much of a log goes into a panic's message.
const TAIL_LINES: usize = 40;

/// A running program of the testbed: in a process group of its own, its output in a file.
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts a program whose stdout and stderr are appended to `log`.
    pub fn spawn<A: AsRef<str>>(name: &str, program: &Path, args: &[A], log: &Path) -> Self {
        Self::spawn_with(name, program, args, log, |command| {
            command.stderr(append(log));
        })
    }

    /// The same, with changes to the command: environment, stdin, where stderr goes.
    pub fn spawn_with<A: AsRef<str>>(
        name: &str,
        program: &Path,
        args: &[A],
        log: &Path,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = Guard::best().command(program);
        command.args(args.iter().map(AsRef::as_ref)).stdin(Stdio::null()).stdout(append(log)).process_group(0);
        // The servers of members are most of the work of a test, and a sixth of theirs is to save memory that is there.
        command.env("GOGC", "400");
        change(&mut command);
        let child = spawn_from_lasting_thread(command)
            .unwrap_or_else(|error| panic!("{name} did not start: {}: {error}", program.display()));
        Self { name: name.to_owned(), log: log.to_owned(), child }
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id, which is the process group's too.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The pipe to its stdin, once, if `spawn_with` asked for one.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Everything that it has written.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines that it wrote, under a heading: for a panic's message.
    pub fn tail(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        format!("--- the end of {}\n{tail}", self.log.display())
    }

    /// How it ended, or `None` while it runs.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the state of a child")
    }

    /// Sends a signal to the process and to all that it started.
    pub fn signal(&self, signal: Signal) {
        // The group is gone when the process has just ended, which is no concern of the sender's.
        kill_process_group(Pid::from_child(&self.child), signal).ok();
    }

    /// Stops it in its tracks: connections stay open, nothing is answered. It has stopped when this returns: the signal
    /// alone lets other threads answer until one of them takes it.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let (leader, options) = (Pid::from_child(&self.child), WaitIdOptions::STOPPED | WaitIdOptions::EXITED);
        let status = waitid(WaitId::Pid(leader), options | WaitIdOptions::NOWAIT).expect("the state of a child");
        assert!(status.is_some_and(|status| status.stopped()), "{} has ended\n{}", self.name, self.tail());
    }

    /// Lets a paused process run on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        if self.exited().is_none() {
            self.signal(Signal::KILL);
            self.child.wait().ok();
        }
    }

    /// Asks it to end (SIGTERM) and returns how it did; panics when it has not within `deadline`.
    pub async fn terminate(&mut self, deadline: Duration) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait(deadline).await
    }

    /// Waits until it ends of itself; panics when it has not within `deadline`.
    pub async fn wait(&mut self, deadline: Duration) -> ExitStatus {
        eventually(deadline, async || self.exited().ok_or_else(|| format!("{} still runs", self.name))).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn append(log: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(log).unwrap_or_else(|error| panic!("{}: {error}", log.display()))
}

/// How a child learns of its parent's death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The kernel kills it (Linux, util-linux).
    ParentDeathSignal,
    /// A shell looks for the parent every second and then kills it.
    Supervisor,
}

/// `$1` is the parent. The shell passes SIGTERM by, since the whole process group gets it, and ends as the child does.
const SUPERVISOR: &str = r#"
parent=$1; shift
trap : TERM
exec 3<&0
"$@" <&3 & child=$!
exec 3<&-
while kill -0 "$child" 2>/dev/null; do
  kill -0 "$parent" 2>/dev/null || kill -9 "$child"
  sleep 1
done
wait "$child"
"#;

/// `$1` is the parent. One that died before the kernel was asked to watch it is not noticed by the kernel.
const STILL_A_CHILD: &str = r#"[ "$PPID" = "$1" ] || exit 1; shift; exec "$@""#;

impl Guard {
    /// What this machine has; `KUBEFOLD_TESTBED_GUARD=supervisor` decides otherwise.
    fn best() -> Self {
        static BEST: OnceLock<Guard> = OnceLock::new();
        *BEST.get_or_init(|| {
            let told = std::env::var("KUBEFOLD_TESTBED_GUARD").is_ok_and(|guard| guard == "supervisor");
            let works = || Command::new("setpriv").args(["--pdeathsig", "KILL", "true"]).output();
            match !told && works().is_ok_and(|tried| tried.status.success()) {
                true => Self::ParentDeathSignal,
                false => Self::Supervisor,
            }
        })
    }

    fn command(self, program: &Path) -> Command {
        let mut command;
        match self {
            Self::ParentDeathSignal => {
                command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL", "--", "sh", "-c", STILL_A_CHILD, "guard"]);
                command.arg(std::process::id().to_string());
            }
            Self::Supervisor => {
                command = Command::new("sh");
                command.args(["-c", SUPERVISOR, "supervisor", &std::process::id().to_string()]);
            }
        }
        command.arg(program);
        command
    }
}

/// The beginning of a line of shell that runs a program which ends with a parent; the parent's id and the program's words
/// follow. It is for the children of a [`Process`] that is a shell itself, since only that shell ends with this process.
pub(crate) fn guarded_line() -> String {
    match Guard::best() {
        Guard::ParentDeathSignal => format!("setpriv --pdeathsig KILL -- sh -c '{STILL_A_CHILD}' guard"),
        Guard::Supervisor => format!("sh -c '{SUPERVISOR}' supervisor"),
    }
}

type Job = (Command, SyncSender<io::Result<Child>>);

/// Spawns from one thread that lives as long as the process: the kernel's parent-death signal means the death of the
/// parent *thread*, and a test's thread ends with its test.
fn spawn_from_lasting_thread(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<SyncSender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (send, jobs) = sync_channel::<Job>(16);
        let serve = move || jobs.into_iter().for_each(|(mut command, reply)| drop(reply.send(command.spawn())));
        thread::Builder::new().name("testbed-spawner".into()).spawn(serve).expect("a thread");
        send
    });
    let (reply, answer) = sync_channel(1);
    spawner.send((command, reply)).expect("the spawner lives");
    answer.recv().expect("the spawner answers")
}
