// Keeps a timeline of a running job at the newest that was published of it, until the reader moves it.

const EVERY_MS = 2000;

export class Follow {
  /** `facts` is the address that tells the newest generation. */
  constructor(timeline, facts, control) {
    this.timeline = timeline;
    this.facts = facts;
    this.control = control;
    this.on = timeline.atEnd();
    this.timer = setInterval(() => this.look(), EVERY_MS);
    control.addEventListener("change", () => this.turn(control.checked));
    this.tell();
  }

  /** What the reader moves stays where it is. */
  pause() {
    if (this.on) this.turn(false);
  }

  turn(on) {
    this.on = on;
    this.tell();
    if (on) {
      this.timeline.toEnd();
      this.look();
    }
  }

  tell() {
    this.control.checked = this.on;
    this.timeline.place.setAttribute("data-following", this.on ? "yes" : "no");
  }

  async look() {
    // A page that nobody sees asks for nothing.
    if (!this.on || this.busy || document.hidden) return;
    this.busy = true;
    try {
      const answer = await fetch(this.facts);
      const generation = answer.ok ? (await answer.json()).generation : null;
      const base = `${this.facts}/g/${generation}`;
      if (generation !== null && base !== this.timeline.base) {
        const info = await (await fetch(`${base}/timeline`)).json();
        if (this.on && info.levels) this.timeline.replace(base, info);
      }
    } catch (error) {
      if (this.on) this.timeline.fail(error);
    } finally {
      this.busy = false;
    }
  }

  end() {
    this.on = false;
    clearInterval(this.timer);
  }
}
