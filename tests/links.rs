//! Every page, heading and test that the sources or the documentation cite exists.
#![allow(clippy::unwrap_used, reason = "a test: a failure is a failed test, in its helper functions too")]

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::{Component, Path, PathBuf},
};

/// Folders with Rust sources.
const SOURCES: [&str; 6] = ["src", "crates", "tests", "benches", "examples", "fuzz"];
/// Folders that nobody wrote.
const GENERATED: [&str; 2] = ["target", "node_modules"];
/// A word in backticks with so many underscores is the name of a test.
const UNDERSCORES_MIN: usize = 3;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(dir: &Path, extension: &str, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !GENERATED.iter().any(|name| path.ends_with(name)) {
            files(&path, extension, out);
        } else if path.extension().is_some_and(|found| found == extension) {
            out.push(path);
        }
    }
}

fn sources() -> Vec<PathBuf> {
    let mut out = Vec::new();
    SOURCES.iter().for_each(|dir| files(&root().join(dir), "rs", &mut out));
    out
}

/// The pages at the root, those of the crates, and `docs/` with all its folders.
fn pages() -> Vec<PathBuf> {
    let mut out = Vec::new();
    ["docs", "crates"].iter().for_each(|dir| files(&root().join(dir), "md", &mut out));
    let at_root = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    out.extend(at_root.filter(|path| path.extension().is_some_and(|found| found == "md")));
    out
}

/// The lines of a page outside of its code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = prose(text).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let anchor = |heading: &str| {
        let kept =
            heading.to_lowercase().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>();
        kept.replace(' ', "-")
    };
    headings
        .map(|heading| {
            let anchor = anchor(heading);
            let count = seen.entry(anchor.clone()).or_default();
            *count += 1;
            if *count > 1 { format!("{anchor}-{}", *count - 1) } else { anchor }
        })
        .collect()
}

/// The targets of a page's links to files of this repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = prose(text).flat_map(|line| line.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// The pages below `docs/` that a source names, each with its heading where one is named.
fn citations(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/-_.#".contains(c);
    text.match_indices("docs/").filter_map(move |(at, _)| {
        let cited = text[at..].split(|c| !is_part(c)).next()?;
        let cited = cited.trim_end_matches(['.', '#']);
        cited.contains(".md").then_some(cited)
    })
}

/// Why a target does not exist; `from` is the folder that it is relative to.
fn missing(from: &Path, target: &str, own: &Path) -> Option<String> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let mut path = if file.is_empty() { own.to_owned() } else { PathBuf::new() };
    for part in from.join(file).components().filter(|_| !file.is_empty()) {
        match part {
            Component::ParentDir => drop(path.pop()),
            other => path.push(other),
        }
    }
    if !path.exists() {
        return Some(format!("there is no {file}"));
    }
    if heading.is_empty() {
        return None;
    }
    let has = anchors(&fs::read_to_string(&path).unwrap()).contains(heading);
    (!has).then(|| format!("{} has no heading #{heading}", path.strip_prefix(root()).unwrap().display()))
}

fn assert_none(mut errors: Vec<String>) {
    errors.sort();
    assert!(errors.is_empty(), "{} broken citations:\n{}", errors.len(), errors.join("\n"));
}

#[test]
fn links_of_pages_lead_somewhere() {
    let mut errors = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let broken = links(&text).filter_map(|target| missing(page.parent().unwrap(), target, &page));
        errors.extend(broken.map(|why| format!("{}: {why}", page.strip_prefix(root()).unwrap().display())));
    }
    assert_none(errors);
}

#[test]
fn pages_that_sources_cite_exist() {
    let mut errors = Vec::new();
    for source in sources() {
        let text = fs::read_to_string(&source).unwrap();
        let broken = citations(&text).filter_map(|target| missing(root(), target, &source));
        errors.extend(broken.map(|why| format!("{}: {why}", source.strip_prefix(root()).unwrap().display())));
    }
    assert_none(errors);
}

/// The design says what proves it.
#[test]
fn tests_that_the_design_names_exist() {
    let (mut design, mut errors) = (Vec::new(), Vec::new());
    files(&root().join("docs/design"), "md", &mut design);
    let code: String = sources().iter().map(|source| fs::read_to_string(source).unwrap()).collect();
    let tests: BTreeSet<&str> = code.split("fn ").skip(1).filter_map(|rest| rest.split('(').next()).collect();
    for page in design {
        let text = fs::read_to_string(&page).unwrap();
        let words = prose(&text).flat_map(|line| line.split('`').skip(1).step_by(2));
        let is_test = |word: &&str| {
            word.matches('_').count() >= UNDERSCORES_MIN && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let unknown = words.filter(is_test).filter(|word| !tests.contains(word));
        errors.extend(unknown.map(|word| format!("{}: no test {word}", page.strip_prefix(root()).unwrap().display())));
    }
    assert_none(errors);
}

/// What `scripts/docs` asks of the built site.
#[test]
fn a_broken_link_of_the_site_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let check = || {
        let script = root().join("scripts/site/links.py");
        let run = std::process::Command::new("python3").arg(script).arg(folder.path()).output().unwrap();
        (run.status.success(), String::from_utf8(run.stderr).unwrap())
    };
    let page = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    page(
        "a.html",
        "<h1 id=top>A</h1><a href='b.html#below'>b</a><a href='https://example.com/'>elsewhere</a><a href='#top'>up</a>",
    );
    page("b.html", "<link rel=stylesheet href=style.css><p id=below>");
    page("style.css", "body { background: url('data:image/png;base64,') }");
    assert_eq!(check(), (true, "5 links of 2 pages lead somewhere\n".to_owned()));

    page("a.html", "<a href=c.html>no file</a><a href=b.html#above>no id</a><a href=/b.html>root</a>");
    page("b.html", "<script src=//example.com/x.js></script><style>@import 'https://example.com/y.css'</style>");
    page("style.css", "@font-face { src: url(https://example.com/font.woff2) }");
    let (passes, said) = check();
    assert!(!passes, "{said}");
    for wrong in [
        "a.html: there is no file for c.html",
        "a.html: b.html has no id for b.html#above",
        "a.html: is a path from the root of a server: /b.html",
        "b.html: is fetched from another site: //example.com/x.js",
        "b.html: is fetched from another site: https://example.com/y.css",
        "style.css: is fetched from another site: https://example.com/font.woff2",
    ] {
        assert!(said.lines().any(|line| line == wrong), "no {wrong:?} in\n{said}");
    }
}

/// What `scripts/docs` makes the site of.
#[test]
fn the_site_has_every_page_of_the_documentation() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("src");
    let script = root().join("scripts/site/pages.py");
    let run = std::process::Command::new("python3").arg(script).arg(&out).current_dir(root()).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let summary = fs::read_to_string(out.join("SUMMARY.md")).unwrap();
    let mut all = Vec::new();
    files(&root().join("docs"), "md", &mut all);
    for page in all {
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        assert_eq!(summary.matches(&format!("({name})")).count(), 1, "{name} in\n{summary}");
    }
}
