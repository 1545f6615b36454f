// A visitor is a user with a browser of their own: a context without cookies, one
// page, and an authenticator in the device.

export class Visitor {
  static async arrive(browser, origin) {
    const context = await browser.newContext({ ignoreHTTPSErrors: true });
    const page = await context.newPage();
    const v = new Visitor();
    Object.assign(v, { origin, context, page, cdp: await context.newCDPSession(page) });
    await v.cdp.send('WebAuthn.enable');
    ({ authenticatorId: v.authenticator } = await v.cdp.send('WebAuthn.addVirtualAuthenticator', {
      options: {
        protocol: 'ctap2',
        transport: 'internal',
        hasResidentKey: true,
        hasUserVerification: true,
        isUserVerified: true,
        automaticPresenceSimulation: true,
      },
    }));
    await page.goto(`${origin}/api/status`); // has no policy of pages
    return v;
  }

  // verified says whether the device recognises its owner from now on, by PIN or
  // body.
  async verified(isUserVerified) {
    await this.cdp.send('WebAuthn.setUserVerified', { authenticatorId: this.authenticator, isUserVerified });
  }

  // ask sends a request from the page, with the cookies that the browser has.
  async ask(method, path, body, headers = {}) {
    return this.page.evaluate(
      async ({ method, path, body, headers }) => {
        if (body !== undefined) {
          headers = { 'content-type': 'application/json', ...headers };
          body = JSON.stringify(body);
        }
        const answer = await fetch(path, { method, body, headers });
        const text = await answer.text();
        return { status: answer.status, text, ...JSON.parse(text) };
      },
      { method, path, body, headers },
    );
  }

  // does asks for what must succeed, and returns the data.
  async does(method, path, body) {
    const answer = await this.ask(method, path, body);
    if (answer.status !== 200 || answer.success !== true) {
      throw new Error(`${method} ${path} was answered ${answer.status} ${answer.text}`);
    }
    return answer.data;
  }

  // isRefused wants a refusal with this code.
  async isRefused(method, path, body, status, code) {
    const answer = await this.ask(method, path, body);
    if (answer.status !== status || answer.code !== code || answer.success !== false || answer.text.includes('"verified":true')) {
      throw new Error(`${method} ${path} was answered ${answer.status} ${answer.text}, not ${status} ${code}`);
    }
  }

  // creates has the device make a passkey as the options ask.
  async creates(options) {
    return this.page.evaluate(async ({ publicKey }) => {
      const options = PublicKeyCredential.parseCreationOptionsFromJSON(publicKey);
      return (await navigator.credentials.create({ publicKey: options })).toJSON();
    }, options);
  }

  // signs has a passkey of the device answer the options.
  async signs(options) {
    return this.page.evaluate(async ({ publicKey }) => {
      const options = PublicKeyCredential.parseRequestOptionsFromJSON(publicKey);
      return (await navigator.credentials.get({ publicKey: options })).toJSON();
    }, options);
  }

  async cookie(name) {
    return (await this.context.cookies(this.origin)).find((cookie) => cookie.name === name);
  }
}
