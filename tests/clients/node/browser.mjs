// A browser with a person before it: node browser.mjs URL USER AUTHORITY opens the URL, logs USER in at the forms that come, agrees to
// whatever is asked, and prints the status and the address of the last page, and its text.

import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { pathToFileURL } from 'node:url';

// Forms before one gives up.
const FORMS_MAX = 10;

export class Browser {
  cookies = new Map();

  constructor(authority) {
    this.ca = readFileSync(authority);
  }

  async go(url, form) {
    const body = form && new URLSearchParams(form).toString();
    const headers = { cookie: [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ') };
    if (body) headers['content-type'] = 'application/x-www-form-urlencoded';
    const options = { method: body ? 'POST' : 'GET', headers, ca: this.ca };
    const by = url.startsWith('http:') ? http : https;
    const answer = await new Promise((resolve, reject) => {
      const request = by.request(url, options, (response) => {
        let text = '';
        response.on('data', (chunk) => { text += chunk; });
        response.on('end', () => resolve({ text, status: response.statusCode, headers: response.headers }));
      });
      request.on('error', reject);
      request.end(body);
    });
    for (const cookie of answer.headers['set-cookie'] ?? []) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
      this.cookies.set(name, value);
    }
    return answer;
  }

  // Follows redirects to a page, or to an address that is not to be asked.
  async follow(url, form, stop = () => false) {
    let answer = await this.go(url, form);
    let at = url;
    while (answer.headers.location) {
      at = new URL(answer.headers.location, at).href;
      if (stop(at)) break;
      answer = await this.go(at);
    }
    return { at, answer };
  }

  // Goes on until a page has no form.
  async browse(url, user, stop) {
    let page = await this.follow(url, undefined, stop);
    for (let count = 0; count < FORMS_MAX && !stop?.(page.at); count += 1) {
      const form = formOf(page.answer.text);
      if (!form) return page;
      if ('login' in form.fields) Object.assign(form.fields, { login: user, password: 'any' });
      page = await this.follow(new URL(form.action, page.at).href, form.fields, stop);
    }
    return page;
  }
}

function formOf(html) {
  const found = /<form[^>]*action="([^"]*)"[^>]*>([\s\S]*?)<\/form>/.exec(html);
  if (!found) return undefined;
  const attribute = (tag, name) => new RegExp(`\\s${name}="([^"]*)"`).exec(tag)?.[1];
  const inputs = [...found[2].matchAll(/<input[^>]*>/g)].map(([tag]) => [attribute(tag, 'name'), attribute(tag, 'value') ?? '']);
  return { action: found[1].replaceAll('&amp;', '&'), fields: Object.fromEntries(inputs) };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [url, user, authority] = process.argv.slice(2);
  const { at, answer } = await new Browser(authority).browse(url, user);
  console.log(`${answer.status} ${at}\n${answer.text}`);
}
