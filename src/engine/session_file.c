/* session_file.c - a timeline on disk. Little-endian:
 *
 *   0   8  magic "BNETSESS"
 *   8   4  version, 1
 *   12  4  kv_type
 *   16  4  n_pos, tokens of the timeline
 *   20  4  n_vocab
 *   24  8  n_kv, bytes of cache
 *   32  32 fingerprint of the model
 *   64     n_pos ids (i32), then n_kv bytes of cache in the order of bnet_kv_read
 *   end 32 SHA-256 of everything before
 *
 * Nothing of a file reaches the session before all of it was checked. */
#include "engine/engine.h"
#include "base/sha256.h"

enum { HEADER = 64, VERSION = 1, SAMPLE = 4096 };

static const char magic[8] = {'B', 'N', 'E', 'T', 'S', 'E', 'S', 'S'};
static const char *const kv_names[] = {"f16", "f32", "int8"};

/* ---- which model ---- */

/* Where the tensor data begins; the file's end if there is none. */
static uint64_t data_begin(const bnet_gguf *g)
{
    uint64_t first = bnet_gguf_file_bytes(g);
    for (size_t i = 0; i < bnet_gguf_n_tensors(g); i++)
        first = BNET_MIN(first, bnet_gguf_tensor_at(g, i)->offset);
    return first;
}

static void add_samples(bnet_sha256 *h, const bitnet_engine *e)
{
    uint8_t facts[16] = {0};
    bnet_put_u64(facts, bnet_gguf_file_bytes(e->gguf));
    bnet_put_u32(facts + 8, (uint32_t)e->layout);
    bnet_sha256_add(h, facts, sizeof facts);
    bnet_sha256_add(h, bnet_gguf_file_data(e->gguf), (size_t)data_begin(e->gguf));
    for (size_t i = 0; i < bnet_gguf_n_tensors(e->gguf); i++) {
        const bnet_tensor *t = bnet_gguf_tensor_at(e->gguf, i);
        size_t n = (size_t)BNET_MIN(t->n_bytes, (uint64_t)SAMPLE);
        bnet_sha256_add(h, t->data, n);
        bnet_sha256_add(h, t->data + (t->n_bytes - n), n);
    }
}

bitnet_status bnet_engine_fingerprint(const bitnet_engine *e, uint8_t out[32], bitnet_error *err)
{
    bnet_sha256 *h = NULL;
    bitnet_status st = bnet_sha256_open(&h, err);
    if (st != BITNET_OK)
        return st;
    add_samples(h, e);
    st = bnet_sha256_finish(h, out, err);
    bnet_sha256_close(h);
    return st;
}

/* ---- saving ---- */

/* Where the bytes go: a file, or a function of the caller's. */
typedef struct saving {
    bnet_writer *w;
    bitnet_bytes_fn write;
    void *user;
    bnet_sha256 *h;
} saving;

static bitnet_status emit(const saving *s, const void *bytes, size_t n, bitnet_error *err)
{
    if (s->w)
        return bnet_writer_write(s->w, bytes, n, err);
    return s->write(s->user, bytes, n)
               ? BITNET_OK
               : bnet_fail(err, BITNET_CANCELLED, "session: saving was cancelled by `write`");
}

static bitnet_status put(void *user, const void *bytes, size_t n, bitnet_error *err)
{
    const saving *s = user;
    bnet_sha256_add(s->h, bytes, n);
    return emit(s, bytes, n, err);
}

static bitnet_status make_header(const bitnet_session *s, uint8_t header[HEADER], bitnet_error *err)
{
    memset(header, 0, HEADER);
    memcpy(header, magic, sizeof magic);
    bnet_put_u32(header + 8, VERSION);
    bnet_put_u32(header + 12, (uint32_t)s->kv_type);
    bnet_put_u32(header + 16, (uint32_t)s->n_pos);
    bnet_put_u32(header + 20, (uint32_t)s->engine->info.n_vocab);
    bnet_put_u64(header + 24, bnet_kv_saved_bytes(s->kv, (int)s->n_pos));
    return bnet_engine_fingerprint(s->engine, header + 32, err);
}

static bitnet_status write_all(const bitnet_session *s, saving *out, bitnet_error *err)
{
    uint8_t header[HEADER], digest[BNET_SHA256_BYTES];
    bitnet_status st = make_header(s, header, err);
    if (st == BITNET_OK)
        st = put(out, header, sizeof header, err);
    if (st == BITNET_OK)
        st = put(out, s->tokens, s->n_pos * sizeof *s->tokens, err);
    if (st == BITNET_OK)
        st = bnet_kv_read(s->kv, (int)s->n_pos, put, out, err);
    if (st == BITNET_OK)
        st = bnet_sha256_finish(out->h, digest, err);
    return st == BITNET_OK ? emit(out, digest, sizeof digest, err) : st;
}

