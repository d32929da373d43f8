//! Structure checks rustc cannot make: which room names which, and file length.
//! Same idea as TigerBeetle's `src/tidy.zig`: the shape of the code is itself under test.
#![allow(clippy::unwrap_used, reason = "a test: a failure is a failed test, in its helper functions too")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    path::PathBuf,
};

/// Rooms, lowest first. A room may name itself and rooms on earlier lines, nothing else.
const LAYERS: &[&[&str]] = &[
    &["view", "authn", "search"],
    &["config", "observe"],
    &["placement"],
    &["karmada"],
    &["store", "upstream"],
    &["mirror"],
    &["respond"],
    &["member"],
    &["catalog", "accounts", "host"],
    &["stores"],
    &["access"],
    &["answer"],
    &["discovery", "own", "read", "write", "review", "stream"],
    &["status"],
    &["route"],
    &["serve"],
    &["app"],
    &["cli"],
    &["main"],
];
/// The same of the embedded server's crate.
const APISERVER_LAYERS: &[&[&str]] = &[
    &["schema", "cron"],
    &["patch", "kinds"],
    &["webhook"],
    &["storage"],
    &["registry"],
    &["definitions"],
    &["typed", "rbac"],
    &["serve", "streaming"],
    &["sim", "faults"],
    &["endpoint", "server"],
    &["cluster"],
];
/// Folders that take values and return values, and the files in them that may do more, until their room is rebuilt.
const PURE: &[(&str, &[&str])] = &[
    ("crates/wire/src", &[]),
    ("crates/table/src", &[]),
    ("src/view", &[]),
    ("src/search", &[]),
    ("src/karmada", &[]),
    ("src/placement", &[]),
    // The clock of a snapshot's age, of a lock and of a slow watcher; notifications; reports that wait to be written; the clock that revisions begin with.
    (
        "src/store",
        &[
            "fleet_store.rs",
            "passing.rs",
            "reports.rs",
            "held.rs",
            "interests.rs",
            "places.rs",
            "watchers.rs",
            "retained.rs",
            "identities.rs",
            "revision.rs",
        ],
    ),
];
/// What a pure file does not name.
const IMPURE: &[&str] = &[
    "async ",
    ".await",
    "tokio",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "SystemTime",
    "Instant",
    "::now(",
];
/// The sources of what is shipped.
const CRATES: &[&str] =
    &["src", "crates/wire/src", "crates/table/src", "crates/serving/src", "crates/sql/src", "crates/apiserver/src"];
/// Files that import one another. Their room's `mod.rs` says why, in a paragraph on its "cycle of files".
const CYCLES: &[&[&str]] = &[
    &["src/member/reflector/mod.rs", "src/member/reflector/requests.rs", "src/member/reflector/restored.rs"],
    &["crates/apiserver/src/schema/conform.rs", "crates/apiserver/src/schema/decode.rs"],
    &[
        "src/stores/definitions.rs",
        "src/stores/late.rs",
        "src/stores/marks.rs",
        "src/stores/mod.rs",
        "src/stores/progress.rs",
        "src/stores/proof.rs",
        "src/stores/readiness.rs",
        "src/stores/ready.rs",
    ],
];
/// Lines above an inline `#[cfg(test)] mod`, comments and blanks included.
const FILE_LINES_MAX: usize = 600;

fn layer(layers: &[&[&str]], room: &str) -> Option<usize> {
    layers.iter().position(|peers| peers.contains(&room))
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|x| x == "rs") {
            out.push(path);
        }
    }
}

