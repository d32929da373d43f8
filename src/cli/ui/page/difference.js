// Where the parts of an object differ.

// What each server assigns by itself.
const OWN = new Set(['uid', 'resourceVersion', 'creationTimestamp', 'generation', 'managedFields', 'selfLink']);
// It names the member whose part it is.
const MARKER = 'kubefold.io/placement';

// Differences of the parts' fields: [{path, values}], where `values` has one text for each part. `parts` are objects, in order.
export function differences(parts) {
  const found = [];
  compare('', parts.map(stripped), found);
  return found;
}

function stripped({ metadata = {}, ...rest }) {
  const { annotations = {}, ...own } = metadata;
  const without = (fields, isLeftOut) => Object.fromEntries(Object.entries(fields).filter(([name]) => !isLeftOut(name)));
  const kept = { ...without(own, (name) => OWN.has(name)), annotations: without(annotations, (name) => name === MARKER) };
  return { ...rest, metadata: kept };
}

function compare(path, values, found) {
  if (values.every((value) => isEqual(value, values[0]))) return;
  const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
  const isList = values.every((value) => Array.isArray(value)) && values.every(({ length }) => length === values[0].length);
  if (values.every(isObject)) {
    const names = new Set(values.flatMap((value) => Object.keys(value)));
    for (const name of [...names].sort()) {
      const step = /^[\w-]+$/.test(name) ? `.${name}` : `['${name}']`;
      compare(path + step, values.map((value) => value[name]), found);
    }
  } else if (isList) {
    values[0].forEach((_, at) => compare(`${path}[${at}]`, values.map((value) => value[at]), found));
  } else {
    found.push({ path, values: values.map((value) => (value === undefined ? '(absent)' : JSON.stringify(value))) });
  }
}

function isEqual(one, other) {
  if (one === other) return true;
  if (one === null || other === null || typeof one !== 'object' || typeof other !== 'object') return false;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => isEqual(one[name], other[name]));
}
