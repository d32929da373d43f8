//! Every target over its seeds, as they are and damaged: what libFuzzer does for longer (`fuzz/run`).

use std::path::Path;

use proptest::{prelude::*, sample::Index};

use super::*;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 12] = [
    ("edits", edits),
    ("fields", fields),
    ("list", list),
    ("locate", locate),
    ("negotiate", negotiate),
    ("patch", patch),
    ("path", path),
    ("protobuf", protobuf),
    ("selectors", selectors),
    ("token", token),
    ("warning", warning),
    ("watch", watch),
];

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn every_target_has_its_program_and_seeds_and_takes_them() {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
    let mut names: Vec<_> =
        std::fs::read_dir(programs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, TARGETS.map(|(name, _)| format!("{name}.rs")));
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(seeds.len() > 1, "{name}");
        for seed in &seeds {
            target(seed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_target_takes_damaged_seeds(
        seed: Index,
        splice_in: Index,
        changes in prop::collection::vec((any::<Index>(), any::<u8>(), 0..3_u8), 0..6),
    ) {
        for (name, target) in TARGETS {
            let seeds = seeds(name);
            let mut bytes = seed.get(&seeds).clone();
            for (at, new, change) in &changes {
                let at = at.index(bytes.len() + 1);
                match change {
                    0 => bytes.insert(at, *new),
                    1 if at < bytes.len() => bytes[at] = *new,
                    _ => bytes.truncate(at.max(1)),
                }
            }
            target(&bytes);
            let other = splice_in.get(&seeds);
            bytes.extend_from_slice(&other[splice_in.index(other.len() + 1)..]);
            target(&bytes);
        }
    }
}
