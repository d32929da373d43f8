#!/usr/bin/env bash
# Builds the client programs of every language once and prints the directory that holds them; progress goes to stderr.
#
# They live outside the checkout, beside the testbed, in
#   ${KUBEFOLD_TESTBED_CACHE:-${XDG_CACHE_HOME:-~/.cache}/kubefold}/clients/
# Each part has a directory named by the digest of what it is made of; a directory of all is bin/. Cold, this takes 9 to
# 12 minutes on two cores when Go's build cache holds nothing, warm 0.1 s. It needs Go, Rust, node and python on the PATH, and a
# JDK of 17 or later with Maven; where Debian's packages can be installed, it installs these two itself.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

root=${KUBEFOLD_TESTBED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kubefold}/clients
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -buildvcs=false"

say() { echo "clients: $*" >&2; }
install() {
  command -v mvn >/dev/null && command -v javac >/dev/null && return
  say "mvn or javac is not on the PATH; installing Debian's packages maven and default-jdk-headless"
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends maven default-jdk-headless; } >&2
}
digest() { cat "$@" | sha256sum | cut -c1-16; }

# What comes as packages of Debian, alone: two of them cannot be installed at once.
if [[ ${1-} == --install ]]; then install; exit; fi

versions=$(go version; rustc --version; node --version; python3 --version) || { say "needs go, rustc, node and python3"; exit 1; }
sources=(build.sh go/go.{mod,sum} go/cmd/*/*.go actionlint/go.{mod,sum} helm/go.{mod,sum} helm3/go.{mod,sum}
  kubectl-oldest/go.{mod,sum} kubectl-oldest/main.go kube-rs/Cargo.{toml,lock} k9s/go.{mod,sum} k9s/scanner/scanner.go
  kube-rs/src/*.rs kube-rs/src/bin/*.rs samples/go.{mod,sum} node/package-lock.json node/*.mjs python/requirements.txt python/main.py java/pom.xml java/*.java)
all=$root/all-$(digest "${sources[@]}" <(echo "$versions"))

# part NAME FILE... builds what is not there yet with build_NAME, which is given an empty directory, and sets $part.
part() {
  local name=$1
  shift
  part=$root/$name-$(digest "$@" <(echo "$versions") <(declare -f "build_$name"))
  [[ ! -d $part ]] || return 0
  say "building $name"
  rm -rf "$root/building.$name"
  mkdir "$root/building.$name"
  "build_$name" "$root/building.$name" >&2
  mv "$root/building.$name" "$part"
}

build_go() { (cd go && go build -trimpath -ldflags "-s -w" -o "$1/" ./cmd/events ./cmd/informer ./cmd/leader ./cmd/operator ./cmd/verbs); }
build_actionlint() { (cd actionlint && go build -trimpath -ldflags "-s -w" -o "$1/" github.com/rhysd/actionlint/cmd/actionlint); }
build_helm() { (cd helm && go build -trimpath -ldflags "-s -w" -o "$1/helm" helm.sh/helm/v4/cmd/helm); }
build_helm3() { (cd helm3 && go build -trimpath -ldflags "-s -w" -o "$1/helm" helm.sh/helm/v3/cmd/helm); }
# From a copy of its source, in which its scanner of images finds nothing: that is half of what k9s is compiled of.
build_k9s() (
  module=$(cd k9s && go mod download -json github.com/derailed/k9s | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  cp -r "$module" "$1/source"
  chmod -R u+w "$1/source"
  cp k9s/scanner/scanner.go "$1/source/internal/vul/"
  rm "$1/source/internal/vul/scan.go"
  cd "$1/source"
  go build -trimpath -ldflags "-s -w" -o "$1/k9s" .
  cd ..
  rm -rf source
)
# Both programs, and the definition that goes with the controller. Most of it is in the build cache since the testbed was built.
build_samples() (
  cd samples
  go build -trimpath -ldflags "-s -w" -o "$1/" tool
  cp "$(go list -m -f '{{.Dir}}' k8s.io/sample-controller)/artifacts/examples/crd-status-subresource.yaml" "$1/foos.yaml"
  chmod u+w "$1/foos.yaml"
)
build_kubectl_newest() { kubectl go "$1" ./cmd/kubectl; }
build_kubectl_oldest() { kubectl kubectl-oldest "$1" .; }
kubectl() {
  local version package flags="-s -w"
  version=$(sed -n 's/^\tk8s\.io\/kubectl v//p' "$1/go.mod")
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=v1.${version#0.} -X $package.gitMajor=1 -X $package.gitMinor=$(cut -d. -f2 <<<"$version")"
  done
  (cd "$1" && go build -trimpath -ldflags "$flags" -o "$2/kubectl" "$3")
}
build_kube_rs() {
  # The target directory is worth keeping: a change of the program costs seconds then.
  CARGO_TARGET_DIR=$root/kube-rs-target cargo build --locked --manifest-path kube-rs/Cargo.toml
  cp "$root/kube-rs-target/debug/kube-rs-client" "$root/kube-rs-target/debug/controller" "$1/"
}
build_node_modules() {
  cp node/package.json node/package-lock.json "$1/"
  (cd "$1" && npm ci --no-audit --no-fund --ignore-scripts)
}
# One file of Headlamp's front end: the package has it for plug-ins, and needs hundreds of others to be installed.
build_headlamp() (
  cd "$1"
  npm pack --silent "@kinvolk/headlamp-plugin@0.14.0" >/dev/null
  tar -xzf ./*.tgz --strip-components=6 package/lib/lib/k8s/api/v2/KubeList.js
  rm ./*.tgz
  echo "c260ea2f1221b5c326d4cfc637ee15c892d13c2bb4b1bc0b8e0b6e80f999ffce  KubeList.js" | sha256sum --check --quiet
)
# The definitions of the kinds of operators that the Helm chart has objects of: of the Gateway API those of today, and of before its
# version 1.5. Nothing of the modules is compiled.
build_operators() {
  definition() {
    local module
    module=$(cd "$1" && go mod download -json "$2" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    cp --no-preserve=mode "$module/$3" "$1/$4"
    (cd "$1" && sha256sum --check --quiet <<<"$5  $4")
  }
  local routes=gateway.networking.k8s.io_tlsroutes.yaml prometheus=github.com/prometheus-operator/prometheus-operator@v0.85.0
  definition "$1" sigs.k8s.io/gateway-api@v1.6.0 "config/crd/standard/$routes" tlsroutes.yaml \
    b3f7a900cb767b7be07fec6d277afe43a9b1db36053fef95beacccb1190fa6ca
  definition "$1" sigs.k8s.io/gateway-api@v1.4.1 "config/crd/experimental/$routes" tlsroutes-of-before.yaml \
    1dee8d7e1a56dadf0e88466bfef8a8afc5664a94e95d6b2fb812f03d0b198748
  definition "$1" github.com/cert-manager/cert-manager@v1.21.2 deploy/crds/cert-manager.io_certificates.yaml certificates.yaml \
    7ad91029c00ec959d54215b19d3b1a9b7e0247eaa60f987151c2b70d8661f8af
  definition "$1" "$prometheus" example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml servicemonitors.yaml \
    1dae27b7189b5ce7b9ab764656c18b4c75a45cde1e6f3af6a5e84c4317628919
  definition "$1" "$prometheus" example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml prometheusrules.yaml \
    98fd16c9ab79fba8dcd6ef62c957c98cd6546ab74ce0a4ecf09ddf2fda03020e
}
build_python() {
  python3 -m venv "$1"
  "$1/bin/pip" --quiet --disable-pip-version-check install --only-binary :all: --no-deps -r python/requirements.txt
}
build_java() {
  install
  # Away from the checkout, in which Maven leaves files.
  cp java/pom.xml "$1/"
  mvn --quiet --batch-mode --file "$1/pom.xml" dependency:copy-dependencies -DoutputDirectory="$1/lib"
  javac --release 17 -Xlint:all -Werror -proc:none -cp "$1/lib/*" -d "$1/classes" java/*.java
}

# Two callers must not build twice; the kernel drops the lock with its holder.
mkdir -p "$root"
exec 9>"$root/lock"
flock -n 9 || { say "another build is under way; waiting for it"; flock 9; }

if [[ ! -d $all ]]; then
  new=$root/building.all
  rm -rf "$new"
  mkdir -p "$new/bin"
  part go go/go.mod go/go.sum go/cmd/{events,informer,leader,operator,verbs}/*.go
  ln -s "$part/informer" "$new/bin/go"
  ln -s "$part/events" "$part/leader" "$part/operator" "$part/verbs" "$new/bin/"
  part actionlint actionlint/go.mod actionlint/go.sum
  ln -s "$part/actionlint" "$new/bin/actionlint"
  part helm helm/go.mod helm/go.sum
  ln -s "$part/helm" "$new/bin/helm"
  part helm3 helm3/go.mod helm3/go.sum
  ln -s "$part/helm" "$new/bin/helm3"
  part k9s k9s/go.mod k9s/go.sum k9s/scanner/scanner.go
  ln -s "$part/k9s" "$new/bin/k9s"
  part samples samples/go.mod samples/go.sum
  ln -s "$part/sample-apiserver" "$part/sample-controller" "$part/foos.yaml" "$new/bin/"
  part kubectl_newest go/go.mod go/go.sum go/cmd/kubectl/main.go
  ln -s "$part/kubectl" "$new/bin/kubectl-newest"
  part kubectl_oldest kubectl-oldest/*
  ln -s "$part/kubectl" "$new/bin/kubectl-oldest"
  part kube_rs kube-rs/Cargo.* kube-rs/src/*.rs kube-rs/src/bin/*.rs
  ln -s "$part/kube-rs-client" "$new/bin/kube-rs"
  ln -s "$part/controller" "$new/bin/kube-rs-controller"
  part node_modules node/package-lock.json
  # A module finds its packages beside itself.
  ln -s "$part/node_modules" "$new/node_modules"
  cp node/*.mjs "$new/"
  part headlamp
  ln -s "$part" "$new/headlamp"
  part operators
  ln -s "$part" "$new/bin/operators"
  part python python/requirements.txt
  cp python/main.py "$new/"
  # A virtual environment is moved from where it was made, so that its python is right and its scripts are not.
  printf '#!/bin/sh\nexec "%s" "$(dirname "$0")/../main.py" "$@"\n' "$part/bin/python3" >"$new/bin/python"
  printf '#!/bin/sh\nexec node "$(dirname "$0")/../main.mjs" "$@"\n' >"$new/bin/node"
  printf '#!/bin/sh\nexec node "$(dirname "$0")/../oidc.mjs" "$@"\n' >"$new/bin/oidc"
  printf '#!/bin/sh\nexec node "$(dirname "$0")/../browser.mjs" "$@"\n' >"$new/bin/oidc-browser"
  printf '#!/bin/sh\nexec node "$(dirname "$0")/../ui.mjs" "$@"\n' >"$new/bin/ui"
  printf '#!/bin/sh\nexec node "$(dirname "$0")/../lens.mjs" "$@"\n' >"$new/bin/lens"
  printf '#!/bin/sh\nexec node "$(dirname "$0")/../headlamp.mjs" "$@"\n' >"$new/bin/headlamp"
  part java java/pom.xml java/*.java
  # It ends soon, so a fast start is worth more than fast code.
  printf '#!/bin/sh\nexec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx256m -cp "%s/classes:%s/lib/*" Main "$@"\n' \
    "$part" "$part" >"$new/bin/java"
  chmod +x "$new/bin/python" "$new/bin/node" "$new/bin/oidc" "$new/bin/oidc-browser" "$new/bin/ui" "$new/bin/lens" "$new/bin/headlamp" "$new/bin/java"
  # Last, since its presence means that all is there.
  mv "$new" "$all"
  say "built in $all"
fi
echo "$all/bin"