/// The file without its trailing inline test module and without `//` comments.
fn production(text: &str) -> (usize, String) {
    let lines: Vec<&str> = text.lines().collect();
    let end = lines
        .windows(2)
        .position(|w| w[0].starts_with("#[cfg(test)]") && w[1].contains("mod ") && w[1].ends_with('{'))
        .unwrap_or(lines.len());
    let code = lines[..end].iter().map(|l| l.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
    (end, code)
}

/// First path segment after every `crate::`, including each arm of `crate::{a::x, b}`.
fn named_rooms(code: &str) -> Vec<String> {
    let ident = |s: &str| s.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut rooms = Vec::new();
    for part in code.split("crate::").skip(1) {
        let Some(group) = part.strip_prefix('{') else {
            rooms.push(ident(part));
            continue;
        };
        let (mut depth, mut arm_start) = (1, 0);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if (c == ',' && depth == 1) || depth == 0 {
                rooms.push(ident(group[arm_start..at].trim()));
                arm_start = at + 1;
            }
            if depth == 0 {
                break;
            }
        }
    }
    rooms
}

#[test]
fn tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut errors = Vec::new();
    check(&root.join("src"), LAYERS, &mut errors);
    for name in ["wire", "table", "serving", "apiserver", "testbed"] {
        let layers = if name == "apiserver" { APISERVER_LAYERS } else { &[] };
        check(&root.join("crates").join(name).join("src"), layers, &mut errors);
    }
    assert!(errors.is_empty(), "{} tidy errors:\n{}", errors.len(), errors.join("\n"));
}

/// Checks the files of one crate, whose rooms stand in these layers.
fn check(src: &Path, layers: &[&[&str]], errors: &mut Vec<String>) {
    let mut files = Vec::new();
    rust_files(src, &mut files);
    assert!(!files.is_empty(), "{} holds no Rust file", src.display());
    for file in files {
        let shown = file.strip_prefix(src).unwrap().display().to_string();
        let room = shown.split(['/', '.']).next().unwrap();
        let (line_count, code) = production(&fs::read_to_string(&file).unwrap());
        if line_count > FILE_LINES_MAX {
            errors.push(format!("{shown}: {line_count} lines, max {FILE_LINES_MAX}"));
        }
        if code.contains("super::super::") {
            errors.push(format!("{shown}: write `crate::`, not `super::super::`"));
        }
        let Some(here) = layer(layers, room) else { continue };
        for name in named_rooms(&code) {
            if layer(layers, &name).is_some_and(|there| name != room && there >= here) {
                errors.push(format!("{shown}: room `{room}` may not name `{name}`"));
            }
        }
    }
}

#[test]
fn pure_rooms_name_no_clock_no_io_and_no_await() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut errors = Vec::new();
    for (folder, excepted) in PURE {
        let mut files = Vec::new();
        rust_files(&root.join(folder), &mut files);
        assert!(!files.is_empty(), "{folder} holds no Rust file");
        for file in files {
            let name = file.file_name().unwrap().to_str().unwrap();
            let is_test = name == "tests.rs" || file.components().any(|part| part.as_os_str() == "tests");
            if is_test || excepted.contains(&name) {
                continue;
            }
            let (_, code) = production(&fs::read_to_string(&file).unwrap());
            for impure in IMPURE.iter().filter(|impure| code.contains(**impure)) {
                errors.push(format!("{}: names `{impure}`", file.display()));
            }
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

/// What `include!` and `#[path]` would compile twice is a module of one crate.
#[test]
fn no_file_is_compiled_twice() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "crates", "tests", "benches", "examples", "fuzz"] {
        rust_files(&root.join(folder), &mut files);
    }
    let mark = concat!("#[", "path =");
    let twice: Vec<_> = files.iter().filter(|file| fs::read_to_string(file).unwrap().contains(mark)).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

/// A test waits for what it can see, with `testbed::eventually`, and never for a time.
#[test]
fn tests_on_real_clusters_do_not_sleep() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let (mut files, mark) = (Vec::new(), concat!("sleep", "("));
    for folder in ["e2e", "contract"] {
        rust_files(&root.join(folder), &mut files);
    }
    assert!(!files.is_empty(), "{} holds no tests", root.display());
    let sleeping: Vec<_> = files.iter().filter(|file| fs::read_to_string(file).unwrap().contains(mark)).collect();
    assert!(sleeping.is_empty(), "{sleeping:?}");
}

