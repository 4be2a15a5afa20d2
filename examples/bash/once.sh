# once: a side effect that happens once in a fleet of workers. bash, curl, jq and coreutils; for copying (source it).
#
# It wants key (tasks/ID/attempts/RETRY_COUNT), topic, worker (who asks) and beat, which is called at each renewal. Functions
# answer in variables: status, answer and outcome of a call, response of an effect.
# shellcheck shell=bash disable=SC2154,SC2034

store=${IDEMSTORE_URL%/}/v1
lease=30 # seconds; renewed while an effect lasts

files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

uuid() { cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen; }

# post URL JSON [CURL OPTION...]: one call; fails if it was not answered.
post() {
  local said
  said=$(curl -sS --max-time 15 -w '\n%{http_code}' -H 'Content-Type: application/json' "${@:3}" --data-binary @- "$1" <<<"$2") || return 1
  status=${said##*$'\n'} answer=${said%$'\n'*}
}

# ask PATH JSON [PATIENCE]: calls the store, and repeats the very same call until it is answered.
ask() {
  local until=$((SECONDS + ${3:-60})) pause
  until post "$store/$1" "$2" -H "Authorization: Bearer ${IDEMSTORE_TOKEN-}" && ((status != 429 && status < 500)); do
    ((SECONDS < until)) || return 1
    pause=$(get '.retry_after_seconds // empty' 2>/dev/null)
    sleep "${pause:-0.2}"
  done
  understand
}

# understand reads what matters of an answer in one go: a jq each would take its time.
understand() { read -r outcome left after < <(get '"\(.outcome) \(.lease_seconds_left // 0) \(.renew_after_seconds // 0)"'); }

get() { jq -cr "$1" <<<"$answer"; }

# once EFFECT LOOK TERMS [RESERVATION ANSWER]: performs EFFECT for the key unless it has been performed, and sets response.
# LOOK asks the upstream whether it happened: 0 if so, with response set, 1 if not, 2 if it cannot tell. RESERVATION and
# ANSWER are a reserve's that came by the batch. Returns 1: report nothing to the engine; 2: nothing happened.
once() {
  local effect=$1 look=$2 terms=$3 takeovers='[]' found=1
  reservation=${4:-$(uuid)} answer=${5-}
  while :; do
    if [ -z "$answer" ]; then # or it is not known, in the batch: then it is repeated under its id
      ask "$key/reserve" "${terms%\}}, \"reservation_id\": \"$reservation\", \"takeovers\": $takeovers}" || return 1
    else
      understand
    fi
    case $outcome in
    recorded) response=$(get .response) && return ;; # it has been done: replay
    in_doubt) # somebody vanished who may have acted
      takeovers=$(get .takeovers) # the fences that are looked into, and no others
      [ "$takeovers" != '[]' ] || return 1
      "$look" && found=0 || found=$?
      ((found < 2)) || return 1
      ;;
    reserved)
      ((found != 0)) || { record && return || return 1; } # the look has found what the vanished one did
      dispatch || return 1
      case $outcome in
      already_recorded) response=$(get .response) && return ;;
      dispatched)
        perform "$effect" "$([ "$takeovers" = '[]' ] && echo false || echo true)"
        return
        ;;
      esac
      ;;
    lease_lost) ;;
    *) get '"\(.task_id): \(.detail)"' >&2 && return 1 ;; # in progress, or refused
    esac
    answer='' reservation=$(uuid) # each new one has a fresh id
  done
}

# say VERB [MEMBERS [PATIENCE]]: a call of the holder's.
say() { ask "$key/$1" "{\"reservation_id\": \"$reservation\"${2:+, $2}}" "${3:-60}"; }

# dispatch says that the effect is about to begin. It may if the lease, counted from before the call, has not ended since.
dispatch() {
  local sent
  while :; do
    sent=${EPOCHREALTIME/[.,]/}
    say dispatch || return 1
    [ "$outcome" = dispatched ] && ((${EPOCHREALTIME/[.,]/} >= sent + 1000000 * left)) || return 0
  done
}

perform() { # EFFECT EARLIER_NOT_DONE
  local renewing result=0
  renew "$((left * 1000 / 3))e-3" &
  renewing=$!
  "$1" || result=$?
  kill "$renewing" 2>/dev/null
  wait "$renewing" 2>/dev/null
  case $result in
  0) record ;;
  2)
    say release "\"reason\": \"there was no connection\", \"earlier_not_done\": $2" || return 1
    [ "$outcome" != released ] || return 2
    response=$(get '.response // ""') && [ -n "$response" ]
    ;;
  *) return 1 ;; # it may have happened: the key will be in doubt, and the next delivery looks into it
  esac
}

# renew AFTER: holds the lease until it is killed or the lease is lost.
renew() {
  after=$1
  while sleep "$after"; do
    say renew "\"lease_seconds\": $lease" "$lease" && [ "$outcome" = renewed ] || return
    beat
  done
}

record() {
  local without
  say record "\"response\": $response" || return 1
  if [ "$outcome" = body_too_large ]; then
    jq -j .body_base64 <<<"$response" | base64 -d >"$files/$topic.large"
    without=$(jq -c --arg sum "$(sha256sum <"$files/$topic.large")" --argjson size "$(stat -c %s "$files/$topic.large")" \
      'del(.body_base64) + {body_omitted: true, body_sha256: $sum[:64], body_size: $size}' <<<"$response")
    say record "\"response\": $without" || return 1
  fi
  [ "$outcome" = recorded ] || response=$(get '.response // ""') # already_recorded: that one counts
  [ -n "$response" ]
}

# terms is what a reserve says. Scope task: what came in late for an earlier attempt is replayed to this one.
terms() {
  local hash
  hash=$(printf '%s\n' "$method" "$url" "$body" | sha256sum)
  printf '{"owner": "%s", "handler": "%s", "request_hash": "sha256:%s", "lease_seconds": %d, "dispatch": "explicit", "scope": "task"}' \
    "$worker" "$topic" "${hash%% *}" "$lease"
}

# reserve_all TASK...: reserves what was fetched together by one call, and sets reservations and answers. Those that wait for
# their turn need no renewing: a lease that passes undispatched is no doubt, and dispatch revives it, or fails if another has
# the task by then.
reserve_all() {
  local items='' each
  reservations=()
  for each in "$@"; do
    take "$each"
    reservations+=("$(uuid)")
    each=$(terms)
    items+=", ${each%\}}, \"task_id\": \"$id\", \"attempt\": ${key##*/}, \"reservation_id\": \"${reservations[-1]}\"}"
  done
  ask batch/reserve "{\"items\": [${items#, }]}" || return 1
  mapfile -t answers < <(get '.results[] | if .status < 500 and .status != 429 then .body else "" end')
}
