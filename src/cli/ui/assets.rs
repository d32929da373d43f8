//! The files of the page, which the program has in itself.

/// One file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asset {
    /// Where a browser asks for it.
    pub(super) path: &'static str,
    pub(super) media: &'static str,
    pub(super) bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

macro_rules! asset {
    ($path:literal, $media:expr, $file:literal) => {
        Asset { path: $path, media: $media, bytes: include_bytes!(concat!("page/", $file)) }
    };
    ($file:literal, $media:expr) => {
        Asset { path: concat!("/ui/", $file), media: $media, bytes: include_bytes!(concat!("page/", $file)) }
    };
}

static ASSETS: [Asset; 18] = [
    asset!("/", HTML, "index.html"),
    asset!("style.css", STYLE),
    asset!("icon.svg", IMAGE),
    asset!("app.js", SCRIPT),
    asset!("api.js", SCRIPT),
    asset!("difference.js", SCRIPT),
    asset!("grid.js", SCRIPT),
    asset!("preact.js", SCRIPT),
    asset!("query.js", SCRIPT),
    asset!("rows.js", SCRIPT),
    asset!("text.js", SCRIPT),
    asset!("views/fleet.js", SCRIPT),
    asset!("views/lists.js", SCRIPT),
    asset!("views/moves.js", SCRIPT),
    asset!("views/object.js", SCRIPT),
    asset!("vendor/htm.js", SCRIPT),
    asset!("vendor/hooks.js", SCRIPT),
    asset!("vendor/preact.js", SCRIPT),
];

/// The file that a browser finds under a path.
pub(super) fn at(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    fn files(folder: &Path, out: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, out);
            } else {
                out.push(path.display().to_string());
            }
        }
    }

    #[test]
    fn every_file_of_the_page_is_served_and_nothing_else_is() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/ui/page");
        let mut found = Vec::new();
        files(&folder, &mut found);
        let of_library = |path: &&String| !path.ends_with("LICENSE") && !path.ends_with("VERSIONS");
        let begin = folder.display().to_string();
        let mut paths: Vec<String> =
            found.iter().filter(of_library).map(|path| format!("/ui{}", path.strip_prefix(&begin).unwrap())).collect();
        paths.sort_unstable();
        let mut served: Vec<&str> = ASSETS.iter().map(|asset| asset.path).collect();
        served[0] = "/ui/index.html";
        served.sort_unstable();
        assert_eq!(paths, served);
        for path in ["/ui", "/ui/", "/ui/../gate.rs", "/ui/vendor", "/index.html", "/ui/vendor/VERSIONS", "//"] {
            assert_eq!(at(path), None, "{path}");
        }
    }

    /// The policy of the page allows its own files alone.
    #[test]
    fn the_page_names_no_other_place_and_has_no_script_inline() {
        for asset in &ASSETS {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            // The names of XML's vocabularies, which no browser asks for.
            let text = text.replace("http://www.w3.org/", "");
            for place in ["http://", "https://", "eval(", "new Function", "dangerouslySetInnerHTML="] {
                assert!(!text.contains(place), "{} has {place}", asset.path);
            }
        }
        let html = std::str::from_utf8(at("/").unwrap().bytes).unwrap();
        for tag in html.split('<').filter(|tag| tag.starts_with("script") || tag.starts_with("link")) {
            let source = tag.split("src=\"").nth(1).or_else(|| tag.split("href=\"").nth(1)).unwrap();
            assert!(at(source.split('"').next().unwrap()).is_some(), "{tag}");
        }
        assert!(!html.contains("style=") && !html.contains("<style") && !html.contains(" on"), "{html}");
    }
}
