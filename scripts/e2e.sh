#!/usr/bin/env bash
# e2e.sh: builds the image, runs docker-compose.yml and the image by itself, and drives both from outside, through a crash.
#
# It leaves nothing running. Images: POSTGRES_IMAGE, GO_IMAGE and RUNTIME_IMAGE, by default those of docker-compose.yml. Where no registry
# is reachable, OFFLINE_IMAGES names a program that makes stand-ins for them, and starts a Docker engine if none answers.
set -euo pipefail
cd "$(dirname "$0")/.."

OFFLINE_IMAGES=${OFFLINE_IMAGES-}

project=idemstore-e2e-$$
image=$project:image
tmp=$(mktemp -d)
compose=(docker-compose)
engine= # the Docker engine that was started here
export COMPOSE_PROJECT_NAME=$project IDEMSTORE_IMAGE=$image IDEMSTORE_PORT=0 IDEMSTORE_METRICS_PORT=0

step() { printf -- '-- %3ds %s\n' "$SECONDS" "$*"; }
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

containers() { docker ps --all --quiet --filter "name=$project"; }

end() {
  local code=$? container
  trap - EXIT
  if [ "$code" != 0 ]; then
    for container in $(containers); do
      docker inspect --format '== {{.Name}}: {{.State.Status}}, exit status {{.State.ExitCode}}' "$container"
      docker logs --tail 50 "$container"
    done >&2 || true
    [ ! -s "$tmp/body" ] || { echo "== the last answer"; cat "$tmp/head" "$tmp/body"; } >&2
  fi
  timeout 60 "${compose[@]}" down --volumes --remove-orphans --timeout 1 >/dev/null 2>&1 || true
  containers | xargs -r docker rm --force --volumes >/dev/null 2>&1 || true
  docker volume rm "$project-sqlite" >/dev/null 2>&1 || true
  docker image rm "$image" >/dev/null 2>&1 || true
  [ -z "$engine" ] || kill "$engine" || true
  rm -rf "$tmp"
  exit "$code"
}
trap end EXIT

scripts/need.sh curl jq

# --- the engine and the images ---

present() { docker image inspect "$1" >/dev/null 2>&1; }
pulled() { # IMAGE...
  for i in "$@"; do
    present "$i" || timeout 300 docker pull --quiet "$i" >/dev/null 2>&1 || return 1
  done
}

if ! docker info >/dev/null 2>&1; then
  [ -x "$OFFLINE_IMAGES" ] || fail "no Docker engine answers"
  step "starting a Docker engine"
  "$OFFLINE_IMAGES" --start >/dev/null
  engine=$(cat /var/run/docker.pid)
fi
if docker compose version >/dev/null 2>&1; then compose=(docker compose); fi
command -v "${compose[0]}" >/dev/null || fail "neither docker compose nor docker-compose is here"

: "${POSTGRES_IMAGE:=postgres:17-alpine}" "${GO_IMAGE:=golang:1.26}" "${RUNTIME_IMAGE:=gcr.io/distroless/static:nonroot}"
context=. modules=download
if ! pulled "$POSTGRES_IMAGE" "$GO_IMAGE" "$RUNTIME_IMAGE"; then
  [ -x "$OFFLINE_IMAGES" ] || fail "cannot pull $POSTGRES_IMAGE, $GO_IMAGE and $RUNTIME_IMAGE"
  step "no registry: stand-in images"
  "$OFFLINE_IMAGES" >/dev/null
  POSTGRES_IMAGE=idemstore-dev/postgres:15 GO_IMAGE=idemstore-dev/golang:1.26 RUNTIME_IMAGE=idemstore-dev/static:nonroot
  # The builder may reach no module proxy either: give it the modules.
  context=$tmp/context modules=vendor
  mkdir "$context"
  git ls-files --cached --others --exclude-standard -z | tar --null --files-from=- --ignore-failed-read -c 2>/dev/null | tar -C "$context" -x
  (cd "$context" && go mod vendor)
fi
export POSTGRES_IMAGE GO_IMAGE RUNTIME_IMAGE

step "building the image (modules: $modules)"
timeout 900 docker build --tag "$image" --build-arg GO_IMAGE="$GO_IMAGE" --build-arg RUNTIME_IMAGE="$RUNTIME_IMAGE" \
  --build-arg MODULES="$modules" --build-arg RELEASE=e2e "$context" >"$tmp/build" 2>&1 || { tail -40 "$tmp/build" >&2; fail "docker build"; }
[ "$(docker run --rm --name "$project-version" "$image" version)" = "idemstore e2e" ] || fail "the image's version"

# --- talking to it ---

