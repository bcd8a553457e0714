// Actions, live updates and running times of the pages. Without this script the pages can be read.

const root = document.documentElement;
const main = document.getElementById("main");
const said = document.getElementById("said");
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const lookUp = (id) => document.getElementById(id);
root.classList.add("js");

// Times are relative to the server's clock: this one may be wrong.
let ahead = Number(document.body.dataset.now) - Date.now();
const now = () => Date.now() + ahead;

// Times

function span(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const two = (large, unit, small, of) => (small ? `${large} ${unit} ${small} ${of}` : `${large} ${unit}`);
  const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(seconds / unit));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return two(minutes, "min", minutes < 10 ? seconds % 60 : 0, "s");
  if (seconds < 86400) return two(hours, "h", minutes % 60, "min");
  return two(days, "d", hours % 24, "h");
}

// All times are in UTC, as in the log and the commands.
const utc = (time) => `${time.toISOString().slice(0, 19).replace("T", " ")} UTC`;

// Escapes characters that are invisible or change the direction of text, as the server does.
const printable = (text) =>
  text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) => `\\u{${character.codePointAt(0).toString(16)}}`);

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function updateTimes() {
  for (const time of all("time[data-ago]")) {
    const ago = now() - Date.parse(time.dateTime);
    write(time, ago < 2000 ? "just now" : `${span(ago)} ago`);
  }
  for (const time of all("time[data-left]")) {
    const left = Date.parse(time.dateTime) - now();
    write(time, left > 0 ? span(left) : "ended");
  }
}

// Theme: a cookie, so that the server renders the page in it

const THEMES = ["auto", "light", "dark"];
lookUp("theme")?.addEventListener("click", (event) => {
  const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "auto") + 1) % THEMES.length];
  if (next === "auto") delete root.dataset.theme;
  else root.dataset.theme = next;
  const age = next === "auto" ? 0 : 31536000;
  document.cookie = `tollgate_theme=${next}; Path=/; Max-Age=${age}; SameSite=Strict`;
  event.currentTarget.textContent = `Theme: ${next}`;
});

// Messages about actions, also read out by screen readers

let silence;
function say(text) {
  said.textContent = printable(text);
  clearTimeout(silence);
  silence = setTimeout(() => { said.textContent = ""; }, 8000);
}

// Changes

/// `version`: of what is to be changed; if it has another one, nothing is changed.
async function ask(method, path, body, version) {
  const options = { method, headers: { "content-type": "application/json" } };
  if (version) options.headers["if-match"] = `"${version}"`;
  if (body !== undefined) options.body = JSON.stringify(body);
  let reply;
  try {
    reply = await fetch(path, options);
  } catch {
    throw new Error("Tollgate is unreachable.");
  }
  const answer = reply.status === 204 ? {} : await reply.json().catch(() => ({}));
  if (reply.status === 401) location.reload();
  if (!reply.ok) {
    const problem = new Error(answer.detail ?? `Something went wrong: ${reply.status}`);
    throw Object.assign(problem, { type: answer.type, shutsOut: answer.shuts_out, isOutdated: reply.status === 412 });
  }
  return answer;
}

const many = (number, one, more) => `${number} ${number === 1 ? one : more}`;
/// A note on a change that was not sent to the other instances yet.
const unshared = (answer) => answer.shared
  ? ""
  : " The other instances have not been told yet: Tollgate goes on trying.";
