//! One request and what is allowed to differ in its answers.

use crate::{seen::Mismatch, target::Target};

/// What differs in every answer: an entry of `docs/differences.md` and the headers.
const EVERYWHERE: [(&str, &[&str]); 1] =
    [("flow-control-headers", &["header x-kubernetes-pf-flowschema-uid", "header x-kubernetes-pf-prioritylevel-uid"])];

/// A request as data. In its path `{@}` stands for the suffix of the member's objects in that target, `{rv}` for a
/// revision that the target has given out, `{token}` for one that continues a list of the config maps of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
    differs: Vec<Declared>,
    /// Whether a fleet of several members is asked too.
    pub(crate) of_several: bool,
}

/// An entry of `docs/differences.md`, and where it shows.
#[derive(Clone, Debug)]
struct Declared {
    id: &'static str,
    aspects: Vec<&'static str>,
}

pub(crate) fn get(path: impl Into<String>) -> Check {
    ask("GET", path)
}

pub(crate) fn ask(method: &'static str, path: impl Into<String>) -> Check {
    Check { method, path: path.into(), headers: Vec::new(), body: String::new(), differs: Vec::new(), of_several: true }
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

    /// Declares a difference. It must show in exactly these aspects (with those of other declarations): `status`,
    /// `header <name>`, `format`, `order`, `body`, or `body.<key>`.
    pub(crate) fn differs(mut self, id: &'static str, aspects: &[&'static str]) -> Self {
        self.differs.push(Declared { id, aspects: aspects.to_vec() });
        self
    }

    /// Not asked of several members: the answer is about one server.
    pub(crate) fn of_one(mut self) -> Self {
        self.of_several = false;
        self
    }

    /// The request in one line.
    pub(crate) fn label(&self) -> String {
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| format!(" [{name}: {value}]")).collect();
        format!("{} {}{}", self.method, self.path, headers.concat())
    }

    /// The ids of the declared differences.
    pub(crate) fn declared(&self) -> impl Iterator<Item = &'static str> {
        EVERYWHERE.iter().map(|(id, _)| *id).chain(self.differs.iter().map(|declared| declared.id))
    }

    /// What is wrong, if anything: a difference that is not declared, or a declared one that does not show.
    pub(crate) fn verdict(&self, target: &Target, found: &[Mismatch]) -> Option<String> {
        let declared = |aspect: &str| {
            let here = self.differs.iter().any(|one| one.aspects.contains(&aspect));
            here || EVERYWHERE.iter().any(|(_, aspects)| aspects.contains(&aspect))
        };
        let mut wrong: Vec<String> =
            found.iter().filter(|one| !declared(&one.aspect)).map(|one| format!("    {one}")).collect();
        for one in &self.differs {
            for aspect in one.aspects.iter().filter(|aspect| found.iter().all(|found| found.aspect != **aspect)) {
                wrong.push(format!("    {aspect}: declared to differ ({}), and does not", one.id));
            }
        }
        (!wrong.is_empty()).then(|| format!("{}: {}\n{}", target.name, self.label(), wrong.join("\n")))
    }
}
