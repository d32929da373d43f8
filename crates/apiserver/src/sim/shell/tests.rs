use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

use super::*;
use crate::sim::TokioClock;

fn shell(words: &[&str], asked: StreamOptions) -> Shell {
    let pod = json!({
        "metadata": {"name": "web-0", "namespace": "shop"}, "spec": {"nodeName": "east-1"},
        "status": {"podIP": "10.1.0.7"},
    });
    let container = json!({"name": "app", "image": "nginx", "env": [
        {"name": "COLOR", "value": "blue"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]});
    let env = Env::seeded(1, Arc::new(TokioClock::starting(Timestamp::UNIX_EPOCH)));
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    Shell::new(Container::new(&pod, &container, "east"), env, &words, asked)
}

fn started(words: &[&str], asked: StreamOptions) -> (Shell, Written) {
    let (mut shell, mut out) = (shell(words, asked), Written::default());
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
        ("echo a > /tmp/x", "Read-only file system"),
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
