// What a person has beside the browser: an app that shows codes.

import { createHmac } from 'node:crypto';

const codeStep = 30; // seconds

// App makes the codes of RFC 6238 for a secret in base32, each one once. The
// gateway takes those of three steps, the one of now and one to either side, in
// their order; a fourth within 30 s is waited for.
export class App {
  constructor(secret) {
    this.seed = fromBase32(secret);
    this.step = 0;
  }

  async code() {
    const soon = 8; // seconds that may pass until it is looked at
    this.step = Math.max(this.step + 1, Math.floor((Date.now() / 1000 + soon) / codeStep) - 1);
    const early = (this.step - 1) * codeStep * 1000 - Date.now();
    if (early > 0) {
      await new Promise((resolve) => setTimeout(resolve, early));
    }
    return codeOf(this.seed, this.step);
  }
}

function codeOf(seed, step) {
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(step));
  const sum = createHmac('sha1', seed).update(counter).digest();
  const at = sum[19] & 0xf;
  const digits = (sum.readUInt32BE(at) & 0x7fffffff) % 1e6;
  return String(digits).padStart(6, '0');
}

function fromBase32(text) {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';
  const bytes = [];
  let bits = 0;
  let value = 0;
  for (const letter of text.replace(/=+$/, '')) {
    value = (value << 5) | alphabet.indexOf(letter);
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      bytes.push((value >>> bits) & 0xff);
      value &= (1 << bits) - 1;
    }
  }
  return Buffer.from(bytes);
}
