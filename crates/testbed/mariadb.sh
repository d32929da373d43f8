#!/usr/bin/env bash
# Runs a MariaDB of Debian's packages with a socket in a folder: mariadb.sh FOLDER [PORT]
# With PORT it listens on 127.0.0.1, too: for TLS with the folder's server.crt and server.key.
# `mariadb.sh --install` installs these packages where there are none: the server and the client without what would run as a
# service.
#
# It says `ready` once it answers, and after each line of its stdin that it has done: `pause` and `resume` stop the server in its
# tracks and let it run on, `kill` kills it, `start` starts it again. When its stdin ends, which is at the latest when whoever
# started it ends, it stops, and removes the folder. As root, it runs the server as `nobody`.
set -euo pipefail
folder=$1
export PATH=$PATH:/usr/sbin
is_there() { command -v mariadbd >/dev/null && command -v mariadb >/dev/null; }
if [[ $folder == --install ]]; then
  ! is_there || exit 0
  echo "mariadb: not installed; installing Debian's packages" >&2
  if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends mariadb-server-core mariadb-client-core; } >&2; then
    echo "mariadb: it could not be installed; install it, or run this as root on Debian" >&2
    exit 1
  fi
  exit 0
fi
is_there || { echo "no MariaDB; run: $0 --install" >&2; exit 1; }
as=()
# A server that starts removes temporary tables from its folder for them, whichever server they are of: in /tmp, those of others.
mkdir "$folder/tmp"
if [[ $(id -u) == 0 ]]; then
  chown nobody "$folder" "$folder/tmp"
  as=(setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups)
fi
cd "$folder"
"${as[@]}" mariadb-install-db --no-defaults --datadir="$folder/data" --auth-root-authentication-method=normal \
  --skip-test-db --skip-name-resolve --innodb-flush-method=nosync --tmpdir="$folder/tmp" >"$folder/install.log" 2>&1 \
  || { cat "$folder/install.log" >&2; exit 1; }
listen=(--skip-networking)
if [[ $# == 2 ]]; then
  "${as[@]}" install -m 600 /dev/stdin "$folder/data/server.key" <"$folder/server.key"
  "${as[@]}" install -m 600 /dev/stdin "$folder/data/server.crt" <"$folder/server.crt"
  listen=(--bind-address=127.0.0.1 "--port=$2" "--ssl-cert=$folder/data/server.crt" "--ssl-key=$folder/data/server.key")
fi
client=(mariadb --no-defaults "--socket=$folder/socket" --user=root)
start() {
  # The operating system keeps what is written when the server is killed; the power does not go.
  "${as[@]}" mariadbd --no-defaults --datadir="$folder/data" --socket="$folder/socket" --pid-file="$folder/pid" --tmpdir="$folder/tmp" \
    "${listen[@]}" --skip-name-resolve --innodb-flush-method=nosync --innodb-buffer-pool-size=32M --innodb-log-file-size=32M \
    --max-connections=300 >/dev/null 2>>"$folder/log" </dev/null &
  server=$!
  until "${client[@]}" --execute='SELECT 1' >/dev/null 2>&1; do
    kill -0 $server || { cat "$folder/log" >&2; exit 1; }
    sleep 0.1
  done
}
# Waits until every thread of the processes has stopped: some answer on until one of them takes the signal.
stopped() {
  local process
  for process; do
    while grep -qs '^State:.[^TZX]' /proc/"$process"/task/*/status; do sleep 0.01; done
  done
}
# The shell says nothing of the server's end.
trap 'kill -KILL $server || true; { wait $server || true; } 2>/dev/null; rm -rf "$folder"' EXIT
start
"${client[@]}" --execute="CREATE USER kubefold@localhost; GRANT ALL ON *.* TO kubefold@localhost"
echo ready
while read -r order; do
  case $order in
    pause) kill -STOP $server; stopped $server ;;
    resume) kill -CONT $server ;;
    kill) kill -KILL $server; { wait $server || true; } 2>/dev/null ;;
    start) start ;;
    *) echo "mariadb: no such order: $order" >&2; exit 1 ;;
  esac
  echo ready
done
