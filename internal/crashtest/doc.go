// Package crashtest finds out whether a worker performs each side effect once, by killing it where it hurts.
//
// A run is a number of cases. Each case has a world of its own on free ports of loopback: an engine that hands out one
// task at least once, an upstream that counts effects, a proxy before the store, and one process of the worker at a
// time. Every request that the worker makes passes through the case, so the kill is exact and not timed: the worker and
// all that it has started get SIGKILL when the request that marks the point is seen, and that request is not passed on,
// or its answer is withheld. The worker is then started again, and the task handed out again with its retry count
// unchanged.
//
// # What a worker is told
//
// By its environment, which is otherwise the crash test's own:
//
//	CONDUIT_URL      the engine: POST /api/v1/external-tasks/fetch-and-lock, {id}/complete, {id}/failure, {id}/bpmn-error, {id}/extend-lock
//	UPSTREAM_URL     the upstream, below which each task's url is
//	IDEMSTORE_URL    the store (by way of the proxy)
//	IDEMSTORE_TOKEN  its token
//	CRASHTEST_DIR    a directory of the case, for handlers that read and write files; empty, but for the file of csv.read
//	TMPDIR           another, for temporary files; both are removed at the end
//	NO_PROXY         has 127.0.0.1 added, and so has no_proxy
//
// A task's topic is its handler. Its variables are:
//
//	http.call        url (String), method (String), body (String, JSON): a write; the upstream ignores Idempotency-Key
//	http.call.keyed  the same; the upstream honours Idempotency-Key: the same key gets the first answer again and no second effect
//	http.get         url, method: a read, with nothing to protect
//	csv.read         path (String)
//	csv.write        path (String), rows (Json: an array of arrays of strings)
//	any other        those of http.call, and the ones given by the user, which win
//
// GET on a task's url is the natural key: 200 with the answer that the effect got, or 404 if it has not happened. A
// handler of one's own whose effects are seen by nobody here may append a line to the file effects in CRASHTEST_DIR for
// each.
//
// Locks of the engine and leases of the store are granted for a second or two, however long they were asked for, so
// that nobody waits; the answers say so (locked_until, lease_seconds_left, renew_after_seconds), and a worker goes by
// them. The lock of a worker that was killed ends with it; the lease of its key does not, so the next process meets
// in_progress first. A lock that has passed is still its holder's until another has it.
//
// # What the upstream does
//
// In the scenario plain it acts and answers 201. slow: it acts, and answers once one and a half leases have passed.
// refuses: nobody listens until the worker has reported, released, or been handed the task again, or for a second.
// declines: it answers 402 and does not act, which is a result. fails: it answers 503 once, without having acted.
// falters: it acts, and answers 500, once. drops: it acts, and closes the connection without an answer, once.
//
// # What the verdicts mean
//
// A case is over when the task was completed, ended by a bpmn-error or failed for good, and no key of it is held any
// more; or when the worker was told that the key is in doubt, was told again, and for some seconds did nothing about
// it; or when the worker has crashed by itself a few times, or patience ends. The worst that the evidence shows is the
// verdict.
//
//   - duplicate: the effect happened more than once; or the upstream was asked again for an attempt whose answer was
//     recorded, whether or not it acted, for that is one request too many.
//   - lost: the task was completed, and the effect that was due never happened, or the file does not hold the rows. Or
//     the engine was told of a failure for good, although the effect had happened or would have, had the worker tried
//     again. Or it was told nothing at all, while the store knows of no doubt, so that nobody would ever look into it.
//     Or the key is that of the process instance or execution, which other tasks have too (http.call). Where the
//     upstream declines, no effect is due.
//   - in doubt, hidden: somebody who relies on the store or the engine was misled. The task ended (was completed, or
//     failed for good) while a key of it was in doubt or still held. Or a doubt was taken over, where repeating is not
//     harmless (http.call), by a process that had not asked the upstream since it was told of it, even if it went well
//     by chance. Or the effect was begun there without a lease, or after it had passed. Or a response was recorded that
//     the upstream had not given this process, and that is not the upstream's either: such a record stops everybody
//     else from doing what may not have been done. Or a lease passed under a worker at work, whether or not it was
//     renewed later: meanwhile the key was in doubt for all others.
//   - in doubt, reported: at most one effect, the task neither completed nor failed, and the key in doubt in the store,
//     where an operator finds it. This is what a worker should do that cannot ask its upstream, and is no fault.
//   - pass: none of these.
//
// Reporting a failure that only moves the retry count on hides nothing by itself: the store shows the doubt to the next
// attempt. All keys that the worker used are looked at, whether or not they are the task's own, by a replay in the name
// idemstore-crashtest.
//
// Of handlers that are not known here, as many effects are due as were seen when nobody was killed. If none was, there is
// nothing to judge by, and no test is made.
//
// What a run cannot see: effects elsewhere than at the upstream, in the file, or in the file effects; the moments
// within the writing of a file; and processes that are neither killed nor ended, because nobody can tell whose they are: a
// container started by a client, and on Linux a process that has left the process group, has no parent left, and has
// cleared its environment or is another user's. Elsewhere every process that has left the group is one.
package crashtest
