// The one socket between the page and the studio.

export class Talk {
  constructor(told, lost) {
    this.told = told;
    this.lost = lost;
    this.waiting = [];
    this.open();
  }

  open() {
    this.socket = new WebSocket(`ws://${location.host}${location.pathname}talk`);
    this.socket.onmessage = event => this.told(JSON.parse(event.data));
    this.socket.onopen = () => { this.lost(false); for (const text of this.waiting.splice(0)) this.socket.send(text); };
    this.socket.onclose = () => { this.lost(true); this.waiting = []; setTimeout(() => this.open(), 1500); };
  }

  // Ask the studio something; answers come to `told`, in their own time.
  ask(name, fields = {}) {
    const text = JSON.stringify({ ask: name, ...fields });
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(text);
    else this.waiting.push(text);
  }
}
