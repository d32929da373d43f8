// What moves between members, and the two orders: to drain a member, and to divide anew. The plan is shown first.

import { json, poll } from '../api.js';
import { html, useEffect, useRef, useState } from '../preact.js';
import { Table, nameOf } from './fleet.js';

const MOVES = '/kubefold/v1/moves';
// Units: milliseconds.
const INTERVAL = 1_000;
const COLUMNS = ['Object', 'To', 'Leaves'];

export function Moves() {
  const [status, setStatus] = useState(null);
  const [moving, setMoving] = useState(null);
  const [error, setError] = useState(null);
  // What is asked for: {verb, member, plan, error, isSent}.
  const [order, setOrder] = useState(null);
  // The objects of an order that was taken, until all have moved.
  const [ordered, setOrdered] = useState([]);
  useEffect(() => {
    const stop = new AbortController();
    poll('/kubefold/v1/status', INTERVAL, stop.signal, setStatus).catch(setError);
    poll(`${MOVES}?outdated=false`, INTERVAL, stop.signal, setMoving).catch(setError);
    return () => stop.abort();
  }, []);
  if (error) return html`<h1 tabindex="-1" data-focus>Moves</h1><p role="status">What moves is not shown: ${error.message}</p>`;
  if (!status || !moving) return html`<h1 tabindex="-1" data-focus>Moves</h1><p role="status">Loading…</p>`;
  const plan = async (verb, member) => {
    const asked = { verb, member };
    setOrder(asked);
    try {
      setOrder({ ...asked, plan: await json(MOVES, { order: { ...asked, dryRun: true } }) });
    } catch (refused) {
      setOrder({ ...asked, error: refused.message });
    }
  };
  const send = async (confirm) => {
    const { verb, member } = order;
    setOrder({ ...order, isSent: true, error: undefined });
    try {
      const { moves } = await json(MOVES, { order: { verb, member, confirm } });
      setOrdered(moves.map(nameOf));
      setOrder(null);
    } catch (refused) {
      setOrder({ ...order, isSent: false, error: refused.message });
    }
  };
  return html`<h1 tabindex="-1" data-focus>Moves</h1>
    <p class="tools">${status.members.map(({ name }) => html`<button type="button" key=${name} onClick=${() => plan('drain', name)}>Plan to drain ${name}</button>`)}
      <button type="button" onClick=${() => plan('rebalance')}>Plan to rebalance</button></p>
    ${order && html`<${Order} order=${order} send=${send} leave=${() => setOrder(null)} />`}
    <${Progress} moving=${moving} ordered=${ordered} />`;
}

// A plan, and the field that has to be filled in before it is carried out.
function Order({ order: { verb, member, plan, error, isSent }, send, leave }) {
  const [typed, setTyped] = useState('');
  const input = useRef();
  const expected = member ?? verb;
  const title = member ? `Drain ${member}` : 'Rebalance';
  useEffect(() => setTyped(''), [verb, member]);
  useEffect(() => input.current?.focus(), [plan]);
  const submitted = (event) => {
    event.preventDefault();
    if (typed === expected) send(typed);
  };
  if (!plan) {
    return html`<section class="plan"><h2>${title}</h2><p role="status">${error ? `There is no plan: ${error}` : 'Making a plan…'}</p>
      ${error && html`<button type="button" onClick=${leave}>Close</button>`}</section>`;
  }
  const { moves, left = [] } = plan;
  return html`<section class="plan"><h2>${title}: the plan</h2>
    ${moves.length > 0 && html`<${Table} caption="Would move" columns=${COLUMNS} rows=${moves.map(planRow)} />`}
    ${left.length > 0 && html`<${Table} caption="Stays" columns=${['Object', 'Why']} rows=${left.map((one) => [nameOf(one), one.why])} />`}
    ${!moves.length && html`<p>Nothing would move.${member ? ` A drain would cordon ${member}: it gets no new parts.` : ''}</p>`}
    <form class="tools" onSubmit=${submitted}>
      <label for="confirm">To carry it out, type <code>${expected}</code></label>
      <input id="confirm" ref=${input} autocomplete="off" autocapitalize="off" spellcheck=${false} value=${typed} onInput=${({ target }) => setTyped(target.value)} />
      <button disabled=${isSent || typed !== expected}>${title}</button>
      <button type="button" onClick=${leave}>Leave it</button>
    </form>
    ${error && html`<p role="alert" class="bad">It was not carried out: ${error}</p>`}</section>`;
}

function Progress({ moving, ordered }) {
  const waits = new Set(moving.moves.map(nameOf));
  const done = ordered.filter((name) => !waits.has(name)).length;
  const { cordoned = [], halted, left = [], superseded = [] } = moving;
  return html`
    ${ordered.length > 0 && html`<p role="status">${done} of ${ordered.length} have moved. <progress max=${ordered.length} value=${done} aria-label="Moved"></progress></p>`}
    ${cordoned.length > 0 && html`<p>Cordoned: ${cordoned.join(', ')}. <code>kubefold uncordon</code> ends that.</p>`}
    ${halted && html`<p class="odd">${halted}</p>`}
    ${moving.moves.length > 0
      ? html`<${Table} caption="Moving now" columns=${['Object', 'By', 'To', 'Leaves', 'Stage', 'Waits for']} rows=${moving.moves.map(moveRow)} />`
      : html`<p>Nothing moves.</p>`}
    ${left.length > 0 && html`<${Table} caption="Stays" columns=${['Object', 'Why']} rows=${left.map((one) => [nameOf(one), one.why])} />`}
    ${superseded.length > 0 && html`<${Table} caption="Replaced" columns=${['Object', 'What follows']} rows=${superseded.map((one) => [nameOf(one), one.why])} />`}`;
}

function planRow(move) {
  return [nameOf(move), targets(move), (move.leaving ?? []).join(', ')];
}

function moveRow(move) {
  const [object, to, leaving] = planRow(move);
  return [object, move.why, to, leaving, move.stage, html`<span class="odd">${move.problem ?? ''}</span>`];
}

function targets({ to = [] }) {
  return to.map(({ member, share }) => (share === undefined ? member : `${member} ${share}`)).join(', ');
}
