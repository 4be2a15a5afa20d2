#!/bin/sh
# Installs what the tests need besides Go, if it is missing: PostgreSQL's server programs (initdb, postgres), 14 or later.
# The tests start a server of their own from them. They do without if IDEMSTORE_TEST_DATABASE_URL names a server, or if a
# Docker engine can run postgres:17-alpine.
set -eu

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

if dir=$(programs); then
  echo "PostgreSQL's server programs are there: $dir"
  exit
fi

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

as_root=
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "Run this as root: it installs the package postgresql." >&2; exit 1; }
  as_root=sudo
fi
echo "Installing the package postgresql (${as_root:-as root}) ..."
$as_root apt-get update -q
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends postgresql
dir=$(programs) || { echo "The package postgresql holds no server programs of $oldest or later; see https://www.postgresql.org/download/" >&2; exit 1; }
echo "PostgreSQL's server programs: $dir"
