// Requests to kubefold, by the local server that has its login.

import { cell } from './preact.js';

const ROOT = '/fleet';
export const TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';
const AGGREGATED = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';
// Below it is the discovery of what can be searched: kubefold's own objects, for one, are in no member.
const SEARCHED = '/apis/clusterpedia.io/v1beta1/resources';
// Milliseconds between attempts.
const PAUSE_FIRST = 500;
const PAUSE_MAX = 10_000;
const WARNINGS_MAX = 50;

// kubefold, or the local server, answered with an error.
export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }

  // Whether the same request may succeed later.
  get mayPass() {
    return this.code === 410 || this.code === 429 || this.code >= 500;
  }
}

// The warnings of answers, each once, the newest first: {text, about, isSeen}.
export const warnings = cell([]);
// What does not work now, by what asks for it: {text, retryAt}.
export const problems = cell(new Map());

function warn(text) {
  // The same warning says another time each time.
  const about = text.replace(/(?:\d+(?:ms|[smhd]))+/g, '');
  const known = warnings.value.find((warning) => warning.about === about);
  const rest = warnings.value.filter((warning) => warning !== known);
  warnings.set([{ text, about, isSeen: known?.isSeen ?? false }, ...rest].slice(0, WARNINGS_MAX));
}

export function dismissWarnings() {
  warnings.set(warnings.value.map((warning) => ({ ...warning, isSeen: true })));
}

// Source: RFC 7234 section 5.5. A browser gives all headers of the name as one.
export function warningsOf(header) {
  const texts = [...(header ?? '').matchAll(/\d{3} \S+ "((?:[^"\\]|\\.)*)"/g)];
  return texts.map(([, text]) => text.replace(/\\(.)/g, '$1'));
}

// The answer to a read, or to an order with its body.
export async function ask(path, { accept = 'application/json', signal, order } = {}) {
  const sent = order ? { method: 'POST', body: JSON.stringify(order) } : {};
  const headers = order ? { accept, 'content-type': 'application/json' } : { accept };
  const response = await fetch(ROOT + path, { ...sent, headers, signal, cache: 'no-store' });
  warningsOf(response.headers.get('warning')).forEach(warn);
  if (response.ok) return response;
  const text = await response.text();
  let message = text.trim();
  try {
    message = JSON.parse(text).message ?? message;
  } catch {
    // Not every server on the way says it in JSON.
  }
  throw new Refused(response.status, message || `the answer is ${response.status}`);
}

export async function json(path, options) {
  return (await ask(path, options)).json();
}

// The lines of an answer, as they come.
export async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const whole = (rest + value).split('\n');
    rest = whole.pop();
    yield* whole;
  }
  if (rest) yield rest;
}

function problem(id, text, retryAt) {
  const all = new Map(problems.value);
  if (text) all.set(id, { text, retryAt });
  else if (!all.delete(id)) return;
  problems.set(all);
}

// Ends after some time, or with the signal.
export function wait(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}

function shown(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener('visibilitychange', resolve, { once: true });
    signal.addEventListener('abort', resolve, { once: true });
  });
}

// Makes attempts until the signal, one after another, later and later while they fail, and none while nobody looks. An attempt
// is given a function that says that it works, and a signal that ends when nobody looks any more. What can never work is thrown.
export async function persist(signal, attempt) {
  const id = Symbol('asks');
  let pause = PAUSE_FIRST;
  const works = () => {
    pause = PAUSE_FIRST;
    problem(id, null);
  };
  try {
    while (!signal.aborted) {
      await shown(signal);
      if (signal.aborted) return;
      const looked = new AbortController();
      const hidden = () => document.hidden && looked.abort();
      document.addEventListener('visibilitychange', hidden);
      try {
        await attempt(works, AbortSignal.any([signal, looked.signal]));
      } catch (error) {
        if (signal.aborted) return;
        if (looked.signal.aborted) continue;
        if (error instanceof Refused && !error.mayPass) throw error;
        const text = error instanceof Refused ? error.message : 'The connection is lost: is kubefold ui still running?';
        problem(id, text, Date.now() + pause);
        await wait(pause, signal);
        pause = Math.min(pause * 2, PAUSE_MAX);
      } finally {
        document.removeEventListener('visibilitychange', hidden);
      }
    }
  } finally {
    problem(id, null);
  }
}

// Reads again and again: `take` is given each answer.
export function poll(path, interval, signal, take) {
  return persist(signal, async (works, looked) => {
    take(await json(path, { signal: looked }));
    works();
    await wait(interval, looked);
  });
}

let discovered;

// Every kind that can be listed, the preferred version alone: {group, version, resource, kind, names, isNamespaced, isWatched, isSearched}.
export function kinds() {
  discovered ??= discover().catch((error) => {
    discovered = undefined;
    throw error;
  });
  return discovered;
}

async function discover() {
  const [found, searched] = await Promise.all([discoverBelow(''), discoverBelow(SEARCHED).catch(() => [])]);
  const known = new Set(searched.map(qualified));
  return found.map((kind) => ({ ...kind, isSearched: known.has(qualified(kind)) }))
    .sort((one, other) => one.resource.localeCompare(other.resource) || one.group.localeCompare(other.group));
}

async function discoverBelow(root) {
  const documents = await Promise.all(['/api', '/apis'].map((path) => json(root + path, { accept: AGGREGATED })));
  return documents.flatMap((document) => document.items ?? []).flatMap(kindsOfGroup);
}

function kindsOfGroup(item) {
  const seen = new Set();
  const group = item.metadata?.name ?? '';
  // Searches are a way to other kinds.
  if (group === 'clusterpedia.io') return [];
  const all = (item.versions ?? []).flatMap(({ version, resources = [] }) => resources.map((one) => ({
    group,
    version,
    resource: one.resource,
    kind: one.responseKind?.kind ?? one.resource,
    names: [one.resource, one.singularResource, ...(one.shortNames ?? [])].filter(Boolean),
    isNamespaced: one.scope === 'Namespaced',
    isListed: one.verbs?.includes('list'),
    isWatched: one.verbs?.includes('watch'),
  })));
  return all.filter((one) => one.isListed && !seen.has(one.resource) && seen.add(one.resource));
}

// `deployments.apps`
export function qualified({ group, resource }) {
  return group ? `${resource}.${group}` : resource;
}

// `/api/v1/namespaces/shop/pods/web-0`
export function pathOf({ group, version, resource }, namespace = '', name = '', member = '') {
  const begin = `${member ? `/clusters/${encodeURIComponent(member)}` : ''}${group ? `/apis/${group}` : '/api'}/${version}`;
  const within = namespace ? `/namespaces/${encodeURIComponent(namespace)}` : '';
  return `${begin}${within}/${resource}${name ? `/${encodeURIComponent(name)}` : ''}`;
}
