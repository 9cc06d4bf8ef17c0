// The theme fetches a script of its own unless one of this file name is there.
// Search from file://, where a browser lets no page start a worker: the worker's script runs in a hidden frame.
"use strict";

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #loaded;
    onmessage = null;

    constructor(url) {
      super();
      this.#frame.hidden = true;
      document.body.append(this.#frame);
      const { contentWindow, contentDocument } = this.#frame;
      contentDocument.open();
      contentDocument.write("<!doctype html><body></body>");
      contentDocument.close();

      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = contentDocument.createElement("script");
          script.src = source;
          script.onload = resolve;
          script.onerror = () => reject(new Error(`cannot load ${source}`));
          contentDocument.body.append(script);
        });

      // What a worker's global object has.
      contentWindow.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      contentWindow.importScripts = async (...sources) => {
        for (const source of sources) await load(source);
      };
      this.#loaded = load(url);
    }

    async postMessage(data) {
      await this.#loaded;
      const event = new MessageEvent("message", { data: structuredClone(data) });
      this.#frame.contentWindow.dispatchEvent(event);
    }

    terminate() {
      this.#frame.remove();
    }
  };
  // The name that the theme looks for.
  window.IFrameWorker = window.Worker;
}
