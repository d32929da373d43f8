#!/usr/bin/env bash
# Runs a PostgreSQL of Debian's packages with a socket in a folder: postgres.sh FOLDER [PORT]
# With PORT it listens on 127.0.0.1, too: for TLS with the folder's server.crt and server.key, and users with passwords.
# `postgres.sh --install` installs these packages where there are none.
#
# It says `ready` once it answers, and after each line of its stdin that it has done: `pause` and `resume` stop all processes of the
# server in their tracks and let them run on, `kill` kills them, `start` starts the server again. When its stdin ends, which is
# at the latest when whoever started it ends, it stops, and removes the folder. PostgreSQL refuses to run as root; then it
# runs as `nobody`.
set -euo pipefail
folder=$1
bin=$(find /usr/lib/postgresql -path '*/bin/postgres' 2>/dev/null | sort -V | tail -1)
bin=${bin%/postgres}
if [[ $folder == --install ]]; then
  [[ -z $bin ]] || exit 0
  echo "postgres: not in /usr/lib/postgresql; installing Debian's packages" >&2
  if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql; } >&2; then
    echo "postgres: it could not be installed; install it, or run this as root on Debian" >&2
    exit 1
  fi
  exit 0
fi
[[ -n $bin ]] || { echo "no PostgreSQL; run: $0 --install" >&2; exit 1; }
as=()
if [[ $(id -u) == 0 ]]; then
  chown nobody "$folder"
  as=(setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups)
fi
cd "$folder"
listen=(-c listen_addresses=)
"${as[@]}" "$bin/initdb" --pgdata="$folder/data" --username=kubefold --auth=trust --no-sync --encoding=UTF8 --locale=C >"$folder/initdb.log"
if [[ $# == 2 ]]; then
  "${as[@]}" install -m 600 /dev/stdin "$folder/data/server.key" <"$folder/server.key"
  "${as[@]}" install -m 600 /dev/stdin "$folder/data/server.crt" <"$folder/server.crt"
  printf 'local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n' >"$folder/data/pg_hba.conf"
  listen=(-c listen_addresses=127.0.0.1 -c "port=$2" -c ssl=on)
  export PGPORT=$2
fi
# A server that was killed may have a child that has not ended: its memory is in use until then.
start() {
  local tries_left
  for tries_left in {9..0}; do
    started && return
    tail -n 2 "$folder/log" | grep -q 'is still in use' && ((tries_left > 0)) || { cat "$folder/log" >&2; exit 1; }
    sleep 0.2
  done
}
started() {
  # The operating system keeps what is written when the server is killed; the power does not go.
  "${as[@]}" "$bin/postgres" -D "$folder/data" -k "$folder" "${listen[@]}" -c max_connections=200 -c fsync=off >/dev/null 2>>"$folder/log" </dev/null &
  server=$!
  until "$bin/pg_isready" --quiet --host="$folder"; do
    kill -0 $server 2>/dev/null || return 1
    sleep 0.1
  done
}
# The postmaster and its children. One of these may end meanwhile.
processes() {
  echo "$server"
  awk -v server=$server '$4 == server { print $1 }' /proc/[0-9]*/stat 2>/dev/null || true
}
signal() {
  # shellcheck disable=SC2046 # a list of numbers
  kill "-$1" $(processes) 2>/dev/null || true
}
# Stops one, and waits until it has stopped: a process may answer on until it takes the signal.
stop() {
  while grep -qs '^State:.[^TZX]' "/proc/$1/status"; do
    kill -STOP "$1" 2>/dev/null || true
    sleep 0.01
  done
}
# The postmaster first, which starts no further child then.
stop_all() {
  local process
  stop "$server"
  for process in $(processes); do stop "$process"; done
}
trap 'kill -CONT $server || true; kill -QUIT $server || true; wait $server || true; rm -rf "$folder"' EXIT
start
ln -s "$bin/psql" "$folder/psql"
echo ready
while read -r order; do
  case $order in
    pause) stop_all ;;
    resume) signal CONT ;;
    kill) signal KILL; wait $server || true ;;
    start) start ;;
    *) echo "postgres: no such order: $order" >&2; exit 1 ;;
  esac
  echo ready
done
