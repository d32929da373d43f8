// What somebody writes into the search box, as parameters of kubefold's search.

import { pathOf, qualified } from './api.js';

// What is searched where no kind is named, as far as the fleet serves it.
const USUAL = [
  'configmaps', 'cronjobs.batch', 'daemonsets.apps', 'deployments.apps', 'ingresses.networking.k8s.io', 'jobs.batch', 'namespaces',
  'nodes', 'persistentvolumeclaims', 'pods', 'services', 'statefulsets.apps',
];
// Fields with a short name, by the resource that has them.
const PLACES = {
  image: (resource) => ({
    pods: 'spec.containers[].image',
    cronjobs: 'spec.jobTemplate.spec.template.spec.containers[].image',
  })[resource] ?? 'spec.template.spec.containers[].image',
  node: (resource) => (resource === 'pods' ? 'spec.nodeName' : undefined),
  phase: () => 'status.phase',
};
const PLACE = /^!?(image|node|phase)\b/;
const COLLECTION = '/apis/clusterpedia.io/v1beta1/collectionresources/any';

export const HELP = [
  ['web', 'a part of the name'],
  ['kind:pods,deploy', 'only these kinds; kind:all for every kind'],
  ['ns:shop', 'only in this namespace'],
  ['in:east,west', 'only in these members'],
  ['label:app=web', 'by a label'],
  ['since:2h', 'created since'],
  ['image=nginx:1.29', 'by a field: image, node and phase of pods, or a path such as spec.replicas=3'],
];

// Words, where quotes keep blanks together.
function words(text) {
  return (text.match(/(?:"[^"]*"|'[^']*'|\S)+/g) ?? []).map((word) => word.replace(/^(["'])(.*)\1$/, '$2'));
}

// Reads a query: {kinds, names, params, error}. `all` are the kinds of discovery.
export function parse(text, all) {
  const query = { kinds: [], isEvery: false, names: [], fields: [], labels: [], namespaces: [], members: [], since: '', errors: [] };
  for (const word of words(text)) {
    const [, key, value] = /^(kind|ns|namespace|in|member|label|since):(.*)$/.exec(word) ?? [];
    const values = (value ?? '').split(',').filter(Boolean);
    if (key === 'kind') addKinds(query, values, all);
    else if (key === 'ns' || key === 'namespace') query.namespaces.push(...values);
    else if (key === 'in' || key === 'member') query.members.push(...values);
    else if (key === 'label' && value) query.labels.push(value);
    else if (key === 'since' && value) query.since = value;
    else if (key) query.errors.push(`${key}: names nothing yet`);
    else if (/^!?[\w.[\]'/-]*[=!]/.test(word) || word.startsWith('!')) query.fields.push(word);
    else query.names.push(word);
  }
  if (!query.kinds.length) {
    // A short name of a field is asked of pods more than of anything else.
    const usual = query.fields.some((term) => PLACE.test(term)) ? ['pods'] : USUAL;
    query.kinds = all.filter((kind) => (query.isEvery ? kind.isSearched : usual.includes(qualified(kind))));
  }
  return query;
}

function addKinds(query, values, all) {
  for (const value of values) {
    const found = value === 'all' ? [] : all.filter((kind) => qualified(kind) === value || kind.names.includes(value.toLowerCase()));
    if (value === 'all') query.isEvery = true;
    else if (!found.length) query.errors.push(`no kind is called ${value}`);
    else query.kinds.push(found.find((kind) => !kind.group) ?? found[0]);
  }
}

function fieldsOf(query) {
  return query.fields.map((term) => {
    const [, not, word, rest] = /^(!?)([^\s=!]*)(.*)$/.exec(term);
    const place = Object.hasOwn(PLACES, word) ? PLACES[word] : undefined;
    const places = new Set(place ? query.kinds.map(({ resource }) => place(resource)) : [word.replace(/^\./, '')]);
    if (places.size === 1 && !places.has(undefined)) return `${not}${[...places][0]}${rest}`;
    query.errors.push(`${word} is another field of each kind; name one, such as kind:pods`);
    return '';
  }).filter(Boolean);
}

// Where to ask, and what: {path, params, kind, isSearch}, where `kind` is the one kind if there is one. A search has another order than
// a list.
export function request(query) {
  const params = new URLSearchParams();
  const several = (name, values) => values.length && params.set(name, values.join(','));
  several('fuzzyName', query.names);
  several('fieldSelector', fieldsOf(query));
  several('labelSelector', query.labels);
  several('clusters', query.members);
  if (query.since) params.set('since', query.since);
  const [kind, ...others] = query.kinds;
  if (kind && !others.length) {
    const namespace = kind.isNamespaced && query.namespaces.length === 1 ? query.namespaces[0] : '';
    if (!namespace) several('namespaces', query.namespaces);
    const isSearch = params.size > (query.labels.length ? 1 : 0);
    // A list of the fleet view takes any field only as a search.
    if (isSearch) params.set('withContinue', 'true');
    return { path: pathOf(kind, namespace), params: params.toString(), kind, isSearch };
  }
  several('namespaces', query.namespaces);
  const resources = query.kinds.map(({ group, version, resource }) => `${group ? `${group}/` : ''}${version}/${resource}`);
  params.set('resources', resources.join(','));
  return { path: COLLECTION, params: params.toString(), kind: null, isSearch: true };
}
