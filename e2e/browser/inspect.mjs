// What every page of the console must be: accessible, in one language, without errors, and no wider
// than the screen.

import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

// The rules of WCAG 2.2, A and AA.
const runOnly = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];

// listen collects what a page logs as an error: violations of the policy, failed requests and
// exceptions.
export function listen(page) {
  const errors = [];
  page.on('console', (message) => message.type() === 'error' && errors.push(`${message.text()} ${message.location().url}`));
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('requestfailed', (request) => {
    if (request.failure().errorText !== 'net::ERR_ABORTED') { // of a video that is not played
      errors.push(`${request.url()}: ${request.failure().errorText}`);
    }
  });
  return errors;
}

// faultsOf returns what is wrong with the page that is shown.
export async function faultsOf(page, language) {
  if (!await page.evaluate(() => 'axe' in globalThis)) {
    await page.evaluate(axe);
  }
  return page.evaluate(async ({ runOnly, language }) => {
    const faults = (await globalThis.axe.run({ runOnly, resultTypes: ['violations'] })).violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 160)} (${node.failureSummary})`));
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth > clientWidth) {
      const widest = [...document.querySelectorAll('body *')].filter((element) => element.getBoundingClientRect().right > clientWidth + 1);
      faults.push(`the page is ${scrollWidth} px wide in ${clientWidth}: ${widest.slice(-3).map((element) => element.outerHTML.slice(0, 120)).join(' | ')}`);
    }
    const untranslated = document.documentElement.innerText.match(/![a-z_]+\.[a-z_.]+!/);
    if (untranslated) {
      faults.push(`there is no message ${untranslated[0]}`);
    }
    if (document.documentElement.lang !== language) {
      faults.push(`the language is ${document.documentElement.lang}`);
    }
    for (const image of document.images) {
      if (image.complete && image.naturalWidth === 0) {
        faults.push(`a broken image: ${image.outerHTML.slice(0, 160)}`);
      }
    }
    return faults;
  }, { runOnly, language });
}
