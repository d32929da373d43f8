// The parts of the page of kubefold ui that need no browser: PAGE=<folder of the page> node --test page.test.mjs

import assert from 'node:assert/strict';
import test from 'node:test';
import { pathToFileURL } from 'node:url';

globalThis.requestAnimationFrame = (draw) => setImmediate(draw);
globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };
const part = (name) => import(pathToFileURL(`${process.env.PAGE}/${name}`).href);
const { age, size, withoutManagedFields } = await part('text.js');
const { warningsOf } = await part('api.js');
const { parse, request } = await part('query.js');
const { differences } = await part('difference.js');
const { Rows } = await part('rows.js');

test('ages are as kubectl writes them', () => {
  const [second, minute, hour, day] = [1_000, 60_000, 3_600_000, 86_400_000];
  for (const [milliseconds, expected] of [
    [-5, '0s'], [0, '0s'], [119 * second, '119s'], [120 * second, '2m'], [9 * minute + 59 * second, '9m59s'], [10 * minute, '10m'],
    [179 * minute, '179m'], [180 * minute, '3h'], [7 * hour + minute, '7h1m'], [8 * hour + minute, '8h'], [47 * hour, '47h'],
    [48 * hour, '2d'], [7 * day + hour, '7d1h'], [8 * day + hour, '8d'], [729 * day, '729d'], [730 * day, '2y'],
    [731 * day, '2y1d'], [9 * 365 * day, '9y'],
  ]) assert.equal(age(milliseconds), expected);
  assert.deepEqual([0, 1023, 1024, 20 << 20].map(size), ['0 B', '1023 B', '1.0 KiB', '20 MiB']);
});

test('managed fields are left out, and nothing that is only called so', () => {
  const yaml = 'data:\n  managedFields:\n    kept: a\nmetadata:\n  annotations:\n    managedFields: b\n  managedFields:\n  - manager: c\n    fieldsV1:\n      f:x: {}\n  name: d\nspec: {}\n';
  assert.equal(withoutManagedFields(yaml), 'data:\n  managedFields:\n    kept: a\nmetadata:\n  annotations:\n    managedFields: b\n  name: d\nspec: {}\n');
});

test('warnings of one header are told apart', () => {
  const header = '299 - "member \\"west\\" is down, again", 299 kubefold "b\\\\c"';
  assert.deepEqual(warningsOf(header), ['member "west" is down, again', 'b\\c']);
  assert.deepEqual(warningsOf(null), []);
});

const kind = (group, resource, names = [], isNamespaced = true) => (
  { group, version: 'v1', resource, names: [resource, ...names], isNamespaced, isWatched: true, isSearched: group !== 'kubefold.io' });
const ALL = [kind('', 'pods', ['pod', 'po']), kind('apps', 'deployments', ['deploy']), kind('', 'nodes', ['no'], false), kind('kubefold.io', 'members'),
  kind('metrics.k8s.io', 'pods'), kind('example.com', 'widgets')];

test('a query is a request', () => {
  const of = (text) => {
    const query = parse(text, ALL);
    const { path, params, isSearch } = request(query);
    return [path, Object.fromEntries(new URLSearchParams(params)), isSearch, query.errors];
  };
  const search = { withContinue: 'true' };
  assert.deepEqual(of('kind:po'), ['/api/v1/pods', {}, false, []]);
  assert.deepEqual(of('kind:deploy ns:shop label:app=web'), ['/apis/apps/v1/namespaces/shop/deployments', { labelSelector: 'app=web' }, false, []]);
  assert.deepEqual(of('kind:nodes ns:shop'), ['/api/v1/nodes', { namespaces: 'shop', ...search }, true, []]);
  assert.deepEqual(of('kind:pods we b in:east,west since:2h'), ['/api/v1/pods', { fuzzyName: 'we,b', clusters: 'east,west', since: '2h', ...search }, true, []]);
  assert.deepEqual(of('image=a:1 !spec.volumes'), ['/api/v1/pods', { fieldSelector: 'spec.containers[].image=a:1,!spec.volumes', ...search }, true, []]);
  const any = '/apis/clusterpedia.io/v1beta1/collectionresources/any';
  assert.deepEqual(of('web'), [any, { fuzzyName: 'web', resources: 'v1/pods,apps/v1/deployments,v1/nodes' }, true, []]);
  assert.deepEqual(of('kind:all'), [any, { resources: 'v1/pods,apps/v1/deployments,v1/nodes,metrics.k8s.io/v1/pods,example.com/v1/widgets' }, true, []]);
  assert.deepEqual(of('kind:none')[3], ['no kind is called none']);
  assert.deepEqual(of('kind:pods,deploy image=a')[3], ['image is another field of each kind; name one, such as kind:pods']);
});

