// The pages of the console in a real browser, with and without scripts: each page in both languages,
// both themes and two widths; and the way of a user through them. The Go test beside this directory
// runs it against the demo. It reads one JSON object from standard input, and writes a JSON line for
// each step, as walk.mjs does.

import { mkdir } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { App } from './authenticator.mjs';
import { faultsOf, listen } from './inspect.mjs';
import { hasFailed, launch, step, want, write } from './steps.mjs';

// administrator: a user with the role, whose password is that of the demo's user. images: the folder for screenshots;
// empty: none are taken.
const { origin, user, password, administrator, executablePath, images } = JSON.parse(await text(process.stdin));
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

// walk opens each kind of page of some paths and, if it follows links, of those to which they lead:
// once, in a step of its own, in both themes and both widths.
async function walk(page, paths, { language, seen, only = '', follow = true }) {
  for (const queue = paths.map((path) => origin + path); queue.length > 0;) {
    const address = queue.shift();
    const path = new URL(address).pathname.replace(/\/(key_|task_|usr_)?[A-Za-z0-9_-]{16,}/g, '/*').replace(/\/\d+/g, '/*');
    if (seen.has(path) || path.includes('/assets/') || path.endsWith('/download') || !path.startsWith(only)) {
      continue;
    }
    seen.add(path);
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
          want(faults.length === 0, `${address}, ${theme}, ${width}:\n${faults.join('\n')}`);
        }
      }
      queue.push(...follow ? await links(page).catch(() => links(page)) : []); // a page may reload itself
    });
  }
}

// send sends a request of the API from a page.
const send = (page, method, path, body) => page.evaluate(async ({ method, path, body }) => (await (await fetch(path, { method, headers: { 'content-type': 'application/json' }, body: body && JSON.stringify(body) })).json()), { method, path, body });

let app; // the authenticator app of the administrator
let session = []; // the cookies of the administrator

