//! Tried as a new user would: every command of the README and of `docs/` is run, in order, in one folder.
//!
//! A fence that is tagged `console` holds commands behind `$ ` and, if there is any, what they print: a line `...` stands for any lines,
//! a word `*` for any word, and blanks are as wide as they like. One that is tagged `bash` is a script. A `yaml` fence whose first line
//! is `# FILE` is that file. `kubefold serve` runs on while the rest is tried; its usual port is another one here.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use testbed::{MemberOptions, Port, Process, Testbed, binary, eventually, program};

use crate::{
    demo::{Demo, SECOND_PASS},
    provider::{Desk, Provider},
};

/// Commands that are not run, by page and beginning, and why.
const NOT_RUN: [(&str, &str, &str); 9] = [
    (DRILL, "", "in a demo: the_failover_drill_works"),
    ("docs/run-apiserver.md", "kubefold apiserver migrate", "needs an etcd, and the server stopped: tests/e2e/etcd.rs"),
    ("README.md", "cargo run", "builds; tests/e2e/demo.rs runs what it built"),
    ("docs/demo.md", "kubefold demo", "a fleet of its own: tests/e2e/demo.rs"),
    ("README.md", "scripts/test", "is what runs this"),
    (
        "docs/streams.md",
        "kubectl ",
        "streams of programs that do not end; tests/e2e/streams.rs has them with a kubelet that answers",
    ),
    ("docs/refusals.md", "kubectl patch service web", "a member refuses it: tests/e2e/write/denied.rs"),
    (
        "docs/refusals.md",
        "kubectl create configmap settings",
        "a policy of a member refuses it: tests/e2e/write/denied.rs",
    ),
    (
        "docs/placement.md",
        "kubefold plan -f web.yaml",
        "its policy and its third member are those of tests/e2e/write/plan.rs",
    ),
];
/// A page that is followed in a demo.
const DRILL: &str = "docs/failover-drill.md";
/// The README first: it makes the fleet that the other pages use.
const FIRST: &str = "README.md";
const PORT: &str = "127.0.0.1:6443";
/// Languages of fences that hold nothing to run.
const READ_ONLY: [&str; 6] = ["yaml", "json", "text", "go", "rust", ""];
const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug)]
enum Step {
    /// A command, and what it is to print.
    Command(String, Vec<String>),
    /// A file to write.
    File(String, String),
}

/// What a page has to be done, in order.
fn steps(page: &str, text: &str) -> Vec<Step> {
    let (mut steps, mut lines) = (Vec::new(), text.lines());
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match language {
            "console" => console(&body, &mut steps),
            "bash" => steps.push(Step::Command(body.join("\n"), Vec::new())),
            other => {
                assert!(READ_ONLY.contains(&other), "{page}: a fence of {other:?}: is it to be run or to be read?")
            }
        }
        let named = body.first().and_then(|line| line.strip_prefix("# ")).filter(|name| name.ends_with(".yaml"));
        if let (Some(name), "yaml") = (named, language) {
            steps.push(Step::File(name.to_owned(), body.join("\n") + "\n"));
        }
    }
    steps
}

fn console(body: &[&str], steps: &mut Vec<Step>) {
    let mut lines = body.iter();
    while let Some(line) = lines.next() {
        match line.strip_prefix("$ ") {
            Some(command) => {
                let mut command = command.to_owned();
                while command.ends_with('\\') {
                    command = command + "\n" + lines.next().expect("a command goes on");
                }
                steps.push(Step::Command(command, Vec::new()));
            }
            None => match steps.last_mut() {
                Some(Step::Command(_, output)) => output.push((*line).to_owned()),
                _ => panic!("output without a command: {line}"),
            },
        }
    }
}

/// Whether the output is what was expected.
fn is_like(expected: &[String], got: &[&str]) -> bool {
    let Some((first, rest)) = expected.split_first() else { return got.is_empty() };
    if first == "..." {
        return (0..=got.len()).any(|skipped| is_like(rest, &got[skipped..]));
    }
    let Some((line, others)) = got.split_first() else { return false };
    let (want, have): (Vec<_>, Vec<_>) = (first.split_whitespace().collect(), line.split_whitespace().collect());
    let same = want.len() == have.len() && want.iter().zip(&have).all(|(want, have)| *want == "*" || want == have);
    same && is_like(rest, others)
}

/// A terminal, as far as a page needs one: a folder, and what was exported.
struct Shell {
    folder: PathBuf,
    path: String,
    port: Port,
    serving: Option<Process>,
    /// An API server of its own, beside the fleet.
    apiserver: Option<Process>,
    apiserver_port: Port,
}

