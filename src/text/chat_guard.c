/* chat_guard.c - characters in disguise: which ones, putting it on, taking it off. */
#include "text/chat_guard.h"

#include <stdlib.h>

#include "text/vocab.h"

#define DISGUISE  0x10ff00u /* the first of the private characters */
#define NO_CHAR   "\xef\xbf\xbd"
#define LEAD_BYTE 0xf4 /* of every character in disguise */

enum { LONGEST_MARK = 64 };

static const char *const thoughts[2] = {"<think>", "</think>"};

/* ---- what is guarded ---- */

static int by_id(const void *a, const void *b)
{
    int32_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static int by_bytes(const void *pa, const void *pb)
{
    const bnet_span *a = pa, *b = pb;
    int order = memcmp(a->data, b->data, BNET_MIN(a->n, b->n));
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

static bool guarded(const bnet_guard *g, int32_t id)
{
    return bnet_token_special(g->t, id) || bnet_token_stops(g->t, id) ||
           (g->n_users && bsearch(&id, g->users, g->n_users, sizeof id, by_id));
}

/* White space, letters, digits, and what JSON or Python would escape: a template may ask for those,
 * or change them. */
static bool travels(uint32_t cp)
{
    bool word = (cp >= '0' && cp <= '9') || (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z');
    bool space = cp <= ' ' || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
                 (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f ||
                 cp == 0x205f || cp == 0x3000;
    return !word && !space && cp != '_' && cp != '"' && cp != '\'' && cp != '\\' && cp != 127;
}

static int find_char(const bnet_guard *g, uint32_t cp)
{
    for (size_t i = 0; i < g->n_chars; i++)
        if (g->chars[i] == cp)
            return (int)i;
    return -1;
}

static void add_char(bnet_guard *g, uint32_t cp)
{
    if (travels(cp) && find_char(g, cp) < 0 && g->n_chars < BNET_GUARD_CHARS)
        g->chars[g->n_chars++] = cp;
}

/* The first character of a token's name; 0: it is no UTF-8. */
static uint32_t first_char(const char *s, size_t n)
{
    int len = bnet_utf8_len(s, n);
    return len > 0 ? bnet_utf8_decode(s, len) : 0;
}

static uint32_t last_char(const char *s, size_t n)
{
    for (size_t back = 1; back <= 4 && back <= n; back++)
        if (bnet_utf8_len(s + n - back, back) == (int)back)
            return bnet_utf8_decode(s + n - back, (int)back);
    return 0;
}

static void add_chars(bnet_guard *g)
{
    const bnet_specials *all = &g->t->specials;
    for (const char *c = "<>[]"; *c; c++)
        add_char(g, (unsigned char)*c);
    for (size_t i = 0; i < all->n; i++) {
        const bnet_special *s = &all->list[i];
        if (!guarded(g, s->id))
            continue;
        uint32_t first = first_char(s->text, s->n);
        add_char(g, first);
        add_char(g, last_char(s->text, s->n));
        g->stubborn = g->stubborn || find_char(g, first) < 0;
    }
}

/* ---- what the template writes ---- */

/* May stand between the brackets of a mark. */
static bool mark_char(char c)
{
    return (unsigned char)c > ' ' && c != 127 && !strchr("<>\"'{}()[]\\,+%", c);
}

/* How long what looks like a mark is at s: "<|im_end|>", "[/INST]"; 0: nothing does. */
static size_t mark_shape(const char *s, size_t n)
{
    size_t i = 1, most = BNET_MIN(n, (size_t)LONGEST_MARK);
    if (n < 3 || (s[0] != '<' && s[0] != '['))
        return 0;
    if (s[0] == '<') {
        while (i < most && mark_char(s[i]))
            i++;
        return i > 1 && i < most && s[i] == '>' ? i + 1 : 0;
    }
    i += s[1] == '/';
    if (s[i] < 'A' || s[i] > 'Z')
        return 0;
    while (i < most &&
           ((s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= '0' && s[i] <= '9') || s[i] == '_'))
        i++;
    return i < most && s[i] == ']' ? i + 1 : 0;
}

/* How long the beginning of a mark is that a value completes ("<|" in '<|' + role, <|{{ role }});
 * 0: there is none, or one that any text has. */
static size_t open_shape(const char *s, size_t n)
{
    size_t i = 1, most = BNET_MIN(n, (size_t)LONGEST_MARK);
    if (n < 3 || s[0] != '<')
        return 0;
    while (i < most && mark_char(s[i]))
        i++;
    bool ends = i + 1 < n && (s[i] == '\'' || s[i] == '"' || (s[i] == '{' && s[i + 1] == '{'));
    return ends && i >= 2 && !(i == 2 && s[1] == '/') ? i : 0;
}

static bool add_marks(bnet_guard *g, bnet_span source)
{
    for (size_t i = 0; i < source.n; i++) {
        const char *s = source.data + i;
        size_t len = mark_shape(s, source.n - i), begins = len ? 0 : open_shape(s, source.n - i);
        if (begins && g->n_open < BNET_GUARD_OPEN)
            g->open[g->n_open++] = (bnet_span){s, begins};
        if (len && !bnet_grow(&g->marks, &g->cap_marks, g->n_marks + 1, sizeof *g->marks))
            return false;
        if (len)
            g->marks[g->n_marks++] = (bnet_span){s, len};
    }
    if (g->n_marks)
        qsort(g->marks, g->n_marks, sizeof *g->marks, by_bytes);
    return true;
}

/* User-defined tokens in the template's text. */
static bool add_users(bnet_guard *g, bnet_span source)
{
    bnet_scratch scratch = {0};
    bnet_special_hits hits = {0};
    bool fine = bnet_special_scan(g->t, source.data, source.n, true, &scratch, &hits);
    for (size_t i = 0; fine && i < hits.n; i++) {
        const bnet_special *s = &g->t->specials.reversed[hits.data[i].which];
        if (!s->user || (s->text[0] != '<' && s->text[0] != '['))
            continue;
        fine = bnet_grow(&g->users, &g->cap_users, g->n_users + 1, sizeof *g->users);
        if (fine)
            g->users[g->n_users++] = s->id;
    }
    if (fine && g->n_users)
        qsort(g->users, g->n_users, sizeof *g->users, by_id);
    bnet_scratch_free(&scratch);
    bnet_free(hits.data);
    return fine;
}

bitnet_status bnet_guard_open(bnet_guard *g, const bnet_tokenizer *t, bnet_span source,
                              bitnet_error *err)
{
    *g = (bnet_guard){.t = t};
    if (!add_users(g, source) || !add_marks(g, source))
        return bnet_no_memory(err, "marks of the chat template");
    add_chars(g);
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(thoughts[i]);
        int32_t id = bnet_special_find(t, thoughts[i], n);
        g->thought[i] = memmem(source.data, source.n, thoughts[i], n) &&
                        (id < 0 || (!bnet_token_special(t, id) && !bnet_token_stops(t, id)));
    }
    return BITNET_OK;
}

void bnet_guard_close(bnet_guard *g)
{
    bnet_free(g->users);
    bnet_free(g->marks);
    *g = (bnet_guard){0};
}

/* ---- the disguise ---- */

static size_t thought_at(const bnet_guard *g, const char *s, size_t n)
{
    for (int i = 0; i < 2; i++) {
        size_t len = strlen(thoughts[i]);
        if (g->thought[i] && n >= len && memcmp(s, thoughts[i], len) == 0)
            return len;
    }
    return 0;
}

/* Length of a guarded token at s that begins with a character without disguise: it is broken at
 * once; 0: there is none. */
static size_t stubborn_at(const bnet_guard *g, const char *s, size_t n)
{
    int32_t id;
    size_t len = g->stubborn ? bnet_special_match(g->t, s, n, true, &id) : 0;
    return len && guarded(g, id) ? len : 0;
}

static void put_char(const bnet_guard *g, bnet_span rest, size_t len, bnet_guard_kind kind,
                     bnet_str *out)
{
    char code[4];
    uint32_t cp = bnet_utf8_decode(rest.data, (int)len);
    int at = find_char(g, cp);
    if (at >= 0) {
        bnet_str_add(out, code, (size_t)bnet_utf8_encode(DISGUISE + (uint32_t)at, code));
        return;
    }
    size_t token = kind == BNET_GUARD_KEY ? 0 : stubborn_at(g, rest.data, rest.n);
    if (cp >= DISGUISE || (token && token <= len))
        bnet_str_puts(out, NO_CHAR);
    else
        bnet_str_add(out, rest.data, len);
    if (token > len)
        bnet_str_putc(out, ' ');
}

void bnet_guard_disguise(const bnet_guard *g, bnet_span text, bnet_guard_kind kind, bnet_str *out)
{
    for (size_t i = 0, step; i < text.n; i += step) {
        bnet_span rest = {text.data + i, text.n - i};
        size_t thought = kind == BNET_GUARD_REPLY ? thought_at(g, rest.data, rest.n) : 0;
        int len = bnet_utf8_len(rest.data, rest.n);
        step = thought ? thought : len > 0 ? (size_t)len : 1;
        if (thought)
            bnet_str_add(out, rest.data, thought);
        else if (len <= 0)
            bnet_str_puts(out, NO_CHAR);
        else
            put_char(g, rest, (size_t)len, kind, out);
    }
}

/* ---- taking it off ---- */

/* A text, and for each of its bytes whether a user's disguised character has it. */
typedef struct told {
    bnet_str text, theirs;
} told;

static void tell(told *o, const char *s, size_t n, bool theirs)
{
    bnet_str_add(&o->text, s, n);
    if (n == 0 || !bnet_str_reserve(&o->theirs, n))
        return;
    memset(o->theirs.data + o->theirs.n, theirs, n);
    o->theirs.data[o->theirs.n += n] = '\0';
}

static void tell_as(told *o, const told *from, size_t at, size_t n)
{
    bnet_str_add(&o->text, from->text.data + at, n);
    bnet_str_add(&o->theirs, from->theirs.data + at, n);
}

static void free_told(told *o)
{
    bnet_str_free(&o->text);
    bnet_str_free(&o->theirs);
}

/* The character in disguise at s, as it was, into out; its length, or 0: there is none. */
static size_t undisguised(const bnet_guard *g, const char *s, size_t n, char out[4])
{
    uint32_t cp = bnet_utf8_len(s, n) == 4 ? bnet_utf8_decode(s, 4) : 0;
    return cp >= DISGUISE && cp - DISGUISE < g->n_chars
               ? (size_t)bnet_utf8_encode(g->chars[cp - DISGUISE], out)
               : 0;
}

static void uncover(const bnet_guard *g, bnet_span written, told *out)
{
    char c[4];
    for (size_t i = 0; i < written.n;) {
        const char *s = written.data + i;
        const char *next = memchr(s, LEAD_BYTE, written.n - i);
        size_t plain = next ? (size_t)(next - s) : written.n - i;
        tell(out, s, plain, false);
        i += plain;
        if (i == written.n)
            break;
        size_t n = undisguised(g, written.data + i, written.n - i, c);
        tell(out, n ? c : written.data + i, n ? n : 1, n > 0);
        i += n ? 4 : 1;
    }
}

/* ---- breaking what a user takes part in ---- */

static size_t mark_at(const bnet_guard *g, const char *s, size_t n)
{
    size_t len = mark_shape(s, n);
    bnet_span key = {s, len};
    if (len == 0)
        return 0;
    for (size_t i = 0; i < g->n_open; i++)
        if (g->open[i].n + 1 < len && memcmp(g->open[i].data, s, g->open[i].n) == 0)
            return len;
    return g->n_marks && bsearch(&key, g->marks, g->n_marks, sizeof key, by_bytes) ? len : 0;
}

/* Copies the token or mark of len bytes at i; where a user's character takes part, no further than
 * a space that breaks it. Returns the bytes copied. */
static size_t copy_broken(const told *from, size_t i, size_t len, told *out)
{
    const char *theirs = memchr(from->theirs.data + i, 1, len);
    int first = bnet_utf8_len(from->text.data + i, from->text.n - i);
    size_t keep = theirs ? (size_t)(theirs - (from->theirs.data + i)) : len;
    if (keep == 0)
        keep = first > 0 ? (size_t)first : 1;
    if (theirs && keep >= len)
        tell(out, NO_CHAR, strlen(NO_CHAR),
             true); /* of one character, which a space cannot break */
    else
        tell_as(out, from, i, keep);
    if (theirs && keep < len)
        tell(out, " ", 1, true);
    return keep;
}

static bool scan(const bnet_guard *g, const told *s, bnet_special_hits *hits)
{
    bnet_scratch scratch = {0};
    bool fine = bnet_special_scan(g->t, s->text.data, s->text.n, true, &scratch, hits);
    bnet_scratch_free(&scratch);
    return fine;
}

/* hits: the last one first. */
static void break_all(const bnet_guard *g, const told *from, const bnet_special_hits *hits,
                      told *out)
{
    size_t k = hits->n;
    for (size_t i = 0; i < from->text.n;) {
        const char *s = from->text.data + i;
        while (k && hits->data[k - 1].at < i)
            k--;
        bool hit = k && hits->data[k - 1].at == i;
        const bnet_special *token = hit ? &g->t->specials.reversed[hits->data[k - 1].which] : NULL;
        size_t len = token ? token->n : mark_at(g, s, from->text.n - i);
        if (token && !guarded(g, token->id)) {
            tell_as(out, from, i, len);
            i += len;
        } else if (len) {
            i += copy_broken(from, i, len, out);
        } else {
            tell_as(out, from, i++, 1);
        }
    }
}

/* Guarded tokens only where no user's character is, and none of the template's hidden in a token
 * that a text makes. */
static bitnet_status verify(const bnet_guard *g, const told *s, const bnet_special_hits *hits,
                            bitnet_error *err)
{
    size_t end = 0;
    bool kept = true; /* the token before is guarded */
    for (size_t k = hits->n; k-- > 0;) {
        size_t at = hits->data[k].at;
        const bnet_special *token = &g->t->specials.reversed[hits->data[k].which];
        bool guards = guarded(g, token->id);
        bool forged = memchr(s->theirs.data + at, 1, token->n) != NULL;
        if (at < end) {
            if (guards && !forged && !kept)
                return bnet_fail(err, BITNET_ARGUMENT,
                                 "a text of the conversation hides the special token %d that the "
                                 "chat template writes",
                                 (int)token->id);
            continue;
        }
        if (guards && forged)
            return bnet_fail(err, BITNET_ARGUMENT,
                             "a text of the conversation would be read as the special token %d of "
                             "this vocabulary",
                             (int)token->id);
        end = at + token->n;
        kept = guards;
    }
    return BITNET_OK;
}

static bool lacking(const told *s)
{
    return s->text.failed || s->theirs.failed;
}

bitnet_status bnet_guard_reveal(const bnet_guard *g, bnet_span written, bnet_str *out,
                                bitnet_error *err)
{
    told plain = {0}, broken = {0};
    bnet_special_hits hits = {0}, again = {0};
    uncover(g, written, &plain);
    bool fine = !lacking(&plain) && scan(g, &plain, &hits);
    if (fine)
        break_all(g, &plain, &hits, &broken);
    fine = fine && !lacking(&broken) && scan(g, &broken, &again);
    bitnet_status status =
        fine ? verify(g, &broken, &again, err) : bnet_no_memory(err, "text of a chat template");
    if (status == BITNET_OK)
        bnet_str_add(out, broken.text.data, broken.text.n);
    if (status == BITNET_OK && out->failed)
        status = bnet_no_memory(err, "text of a chat template");
    bnet_free(hits.data);
    bnet_free(again.data);
    free_told(&plain);
    free_told(&broken);
    return status;
}

void bnet_guard_reveal_message(const bnet_guard *g, char *text)
{
    size_t n = strlen(text), to = 0;
    char c[4];
    for (size_t i = 0; i < n;) {
        size_t len = undisguised(g, text + i, n - i, c);
        if (len)
            memcpy(text + to, c, len);
        else
            text[to] = text[i];
        to += len ? len : 1;
        i += len ? 4 : 1;
    }
    text[to] = '\0';
}
