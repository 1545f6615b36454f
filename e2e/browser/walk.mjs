// The way of a person through the console in a real browser, and what pages that
// mean no good get. The Go test beside this directory runs it: it reads where to
// go as one JSON object from standard input, and writes what comes of it as JSON
// lines to standard output, one for each step: {step, ok, error?, took}; and at
// the end {secrets}, all that was secret, so that the test can look for it where
// none of it may be.

import { text } from 'node:stream/consumers';
import { App } from './authenticator.mjs';
import { hasFailed, launch, step, want, write } from './steps.mjs';
import { Visitor } from './visitor.mjs';

// origin: the site. secure: another one, by https. elsewhere: a page of another port of the same host, to which
// cookies go as they go to the site. foreign: a page of another host.
const { origin, secure, elsewhere, foreign, executablePath } = JSON.parse(await text(process.stdin));

const cookieName = 'modelgate_session';
const ceremonyName = `${cookieName}_passkey`;
const person = { username: 'ada', password: 'a password of ada, long enough' };
const secrets = [person.password];

const verify = (code) => ({ method: '2fa', code });
const byPasskey = { method: 'passkey' };

function wantVerified(answer) {
  const left = answer.data?.expires_at - Date.now() / 1000;
  want(answer.status === 200 && answer.message === '验证成功' && answer.data.verified === true && left > 270 && left < 301, `verify was answered ${answer.status} ${answer.text}`);
}

// cookiesSent returns what tells which cookies went out with a request to an
// address. The browser knows it even where it keeps the answer from the page.
async function cookiesSent(context, page) {
  const cdp = await context.newCDPSession(page);
  const addresses = new Map(); // by request
  const cookies = new Map();
  let news = () => {};
  cdp.on('Network.requestWillBeSent', ({ requestId, request }) => {
    addresses.set(requestId, request.url);
    news();
  });
  cdp.on('Network.requestWillBeSentExtraInfo', ({ requestId, associatedCookies }) => {
    cookies.set(requestId, associatedCookies.filter(({ blockedReasons }) => blockedReasons.length === 0).map(({ cookie }) => cookie));
    news();
  });
  await cdp.send('Network.enable');
  return async (address) => {
    for (;;) {
      for (const [id, url] of addresses) {
        if (url === address && cookies.has(id)) {
          return cookies.get(id);
        }
      }
      await new Promise((resolve) => (news = resolve));
    }
  };
}

const browser = await launch(executablePath);

