// Texts as kubectl writes them.

// Source: kubernetes/apimachinery `pkg/util/duration/duration.go`, `HumanDuration`. Units: milliseconds.
export function age(milliseconds) {
  const seconds = Math.floor(milliseconds / 1000);
  if (seconds < 0) return '0s';
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return two(minutes, 'm', seconds % 60, 's');
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 8) return two(hours, 'h', minutes % 60, 'm');
  if (hours < 48) return `${hours}h`;
  const days = Math.floor(hours / 24);
  if (hours < 192) return two(days, 'd', hours % 24, 'h');
  if (days < 730) return `${days}d`;
  const years = Math.floor(days / 365);
  return years < 8 ? two(years, 'y', days % 365, 'd') : `${years}y`;
}

function two(first, unit, second, small) {
  return second ? `${first}${unit}${second}${small}` : `${first}${unit}`;
}

// Units: bytes.
export function size(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  let value = bytes;
  for (; value >= 1024 && at < units.length - 1; at += 1) value /= 1024;
  return `${value < 10 && at ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

// YAML of an object as kubectl shows it: without `metadata.managedFields`. A server wrote it, so blocks are told by their indent.
export function withoutManagedFields(yaml) {
  let section = '';
  let isLeftOut = false;
  return yaml.split('\n').filter((line) => {
    if (/^\S/.test(line) && !line.startsWith('- ')) section = line;
    if (isLeftOut && (/^ {2}- /.test(line) || /^ {3}/.test(line))) return false;
    isLeftOut = section === 'metadata:' && line === '  managedFields:';
    return !isLeftOut;
  }).join('\n');
}
