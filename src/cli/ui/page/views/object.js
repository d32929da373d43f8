// One object: its YAML, events, parts, and a pod's logs.

import { ask, json, lines, pathOf, persist, qualified } from '../api.js';
import { differences } from '../difference.js';
import { Grid } from '../grid.js';
import { html, useEffect, useMemo, useRef, useState } from '../preact.js';
import { Rows, byKey } from '../rows.js';
import { withoutManagedFields } from '../text.js';
import { Table } from './fleet.js';
import { useKinds } from './lists.js';

const LOG_LINES = 1_000;
// Units: milliseconds.
const REDRAW = 100;

// `resource` is as `deployments.apps`; `member`: in that member's own API.
export function ObjectPage({ resource, namespace, name, member, tab }) {
  const { kinds, error } = useKinds();
  const kind = kinds?.find((one) => qualified(one) === resource);
  const { object, yaml, problem, isGone } = useObject(kind, namespace, name, member);
  const title = html`<h1 tabindex="-1" data-focus>${name}</h1>
    <p class="quiet">${resource}${namespace && ` in ${namespace}`}${member && `, as member ${member} has it`}${isGone ? '. It is deleted.' : ''}</p>`;
  const why = error ?? problem;
  if (why) return html`${title}<p role="alert">${why.message}</p>`;
  if (kinds && !kind) return html`${title}<p role="alert">No member serves ${resource} now.</p>`;
  if (!object) return html`${title}<p role="status">Loading…</p>`;
  const members = (object.metadata.annotations?.['kubefold.io/clusters'] ?? '').split(',').filter(Boolean);
  const tabs = ['yaml', 'events', ...(members.length ? ['parts'] : []), ...(resource === 'pods' ? ['logs'] : [])];
  const chosen = tabs.includes(tab) ? tab : 'yaml';
  return html`${title}
    <nav aria-label="Of this object" class="tabs">${tabs.map((one) => html`<a key=${one} href=${hashOf({ resource, namespace, name, member, tab: one })}
      aria-current=${one === chosen ? 'page' : undefined}>${{ yaml: 'YAML', events: 'Events', parts: 'Parts', logs: 'Logs' }[one]}</a>`)}</nav>
    ${chosen === 'yaml' && html`<${Yaml} yaml=${yaml} />`}
    ${chosen === 'events' && html`<${Events} object=${object} member=${member} />`}
    ${chosen === 'parts' && html`<${Parts} kind=${kind} object=${object} members=${members} />`}
    ${chosen === 'logs' && html`<${Logs} path=${pathOf(kind, namespace, name, member)} object=${object} />`}`;
}

function hashOf({ resource, namespace, name, member, tab }) {
  const params = new URLSearchParams({ ...(member && { member }), tab });
  return `#/object/${[resource, namespace || '-', name].map(encodeURIComponent).join('/')}?${params}`;
}

// The object, read again whenever it changes.
function useObject(kind, namespace, name, member) {
  const [state, setState] = useState({});
  useEffect(() => {
    if (!kind) return undefined;
    const stop = new AbortController();
    const path = pathOf(kind, namespace, name, member);
    const read = async (signal) => {
      const [object, text] = await Promise.all([json(path, { signal }), ask(path, { accept: 'application/yaml', signal })]);
      const yaml = await text.text();
      setState({ object, yaml });
      return object.metadata.resourceVersion;
    };
    const follow = async (works, signal) => {
      const version = await read(signal);
      works();
      if (!kind.isWatched) return stopped(signal);
      const query = `watch=true&fieldSelector=${encodeURIComponent(`metadata.name=${name}`)}&resourceVersion=${version}`;
      const events = await ask(`${pathOf(kind, namespace, '', member)}?${query}`, { accept: 'application/json', signal });
      for await (const line of lines(events)) {
        const { type } = JSON.parse(line);
        if (type === 'DELETED') {
          setState((before) => ({ ...before, isGone: true }));
          return stopped(signal);
        }
        if (type === 'ERROR') return undefined;
        if (type !== 'BOOKMARK') await read(signal);
      }
      return undefined;
    };
    persist(stop.signal, follow).catch((problem) => setState((before) => (before.object && problem.code === 404 ? { ...before, isGone: true } : { problem })));
    return () => stop.abort();
  }, [kind, namespace, name, member]);
  return state;
}

function stopped(signal) {
  return new Promise((resolve) => { signal.addEventListener('abort', resolve, { once: true }); });
}

function Yaml({ yaml }) {
  const [isWhole, setIsWhole] = useState(false);
  const text = isWhole ? yaml : withoutManagedFields(yaml);
  return html`<p class="tools"><label><input type="checkbox" checked=${isWhole} onChange=${({ target }) => setIsWhole(target.checked)} /> managedFields</label>
    <button type="button" onClick=${() => navigator.clipboard?.writeText(text)}>Copy</button></p>
    <pre class="text" tabindex="0" aria-label="YAML" role="region">${text}</pre>`;
}

