// The page: what is shown by the address, the search box, keys, warnings, and what does not work now.

import { dismissWarnings, problems, warnings } from './api.js';
import { html, render, useCell, useEffect, useRef, useState } from './preact.js';
import { Fleet } from './views/fleet.js';
import { Kind, Kinds, Search } from './views/lists.js';
import { Moves } from './views/moves.js';
import { ObjectPage } from './views/object.js';

// Milliseconds after the last letter before a search begins.
const TYPED = 250;
const WARNINGS_SHOWN = 4;
const KEYS = [
  ['/', 'search'],
  ['f', 'the fleet'],
  ['g', 'kinds'],
  ['m', 'moves'],
  ['↑ ↓ j k', 'choose a row; also Page Up, Page Down, Home, End'],
  ['Enter', 'open it'],
  ['Esc', 'go back, or leave the search box'],
  ['?', 'this help'],
];
const SHORTCUTS = [['pods', 'Pods'], ['deployments.apps', 'Deployments'], ['services', 'Services'], ['nodes', 'Nodes'], ['events', 'Events']];

// What the address names: {view, ...}.
function routeOf(hash) {
  const [path, query = ''] = hash.replace(/^#/, '').split('?');
  const params = new URLSearchParams(query);
  let parts;
  try {
    parts = path.split('/').filter(Boolean).map(decodeURIComponent);
  } catch {
    parts = [];
  }
  const [view, ...rest] = parts;
  if (view === 'moves') return { view, title: 'Moves' };
  if (view === 'kinds') return { view, title: 'Kinds' };
  if (view === 'kind' && rest.length === 1) return { view, resource: rest[0], title: rest[0] };
  if (view === 'search') return { view, text: params.get('q') ?? '', title: 'Search' };
  if (view === 'object' && rest.length === 3) {
    const [resource, namespace, name] = rest;
    return { view, resource, name, namespace: namespace === '-' ? '' : namespace, member: params.get('member') ?? '', tab: params.get('tab') ?? '', title: name };
  }
  return { view: 'fleet', title: 'Fleet' };
}

function useRoute() {
  const [route, setRoute] = useState(() => routeOf(location.hash));
  useEffect(() => {
    const moved = () => setRoute(routeOf(location.hash));
    addEventListener('hashchange', moved);
    return () => removeEventListener('hashchange', moved);
  }, []);
  return route;
}

function App() {
  const route = useRoute();
  const [help, main] = [useRef(), useRef()];
  useEffect(() => { document.title = `${route.title} – kubefold`; }, [route.title]);
  useFocus(main, `${route.view} ${route.resource ?? ''} ${route.name ?? ''}`);
  useEffect(() => {
    const pressed = (event) => onKey(event, route, help.current);
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, [route]);
  const current = (is) => (is ? 'page' : undefined);
  return html`<${Banner} />
    <header>
      <a class="brand" href="#/">kubefold</a>
      <nav aria-label="Main">
        <a href="#/" aria-current=${current(route.view === 'fleet')}>Fleet</a>
        <a href="#/moves" aria-current=${current(route.view === 'moves')}>Moves</a>
        <a href="#/kinds" aria-current=${current(route.view === 'kinds')}>Kinds</a>
        ${SHORTCUTS.map(([resource, title]) => html`<a key=${resource} href=${`#/kind/${resource}`} aria-current=${current(route.view === 'kind' && route.resource === resource)}>${title}</a>`)}
      </nav>
      <${SearchBox} route=${route} />
      <button type="button" class="key" aria-label="Keys" onClick=${() => help.current.showModal()}>?</button>
    </header>
    <main ref=${main} tabindex="-1">
      ${route.view === 'fleet' && html`<${Fleet} />`}
      ${route.view === 'moves' && html`<${Moves} />`}
      ${route.view === 'kinds' && html`<${Kinds} />`}
      ${route.view === 'kind' && html`<${Kind} key=${route.resource} resource=${route.resource} />`}
      ${route.view === 'search' && html`<${Search} text=${route.text} />`}
      ${route.view === 'object' && html`<${ObjectPage} key=${[route.resource, route.namespace, route.name, route.member].join('/')} ...${route} />`}
    </main>
    <${Warnings} />
    <dialog ref=${help} aria-labelledby="keys-title"><h2 id="keys-title">Keys</h2>
      <dl class="help">${KEYS.map(([key, meaning]) => html`<dt key=${key}><kbd>${key}</kbd></dt><dd>${meaning}</dd>`)}</dl>
      <form method="dialog"><button>Close</button></form></dialog>`;
}

// Moves the focus to what a new address shows, once that is there, unless somebody types.
function useFocus(main, address) {
  useEffect(() => {
    const take = () => {
      const target = main.current.querySelector('[data-focus]');
      if (!target) return false;
      if (!isTyping(document.activeElement)) target.focus({ preventScroll: true });
      return true;
    };
    if (take()) return undefined;
    const observer = new MutationObserver(() => take() && observer.disconnect());
    observer.observe(main.current, { childList: true, subtree: true });
    return () => observer.disconnect();
  }, [address]);
}

function isTyping(element) {
  return element instanceof HTMLElement && element.matches('input:not([type=checkbox]), select, textarea');
}

function onKey(event, route, help) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const typing = isTyping(event.target);
  if (event.key === 'Escape') {
    if (typing) document.querySelector('[data-focus]')?.focus();
    else if (route.view === 'object' && history.length > 1) history.back();
    else if (route.view !== 'fleet') location.hash = '#/';
    return;
  }
  if (typing) return;
  const act = {
    '/': () => document.getElementById('search').select(),
    '?': () => help.showModal(),
    f: () => { location.hash = '#/'; },
    g: () => { location.hash = '#/kinds'; },
    m: () => { location.hash = '#/moves'; },
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

function SearchBox({ route }) {
  const shown = route.view === 'search' ? route.text : '';
  const [text, setText] = useState(shown);
  const timer = useRef(0);
  const input = useRef();
  // The address changes by a link, or by the button to go back.
  useEffect(() => {
    const isBegun = route.view === 'search' && route.text.endsWith(' ');
    // What was typed last is not looked for once something else is shown, such as an object that was opened at once.
    if (route.view !== 'search') clearTimeout(timer.current);
    // What is being typed is ahead of the address.
    if (route.view !== 'search' || isBegun || document.activeElement !== input.current) setText(shown);
    if (isBegun) input.current.focus();
  }, [shown]);
  const go = (value) => {
    clearTimeout(timer.current);
    const hash = `#/search?q=${encodeURIComponent(value)}`;
    if (location.hash === hash) return;
    // One step back leaves the search, and not a letter of it.
    if (route.view === 'search') location.replace(hash);
    else location.hash = hash;
  };
  const typed = ({ target }) => {
    setText(target.value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => go(target.value), TYPED);
  };
  const pressed = (event) => {
    if (event.key !== 'ArrowDown') return;
    event.preventDefault();
    document.querySelector('.grid')?.focus();
  };
  const submitted = (event) => {
    event.preventDefault();
    go(text);
    document.querySelector('.grid')?.focus();
  };
  return html`<form role="search" onSubmit=${submitted}><label class="unseen" for="search">Search all members</label>
    <input id="search" type="search" ref=${input} autocomplete="off" spellcheck=${false} placeholder="Search all members ( / )" value=${text}
      onInput=${typed} onKeyDown=${pressed} /></form>`;
}

// What does not work now.
function Banner() {
  const [first, ...others] = [...useCell(problems).values()];
  return html`<div role="alert" class=${first ? 'banner' : ''}>${first && `${first.text} Trying again…${others.length ? ` (${others.length + 1} requests)` : ''}`}</div>`;
}

// What answers warn of, as kubectl prints it.
function Warnings() {
  const news = useCell(warnings).filter(({ isSeen }) => !isSeen);
  return html`<aside aria-label="Warnings" aria-live="polite" class=${news.length ? 'warnings' : ''}>${news.length > 0 && html`
    <ul>${news.slice(0, WARNINGS_SHOWN).map(({ text, about }) => html`<li key=${about}>${text}</li>`)}</ul>
    ${news.length > WARNINGS_SHOWN && html`<p>and ${news.length - WARNINGS_SHOWN} more</p>`}
    <button type="button" onClick=${dismissWarnings}>Dismiss</button>`}</aside>`;
}

render(html`<${App} />`, document.getElementById('app'));
