// How Headlamp keeps a list of pods: it lists them, watches over a WebSocket, and applies each event with the code of its own front end
// (KubeList.js). node headlamp.mjs --kubeconfig=FILE --namespace=NAME makes, scales and deletes a Deployment meanwhile, and prints a line of JSON.
import { readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { AppsV1Api, KubeConfig } from '@kubernetes/client-node';
import fetch from 'node-fetch';
import WebSocket from 'ws';

// It is a module without imports, in a package that needs a browser.
const source = readFileSync(new URL('./headlamp/KubeList.js', import.meta.url));
const { KubeList } = await import(`data:text/javascript;base64,${source.toString('base64')}`);

// For one thing to happen.
const SOON_MS = 60_000;
const NAME = 'headlamp';

const flag = (name) => process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3);
const namespace = flag('namespace');
const config = new KubeConfig();
config.loadFromFile(flag('kubeconfig'));
const { agent } = await config.applyToFetchOptions({});
const { server } = config.getCurrentCluster();
const apps = config.makeApiClient(AppsV1Api);
const path = `/api/v1/namespaces/${namespace}/pods`;

class Pod {
  constructor(object) {
    Object.assign(this, object);
  }
}
const listed = async () => (await fetch(server + path, { agent })).json();
const pods = (list) => list.items.filter((item) => item.metadata.labels?.app === NAME);
const plain = (list) => Object.fromEntries(pods(list).map((item) => [item.metadata.name, item.metadata.resourceVersion]));
const until = async (what, check) => {
  for (const end = Date.now() + SOON_MS; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 100))) {
    if (await check()) return;
  }
  throw new Error(`not within ${SOON_MS} ms: ${what}`);
};

let list = await listed();
const count = list.items.length;
const skipped = [];
const url = `${server.replace('http', 'ws')}${path}?watch=1&resourceVersion=${list.metadata.resourceVersion}`;
// As Headlamp's `openWebSocket` asks.
const login = {};
await config.applyToHTTPSOptions(login);
const socket = new WebSocket(url, ['base64.binary.k8s.io'], { ...login, origin: 'http://localhost:4466' });
socket.on('message', (data) => {
  const update = JSON.parse(data.toString());
  const next = KubeList.applyUpdate(list, update, Pod, 'fleet');
  if (next === list) skipped.push(update.object.metadata.name);
  list = next;
});
await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));

const labels = { app: NAME };
const template = { metadata: { labels }, spec: { containers: [{ name: 'main', image: 'nginx' }] } };
await apps.createNamespacedDeployment({ namespace, body: { metadata: { name: NAME }, spec: { replicas: 3, selector: { matchLabels: labels }, template } } });
const running = (replicas) => async () => pods(list).length === replicas && pods(list).every((pod) => pod.status.phase === 'Running');
await until('three pods run', running(3));
await apps.patchNamespacedDeploymentScale({ name: NAME, namespace, body: [{ op: 'replace', path: '/spec/replicas', value: 6 }] });
await until('six pods run', running(6));
await until('the list that is kept is the list of the server', async () => isDeepStrictEqual(plain(list), plain(await listed())));
const members = [...new Set(pods(list).map((pod) => pod.metadata.name.split('@')[1]))].sort();
await apps.deleteNamespacedDeployment({ name: NAME, namespace });
await until('no pods', async () => pods(list).length === 0);
console.log(JSON.stringify({ protocol: socket.protocol, members, skipped, others: list.items.length - count }));
process.exit(0);
