// The pages of the console in a real browser, with and without scripts: each page in both languages,
// both themes and two widths; and the way of a user through them. The Go test beside this directory
// runs it against the demo. It reads one JSON object from standard input, and writes a JSON line for
// each step, as walk.mjs does.

import { mkdir } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { faultsOf, listen } from './inspect.mjs';
import { hasFailed, launch, step, want, write } from './steps.mjs';

// images: the folder for screenshots; empty: none are taken.
const { origin, user, password, executablePath, images } = JSON.parse(await text(process.stdin));
const widths = { desktop: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } };
const languages = { en: 'Log in', zh: '登录' };
const themes = ['light', 'dark'];

const browser = await launch(executablePath);

// arrive returns a page of a new visitor.
async function arrive({ language = 'en', theme = 'light', viewport = widths.desktop, javaScriptEnabled = true } = {}) {
  const context = await browser.newContext({ locale: language === 'zh' ? 'zh-CN' : 'en-US', colorScheme: theme, viewport, javaScriptEnabled });
  const page = await context.newPage();
  page.errors = listen(page);
  return page;
}

async function logIn(page, name = user, secret = password) {
  await page.goto(`${origin}/console/login`);
  await page.fill('[name=username]', name);
  await page.fill('[name=password]', secret);
  await page.click('main form button:not([type=button])');
  await page.waitForURL(`${origin}/console`);
}

async function press(page, action) {
  await page.click(`form:has(input[name=do][value=${action}]) button:not([type=button])`);
}

// links returns the addresses of the pages of the console that a page links to.
async function links(page) {
  const found = await page.$$eval('a[href]', (all) => all.map((a) => a.href));
  return found.filter((href) => href.startsWith(`${origin}/console`)).map((href) => href.split('#')[0]);
}

try {
  await step('a page with faults is found out', async () => {
    const page = await arrive({ viewport: widths.phone });
    await page.route(`${origin}/console/login`, async (route) => {
      const answer = await route.fetch();
      const body = (await answer.text()).replaceAll('<label ', '<span ').replace('</main>', '<p>!no.message!</p><pre class="nowrap">' + 'x'.repeat(400) + '</pre><img src="/console/none.png"><script>1</script></main>')
        .replace('<pre class="nowrap">', '<table><tr><td class="nowrap">');
      await route.fulfill({ response: answer, body });
    });
    await page.goto(`${origin}/console/login`);
    const faults = await faultsOf(page, 'zh');
    for (const wanted of ['label', 'no message', 'the language', 'a broken image']) {
      want(faults.some((fault) => fault.includes(wanted)), `no fault of ${wanted} among ${JSON.stringify(faults)}`);
    }
    want(page.errors.some((error) => error.includes('Content Security Policy')), `the inline script is allowed: ${JSON.stringify(page.errors)}`);
    await page.context().close();
  });

  // The user of the demo gets something to show on every page.
  await step('a user of the demo makes a task, a purchase and an order', async () => {
    const page = await arrive();
    await logIn(page);
    const post = (path, body) => page.evaluate(async ({ path, body }) => (await (await fetch(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })).json()), { path, body });
    for (const [path, body] of [
      ['/api/task/self/', { type: 'image', model: 'image-demo-1', prompt: '<b>a lighthouse</b> ‮ at dusk 🌅' }],
      ['/api/subscription/wallet/pay', { plan_id: 1, idempotency_key: 'pages' }],
      ['/api/user/demo/pay', { amount: '10.00', idempotency_key: 'pages' }],
    ]) {
      const answer = await post(path, body);
      want(answer.success, `${path}: ${JSON.stringify(answer)}`);
    }
    await page.context().close();
  });

  // Each page is loaded once in each language, and then looked at in both themes and both widths.
  for (const language of Object.keys(languages)) {
    const page = await arrive({ language });
    const seen = new Set();
    const see = async (address) => {
      const path = new URL(address).pathname.replace(/\/(key_|task_|usr_)?[A-Za-z0-9_-]{12,}/g, '/*').replace(/\/\d+/g, '/*');
      if (seen.has(path) || path.includes('/assets/')) {
        return [];
      }
      seen.add(path);
      let found = [];
      await step(`${path} in ${language}`, async () => {
        const answer = await page.goto(address);
        want(answer.status() === 200, `${address}: ${answer.status()}`);
        for (const theme of themes) {
          await page.emulateMedia({ colorScheme: theme });
          const dark = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
          want((theme === 'dark') === (parseInt(dark.match(/\d+/)[0], 10) < 100), `the background is ${dark} in the theme ${theme}`);
          for (const [width, viewport] of Object.entries(widths)) {
            await page.setViewportSize(viewport);
            const faults = [...await faultsOf(page, language), ...page.errors.splice(0)];
            want(faults.length === 0, `${theme}, ${width}:\n${faults.join('\n')}`);
          }
        }
        found = await links(page);
      });
      return found;
    };
    for (const path of ['/', '/console/login', '/console/register', '/console/reset', '/console/setup']) {
      await see(origin + path);
    }
    await step(`log in in ${language}`, () => logIn(page));
    let queue = [`${origin}/console`];
    while (queue.length > 0) {
      const next = [];
      for (const address of queue) {
        next.push(...await see(address));
      }
      queue = next;
    }
    await step(`all pages in ${language}`, async () => want(seen.size > 25, `only ${[...seen]}`));
    await page.context().close();
  }

  for (const javaScriptEnabled of [true, false]) {
    await step(`a new customer, ${javaScriptEnabled ? 'with' : 'without'} scripts: register, log out, log in, language, theme`, async () => {
      const page = await arrive({ javaScriptEnabled });
      const name = javaScriptEnabled ? 'ada' : 'grace';
      await page.goto(origin);
      await page.click('a[href="/console/register"]');
      await page.fill('[name=username]', name);
      await page.fill('[name=password]', 'short');
      await press(page, 'register');
      want(await page.inputValue('[name=username]') === name && await page.isVisible('[role=alert]'), 'the name is gone, or no fault is shown');
      await page.fill('[name=password]', 'a password, long enough');
      await press(page, 'register');
      await page.waitForURL(`${origin}/console`);
      await press(page, 'logout');
      await page.waitForURL(/login/);
      want((await page.textContent('[role=status]')) !== '', 'no notice');
      await logIn(page, name, 'a password, long enough');
      await page.click('button[lang=zh]');
      want(await page.getAttribute('html', 'lang') === 'zh', 'not Chinese');
      await page.click('button[value=dark]');
      want(await page.getAttribute('html', 'data-theme') === 'dark', 'not dark');
      want(page.errors.length === 0 || !javaScriptEnabled || page.errors.every((error) => error.includes('400')), page.errors.join('\n'));
      await page.context().close();
    });
  }

  if (images) {
    await step('the screenshots', async () => {
      await mkdir(images, { recursive: true });
      for (const theme of themes) {
        for (const [width, viewport] of Object.entries(widths)) {
          const page = await arrive({ theme, viewport });
          await logIn(page);
          for (const [name, path] of Object.entries({ overview: '', usage: '/usage', tasks: '/tasks', wallet: '/wallet', security: '/security' })) {
            await page.goto(`${origin}/console${path}`);
            await page.screenshot({ path: `${images}/${name}-${theme}-${width}.png` });
          }
          await page.context().close();
        }
      }
    });
  }
} finally {
  await browser.close();
}
process.exitCode = hasFailed() ? 1 : 0;
