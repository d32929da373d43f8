//! Directories that go with the test, and the ones that a killed test process left behind.

use std::{fs, path::Path, sync::Once};

use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

/// A directory that is removed when the value is dropped. `KUBEFOLD_TESTBED_KEEP=1` keeps it, for its logs.
pub(crate) fn temporary(name: &str) -> TempDir {
    let keep = std::env::var_os("KUBEFOLD_TESTBED_KEEP").is_some();
    let root = std::env::temp_dir().join("kubefold-testbed");
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| sweep(&root));
    let ours = root.join(if keep { "kept".to_owned() } else { std::process::id().to_string() });
    fs::create_dir_all(&ours).unwrap_or_else(|error| panic!("{}: {error}", ours.display()));
    let mut directory = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(ours).expect("a directory");
    directory.disable_cleanup(keep);
    directory
}

/// Removes the directories of processes that are no more: nothing runs after a `kill -9`, and members' data are large.
fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if owner.is_some_and(|owner| test_kill_process(owner) == Err(rustix::io::Errno::SRCH)) {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}
