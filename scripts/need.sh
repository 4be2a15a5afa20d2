#!/usr/bin/env bash
# need.sh PROGRAM...: makes sure that programs are there. As root on Debian or Ubuntu it installs what is missing; anywhere else it says
# what is missing.
set -euo pipefail

missing=()
for program in "$@"; do
  command -v "$program" >/dev/null || missing+=("$program")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]}; install them and try again" >&2
  exit 1
fi
packages=(ca-certificates)
for program in "${missing[@]}"; do
  case $program in
  gcc) packages+=(gcc libc6-dev) ;;
  node) packages+=(nodejs) ;;
  chromium) packages+=(chromium fonts-dejavu-core) ;;
  *) packages+=("$program") ;; # the package has the program's name
  esac
done
echo "installing ${missing[*]} with apt-get" >&2
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
