//! `docs/cli.md` out of the commands themselves.

use clap::CommandFactory;

use crate::cli::Cli;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md");
const HEAD: &str = "\
# Command line

This page has the `--help` text of every command. Results go to standard output, everything else to standard error. `-o json` and `-o yaml`
give programs the whole answer. Only terminals get colours. `NO_COLOR` or `--color never` turns them off, `--color always` turns them on.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | failure: one sentence on standard error says what failed, where, and what to do. `doctor`: a check failed. `diff`: the parts differ |
| 2 | `diff` alone: failure |
| 64 | the flags or the configuration are invalid; nothing was done |

This page is generated: `KUBEFOLD_DOCS=write cargo test --lib cli::reference`.
";

fn page() -> String {
    let mut root = Cli::command().term_width(110).disable_help_subcommand(true);
    root.build();
    let mut out = HEAD.to_owned();
    for command in root.get_subcommands_mut() {
        let name = command.get_name().to_owned();
        // One that does nothing by itself stands for its commands.
        if command.is_subcommand_required_set() {
            for command in command.get_subcommands_mut() {
                write(&mut out, &format!("{name} {}", command.get_name()), command);
            }
        } else {
            write(&mut out, &name, command);
            for command in command.get_subcommands_mut() {
                write(&mut out, &format!("{name} {}", command.get_name()), command);
            }
        }
    }
    out
}

fn write(out: &mut String, name: &str, command: &mut clap::Command) {
    let help = command.render_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    out.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end()));
}

#[test]
fn the_page_says_what_help_says() {
    let page = page();
    if std::env::var_os("KUBEFOLD_DOCS").is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(written == page, "docs/cli.md is not what --help says; KUBEFOLD_DOCS=write makes it anew");
}
