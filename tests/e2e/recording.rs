//! The recording that the README shows: made of a real demo, and compared with one.
//!
//! `KUBEFOLD_DOCS=write cargo test --test e2e recording` makes it anew.

use std::{fmt::Write, fs, path::Path, time::Duration};

use testbed::{binary, eventually, program};

use crate::demo::Demo;

const FILE: &str = "docs/recording.svg";
const SOON: Duration = Duration::from_secs(120);
/// What is typed, and what its answer has once the demo is as far.
const TYPED: [(&str, &str); 6] = [
    ("kubectl get members", "north   ready"),
    ("kubectl -n shop create deployment web --image=nginx --replicas=8", "created"),
    ("kubectl -n shop get pods -l app=web", "Running"),
    ("kubefold demo kill west", "is down"),
    ("kubectl -n shop get pods -l app=web", "Warning: member west"),
    ("kubectl get members", "down"),
];

const REPLICAS: usize = 8;

/// A command and the lines that it prints.
#[derive(Debug)]
struct Shown {
    command: String,
    lines: Vec<String>,
}

async fn typed(demo: &Demo, command: &str) -> String {
    let (name, args) = command.split_once(' ').unwrap();
    let path = if name == "kubectl" { binary("kubectl") } else { program() };
    let mut process = tokio::process::Command::new(path);
    process.args(args.split(' ')).current_dir(demo.folder()).env("KUBECONFIG", demo.kubeconfig()).kill_on_drop(true);
    let said = process.output().await.unwrap();
    String::from_utf8([said.stdout, said.stderr].concat()).unwrap()
}

async fn record() -> Vec<Shown> {
    let demo = Demo::start(&["--calm"]).await;
    let mut shown = Vec::new();
    for (command, has) in TYPED {
        let is_read = command.contains(" get ");
        let said = eventually(SOON, async || {
            let said = typed(&demo, command).await;
            let is_whole =
                !command.ends_with("members") || said.lines().all(|line| line.split_whitespace().count() == 7);
            let is_whole = is_whole && (!command.contains(" pods ") || said.matches("1/1").count() == REPLICAS);
            let is_there = said.contains(has) && is_whole;
            if is_there || !is_read { Ok(said) } else { Err(said) }
        })
        .await;
        assert!(said.contains(has), "$ {command}\n{said}");
        shown.push(Shown { command: command.to_owned(), lines: said.lines().map(str::to_owned).collect() });
    }
    shown
}

/// What two runs have in common: neither names nor numbers, nor the order of pods, which is by their random names.
fn alike(shown: &[Shown]) -> Vec<(String, Vec<String>)> {
    let word = |word: &str| {
        let member = word.rsplit_once('@').map(|(_, member)| format!("*@{member}"));
        member.unwrap_or_else(|| word.replace(|c: char| c.is_ascii_digit(), "#").replace("##", "#").replace("##", "#"))
    };
    // How a connection ends differs, and whether it has been told that it did: a warning counts by whom it is about.
    let line = |line: &String| {
        let most = if line.starts_with("Warning: ") { "Warning: member west".split(' ').count() } else { usize::MAX };
        line.split_whitespace().take(most).map(word).collect::<Vec<_>>().join(" ")
    };
    let each = shown.iter().map(|one| {
        let mut lines: Vec<String> = one.lines.iter().map(line).collect();
        lines.sort();
        (one.command.clone(), lines)
    });
    each.collect()
}

const WIDTH: usize = 850;
const LINE: usize = 18;
const MARGIN: usize = 16;
/// Seconds for a command, and after its answer.
const TYPING: f64 = 1.0;
const READING: f64 = 2.0;

/// The picture: each line appears when it is its turn. Who wants no motion sees all of it.
fn drawn(shown: &[Shown]) -> String {
    let count: usize = shown.iter().map(|one| one.lines.len() + 1).sum();
    let height = count * LINE + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"kubectl over three clusters, one of which goes down\">\n<style>\n\
         text {{ font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d0d7de; white-space: pre; }}\n\
         .typed {{ fill: #7ee787; }} .warning {{ fill: #f0b72f; }}\n\
         @media (prefers-reduced-motion: no-preference) {{\n  text {{ opacity: 0; animation: shown 0.01s forwards; }}\n}}\n\
         @keyframes shown {{ to {{ opacity: 1; }} }}\n</style>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    let (mut y, mut at) = (MARGIN + LINE - 5, 0.5);
    let mut line = |text: &str, class: &str, at: f64| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let style = format!("animation-delay: {at:.1}s");
        writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{y}\" class=\"{class}\" style=\"{style}\" xml:space=\"preserve\">{text}</text>"
        )
        .unwrap();
        y += LINE;
    };
    for one in shown {
        line(&format!("$ {}", one.command), "typed", at);
        at += TYPING;
        for text in &one.lines {
            line(text, if text.starts_with("Warning") { "warning" } else { "said" }, at);
        }
        at += READING;
    }
    svg + "</svg>\n"
}

/// What stands in a picture.
fn read(svg: &str) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    for line in svg.lines().filter_map(|line| line.strip_prefix("<text ")) {
        let (_, text) = line.split_once('>').unwrap();
        let text = text.strip_suffix("</text>").unwrap();
        let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        match (text.strip_prefix("$ "), shown.last_mut()) {
            (Some(command), _) => shown.push(Shown { command: command.to_owned(), lines: Vec::new() }),
            (None, Some(one)) => one.lines.push(text),
            (None, None) => panic!("output without a command: {text}"),
        }
    }
    shown
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recording_is_what_the_demo_shows() {
    let recorded = record().await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var_os("KUBEFOLD_DOCS").is_some() {
        fs::write(&file, drawn(&recorded)).unwrap();
    }
    let shown = read(&fs::read_to_string(&file).unwrap());
    assert_eq!(alike(&shown), alike(&recorded), "KUBEFOLD_DOCS=write makes {FILE} anew");
    let longest = shown.iter().flat_map(|one| &one.lines).map(String::len).max().unwrap();
    assert!(longest * 8 + 2 * MARGIN <= WIDTH, "a line of {longest} characters is cut");
}

#[test]
fn what_is_drawn_can_be_read_back() {
    let shown = [Shown { command: "a <b>".to_owned(), lines: vec!["x  & y".to_owned(), "x&lt;".to_owned()] }];
    assert_eq!(format!("{:?}", read(&drawn(&shown))), format!("{shown:?}"));
}
