//! Views of the fleet: what a read does about members that are unknown, or not known to be current.
//!
//! docs/design/reads.md#views. Each prefix serves the fleet's whole API, so that any client can use it as a server's URL.

/// What a read does about members of whom not everything is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// At `/`: unknown members are waited for, then 503; of others the last known state, with a `Warning`.
    #[default]
    Whole,
    /// At `/views/lenient/`: unknown members are left out, with a `Warning`. For people and dashboards.
    Lenient,
    /// At `/views/strict/`: 503 unless every member is current.
    Strict,
}

impl Mode {
    /// The prefixed views, as paths and contexts name them.
    pub const PREFIXED: [(&str, Self); 2] = [("lenient", Self::Lenient), ("strict", Self::Strict)];

    /// What stands before every path of the view.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Lenient => "/views/lenient",
            Self::Strict => "/views/strict",
        }
    }

    /// Splits the view's prefix off a path, with or without a query. What is left may be empty or begin with a `?`.
    pub fn split(path: &str) -> (Self, &str) {
        let whole = (Self::Whole, path);
        let Some(inner) = path.strip_prefix("/views/") else { return whole };
        let found = Self::PREFIXED.iter().find_map(|(name, mode)| {
            let rest = inner.strip_prefix(name)?;
            (rest.is_empty() || rest.starts_with(['/', '?'])).then_some((*mode, rest))
        });
        found.unwrap_or(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_has_the_prefix_that_is_split_off() {
        for (name, mode) in Mode::PREFIXED {
            assert_eq!(mode.prefix(), format!("/views/{name}"));
            assert_eq!(Mode::split(&format!("{}/api", mode.prefix())), (mode, "/api"));
        }
    }

    #[test]
    fn a_view_is_a_whole_segment_behind_views() {
        for (path, split) in [
            ("/api/v1/pods", (Mode::Whole, "/api/v1/pods")),
            ("/views/lenient/api/v1/pods?limit=1", (Mode::Lenient, "/api/v1/pods?limit=1")),
            ("/views/strict", (Mode::Strict, "")),
            ("/views/strict?x", (Mode::Strict, "?x")),
            ("/views/strict/views/lenient/api", (Mode::Strict, "/views/lenient/api")),
            ("/views/stricter/api", (Mode::Whole, "/views/stricter/api")),
            ("/views/", (Mode::Whole, "/views/")),
        ] {
            assert_eq!(Mode::split(path), split, "{path}");
        }
    }
}
