#!/bin/sh
# Installs what the tests need besides Go, if it is missing:
#   - PostgreSQL's server programs (initdb, postgres), 14 or later. The tests start a server of their own from them. They do
#     without if IDEMSTORE_TEST_DATABASE_URL names a server, or if a Docker engine can run postgres:17-alpine.
#   - pgbouncer, through which some of them reach it. IDEMSTORE_TEST_PGBOUNCER=1 has all of them do so.
#   - promtool, Prometheus' own, by which the alert rules are checked.
#   - Chromium or Chrome, which the console's tests drive. IDEMSTORE_TEST_CHROMIUM names one that is not in PATH.
#   - what the workers in examples are written in.
set -eu
cd "$(dirname "$0")/.."

oldest=14

# usable DIR: are there server programs in it, and new enough?
usable() {
  [ -x "$1/initdb" ] && [ -x "$1/postgres" ] || return 1
  major=$("$1/postgres" --version | sed -n 's/.*PostgreSQL) \([0-9]*\).*/\1/p')
  [ "${major:-0}" -ge "$oldest" ]
}

# programs: prints the directory of the server programs, if there is one
programs() {
  in_path=$(command -v postgres || true)
  for dir in ${in_path:+"$(dirname "$in_path")"} /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin; do
    if usable "$dir"; then
      echo "$dir"
      return
    fi
  done
  return 1
}

# browser: prints the path of the browser, if there is one
browser() {
  for name in ${IDEMSTORE_TEST_CHROMIUM:+"$IDEMSTORE_TEST_CHROMIUM"} chromium chromium-browser google-chrome-stable google-chrome; do
    if command -v "$name"; then
      return
    fi
  done
  return 1
}

as_root=
if [ "$(id -u)" != 0 ]; then
  as_root=sudo
fi

# updated: has the package lists read, once
updated() {
  [ -z "${lists_read:-}" ] || return 0
  [ -z "$as_root" ] || command -v sudo >/dev/null || { echo "Run this as root: it installs packages." >&2; exit 1; }
  $as_root apt-get update -q
  lists_read=1
}

install_postgres() {
  if ! command -v apt-get >/dev/null; then
    cat >&2 <<END
No PostgreSQL server programs ($oldest or later) were found, and there is no apt-get to install them with. Install them by hand:
  macOS:           brew install postgresql@17
  Fedora, RHEL:    dnf install postgresql-server
  Alpine:          apk add postgresql17
  Arch:            pacman -S postgresql
and put initdb and postgres into PATH if they are not.
END
    exit 1
  fi
  echo "Installing the package postgresql (${as_root:-as root}) ..."
  updated
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends postgresql
  programs >/dev/null || { echo "The package postgresql holds no server programs of $oldest or later; see https://www.postgresql.org/download/" >&2; exit 1; }
}

# take PACKAGE FILE: takes one program out of one of Debian's packages, into bin. Installed, the package would start a daemon.
take() {
  echo "Taking $(basename "$2") from the package $1 ..."
  updated
  mkdir -p bin
  (
    taken=$(mktemp -d)
    trap 'rm -rf "$taken"' EXIT
    cd "$taken"
    apt-get -o APT::Sandbox::User="$(id -un)" download -q "$1"
    dpkg-deb --fsys-tarfile "$1"_*.deb | tar -x "./$2"
    mv "$2" "$OLDPWD/bin/"
  )
}

# can_take: is this a system whose packages take knows?
can_take() { command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; }

# find_pgbouncer: prints where it is, if it is there
find_pgbouncer() {
  for name in pgbouncer /usr/sbin/pgbouncer bin/pgbouncer; do
    if command -v "$name"; then
      return
    fi
  done
  return 1
}

take_pgbouncer() {
  if ! can_take; then
    cat >&2 <<END
pgbouncer was not found, and there is no apt-get to take it from. Install it by hand, into PATH or into bin/:
  macOS:           brew install pgbouncer
  Fedora, RHEL:    dnf install pgbouncer
END
    exit 1
  fi
  take pgbouncer usr/sbin/pgbouncer
  # Its libraries, which are called otherwise in each release.
  if bin/pgbouncer --version >/dev/null 2>&1; then
    return
  fi
  libraries=$(apt-cache depends pgbouncer | sed -n 's/^ *Depends: \(lib[^ ]*\)$/\1/p')
  # shellcheck disable=SC2086 # several
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $libraries
}

# find_promtool: prints where it is, if it is there
find_promtool() {
  command -v promtool || { [ -x bin/promtool ] && echo bin/promtool; }
}

take_promtool() {
  if ! can_take; then
    cat >&2 <<END
promtool was not found, and there is no apt-get to take it from. Install it by hand, into PATH or into bin/:
  macOS:           brew install prometheus
  elsewhere:       https://prometheus.io/download/
END
    exit 1
  fi
  take prometheus usr/bin/promtool
}

programs >/dev/null || install_postgres
echo "PostgreSQL's server programs: $(programs)"
find_pgbouncer >/dev/null || take_pgbouncer
echo "pgbouncer: $(find_pgbouncer)"
find_promtool >/dev/null || take_promtool
echo "promtool: $(find_promtool)"
browser >/dev/null || scripts/need.sh chromium
echo "browser: $(browser)"
scripts/need.sh bash curl jq node python3