test('parts differ in what no server assigns', () => {
  const part = (uid, rest) => ({ metadata: { uid, name: 'a', annotations: { 'b.io/c': 'd', 'kubefold.io/placement': `${uid}` } }, ...rest });
  assert.deepEqual(differences([part(1, { spec: { list: [1, { x: 1 }] } }), part(2, { spec: { list: [1, { x: 1 }] } })]), []);
  const found = differences([part(1, { spec: { list: [1, { x: 1 }], one: null } }), part(2, { spec: { list: [1, { x: 2 }] } })]);
  assert.deepEqual(found, [{ path: '.spec.list[1].x', values: ['1', '2'] }, { path: '.spec.one', values: ['null', '(absent)'] }]);
  const [only] = differences([{ metadata: { annotations: { a: 'b' } } }, { metadata: {} }]);
  assert.deepEqual(only, { path: '.metadata.annotations.a', values: ['"b"', '(absent)'] });
});

// A server with rows `a0`, `a1`, ... of which a test says what happens.
class Server {
  version = 10;
  asked = [];
  expires = false;
  #watch = null;

  constructor(count) {
    this.names = Array.from({ length: count }, (_, at) => `a${String(at).padStart(5, '0')}`);
    globalThis.fetch = (path, { signal }) => this.#answer(new URL(path, 'http://localhost'), signal);
  }

  row(name, text = 'old') {
    return { cells: [name, text], object: { metadata: { name, namespace: 'n', resourceVersion: String(this.version) } } };
  }

  async tell(type, name, text = 'new') {
    while (!this.#watch) await new Promise(setImmediate);
    this.version += 1;
    this.#watch.enqueue(new TextEncoder().encode(`${JSON.stringify({ type, object: { kind: 'Table', rows: [this.row(name, text)] } })}\n`));
  }

  // Ends the watch, as when its revision is too old for the log.
  async expire() {
    while (!this.#watch) await new Promise(setImmediate);
    this.#watch.enqueue(new TextEncoder().encode('{"type":"ERROR","object":{"code":410,"message":"too old"}}\n'));
    this.#watch.close();
    this.#watch = null;
  }

  async #answer(url, signal) {
    const query = Object.fromEntries(url.searchParams);
    this.asked.push(query);
    if (query.watch) {
      return new Response(new ReadableStream({ start: (stream) => {
        this.#watch = stream;
        signal.addEventListener('abort', () => { try { stream.error(signal.reason); } catch { /* It has ended. */ } });
      } }));
    }
    if (query.continue && this.expires) return new Response('{"message":"too old"}', { status: 410 });
    const from = Number(query.continue ?? 0);
    const end = from + Number(query.limit);
    const metadata = { resourceVersion: '10', ...(end < this.names.length && { continue: String(end), remainingItemCount: this.names.length - end }) };
    return Response.json({ columnDefinitions: [{ name: 'Name' }, { name: 'Text' }], metadata, rows: this.names.slice(from, end).map((name) => this.row(name)) });
  }
}

async function until(holds) {
  for (let turn = 0; turn < 10_000 && !holds(); turn += 1) await new Promise(setImmediate);
  assert.ok(holds(), String(holds));
}

test('a long list is read as far as somebody scrolls, and events beyond that are not lost', async () => {
  const server = new Server(1_200);
  const rows = new Rows({ path: '/api/v1/things' });
  await until(() => rows.isListed);
  assert.deepEqual([rows.rows.length, rows.total], [500, 1_200]);
  const text = (name) => rows.rows.find((row) => row.name === name)?.cells[1];
  await server.tell('MODIFIED', 'a00003');
  await server.tell('ADDED', 'a00003b');
  await server.tell('DELETED', 'a00004');
  // Of pages that are not read yet.
  await server.tell('MODIFIED', 'a00700', 'newer');
  await server.tell('DELETED', 'a00701');
  await server.tell('ADDED', 'a00702b');
  await server.tell('ADDED', 'a00703b');
  await server.tell('DELETED', 'a00703b');
  await server.tell('ADDED', 'z');
  await until(() => rows.total === 1_201);
  assert.deepEqual([text('a00003'), text('a00003b'), text('a00004')], ['new', 'new', undefined]);
  rows.need(600);
  await until(() => rows.rows.length > 500);
  rows.need(1_201);
  await until(() => rows.rows.length === 1_201);
  assert.deepEqual([text('a00700'), text('a00701'), text('a00702b'), text('a00703b'), text('z')], ['newer', undefined, 'new', undefined, 'new']);
  const orders = rows.rows.map(({ order }) => order);
  assert.deepEqual(orders, [...orders].sort());
  assert.equal(new Set(orders).size, orders.length);
  rows.end();
});

test('a watch or a page that is too old is a new list, and what is shown stays meanwhile', async () => {
  const server = new Server(1_200);
  const rows = new Rows({ path: '/api/v1/things' });
  await until(() => rows.isListed);
  const lists = () => server.asked.filter(({ watch, continue: next }) => !watch && !next).length;
  server.names = server.names.slice(1);
  await server.expire();
  await until(() => lists() === 2 && rows.total === 1_199);
  assert.equal(rows.rows[0].name, 'a00001');
  await until(() => server.asked.at(-1).watch);
  server.expires = true;
  rows.need(1_000);
  await until(() => lists() === 3);
  server.expires = false;
  await until(() => server.asked.at(-1).watch);
  rows.need(1_000);
  await until(() => rows.rows.length >= 1_000);
  rows.end();
});
