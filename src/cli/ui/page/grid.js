// A table of any length: only the rows that are seen are in the document.

import { html, useCell, useEffect, useLayoutEffect, useRef, useState } from './preact.js';
import { age } from './text.js';

// Units: CSS pixels; style.css has the same.
const ROW = 32;
// Rows above and below those that are seen.
const MARGIN = 8;
// Widths of columns. Units: characters.
const WIDTH_MIN = 5;
const WIDTH_MAX = 44;
// The last column often has sentences.
const WIDTH_LAST = 120;
// Rows by which widths are chosen.
const SAMPLE = 200;
// How long a changed row is marked. Units: milliseconds.
const MARKED = 1_500;
// Ages are written anew so often. Units: milliseconds.
const TICK = 10_000;

function columnsOf({ columns, rows }, isWide) {
  const shown = columns.map((column, at) => ({ name: column.name, at }))
    .filter(({ at }) => isWide || !columns[at].priority);
  const hasNamespace = columns.some(({ name }) => name === 'Namespace');
  if (!hasNamespace && rows.some(({ namespace }) => namespace)) shown.unshift({ name: 'Namespace', at: -1 });
  const sample = rows.slice(0, SAMPLE);
  return shown.map((column, index) => {
    const most = index === shown.length - 1 ? WIDTH_LAST : WIDTH_MAX;
    const longest = sample.reduce((length, row) => Math.max(length, textOf(row, column).length), column.name.length);
    return { ...column, width: Math.min(most, Math.max(WIDTH_MIN, longest)) + 2 };
  });
}

function textOf(row, { name, at }) {
  if (at < 0) return row.namespace;
  // A server writes an age once; the page stays open.
  if (name === 'Age' && row.created) return age(Date.now() - Date.parse(row.created));
  const cell = row.cells[at];
  return cell === null || cell === undefined ? '<none>' : String(cell);
}

// `open` is called with the row that somebody chooses.
export function Grid({ source, label, open, isWide = false }) {
  useCell(source.changes);
  const box = useRef();
  const [view, setView] = useState({ top: 0, height: 600 });
  const [at, setAt] = useState(0);
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), TICK);
    return () => clearInterval(timer);
  }, []);
  useLayoutEffect(() => {
    const measured = () => setView({ top: box.current.scrollTop, height: box.current.clientHeight });
    const observer = new ResizeObserver(measured);
    observer.observe(box.current);
    measured();
    return () => observer.disconnect();
  }, []);
  const { rows, total } = source;
  const first = Math.max(0, Math.floor(view.top / ROW) - MARGIN);
  const end = Math.min(total, Math.ceil((view.top + view.height) / ROW) + MARGIN);
  useEffect(() => source.need(end));
  const chosen = Math.min(at, Math.max(0, total - 1));
  const move = (to) => {
    const next = Math.max(0, Math.min(total - 1, to));
    setAt(next);
    // Below the head, which stays.
    const { scrollTop, clientHeight } = box.current;
    if (next * ROW < scrollTop) box.current.scrollTop = next * ROW;
    else if ((next + 2) * ROW > scrollTop + clientHeight) box.current.scrollTop = (next + 2) * ROW - clientHeight;
  };
  const pressed = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(view.height / ROW) - 2);
    const to = { ArrowDown: chosen + 1, j: chosen + 1, ArrowUp: chosen - 1, k: chosen - 1, PageDown: chosen + page, PageUp: chosen - page,
      Home: 0, End: total - 1 }[event.key];
    if (to !== undefined) move(to);
    else if (event.key === 'Enter' && rows[chosen]) open(rows[chosen]);
    else return;
    event.preventDefault();
  };
  const columns = columnsOf(source, isWide);
  const template = columns.map(({ width }) => `${width}ch`).join(' ');
  const shown = [];
  for (let index = first; index < end; index += 1) {
    shown.push(html`<${Row} key=${rows[index]?.order ?? index} row=${rows[index]} index=${index} columns=${columns} template=${template}
      isChosen=${index === chosen} choose=${setAt} open=${open} />`);
  }
  return html`<div class="grid" role="grid" tabindex="0" ref=${box} data-focus aria-label=${label} aria-rowcount=${total + 1}
    aria-colcount=${columns.length} aria-activedescendant=${total ? `row-${chosen}` : undefined} onKeyDown=${pressed}
    onScroll=${() => setView({ top: box.current.scrollTop, height: box.current.clientHeight })}>
    <div class="grid-head" role="rowgroup">${columns.length > 0 && html`<div class="grid-row" role="row" aria-rowindex="1"
      style=${{ gridTemplateColumns: template }}>${columns.map(({ name }) => html`<div role="columnheader" key=${name}>${name}</div>`)}</div>`}</div>
    <div class="grid-body" role="rowgroup" style=${{ height: `${total * ROW}px` }}>${shown}</div>
  </div>`;
}

function Row({ row, index, columns, template, isChosen, choose, open }) {
  const isChanged = row && Date.now() - row.changed < MARKED;
  return html`<div role="row" id=${`row-${index}`} aria-rowindex=${index + 2} aria-selected=${isChosen ? 'true' : 'false'}
    class=${`grid-row${isChanged ? ' changed' : ''}`} style=${{ gridTemplateColumns: template, transform: `translateY(${index * ROW}px)` }}
    onClick=${() => { choose(index); if (row) open(row); }}>
    ${columns.map((column) => {
      const text = row ? textOf(row, column) : '…';
      return html`<div role="gridcell" key=${column.name} title=${text.length > WIDTH_MAX ? text : undefined} class=${tone(column, text)}>${text}</div>`;
    })}
  </div>`;
}

// What is wrong is seen at once; the text says it, too.
function tone({ name }, text) {
  if (name !== 'Status' && name !== 'State' && name !== 'Type') return '';
  if (/^(Running|Ready|Completed|Succeeded|Active|Bound|ready|Complete)$/.test(text)) return 'good';
  return /Error|BackOff|Fail|down|Warning|NotReady|Unknown|Evicted|Killed|degraded/.test(text) ? 'bad' : '';
}