/// Errors become HTTP in one room: the others return their own, and `respond` makes a `Status` of them.
#[test]
fn statuses_are_made_in_one_room() {
    /// The server that controls a demo is no part of the fleet's: it answers `kubefold demo kill` alone, which prints the
    /// message, and its room stands above all others.
    const DEMO: &str = "cli/demo/control.rs";
    const MAKERS: [&str; 11] = [
        "new",
        "not_found",
        "no_such_path",
        "bad_request",
        "forbidden",
        "method_not_allowed",
        "conflict",
        "invalid",
        "expired",
        "unavailable",
        "internal",
    ];
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut files, mut found) = (Vec::new(), Vec::new());
    rust_files(&src, &mut files);
    for file in files {
        let shown = file.strip_prefix(&src).unwrap().display().to_string();
        let room = shown.split(['/', '.']).next().unwrap();
        let code = production(&fs::read_to_string(&file).unwrap()).1;
        let makes = MAKERS.iter().any(|maker| code.contains(&format!("Status::{maker}(")));
        if makes && room != "respond" && shown != DEMO && !shown.contains("tests") {
            found.push(shown);
        }
    }
    assert!(found.is_empty(), "these make statuses, which is the affair of `respond`: {found:?}");
}

/// The files of a folder without their tests, each with its code.
fn code_below(folder: &str) -> Vec<(String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let code = |file: &PathBuf| {
        let shown = file.strip_prefix(&src).unwrap().display().to_string();
        let is_test = shown.ends_with("tests.rs") || shown.contains("tests/");
        (!is_test).then(|| (shown, production(&fs::read_to_string(file).unwrap()).1))
    };
    files.iter().filter_map(code).collect()
}

/// What stands between a bracket, at which `text` begins, and the one that closes it.
fn bracketed(text: &str) -> &str {
    let (mut depth, mut last) = (0, ' ');
    for (at, c) in text.char_indices() {
        match c {
            '(' | '<' | '[' | '{' => depth += 1,
            // The arrow of a return type closes nothing.
            '>' if last == '-' || last == '=' => {}
            ')' | '>' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[1..at];
        }
        last = c;
    }
    ""
}

/// Arguments that commas part.
fn arguments(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut last, mut out) = (0, 0, ' ', Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '(' | '<' | '[' | '{' => depth += 1,
            '>' if last == '-' || last == '=' => {}
            ')' | '>' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                out.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        last = c;
    }
    out.push(list[start..].trim());
    out.retain(|argument| !argument.is_empty());
    out
}

/// An error says what failed in a type of its own: a `String` can only be printed.
#[test]
fn no_error_is_a_string() {
    let mut found = Vec::new();
    for (file, code) in CRATES.iter().flat_map(|folder| code_below(folder)) {
        for (at, _) in code.match_indices("Result<") {
            let arguments = arguments(bracketed(&code[at + "Result".len()..]));
            if arguments.len() == 2 && arguments[1] == "String" {
                found.push(format!("{file}: Result<{}>", arguments.join(", ")));
            }
        }
    }
    assert!(found.is_empty(), "these errors are strings: {found:#?}");
}

/// A function takes values with names: a tuple of some is a struct, or several arguments.
#[test]
fn no_parameter_is_a_tuple() {
    let mut found = Vec::new();
    for (file, code) in CRATES.iter().flat_map(|folder| code_below(folder)) {
        for (at, _) in code.match_indices("fn ") {
            let signature = &code[at..];
            // The name may be followed by generics, whose bounds have brackets of their own.
            let Some(open) = signature.find(['(', '<']) else { continue };
            let generics = if signature[open..].starts_with('<') { bracketed(&signature[open..]).len() + 2 } else { 0 };
            let Some(list) = signature.get(open + generics..).filter(|rest| rest.starts_with('(')) else { continue };
            let tuples = arguments(bracketed(list)).into_iter().filter(|argument| argument.starts_with('('));
            found.extend(
                tuples.filter(|one| one.contains("): (") || one.contains("): &(")).map(|one| format!("{file}: {one}")),
            );
        }
    }
    assert!(found.is_empty(), "these parameters are tuples: {found:#?}");
}

