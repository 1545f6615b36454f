// Improves pages that work without it: copy buttons, local times, confirmations, passkeys, pages
// with something unfinished, and forms that are sent once.

const language = document.documentElement.lang;

for (const time of document.querySelectorAll('time[datetime]')) {
  const at = new Date(time.dateTime);
  const ago = (at - Date.now()) / 1000;
  if (time.hasAttribute('data-exact')) {
    time.textContent = at.toLocaleString(language, { dateStyle: 'medium', timeStyle: 'medium' });
    time.title = time.getAttribute('datetime');
    continue;
  }
  const relative = new Intl.RelativeTimeFormat(language, { numeric: 'auto' });
  const [unit, seconds] = [['day', 86400], ['hour', 3600], ['minute', 60], ['second', 1]].find(([, s]) => Math.abs(ago) >= s) ?? ['second', 1];
  time.title = at.toLocaleString(language, { dateStyle: 'medium', timeStyle: 'long' });
  time.textContent = Math.abs(ago) < 30 * 86400 ? relative.format(Math.round(ago / seconds), unit) : at.toLocaleDateString(language, { dateStyle: 'medium' });
}

for (const button of document.querySelectorAll('[data-copy]')) {
  button.hidden = !navigator.clipboard;
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    const label = button.textContent;
    button.textContent = '✓';
    setTimeout(() => { button.textContent = label; }, 1500);
  });
}

document.addEventListener('submit', (event) => {
  const form = event.target;
  const question = event.submitter?.dataset.confirm ?? form.dataset.confirm;
  if (form.dataset.sent || question && !window.confirm(question)) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = 'yes';
  setTimeout(() => { delete form.dataset.sent; }, 5000); // the server may not have answered
});

// A page that comes back from the cache of the browser may send its forms again.
window.addEventListener('pageshow', (event) => {
  if (event.persisted) {
    document.querySelectorAll('form[data-sent]').forEach((form) => { delete form.dataset.sent; });
  }
});

const onward = document.querySelector('a[data-onward]');
if (onward) {
  location.assign(onward.href);
}

// A page with something unfinished is loaded again while it is seen, unless a form is being filled
// or a video plays. Unfinished tasks are polled, and the page is loaded again when one has changed
// its status.
const isUsed = () => Boolean(document.activeElement?.form) || [...document.querySelectorAll('video')].some((video) => !video.paused && !video.ended);
const tasks = [...document.querySelectorAll('[data-task]')];
async function look() {
  let changed = tasks.length === 0;
  for (const element of tasks) {
    const answer = await fetch(`/api/task/self/${element.dataset.task}`, { headers: { 'Accept-Language': language } });
    const { data } = await answer.json();
    changed ||= !data || data.status !== element.dataset.status;
    element.querySelector('progress')?.setAttribute('value', parseInt(data?.progress, 10) || 0);
  }
  if (changed && !isUsed()) {
    // Not location.reload, which sends a form again if the page is the answer to one. What was just
    // done is said once.
    const { pathname, search } = location;
    location.replace(pathname + search.replace(/([?&])done=\w+&?/, '$1').replace(/[?&]$/, ''));
  } else {
    again();
  }
}
function again() {
  setTimeout(() => (document.visibilityState === 'visible' ? look().catch(again) : again()), 4000);
}
if (document.querySelector('[data-refresh]')) {
  again();
}

// A result that cannot be loaded any more is replaced by the reason.
for (const media of document.querySelectorAll('[data-lost]')) {
  const replace = () => {
    const reason = document.createElement('p');
    reason.className = 'gone';
    reason.textContent = media.dataset.lost;
    media.replaceWith(reason);
  };
  media.addEventListener('error', replace);
  if (media.error || media.complete && media.naturalWidth === 0) {
    replace();
  }
}

async function post(path, body = {}) {
  const answer = await fetch(path, { method: 'POST', headers: { 'Content-Type': 'application/json', 'Accept-Language': language }, body: JSON.stringify(body) });
  const { success, message, code, data } = await answer.json();
  if (!success) {
    throw Object.assign(new Error(message), { code });
  }
  return data;
}

// assertion asks the browser for a passkey, and begins the ceremony of a path for it.
async function assertion(path, how = {}) {
  const { publicKey } = await post(`${path}/begin`);
  return navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(publicKey), ...how });
}

async function finishLogin(button, answer) {
  await post('/api/user/passkey/login/finish', answer.toJSON());
  if (!button.form.elements.action) {
    location.assign(button.form.elements.next.value);
    return;
  }
  // A form waits to be confirmed.
  button.form.noValidate = true;
  button.form.setAttribute('action', button.dataset.resume);
  button.form.elements.do.value = 'resume';
  button.form.requestSubmit();
}

// The ceremonies of docs/reference/console.md.
const ceremonies = {
  async login(button) {
    await finishLogin(button, await assertion('/api/user/passkey/login'));
  },
  async verify(button) {
    const answer = await assertion('/api/user/passkey/verify');
    await post('/api/user/passkey/verify/finish', answer.toJSON());
    button.form.elements.method.value = 'passkey';
    button.form.noValidate = true;
    button.form.requestSubmit();
  },
  async register(button) {
    const { name, password } = button.form.elements;
    const { publicKey } = await post('/api/user/passkey/register/begin', { name: name.value, ...(password?.value && { password: password.value }) });
    const made = await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(publicKey) });
    await post('/api/user/passkey/register/finish', made.toJSON());
    location.assign(button.dataset.then);
  },
};

function showFailure(button, reason) {
  const error = button.form.querySelector('[data-passkey-error]');
  error.textContent = reason?.message ?? '';
  error.hidden = !reason;
}

let offered = new AbortController(); // the offer of passkeys in the field of the user name

for (const button of document.querySelectorAll('[data-passkey]')) {
  button.hidden = !globalThis.PublicKeyCredential?.parseRequestOptionsFromJSON;
  button.addEventListener('click', async () => {
    offered.abort();
    showFailure(button);
    button.disabled = true;
    try {
      await ceremonies[button.dataset.passkey](button);
    } catch (reason) {
      if (['VERIFICATION_REQUIRED', 'VERIFICATION_EXPIRED'].includes(reason.code)) {
        button.form.requestSubmit(); // it leads to the page that asks for the factor, and back
        return;
      }
      showFailure(button, reason);
    }
    button.disabled = false;
  });
}

// offer lets the browser offer passkeys in the field of the user name. A challenge ends after two
// minutes, so another one is drawn before.
async function offer(button) {
  const mine = new AbortController();
  offered = mine;
  const late = setTimeout(() => mine.abort('late'), 100_000);
  let answer;
  try {
    answer = await assertion('/api/user/passkey/login', { mediation: 'conditional', signal: mine.signal });
  } catch {
    clearTimeout(late);
    if (mine.signal.reason === 'late') {
      offer(button);
    }
    return; // nobody has asked for it
  }
  clearTimeout(late);
  await finishLogin(button, answer).catch((reason) => showFailure(button, reason));
}

const entry = document.querySelector('[data-passkey=login]');
if (entry?.form.elements.username && await globalThis.PublicKeyCredential?.isConditionalMediationAvailable?.()) {
  offer(entry);
}
