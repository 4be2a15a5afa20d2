#!/usr/bin/env node
// A worker of external tasks that survives being killed at any moment. Node's own modules only.
//
// Its handlers show which work needs the store and which does not.
import { randomUUID } from 'node:crypto'
import { open, readFile, rename } from 'node:fs/promises'
import { dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { NotDone, Unknown, explicit, once, reserveAll } from './once.mjs'

const ENGINE = process.env.CONDUIT_URL.replace(/\/$/, '') + '/api/v1/external-tasks'
const WORKER = `node-${randomUUID()}` // of this process alone: two workers of one name would fight over locks
const LOCK = 30 // seconds

async function engine(path, body) {
  const answer = await fetch(`${ENGINE}/${path}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ worker_id: WORKER, ...body }),
    signal: AbortSignal.timeout(15_000),
  })
  const text = await answer.text()
  if (!answer.ok) throw new Error(`the engine answered ${answer.status} to ${path}: ${text}`)
  return text && JSON.parse(text)
}

// A variable of a task. One that is missing or null, and must not be, is a failure.
function variable(task, name, otherwise) {
  const value = task.variables.find((v) => v.name === name)?.value ?? otherwise
  if (value === undefined) throw new NotDone(`the variable ${name} is missing`)
  return value
}

// A value as it is sent: a string as it is, anything else as JSON.
const text = (value) => (typeof value === 'string' ? value : JSON.stringify(value))

// The request that a task asks for. It is read before anything else, so that a bad one does nothing.
function wanted(task, method = text(variable(task, 'method'))) {
  const url = text(variable(task, 'url'))
  if (!/^[a-z]+$/i.test(method) || !/^https?:\/\//.test(url)) throw new NotDone(`${method} ${url} is no request`)
  return { method, url, body: method === 'GET' ? undefined : text(variable(task, 'body', '')) }
}

// Handlers return what to complete the task with, or undefined to report nothing, or throw NotDone to report a failure.

const UNSENT = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN']

// One request to the upstream. What it says is a result, be it a refusal; but a 429 is none, and after a 5xx nobody knows.
async function request({ url, method, body }, { headers, signal } = {}) {
  const ends = [AbortSignal.timeout(300_000), ...(signal ? [signal] : [])]
  let asked, answer, bytes
  try {
    headers = { 'Content-Type': 'application/json', ...headers }
    // No redirect is followed: one that leads nowhere would look as if nothing had been sent.
    asked = new Request(url, { method, headers, body, redirect: 'manual', signal: AbortSignal.any(ends) })
    answer = await fetch(asked)
    bytes = Buffer.from(await answer.arrayBuffer())
  } catch (why) {
    // It cannot be sent, or there never was a connection.
    const unsent = !asked || [why.cause, ...(why.cause?.errors ?? [])].some((e) => UNSENT.includes(e?.code))
    throw new (unsent ? NotDone : Unknown)(`${url}: ${why.cause?.message ?? why.message}`)
  }
  if (answer.status === 429) throw new NotDone(`${url} answered 429`)
  if (answer.status >= 500) throw new Unknown(`${url} answered ${answer.status}`)
  const keep = [...answer.headers].filter(([name]) => ['content-type', 'location'].includes(name))
  return { status: answer.status, headers: keep, body_base64: bytes.toString('base64') }
}

// Asks the upstream by a natural key, here its url, whether the effect has happened.
async function look(url) {
  const response = await request({ url, method: 'GET' }).catch(() => undefined)
  return { 200: response, 404: false }[response?.status]
}

// Writes to an upstream that ignores Idempotency-Key: through the store, reserved by the batch as they were fetched.
async function httpCall(tasks) {
  const good = []
  for (const task of tasks) await report(task, () => void good.push({ task, want: wanted(task) })) // a bad one fails by itself
  const keys = good.map(({ task }) => [task.id, task.retry_count])
  const terms = good.map(({ task, want }) => explicit(task.topic, JSON.stringify([want.method, want.url, want.body])))
  const reserved = await reserveAll(keys, terms)
  for (const [i, { task, want }] of good.entries()) {
    const beat = () => engine(`${task.id}/extend-lock`, { lock_duration_secs: LOCK })
    const effect = (signal) => request(want, { signal })
    await report(task, () => once(keys[i], effect, () => look(want.url), terms[i], { beat, ...reserved[i] }))
  }
}

// What may be tried again: a failure is reported whatever went wrong, also where nobody knows.
const again = (handler) => async (task) => {
  try {
    return await handler(task)
  } catch (why) {
    throw new NotDone(why.message)
  }
}

// Writes to an upstream that honours Idempotency-Key, which is the same at each delivery and each attempt: perhaps it
// happened, but trying again does not make it happen twice.
const httpCallKeyed = (task) => request(wanted(task), { headers: { 'Idempotency-Key': `conduit-task-${task.id}` } })

const httpGet = (task) => request(wanted(task, 'GET')) // a read has no effect

async function csvRead(task) {
  return { rows: parseCSV(await readFile(variable(task, 'path'), 'utf8')) }
}

// Writes beside the file, under a name of the task's own, and renames: a reader sees all of it or nothing.
async function csvWrite(task) {
  const [path, rows] = [variable(task, 'path'), variable(task, 'rows')]
  const beside = `${path}.tmp.${task.id}`
  const quote = (field) => (/[",\r\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field)
  const file = await open(beside, 'w')
  await file.writeFile(rows.map((row) => row.map(quote).join(',') + '\n').join(''))
  await file.sync()
  await file.close()
  await rename(beside, path)
  const folder = await open(dirname(path))
  await folder.sync()
  await folder.close()
  return { path }
}

function parseCSV(text) {
  const rows = []
  let row = []
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)/g)) {
    if (end === '' && row.length === 0 && !quoted && !plain) break // behind the last line
    row.push(quoted?.replaceAll('""', '"') ?? plain)
    if (end === ',') continue
    rows.push(row)
    row = []
  }
  return rows
}

// Has a task handled, and tells the engine what is known. Where nothing is, its lock passes and it comes again.
async function report(task, handle) {
  try {
    const result = await handle(task)
    if (result === undefined) return
    const { status = 200, body, body_base64 = '' } = result
    const text = body ?? Buffer.from(body_base64, 'base64').toString()
    const out = result.status
      ? [{ name: 'status', value_type: 'Long', value: status }, { name: 'body', value_type: 'String', value: text }]
      : Object.entries(result).map(([name, value]) => ({ name, value_type: 'Json', value }))
    if (status < 400) await engine(`${task.id}/complete`, { variables: out })
    else await engine(`${task.id}/bpmn-error`, { error_code: `HTTP_${status}`, error_message: 'the upstream declined', variables: out })
  } catch (why) {
    if (why instanceof NotDone) await engine(`${task.id}/failure`, { error_message: why.message })
    else console.error(why) // nothing is known of it
  }
}

const each = (handler) => async (tasks) => {
  for (const task of tasks) await report(task, again(handler))
}

const HANDLERS = {
  'http.call': httpCall,
  'http.call.keyed': each(httpCallKeyed),
  'http.get': each(httpGet),
  'csv.read': each(csvRead),
  'csv.write': each(csvWrite),
}

async function work(topic, handler) {
  for (;;) {
    try {
      const tasks = await engine('fetch-and-lock', { topic, max_jobs: 10, lock_duration_secs: LOCK })
      if (tasks.length > 0) await handler(tasks)
    } catch (why) {
      console.error(why) // what was fetched and not reported comes again
      await sleep(500)
    }
  }
}

await Promise.all(Object.entries(HANDLERS).map(([topic, handler]) => work(topic, handler)))
