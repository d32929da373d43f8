// A provider of OpenID Connect, with a person at its login form: node oidc.mjs PORT CERTIFICATE KEY AUTHORITY.
//
// Prints "ready" once it serves at https://localhost:PORT. For each line "USER GROUP,GROUP" on standard input it logs that
// user in by the authorization code flow, as a browser does, and prints the ID token.

import { readFileSync } from 'node:fs';
import https from 'node:https';
import { createInterface } from 'node:readline';
import { createHash, randomBytes } from 'node:crypto';
import Provider from 'oidc-provider';

const [port, certificate, key, authority] = process.argv.slice(2);
const issuer = `https://localhost:${port}`;
const redirect = 'https://localhost/callback';
const groups = new Map();

const provider = new Provider(issuer, {
  clients: [{ client_id: 'kubefold', redirect_uris: [redirect], token_endpoint_auth_method: 'none' }],
  claims: { openid: ['sub', 'groups'] },
  conformIdTokenClaims: false,
  cookies: { keys: [randomBytes(16).toString('hex')] },
  ttl: { IdToken: 600 },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: groups.get(id) }) }),
});
const server = https.createServer({ cert: readFileSync(certificate), key: readFileSync(key) }, provider.callback());
await new Promise((resolve) => server.listen(Number(port), '127.0.0.1', resolve));
console.log('ready');

// A browser: it keeps cookies, and says where it is sent.
class Browser {
  cookies = new Map();

  async go(url, form) {
    const body = form && new URLSearchParams(form).toString();
    const headers = { cookie: [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ') };
    if (body) headers['content-type'] = 'application/x-www-form-urlencoded';
    const options = { method: body ? 'POST' : 'GET', headers, ca: readFileSync(authority) };
    const answer = await new Promise((resolve, reject) => {
      const request = https.request(url, options, (response) => {
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

  // Follows redirects to a page, or to the client's own address.
  async follow(url, form) {
    let answer = await this.go(url, form);
    let at = url;
    while (answer.headers.location) {
      at = new URL(answer.headers.location, at).href;
      if (at.startsWith(redirect)) break;
      answer = await this.go(at);
    }
    return { at, answer };
  }
}

async function login(user) {
  const verifier = randomBytes(32).toString('base64url');
  const challenge = createHash('sha256').update(verifier).digest('base64url');
  const query = new URLSearchParams({
    client_id: 'kubefold', response_type: 'code', scope: 'openid', redirect_uri: redirect,
    code_challenge: challenge, code_challenge_method: 'S256',
  });
  const browser = new Browser();
  let page = await browser.follow(`${issuer}/auth?${query}`);
  // The forms of the provider: who one is, and whether the client may know.
  for (const form of [{ prompt: 'login', login: user, password: 'any' }, { prompt: 'consent' }]) {
    if (page.at.startsWith(redirect)) break;
    page = await browser.follow(page.at, form);
  }
  const code = new URL(page.at).searchParams.get('code');
  if (!code) throw new Error(`no code at ${page.at}: ${page.answer.status} ${page.answer.text}`);
  const tokens = await browser.go(`${issuer}/token`, {
    grant_type: 'authorization_code', code, redirect_uri: redirect, client_id: 'kubefold', code_verifier: verifier,
  });
  return JSON.parse(tokens.text).id_token;
}

for await (const line of createInterface({ input: process.stdin })) {
  const [user, names] = line.split(' ');
  groups.set(user, (names ?? '').split(',').filter(Boolean));
  console.log(await login(user));
}
