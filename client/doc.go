// Package client has a side effect happen once in a fleet of workers whose engine delivers each task at least once.
//
// [Client.Once] is all of it: it reserves the key of a task, calls a function that performs the effect, and records what
// came of it. Where the effect has been recorded before, by this worker or another, the function is not called, and the
// recorded response is returned. Between the two it repeats what was not answered, renews the lease while the effect lasts,
// and releases the key if the function says that nothing happened.
//
// What is left to the caller is what only the caller can know:
//
//   - Whether an effect that failed certainly did not happen: then its function returns [NotDone] of the error. Any other
//     error leaves the key as it is, and so in doubt when its lease has passed, since the effect may have happened.
//   - Whether the effect of a worker that vanished has happened: [WithLook] asks the upstream. Without it, or where it cannot
//     tell, a key in doubt is left to an operator.
//   - What to tell the engine. If the error is nil, complete the task. If [NothingHappened] says so of the error, report a failure:
//     it is known that nothing happened. Otherwise report neither: let the engine's lock pass, and the task come again.
//
// The examples are complete.
package client