const warned = (answer) => answer.warnings.map((warning) => ` Warning: ${warning}.`).join("");
const MESSAGES = {
  unblock(answer) {
    const parts = [many(answer.cleared.length, "limit cleared", "limits cleared")];
    if (answer.bans_lifted) parts.push(many(answer.bans_lifted, "ban lifted", "bans lifted"));
    const others = answer.other_keys.length ? ` Not cleared: ${answer.other_keys.join(", ")}.` : "";
    const kept = answer.records_kept ? ` ${many(answer.records_kept, "record is", "records are")} kept as evidence.` : "";
    const bans = answer.still_banned.map((ban) => ban.key).join(", ");
    const outcome = bans ? `is still banned, because ${bans} is banned` : "is unblocked";
    return `${answer.address} ${outcome}: ${parts.join(", ")}.${kept}${others}${unshared(answer)}`;
  },
  ban: (answer) => `${answer.key} is banned until ${utc(new Date(answer.until))}.${unshared(answer)}`,
  drain: (answer) => `${answer.endpoint} of ${answer.upstream} is drained.${unshared(answer)}`,
  undrain: (answer) => answer.drained_by_configuration
    ? `${answer.endpoint} of ${answer.upstream} is still drained, by the configuration.${unshared(answer)}`
    : `${answer.endpoint} of ${answer.upstream} takes requests again.${unshared(answer)}`,
  make: (answer) => `Key ${answer.id} of ${answer.customer} was made.${warned(answer)}${unshared(answer)}`,
  rotate: (answer) => `Key ${answer.id} of ${answer.customer} was rotated.${unshared(answer)}`,
  revoke: (answer) => `Key ${answer.id} of ${answer.customer} is revoked.${unshared(answer)}`,
  banIncident: (answer) => {
    const spared = answer.spared.length ? ` ${many(answer.spared.length, "address is", "addresses are")} spared.` : "";
    return `${many(answer.addresses, "address is", "addresses are")} banned.${spared}${unshared(answer)}`;
  },
  unblockIncident: (answer) => `${many(answer.addresses, "address is", "addresses are")} unblocked.${unshared(answer)}`,
  acknowledgeIncident: () => "The incident is acknowledged.",
  muteIncident: (answer) => `The incident is muted until ${utc(new Date(answer.muted_until))}.`,
  lift: (answer) => `${answer.key}: ${many(answer.bans_lifted, "ban", "bans")} lifted.${unshared(answer)}`,
};

/// Copies a text that an element shows. Browsers allow that on https and on localhost; elsewhere, the element's text is
/// selected. Returns what to tell the user.
async function copy(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    return "Copied.";
  } catch {
    getSelection().selectAllChildren(shown);
    return "This browser doesn't let the page copy: the text is selected, press Ctrl+C or ⌘C.";
  }
}

// A new API key is shown once; closing the dialog forgets it.

const madeKey = lookUp("made-key");
function showKey(answer) {
  lookUp("new-key").textContent = answer.key;
  lookUp("copy-said").textContent = "";
  madeKey.showModal();
}

madeKey?.addEventListener("close", () => { lookUp("new-key").textContent = ""; });
lookUp("copy-key")?.addEventListener("click", async () => {
  const key = lookUp("new-key");
  lookUp("copy-said").textContent = await copy(key.textContent, key);
});

function forceButton(form, text) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "danger" });
  button.textContent = text;
  button.addEventListener("click", () => submit(form, { force: true }));
  return button;
}

/// Actions that need `force`, by the type of the problem: each shows the reason and a button that forces it.
const FORCEABLE = {
  /// Lists whom a ban would shut out besides a client.
  "urn:tollgate:problem:far-reaching-ban"(form, error, problem) {
    const key = printable(form.elements.key.value);
    const list = document.createElement("ul");
    for (const one of problem.shutsOut) list.append(Object.assign(document.createElement("li"), { textContent: printable(one) }));
    error.replaceChildren(`A ban of ${key} would shut out:`, list, forceButton(form, `Ban ${key} all the same`));
  },
  "urn:tollgate:problem:last-endpoint"(form, error) {
    const upstream = form.elements.upstream.value;
    const text = document.createElement("p");
    text.textContent = `No other endpoint of ${upstream} takes requests: each request to it will get 503.`;
    error.replaceChildren(text, forceButton(form, "Drain it all the same"));
  },
};

// A button that forces an action must not apply to changed fields.
document.addEventListener("input", (event) => {
  const error = event.target.form?.dataset.api && event.target.form.querySelector(".error");
  if (error) error.hidden = true;
});

