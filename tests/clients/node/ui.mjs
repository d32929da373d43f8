// A person before the page of kubefold ui, in a real browser: node ui.mjs CHROMIUM. Each line of stdin is an order, such as
// {"do": "see", "text": "west"}; each has one line on stdout, {"type": "DONE"} or {"type": "FAILED", "error"}.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { chromium } from 'playwright-core';

// For one thing to be seen. The test has its own, longer bound.
const SOON_MS = 60_000;
// In which the page is looked at: both widths, both colour schemes.
const WIDTHS = [{ width: 1280, height: 800 }, { width: 375, height: 740 }];
const SCHEMES = ['light', 'dark'];

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
// A container has no namespaces for a sandbox of a browser that root runs. Debian's package draws by the GPU, which a machine without one
// computes: on a busy machine a page was not drawn for minutes.
const browser = await chromium.launch({ executablePath: process.argv[2], args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] });
const context = await browser.newContext({ viewport: WIDTHS[0], colorScheme: 'light' });
context.setDefaultTimeout(SOON_MS);
const page = await context.newPage();
// What the browser complains of, such as a violated policy, and what the page asked other hosts for.
let complaints = [];
page.on('pageerror', (error) => complaints.push(`error of a script: ${error.stack}`));
page.on('console', (message) => {
  const isOfPage = !/Failed to load resource|net::ERR/.test(message.text());
  if (['error', 'warning'].includes(message.type()) && isOfPage) complaints.push(message.text());
});
let host = '';
page.on('request', (request) => {
  if (host && new URL(request.url()).host !== host) complaints.push(`a request to another host: ${request.url()}`);
});

// In the page: whether an element that the selector finds has the text, in whatever case.
const look = ({ text, within }) => {
  const plain = (words) => words.replace(/\s+/g, ' ').trim().toLowerCase();
  const found = [...document.querySelectorAll(within)].filter((element) => plain(element.textContent).includes(plain(text)));
  const isSeen = (element) => element.getClientRects().length > 0 && element.checkVisibility({ visibilityProperty: true });
  return found.some(isSeen) ? 'seen' : found.length > 0 ? 'hidden' : 'missing';
};

// Asks the page until the text is as wanted. Playwright's own wait asks with each frame that is drawn, and where much is to do there may be none.
async function until(wanted, place) {
  const end = Date.now() + SOON_MS;
  // A page that is left while it is asked answers nothing.
  while (await page.evaluate(look, place).catch(() => undefined) !== wanted) {
    if (Date.now() > end) throw new Error(`not ${wanted} after ${SOON_MS} ms: ${JSON.stringify(place)}`);
    await pause(100);
  }
}

const orders = {
  // Opens an address. The answer has the status and the address at which the page is then.
  async open({ url }) {
    host = new URL(url).host;
    const response = await page.goto(url);
    return { status: response?.status() };
  },
  // Waits until a text is seen, in the element with a selector if there is one.
  async see({ text, within = 'body' }) {
    await until('seen', { text, within });
  },
  // Waits until a text is not there.
  async miss({ text, within = 'body' }) {
    await until('missing', { text, within });
  },
  async press({ key }) {
    await page.keyboard.press(key);
  },
  async type({ text }) {
    await page.keyboard.type(text);
  },
  async click({ within, text }) {
    await page.locator(within).getByText(text, { exact: true }).first().click();
  },
  // Where the focus is, what the address is, and what is asked of the page.
  async state() {
    const focus = await page.evaluate(() => {
      const { id, tagName, className } = document.activeElement;
      return id || className || tagName.toLowerCase();
    });
    return { focus, url: page.url(), cookies: await page.evaluate(() => document.cookie), rows: await page.locator('.grid-body .grid-row').count() };
  },
  // Looks for whatever keeps somebody from using the page as it is now.
  async audit() {
    const found = [];
    for (const size of WIDTHS) {
      await page.setViewportSize(size);
      for (const colorScheme of SCHEMES) {
        await page.emulateMedia({ colorScheme });
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() => globalThis.axe.run());
        found.push(...violations.map(({ id, nodes }) => `${size.width} ${colorScheme} ${id}: ${nodes.map(({ html }) => html).join(' ')}`));
      }
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (over > 0) found.push(`${size.width}: the page is ${over} pixels too wide`);
    }
    await page.setViewportSize(WIDTHS[0]);
    await page.emulateMedia({ colorScheme: SCHEMES[0] });
    found.push(...complaints);
    complaints = [];
    return { found };
  },
  async shoot({ file }) {
    await page.screenshot({ path: file });
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  let answer;
  try {
    answer = { type: 'DONE', ...await orders[order.do](order) };
  } catch (error) {
    const seen = await page.locator('body').innerText().catch(() => '');
    answer = { type: 'FAILED', error: `${error.message}\nat ${page.url()}\n${seen.slice(0, 2_000)}\n${complaints.join('\n')}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
