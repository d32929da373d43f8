//! One request as data.

use crate::{differences::Differences, seen::Mismatch, target::Target};

/// A request as data. In its path `{@}` stands for the suffix of the member's objects in that target, `{rv}` for a
/// revision that the target has given out, `{token}` for one that continues a list of the config maps of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

pub(crate) fn get(path: impl Into<String>) -> Check {
    ask("GET", path)
}

pub(crate) fn ask(method: &'static str, path: impl Into<String>) -> Check {
    Check { method, path: path.into(), headers: Vec::new(), body: String::new() }
}

impl Check {
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn accept(self, value: &str) -> Self {
        self.header("accept", value)
    }

    pub(crate) fn body(mut self, body: &str) -> Self {
        self.body = body.to_owned();
        self
    }

    /// Whether which objects are answered depends on their order.
    pub(crate) fn is_paged(&self) -> bool {
        self.path.contains("limit=") || self.path.contains("continue=")
    }

    /// The request in one line.
    pub(crate) fn label(&self) -> String {
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| format!(" [{name}: {value}]")).collect();
        format!("{} {}{}", self.method, self.path, headers.concat())
    }

    /// What is wrong: the differences that are not declared.
    pub(crate) fn verdict(&self, target: &Target, found: &[Mismatch], declared: &mut Differences) -> Option<String> {
        let wrong = found.iter().filter(|one| !declared.allow(self, one)).map(|one| format!("    {one}"));
        let wrong: Vec<String> = wrong.collect();
        (!wrong.is_empty()).then(|| format!("{}: {}\n{}", target.name, self.label(), wrong.join("\n")))
    }
}
