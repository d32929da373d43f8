#!/usr/bin/env bash
# Builds the version before, from which tests upgrade, once, and prints the directory that has it: `kubefold`, and `chart`, the Helm
# chart of that version. Progress goes to stderr.
#
# COMMIT names the version. With each release it becomes the commit of the release before; a commit of an earlier format of
# the state is worth more than a later one of the same. The directory is outside the checkout:
#   ${KUBEFOLD_TESTBED_CACHE:-${XDG_CACHE_HOME:-~/.cache}/kubefold}/before/
# Cold, this takes 4 to 7 minutes on two cores. It needs git, Rust and a C compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

say() { echo "before: $*" >&2; }
root=${KUBEFOLD_TESTBED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kubefold}/before
commit=$(<COMMIT)
built=$root/$commit-$(sha256sum build.sh | cut -c1-16)

# Two callers must not build twice; the kernel drops the lock with its holder.
mkdir -p "$root"
exec 9>"$root/lock"
flock -n 9 || { say "another build is under way; waiting for it"; flock 9; }

if [[ ! -d $built ]]; then
  say "building $commit"
  if ! git cat-file -e "$commit^{commit}" 2>/dev/null && ! git fetch --quiet --unshallow >&2; then
    say "this checkout does not have the commit $commit; clone the whole history"
    exit 1
  fi
  new=$root/building
  rm -rf "$new"
  mkdir -p "$new/source" "$new/built"
  git -C ../.. archive "$commit" | tar -x -C "$new/source"
  (
    cd "$new/source"
    export KUBEFOLD_COMMIT=${commit:0:12} CARGO_TARGET_DIR=$new/target CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
    cargo build --locked --bin kubefold >&2
  )
  cp "$new/target/debug/kubefold" "$new/built/"
  cp -rL "$new/source/deploy/helm/kubefold" "$new/built/chart"
  mv "$new/built" "$built"
  rm -rf "$new"
fi
echo "$built"
