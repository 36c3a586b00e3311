// Keeps the page live, and acts through the control API. The page can be read without it.
const body = document.body;
const { live, view } = body.dataset;
const find = (id) => document.getElementById(id);
const CHARTS_EVERY_MS = 10_000;
const VIEW_EVERY_MS = 5_000;
// Numbers come once a second: without any for so long, those that are shown are old.
const QUIET_MS = 5_000;
const RETRY_MS = 2_000;

// Live numbers ------------------------------------------------------------------------------------

let source = null;
let retry = 0;
let due = false;
let refreshed = Date.now();
let viewDue = false;
let viewed = Date.now();
let heard = Date.now();
const seen = new Set();
// Numbers as they came last, for parts of the view that are fetched again.
const latest = new Map();

const say = (text) => {
  const at = find('connection');
  if (at && at.textContent !== text) at.textContent = text;
};

const connect = () => {
  clearTimeout(retry);
  source?.close();
  if (document.hidden) return;
  heard = Date.now();
  source = new EventSource(live);
  source.addEventListener('hello', (event) => {
    const { run } = JSON.parse(event.data);
    latest.clear();
    heard = Date.now();
    // Another run of the daemon: what is drawn is of the one before.
    if (run !== Number(body.dataset.run)) {
      body.dataset.run = run;
      due = viewDue = true;
    }
    say('');
  });
  source.addEventListener('facts', (event) => show(JSON.parse(event.data)));
  source.addEventListener('news', () => { due = viewDue = true; });
  source.onerror = () => {
    say('Connection lost; trying again.');
    // It comes again by itself unless it was refused.
    if (source.readyState === EventSource.CLOSED) retry = setTimeout(connect, RETRY_MS);
  };
};

const put = (place, { text, value }) => {
  if (!place) return;
  place.textContent = text;
  place.setAttribute('value', value);
};

const show = ({ at, clock, facts }) => {
  heard = Date.now();
  say('');
  const now = find('now');
  if (now) {
    now.textContent = clock;
    now.setAttribute('datetime', at);
  }
  for (const [id, fact] of Object.entries(facts)) {
    latest.set(id, fact);
    put(find(id), fact);
  }
};

// Charts: those that are seen are fetched again -----------------------------------------------------

const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) seen.add(target); else seen.delete(target);
  }
});

// Figures that the pointer drags something in.
const dragged = new WeakSet();

const isBusy = (figure) => dragged.has(figure)
  // The share was moved: what it shows is not to jump back.
  || (hasMoved && figure.dataset.chart === 'volume-curve')
  || (figure.contains(document.activeElement) && figure.querySelector('details[open]') !== null);

const refresh = async (figure) => {
  if (isBusy(figure)) return;
  try {
    const answer = await fetch(figure.dataset.src);
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
    // A drag may have begun meanwhile.
    if (isBusy(figure)) return;
    rowsOf.delete(figure);
    const open = figure.querySelector('details')?.open;
    const focus = figure.contains(document.activeElement) ? document.activeElement.textContent : null;
    figure.replaceChildren(...fresh.body.childNodes);
    const details = figure.querySelector('details');
    if (details) details.open = open;
    if (focus) [...figure.querySelectorAll('a, summary')].find((one) => one.textContent === focus)?.focus();
  } catch {
    // The connection is lost: the live numbers say so.
  }
};

// Parts of a view that are no single numbers: what is wrong, what a range has, what is advised.
const PARTS = ['alerts', 'tiles', 'advice', 'volume-facts', 'why'];

const refreshView = async () => {
  const shown = PARTS.map(find).filter((part) => part);
  if (!shown.length) return;
  try {
    const answer = await fetch(location.href);
    if (!answer.ok) {
      say(`This view can't be fetched again (${answer.status}).`);
      return;
    }
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
    for (const old of shown) {
      const now = fresh.getElementById(old.id);
      if (!now || old.contains(document.activeElement)) continue;
      old.replaceWith(now);
      // Numbers may have come while it was fetched.
      for (const place of now.querySelectorAll('data[id]')) {
        if (latest.has(place.id)) put(place, latest.get(place.id));
      }
    }
  } catch {
    // The connection is lost: the live numbers say so.
  }
};

