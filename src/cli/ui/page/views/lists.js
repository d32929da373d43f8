// Tables of rows: one kind, and what a search finds.

import { kinds as allKinds, pathOf, qualified } from '../api.js';
import { Grid } from '../grid.js';
import { html, useCell, useEffect, useMemo, useState } from '../preact.js';
import { HELP, parse, request } from '../query.js';
import { Rows, byKey, bySearch } from '../rows.js';

// The kinds of the fleet; none while they are not read.
export function useKinds() {
  const [state, setState] = useState({ kinds: null, error: null });
  useEffect(() => {
    allKinds().then((kinds) => setState({ kinds, error: null }), (error) => setState({ kinds: null, error }));
  }, []);
  return state;
}

// Rows that end with the component.
function useRows(options) {
  const key = JSON.stringify([options.path, options.query]);
  const rows = useMemo(() => new Rows(options), [key]);
  useEffect(() => () => rows.end(), [rows]);
  return rows;
}

// Every kind, to choose one.
export function Kinds() {
  const { kinds, error } = useKinds();
  const [part, setPart] = useState('');
  if (error) return html`<h1 tabindex="-1" data-focus>Kinds</h1><p role="alert">${error.message}</p>`;
  const shown = (kinds ?? []).filter((kind) => `${qualified(kind)} ${kind.kind}`.toLowerCase().includes(part.toLowerCase()));
  return html`<h1 tabindex="-1" data-focus>Kinds</h1>
    <label class="field">Part of a name <input type="text" value=${part} onInput=${({ target }) => setPart(target.value)} /></label>
    ${kinds ? html`<ul class="kinds">${shown.map((kind) => html`<li key=${qualified(kind)}><a href=${`#/kind/${encodeURIComponent(qualified(kind))}`}>
      ${kind.resource}</a> <span class="quiet">${kind.group || 'core'}/${kind.version}</span></li>`)}</ul>` : html`<p role="status">Loading…</p>`}`;
}

// One kind. `resource` is as `deployments.apps`.
export function Kind({ resource }) {
  const { kinds, error } = useKinds();
  const kind = kinds?.find((one) => qualified(one) === resource);
  if (error) return html`<h1 tabindex="-1" data-focus>${resource}</h1><p role="alert">${error.message}</p>`;
  if (kinds && !kind) return html`<h1 tabindex="-1" data-focus>${resource}</h1><p role="alert">No member serves ${resource} now.</p>`;
  if (!kind) return html`<h1 tabindex="-1">${resource}</h1><p role="status">Loading…</p>`;
  return html`<${List} key=${resource} title=${resource} options=${{ path: pathOf(kind), orderOf: byKey, isWatched: kind.isWatched }}
    open=${(row) => openObject(kind, row.namespace, row.name)} search=${`kind:${resource} `} />`;
}

// What a search finds.
export function Search({ text }) {
  const { kinds, error } = useKinds();
  if (error) return html`<h1 tabindex="-1">Search</h1><p role="alert">${error.message}</p>`;
  if (!kinds) return html`<h1 tabindex="-1">Search</h1><p role="status">Loading…</p>`;
  const query = parse(text, kinds);
  const { path, params, kind, isSearch } = request(query);
  const words = query.names.map((name) => name.toLowerCase());
  const matching = words.length ? kinds.filter((one) => words.some((word) => one.names.some((name) => name.startsWith(word)))).slice(0, 8) : [];
  const open = (row) => {
    if (kind) return openObject(kind, row.namespace, row.name);
    // Rows of several kinds are the members' own objects.
    const [ofKind, ofVersion] = ['Kind', 'API Version'].map((name) => row.cells[row.columns.findIndex((column) => column.name === name)]);
    const found = kinds.find((one) => one.kind === ofKind && (one.group ? `${one.group}/${one.version}` : one.version) === ofVersion);
    if (found) openObject(found, row.namespace, row.name, row.cluster);
  };
  const hints = html`${query.errors.map((message) => html`<p role="alert" key=${message}>${message}</p>`)}
    ${matching.length > 0 && html`<p>Kinds: ${matching.map((one) => html`<a class="chip" key=${qualified(one)}
      href=${`#/kind/${encodeURIComponent(qualified(one))}`}>${qualified(one)}</a>`)}</p>`}
    ${!text.trim() && html`<dl class="help">${HELP.map(([example, meaning]) => html`<dt key=${example}><code>${example}</code></dt><dd>${meaning}</dd>`)}</dl>`}`;
  if (!text.trim() || query.errors.length) return html`<h1 tabindex="-1">Search</h1>${hints}`;
  return html`<${List} key=${path + params} title="Search" hints=${hints} open=${open}
    options=${{ path, query: params, orderOf: isSearch ? bySearch : byKey, isWatched: kind?.isWatched ?? true }} />`;
}

function List({ title, hints, options, open, search }) {
  const source = useRows(options);
  const [isWide, setIsWide] = useState(false);
  useCell(source.changes);
  const { error, isListed, total, rows } = source;
  const count = `${total.toLocaleString('en')}${source.isExact ? '' : '+'} ${total === 1 ? 'object' : 'objects'}`;
  return html`<div class="list">
    <div class="list-head"><h1 tabindex="-1">${title}</h1>
      <p role="status">${isListed ? `${count}${rows.length < total ? `, ${rows.length.toLocaleString('en')} read` : ''}` : error ? '' : 'Loading…'}</p>
      ${search && html`<a href=${`#/search?q=${encodeURIComponent(search)}`} data-search>Filter</a>`}
      <label><input type="checkbox" checked=${isWide} onChange=${({ target }) => setIsWide(target.checked)} /> All columns</label></div>
    ${hints}
    ${error ? html`<p role="alert">${error.message}</p>` : html`<${Grid} source=${source} label=${title} open=${open} isWide=${isWide} />`}
    ${isListed && total === 0 && html`<p>Nothing was found.</p>`}
  </div>`;
}

function openObject(kind, namespace, name, member = '') {
  const parts = [qualified(kind), namespace || '-', name].map(encodeURIComponent).join('/');
  location.hash = `#/object/${parts}${member ? `?member=${encodeURIComponent(member)}` : ''}`;
}
