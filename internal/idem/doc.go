// Package idem is what idemstore means: one shared, durable table (task_id, attempt) -> response, by which a fleet of
// workers performs each side effect of an at-least-once engine once.
//
// A worker reserves a key before its side effect, records the response after it, and is given the recorded response
// (a replay) when the task is delivered again.
//
//		            reserve                dispatch               record
//		 (absent) ──────────▶ reserved ──────────────▶ dispatched ───────────▶ recorded
//		    ▲                   │  │                       │                   ▲  ▲   (terminal until its retention ends)
//		    │ retention ends    │  └───────── record ──────┼───────────────────┘  │
//		    │                   └────────── release ───────┤                      │
//		    └── released ◀─────────────────────────────────┘                      │
//		           └───────────────── late record of one that acted ──────────────┘
//
//	  - reserved: a holder has the key until its lease ends.
//	  - dispatched: the holder has said that its side effect is about to begin.
//	  - recorded: the response is kept and replayed.
//	  - released: the holder, or an operator, has said that the side effect did not happen.
//
// # Doubt
//
// Between the side effect and its record there is a window that no store can close, and idemstore does not hide it. A
// grant whose lease has passed may have acted if it was dispatched, or had not promised to dispatch: it is a doubt.
// Doubts belong to the key and a takeover inherits them. They end only by a record, by an operator's word, by the
// doubtful holder's own release, or by the present holder's release that says that nothing earlier was done. A key with
// no record, no live lease and a doubt is in doubt, which is derived by [Entry.InDoubt] and never stored. It is granted
// only to a takeover that quotes the newest fence, or after an operator's word, until its retention ends.
//
// # Judgement
//
// [Policy.Decide] is the whole protocol: a pure function from what is known of a task, a command and the database's
// time to an outcome and the changes that must be durable before it is told. Every verb is judged in one order: absent,
// hash mismatch (reserve only), never granted, recorded (a repeated release is a success first), spent (at record only
// those whose record is not welcome), live, in doubt. The key itself is judged first; only where it would be granted,
// the task's other attempts are looked at, highest first.
//
//   - First record wins, whoever holds: the current grant and every earlier one that may have acted and was not
//     released by its own holder. Whatever else is offered is kept as evidence.
//   - Repeating yourself is success: every command that carries a reservation is safe to repeat.
//   - Fences count the grants of one life of a key. Whatever revives a passed lease raises the fence, so that an old
//     look never authorises a takeover.
//   - A key past its retention behaves as absent; where that ends a doubt, the trail tells it.
//
// # Time and durability
//
// [Store] has two verbs, load and compare-and-swap, and brings the database's time; a replica's clock decides nothing.
// A decision may rest on a guess of what is stored: the swap proves or refuses it.
package idem
