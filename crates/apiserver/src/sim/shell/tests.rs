use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

use super::{disk::Disks, *};
use crate::sim::TokioClock;

fn shell(words: &[&str], asked: StreamOptions, disks: &Disks) -> Shell {
    let pod = json!({
        "metadata": {"name": "web-0", "namespace": "shop"}, "spec": {"nodeName": "east-1"},
        "status": {"podIP": "10.1.0.7"},
    });
    let container = json!({"name": "app", "image": "nginx", "env": [
        {"name": "COLOR", "value": "blue"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]});
    let env = Env::seeded(1, Arc::new(TokioClock::starting(Timestamp::UNIX_EPOCH)));
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    Shell::new(Container::new(&pod, &container, "east", disks.of("one".to_owned())), env, &words, asked)
}

fn started(words: &[&str], asked: StreamOptions) -> (Shell, Written) {
    let (mut shell, mut out) = (shell(words, asked, &Disks::default()), Written::default());
    shell.start(&mut out);
    (shell, out)
}

/// What a command writes, to both streams, and its code.
fn ran(words: &[&str]) -> (String, String, Option<u8>) {
    let (_, out) = started(words, StreamOptions::default());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(out.stdout), text(out.stderr), out.exit)
}

fn script(script: &str) -> (String, String, Option<u8>) {
    ran(&["sh", "-c", script])
}

fn done(out: &str, code: u8) -> (String, String, Option<u8>) {
    (out.to_owned(), String::new(), Some(code))
}

#[tokio::test]
async fn commands_write_and_end_with_a_code() {
    assert_eq!(ran(&["echo", "a  b", "$HOME"]), done("a  b $HOME\n", 0));
    assert_eq!(ran(&["hostname"]), done("web-0\n", 0));
    assert_eq!(ran(&["cat", "/etc/hostname"]), done("web-0\n", 0));
    assert!(ran(&["env"]).0.contains("COLOR=blue\nNODE=east-1\n"));
    assert_eq!(ran(&["printenv", "NODE"]), done("east-1\n", 0));
    assert!(ran(&["ls", "/"]).0.contains("bin\netc\n"));
    assert!(ran(&["ls", "-l", "/etc/hostname"]).0.starts_with("-rw-r--r--"));
    assert_eq!(ran(&["false"]), done("", 1));
    assert_eq!(ran(&["test", "-f", "/etc/hostname"]), done("", 0));
    let (out, errors, code) = ran(&["cat", "/etc/none"]);
    assert_eq!((out.as_str(), errors.as_str(), code), ("", "cat: /etc/none: No such file or directory\n", Some(1)));
}

#[tokio::test]
async fn what_cannot_be_executed_is_said_as_a_runtime_says_it() {
    let why = |word: &str| {
        let (out, _, code) = ran(&[word]);
        (out.trim_end().rsplit_once("container process: ").unwrap().1.to_owned(), code)
    };
    let missing = r#"exec: "nosuch": executable file not found in $PATH: unknown"#;
    assert_eq!(why("nosuch"), (missing.to_owned(), Some(127)));
    assert_eq!(why("/x/y"), ("exec: stat /x/y: no such file or directory: unknown".to_owned(), Some(127)));
    assert_eq!(why("/etc/hostname").1, Some(126));
    // Builtins of a shell are no files.
    assert_eq!(why("cd").1, Some(127));
}

#[tokio::test]
async fn scripts_have_lists_pipes_quotes_and_variables() {
    assert_eq!(script("echo a; false || echo b && echo c"), done("a\nb\nc\n", 0));
    assert_eq!(script("false && echo no; echo $?"), done("1\n", 0));
    assert_eq!(script("env | grep -c COLOR"), done("1\n", 0));
    assert_eq!(script("X=1 ; echo \"$X-${COLOR}\" '$X' # done"), done("1-blue $X\n", 0));
    assert_eq!(script("cd /etc && cat hostname; exit 3; echo no"), done("web-0\n", 3));
    assert_eq!(script("sh -c 'exit 4' || echo $?"), done("4\n", 0));
    assert_eq!(script("nosuch 2>/dev/null || echo gone; ls /nowhere 2>&1 >/dev/null"), done("gone\n", 1));
    assert_eq!(script("nosuch").1, "sh: nosuch: not found\n");
    for (wrong, why) in [
        ("echo 'a", "unterminated quoted string"),
        ("while true; do date; done", "no loops and conditions"),
        ("echo a 2> /tmp/x", "no errors in files"),
        ("| a", "unexpected \"|\""),
        ("a &&", "unexpected \"newline\""),
        ("sleep 1 &", "jobs in the background"),
    ] {
        let (_, errors, code) = script(wrong);
        assert!(errors.contains(why) && code == Some(2), "{wrong}: {errors} {code:?}");
    }
}

