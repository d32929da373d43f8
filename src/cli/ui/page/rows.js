// A list of any length, live: its first pages as far as somebody has scrolled, and a watch from the revision that they are of.

import { TABLE, Refused, ask, json, lines, persist, wait } from './api.js';
import { cell } from './preact.js';

// Rows of a page, and of the pages for somebody who has scrolled far ahead.
const PAGE = 500;
const PAGE_FAR = 2_000;
// Milliseconds between lists of what cannot be watched.
const POLL = 5_000;
// Milliseconds before a watch that ended begins again.
const REST = 250;

// Orders of kubefold: of the fleet view by key, and of a search by namespace, name and member.
export const byKey = ({ namespace, name }) => (namespace ? `${namespace}/${name}` : name);
export const bySearch = ({ namespace, name, cluster, uid }) => [namespace, name, cluster, uid].join('\0');

function rowOf({ cells, object }, columns, orderOf) {
  const metadata = object?.metadata ?? {};
  const at = columns.findIndex(({ name }) => name === 'Cluster');
  const row = {
    cells,
    name: metadata.name ?? '',
    namespace: metadata.namespace ?? '',
    uid: metadata.uid ?? '',
    created: metadata.creationTimestamp,
    version: metadata.resourceVersion,
    columns,
    cluster: at < 0 ? '' : cells[at],
    changed: 0,
  };
  row.order = orderOf(row);
  return row;
}

export class Rows {
  columns = [];
  rows = [];
  // Why there is nothing to show, and never will be.
  error = null;
  isListed = false;
  // Counts up when something has changed.
  changes = cell(0);

  #path;
  #query;
  #orderOf;
  #isWatched;
  #stop = new AbortController();
  // The revision to watch from; none: the list is to be read.
  #version = null;
  #next = '';
  #remaining = 0;
  #isExact = true;
  // Events of rows on pages that have not been read, by order.
  #ahead = new Map();
  #loading = null;
  #isDue = false;

  constructor({ path, query = '', orderOf = byKey, isWatched = true }) {
    this.#path = path;
    this.#query = query;
    this.#orderOf = orderOf;
    this.#isWatched = isWatched;
    this.#run();
  }

  end() {
    this.#stop.abort();
  }

  // How many rows there are, as far as the server says.
  get total() {
    let ahead = 0;
    for (const { type } of this.#ahead.values()) ahead += type === 'ADDED' ? 1 : type === 'DELETED' ? -1 : 0;
    return this.rows.length + Math.max(0, this.#remaining + ahead);
  }

  get isExact() {
    return this.#isExact || !this.#next;
  }

  // Reads pages until so many rows are there.
  need(count) {
    if (count <= this.rows.length || !this.#next || this.#loading || this.#stop.signal.aborted) return;
    const size = count - this.rows.length > PAGE ? PAGE_FAR : PAGE;
    this.#loading = this.#more(size).catch((error) => {
      // The list is too old for its next page: all of it is read anew. What else failed is tried when somebody scrolls.
      if (error instanceof Refused && error.code === 410) this.#anew?.();
    }).finally(() => {
      this.#loading = null;
      this.#changed();
    });
  }

  #anew = null;

  #changed() {
    if (this.#isDue) return;
    this.#isDue = true;
    requestAnimationFrame(() => {
      this.#isDue = false;
      this.changes.set(this.changes.value + 1);
    });
  }

  async #run() {
    try {
      await persist(this.#stop.signal, (works, signal) => this.#attempt(works, signal));
    } catch (error) {
      this.error = error;
      this.#changed();
    }
  }

  async #attempt(works, signal) {
    if (this.#version === null) await this.#list(signal);
    works();
    if (!this.#isWatched) {
      await wait(POLL, signal);
      this.#version = null;
      return;
    }
    const again = new AbortController();
    this.#anew = () => {
      this.#version = null;
      again.abort();
    };
    try {
      await this.#watch(AbortSignal.any([signal, again.signal]));
    } catch (error) {
      if (again.signal.aborted) return;
      if (error instanceof Refused && error.code === 410) {
        this.#version = null;
        return;
      }
      // Some kinds, and some searches, cannot be watched.
      if (error instanceof Refused && error.code === 405) {
        this.#isWatched = false;
        return;
      }
      throw error;
    }
    await wait(REST, signal);
  }

