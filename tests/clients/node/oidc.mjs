// A provider of OpenID Connect, with a person at its login form: node oidc.mjs PORT CERTIFICATE KEY AUTHORITY.
//
// Prints "ready" once it serves at https://localhost:PORT. Each line on standard input is an order:
//   USER GROUP,GROUP            logs that user in by the authorization code flow, as a browser does, and prints the ID token
//   account USER GROUP,GROUP    makes an account for browser.mjs, and prints "account"
//   life SECONDS                how long ID tokens are good from now on; prints "life"
//   grants                      prints "grants" and, as JSON, how often the token endpoint gave tokens for each grant
// It knows programs on a person's machine as the client kubefold, and the client office with the secret "of-the-office".

import { readFileSync } from 'node:fs';
import https from 'node:https';
import { createInterface } from 'node:readline';
import { createHash, randomBytes } from 'node:crypto';
import Provider from 'oidc-provider';
import { Browser } from './browser.mjs';

const [port, certificate, key, authority] = process.argv.slice(2);
const issuer = `https://localhost:${port}`;
const redirect = 'http://127.0.0.1/callback';
const groups = new Map();
const grants = {};
let life = 600;

const device = 'urn:ietf:params:oauth:grant-type:device_code';
// On a person's machine any port may be the one that is free.
const program = {
  application_type: 'native',
  redirect_uris: [redirect, 'http://localhost/callback'],
  grant_types: ['authorization_code', 'refresh_token', device],
  response_types: ['code'],
};
const provider = new Provider(issuer, {
  clients: [
    { client_id: 'kubefold', token_endpoint_auth_method: 'none', ...program },
    { client_id: 'office', client_secret: 'of-the-office', token_endpoint_auth_method: 'client_secret_basic', ...program },
  ],
  claims: { openid: ['sub', 'groups'] },
  conformIdTokenClaims: false,
  cookies: { keys: [randomBytes(16).toString('hex')] },
  features: { deviceFlow: { enabled: true } },
  ttl: { IdToken: () => life },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: groups.get(id) }) }),
});
provider.on('grant.success', (context) => {
  const { grant_type: type } = context.oidc.params;
  grants[type] = (grants[type] ?? 0) + 1;
});
const server = https.createServer({ cert: readFileSync(certificate), key: readFileSync(key) }, provider.callback());
await new Promise((resolve) => server.listen(Number(port), '127.0.0.1', resolve));
console.log('ready');

async function login(user) {
  const verifier = randomBytes(32).toString('base64url');
  const challenge = createHash('sha256').update(verifier).digest('base64url');
  const query = new URLSearchParams({
    client_id: 'kubefold', response_type: 'code', scope: 'openid', redirect_uri: redirect,
    code_challenge: challenge, code_challenge_method: 'S256',
  });
  const browser = new Browser(authority);
  const page = await browser.browse(`${issuer}/auth?${query}`, user, (at) => at.startsWith(redirect));
  const code = new URL(page.at).searchParams.get('code');
  if (!code) throw new Error(`no code at ${page.at}: ${page.answer.status} ${page.answer.text}`);
  const tokens = await browser.go(`${issuer}/token`, {
    grant_type: 'authorization_code', code, redirect_uri: redirect, client_id: 'kubefold', code_verifier: verifier,
  });
  return JSON.parse(tokens.text).id_token;
}

const account = (user, names) => groups.set(user, (names ?? '').split(',').filter(Boolean));
for await (const line of createInterface({ input: process.stdin })) {
  const [order, ...rest] = line.split(' ');
  if (order === 'account') {
    account(...rest);
    console.log('account');
  } else if (order === 'life') {
    life = Number(rest[0]);
    console.log('life');
  } else if (order === 'grants') {
    console.log(`grants ${JSON.stringify(grants)}`);
  } else {
    account(order, rest[0]);
    console.log(await login(order));
  }
}
