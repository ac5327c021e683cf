// Sends requests to the HTTP API, with the API key, and reports errors.

const STORAGE_KEY = "maillard.key";
const TIMEOUT_MS = 20_000; // for requests that should be quick

/** An error response: its status, code and message, and the JSON path of the wrong field. */
export class ApiError extends Error {
  constructor(status, error, wait) {
    super(error.message ?? `the service responded with status ${status}`);
    this.status = status;
    this.code = error.code ?? "";
    this.path = error.path ?? null;
    this.wait = wait;
  }
}

/** There was no response, or it did not come from the service. */
class NetworkError extends Error {}

export class Service {
  #key;

  constructor() {
    try {
      this.#key = sessionStorage.getItem(STORAGE_KEY);
    } catch {
      this.#key = null; // storage is disabled: the key is lost when the page is closed
    }
  }

  get key() {
    return this.#key;
  }

  set key(secret) {
    this.#key = secret || null;
    try {
      if (this.#key) sessionStorage.setItem(STORAGE_KEY, this.#key);
      else sessionStorage.removeItem(STORAGE_KEY);
    } catch {
      // As above.
    }
  }

  /** The JSON response of a GET request. */
  async get(path, signal) {
    return (await this.request("GET", path, { signal })).data;
  }

  /** A request, as {data, etag}. A null `timeout` means no time limit. */
  async request(method, path, { body, signal, etag, timeout = TIMEOUT_MS } = {}) {
    const response = await this.#send(method, path, { body, signal, etag, timeout });
    try {
      return { data: await response.json(), etag: response.headers.get("ETag") };
    } catch (error) {
      throw toNetworkError(error, signal);
    }
  }

  /** The response of a GET request as a file. */
  async download(path, signal) {
    const response = await this.#send("GET", path, { signal });
    try {
      return await response.blob();
    } catch (error) {
      throw toNetworkError(error, signal);
    }
  }

  async #send(method, path, { body, signal, etag, timeout }) {
    const headers = { Accept: "application/json" };
    if (this.#key) headers.Authorization = `Bearer ${this.#key}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (etag) headers["If-Match"] = etag;
    const ends = [signal, timeout && AbortSignal.timeout(timeout)].filter(Boolean);
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
      throw toNetworkError(error, signal);
    }
    if (response.ok) return response;
    const content = await response.json().catch(() => null);
    if (!content?.error && response.status >= 500) throw new NetworkError(`status ${response.status}`);
    throw new ApiError(response.status, content?.error ?? {}, Number(response.headers.get("Retry-After")) || 0);
  }
}

/** The address of an experiment, or of something that belongs to it. */
export function experimentPath(key, rest = "") {
  return `v1/experiments/${encodeURIComponent(key)}${rest}`;
}

function toNetworkError(error, signal) {
  return signal?.aborted ? error : new NetworkError(error.message);
}