  #url(more) {
    return `${this.#path}?${[this.#query, more].filter(Boolean).join('&')}`;
  }

  async #list(signal) {
    const size = Math.max(PAGE, Math.min(this.rows.length, PAGE_FAR));
    const page = await json(this.#url(`limit=${size}`), { accept: TABLE, signal });
    this.columns = page.columnDefinitions ?? [];
    this.#ahead.clear();
    this.#version = page.metadata?.resourceVersion ?? '0';
    this.rows = [];
    this.#take(page);
    this.isListed = true;
    this.#changed();
  }

  async #more(size) {
    const next = this.#next;
    const page = await json(this.#url(`limit=${size}&continue=${encodeURIComponent(next)}`), {
      accept: TABLE,
      signal: this.#stop.signal,
    });
    // Meanwhile the list may have been read anew.
    if (next === this.#next) this.#take(page);
  }

  #take(page) {
    const { continue: next = '', remainingItemCount } = page.metadata ?? {};
    this.#next = next;
    this.#remaining = next ? (remainingItemCount ?? 0) : 0;
    this.#isExact = remainingItemCount !== undefined;
    const added = (page.rows ?? []).map((row) => rowOf(row, this.columns, this.#orderOf));
    const known = new Map(added.map((row) => [row.order, row]));
    const last = next ? added.at(-1)?.order ?? '' : null;
    for (const [order, { type, row }] of [...this.#ahead]) {
      if (last !== null && order > last) continue;
      if (type === 'DELETED') known.delete(order);
      else known.set(order, row);
      this.#ahead.delete(order);
    }
    const sorted = [...known.values()].sort((one, other) => (one.order < other.order ? -1 : 1));
    // Not by spread: a page may be long.
    for (const row of sorted) this.rows.push(row);
  }

  async #watch(signal) {
    const query = `watch=true&allowWatchBookmarks=true&resourceVersion=${encodeURIComponent(this.#version)}`;
    const response = await ask(this.#url(query), { accept: TABLE, signal });
    for await (const line of lines(response)) {
      if (!line) continue;
      const { type, object } = JSON.parse(line);
      if (type === 'ERROR') throw new Refused(object.code ?? 500, object.message ?? 'the watch ended');
      if (type === 'BOOKMARK') {
        const version = object.metadata?.resourceVersion ?? object.rows?.[0]?.object?.metadata?.resourceVersion;
        if (version) this.#version = version;
        continue;
      }
      for (const told of object.rows ?? []) {
        const row = rowOf(told, this.columns, this.#orderOf);
        if (row.version) this.#version = row.version;
        row.changed = Date.now();
        this.#apply(type, row);
      }
      this.#changed();
    }
  }

  #apply(type, row) {
    const { order } = row;
    if (this.#next && order > (this.rows.at(-1)?.order ?? '')) {
      const before = this.#ahead.get(order)?.type;
      if (before === 'ADDED' && type === 'DELETED') this.#ahead.delete(order);
      else if (before === 'ADDED') this.#ahead.set(order, { type: 'ADDED', row });
      else if (before === 'DELETED' && type === 'ADDED') this.#ahead.set(order, { type: 'MODIFIED', row });
      else this.#ahead.set(order, { type, row });
      return;
    }
    const at = this.#place(order);
    const isKnown = this.rows[at]?.order === order;
    if (type === 'DELETED') {
      if (isKnown) this.rows.splice(at, 1);
    } else {
      this.rows.splice(at, isKnown ? 1 : 0, row);
    }
  }

  // The first place whose row is not before an order.
  #place(order) {
    let [low, high] = [0, this.rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle].order < order) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
