#!/usr/bin/env bash
# A worker of external tasks that survives being killed at any moment. bash, curl, jq and coreutils.
#
# Its handlers show which work needs the store and which does not.
# shellcheck disable=SC2154 # take sets the variables of a task
set -uo pipefail
export LC_ALL=C.UTF-8
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/once.sh"

engine=${CONDUIT_URL%/}/api/v1/external-tasks
worker=bash-$(uuid) # of this process alone: two workers of one name would fight over locks
lock=30 # seconds

# Handlers of a task set response, or return 1 to report nothing, 2 to report a failure.

# sane: is there a request in the task's variables? It is asked before anything else, so that a bad task does nothing.
sane() { [[ $url == http?(s)://* && $method =~ ^[A-Za-z]+$ ]]; }

# request METHOD [CURL OPTION...]: what the upstream says is a result, be it a refusal; but a 429 is none, and after a 5xx nobody knows.
request() {
  local file=$files/$topic code
  code=$(curl -sS --globoff --max-time 300 -X "$1" -D "$file.head" -o "$file.body" -w '%{http_code}' "${@:2}" --url "$url")
  case $? in 0) ;; 3 | 6 | 7) return 2 ;; *) return 1 ;; esac # 3: no URL; 6 and 7: there never was a connection
  ((code != 429)) || return 2
  ((code < 500)) || return 1
  base64 -w0 "$file.body" >"$file.text"
  response=$(jq -Rnc --argjson status "$code" --rawfile body "$file.text" '{status: $status, body_base64: $body,
    headers: [inputs | capture("^(?<n>content-type|location): *(?<v>[^\r]*)"; "i") | [.n, .v]]}' "$file.head")
}

send() { request "$method" -H 'Content-Type: application/json' "$@" --data-binary @- < <(printf %s "$body"); }

# look asks the upstream by a natural key, here its url.
look() {
  request GET || return 2
  case $response in '{"status":200,'*) return 0 ;; '{"status":404,'*) return 1 ;; *) return 2 ;; esac
}

# Writes to an upstream that ignores Idempotency-Key: through the store.
http.call() { once send look "$(terms)" "$@"; }

# Writes to an upstream that honours Idempotency-Key, which is the same at each delivery and each attempt.
http.call.keyed() { sane && send -H "Idempotency-Key: conduit-task-$id" || return 2; } # trying again does not make it happen twice

http.get() { method=GET && sane && request GET || return 2; } # a read has no effect

csv.read() {
  response=$(jq -Rsc 'reduce (if . == "" or endswith("\n") then . else . + "\n" end
      | scan("(\"(?:[^\"]|\"\")*\"|[^\",\r\n]*)(,|\r?\n)")) as [$field, $sep] ({rows: [], row: []};
    .row += [$field | if startswith("\"") then .[1:-1] | gsub("\"\""; "\"") else . end]
    | if $sep == "," then . else .rows += [.row] | .row = [] end) | {rows}' "$path") || return 2
}

# Writes beside the file, under a name of the task's own, and renames: a reader sees all of it or nothing.
csv.write() {
  local beside=$path.tmp.$id
  [ "$path" ] && jq -r '[.variables[] | select(.name == "rows").value] | .[0] // error("no rows") | .[] | @csv' <<<"$task" >"$beside" &&
    sync "$beside" && mv -T "$beside" "$path" && sync "$(dirname "$path")" &&
    response=$(jq -nc --arg path "$path" '{path: $path}') || return 2
}

tell() { post "$engine/$id/$1" "$2, \"worker_id\": \"$worker\"}"; } # CALL JSON, without its last brace

# take TASK: sets task, id, key, and its variables: a string as it is, anything else as JSON, what is missing to nothing. Returns
# 2 for one that bash cannot hold.
take() {
  local set bad=0
  task=$1 url='' method='' body='' path=''
  set=$(jq -r 'def text: if . == null then "" elif type != "string" then tojson elif index("\u0000") then error("a NUL") else . end;
    (.variables | map({(.name): .value}) | add) as $v | @sh "id=\(.id) key=tasks/\(.id)/attempts/\(.retry_count)",
    @sh "url=\($v.url | text) method=\($v.method | text) body=\($v.body | text) path=\($v.path | text)"' <<<"$task") || bad=2
  eval "$set"
  return "$bad"
}

# handle TASK [RESERVATION ANSWER]: has the task handled, and tells the engine what is known. Where nothing is, it comes again.
handle() {
  response=
  take "$1" && "$topic" "${@:2}"
  case $? in
  0)
    answer=$(jq -c 'if .status then [{name: "status", value_type: "Long", value: .status},
        {name: "body", value_type: "String", value: (.body // (.body_base64 // "" | @base64d))}]
      else to_entries | map({name: .key, value_type: "Json", value}) end' <<<"$response")
    case $response in
    *'"status":'[45]*) tell bpmn-error "{\"error_code\": \"DECLINED\", \"error_message\": \"the upstream declined\", \"variables\": $answer" ;;
    *) tell complete "{\"variables\": $answer" ;;
    esac
    ;;
  2) fail ;;
  esac
}

fail() { tell failure '{"error_message": "it was not done"'; }

# http_calls TASK...: reserves them together, but for those that ask for nothing that can be sent: each fails by itself.
http_calls() {
  local good=() each i
  for each in "$@"; do
    if take "$each" && sane; then good+=("$each"); else fail; fi
  done
  reserve_all "${good[@]}" || return
  for i in "${!good[@]}"; do handle "${good[i]}" "${reservations[i]}" "${answers[i]}"; done
}

beat() { tell extend-lock "{\"lock_duration_secs\": $lock"; }

work() {
  local topic=$1 tasks each
  while :; do
    if ! post "$engine/fetch-and-lock" "{\"worker_id\": \"$worker\", \"topic\": \"$topic\", \"max_jobs\": 10, \"lock_duration_secs\": $lock}" ||
      ((status != 200)); then
      sleep 0.5
      continue
    fi
    [ "$answer" != '[]' ] || continue
    mapfile -t tasks < <(get '.[]')
    if [ "$topic" = http.call ]; then
      http_calls "${tasks[@]}"
    else
      for each in "${tasks[@]}"; do handle "$each"; done
    fi
  done
}

for topic in http.call http.call.keyed http.get csv.read csv.write; do
  work "$topic" &
done
trap 'kill $(jobs -p); exit' INT TERM
wait
