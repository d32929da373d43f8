// The libraries as the page uses them.

import { h } from './vendor/preact.js';
import htm from './vendor/htm.js';
import { useEffect, useReducer } from './vendor/hooks.js';

export { render } from './vendor/preact.js';
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from './vendor/hooks.js';
export const html = htm.bind(h);

// A value that parts of the page follow.
export function cell(value) {
  const followers = new Set();
  return {
    get value() { return value; },
    set(next) {
      value = next;
      followers.forEach((follow) => follow());
    },
    follow(changed) {
      followers.add(changed);
      return () => followers.delete(changed);
    },
  };
}

// The value of a cell, in a component that is drawn again when it changes.
export function useCell(one) {
  const [, draw] = useReducer((count) => count + 1, 0);
  useEffect(() => one.follow(draw), [one]);
  return one.value;
}