/* Everything of the timeline, which is held meanwhile; its cache is computed again if it was lost.
 */
static bitnet_status save(const bitnet_session *s, saving *out, bitnet_error *err)
{
    bitnet_session *whole = (bitnet_session *)s; /* the timeline stays, its cache may be filled */
    bitnet_status st = bnet_session_hold(whole, s->n_pos, err);
    if (st == BITNET_OK)
        st = bnet_sha256_open(&out->h, err);
    if (st == BITNET_OK)
        st = write_all(s, out, err);
    bnet_session_let_go(whole);
    bnet_sha256_close(out->h);
    return st;
}

bitnet_status bitnet_session_save_to(const bitnet_session *s, bitnet_bytes_fn write, void *user,
                                     bitnet_error *err)
{
    if (!s || !write)
        return bnet_fail(err, BITNET_ARGUMENT, "session: session and write must not be NULL");
    saving out = {.write = write, .user = user};
    bitnet_status st = bnet_session_enter(s, "save", err);
    return st == BITNET_OK ? bnet_session_leave(s, save(s, &out, err)) : st;
}

bitnet_status bitnet_session_save(const bitnet_session *s, const char *path, bitnet_error *err)
{
    if (!s || !path)
        return bnet_fail(err, BITNET_ARGUMENT, "session: session and path must not be NULL");
    saving out = {0};
    bitnet_status st = bnet_session_enter(s, "save", err);
    if (st != BITNET_OK)
        return st;
    st = bnet_writer_open(path, &out.w, err);
    if (st == BITNET_OK)
        st = save(s, &out, err);
    bnet_session_leave(s, st);
    if (st != BITNET_OK) {
        bnet_writer_abort(out.w);
        return st;
    }
    return bnet_writer_commit(out.w, err);
}

/* ---- loading ---- */

static bitnet_status check_sum(const char *path, const bnet_map *map, bitnet_error *err)
{
    uint8_t digest[BNET_SHA256_BYTES];
    size_t n = map->n_bytes - BNET_SHA256_BYTES;
    bnet_sha256 *h = NULL;
    bitnet_status st = bnet_sha256_open(&h, err);
    if (st != BITNET_OK)
        return st;
    bnet_sha256_add(h, map->data, n);
    st = bnet_sha256_finish(h, digest, err);
    bnet_sha256_close(h);
    if (st == BITNET_OK && memcmp(digest, map->data + n, sizeof digest) != 0)
        st =
            bnet_fail(err, BITNET_MODEL,
                      "%s: damaged: the checksum at byte %zu does not match its contents", path, n);
    return st;
}

/* Is it a whole, undamaged session file of our version? */
static bitnet_status check_file(const char *path, const bnet_map *map, bitnet_error *err)
{
    if (map->n_bytes < sizeof magic || memcmp(map->data, magic, sizeof magic) != 0)
        return bnet_fail(err, BITNET_MODEL,
                         "%s: not a session file (it does not begin with BNETSESS)", path);
    if (map->n_bytes < HEADER + BNET_SHA256_BYTES)
        return bnet_fail(err, BITNET_MODEL,
                         "%s: damaged: %zu bytes are fewer than an empty session has", path,
                         map->n_bytes);
    uint32_t version = bnet_u32(map->data + 8);
    if (version != VERSION)
        return bnet_fail(err, BITNET_MODEL, "%s: session file version %u, this library reads %d",
                         path, (unsigned)version, VERSION);
    return check_sum(path, map, err);
}

/* Does it belong to this model and this kind of session? */
static bitnet_status check_match(const bitnet_session *s, const char *path, const uint8_t *header,
                                 bitnet_error *err)
{
    uint8_t print[32];
    bitnet_status st = bnet_engine_fingerprint(s->engine, print, err);
    if (st != BITNET_OK)
        return st;
    if (memcmp(print, header + 32, sizeof print) != 0 ||
        bnet_u32(header + 20) != (uint32_t)s->engine->info.n_vocab)
        return bnet_fail(err, BITNET_MODEL, "%s: was saved from another model than %s", path,
                         s->engine->path);
    uint32_t kv = bnet_u32(header + 12), n_pos = bnet_u32(header + 16);
    if (kv != (uint32_t)s->kv_type)
        return bnet_fail(err, BITNET_MODEL, "%s: holds a cache of type %s, this session has %s",
                         path, kv < BNET_COUNT(kv_names) ? kv_names[kv] : "unknown",
                         kv_names[s->kv_type]);
    if (n_pos > (uint32_t)s->n_ctx)
        return bnet_fail(err, BITNET_CONTEXT, "%s: has %u tokens, this session's context holds %d",
                         path, (unsigned)n_pos, s->n_ctx);
    return BITNET_OK;
}