/// `["config", "load"]`, of a module or of a name in it.
type Named = Vec<String>;

/// The paths of one `use`.
fn expand(before: &[String], tree: &str, out: &mut Vec<Named>) {
    let (path, group) = tree.split_once('{').map_or((tree, None), |(path, group)| (path, Some(group)));
    let path = path.split(" as ").next().unwrap().split("::").map(str::trim).filter(|name| !name.is_empty());
    let path: Named = before.iter().cloned().chain(path.map(str::to_owned)).collect();
    match group {
        None => out.push(path),
        Some(group) => {
            arguments(&group[..group.rfind('}').unwrap()]).iter().for_each(|arm| expand(&path, arm, out));
        }
    }
}

/// The paths that a file names, and those that it passes on as its own: a room's `pub use` needs nothing of what it names.
fn paths(code: &str) -> [Vec<Named>; 2] {
    let (mut named, mut passed_on, mut rest, mut statement) = (Vec::new(), Vec::new(), String::new(), String::new());
    let mut is_passed_on = false;
    for line in code.lines().map(str::trim) {
        if statement.is_empty() {
            let head = line.split("use ").next().unwrap();
            let visible = head == "pub " || (head.starts_with("pub(") && head.ends_with(") "));
            if !line.contains("use ") || !(head.is_empty() || visible) {
                rest.push_str(line);
                rest.push('\n');
                continue;
            }
            is_passed_on = visible;
            statement.push_str(&line[head.len() + "use ".len()..]);
        } else {
            statement.push_str(line);
        }
        if let Some(tree) = statement.strip_suffix(';') {
            expand(&[], tree, if is_passed_on { &mut passed_on } else { &mut named });
            statement.clear();
        }
    }
    for start in ["crate::", "super::"] {
        // `pub(in crate::write)` names nothing.
        let places = rest.match_indices(start).filter(|(at, _)| !rest[..*at].ends_with(':'));
        for (at, _) in places.filter(|(at, _)| !rest[..*at].ends_with("(in ")) {
            let path = rest[at..].split(|c: char| !c.is_alphanumeric() && !"_:".contains(c)).next().unwrap();
            expand(&[], path, &mut named);
        }
    }
    [named, passed_on]
}

/// The path from the crate's root; absent of what is outside the crate.
fn absolute(path: &[String], here: &[String], children: &[&str]) -> Option<Named> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([here, rest].concat()),
        "super" => Some([&here[..here.len() - 1], rest].concat()),
        child if children.contains(&child) => Some([here, path].concat()),
        _ => None,
    }
}

/// What each file of a folder imports from others of its room, wherever its `mod.rs` passes it on.
fn imports(folder: &str) -> BTreeMap<String, BTreeSet<String>> {
    let files: Vec<_> =
        code_below(folder).into_iter().filter(|(file, _)| !["lib.rs", "main.rs"].contains(&&**file)).collect();
    let module = |file: &str| -> Named {
        let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
        path.split('/').map(str::to_owned).collect()
    };
    let modules: BTreeMap<Named, &String> = files.iter().map(|(file, _)| (module(file), file)).collect();
    let (mut named, mut passed_on) = (Vec::new(), BTreeMap::new());
    for (file, code) in &files {
        let here = module(file);
        let children = code.lines().filter_map(|line| line.split_once("mod ")?.1.strip_suffix(';'));
        let children: Vec<&str> = children.collect();
        let [own, others] = paths(code);
        named.extend(own.iter().filter_map(|path| Some((file, absolute(path, &here, &children)?))));
        for path in &others {
            let alias = here.iter().chain(path.last()).cloned().collect::<Named>();
            passed_on.extend(absolute(path, &here, &children).map(|path| (alias, path)));
        }
    }
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, mut path) in named {
        // A module may pass on what another passes on to it. A function may be called as its module is.
        for _ in 0..4 {
            let prefix = |n: &usize| *n == path.len() || !modules.contains_key(&path[..*n]);
            let found = (1..=path.len()).rev().filter(prefix).find_map(|n| Some((n, passed_on.get(&path[..n])?)));
            let Some((n, from)) = found else { break };
            path = [from.as_slice(), &path[n..]].concat();
        }
        let target = (1..=path.len()).rev().find_map(|n| modules.get(&path[..n]));
        let in_room = |target: &&&String| module(target).first() == module(file).first() && **target != file;
        all.entry(file.clone()).or_default().extend(target.filter(in_room).map(|target| (*target).clone()));
    }
    all
}

