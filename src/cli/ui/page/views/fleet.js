// The fleet at a glance: members, unfinished writes, and objects that differ.

import { Refused, kinds, poll } from '../api.js';
import { html, useEffect, useState } from '../preact.js';
import { age, size } from '../text.js';

// Units: milliseconds.
const INTERVAL = 2_000;
const MEMBERS = '/apis/kubefold.io/v1alpha1/members';

export function Fleet() {
  const [status, setStatus] = useState(null);
  const [objects, setObjects] = useState([]);
  const [error, setError] = useState(null);
  useEffect(() => {
    const stop = new AbortController();
    poll('/kubefold/v1/status', INTERVAL, stop.signal, setStatus).catch(setError);
    // Numbers of nodes and pods, for those who may read members.
    const counted = async () => {
      if ((await kinds()).some(({ group, resource }) => group === 'kubefold.io' && resource === 'members')) {
        await poll(MEMBERS, INTERVAL, stop.signal, ({ items }) => setObjects(items));
      }
    };
    counted().catch(() => setObjects([]));
    return () => stop.abort();
  }, []);
  if (error) return html`<${NoStatus} error=${error} objects=${objects} />`;
  if (!status) return html`<h1 tabindex="-1" data-focus>Fleet</h1><p role="status">Loading…</p>`;
  const isCalm = !status.unfinished.length && !status.differing.length && !status.doubled.length;
  return html`<h1 tabindex="-1" data-focus>Fleet</h1>
    <p>${summary(status)}</p>
    <${Notes} status=${status} />
    <${Table} caption="Members" columns=${['Member', 'State', 'Version', 'Nodes', 'Pods', 'Objects', 'Size', 'Lag', 'Latency', 'Last error']}
      rows=${status.members.map((member) => memberRow(member, objects.find(({ metadata }) => metadata.name === member.name)))} />
    ${status.unfinished.length > 0 && html`<${Table} caption="Unfinished writes" columns=${['Object', 'Verb', 'Age', 'User', 'Behind']}
      rows=${status.unfinished.map(unfinishedRow)} />`}
    ${status.differing.length > 0 && html`<${Table} caption="Objects that differ between members" columns=${['Object', 'In']}
      rows=${status.differing.map(remarkedRow)} />`}
    ${status.doubled.length > 0 && html`<${Table} caption="Names that are used twice" columns=${['Object', 'In']}
      rows=${status.doubled.map(remarkedRow)} />`}
    ${isCalm && html`<p>No unfinished writes, no differences.</p>`}
    <${Table} caption="Kinds that are followed" columns=${['Kind', 'Objects', 'Watches', 'Not read from']} rows=${status.kinds.map(kindRow)} />`;
}

// For users who may not see the status of the fleet.
function NoStatus({ error, objects }) {
  const isKubefold = !(error instanceof Refused && error.code === 404);
  return html`<h1 tabindex="-1" data-focus>Fleet</h1>
    <p>${isKubefold ? `The state of the fleet is not shown: ${error.message}` : 'This server is no kubefold, or the context does not name its fleet. Its kinds can be read.'}</p>
    ${objects.length > 0 && html`<${Table} caption="Members" columns=${['Member', 'State', 'Version', 'Nodes', 'Pods']}
      rows=${objects.map(({ metadata, status = {} }) => [metadata.name, status.state ?? '', status.version ?? '', status.nodes ?? '', status.pods ?? ''])} />`}`;
}

function summary({ members, kinds: followed }) {
  const ready = members.filter(({ state }) => state === 'ready').length;
  const objects = followed.reduce((sum, kind) => sum + kind.objects, 0);
  return `${ready} of ${members.length} members are ready. Objects that are followed: ${objects.toLocaleString('en')}, kinds: ${followed.length}.`;
}

function Notes({ status: { state, mirror, damaged = [] } }) {
  const notes = [
    state?.error && `Nothing can be written through the fleet view: ${state.error}`,
    state?.restored && `The state in ${state.place} was restored from a backup.`,
    mirror?.error && `The mirror is not kept: ${mirror.error}`,
    ...damaged,
  ].filter(Boolean);
  return notes.length > 0 && html`<ul class="notes">${notes.map((note) => html`<li key=${note}>${note}</li>`)}</ul>`;
}

function memberRow(member, object) {
  const since = member.sinceSeconds === undefined ? '' : ` ${age(member.sinceSeconds * 1000)}`;
  const tone = { ready: 'good', down: 'bad' }[member.state] ?? 'odd';
  const last = member.lastError;
  return [
    html`<a href=${`#/search?q=${encodeURIComponent(`in:${member.name}`)}`}>${member.name}</a>`,
    html`<span class=${tone}>${member.state}${since}${member.absent ? ', absent' : ''}</span>`,
    member.version ?? '–',
    object?.status?.nodes ?? '–',
    object?.status?.pods ?? '–',
    member.objects.toLocaleString('en'),
    size(member.bytes),
    age(member.lagSeconds * 1000),
    member.latencyMillis === undefined ? '–' : `${member.latencyMillis.toFixed(1)} ms`,
    member.cause ?? (last ? `${age(last.ageSeconds * 1000)} ago: ${last.message}` : '–'),
  ];
}

export function nameOf({ resource, namespace, name }) {
  return namespace ? `${resource}/${name} in ${namespace}` : `${resource}/${name}`;
}

function unfinishedRow(write) {
  const behind = write.behind.map(({ member, why }) => `${member}: ${why}`).join('; ');
  return [nameOf(write), write.verb, write.ageSeconds === undefined ? '–' : age(write.ageSeconds * 1000), write.user, behind || 'about to end'];
}

function remarkedRow(object) {
  return [nameOf(object), object.members.join(', ')];
}

function kindRow(kind) {
  const filling = (kind.filling ?? []).map(({ member, listed, total }) => `${member} (${listed}${total ? ` of about ${total}` : ''} listed)`);
  const rest = kind.unknown.filter((member) => !(kind.filling ?? []).some((one) => one.member === member));
  const link = html`<a href=${`#/kind/${encodeURIComponent(kind.resource)}`}>${kind.resource}/${kind.version}</a>`;
  return [link, kind.objects.toLocaleString('en'), kind.watches, [...filling, ...rest].join(', ') || '–'];
}

// A table of few rows. It scrolls by itself where it is too wide.
export function Table({ caption, columns, rows }) {
  return html`<section class="wide" tabindex="0" aria-label=${caption}><table>
    <caption>${caption}</caption>
    <thead><tr>${columns.map((column) => html`<th scope="col" key=${column}>${column}</th>`)}</tr></thead>
    <tbody>${rows.map((row, index) => html`<tr key=${index}>${row.map((value, at) => html`<td key=${at}>${value}</td>`)}</tr>`)}</tbody>
  </table></section>`;
}