url=
call() { # METHOD PATH [BODY]
  said="$1 $2"
  local body=()
  [ $# -lt 3 ] || body=(-H 'Content-Type: application/json' -d "$3")
  status=$(curl -sS --max-time 15 -X "$1" "${auth[@]}" "${body[@]}" -D "$tmp/head" -o "$tmp/body" -w '%{http_code}' "$url$2")
}
auth=()

expect() { # STATUS FILTER: the last call was answered with this status, and jq's filter is true of its body
  [ "$status" = "$1" ] || fail "$said: want $1, have $status"
  jq -e "$2" "$tmp/body" >/dev/null || fail "$said: not true of the answer: $2"
}

published() { docker port "$1" "$2/tcp" 2>/dev/null | sed -n 1p; } # CONTAINER PORT: the address on this machine

ready() { # CONTAINER: waits until it can serve, and sets url
  local i
  for i in $(seq 120); do
    url=http://$(published "$1" 8080)
    [ "$(curl -s --max-time 3 -o /dev/null -w '%{http_code}' "$url/readyz" || true)" != 200 ] || return 0
    sleep 0.5
  done
  fail "$1 is not ready after a minute"
}

key=/v1/tasks/charge-42/attempts/0
first=0d9c6f1e-5b7a-4e2d-8c3f-9a1b2c3d4e5f
second=5f3c1d2e-8a9b-4c7d-9e0f-1a2b3c4d5e6f
response='{"status":201,"headers":[["Content-Type","application/json"],["Location","/charges/ch_1"]],"body":"{\"id\":\"ch_1\"}"}'
replayed=".outcome == \"recorded\" and .replayed_attempt == 0 and .recorded_by == \"worker-1\" and .late == false and .response == $response"

reserve_and_record() {
  call POST $key/reserve "{\"owner\":\"worker-1\",\"reservation_id\":\"$first\"}"
  expect 201 ".outcome == \"reserved\" and .fence == 1 and .reservation_id == \"$first\" and .doubts == [] and .idempotency_key == \"conduit-task-charge-42\""
  call POST $key/reserve "{\"owner\":\"worker-2\",\"reservation_id\":\"$second\"}"
  expect 409 '.code == "in_progress" and .owner == "worker-1" and .retry_after_seconds >= 1'
  call POST $key/record "{\"reservation_id\":\"$first\",\"response\":$response}"
  expect 201 '.outcome == "recorded" and .late == false'
}

replays() {
  call GET "$key/replay?owner=worker-2"
  expect 200 "$replayed"
  grep -qi '^idempotency-replayed: true' "$tmp/head" || fail "$said: no Idempotency-Replayed"
  call POST $key/reserve "{\"owner\":\"worker-2\",\"reservation_id\":\"$second\"}"
  expect 200 "$replayed"
  call POST $key/record "{\"reservation_id\":\"$first\",\"response\":$response}"
  expect 200 '.outcome == "recorded"'
}

crash() { # CONTAINER
  docker kill --signal KILL "$1" >/dev/null
  docker start "$1" >/dev/null
  ready "$1"
}

# --- a fleet's: the compose file ---

step "compose up: Postgres, migrate, idemstore"
timeout 240 "${compose[@]}" up --detach --no-build >"$tmp/up" 2>&1 || { cat "$tmp/up" >&2; fail "compose up"; }
service=$(timeout 60 "${compose[@]}" ps --quiet idemstore)
ready "$service"
for i in $(seq 60); do
  [ "$(docker inspect --format '{{.State.Health.Status}}' "$service")" != healthy ] || break
  [ "$i" != 60 ] || fail "the container's own health check does not succeed"
  sleep 0.5
done

step "reserve, record, replay"
reserve_and_record
replays

step "no shell, not root, metrics"
[ "$(docker inspect --format '{{.Config.User}}' "$service")" = 65532:65532 ] || fail "it runs as another user than 65532"
docker top "$service" -eo pid,uid | awk 'NR > 1 && $2 != 65532 { exit 1 }' || fail "a process runs as another user than 65532"
! docker exec "$service" /bin/sh -c true >/dev/null 2>&1 || fail "there is a shell"
shells=$(docker export "$service" | tar -t | grep -E '(^|/)(sh|ash|bash|dash|busybox)$' || true)
[ -z "$shells" ] || fail "there is a shell: $shells"
curl -sSf --max-time 10 -o "$tmp/metrics" "http://$(published "$service" 9090)/metrics"
grep -q '^go_info' "$tmp/metrics" || fail "no metrics"

step "kill -9, start again: nothing is lost"
call POST /v1/tasks/charge-43/attempts/0/reserve "{\"owner\":\"worker-1\",\"reservation_id\":\"$first\",\"lease_seconds\":600}"
expect 201 '.fence == 1'
crash "$service"
replays
call POST /v1/tasks/charge-43/attempts/0/reserve "{\"owner\":\"worker-1\",\"reservation_id\":\"$first\",\"lease_seconds\":600}"
expect 201 '.fence == 1 and .doubts == []'

step "SIGTERM: it stops by itself, with status 0"
docker stop --time 25 "$service" >/dev/null
[ "$(docker inspect --format '{{.State.ExitCode}}' "$service")" = 0 ] || fail "it did not stop with status 0"

# --- one machine's: the image alone, with SQLite ---

step "the image alone refuses to let everybody in unasked"
if timeout 30 docker run --rm --name "$project-refused" "$image" >"$tmp/refused" 2>&1; then fail "it started without tokens"; fi
grep -q IDEMSTORE_AUTH "$tmp/refused" || fail "it did not say why: $(cat "$tmp/refused")"

step "the image alone, SQLite in a volume, with a token"
docker run --rm --name "$project-token" "$image" token new --name worker-1 --role worker >"$tmp/token" 2>/dev/null
sed -n 's/^line: *//p' "$tmp/token" >"$tmp/tokens"
chmod 755 "$tmp"
chmod 644 "$tmp/tokens"
docker run --detach --name "$project-sqlite" --publish 127.0.0.1::8080 --read-only --cap-drop ALL \
  --volume "$project-sqlite:/var/lib/idemstore" --volume "$tmp/tokens:/run/tokens:ro" --env IDEMSTORE_TOKENS_FILE=/run/tokens "$image" >/dev/null
ready "$project-sqlite"
call GET "$key/replay"
expect 401 '.code == "unauthenticated"'
auth=(-H "Authorization: Bearer $(sed -n 's/^token: *//p' "$tmp/token")")
reserve_and_record
replays
crash "$project-sqlite"
replays

step "passed"
