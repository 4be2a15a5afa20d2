#!/usr/bin/env python3
"""A worker of external tasks that survives being killed at any moment. Standard library only.

Its handlers show which work needs the store and which does not.
"""

import base64
import csv
import hashlib
import http.client
import json
import os
import socket
import threading
import time
import traceback
import uuid

from once import NotDone, Unknown, call, explicit, once, reserve_all

ENGINE = os.environ["CONDUIT_URL"].rstrip("/") + "/api/v1/external-tasks"
WORKER = f"python-{uuid.uuid4()}"  # of this process alone: two workers of one name would fight over locks
LOCK = 30  # seconds


def engine(path, **body):
    status, _, answer = call("POST", f"{ENGINE}/{path}", json.dumps({"worker_id": WORKER, **body}))
    if status >= 300:
        raise RuntimeError(f"the engine answered {status} to {path}: {answer.decode(errors='replace')}")
    return json.loads(answer or "null")


def variable(task, name, default=None):
    """A variable of a task. One that is missing or null, and must not be, is a failure."""
    value = next((v["value"] for v in task["variables"] if v["name"] == name), None)
    if value is None and default is None:
        raise NotDone(f"the variable {name} is missing")
    return default if value is None else value


def text(value):
    """A value as it is sent: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def wanted(task, method=None):
    """The request that a task asks for: method, url and body. It is read before anything else, so that a bad one does nothing."""
    method, url = method or text(variable(task, "method")), text(variable(task, "url"))
    if not (method.isascii() and method.isalpha() and url.startswith(("http://", "https://"))):
        raise NotDone(f"{method} {url} is no request")
    return method, url, None if method == "GET" else text(variable(task, "body", ""))


# Handlers return what to complete the task with, or None to report nothing, or raise NotDone to report a failure.


def request(method, url, body=None, headers=None):
    """One request to the upstream. What it says is a result, be it a refusal; but a 429 is none, and after a 5xx nobody knows."""
    try:
        status, answered, content = call(method, url, body, headers, timeout=300)
    except (ValueError, http.client.InvalidURL) as why:  # it cannot be sent
        raise NotDone(f"{url}: {why}") from why
    except (OSError, http.client.HTTPException) as why:
        if isinstance(getattr(why, "reason", why), (ConnectionRefusedError, socket.gaierror)):  # there never was a connection
            raise NotDone(f"{url}: {why}") from why
        raise Unknown(f"{url}: {why!r}") from why
    if status == 429:
        raise NotDone(f"{url} answered 429")
    if status >= 500:
        raise Unknown(f"{url} answered {status}")
    keep = [[name, value] for name, value in answered if name.lower() in ("content-type", "location")]
    return {"status": status, "headers": keep, "body_base64": base64.b64encode(content).decode()}


def look(url):
    """Asks the upstream by a natural key, here its url, whether the effect has happened."""
    try:
        response = request("GET", url)
    except (NotDone, Unknown):
        return None
    return {200: response, 404: False}.get(response["status"])


def http_call(tasks):
    """Writes to an upstream that ignores Idempotency-Key: through the store, reserved by the batch as they were fetched."""
    good = []
    for task in tasks:
        report(task, lambda task: good.append((task, wanted(task))))  # a bad one fails by itself
    keys = [(task["id"], task["retry_count"]) for task, _ in good]
    terms = [explicit(task["topic"], "sha256:" + hashlib.sha256(json.dumps(w).encode()).hexdigest()) for task, w in good]
    for (task, w), key, term, (reservation, said) in zip(good, keys, terms, reserve_all(keys, terms)):
        report(task, lambda task: once(
            key, lambda: request(*w), lambda: look(w[1]), term,
            beat=lambda: engine(f"{task['id']}/extend-lock", lock_duration_secs=LOCK), reservation=reservation, said=said))


def again(handler):
    """What may be tried again: a failure is reported whatever went wrong, also where nobody knows."""
    def handle(task):
        try:
            return handler(task)
        except Exception as why:
            raise NotDone(str(why)) from why
    return handle


def http_call_keyed(task):
    """Writes to an upstream that honours Idempotency-Key, which is the same at each delivery and each attempt: perhaps it
    happened, but trying again does not make it happen twice."""
    return request(*wanted(task), headers={"Idempotency-Key": f"conduit-task-{task['id']}"})


def http_get(task):
    return request(*wanted(task, "GET"))  # a read has no effect


def csv_read(task):
    with open(variable(task, "path"), newline="", encoding="utf-8") as f:
        return {"rows": list(csv.reader(f))}


def csv_write(task):
    """Writes beside the file, under a name of the task's own, and renames: a reader sees all of it or nothing."""
    path, rows = variable(task, "path"), variable(task, "rows")
    beside = f"{path}.tmp.{task['id']}"
    with open(beside, "w", newline="", encoding="utf-8") as f:
        csv.writer(f, lineterminator="\n").writerows(rows)
        f.flush()
        os.fsync(f.fileno())
    os.replace(beside, path)
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    return {"path": path}


def report(task, handler):
    """Has a task handled, and tells the engine what is known. Where nothing is, its lock passes and it comes again."""
    try:
        result = handler(task)
        if result is None:
            return
        status = result.get("status", 200)
        if "status" in result:
            body = result.get("body") or base64.b64decode(result.get("body_base64", "")).decode(errors="replace")
            out = [{"name": "status", "value_type": "Long", "value": status}, {"name": "body", "value_type": "String", "value": body}]
        else:
            out = [{"name": name, "value_type": "Json", "value": value} for name, value in result.items()]
        if status < 400:
            engine(f"{task['id']}/complete", variables=out)
        else:
            engine(f"{task['id']}/bpmn-error", error_code=f"HTTP_{status}", error_message="the upstream declined", variables=out)
    except NotDone as why:
        engine(f"{task['id']}/failure", error_message=str(why))
    except Exception:  # nothing is known of it
        traceback.print_exc()


def each(handler):
    return lambda tasks: [report(task, again(handler)) for task in tasks]


HANDLERS = {"http.call": http_call, "http.call.keyed": each(http_call_keyed), "http.get": each(http_get),
            "csv.read": each(csv_read), "csv.write": each(csv_write)}


def work(topic, handler):
    while True:
        try:
            tasks = engine("fetch-and-lock", topic=topic, max_jobs=10, lock_duration_secs=LOCK)
            if tasks:
                handler(tasks)
        except Exception:  # what was fetched and not reported comes again
            traceback.print_exc()
            time.sleep(0.5)


if __name__ == "__main__":
    for item in HANDLERS.items():
        threading.Thread(target=work, args=item).start()
