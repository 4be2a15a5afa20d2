// once(): a side effect that happens once in a fleet of workers. Node's own fetch only; for copying.
import { createHash, randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

const STORE = process.env.IDEMSTORE_URL.replace(/\/$/, '') + '/v1'
const TOKEN = process.env.IDEMSTORE_TOKEN ?? ''
const OWNER = `node-${randomUUID()}`
const LEASE = 30 // seconds; renewed while an effect lasts

export class NotDone extends Error {} // the effect certainly did not happen
export class Unknown extends Error {} // the effect may have happened

// Performs effect(signal) unless it has been performed. Returns the response, or undefined: then report nothing to the engine.
// key is [task id, retry count]. look() asks the upstream whether it happened: the response if so, false if not, undefined if
// it cannot tell. beat() is called at each renewal. reservation and said are a reserve's that came by the batch.
// Throws NotDone if nothing happened.
export async function once(key, effect, look, terms, { beat = () => {}, reservation = randomUUID(), said } = {}) {
  // A reserve whose answer is not known, also one in the batch, is repeated under its id. Each new one has a fresh id.
  for (let takeovers = [], found = false; ; said = undefined, reservation = randomUUID()) {
    said ??= await store(key, 'reserve', { reservation_id: reservation, ...terms, takeovers })
    if (said.outcome === 'recorded') return said.response // it has been done: replay
    if (said.outcome === 'in_doubt' && said.takeovers.length > 0) {
      // somebody vanished who may have acted
      found = await look()
      if (found === undefined) return
      takeovers = said.takeovers // the fences that were looked into, and no others
    } else if (said.outcome === 'reserved' && found) {
      return record(key, reservation, found) // the look has found what the vanished one did
    } else if (said.outcome === 'reserved') {
      const begun = await dispatch(key, reservation)
      if (begun.outcome === 'already_recorded') return begun.response
      if (begun.outcome === 'dispatched') return perform(key, reservation, effect, beat, begun, takeovers.length > 0)
    } else if (said.outcome !== 'lease_lost') {
      console.error(`${key}: ${said.detail}`) // in progress, only an operator can help, or refused
      return
    }
  }
}

// Says that the effect is about to begin. It may if the lease, counted from before the call, has not ended since.
async function dispatch(key, reservation) {
  for (;;) {
    const sent = performance.now()
    const begun = await store(key, 'dispatch', { reservation_id: reservation })
    if (begun.outcome !== 'dispatched' || performance.now() < sent + 1000 * begun.lease_seconds_left) return begun
  }
}

async function perform(key, reservation, effect, beat, begun, earlierNotDone) {
  const lost = new AbortController() // breaks the effect off
  const ended = new AbortController() // stops the renewing
  renew(key, reservation, ended.signal, beat, begun.lease_seconds_left).catch((why) => lost.abort(why))
  let response
  try {
    response = await effect(lost.signal)
  } catch (why) {
    if (!(why instanceof NotDone)) {
      console.error(`${key}: ${why.message}`) // the key will be in doubt, and the next delivery looks into it
      return
    }
    const reason = why.message.slice(0, 1000)
    const said = await store(key, 'release', { reservation_id: reservation, reason, earlier_not_done: earlierNotDone })
    if (said.outcome === 'released') throw why
    return said.response
  } finally {
    ended.abort()
  }
  return record(key, reservation, response)
}

// Holds the lease until the effect has ended; throws when the lease is lost.
async function renew(key, reservation, ended, beat, left) {
  for (let after = left / 3; ; ) {
    await sleep(1000 * after, undefined, { signal: ended }).catch(() => {})
    if (ended.aborted) return
    await Promise.resolve(beat()).catch(() => {})
    const said = await store(key, 'renew', { reservation_id: reservation, lease_seconds: LEASE }, (left * 2) / 3)
    if (said.outcome !== 'renewed') throw new Unknown(said.detail)
    left = said.lease_seconds_left
    after = said.renew_after_seconds
  }
}

async function record(key, reservation, response) {
  let said = await store(key, 'record', { reservation_id: reservation, response })
  if (said.outcome === 'body_too_large') {
    const { body_base64, ...rest } = response
    const body = Buffer.from(body_base64, 'base64')
    const sum = createHash('sha256').update(body).digest('hex')
    const without = { ...rest, body_omitted: true, body_sha256: sum, body_size: body.length }
    said = await store(key, 'record', { reservation_id: reservation, response: without })
  }
  return said.outcome === 'recorded' ? response : said.response // already_recorded: that one counts
}

// Reserves what was fetched together by one call: what once() takes of each. Those that wait for their turn need no renewing:
// a lease that passes undispatched is no doubt, and dispatch revives it, or fails if another has the task by then.
export async function reserveAll(keys, terms) {
  const items = keys.map(([task_id, attempt], i) => ({ task_id, attempt, reservation_id: randomUUID(), ...terms[i] }))
  const { results } = await post('batch/reserve', { items })
  return results.map(({ status, body }, i) => ({
    reservation: items[i].reservation_id,
    said: status === 429 || status >= 500 ? undefined : body,
  }))
}

// What a reserve says. Scope task: what came in late for an earlier attempt is replayed to this one.
export const explicit = (handler, request) => ({
  owner: OWNER,
  handler,
  request_hash: 'sha256:' + createHash('sha256').update(request).digest('hex'),
  lease_seconds: LEASE,
  dispatch: 'explicit',
  scope: 'task',
})

const store = (key, verb, body, patience) => post(`tasks/${key[0]}/attempts/${key[1]}/${verb}`, body, patience)

// Calls the store, and repeats the very same call until it is answered.
async function post(path, body, patience = 60) {
  const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${TOKEN}` }
  for (const until = performance.now() + 1000 * patience; performance.now() < until; ) {
    let pause = 0.2
    try {
      const signal = AbortSignal.timeout(Math.min(15_000, Math.ceil(500 * patience)))
      const answer = await fetch(`${STORE}/${path}`, { method: 'POST', headers, body: JSON.stringify(body), signal })
      if (answer.status !== 429 && answer.status < 500) return await answer.json()
      pause = Number(answer.headers.get('Retry-After') ?? pause)
    } catch {} // not answered
    await sleep(1000 * pause)
  }
  throw new Unknown(`the store did not answer ${path}`)
}
