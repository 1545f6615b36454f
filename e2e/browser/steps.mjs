// What the scripts of this directory share: the browser, and the steps that they report.

import { chromium } from 'playwright-core';

const timeout = 120_000; // milliseconds that a step may take; codes may have to be waited for
let failed = false;

export const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

// hasFailed reports whether a step has failed.
export const hasFailed = () => failed;

// step does one thing and reports how it ended. After a step that failed, the steps that follow
// are left out.
export async function step(name, work) {
  if (failed) {
    return;
  }
  const began = Date.now();
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`not within ${timeout} ms`)), timeout).unref();
  });
  try {
    await Promise.race([work(), late]);
    write({ step: name, ok: true, took: Date.now() - began });
  } catch (error) {
    failed = true;
    write({ step: name, ok: false, took: Date.now() - began, error: String(error.stack ?? error) });
  }
}

// want throws unless a condition is met.
export function want(right, what) {
  if (!right) {
    throw new Error(what);
  }
}

// launch starts the browser of the system, without requests of its own.
export const launch = (executablePath) => chromium.launch({
  executablePath,
  timeout: 60_000,
  args: [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync',
  ],
});