// administer returns a page of the administrator, who has logged in before.
async function administer(terms) {
  const page = await arrive(terms);
  await page.context().addCookies(session);
  return page;
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
    for (const [path, body] of [
      ['/api/task/self/', { type: 'image', model: 'image-demo-1', prompt: '<b>a lighthouse</b> ‮ at dusk 🌅' }],
      ['/api/subscription/wallet/pay', { plan_id: 1, idempotency_key: 'pages' }],
      ['/api/user/demo/pay', { amount: '10.00', idempotency_key: 'pages' }],
    ]) {
      const answer = await send(page, 'POST', path, body);
      want(answer.success, `${path}: ${JSON.stringify(answer)}`);
    }
    await page.context().close();
  });

  for (const language of Object.keys(languages)) {
    const page = await arrive({ language });
    const seen = new Set();
    await walk(page, ['/', '/console/login', '/console/register', '/console/reset', '/console/setup'], { language, seen, follow: false });
    await step(`log in in ${language}`, () => logIn(page));
    await walk(page, ['/console'], { language, seen });
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

  await step('an administrator needs a second factor', async () => {
    const page = await arrive();
    await logIn(page, administrator);
    const refused = await page.goto(`${origin}/console/admin`);
    want(refused.status() === 403, `without a factor: ${refused.status()}`);
    await page.click('main a[href="/console/security"]');
    await page.click('a[href="/console/security/totp"]');
    await page.fill('[name=password]', password);
    await press(page, 'totp_setup');
    app = new App((await page.textContent('#seed')).replaceAll(' ', ''));
    await page.fill('[name=code]', await app.code());
    await press(page, 'totp_enable');
    await page.waitForSelector('#codes');
    await page.goto(`${origin}/console`);
    await page.click('nav a[href="/console/admin"]');
    await page.waitForSelector('#find-id');
    session = await page.context().cookies();
    await page.context().close();
  });

  for (const javaScriptEnabled of [true, false]) {
    await step(`an administrator explains and corrects a double payment, ${javaScriptEnabled ? 'with' : 'without'} scripts`, async () => {
      const customer = await arrive();
      await logIn(customer);
      const orders = [];
      for (const _ of [1, 2]) { // the customer is impatient, and pays two orders
        const { data } = await send(customer, 'POST', '/api/user/demo/pay', { amount: '7.00', idempotency_key: crypto.randomUUID() });
        orders.push(data.trade_no);
        await customer.goto(data.pay_url);
        await customer.click('button[value=pay]');
        await customer.goto(`${origin}/console`); // its policy allows the requests of the script
      }
      const { data: before } = await send(customer, 'GET', '/api/user/self');

      const page = await administer({ javaScriptEnabled });
      await page.goto(`${origin}/console/admin`);
      await page.fill('#find-id', orders[1]);
      await page.click('form[role=search] button');
      await page.waitForURL(`${origin}/console/admin/orders/${orders[1]}`);
      want((await page.textContent('main')).includes('+7.00 USD'), 'the order does not show its credit');
      await page.click('a:has-text("Ledger of the user")');
      for (const order of orders) {
        want(await page.isVisible(`tr:has-text("Top-up") a[href$="${order}"]`), `the ledger does not name ${order}`);
      }
      await page.click('main p a'); // to the user
      want((await page.textContent('.figure')).startsWith(before.balance), `the balance is ${await page.textContent('.figure')}, not ${before.balance}`);
      await page.click('a:has-text("Debit the wallet")');
      await page.fill('[name=amount]', '7.00');
      await page.fill('[name=reason]', `order ${orders[1]} was paid twice <b>`);
      await press(page, 'wallet_debit_review');
      if (await page.isVisible('form[data-verify]')) { // the step-up comes before the summary
        await page.fill('[name=code]', await app.code());
        await press(page, 'verify');
      }
      const after = (await page.locator('.sums strong').last().textContent()).split(' ')[0];
      want(Math.abs(Number(before.balance) - 7 - Number(after)) < 1e-9, `${before.balance} becomes ${after}`);
      want((await send(customer, 'GET', '/api/user/self')).data.balance === before.balance, 'the summary has moved money');
      await press(page, 'wallet_debit');
      await page.waitForURL(/done=wallet_debit$/);
      session = await page.context().cookies(); // a step-up gives the session a new secret
      const { data: now } = await send(customer, 'GET', '/api/user/self');
      want(now.balance === after, `the balance is ${now.balance}, not ${after}`);
      await customer.goto(`${origin}/console/ledger`);
      want((await customer.textContent('tbody tr')).includes(`order ${orders[1]} was paid twice <b>`), 'the ledger does not have the reason');
      want(page.errors.length === 0, page.errors.join('\n'));
      await page.context().close();
      await customer.context().close();
    });
  }

  await step('an administrator credits a wallet after a step-up by passkey', async () => {
    const page = await administer();
    const device = await page.context().newCDPSession(page);
    await device.send('WebAuthn.enable');
    await device.send('WebAuthn.addVirtualAuthenticator', {
      options: { protocol: 'ctap2', transport: 'internal', hasResidentKey: true, hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true },
    });
    await page.goto(`${origin}/console/security/passkey`);
    if (await page.isVisible('form[data-verify]')) {
      await page.fill('[name=code]', await app.code());
      await press(page, 'verify');
    }
    await page.fill('form:has([data-passkey=register]) [name=name]', 'this device');
    if (await page.isVisible('form:has([data-passkey=register]) [name=password]')) {
      await page.fill('form:has([data-passkey=register]) [name=password]', password);
    }
    await page.click('[data-passkey=register]');
    await page.waitForURL(/done=passkey_added/);
    const { id } = (await send(page, 'GET', `/api/admin/find?text=${user}`)).data.items.find((item) => item.kind === 'user');
    const balanceNow = async () => (await send(page, 'GET', `/api/admin/wallets/${id}`)).data.balance;
    const before = await balanceNow();
    await page.goto(`${origin}/console/admin/users/${id}`);
    await page.click('a:has-text("Credit the wallet")');
    await page.fill('[name=amount]', '7.00');
    await page.fill('[name=reason]', 'goodwill');
    await press(page, 'wallet_credit_review');
    // A new factor ends the step-up before it.
    await page.click('[data-passkey=verify]');
    await page.waitForSelector('.sums');
    want(await balanceNow() === before, 'the step-up has moved money');
    await press(page, 'wallet_credit');
    await page.waitForURL(/done=wallet_credit$/);
    const after = await balanceNow();
    want(Math.abs(Number(before) + 7 - Number(after)) < 1e-9, `${before} becomes ${after}`);
    session = await page.context().cookies();
    await page.context().close();
  });

  for (const language of Object.keys(languages)) {
    const page = await administer({ language });
    const seen = new Set();
    let id = '';
    await step(`find the user in ${language}`, async () => {
      await page.goto(`${origin}/console`);
      id = (await send(page, 'GET', `/api/admin/users?q=${user}`)).data.items[0].id;
    });
    await walk(page, [`/console/admin/users/${id}`, '/console/admin'], { language, seen, only: '/console/admin' });
    await step(`all pages of the administration in ${language}`, async () => want(seen.size > 20, `only ${[...seen]}`));
    await page.context().close();
  }

  if (images) {
    await step('the screenshots', async () => {
      await mkdir(images, { recursive: true });
      // The gallery begins with plain prompts: those before have characters for which this machine may have no font.
      const maker = await arrive();
      await logIn(maker);
      for (const prompt of ['a harbour in the morning', 'a lighthouse at dusk', 'a street in the rain']) {
        want((await send(maker, 'POST', '/api/task/self/', { type: 'image', model: 'image-demo-1', prompt })).success, `the task "${prompt}" is refused`);
      }
      await maker.goto(`${origin}/console/tasks`);
      await maker.waitForFunction(() => document.querySelectorAll('.task img').length > 3 && !document.querySelector('[data-task]'), null, { timeout: 60000 });
      await maker.context().close();
      for (const theme of themes) {
        for (const [width, viewport] of Object.entries(widths)) {
          const page = await arrive({ theme, viewport });
          await logIn(page);
          for (const [name, path] of Object.entries({ overview: '', usage: '/usage', tasks: '/tasks', wallet: '/wallet', security: '/security' })) {
            await page.goto(`${origin}/console${path}`);
            await page.screenshot({ path: `${images}/${name}-${theme}-${width}.png` });
          }
          const { id } = (await send(page, 'GET', '/api/user/self')).data;
          const staff = await administer({ theme, viewport });
          await staff.goto(`${origin}/console/admin/users/${id}`);
          await staff.screenshot({ path: `${images}/administration-${theme}-${width}.png` });
          await staff.context().close();
          await page.context().close();
        }
      }
    });
  }
} finally {
  await browser.close();
}
process.exitCode = hasFailed() ? 1 : 0;
