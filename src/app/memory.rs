//! How much memory the process may use.

use std::fs;

/// Of a container (cgroup version 2): a number of bytes, or `max`.
const CGROUP: &str = "/sys/fs/cgroup/memory.max";
const MACHINE: &str = "/proc/meminfo";

/// Three quarters of it, for the objects of members: the rest is for answers, event logs and what is being read. `None`: the
/// system does not say. Blocks for a moment.
pub(super) fn for_objects() -> Option<u64> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    usable(&read(CGROUP), &read(MACHINE)).map(|bytes| bytes / 4 * 3)
}

/// The lesser of both, in bytes.
fn usable(cgroup: &str, machine: &str) -> Option<u64> {
    let of_container = cgroup.trim().parse().ok();
    let line = machine.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let of_machine = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    of_container.into_iter().chain(of_machine.map(|kib| kib << 10)).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_may_use_less_than_its_machine_has() {
        let machine = "MemFree:  1 kB\nMemTotal:       24689264 kB\n";
        assert_eq!(usable("max\n", machine), Some(24_689_264 << 10));
        assert_eq!(usable("536870912\n", machine), Some(512 << 20));
        assert_eq!(usable("", ""), None);
        assert!(for_objects().is_some_and(|bytes| bytes > 64 << 20), "on a machine that runs tests");
    }
}
