// Runs the search of the site where pages are read from a folder: browsers refuse to start a worker from a file there. This class
// has the interface of Worker, and runs the script of the worker in a hidden frame.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.onmessage = null;
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.appendChild(frame);
    const inside = frame.contentWindow;
    inside.document.open();
    inside.document.write("<!doctype html><html><body></body></html>");
    inside.document.close();
    inside.IFrameWorker = IFrameWorker;
    inside.importScripts = (...urls) =>
      urls.reduce((before, each) => before.then(() => IFrameWorker.load(inside, each)), Promise.resolve());
    inside.postMessage = (data) => {
      const message = new MessageEvent("message", { data });
      this.dispatchEvent(message);
      if (this.onmessage) this.onmessage(message);
    };
    this.frame = frame;
    this.ready = IFrameWorker.load(inside, url);
  }

  static load(inside, url) {
    return new Promise((resolve, reject) => {
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`cannot load ${url}`));
      inside.document.body.appendChild(script);
    });
  }

  postMessage(data) {
    this.ready.then(() => {
      const inside = this.frame.contentWindow;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    });
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