/* Do the lengths add up, and is every id a token? */
static bitnet_status check_body(const bitnet_session *s, const char *path, const bnet_map *map,
                                bitnet_error *err)
{
    size_t n_pos = bnet_u32(map->data + 16);
    uint64_t n_kv = bnet_kv_saved_bytes(s->kv, (int)n_pos);
    uint64_t n_all = HEADER + BNET_SHA256_BYTES + (uint64_t)n_pos * sizeof(int32_t);
    if (bnet_u64(map->data + 24) != n_kv || !bnet_add(n_all, n_kv, &n_all) || map->n_bytes != n_all)
        return bnet_fail(err, BITNET_MODEL,
                         "%s: damaged: %zu bytes where %zu tokens of this model need %llu", path,
                         map->n_bytes, n_pos, (unsigned long long)n_all);
    for (size_t i = 0; i < n_pos; i++) {
        uint32_t id = bnet_u32(map->data + HEADER + i * sizeof id);
        if (id >= (uint32_t)s->engine->info.n_vocab)
            return bnet_fail(err, BITNET_MODEL,
                             "%s: damaged: token %u at byte %zu is outside the vocabulary 0..%d",
                             path, (unsigned)id, HEADER + i * sizeof id,
                             s->engine->info.n_vocab - 1);
    }
    return BITNET_OK;
}

/* If the device fails, the timeline is as before, and its cache is computed again when next used.
 */
static bitnet_status take(bitnet_session *s, const bnet_map *map, bitnet_error *err)
{
    size_t n_pos = bnet_u32(map->data + 16);
    const uint8_t *cache = map->data + HEADER + n_pos * sizeof *s->tokens;
    bool pinned;
    bitnet_status st = bnet_kv_pin(&s->entry, 0, n_pos, &s->cancel, &pinned, err);
    if (st != BITNET_OK)
        return st;
    bnet_kv_filled(&s->entry, 0);
    st = bnet_kv_write(s->kv, (int)n_pos, cache, err);
    if (st == BITNET_OK) {
        memcpy(s->tokens, map->data + HEADER, n_pos * sizeof *s->tokens);
        if (s->begins) /* how the file's cache was computed is not known */
            memset(s->begins, 0, (n_pos / 64 + 1) * sizeof *s->begins);
        s->n_pos = n_pos;
        bnet_kv_filled(&s->entry, n_pos);
        bnet_session_forget(s);
    }
    bnet_session_let_go(s);
    return st;
}

static bitnet_status load(bitnet_session *s, const char *name, const bnet_map *map,
                          bitnet_error *err)
{
    bitnet_status st = check_file(name, map, err);
    if (st == BITNET_OK)
        st = check_match(s, name, map->data, err);
    if (st == BITNET_OK)
        st = check_body(s, name, map, err);
    return st == BITNET_OK ? take(s, map, err) : st;
}

bitnet_status bitnet_session_load(bitnet_session *s, const char *path, bitnet_error *err)
{
    if (!s || !path)
        return bnet_fail(err, BITNET_ARGUMENT, "session: session and path must not be NULL");
    bnet_map map = {0};
    bitnet_status st = bnet_session_enter(s, "load", err);
    if (st != BITNET_OK)
        return st;
    st = bnet_map_open(path, &map, err);
    if (st == BITNET_OK)
        st = load(s, path, &map, err);
    bnet_map_close(&map);
    return bnet_session_leave(s, st);
}

bitnet_status bitnet_session_load_memory(bitnet_session *s, const void *bytes, size_t n_bytes,
                                         bitnet_error *err)
{
    if (!s || (n_bytes && !bytes))
        return bnet_fail(err, BITNET_ARGUMENT, "session: session and bytes must not be NULL");
    const bnet_map map = {.data = bytes, .n_bytes = n_bytes};
    bitnet_status st = bnet_session_enter(s, "load", err);
    return st == BITNET_OK ? bnet_session_leave(s, load(s, "session in memory", &map, err)) : st;
}
