#!/usr/bin/env bash
# Builds the testbed's binaries once and prints the directory that holds them; progress goes to stderr.
#
# The binaries live outside the checkout, in
#   ${KUBEFOLD_TESTBED_CACHE:-${XDG_CACHE_HOME:-~/.cache}/kubefold}/testbed/<hash of go.mod, go.sum, this script, go>/bin
# with kwok's stage files beside them in kwok/. A cold build takes 6 to 10 minutes on two cores, a warm call 0.1 s.
#
# KUBEBUILDER_ASSETS, envtest's convention, names a directory whose kube-apiserver, etcd and kubectl are used instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

kubernetes=$(sed -n 's/^\tk8s\.io\/kubernetes v\([0-9.]*\).*/\1/p' go.mod)
tools=(etcd etcdctl etcdutl kube-apiserver kube-controller-manager kube-scheduler kubectl kwok)
# Kubernetes publishes static binaries; so the testbed needs no C compiler and runs in any container.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -buildvcs=false"

say() { echo "testbed: $*" >&2; }
digest() { cat "$@" | sha256sum | cut -c1-16; }

command -v go >/dev/null || { say "needs Go ($(grep '^go ' go.mod) or later) on the PATH"; exit 1; }
key=$(digest go.mod go.sum build.sh <(go version))
root=${KUBEFOLD_TESTBED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kubefold}/testbed/$key
bin=$root/bin

# Two callers must not build twice: the second waits, then finds the work done. The kernel drops the lock
# with its holder, so a killed build leaves nothing to clean up but a directory named building.*.
mkdir -p "$root"
exec 9>"$root/lock"
flock -n 9 || { say "another build is under way; waiting for it"; flock 9; }

if [[ ! -d $bin ]]; then
  rm -rf "$root"/building.*
  work=$(mktemp -d "$root/building.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  say "building ${tools[*]} (Kubernetes $kubernetes); cold, this takes 6 to 10 minutes on two cores"
  # Without its version a server calls itself v0.0.0-master, and version gates go wrong.
  flags="-s -w"
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=v$kubernetes -X $package.gitTreeState=clean"
    flags+=" -X $package.gitMajor=${kubernetes%%.*} -X $package.gitMinor=$(cut -d. -f2 <<<"$kubernetes")"
  done
  mkdir "$work/bin"
  go build -trimpath -ldflags "$flags" -o "$work/bin" tool >&2
  mv "$work/bin/server" "$work/bin/etcd"
  # kwok knows no life cycle of its own: these stages make a node ready and a pod run, complete and go.
  rm -rf "$root/kwok"
  stages=$(go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage
  mkdir "$work/kwok"
  cp "$stages"/pod/fast/pod-*.yaml "$stages"/node/fast/node-initialize.yaml \
    "$stages"/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml "$work/kwok/"
  chmod u+w "$work"/kwok/*
  mv "$work/kwok" "$root/kwok"
  # Last, since its presence means that all is there.
  mv "$work/bin" "$bin"
  say "built in $bin"
fi

# Our own client programs change more often than the tools; each is rebuilt alone when its source differs.
for source in cmd/*/; do
  name=$(basename "$source")
  want=$(digest "$source"*.go)
  if [[ ! -x $bin/$name || $(cat "$root/$name.digest" 2>/dev/null) != "$want" ]]; then
    say "building $name"
    go build -trimpath -ldflags "-s -w" -o "$bin/.$name.new" "./cmd/$name" >&2
    mv "$bin/.$name.new" "$bin/$name"
    echo "$want" >"$root/$name.digest"
  fi
done

if [[ -n ${KUBEBUILDER_ASSETS:-} ]]; then
  overlay=$root/assets-$(digest <(echo "$KUBEBUILDER_ASSETS"))
  mkdir -p "$overlay"
  for path in "$bin"/*; do ln -sfn "$path" "$overlay/$(basename "$path")"; done
  for name in kube-apiserver etcd kubectl; do
    [[ ! -x $KUBEBUILDER_ASSETS/$name ]] || ln -sfn "$KUBEBUILDER_ASSETS/$name" "$overlay/$name"
  done
  bin=$overlay
  # The stages are found beside the directory of the binaries, as without an overlay.
fi
echo "$bin"