/// What a file needs stands in a file below it. Where two need each other, their room says why.
#[test]
fn files_of_a_room_do_not_import_one_another() {
    let mut found = BTreeSet::new();
    for folder in CRATES {
        let imports = imports(folder);
        found.extend(
            cycles(&imports)
                .into_iter()
                .map(|files| files.iter().map(|file| format!("{folder}/{file}")).collect::<Vec<_>>()),
        );
    }
    let explained: BTreeSet<Vec<String>> =
        CYCLES.iter().map(|files| files.iter().map(|file| (*file).to_owned()).collect()).collect();
    assert!(found == explained, "new: {:#?}, gone: {:#?}", &found - &explained, &explained - &found);
    for files in CYCLES {
        let folder = Path::new(files[0]).parent().unwrap();
        let room = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("mod.rs");
        assert!(fs::read_to_string(&room).unwrap().contains("cycle of files"), "{}", room.display());
    }
}

/// The sets of files that import one another.
fn cycles(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<Vec<String>> {
    let reached = |from: &String| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            next.extend(imports.get(file).into_iter().flatten().filter(|file| reached.insert((*file).clone())));
        }
        reached
    };
    let all: BTreeMap<&String, BTreeSet<String>> = imports.keys().map(|file| (file, reached(file))).collect();
    let cycle = |(file, reached): (&&String, &BTreeSet<String>)| {
        let back = reached.iter().filter(|other| all.get(other).is_some_and(|others| others.contains(*file)));
        back.cloned().collect::<Vec<String>>()
    };
    all.iter().map(cycle).filter(|cycle| !cycle.is_empty()).collect()
}

/// Every reason that kubefold gives for a failure is in the catalogue of errors.
#[test]
fn every_reason_is_in_the_catalog_of_errors() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (catalog, mut files) = (fs::read_to_string(root.join("docs/errors.md")).unwrap(), Vec::new());
    rust_files(&root.join("src"), &mut files);
    rust_files(&root.join("crates"), &mut files);
    let status = fs::read_to_string(root.join("crates/wire/src/status.rs")).unwrap();
    let enumerated = status.split_once("pub enum Reason {").unwrap().1.split('}').next().unwrap().to_owned();
    let all: String = files.iter().map(|file| production(&fs::read_to_string(file).unwrap()).1).collect();
    let given = enumerated.split(',').map(str::trim).filter(|reason| !reason.is_empty());
    let given = given.filter(|reason| all.contains(&format!("Reason::{reason}")));
    let missing: Vec<&str> = given.filter(|reason| !catalog.contains(&format!("| {reason} |"))).collect();
    assert!(missing.is_empty(), "docs/errors.md does not have {missing:?}");
}

/// What `deny.toml` bans must not be compiled in, on any platform. `cargo deny` says the same and more; this needs no
/// tool.
#[test]
fn banned_crates_are_not_compiled_in() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let deny = fs::read_to_string(root.join("deny.toml")).unwrap();
    let bans = deny.split_once("[bans]").unwrap().1.split("[sources]").next().unwrap();
    let banned: Vec<&str> = bans.split("name = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(banned.contains(&"ring") && banned.contains(&"openssl"));
    let tree = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    let found: Vec<&str> =
        tree.lines().filter(|line| banned.iter().any(|name| line.split(' ').next() == Some(name))).collect();
    assert!(tree.contains("aws-lc-rs") && found.is_empty(), "banned crates: {found:?}");
}
