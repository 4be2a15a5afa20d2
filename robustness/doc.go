// Package robustness shows that the service keeps its promises while everything around it breaks.
//
// A run starts a Postgres that keeps its promises too, several replicas of the real program, and proxies between workers
// and replicas and between replicas and Postgres. Workers of every habit share the keys, an upstream counts what they
// do, and a schedule that is drawn from a seed kills, stops, cuts and slows whatever there is. Then everything is healed,
// every key is brought to its end, and the run is judged:
//
//   - by porcupine: each task's history, as its callers saw it, is linearizable against [idem.Policy.Decide] itself. A
//     call that was not answered may or may not have happened.
//   - by SQL over a ledger of every version that a row ever had, which a trigger keeps in the run's own database.
//   - by the upstream's count.
//
// The package is tests alone: docs/robustness.md says how to run them and what they found.
package robustness