#[tokio::test]
async fn a_script_makes_no_more_of_itself_without_end() {
    let doubled = "A=0123456789;".to_owned() + &"A=$A$A;".repeat(40) + "echo $A";
    let (out, errors, code) = script(&doubled);
    assert!(out.len() <= WORDS_BYTES_MAX && code == Some(0), "{}", out.len());
    assert!(errors.contains("argument list too long"), "{errors}");
    let (mut shell, mut out) = started(&["sh", "-c", &"cat /etc/hosts;".repeat(6000)], StreamOptions::default());
    assert_eq!((out.exit, shell.sleeps()), (None, Some(Duration::ZERO)), "it writes what it has before it makes more");
    while out.exit.is_none() {
        out.stdout.clear();
        shell.woken(&mut out);
        assert!(out.stdout.len() < 2 * OUTPUT_BYTES_MAX);
    }
    assert_eq!(script("sh").2, Some(0));
}

#[tokio::test]
async fn input_is_read_as_it_comes() {
    let piped = StreamOptions { stdin: true, ..StreamOptions::default() };
    let (mut cat, mut out) = started(&["cat"], piped);
    cat.input(b"one\ntw", &mut out);
    assert_eq!((out.stdout.as_slice(), out.exit), (&b"one\ntw"[..], None));
    cat.end_of_input(&mut out);
    assert_eq!(out.exit, Some(0));

    let (mut wc, mut out) = started(&["wc", "-l"], piped);
    wc.input(b"one\ntwo\n", &mut out);
    assert!(out.stdout.is_empty());
    wc.end_of_input(&mut out);
    assert_eq!((out.stdout.as_slice(), out.exit), (&b"2\n"[..], Some(0)));

    let (mut shell, mut out) = started(&["sh"], piped);
    shell.input(b"echo a\nexit 5\necho b\n", &mut out);
    assert_eq!((out.stdout.as_slice(), out.exit), (&b"a\n"[..], Some(5)));
}

#[tokio::test]
async fn a_terminal_echoes_prompts_and_interrupts() {
    let (mut shell, mut out) = started(&["sh"], StreamOptions { stdin: true, tty: true, ..StreamOptions::default() });
    let mut typed = |keys: &[u8]| {
        shell.input(keys, &mut out);
        let seen = String::from_utf8(std::mem::take(&mut out.stdout)).unwrap();
        (seen, shell.sleeps().is_some(), out.exit)
    };
    assert_eq!(typed(b"echx\x7fo \x1b[Ahi\r"), ("/ # echx\x08 \x08o hi\r\nhi\r\n/ # ".to_owned(), false, None));
    assert_eq!(typed(b"cd etc\r").0, "cd etc\r\n/etc # ");
    assert_eq!(typed(b"sleep 60\r"), ("sleep 60\r\n".to_owned(), true, None));
    assert_eq!(typed(b"\x03"), ("^C\r\n/etc # ".to_owned(), false, None));
    assert_eq!(typed(b"echo $?\r").0, "echo $?\r\n130\r\n/etc # ");
    assert_eq!(typed(b"cat\rx\r").0, "cat\r\nx\r\nx\r\n");
    assert_eq!(typed(b"\x04").0, "/etc # ");
    assert_eq!(typed(b"\x04").2, Some(0));
}

/// What a command does with files that stay: its output, its errors and its code.
fn ran_on(disks: &Disks, words: &[&str], input: &[u8]) -> (Vec<u8>, String, Option<u8>) {
    let asked = StreamOptions { stdin: !input.is_empty(), ..StreamOptions::default() };
    let (mut shell, mut out) = (shell(words, asked, disks), Written::default());
    shell.start(&mut out);
    for bytes in input.chunks(1 << 16) {
        shell.input(bytes, &mut out);
    }
    if !input.is_empty() {
        shell.end_of_input(&mut out);
    }
    (out.stdout, String::from_utf8(out.stderr).unwrap(), out.exit)
}

/// An archive as kubectl sends one: a directory with a file of these bytes.
fn archive(bytes: &[u8]) -> Vec<u8> {
    let mut archive = ::tar::Builder::new(Vec::new());
    let mut header = ::tar::Header::new_ustar();
    header.set_entry_type(::tar::EntryType::Directory);
    header.set_size(0);
    archive.append_data(&mut header, "site/", std::io::empty()).unwrap();
    let mut header = ::tar::Header::new_ustar();
    header.set_size(bytes.len() as u64);
    archive.append_data(&mut header, "site/a.bin", bytes).unwrap();
    archive.into_inner().unwrap()
}

