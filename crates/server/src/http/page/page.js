"use strict";
// Replaces the sections of the page by those in the events. A stream is read by fetch, because EventSource cannot send a token.
(() => {
  const byId = (id) => document.getElementById(id);
  const storage = "glasscache-token";
  let token = sessionStorage.getItem(storage);
  let paused = false;
  let reader = null;
  const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});
  const show = (text, state) => {
    const status = byId("connection");
    if (status && status.textContent !== text) status.textContent = text;
    document.body.className = state;
  };
  const update = (text) => {
    for (const [id, html] of Object.entries(JSON.parse(text))) {
      const element = byId(id);
      if (!element || element.dataset.html === html) continue;
      // A table that is scrolled or focused stays so: only its rows change.
      const focused = element.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
      const scrolled = [...element.querySelectorAll(".wide")].map((table) => table.scrollLeft);
      element.innerHTML = html;
      element.dataset.html = html;
      element.querySelectorAll(".wide").forEach((table, index) => {
        table.scrollLeft = scrolled[index] || 0;
        if (focused && table.getAttribute("aria-label") === focused) table.focus({ preventScroll: true });
      });
    }
  };
  const listen = async () => {
    let wait = 1000;
    for (;;) {
      try {
        const response = await fetch("/api/events", { headers: headers() });
        if (!response.ok) throw new Error((await response.text()).trim());
        reader = response.body.getReader();
        const decoder = new TextDecoder();
        let text = "";
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          text += decoder.decode(value, { stream: true });
          const events = text.split("\n\n");
          text = events.pop();
          const last = events.filter((event) => event.startsWith("data: ")).pop();
          if (last && !paused) {
            update(last.slice(6));
            show("live", "");
            wait = 1000;
          }
        }
        throw new Error("the server closed the connection");
      } catch (error) {
        if (!paused) show(`not live: ${error.message}`, "lost");
      }
      await new Promise((resume) => setTimeout(resume, wait));
      wait = Math.min(wait * 2, 15000);
    }
  };
  const start = () => {
    const pause = byId("pause");
    pause.hidden = false;
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.textContent = paused ? "Continue" : "Pause";
      pause.setAttribute("aria-pressed", String(paused));
      show(paused ? "paused" : "live", paused ? "paused" : "");
    });
    listen();
  };
  const open = async () => {
    const response = await fetch("/", { headers: { ...headers(), Accept: "text/html" } });
    if (!response.ok) {
      sessionStorage.removeItem(storage);
      byId("refused").textContent = response.status === 401 ? "This is not the token." : await response.text();
      return;
    }
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    page.querySelectorAll("script").forEach((script) => script.remove());
    sessionStorage.setItem(storage, token);
    document.body.replaceChildren(...page.body.childNodes);
    start();
  };
  const login = byId("login");
  if (!login) {
    start();
    return;
  }
  login.addEventListener("submit", (event) => {
    event.preventDefault();
    token = byId("token").value.trim();
    open();
  });
  if (token) open();
})();
