// The service's HTTP API: what is asked, with which key, and what its refusals say.

const PLACE = "maillard.key";
const PATIENCE = 20_000; // milliseconds, for what should be quick

/** An answer that is an error: its status, its code, what it says, and which part of the request it is about. */
export class Refusal extends Error {
  constructor(status, error, wait) {
    super(error.message ?? `the service answered ${status}`);
    this.status = status;
    this.code = error.code ?? "";
    this.path = error.path ?? null;
    this.wait = wait;
  }
}

/** No answer, or none that is the service's own. */
class Unreached extends Error {}

export class Service {
  #key;

  constructor() {
    try {
      this.#key = sessionStorage.getItem(PLACE);
    } catch {
      this.#key = null; // a browser that keeps nothing: the key lasts as long as the page
    }
  }

  get key() {
    return this.#key;
  }

  set key(secret) {
    this.#key = secret || null;
    try {
      if (this.#key) sessionStorage.setItem(PLACE, this.#key);
      else sessionStorage.removeItem(PLACE);
    } catch {
      // As above.
    }
  }

  /** The JSON that a path answers with. */
  async get(path, signal) {
    return (await this.ask("GET", path, { signal })).data;
  }

  /** A request, as {data, etag}. Without `patience` it may take as long as it takes. */
  async ask(method, path, { body, signal, etag, patience = PATIENCE } = {}) {
    const response = await this.#send(method, path, { body, signal, etag, patience });
    try {
      return { data: await response.json(), etag: response.headers.get("ETag") };
    } catch (error) {
      throw unreached(error, signal);
    }
  }

  /** A file that a path answers with. */
  async download(path, signal) {
    const response = await this.#send("GET", path, { signal });
    try {
      return await response.blob();
    } catch (error) {
      throw unreached(error, signal);
    }
  }

  async #send(method, path, { body, signal, etag, patience }) {
    const headers = { Accept: "application/json" };
    if (this.#key) headers.Authorization = `Bearer ${this.#key}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (etag) headers["If-Match"] = etag;
    const ends = [signal, patience && AbortSignal.timeout(patience)].filter(Boolean);
    let response;
    try {
      response = await fetch(path, {
        method,
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: ends.length ? AbortSignal.any(ends) : undefined,
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
      });
    } catch (error) {
      throw unreached(error, signal);
    }
    if (response.ok) return response;
    const answer = await response.json().catch(() => null);
    if (!answer?.error && response.status >= 500) throw new Unreached(`answered ${response.status}`);
    throw new Refusal(response.status, answer?.error ?? {}, Number(response.headers.get("Retry-After")) || 0);
  }
}

/** The address of an experiment, or of something that belongs to it. */
export function experimentPath(key, rest = "") {
  return `v1/experiments/${encodeURIComponent(key)}${rest}`;
}

function unreached(error, signal) {
  return signal?.aborted ? error : new Unreached(error.message);
}