async function submit(form, more = {}) {
  const error = form.querySelector(".error");
  const button = form.querySelector("[type=submit]");
  const method = form.dataset.api;
  const given = [...new FormData(form)].filter(([name, value]) => value !== "" || name === "reason");
  const fields = { ...Object.fromEntries(given), ...more };
  error.hidden = true;
  button.disabled = true;
  try {
    const path = form.getAttribute("action");
    const query = new URLSearchParams(fields).toString();
    const answer = await (method === "POST" ? ask(method, path, fields, form.dataset.version) : ask(method, query ? `${path}?${query}` : path));
    form.closest("dialog")?.close();
    if (!form.closest("dialog")) form.reset();
    say(MESSAGES[form.dataset.said](answer));
    if (["make", "rotate"].includes(form.dataset.said)) showKey(answer);
    await refresh();
  } catch (problem) {
    if (FORCEABLE[problem.type]) FORCEABLE[problem.type](form, error, problem);
    else error.textContent = printable(problem.message);
    error.hidden = false;
    if (problem.isOutdated) await refresh();
  } finally {
    button.disabled = false;
  }
}

document.addEventListener("submit", (event) => {
  if (!event.target.dataset.api) return;
  event.preventDefault();
  submit(event.target);
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.dialog) openDialog(button);
  if ("close" in button.dataset) button.closest("dialog").close();
  // It copies what the heading of the page shows.
  if (button.dataset.copy) copy(button.dataset.copy, main.querySelector("h1")).then(say);
});

/// A button may name the subject of its dialog, which is written into the dialog's texts, and into its path or fields.
function openDialog(button) {
  const dialog = lookUp(button.dataset.dialog);
  const error = dialog.querySelector(".error");
  if (error) error.hidden = true;
  if (button.dataset.about) {
    for (const place of all("[data-about-here]", dialog)) place.textContent = printable(button.dataset.about);
    const form = dialog.querySelector("form");
    if (form.dataset.path) form.setAttribute("action", form.dataset.path + encodeURIComponent(button.dataset.about) + (form.dataset.pathEnd ?? ""));
    form.dataset.version = button.dataset.version ?? "";
    for (const name of ["upstream", "endpoint"]) {
      if (form.elements[name]) form.elements[name].value = button.dataset[name];
    }
  }
  dialog.showModal();
}

// Signing in and out

function goOn() {
  const next = new URL(new URLSearchParams(location.search).get("next") ?? "/", location.origin);
  location.replace(next.origin === location.origin ? next : "/");
}

// A link from another site opens this page without the cookie, even if the operator is signed in; a request of this
// page has the cookie.
if (lookUp("login")) {
  fetch("/login", { redirect: "manual" }).then((reply) => { if (reply.type === "opaqueredirect") goOn(); }, () => {});
}

lookUp("login")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.currentTarget;
  const wrong = lookUp("wrong");
  wrong.hidden = true;
  try {
    await ask("POST", "/login", { token: form.token.value });
    goOn();
  } catch (problem) {
    wrong.textContent = problem.message;
    wrong.hidden = false;
    form.token.select();
  }
});

lookUp("logout")?.addEventListener("click", async () => {
  await ask("POST", "/logout").catch((problem) => say(problem.message));
  location.assign("/login");
});

// Live updates: the page is fetched again, and the differences are applied. Input, opened details and the scroll
// position are kept.

function morph(old, next) {
  if (old.isEqualNode(next)) return;
  if (old.nodeName !== next.nodeName || old.nodeType !== next.nodeType) return old.replaceWith(next);
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.data = next.data;
    return;
  }
  if ("keep" in old.dataset) return;
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  morphChildren(old, next);
}

