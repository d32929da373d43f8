//! How many instructions the hot paths need: `scripts/instructions` counts, and compares with `benches/instructions.json`.
//!
//! Each case runs in a process of its own, under callgrind, which counts what happens in [`measured`] and nothing else. The
//! inputs are fixed, nothing else runs meanwhile, and the allocator is the system's: jemalloc gives memory back by the clock.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and panics where it is wrong"
)]

mod callers;
mod cases;
mod pods;

use std::{
    collections::BTreeMap,
    fs,
    hint::black_box,
    path::Path,
    process::{Command, ExitCode},
};

use testbed::{Counts, Outcome};

/// The functions in which callgrind counts, with what they call.
const MEASURED: &str = "instructions::measured*";
/// The name of what the counts depend on most.
const COMPILER: &str = "compiler";
/// The C library chooses how to copy and compare by the CPU. So it chooses the same on every CPU.
const TUNABLES: &str = "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX512F,-AVX512VL,-ERMS,-FSRM";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--case") {
        let case = cases::ALL.iter().find(|case| Some(case.name) == arguments.get(at + 1).map(String::as_str));
        (case.expect("a case of this name").run)();
        return ExitCode::SUCCESS;
    }
    let counts = Counts {
        counted_with: surroundings(),
        instructions: cases::ALL.iter().map(|case| (case.name.to_owned(), count(case.name))).collect(),
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.json");
    if arguments.iter().any(|argument| argument == "--write") {
        fs::write(&file, counts.to_json()).unwrap();
        println!("{}", counts.to_json());
        return ExitCode::SUCCESS;
    }
    let text = fs::read_to_string(&file).unwrap_or_default();
    let baseline = Counts::from_json(&text)
        .unwrap_or_else(|| panic!("{} is no baseline; scripts/instructions --write makes one", file.display()));
    // What else it was counted with than the compiler, which the repository chooses, is the machine's.
    let machine = counts.counted_with.iter().filter(|(name, _)| *name != COMPILER);
    let differs =
        machine.map(|(name, is)| (name, is, baseline.counted_with.get(name).map_or("unknown", String::as_str)));
    if let Some((name, is, base)) = differs.into_iter().find(|(_, is, base)| is != base) {
        println!(
            "Nothing is compared: the baseline was counted with {name} {base}, and this with {is}.\n{}",
            counts.to_json()
        );
        return ExitCode::SUCCESS;
    }
    let (outcome, lines) = counts.compare(&baseline);
    println!("{lines}");
    match outcome {
        Outcome::Same => ExitCode::SUCCESS,
        Outcome::Better => {
            println!("Run scripts/instructions --write and commit {}, so that it stays so.", file.display());
            ExitCode::SUCCESS
        }
        Outcome::Worse => {
            println!("If that has to be, run scripts/instructions --write, and say why in the commit.");
            ExitCode::FAILURE
        }
    }
}

/// Does what callgrind counts.
#[inline(never)]
fn measured<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

/// Runs a case under callgrind. Units: instructions.
fn count(case: &str) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", &format!("--toggle-collect={MEASURED}")])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().unwrap())
        .args(["--case", case])
        // What is in the environment moves the stack.
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("GLIBC_TUNABLES", TUNABLES)
        .output()
        .expect("valgrind, which scripts/instructions installs");
    assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
    let profile = fs::read_to_string(&out).unwrap();
    let totals = profile.lines().find_map(|line| line.strip_prefix("totals: "));
    let count = totals.unwrap_or_default().trim().parse().unwrap_or(0);
    assert!(count > 0, "{case}: callgrind counted nothing: is there a function `{MEASURED}` in the symbols?");
    count
}

/// What the counts depend on.
fn surroundings() -> BTreeMap<String, String> {
    let first_line = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        text.lines().next().unwrap_or("unknown").to_owned()
    };
    let features = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has_avx2 = features.split_whitespace().any(|word| word == "avx2");
    [
        (COMPILER, first_line("rustc", &["--version"])),
        ("target", format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)),
        ("valgrind", first_line("valgrind", &["--version"])),
        ("C library", first_line("getconf", &["GNU_LIBC_VERSION"])),
        ("AVX2 in the CPU", has_avx2.to_string()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}
