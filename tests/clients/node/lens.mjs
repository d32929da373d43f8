// What Lens and Freelens do with a cluster, by Freelens' own library: node lens.mjs --kubeconfig=FILE --namespace=NAME. It prints one line of JSON
// with what it has seen. In Freelens a proxy of its own adds the credentials of the kubeconfig; here client-node's agent does.
import { createRequire } from 'node:module';
import { KubeConfig } from '@kubernetes/client-node';
import fetch from 'node-fetch';

const kubeApi = createRequire(import.meta.url)('@freelensapp/kube-api');

// For one thing to happen.
const SOON_MS = 60_000;
// Kinds without a list, or of no built-in version that is served.
const NOT_LISTED = ['ClusterApi', 'ComponentStatusApi', 'PodSecurityPolicyApi', 'SelfSubjectRulesReviewApi', 'VerticalPodAutoscalerApi'];

const flag = (name) => process.argv.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3);
const namespace = flag('namespace');
const config = new KubeConfig();
config.loadFromFile(flag('kubeconfig'));
const { agent } = await config.applyToFetchOptions({});
const logger = { debug() {}, info() {}, warn: console.error, error: console.error };
const request = new kubeApi.KubeJsonApi(
  { fetch: (url, init) => fetch(url, { ...init, agent }), logger },
  { serverAddress: config.getCurrentCluster().server, apiBase: '' },
);
const api = (name) =>
  new kubeApi[name](
    { logInfo() {}, logWarn: console.error, logError: console.error, maybeKubeApi: request },
    { request, checkPreferredVersion: name === 'PodDisruptionBudgetApi' },
  );

const names = (objects) => objects.map((object) => object.getName()).sort();
const until = async (what, check) => {
  for (const end = Date.now() + SOON_MS; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 100))) {
    const found = await check();
    if (found) return found;
  }
  throw new Error(`not within ${SOON_MS} ms: ${what}`);
};

const seen = { version: (await request.get('/version')).gitVersion, lists: {} };

// Every page has a list of all namespaces.
const pages = Object.keys(kubeApi).filter((name) => /^[A-Z]\w+Api$/.test(name) && !['KubeApi', 'KubeJsonApi', ...NOT_LISTED].includes(name));
for (const name of pages) seen.lists[name] = names(await api(name).list({ namespace: '' }));
// Freelens asks so, too: the review has no name, and its typed API gives nothing without one.
const review = { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectRulesReview', spec: { namespace } };
seen.may = (await request.post(`/apis/${review.apiVersion}/selfsubjectrulesreviews`, { data: review })).status.resourceRules.length > 0;

// A person makes a Deployment, looks at it while it starts, edits it and deletes it.
const [deployments, pods] = [api('DeploymentApi'), api('PodApi')];
const name = 'lens';
const events = [];
await pods.list({ namespace });
const stop = pods.watch({ namespace, callback: (event, error) => (error ? console.error(error) : events.push(event)) });
const labels = { app: name };
await deployments.create({ name, namespace }, {
  spec: { replicas: 3, selector: { matchLabels: labels }, template: { metadata: { labels }, spec: { containers: [{ name: 'main', image: 'nginx' }] } } },
});
const running = (event) => event.object.metadata.labels?.app === name && event.object.status?.phase === 'Running';
seen.watched = await until('three pods by the watch', () => {
  const found = [...new Set(events.filter(running).map((event) => event.object.metadata.name))];
  return found.length === 3 && found.sort();
});
seen.logs = (await pods.getLogs({ name: seen.watched[0], namespace }, { tailLines: 2 })).length > 0;
await deployments.scale({ name, namespace }, 5);
seen.scaled = await until('five replicas', async () => (await deployments.get({ name, namespace })).status.readyReplicas === 5);
await deployments.patch({ name, namespace }, [{ op: 'add', path: '/metadata/annotations/edited', value: 'yes' }], 'json');
await deployments.restart({ name, namespace });
seen.annotations = (await deployments.get({ name, namespace })).getAnnotations();
await deployments.delete({ name, namespace });
seen.deleted = await until('no pods', async () => !names(await pods.list({ namespace })).some((pod) => pod.startsWith(`${name}-`)));
seen.toldOfDeletions = new Set(events.filter((event) => event.type === 'DELETED').map((event) => event.object.metadata.name)).size >= 5;
stop();
console.log(JSON.stringify(seen));
process.exit(0);