impl Shell {
    /// A home with a kubeconfig of every member, as people have.
    fn new(bed: &Testbed, folder: &Path) -> Self {
        let shell = Self::within(folder);
        fs::create_dir_all(folder.join(".kube")).unwrap();
        let files = bed.members().iter().map(|member| member.kubeconfig().display().to_string());
        let files = files.collect::<Vec<_>>().join(":");
        let merged = std::process::Command::new(binary("kubectl"))
            .args(["config", "view", "--flatten"])
            .env("KUBECONFIG", files)
            .output()
            .unwrap();
        fs::write(folder.join(".kube/config"), merged.stdout).unwrap();
        shell
    }

    /// A folder, and the two programs.
    fn within(folder: &Path) -> Self {
        let bin = folder.join("bin");
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(program(), bin.join("kubefold")).unwrap();
        std::os::unix::fs::symlink(binary("kubectl"), bin.join("kubectl")).unwrap();
        Self {
            folder: folder.to_owned(),
            path: format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()),
            port: Port::reserve(),
            serving: None,
            apiserver: None,
            apiserver_port: Port::reserve(),
        }
    }

    async fn run(&mut self, command: &str) -> Result<String, String> {
        let command = command.replace(PORT, &self.port.addr());
        if let Some(flags) = command.strip_prefix("kubefold serve ") {
            self.serving = None;
            self.serving = Some(self.serve("serve", flags, &self.port.addr()).await);
            return Ok(String::new());
        }
        if let Some(flags) = command.strip_prefix("kubefold apiserver ") {
            self.apiserver = Some(self.serve("apiserver", flags, &self.apiserver_port.addr()).await);
            return Ok(String::new());
        }
        let script = format!("touch .env; . ./.env\n{command}\nended=$?; export -p > .env; exit $ended");
        let mut bash = tokio::process::Command::new("bash");
        bash.args(["-uc", &script])
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", &self.folder);
        let run = bash.stdin(Stdio::null()).kill_on_drop(true).output();
        let said = tokio::time::timeout(TIMEOUT, run).await.map_err(|_| format!("no end in {TIMEOUT:?}"))?.unwrap();
        let (out, error) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        if said.status.success() { Ok(out.into_owned()) } else { Err(format!("{}\n{out}{error}", said.status)) }
    }

    /// Does what a page says, and gives the number of commands.
    async fn follow(&mut self, page: &str, text: &str, excused: &mut Vec<(&str, &str, &str)>) -> usize {
        let mut count = 0;
        for step in steps(page, text) {
            let (command, expected) = match step {
                Step::File(name, text) => {
                    fs::write(self.folder.join(name), text).unwrap();
                    continue;
                }
                Step::Command(command, expected) => (command, expected),
            };
            if let Some(excuse) = NOT_RUN.iter().find(|(of, begin, _)| *of == page && command.starts_with(begin)) {
                excused.push(*excuse);
                continue;
            }
            count += 1;
            let said = match self.run(&command).await {
                Ok(said) => said,
                Err(said) => panic!("{page}: $ {command}\n{said}"),
            };
            let got: Vec<&str> = said.lines().collect();
            let like = expected.is_empty() || is_like(&expected, &got);
            assert!(like, "{page}: $ {command}\nprints\n{said}\nand not\n{}", expected.join("\n"));
        }
        count
    }

    /// Starts a server and waits until it is ready.
    async fn serve(&self, name: &str, flags: &str, address: &str) -> Process {
        let mut flags: Vec<String> = flags.split_whitespace().filter(|flag| *flag != "\\").map(str::to_owned).collect();
        if !flags.iter().any(|flag| flag == "--listen") {
            flags.extend(["--listen".to_owned(), address.to_owned()]);
        }
        let place = |flag: &String| {
            if flag.starts_with('-') || flag.contains(':') {
                flag.clone()
            } else {
                self.folder.join(flag).display().to_string()
            }
        };
        let args: Vec<String> = std::iter::once(name.to_owned()).chain(flags.iter().map(place)).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let process = Process::spawn("kubefold", &program(), &args, &self.folder.join(format!("{name}.log")));
        let ready = format!("curl --silent --fail --insecure https://{address}/readyz");
        eventually(Duration::from_secs(60), async || {
            let status = tokio::process::Command::new("bash").args(["-c", &ready]).stdout(Stdio::null()).status().await;
            status.unwrap().success().then_some(()).ok_or_else(|| process.tail())
        })
        .await;
        process
    }
}