try {
  const ada = await Visitor.arrive(browser, origin);
  let app, backup, stolen;

  await step('the page may have passkeys', async () => {
    const can = await ada.page.evaluate(() => window.isSecureContext && typeof PublicKeyCredential.parseCreationOptionsFromJSON);
    want(can === 'function', `this browser has no passkeys for the page: ${can}`);
  });

  await step('register and log in', async () => {
    await ada.isRefused('GET', '/api/user/self', undefined, 401, 'NOT_LOGGED_IN');
    await ada.does('POST', '/api/user/register', person);
    const entry = await ada.does('POST', '/api/user/login', person);
    want(entry.require_2fa === false && entry.user.username === 'ada', `the log-in says ${JSON.stringify(entry)}`);
    want((await ada.does('GET', '/api/user/self')).name === 'ada', 'the account is not that of ada');
  });

  await step('no script sees the cookie', async () => {
    const cookie = await ada.cookie(cookieName);
    want(cookie?.httpOnly && cookie.sameSite === 'Lax' && cookie.path === '/' && cookie.domain === 'localhost' && cookie.value.length === 43, `the cookie has ${JSON.stringify({ ...cookie, value: '' })}`);
    want((await ada.page.evaluate(() => document.cookie)) === '', 'document.cookie is not empty');
    secrets.push(cookie.value);
  });

  await step('enrol an authenticator app', async () => {
    const before = (await ada.cookie(cookieName)).value;
    await ada.isRefused('POST', '/api/user/2fa/setup', { password: 'not that of ada' }, 403, 'VERIFICATION_FAILED');
    const enrolment = await ada.does('POST', '/api/user/2fa/setup', { password: person.password });
    const width = await ada.page.evaluate(async (qr) => {
      const image = new Image();
      image.src = qr;
      await image.decode();
      return image.naturalWidth;
    }, enrolment.qr);
    want(width >= 100, `the picture is ${width} pixels wide`);
    app = new App(enrolment.secret);
    ({ backup_codes: backup } = await ada.does('POST', '/api/user/2fa/enable', { code: await app.code() }));
    secrets.push(enrolment.secret, enrolment.uri, ...backup);
    want(backup.length === 10, `there are ${backup.length} backup codes`);
    const after = (await ada.cookie(cookieName)).value;
    want(after !== before, 'the session has its old secret');
    secrets.push(after);
  });

  await step('enrol a passkey, after a step-up by a code', async () => {
    await ada.isRefused('POST', '/api/user/passkey/register/begin', { name: 'this device' }, 403, 'VERIFICATION_REQUIRED');
    const code = await app.code();
    wantVerified(await ada.ask('POST', '/api/verify', verify(code)));
    await ada.isRefused('POST', '/api/verify', verify(code), 403, 'VERIFICATION_FAILED');
    const options = await ada.does('POST', '/api/user/passkey/register/begin', { name: 'this device' });
    const made = await ada.does('POST', '/api/user/passkey/register/finish', await ada.creates(options));
    want(made.name === 'this device' && made.id, `the passkey is ${JSON.stringify(made)}`);
    const listed = await ada.does('GET', '/api/user/passkey');
    want(listed.items.length === 1 && listed.items[0].id === made.id, `the passkeys are ${JSON.stringify(listed)}`);
  });

  await step('the device makes no second passkey for the same account', async () => {
    // A new factor ends the step-up before it.
    await ada.isRefused('POST', '/api/user/passkey/register/begin', { name: 'this device again' }, 403, 'VERIFICATION_REQUIRED');
    const asked = await ada.does('POST', '/api/user/passkey/verify/begin');
    await ada.does('POST', '/api/user/passkey/verify/finish', await ada.signs(asked));
    wantVerified(await ada.ask('POST', '/api/verify', byPasskey));
    secrets.push((await ada.cookie(cookieName)).value);
    const options = await ada.does('POST', '/api/user/passkey/register/begin', { name: 'this device again' });
    const refusal = await ada.creates(options).then(() => 'none', String);
    want(refusal.includes('InvalidStateError'), `the browser said ${refusal}`);
  });

  await step('log out', async () => {
    await ada.does('POST', '/api/user/logout');
    want((await ada.cookie(cookieName)) === undefined, 'the browser still has the cookie');
    await ada.isRefused('GET', '/api/user/self', undefined, 401, 'NOT_LOGGED_IN');
  });

  await step('log in by passkey, with no name given', async () => {
    const options = await ada.does('POST', '/api/user/passkey/login/begin');
    want(!options.publicKey.allowCredentials?.length, 'the options name passkeys');
    const ceremony = await ada.cookie(ceremonyName);
    want(ceremony?.httpOnly && ceremony.sameSite === 'Strict' && ceremony.expires - Date.now() / 1000 < 121, `the ceremony's cookie has ${JSON.stringify({ ...ceremony, value: '' })}`);
    secrets.push(ceremony.value);
    const signed = await ada.signs(options);
    const entry = await ada.does('POST', '/api/user/passkey/login/finish', signed);
    want(entry.require_2fa === false && entry.user.username === 'ada', `the log-in says ${JSON.stringify(entry)}`);
    want((await ada.cookie(ceremonyName)) === undefined, 'the browser still has the cookie of the ceremony');
    await ada.isRefused('POST', '/api/user/passkey/login/finish', signed, 400, 'PASSKEY_NOT_COMPLETED');
    secrets.push((await ada.cookie(cookieName)).value);
  });

  await step('a log-in is finished where it was begun alone', async () => {
    const eve = await Visitor.arrive(browser, origin);
    const options = await ada.does('POST', '/api/user/passkey/login/begin');
    const signed = await ada.signs(options);
    await eve.isRefused('POST', '/api/user/passkey/login/finish', signed, 400, 'PASSKEY_NOT_COMPLETED');
    await eve.does('POST', '/api/user/passkey/login/begin'); // a ceremony of her own is another challenge
    await eve.isRefused('POST', '/api/user/passkey/login/finish', signed, 403, 'VERIFICATION_FAILED');
    await eve.isRefused('GET', '/api/user/self', undefined, 401, 'NOT_LOGGED_IN');
    await eve.context.close();
  });

  await step('a step-up by passkey', async () => {
    await ada.isRefused('POST', '/api/token/', { name: 'laptop' }, 403, 'VERIFICATION_REQUIRED');
    await ada.isRefused('POST', '/api/verify', byPasskey, 400, 'PASSKEY_NOT_COMPLETED');
    const options = await ada.does('POST', '/api/user/passkey/verify/begin');
    await ada.isRefused('POST', '/api/verify', byPasskey, 400, 'PASSKEY_NOT_COMPLETED');
    const signed = await ada.signs(options);
    await ada.does('POST', '/api/user/passkey/verify/finish', signed);
    await ada.isRefused('POST', '/api/user/passkey/verify/finish', signed, 400, 'PASSKEY_NOT_COMPLETED');
    wantVerified(await ada.ask('POST', '/api/verify', byPasskey));
    await ada.isRefused('POST', '/api/verify', byPasskey, 400, 'PASSKEY_NOT_COMPLETED');
    secrets.push((await ada.cookie(cookieName)).value);
  });

  await step('a user whom the device has not recognised is refused', async () => {
    await ada.verified(false);
    for (const [what, code] of [['verify', 'VERIFICATION_FAILED'], ['login', 'VERIFICATION_FAILED']]) {
      const options = await ada.does('POST', `/api/user/passkey/${what}/begin`);
      want(options.publicKey.userVerification === 'required', `${what} asks for ${options.publicKey.userVerification}`);
      options.publicKey.userVerification = 'discouraged'; // as a page would that means no good
      await ada.isRefused('POST', `/api/user/passkey/${what}/finish`, await ada.signs(options), 403, code);
    }
    await ada.isRefused('POST', '/api/verify', byPasskey, 400, 'PASSKEY_NOT_COMPLETED');
    await ada.verified(true);
  });

  await step('what another session has begun is not finished here', async () => {
    const bob = await Visitor.arrive(browser, origin);
    const account = { username: 'bob', password: 'a password of bob, long enough' };
    secrets.push(account.password);
    await bob.does('POST', '/api/user/register', account);
    await bob.does('POST', '/api/user/login', account);
    const own = await bob.does('POST', '/api/user/passkey/register/begin', { name: 'of bob', password: account.password });
    await bob.does('POST', '/api/user/passkey/register/finish', await bob.creates(own));
    const options = await ada.does('POST', '/api/user/passkey/verify/begin');
    const signed = await ada.signs(options);
    await bob.isRefused('POST', '/api/user/passkey/verify/finish', signed, 400, 'PASSKEY_NOT_COMPLETED');
    await bob.isRefused('POST', '/api/verify', byPasskey, 400, 'PASSKEY_NOT_COMPLETED');
    await ada.isRefused('POST', '/api/user/passkey/register/finish', signed, 400, 'PASSKEY_NOT_COMPLETED'); // nor for another purpose
    await ada.does('POST', '/api/user/passkey/verify/finish', signed);
    secrets.push((await bob.cookie(cookieName)).value);
    await bob.context.close();
  });

  await step('what the device signs for a page of another port is refused', async () => {
    const options = await ada.does('POST', '/api/user/passkey/verify/begin');
    await ada.page.goto(elsewhere);
    const signed = await ada.signs(options); // the browser lets it: rp_id has no port
    await ada.page.goto(origin);
    await ada.isRefused('POST', '/api/user/passkey/verify/finish', signed, 403, 'VERIFICATION_FAILED');
  });

  await step('create a key under the step-up, and call with it', async () => {
    const key = await ada.does('POST', '/api/token/', { name: 'laptop' });
    secrets.push(key.api_key);
    const call = { model: 'm-1', max_tokens: 16, messages: [{ role: 'user', content: 'Hi' }] };
    const version = { 'anthropic-version': '2023-06-01' };
    const answer = await ada.ask('POST', '/v1/messages', call, { ...version, 'x-api-key': key.api_key });
    want(answer.status === 200 && answer.content[0].text === 'Hello.', `the call was answered ${answer.status} ${answer.text}`);
    const byCookie = await ada.ask('POST', '/v1/messages', call, version);
    want(byCookie.status === 401, `a call by cookie was answered ${byCookie.status} ${byCookie.text}`);
  });

  // The attacks come from pages in ada's own browser, to whose requests it adds
  // her cookie where it does so for any page of that place.
  for (const [name, place, sends] of [['port', elsewhere, true], ['host', foreign, false]]) {
    await step(`a page of another ${name} can do nothing`, async () => {
      const page = await ada.context.newPage();
      await page.goto(place);
      const target = `${origin}/api/user/logout`;
      const sent = await cookiesSent(ada.context, page);
      const answered = (what) => Promise.all([page.waitForResponse((response) => response.url() === target && response.request().method() === 'POST'), what()]);

      const [blind] = await answered(() => page.evaluate((url) => fetch(url, { method: 'POST', mode: 'no-cors', credentials: 'include' }).then(() => {}, () => {}), target));
      want((await sent(target)).some((cookie) => cookie.name === cookieName) === sends, `the request had ${sends ? 'no' : 'a'} cookie: this proves nothing`);
      want(blind.status() === 403, `a request without CORS was answered ${blind.status()}`);

      const [form] = await answered(() => page.evaluate((url) => {
        const form = document.createElement('form');
        Object.assign(form, { action: url, method: 'post', enctype: 'text/plain' });
        document.body.append(form);
        form.submit();
      }, target));
      want(form.status() === 403 && (await form.json()).code === 'CROSS_ORIGIN', `a form was answered ${form.status()}`);

      await page.goto(place);
      const readable = await page.evaluate(async (urls) => {
        const tries = [
          fetch(urls.self, { credentials: 'include' }),
          fetch(urls.logout, { method: 'POST', credentials: 'include', headers: { 'content-type': 'application/json' }, body: '{}' }),
        ];
        return (await Promise.allSettled(tries)).map((end) => end.status);
      }, { self: `${origin}/api/user/self`, logout: target });
      want(readable.join() === 'rejected,rejected', `the page could read: ${readable}`);

      const framed = await page.evaluate((url) => new Promise((resolve) => {
        const frame = document.createElement('iframe');
        frame.addEventListener('load', () => resolve(frame.contentDocument === null ? 'closed' : 'open'));
        frame.src = url;
        document.body.append(frame);
      }), `${origin}/api/user/self`);
      want(framed === 'closed', `a frame of the console is ${framed} to the page`);
      await page.close();
      want((await ada.does('GET', '/api/user/self')).name === 'ada', 'ada is not logged in any more');
    });
  }

  await step('end the sessions everywhere', async () => {
    const phone = await Visitor.arrive(browser, origin);
    const entry = await phone.does('POST', '/api/user/login', person);
    want(entry.require_2fa === true && entry.methods.join() === '2fa,passkey', `the log-in says ${JSON.stringify(entry)}`);
    await phone.isRefused('GET', '/api/user/self', undefined, 401, 'SECOND_FACTOR_REQUIRED');
    secrets.push((await phone.cookie(cookieName)).value);
    await phone.does('POST', '/api/user/login/2fa', { code: backup[0] });
    const sessions = await phone.does('GET', '/api/user/self/sessions');
    want(sessions.items.length === 2 && sessions.items.every((session) => session.agent.includes('Chrom')), `the sessions are ${JSON.stringify(sessions)}`);
    stolen = await phone.context.cookies(origin);
    secrets.push((await phone.cookie(cookieName)).value);
    await ada.does('DELETE', '/api/user/self/sessions?which=all');
    await ada.isRefused('GET', '/api/user/self', undefined, 401, 'NOT_LOGGED_IN');
    await phone.isRefused('GET', '/api/user/self', undefined, 401, 'NOT_LOGGED_IN');
    const thief = await Visitor.arrive(browser, origin);
    await thief.context.addCookies(stolen);
    await thief.isRefused('GET', '/api/user/self', undefined, 401, 'NOT_LOGGED_IN');
  });

  await step('by https the browser takes the cookie from this very host alone', async () => {
    const name = `__Host-${cookieName}`;
    const grace = await Visitor.arrive(browser, secure);
    const account = { username: 'grace', password: 'a password of grace, long enough' };
    secrets.push(account.password);
    await grace.does('POST', '/api/user/register', account);

    // A script can plant it neither for more than this host nor without TLS.
    await grace.page.evaluate((name) => {
      document.cookie = `${name}=planted; path=/`;
      document.cookie = `${name}=planted; path=/; secure; domain=localhost`;
      document.cookie = `${name}=planted; path=/api; secure`;
    }, name);
    want((await grace.context.cookies(`${secure}/api/user/self`)).length === 0, 'a script has planted a cookie');

    await grace.does('POST', '/api/user/login', account);
    const cookie = (await grace.context.cookies(secure)).find((cookie) => cookie.name === name);
    want(cookie?.secure && cookie.httpOnly && cookie.sameSite === 'Lax' && cookie.path === '/', `the cookie has ${JSON.stringify({ ...cookie, value: '' })}`);
    secrets.push(cookie.value);
    want((await grace.does('GET', '/api/user/self')).name === 'grace', 'grace is not logged in');

    // Under the name without the prefix, which anybody can plant, the gateway does
    // not look for it.
    const other = await Visitor.arrive(browser, secure);
    await other.context.addCookies([{ name: cookieName, value: cookie.value, url: secure }]);
    await other.isRefused('GET', '/api/user/self', undefined, 401, 'NOT_LOGGED_IN');
    await other.context.close();
    await grace.does('POST', '/api/user/logout');
    want(!(await grace.context.cookies(secure)).some((cookie) => cookie.name === name), 'the browser still has the cookie');
  });

  write({ secrets });
} finally {
  await browser.close();
}
process.exitCode = hasFailed() ? 1 : 0;