const tick = () => {
  if (document.hidden) return;
  const isOpen = source?.readyState === EventSource.OPEN;
  if (isOpen && Date.now() - heard > QUIET_MS) say('No new numbers come: those shown are old.');
  if (viewDue && Date.now() - viewed >= VIEW_EVERY_MS) {
    viewDue = false;
    viewed = Date.now();
    refreshView();
  }
  const isFixed = new URLSearchParams(location.search).has('from');
  if (!due || isFixed || Date.now() - refreshed < CHARTS_EVERY_MS) return;
  due = false;
  refreshed = Date.now();
  for (const figure of seen) refresh(figure);
};

// Pointer on charts: crosshair with values, brush to zoom -------------------------------------------

const rowsOf = new WeakMap();

/** A CSV file as rows of fields. */
const parse = (text) => text.trim().split('\r\n').map((line) => {
  const fields = [...`${line},`.matchAll(/("(?:[^"]|"")*"|[^,]*),/g)].map(([, field]) => field);
  return fields.map((field) => (field.startsWith('"') ? field.slice(1, -1).replaceAll('""', '"') : field));
});

/** The numbers of a chart: names of its columns, and rows of where and values. */
const numbers = (figure) => {
  if (!rowsOf.has(figure)) {
    const load = async () => {
      const answer = await fetch(figure.dataset.csv);
      if (!answer.ok) return null;
      const [header, ...rows] = parse(await answer.text());
      const isTime = header[0].startsWith('time');
      const at = (text) => (isTime ? Date.parse(text) : Number(text));
      return { header, isTime, rows: rows.map(([x, ...values]) => ({ x: at(x), values })) };
    };
    rowsOf.set(figure, load().catch(() => null));
  }
  return rowsOf.get(figure);
};

const shown = (name, text) => {
  if (text === '') return '\u2013';
  const value = Number(text);
  const unit = /\((bytes|us|s|ratio)\)$/.exec(name)?.[1];
  if (unit === 'bytes') return size(value);
  if (unit === 'ratio') return percent(value);
  if (unit === 'us') return value >= 1000 ? `${Number((value / 1000).toPrecision(3))} ms` : `${Number(value.toPrecision(3))} us`;
  return `${Number(value.toPrecision(4))}${unit ? ` ${unit}` : ''}`;
};

/** From places on the screen to values on the axis of a chart, and back. */
const scale = (svg) => {
  const of = (name) => Number(svg.dataset[name]);
  const rect = svg.getBoundingClientRect();
  const wide = svg.viewBox.baseVal.width;
  const [left, right, x0, x1] = [of('left'), of('right'), of('x0'), of('x1')];
  const isLog = svg.dataset.scaleX === 'log';
  const part = (x) => (isLog ? Math.log(x / x0) / Math.log(x1 / x0) : (x - x0) / (x1 - x0));
  return {
    value: (clientX) => {
      const at = (((clientX - rect.left) / rect.width) * wide - left) / (right - left);
      const inside = Math.min(1, Math.max(0, at));
      return isLog ? x0 * (x1 / x0) ** inside : x0 + (x1 - x0) * inside;
    },
    unit: (x) => left + (right - left) * Math.min(1, Math.max(0, part(x))),
    pixel: (x) => ((left + (right - left) * part(x)) / wide) * rect.width,
  };
};

const box = (drawing, name) => {
  let one = drawing.querySelector(`.${name}`);
  if (!one) {
    one = document.createElement('div');
    one.className = name;
    drawing.append(one);
  }
  return one;
};

/** The row of a place: of a histogram the one that it is within, otherwise the nearest. */
const rowAt = ({ header, rows }, x) => {
  if (/ from\b/.test(header[0]) && /^to\b/.test(header[1])) return rows.findLast((row) => row.x <= x) ?? rows[0];
  return rows.reduce((best, row) => (Math.abs(row.x - x) < Math.abs(best.x - x) ? row : best));
};

/** What is drawn in a figure now, if places in it mean something. */
const drawn = (figure) => {
  const drawing = figure.querySelector('.drawing');
  const svg = drawing?.querySelector('svg[data-x0]');
  return svg && svg.dataset.unitX !== 'row' && svg.dataset.unitY !== 'row' ? { drawing, svg } : null;
};

const clear = (figure) => {
  for (const one of figure.querySelectorAll('.cross, .tip, .brush')) one.remove();
};

const cross = async (figure, { clientX }) => {
  const all = await numbers(figure);
  const { drawing, svg } = drawn(figure) ?? {};
  if (!all?.rows.length || !drawing?.matches(':hover') || dragged.has(figure)) return;
  const place = scale(svg);
  const row = rowAt(all, place.value(clientX));
  const left = place.pixel(row.x);
  const x = all.isTime ? `${new Date(row.x).toISOString().slice(0, 19).replace('T', ' ')} UTC` : `${all.header[0].replace(/ \(.*/, '')} ${shown(all.header[0], String(row.x))}`;
  const lines = row.values.map((text, at) => `${all.header[at + 1].replace(/ \((bytes|us|s|ratio)\)$/, '')}: ${shown(all.header[at + 1], text)}`);
  box(drawing, 'cross').style.left = `${left}px`;
  const tip = box(drawing, 'tip');
  tip.textContent = [x, ...lines].join('\n');
  const isRight = left > drawing.clientWidth / 2;
  tip.style.left = isRight ? 'auto' : `${left + 10}px`;
  tip.style.right = isRight ? `${drawing.clientWidth - left + 10}px` : 'auto';
};

/** On the figure, because what is within it is replaced. */
const prepare = (figure) => {
  let began = null;
  const end = () => {
    began = null;
    dragged.delete(figure);
    clear(figure);
  };
  figure.addEventListener('pointermove', (event) => {
    const { drawing } = drawn(figure) ?? {};
    if (!drawing) return;
    if (began === null) {
      if (drawing.contains(event.target)) cross(figure, event); else clear(figure);
      return;
    }
    const [from, to] = [Math.min(began, event.clientX), Math.max(began, event.clientX)];
    const { left } = drawing.getBoundingClientRect();
    const brush = box(drawing, 'brush');
    brush.style.left = `${from - left}px`;
    brush.style.width = `${to - from}px`;
  });
  figure.addEventListener('pointerleave', () => { if (began === null) clear(figure); });
  figure.addEventListener('pointerdown', (event) => {
    const { drawing, svg } = drawn(figure) ?? {};
    if (svg?.dataset.unitX !== 'ms' || !drawing.contains(event.target)) return;
    if (event.button !== 0 || event.pointerType === 'touch') return;
    event.preventDefault();
    began = event.clientX;
    dragged.add(figure);
    figure.setPointerCapture(event.pointerId);
  });
  figure.addEventListener('pointerup', (event) => {
    if (began === null) return;
    const ends = [began, event.clientX].sort((a, b) => a - b);
    const { svg } = drawn(figure) ?? {};
    end();
    if (!svg || ends[1] - ends[0] <= 8) return;
    const place = scale(svg);
    const [from, to] = ends.map((at) => Math.round(place.value(at)));
    const query = new URLSearchParams(location.search);
    query.delete('range');
    query.set('from', from);
    query.set('to', to);
    location.search = query;
  });
  figure.addEventListener('pointercancel', () => { if (began !== null) end(); });
};

// The share as a slider -----------------------------------------------------------------------------

const MIB = 1024 * 1024;
const size = (bytes) => {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (bytes >= 999.5 && at < units.length - 1) { bytes /= 1024; at += 1; }
  return `${Number(bytes.toPrecision(3))} ${units[at]}`;
};
const percent = (part) => `${(part * 100).toFixed(1)} %`;

const hitsAt = (curve, bytes) => {
  let [x0, y0] = curve[0];
  for (const [x, y] of curve) {
    if (bytes <= x) return x > x0 ? y0 + ((y - y0) * (bytes - x0)) / (x - x0) : y;
    [x0, y0] = [x, y];
  }
  return y0;
};

let hasMoved = false;
/** The share was pinned to so many bytes, or to where the slider is. */
let settle = () => {};

const slider = () => {
  const [box, thumb] = [find('share'), find('share-marker')];
  if (!thumb) return;
  box.hidden = false;
  const curve = JSON.parse(box.dataset.curve);
  const number = (name) => Number(thumb.getAttribute(`aria-value${name}`));
  const [min, max] = [number('min'), number('max')];
  let began = number('now');
  const set = (wanted, moved = true) => {
    const exact = moved ? Math.round(wanted / MIB) * MIB : wanted;
    const bytes = Math.min(max, Math.max(min, exact));
    const text = `${size(bytes)}: ${percent(hitsAt(curve, bytes))} expected to hit`;
    const change = hitsAt(curve, bytes) - hitsAt(curve, began);
    const sign = change >= 0 ? '+' : '';
    thumb.setAttribute('aria-valuenow', bytes);
    thumb.setAttribute('aria-valuetext', text);
    thumb.style.left = `${(100 * bytes) / max}%`;
    hasMoved ||= moved;
    const svg = document.querySelector('#chart-volume-curve svg[data-x0]');
    const mark = svg?.querySelector('[data-marker="share"]');
    if (mark && moved) {
      mark.setAttribute('transform', `translate(${scale(svg).unit(bytes).toFixed(1)} 0)`);
      mark.querySelector('text').textContent = text;
    }
    find('share-text').textContent = moved ? `${text} (${sign}${percent(change)} beside now)` : text;
    const field = find('pin-size');
    if (field && moved) {
      // Within the bounds, which need not be whole MiB.
      field.value = `${bytes === min ? Math.ceil(bytes / MIB) : Math.floor(bytes / MIB)}MiB`;
      field.dispatchEvent(new Event('input', { bubbles: true }));
    }
  };
  const track = thumb.parentElement;
  const at = (event) => {
    const { left, width } = track.getBoundingClientRect();
    set(((event.clientX - left) / width) * max);
  };
  track.addEventListener('pointerdown', (event) => {
    track.setPointerCapture(event.pointerId);
    thumb.focus();
    at(event);
  });
  track.addEventListener('pointermove', (event) => {
    if (track.hasPointerCapture(event.pointerId)) at(event);
  });
  const step = Math.max(MIB, max / 100);
  const keys = {
    ArrowRight: step, ArrowUp: step, ArrowLeft: -step, ArrowDown: -step,
    PageUp: 10 * step, PageDown: -10 * step, Home: -Infinity, End: Infinity,
  };
  thumb.addEventListener('keydown', (event) => {
    const by = keys[event.key];
    if (by === undefined) return;
    event.preventDefault();
    set(by === Infinity ? max : by === -Infinity ? min : number('now') + by);
  });
  const figure = find('chart-volume-curve');
  const release = () => { if (figure) dragged.delete(figure); };
  figure?.addEventListener('pointerdown', (event) => {
    if (!event.target.closest('[data-marker="share"]')) return;
    event.preventDefault();
    dragged.add(figure);
    figure.setPointerCapture(event.pointerId);
    thumb.focus();
  });
  figure?.addEventListener('pointermove', (event) => {
    const { svg } = drawn(figure) ?? {};
    if (svg && dragged.has(figure)) set(scale(svg).value(event.clientX));
  });
  figure?.addEventListener('pointerup', release);
  figure?.addEventListener('pointercancel', release);
  settle = (bytes = number('now')) => {
    hasMoved = false;
    began = bytes;
    set(bytes, false);
  };
  set(began, false);
};

// Actions -------------------------------------------------------------------------------------------

const TOKEN = 'cinnabar-token';
const quoted = (word) => (/^[\w\-./:=+%@,]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

const inputs = (form) => {
  const fields = [...new FormData(form)].map(([name, value]) => [name, String(value).trim()]);
  return Object.fromEntries(fields.filter(([, value]) => value !== ''));
};

// Fields are put into words of our own alone: names of volumes may look like places for them. What is in
// brackets is there only if its field is filled.
const filled = (words, values) => words.replace(
  / ?\[([^\]]*)\$(\w+)\]|\$(size|mode)\b/g,
  (all, before, option, name) => {
    if (option) return values[option] ? ` ${before}${quoted(values[option])}` : '';
    return values[name] ? quoted(values[name]) : all;
  },
);

const commandOf = (form) => {
  const values = inputs(form);
  const { before, name, after } = form.dataset;
  return filled(before, values) + name + filled(after, values);
};

const ask = (id) => new Promise((done) => {
  const dialog = find(id);
  dialog.returnValue = '';
  dialog.addEventListener('close', () => done(dialog.returnValue === 'ok'), { once: true });
  dialog.showModal();
});

const token = async () => {
  const known = sessionStorage.getItem(TOKEN);
  if (known) return known;
  const field = find('token-text');
  field.value = '';
  if (!(await ask('token'))) return null;
  const given = field.value.trim();
  field.value = '';
  return given || null;
};

const act = async (form) => {
  const { method, path, confirm } = form.dataset;
  const result = form.querySelector('.result');
  const tell = (text, how) => {
    result.className = `result ${how}`;
    result.textContent = text;
  };
  if (confirm) {
    find('confirm-text').textContent = confirm;
    find('confirm-command').textContent = commandOf(form);
    if (!(await ask('confirm'))) return;
  }
  const given = await token();
  if (!given) return;
  if (!/^[\x21-\x7e]+$/.test(given)) {
    tell('Not sent: the token has characters that no token has.', 'failed');
    return;
  }
  tell('Under way\u2026', '');
  const values = inputs(form);
  const takesBody = !['DELETE'].includes(method) && form.dataset.action !== 'flush';
  try {
    const answer = await fetch(path, {
      method,
      headers: { authorization: `Bearer ${given}`, 'content-type': 'application/json' },
      body: takesBody ? JSON.stringify(values) : undefined,
    });
    if (answer.status === 401) sessionStorage.removeItem(TOKEN); else sessionStorage.setItem(TOKEN, given);
    const text = await answer.text();
    let said = {};
    try { said = JSON.parse(text); } catch { /* An empty answer. */ }
    if (!answer.ok) {
      tell(`Refused: ${said.error ?? answer.status}${said.hint ? ` (${said.hint})` : ''}`, 'failed');
      return;
    }
    tell(said.trouble ? `Done, but: ${said.trouble}` : 'Done.', said.trouble ? 'failed' : 'done');
    if (form.dataset.action === 'pin') {
      const own = said.volumes?.find((one) => path.endsWith(`/${encodeURIComponent(one.volume)}`));
      settle(own?.target_bytes ?? undefined);
    }
    due = viewDue = true;
    refreshed = viewed = 0;
  } catch (error) {
    tell(`Not sent: ${error.message}`, 'failed');
  }
};

const actions = () => {
  for (const form of document.querySelectorAll('form.action')) {
    const command = form.querySelector('.command');
    const update = () => { command.textContent = commandOf(form); };
    form.addEventListener('input', update);
    update();
    if (!find('token')) continue;
    const button = form.querySelector('button');
    button.disabled = false;
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      button.disabled = true;
      await act(form);
      button.disabled = false;
    });
  }
};

// All of it -----------------------------------------------------------------------------------------

actions();
slider();
for (const figure of document.querySelectorAll('figure.plot')) {
  watcher.observe(figure);
  prepare(figure);
}
if (live) {
  connect();
  setInterval(tick, 1000);
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) source?.close(); else connect();
  });
} else if (view === 'problem' && 'retry' in body.dataset) {
  // The daemon starts or stops: look again.
  setTimeout(() => location.reload(), 3 * RETRY_MS);
}