function Events({ object, member }) {
  const { name, namespace = '', uid } = object.metadata;
  const query = new URLSearchParams({ fieldSelector: `involvedObject.name=${name},involvedObject.kind=${object.kind}` }).toString();
  const rows = useMemo(
    () => new Rows({ path: pathOf({ group: '', version: 'v1', resource: 'events' }, namespace, '', member), query, orderOf: byKey }),
    [query, namespace, member, uid],
  );
  useEffect(() => () => rows.end(), [rows]);
  return html`<div class="list inner"><${Grid} source=${rows} label="Events" open=${() => {}} /></div>`;
}

// Each part as its member has it, and the fields in which they differ.
function Parts({ kind, object, members }) {
  const { name, namespace = '', resourceVersion, annotations = {} } = object.metadata;
  const [parts, setParts] = useState([]);
  useEffect(() => {
    const stop = new AbortController();
    const read = (member) => json(pathOf(kind, namespace, name, member), { signal: stop.signal })
      .then((part) => ({ member, part }), (error) => ({ member, error }));
    Promise.all(members.map(read)).then((all) => stop.signal.aborted || setParts(all));
    return () => stop.abort();
  }, [resourceVersion, members.join()]);
  const found = parts.filter(({ part }) => part);
  const differing = differences(found.map(({ part }) => part));
  const isStatus = ({ path }) => path.startsWith('.status');
  const columns = ['Field', ...found.map(({ member }) => member)];
  const rows = (of) => of.map(({ path, values }) => [html`<code>${path}</code>`, ...values.map((value) => html`<code>${value}</code>`)]);
  const marks = ['behind', 'differs'].filter((mark) => annotations[`kubefold.io/${mark}`]);
  return html`<ul class="parts">${parts.map(({ member, error }) => html`<li key=${member}>
      <a href=${`#/object/${[qualified(kind), namespace || '-', name].map(encodeURIComponent).join('/')}?member=${encodeURIComponent(member)}`}>${member}</a>
      ${error && html` <span class="bad">${error.message}</span>`}</li>`)}</ul>
    ${marks.map((mark) => html`<p key=${mark} class="bad">kubefold.io/${mark}: ${annotations[`kubefold.io/${mark}`]}</p>`)}
    ${found.length > 1 && (differing.length
      ? html`<${Table} caption="Fields that differ" columns=${columns} rows=${rows(differing.filter((one) => !isStatus(one)))} />
        <${Table} caption="Differences of the status" columns=${columns} rows=${rows(differing.filter(isStatus))} />`
      : html`<p>The parts are equal.</p>`)}`;
}

function Logs({ path, object }) {
  const containers = [...(object.spec.initContainers ?? []), ...object.spec.containers].map(({ name }) => name);
  const [container, setContainer] = useState(object.spec.containers[0].name);
  const [attempt, setAttempt] = useState(0);
  const [state, setState] = useState({ text: '', end: '' });
  const box = useRef();
  useEffect(() => {
    const stop = new AbortController();
    const kept = [];
    let timer = 0;
    const draw = (end = '') => setState({ text: kept.join('\n'), end });
    const follow = async () => {
      const query = new URLSearchParams({ container, follow: 'true', tailLines: String(LOG_LINES) });
      const response = await ask(`${path}/log?${query}`, { accept: '*/*', signal: stop.signal });
      draw();
      for await (const line of lines(response)) {
        kept.push(line);
        if (kept.length > LOG_LINES) kept.shift();
        timer ||= setTimeout(() => { timer = 0; draw(); }, REDRAW);
      }
    };
    follow().then(() => draw('The log ended.'), (error) => stop.signal.aborted || draw(error.message)).finally(() => clearTimeout(timer));
    return () => { stop.abort(); clearTimeout(timer); };
  }, [path, container, attempt]);
  useEffect(() => {
    const { scrollHeight, scrollTop, clientHeight } = box.current;
    // Somebody who scrolled up reads.
    if (scrollHeight - scrollTop - clientHeight < 200) box.current.scrollTop = scrollHeight;
  }, [state.text]);
  return html`<p class="tools"><label>Container <select value=${container} onChange=${({ target }) => setContainer(target.value)}>
      ${containers.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>
      ${state.end && html`<span role="status">${state.end}</span> <button type="button" onClick=${() => setAttempt(attempt + 1)}>Read again</button>`}</p>
    <pre class="text" tabindex="0" aria-label="Log" role="region" ref=${box}>${state.text}</pre>`;
}
