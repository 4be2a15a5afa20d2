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

const variables = (task) => Object.fromEntries(task.variables.map(({ name, value }) => [name, value]))

// Handlers return what to complete the task with, or undefined to report nothing, or throw NotDone to report a failure.

// One request to the upstream. What it says is a result, be it a refusal; but a 429 is none, and after a 5xx nobody knows.
async function request(task, { method, headers = {}, signal } = {}) {
  const v = variables(task)
  const body = method === 'GET' ? undefined : v.body
  const ends = [AbortSignal.timeout(300_000), ...(signal ? [signal] : [])]
  let answer, bytes
  try {
    headers = { 'Content-Type': 'application/json', ...headers }
    // No redirect is followed: one that leads nowhere would look as if nothing had been sent.
    answer = await fetch(v.url, { method: method ?? v.method, headers, body, redirect: 'manual', signal: AbortSignal.any(ends) })
    bytes = Buffer.from(await answer.arrayBuffer())
  } catch (why) {
    const refused = [why.cause, ...(why.cause?.errors ?? [])].some((e) => e?.code === 'ECONNREFUSED')
    throw new (refused ? NotDone : Unknown)(`${v.url}: ${why.cause?.message ?? why.message}`)
  }
  if (answer.status === 429) throw new NotDone(`${v.url} answered 429`)
  if (answer.status >= 500) throw new Unknown(`${v.url} answered ${answer.status}`)
  const keep = [...answer.headers].filter(([name]) => ['content-type', 'location'].includes(name))
  return { status: answer.status, headers: keep, body_base64: bytes.toString('base64') }
}

// Asks the upstream by a natural key, here its url, whether the effect has happened.
async function look(task) {
  const response = await request(task, { method: 'GET' }).catch(() => undefined)
  return { 200: response, 404: false }[response?.status]
}

// Writes to an upstream that ignores Idempotency-Key: through the store, reserved by the batch as they were fetched.
async function httpCall(tasks) {
  const keys = tasks.map((task) => [task.id, task.retry_count])
  const terms = tasks.map((task) => {
    const { method, url, body } = variables(task)
    return explicit(task.topic, JSON.stringify([method, url, body]))
  })
  const reserved = await reserveAll(keys, terms)
  for (const [i, task] of tasks.entries()) {
    const beat = () => engine(`${task.id}/extend-lock`, { lock_duration_secs: LOCK })
    const effect = (signal) => request(task, { signal })
    await report(task, () => once(keys[i], effect, () => look(task), terms[i], { beat, ...reserved[i] }))
  }
}

// What may be tried again: a failure is reported also where nobody knows.
async function again(work) {
  try {
    return await work
  } catch (why) {
    throw new NotDone(why.message)
  }
}

// Writes to an upstream that honours Idempotency-Key, which is the same at each delivery and each attempt: perhaps it
// happened, but trying again does not make it happen twice.
const httpCallKeyed = (task) => again(request(task, { headers: { 'Idempotency-Key': `conduit-task-${task.id}` } }))

const httpGet = (task) => again(request(task, { method: 'GET' })) // a read has no effect

async function csvRead(task) {
  return { rows: parseCSV(await readFile(variables(task).path, 'utf8')) }
}

// Writes beside the file, under a name of the task's own, and renames: a reader sees all of it or nothing.
async function csvWrite(task) {
  const { path, rows } = variables(task)
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
  for (const task of tasks) await report(task, handler)
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
