"""once(): a side effect that happens once in a fleet of workers. Standard library only; for copying."""

import base64
import contextlib
import hashlib
import http.client
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

STORE = os.environ["IDEMSTORE_URL"].rstrip("/") + "/v1"
TOKEN = os.environ.get("IDEMSTORE_TOKEN", "")
OWNER = f"python-{uuid.uuid4()}"
LEASE = 30  # seconds; renewed while an effect lasts


class NotDone(Exception):
    """The effect certainly did not happen."""


class Unknown(Exception):
    """The effect may have happened."""


def once(key, effect, look, terms, beat=lambda: None, reservation=None, said=None):
    """Performs effect() unless it has been performed. Returns the response, or None: then report nothing to the engine.

    key is (task id, retry count). look() asks the upstream whether it happened: the response if so, False if not, None if it
    cannot tell. beat() is called at each renewal. reservation and said are a reserve's that came by the batch. Raises NotDone
    if nothing happened.
    """
    takeovers, found = [], False
    reservation = reservation or str(uuid.uuid4())  # also of a reserve in the batch whose answer is not known: it is repeated
    while True:
        answer = said or store(key, "reserve", reservation, **terms, takeovers=takeovers)
        if answer["outcome"] == "recorded":  # it has been done: replay
            return answer["response"]
        if answer["outcome"] == "in_doubt" and answer["takeovers"]:  # somebody vanished who may have acted
            if (found := look()) is None:
                return None
            takeovers = answer["takeovers"]  # the fences that were looked into, and no others
        elif answer["outcome"] == "reserved" and found:  # the look has found what the vanished one did
            return record(key, reservation, found)
        elif answer["outcome"] == "reserved":
            begun = dispatch(key, reservation)
            if begun["outcome"] == "already_recorded":
                return begun["response"]
            if begun["outcome"] == "dispatched":
                return perform(key, reservation, effect, beat, begun["lease_seconds_left"] / 3, earlier_not_done=bool(takeovers))
        elif answer["outcome"] != "lease_lost":  # in progress, only an operator can help, or refused
            print(f"{key}: {answer.get('detail')}", file=sys.stderr)
            return None
        said, reservation = None, str(uuid.uuid4())  # this one is spent


def dispatch(key, reservation):
    """Says that the effect is about to begin. It may if the lease, counted from before the call, has not ended since."""
    while True:
        sent = time.monotonic()
        begun = store(key, "dispatch", reservation)
        if begun["outcome"] != "dispatched" or time.monotonic() < sent + begun["lease_seconds_left"]:
            return begun


def perform(key, reservation, effect, beat, after, earlier_not_done):
    ended = threading.Event()
    threading.Thread(target=renew, args=(key, reservation, ended, beat, after), daemon=True).start()
    try:
        response = effect()
    except Unknown as why:  # the key will be in doubt, and the next delivery looks into it
        print(f"{key}: {why}", file=sys.stderr)
        return None
    except NotDone as why:
        said = store(key, "release", reservation, reason=str(why)[:1000], earlier_not_done=earlier_not_done)
        if said["outcome"] == "released":
            raise
        return said.get("response")
    finally:
        ended.set()
    return record(key, reservation, response)


def renew(key, reservation, ended, beat, after):
    """Holds the lease until the effect has ended, or the lease is lost."""
    while not ended.wait(after):
        with contextlib.suppress(Exception):
            beat()
        said = store(key, "renew", reservation, lease_seconds=LEASE, patience=LEASE)
        if said["outcome"] != "renewed":
            return
        after = said["renew_after_seconds"]


def record(key, reservation, response):
    said = store(key, "record", reservation, response=response)
    if said["outcome"] == "body_too_large":
        body = base64.b64decode(response["body_base64"])
        without = {"status": response["status"], "headers": response["headers"], "body_omitted": True,
                   "body_sha256": hashlib.sha256(body).hexdigest(), "body_size": len(body)}
        said = store(key, "record", reservation, response=without)
    return response if said["outcome"] == "recorded" else said.get("response")  # already_recorded: that one counts


def reserve_all(keys, terms):
    """Reserves what was fetched together by one call: (reservation, answer) for each, as once() takes them.

    Those that wait for their turn need no renewing: a lease that passes undispatched is no doubt, and dispatch revives it,
    or fails if another has the task by then.
    """
    ids = [str(uuid.uuid4()) for _ in keys]
    items = [{"task_id": k[0], "attempt": k[1], "reservation_id": i, **t} for k, i, t in zip(keys, ids, terms)]
    results = post("batch/reserve", {"items": items})["results"]
    return [(i, r["body"] if r["status"] != 429 and r["status"] < 500 else None) for i, r in zip(ids, results)]


def explicit(handler, request_hash):
    """What a reserve says. Scope task: what came in late for an earlier attempt is replayed to this one."""
    return {"owner": OWNER, "handler": handler, "request_hash": request_hash, "lease_seconds": LEASE, "dispatch": "explicit", "scope": "task"}


def store(key, verb, reservation, patience=60, **body):
    return post(f"tasks/{key[0]}/attempts/{key[1]}/{verb}", {"reservation_id": reservation, **body}, patience)


def post(path, body, patience=60):
    """Calls the store, and repeats the very same call until it is answered."""
    until = time.monotonic() + patience
    while True:
        try:
            status, headers, text = call("POST", f"{STORE}/{path}", json.dumps(body), {"Authorization": f"Bearer {TOKEN}"})
            if status != 429 and status < 500:
                return json.loads(text)
            pause = float(dict(headers).get("Retry-After", 0.2))
        except (OSError, http.client.HTTPException):
            pause = 0.2
        if time.monotonic() > until:
            raise Unknown(f"the store did not answer {path}")
        time.sleep(pause)


class Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: one that leads nowhere would look as if nothing had been sent."""

    def http_error_302(self, *_):
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def call(method, url, body=None, headers=None, timeout=15):
    """One HTTP request: its status, headers and bytes, whatever the status."""
    data = None if body is None else body.encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.build_opener(Stay).open(request, timeout=timeout) as answer:
            return answer.status, answer.getheaders(), answer.read()
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, list(answer.headers.items()), answer.read()
