#!/usr/bin/env bash
# Prints the path of a Chromium, for the test of `kubefold ui`: chromium.sh
# `chromium.sh --install` installs Debian's package where there is none.
set -euo pipefail
found=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [[ ${1:-} == --install && -z $found ]]; then
  echo "chromium: not on the PATH; installing Debian's package" >&2
  if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >&2; then
    echo "chromium: it could not be installed; install it, or run this as root on Debian" >&2
    exit 1
  fi
  found=$(command -v chromium)
fi
[[ -n $found ]] || { echo "no Chromium; run: $0 --install" >&2; exit 1; }
echo "$found"