#[tokio::test]
async fn files_that_tar_writes_are_there_for_the_next_command() {
    let (disks, bytes) = (Disks::default(), [0_u8, 159, 146, 150].repeat(5000));
    let done = |out: &[u8]| (out.to_vec(), String::new(), Some(0));
    let unpack = ["tar", "-xmf", "-", "-C", "/tmp"];
    assert_eq!(ran_on(&disks, &unpack, &archive(&bytes)), done(b""));
    assert_eq!(ran_on(&disks, &["cat", "/tmp/site/a.bin"], b""), done(&bytes), "any bytes");
    assert_eq!(ran_on(&disks, &["test", "-d", "/tmp/site"], b""), done(b""));
    assert_eq!(ran_on(&disks, &["ls", "/tmp"], b""), done(b"site\n"));
    let (packed, warned, code) = ran_on(&disks, &["tar", "cf", "-", "/tmp/site"], b"");
    assert_eq!((warned.as_str(), code), ("tar: removing leading '/' from member names\n", Some(0)));
    assert_eq!(ran_on(&disks, &["tar", "tf", "-"], &packed), done(b"tmp/site/\ntmp/site/a.bin\n"));
    assert_eq!(ran_on(&disks, &["tar", "xf", "-", "-C", "/root"], &packed), done(b""));
    assert_eq!(ran_on(&disks, &["cat", "/root/tmp/site/a.bin"], b""), done(&bytes), "it is what it was");
    assert_eq!(ran_on(&disks, &["rm", "-rf", "/tmp/site", "/none"], b""), done(b""));
    assert_eq!(ran_on(&disks, &["test", "-e", "/tmp/site"], b"").2, Some(1));
    assert_eq!(
        ran_on(&Disks::default(), &["test", "-e", "/root/tmp"], b"").2,
        Some(1),
        "another container has its own"
    );
}

#[tokio::test]
async fn tar_says_what_it_cannot_do() {
    let disks = Disks::default();
    let mut linked = ::tar::Builder::new(Vec::new());
    let mut header = ::tar::Header::new_gnu();
    header.set_entry_type(::tar::EntryType::Symlink);
    header.set_size(0);
    linked.append_link(&mut header, "link", "/etc/hosts").unwrap();
    let mut deep = ::tar::Builder::new(Vec::new());
    let mut header = ::tar::Header::new_gnu();
    header.set_size(0);
    deep.append_data(&mut header, "a/".repeat(5000) + "x", std::io::empty()).unwrap();
    let whole = archive(&[7; 5000]);
    for (args, input, why) in [
        (&["xf", "-"][..], archive(&vec![0; DISK_BYTES_MAX + 1]), "can't open 'site/a.bin': No space left on device"),
        (&["xf", "-"], archive(&vec![0; 3 * DISK_BYTES_MAX]), "No space left on device"),
        (&["xf", "-"], whole[..2000].to_vec(), "tar: "),
        (&["xf", "-"], b"no archive".repeat(100), "tar: "),
        (&["xf", "-", "-C", "/none"], whole, "can't change directory to '/none'"),
        (&["xf", "-"], linked.into_inner().unwrap(), "link: the simulation has files and directories, no links"),
        (&["xf", "-"], deep.into_inner().unwrap(), "File name too long"),
        (&["cf", "-", "/none"], Vec::new(), "/none: No such file or directory"),
        (&["xzf", "-"], Vec::new(), "invalid option -- 'z'"),
        (&["x"], Vec::new(), "usage: tar"),
        (&["xf"], Vec::new(), "requires an argument -- 'f'"),
    ] {
        let (_, errors, code) = ran_on(&disks, &[&["tar"], args].concat(), &input);
        assert!(errors.contains(why) && code == Some(1), "{args:?}: {errors} {code:?}");
    }
}

#[tokio::test]
async fn output_goes_to_files() {
    let disks = Disks::default();
    let run = |line: &str| {
        let (out, errors, code) = ran_on(&disks, &["sh", "-c", line], b"");
        (String::from_utf8(out).unwrap(), errors, code)
    };
    assert_eq!(run("echo a > /tmp/x && echo b >> /tmp/x; cat /tmp/x | wc -l; cat /tmp/x"), done("2\na\nb\n", 0));
    assert_eq!(
        run("mkdir -p /srv/a/b && cd /srv/a/b && touch new && pwd > new; cat /srv/a/b/new"),
        done("/srv/a/b\n", 0)
    );
    assert_eq!(ran_on(&disks, &["sh", "-c", "cat > /tmp/in"], b"one\ntwo\n").2, Some(0));
    assert_eq!(run("cat /tmp/in"), done("one\ntwo\n", 0));
    for (line, why, code) in [
        ("echo a > /etc/hostname", "can't create /etc/hostname: Read-only file system", 1),
        ("echo a > /none/x", "can't create /none/x: nonexistent directory", 1),
        ("echo a > /tmp", "Is a directory", 1),
        ("echo a > /tmp/x/y", "nonexistent directory", 1),
        ("mkdir /tmp/x", "can't create directory '/tmp/x': File exists", 1),
        ("mkdir -p /tmp/x/y", "Not a directory", 1),
        ("rm /tmp", "Is a directory", 1),
        ("rm -r /etc", "can't remove '/etc': Read-only file system", 1),
        ("rm /none", "No such file or directory", 1),
        ("sh -c 'echo a' > /tmp/y", "what a script prints", 2),
    ] {
        let (out, errors, ended) = run(line);
        assert!(errors.contains(why) && ended == Some(code) && out.is_empty(), "{line}: {errors} {ended:?}");
    }
}
