/* Search where no server is: a browser starts no worker from a file, so that its script runs in a frame.
   Zensical's offline plugin loads one from a content delivery network where none has this name. */
if (location.protocol === "file:") {
  window.Worker = class {
    #frame = document.createElement("iframe");
    #started;

    constructor(url) {
      this.#frame.hidden = true;
      this.#frame.srcdoc = "<!doctype html><title>search</title>";
      this.#started = new Promise((started) => {
        this.#frame.onload = () => {
          const inside = this.#frame.contentWindow;
          inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }));
          const script = inside.document.createElement("script");
          script.src = url;
          script.onload = () => started(inside);
          script.onerror = (problem) => this.onerror?.(problem);
          inside.document.head.append(script);
        };
      });
      document.body.append(this.#frame);
    }

    postMessage(data) {
      const copy = structuredClone(data);
      this.#started.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data: copy })));
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
