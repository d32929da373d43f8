// @kubernetes/client-node's informer over config maps, as tests/clients/go/cmd/informer is client-go's: the same lines
// on stdout, the same orders on stdin.
import { createInterface } from 'node:readline';
import { isDeepStrictEqual } from 'node:util';
import { CoreV1Api, KubeConfig, makeInformer } from '@kubernetes/client-node';

// As the library's own example does after an error.
const RESTART_AFTER_MS = 1000;

const flag = (name) => process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3);
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const config = new KubeConfig();
config.loadFromFile(flag('kubeconfig'));
const api = config.makeApiClient(CoreV1Api);

const key = (object) => `${object.metadata.namespace}/${object.metadata.name}`;
const item = (object) => ({
  key: key(object),
  rv: object.metadata.resourceVersion,
  uid: object.metadata.uid,
  data: object.data,
});
const withoutRevision = (object) => {
  const { metadata, kind, apiVersion, ...rest } = object;
  return { ...rest, metadata: { ...metadata, resourceVersion: undefined } };
};
// Lists give typed objects and watches plain ones; as JSON they are alike.
const plain = (object) => JSON.parse(JSON.stringify(withoutRevision(object)));
const same = (one, other) =>
  isDeepStrictEqual({ ...plain(one), metadata: undefined }, { ...plain(other), metadata: undefined }) &&
  ['uid', 'labels', 'annotations'].every((name) => isDeepStrictEqual(one.metadata[name], other.metadata[name]));

const informer = makeInformer(config, '/api/v1/configmaps', () => api.listConfigMapForAllNamespaces());
const before = new Map();
let synced = false;

const told = (type) => (object) => {
  const { data, ...line } = item(object);
  const old = before.get(line.key);
  const changed = type === 'UPDATE' && !(old && same(old, object));
  type === 'DELETE' ? before.delete(line.key) : before.set(line.key, object);
  print({ type, ...line, changed });
};
informer.on('add', told('ADD'));
informer.on('update', told('UPDATE'));
informer.on('delete', told('DELETE'));

// start() ends when the list is in and the watch is open; an error of either goes to the handlers.
const start = async () => {
  try {
    await informer.start();
    if (!synced && informer.latestResourceVersion()) {
      synced = true;
      print({ type: 'SYNCED' });
    }
  } catch (error) {
    failed(error);
  }
};
const failed = (error) => {
  console.error('informer:', error.message ?? error);
  setTimeout(start, RESTART_AFTER_MS);
};
informer.on('error', failed);
start();

async function list(limit) {
  const line = { type: 'LIST', items: [], revisions: [] };
  try {
    let next;
    do {
      const page = await api.listConfigMapForAllNamespaces({ limit, _continue: next });
      line.items.push(...page.items.map(item));
      line.revisions.push(page.metadata.resourceVersion);
      next = page.metadata._continue;
    } while (next);
  } catch (error) {
    line.error = String(error.message ?? error);
  }
  return line;
}

for await (const text of createInterface({ input: process.stdin })) {
  const [order, size] = text.split(' ');
  if (order === 'dump') {
    print({ type: 'DUMP', items: Object.fromEntries(informer.list().map((object) => [key(object), item(object)])) });
  } else if (order === 'list') {
    print(await list());
  } else if (order === 'pages') {
    print(await list(Number(size)));
  } else {
    throw new Error(`no such order: ${text}`);
  }
}
process.exit(0);
