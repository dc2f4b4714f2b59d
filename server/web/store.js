// store.js - where conversations are kept: in IndexedDB; where the browser has none (some private windows), in localStorage;
// where that fails too, in memory until the page closes. `store.where` says which it is and `store.onTrouble` is called when
// something could not be kept, so that the page can say so.

const NAME = "bitnet-chat", STORE = "conversations", KEY = "bitnet.conversation.";

export async function openStore() {
  try {
    return new Database(await openDatabase());
  } catch { /* the next one */ }
  try {
    localStorage.setItem("bitnet.probe", "1");
    localStorage.removeItem("bitnet.probe");
    return new LocalStore();
  } catch { /* the last one */ }
  return new MemoryStore();
}

function openDatabase() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, {keyPath: "id"});
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    setTimeout(() => reject(new Error("the database does not open")), 3000); // another page may hold it
  });
}

// Each store: all() gives what is kept and get() one of it, or they throw; put() and remove() keep and forget; the last two never throw and tell whether it worked.
// Another tab may have kept the same conversation: put() calls `join` with that, or with null, and keeps what it gives; null: nothing is kept of it.
class Database {
  where = "database";
  onTrouble = () => {};

  constructor(db) {
    this.db = db;
    db.onversionchange = () => db.close();
  }

  act(mode, work) {
    return new Promise((resolve, reject) => {
      const transaction = this.db.transaction(STORE, mode);
      const request = work(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onerror = transaction.onabort = () => reject(transaction.error || new Error("the browser gave up"));
    });
  }

  all() {
    return this.act("readonly", (s) => s.getAll());
  }

  get(id) {
    return this.act("readonly", (s) => s.get(id));
  }

  put(id, join) {
    return this.quietly(() => this.act("readwrite", (s) => {
      const request = s.get(id);
      request.onsuccess = () => {
        const joined = join(request.result || null);
        if (joined) s.put(joined);
        else s.delete(id);
      };
      return request;
    }));
  }

  remove(id) {
    return this.quietly(() => this.act("readwrite", (s) => s.delete(id)));
  }

  async quietly(work) {
    try {
      await work();
      return true;
    } catch (e) {
      this.onTrouble(e);
      return false;
    }
  }
}

class LocalStore {
  where = "storage";
  onTrouble = () => {};

  async all() {
    const found = [];
    for (const key of Object.keys(localStorage).filter((k) => k.startsWith(KEY))) {
      try {
        found.push(JSON.parse(localStorage.getItem(key)));
      } catch { /* one damaged entry does not hide the others */ }
    }
    return found;
  }

  async get(id) {
    return readValue("conversation." + id, null);
  }

  async put(id, join) {
    try {
      const joined = join(readValue("conversation." + id, null));
      if (joined) localStorage.setItem(KEY + id, JSON.stringify(joined));
      else localStorage.removeItem(KEY + id);
      return true;
    } catch (e) {
      this.onTrouble(e);
      return false;
    }
  }

  async remove(id) {
    localStorage.removeItem(KEY + id);
    return true;
  }
}

class MemoryStore {
  where = "memory";
  onTrouble = () => {};
  async all() {
    return [];
  }
  async get() {
    return null;
  }
  async put() {
    return true;
  }
  async remove() {
    return true;
  }
}

// ---- single values: settings, theme, key ----

export function readValue(name, otherwise, where = () => localStorage) {
  try {
    const text = where().getItem("bitnet." + name);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

export function keepValue(name, value, where = () => localStorage) {
  try {
    if (value === null) where().removeItem("bitnet." + name);
    else where().setItem("bitnet." + name, JSON.stringify(value));
  } catch { /* a setting that is not kept is no reason to stop */ }
}