function morphChildren(old, next) {
  const keyed = new Map([...old.children].filter((child) => child.dataset.key).map((child) => [child.dataset.key, child]));
  let at = old.firstChild;
  for (const wanted of [...next.childNodes]) {
    const key = wanted.dataset?.key;
    let found = key ? keyed.get(key) : at;
    if (!key && at?.dataset?.key) found = undefined;
    if (!found) {
      old.insertBefore(wanted, at);
      continue;
    }
    if (found === at) at = at.nextSibling;
    else old.insertBefore(found, at);
    morph(found, wanted);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

async function refresh() {
  let reply;
  try {
    reply = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
  } catch {
    return;
  }
  if (new URL(reply.url).pathname === "/login") return location.reload();
  const page = new DOMParser().parseFromString(await reply.text(), "text/html");
  const next = page.getElementById("main");
  if (!next) return;
  ahead = Number(page.body.dataset.now) - Date.now();
  const focused = document.activeElement;
  morphChildren(main, next);
  if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  updateTimes();
}

let due, last = 0, loaded = now();
function refreshSoon() {
  if (due || document.hidden) return;
  due = setTimeout(async () => {
    await refresh();
    last = Date.now();
    loaded = now();
    due = undefined;
  }, Math.max(0, last + 1000 - Date.now()));
}


// Milliseconds between two samples of the traffic.
const SAMPLE = 10000;

function showTick(tick) {
  for (const place of all("[data-tick]")) write(place, tick[place.dataset.tick].toLocaleString("en"));
  const sampled = Number(document.querySelector("[data-end]")?.dataset.end ?? loaded);
  if (now() - sampled > SAMPLE) refreshSoon();
}

function showLive(state, text) {
  const live = lookUp("live");
  live.className = `live js ${state}`;
  live.lastElementChild.textContent = text;
}

let events, wasAway = false;
function listen() {
  events = new EventSource("/v1/events");
  events.addEventListener("open", () => {
    showLive("on", "Live");
    if (wasAway) refreshSoon();
    wasAway = false;
  });
  events.addEventListener("error", () => {
    wasAway = true;
    const isOver = events.readyState === EventSource.CLOSED;
    showLive("off", isOver ? "Not live" : "Reconnecting");
    // It was refused, and browsers don't retry then. `refresh` redirects to the login if the session has ended.
    if (isOver) setTimeout(() => { refresh(); listen(); }, 5000);
  });
  const changes = ["limited", "unblocked", "banned", "lifted", "drained", "undrained", "reloaded", "not_reloaded", "health", "endpoints", "warning", "incident", "incident_act", "missed"];
  for (const name of changes) events.addEventListener(name, refreshSoon);
  events.addEventListener("tick", (event) => showTick(JSON.parse(event.data)));
}

function stayUpToDate() {
  listen();
  document.addEventListener("visibilitychange", refreshSoon);
  // Otherwise the next page would wait for the connection of this one.
  addEventListener("pagehide", () => events.close());
  // The browser restored the page from its cache.
  addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
}

// The values under the pointer on charts

function place(event) {
  const charts = event.target.closest?.(".charts");
  const chart = event.target.closest?.(".chart");
  all(".hair, .tip").forEach((element) => element.remove());
  if (!chart || !charts?.dataset.points) return;
  const points = JSON.parse(charts.dataset.points);
  const [box, outer] = [chart.getBoundingClientRect(), charts.getBoundingClientRect()];
  const last = Number(charts.dataset.window) - 1;
  const from = last - Math.round(((event.clientX - box.left) / box.width) * last);
  const point = points[points.length - 1 - from];
  if (!point) return;
  const [requests, denied, usual, slow, origin, own] = point;
  const time = new Date(Number(charts.dataset.end) - from * 10000);
  const latency = slow === null ? "" : `\np50 ${usual} ms · p99 ${slow} ms`;
  const errors = origin + own ? `\n5xx: ${origin / 10}/s by the origin · ${own / 10}/s by Tollgate` : "";
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.textContent = `${utc(time).slice(11)}\n${requests / 10} requests/s · ${denied / 10} denied/s${errors}${latency}`;
  const hair = document.createElement("div");
  hair.className = "hair";
  charts.append(hair, tip);
  const x = box.left - outer.left + box.width * (1 - from / last);
  hair.style.left = `${x}px`;
  hair.style.top = `${box.top - outer.top}px`;
  tip.style.left = `${Math.max(0, Math.min(x + 10, outer.width - tip.offsetWidth))}px`;
  tip.style.top = `${box.top - outer.top - 8}px`;
}

if (matchMedia("(hover: hover)").matches) document.addEventListener("pointermove", place);

updateTimes();
setInterval(updateTimes, 1000);
if ("live" in main.dataset && "EventSource" in window) stayUpToDate();