fn pages() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = BTreeMap::new();
    for entry in fs::read_dir(root.join("docs")).unwrap().chain(fs::read_dir(root).unwrap()) {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.strip_prefix(root).unwrap().display().to_string();
            pages.insert(name, fs::read_to_string(path).unwrap());
        }
    }
    pages
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_docs_works() {
    let pages = pages();
    let links: Vec<String> = pages.iter().flat_map(|(page, text)| dead_links(page, text)).collect();
    assert!(links.is_empty(), "links that lead nowhere: {links:?}");
    let bed = Testbed::start(&["east", "west"], MemberOptions::with_workloads(1)).await;
    for member in bed.members() {
        member.apply(include_str!("../../deploy/member-rbac.yaml")).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Shell::new(&bed, folder.path());
    let mut excused = Vec::new();
    let mut count = 0;
    for page in std::iter::once(FIRST).chain(pages.keys().map(String::as_str).filter(|page| *page != FIRST)) {
        count += shell.follow(page, &pages[page], &mut excused).await;
    }
    assert!(count > 25, "{count} commands");
    for excuse in NOT_RUN {
        assert!(excused.contains(&excuse), "not in the docs any more: {excuse:?}");
    }
}

/// In a demo, whose start is the page's first command.
#[tokio::test(flavor = "multi_thread")]
async fn the_failover_drill_works() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(DRILL)).unwrap();
    let (_, text) = text.split_once("$ kubefold demo --calm\n").unwrap();
    let demo = Demo::start(SECOND_PASS).await;
    let count = Shell::within(demo.folder()).follow("the drill", &format!("```console\n{text}"), &mut Vec::new()).await;
    assert!(count > 12, "{count} commands");
}

/// The page about single sign-on, with a provider in the place of the issuer, and a browser with a person before it.
#[tokio::test(flavor = "multi_thread")]
async fn the_way_to_single_sign_on_works() {
    const PAGE: &str = "docs/security/README.md";
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).unwrap();
    let links = dead_links(PAGE, &text);
    assert!(links.is_empty(), "links that lead nowhere: {links:?}");
    let bed = Testbed::start(&["east", "west"], MemberOptions::with_workloads(1)).await;
    let east = &bed["east"];
    let mut provider = Provider::start(east).await;
    provider.account("jane", "dev").await;
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Shell::new(&bed, folder.path());
    Desk::of("jane", folder.path(), east);
    fs::write(folder.path().join(".env"), "export DISPLAY=:0\n").unwrap();
    fs::copy(east.dir().join("ca.crt"), folder.path().join("ca.crt")).unwrap();
    shell.run("kubefold init --from-kubeconfig .kube/config").await.unwrap();
    // This issuer has an authority of its own, and gives refresh tokens to those who agreed.
    let authority = east.ca_pem().lines().map(|line| format!("\n      {line}")).collect::<String>();
    let comment = text.lines().find(|line| line.starts_with("    # certificateAuthority: ")).unwrap();
    let text = text
        .replace("https://login.example.com", &provider.url)
        .replace(comment, &format!("    certificateAuthority: |{authority}"))
        .replace(
            "--oidc-client-id kubefold",
            "--oidc-client-id kubefold --oidc-certificate-authority ca.crt --oidc-auth-param prompt=consent",
        );
    let count = shell.follow(PAGE, &text, &mut Vec::new()).await;
    assert!(count > 9, "{count} commands");
    assert_eq!(provider.grants("authorization_code").await, 1, "one login for the whole page");
}

/// Links to other files of the repository, and to headings in pages, that are not there.
fn dead_links(page: &str, text: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join(page).parent().unwrap().to_owned();
    let mut dead = Vec::new();
    for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        if link.contains("://") || link.contains(' ') {
            continue;
        }
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let path = if file.is_empty() { root.join(page) } else { folder.join(file) };
        let there = path.exists() && (heading.is_empty() || headings(&path).contains(&heading.to_owned()));
        if !there {
            dead.push(format!("{page}: {link}"));
        }
    }
    dead
}

/// As they stand in links.
fn headings(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap_or_default();
    let titles = text.lines().filter_map(|line| line.strip_prefix('#')).map(|line| line.trim_start_matches('#').trim());
    let link = |title: &str| {
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect::<String>()
    };
    titles.map(link).collect()
}

#[test]
fn output_is_compared_loosely_and_truly() {
    let expected = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(is_like(&expected("a  b\n...\nc *"), &["a b", "x", "y", "c 3"]));
    assert!(is_like(&expected("a\n..."), &["a"]));
    assert!(!is_like(&expected("a\n...\nc"), &["a", "x"]));
    assert!(!is_like(&expected("a"), &["a", "b"]) && !is_like(&expected("a *"), &["a"]));
    let page = "```console\n$ a \\\n  b\nout\n$ c\n```\n```yaml\n# x.yaml\nk: v\n```\n```bash\nd\n```\n";
    let steps = format!("{:?}", steps("page", page));
    assert_eq!(
        steps,
        r##"[Command("a \\\n  b", ["out"]), Command("c", []), File("x.yaml", "# x.yaml\nk: v\n"), Command("d", [])]"##
    );
}
