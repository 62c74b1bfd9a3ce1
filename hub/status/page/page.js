// Without this script the page is complete and does not change. With it, every part that is
// marked data-live is replaced by that of the same page as it is now, and the filter
// takes effect while one types. It keeps where one reads: scroll, focus, what is open,
// and what is selected.
'use strict';

(() => {
  const period = 1500; // ms between the end of one refresh and the next one
  const longest = 15000; // ms between two tries while the connection is lost
  const patience = 10000; // ms that an answer may take
  const away = document.getElementById('away');
  let timer = 0;
  let running = null;
  let took = 0;
  let failures = 0; // in a row
  let why = ''; // of the last failure
  let clock = null; // shows the age of the page while the connection is lost
  // The hub's time, and that of this browser: their clocks may differ.
  let answered = { hub: shownAt(), here: Date.now() };

  function shownAt(page = document) { return Date.parse(page.querySelector('#asof time').dateTime); }

  // An XMLHttpRequest parses the answer into a document whose scripts do not run, without
  // a string that is taken for HTML here: the page's policy forbids that.
  function refresh() {
    clearTimeout(timer);
    if (running) running.abort();
    const request = new XMLHttpRequest();
    const begun = performance.now();
    running = request;
    request.open('GET', location.pathname + location.search);
    request.responseType = 'document';
    request.timeout = patience;
    request.onload = () => {
      took = performance.now() - begun;
      const page = request.responseXML;
      if (!page || !page.getElementById('asof')) return lost(`The answer was HTTP ${request.status} ${request.statusText}. `);
      answered = { hub: shownAt(page), here: Date.now() };
      failures = 0;
      clearInterval(clock);
      clock = null;
      away.hidden = true;
      document.title = page.title;
      if (!reading()) swap(page);
      next();
    };
    request.onerror = () => lost('');
    request.ontimeout = () => lost('');
    request.send();
  }

  // A server that is slow or away, or a page that nobody sees, is asked less often.
  function next() {
    running = null;
    clearTimeout(timer);
    const wait = Math.min(longest, period * 2 ** Math.max(0, failures - 1));
    if (!document.hidden) timer = setTimeout(refresh, Math.max(wait, 4 * took));
  }

  function lost(reason) {
    failures++;
    why = reason;
    if (!clock) { // an alert is read out when it changes: once
      document.getElementById('lost').textContent = `Connection lost at ${time(answered.hub + Date.now() - answered.here)}; reconnecting`;
      clock = setInterval(tell, 1000);
    }
    tell();
    away.hidden = false;
    next();
  }

  function tell() {
    const s = Math.max(0, Math.round((answered.hub + Date.now() - answered.here - shownAt()) / 1000));
    const age = s < 120 ? `${s}s` : s < 600 ? `${Math.floor(s / 60)}m${s % 60}s` : s < 10800 ? `${Math.floor(s / 60)}m` : `${Math.floor(s / 3600)}h`;
    document.getElementById('stale').textContent = `${why}This page shows the state at ${time(shownAt())}, ${age} ago.`;
  }

  function time(ms) { return new Date(ms).toISOString().slice(11, 19) + ' UTC'; }

  // A text that is selected, to be copied, stays selected.
  function reading() {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && document.getElementById('main').contains(selection.anchorNode);
  }

  function swap(page) {
    if (!sameParts(page)) {
      document.getElementById('main').replaceWith(document.adoptNode(page.getElementById('main')));
      return;
    }
    const focused = document.activeElement;
    const link = focused && focused.closest('[data-live]') ? focused.getAttribute('href') : null;
    const part = link && focused.closest('[data-live]').id;
    for (const old of document.querySelectorAll('[data-live]')) {
      const fresh = document.adoptNode(page.getElementById(old.id));
      for (const details of old.querySelectorAll('details[open]')) {
        const same = [...fresh.querySelectorAll('details')].find((d) => d.id === details.id);
        if (same) same.open = true;
      }
      old.replaceWith(fresh);
    }
    if (link) {
      const same = [...document.getElementById(part).querySelectorAll('a')].find((a) => a.getAttribute('href') === link);
      if (same) same.focus({ preventScroll: true });
    }
  }

  // Parts come and go, such as the last error: then all of main is replaced.
  function sameParts(page) {
    const ids = (d) => [...d.querySelectorAll('[data-live]')].map((e) => e.id).join();
    return ids(document) === ids(page);
  }

  function filter(form) {
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value !== '') query.set(name, value);
    const search = query.toString();
    history.replaceState(null, '', location.pathname + (search && '?' + search));
    refresh();
  }

  let typing = 0;
  document.addEventListener('input', (event) => {
    if (!event.target.form) return;
    clearTimeout(typing);
    typing = setTimeout(() => filter(event.target.form), 200);
  });
  document.addEventListener('submit', (event) => {
    event.preventDefault();
    clearTimeout(typing);
    filter(event.target);
  });
  document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh(); });
  window.addEventListener('online', refresh);

  document.getElementById('refresh').textContent = 'It refreshes itself.';
  next();
})();
