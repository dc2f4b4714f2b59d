/* chat.c - rendering conversations from the list in chat.inc, so that only the template speaks in
 * special tokens.
 *
 * Invariant of a rendered text: scanned as the tokenizer scans it, every special token lies in what
 * the template wrote, and every one the template wrote is found. Message texts are altered to make
 * it so (see chat.h), and the finished text is scanned once more: a vocabulary odd enough to defeat
 * the alteration is refused, not trusted. */
#include "text/chat.h"

#include "text/vocab.h"

enum { FLAG_BOS = 1, FLAG_TRIM = 2, FLAG_OWN = 4 };
enum { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, N_ROLES };

struct bnet_chat_template {
    const char *name;
    unsigned flags;
    const char *around[N_ROLES][2]; /* what stands before and behind a message of each role */
    const char *reply;
};

static const bnet_chat_template templates[] = {
#define TEMPLATE(name, flags, sh, st, uh, ut, ah, at, reply)                                       \
    {name, flags, {{sh, st}, {uh, ut}, {ah, at}}, reply},
#include "text/chat.inc"
#undef TEMPLATE
};

static const struct {
    const char *name, *marks[3];
} template_marks[] = {
#define MARK(name, a, b, c) {name, {a, b, c}},
#include "text/chat.inc"
#undef MARK
};

static const struct {
    const char *name, *arch, *tokens[2];
} template_tokens[] = {
#define TOKENS(name, arch, a, b) {name, arch, {a, b}},
#include "text/chat.inc"
#undef TOKENS
};

/* ---- choosing ---- */

const bnet_chat_template *bnet_chat_at(int i)
{
    return i >= 0 && (size_t)i < BNET_COUNT(templates) ? &templates[i] : NULL;
}

const char *bnet_chat_name(const bnet_chat_template *c)
{
    return c->name;
}

const bnet_chat_template *bnet_chat_by_name(const char *name)
{
    for (size_t i = 0; i < BNET_COUNT(templates); i++)
        if (strcmp(templates[i].name, name) == 0)
            return &templates[i];
    return NULL;
}

bool bnet_chat_is_own(const bnet_chat_template *c)
{
    return (c->flags & FLAG_OWN) != 0;
}

const bnet_chat_own *bnet_chat_own_of(const bnet_tokenizer *t)
{
    return t->own;
}

bitnet_status bnet_chat_own_check(const bnet_tokenizer *t, bitnet_error *err)
{
    if (!t->own)
        return bnet_fail(err, BITNET_TOKENIZER, "the file has no chat template of its own");
    if (!t->own->usable)
        return bnet_fail(err, BITNET_TOKENIZER,
                         "the file's own chat template cannot be rendered: %s", t->own->problem);
    return BITNET_OK;
}

static bool contains(bnet_span text, const char *part)
{
    return memmem(text.data, text.n, part, strlen(part)) != NULL;
}

static const bnet_chat_template *by_marks(bnet_span text)
{
    for (size_t i = 0; i < BNET_COUNT(template_marks); i++) {
        const char *const *m = template_marks[i].marks;
        if (contains(text, m[0]) && contains(text, m[1]) && contains(text, m[2]))
            return bnet_chat_by_name(template_marks[i].name);
    }
    return NULL;
}

static const bnet_chat_template *by_tokens(bnet_span arch, const bnet_tokenizer *t)
{
    for (size_t i = 0; i < BNET_COUNT(template_tokens); i++) {
        const char *wanted = template_tokens[i].arch;
        const char *const *names = template_tokens[i].tokens;
        if (arch.n < strlen(wanted) || memcmp(arch.data, wanted, strlen(wanted)) != 0)
            continue;
        if (bnet_special_find(t, names[0], strlen(names[0])) >= 0 &&
            bnet_special_find(t, names[1], strlen(names[1])) >= 0)
            return bnet_chat_by_name(template_tokens[i].name);
    }
    return NULL;
}

const bnet_chat_template *bnet_chat_detect(const bnet_gguf *g, const bnet_tokenizer *t,
                                           bitnet_template_match *match)
{
    bnet_span text = {"", 0}, arch = {"", 0};
    /* A key of the wrong type is a file without a template: the text stays empty. */
    bnet_gguf_string(g, "tokenizer.chat_template", &text, NULL, NULL);
    const bnet_chat_template *c = bnet_chat_exact(text);
    if (!c && t->own && t->own->usable)
        c = bnet_chat_by_name("file");
    *match = c ? BITNET_TEMPLATE_EXACT : text.n ? BITNET_TEMPLATE_GUESSED : BITNET_TEMPLATE_ABSENT;
    if (!c)
        c = by_marks(text);
    if (!c && bnet_gguf_string(g, "general.architecture", &arch, NULL, NULL) == BITNET_OK)
        c = by_tokens(arch, t);
    return c;
}

/* ---- rendering ---- */

typedef struct part {
    size_t begin, end; /* bytes of the output that messages wrote */
    size_t message;
} part;

typedef struct renderer {
    const bnet_chat_template *c;
    const bnet_tokenizer *t;
    bnet_str *out;
    bnet_str pending; /* message text not yet defused: grows while the template writes nothing
                         between messages */
    size_t message;   /* the one pending came from */
    part *parts;
    size_t n_parts, cap_parts;
    size_t n_specials; /* guarded tokens in what the template wrote */
    bool failed;       /* no memory */
} renderer;

/* Is this token one that separates turns? Control tokens are; of the user-defined ones
 * (which a text may contain rightfully) those that end a reply or that the template itself writes.
 */
static bool guarded(const renderer *r, int32_t id)
{
    if (bnet_token_special(r->t, id) || bnet_token_stops(r->t, id))
        return true;
    bnet_span name = {.data = NULL};
    name.data = bnet_token_bytes(r->t, id, &name.n);
    for (int role = 0; role < N_ROLES; role++)
        for (int side = 0; side < 2; side++) {
            const char *text = r->c->around[role][side];
            if (memmem(text, strlen(text), name.data, name.n))
                return true;
        }
    return memmem(r->c->reply, strlen(r->c->reply), name.data, name.n) != NULL;
}

static size_t count_guarded(const renderer *r, const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0, len; i < n; i += len ? len : 1) {
        int32_t id;
        len = bnet_special_match(r->t, s + i, n - i, true, &id);
        count += len && guarded(r, id);
    }
    return count;
}

/* How long the mark ("<|eot_id|>") at s is, if the text of a template has the same one; else 0. */
static size_t mark_in(const char *text, const char *s, size_t n)
{
    enum { LONGEST = 32 };
    bool begins = n > 2 && s[0] == '<' && s[1] == '|';
    const char *end = begins ? memmem(s, BNET_MIN(n, (size_t)LONGEST), "|>", 2) : NULL;
    size_t len = end ? (size_t)(end - s) + 2 : 0;
    return len && memmem(text, strlen(text), s, len) ? len : 0;
}

/* How long the beginning of a turn at s is that is written in plain words ("Q:"), in a template
 * without marks; else 0. s begins a line. */
static size_t words_in(const char *text, const char *s, size_t n)
{
    size_t len = strcspn(text, " ");
    return len && !strstr(text, "<|") && n >= len && memcmp(s, text, len) == 0 ? len : 0;
}

/* How long what the template separates turns with is at s, whether or not the vocabulary has tokens
 * for it; 0: it is something else. */
static size_t turn_at(const renderer *r, const char *s, size_t n)
{
    size_t len = mark_in(r->c->reply, s, n);
    bool begins_line = r->out->n == 0 || r->out->data[r->out->n - 1] == '\n';
    for (int role = 0; role < N_ROLES && len == 0; role++) {
        const char *const *around = r->c->around[role];
        len = mark_in(around[0], s, n);
        if (len == 0)
            len = mark_in(around[1], s, n);
        if (len == 0 && begins_line && !strstr(around[1], "<|"))
            len = words_in(around[0], s, n);
    }
    return len;
}

/* Writes the pending text with a space after the first character of every guarded token in it, and
 * of everything else the template separates turns with. A token of one character cannot be broken;
 * U+FFFD takes its place. */
static void flush(renderer *r)
{
    const char *s = r->pending.data;
    size_t n = r->pending.n, begin = r->out->n;
    for (size_t i = 0, step; i < n; i += step) {
        int32_t id;
        size_t len = bnet_special_match(r->t, s + i, n - i, true, &id);
        int first = bnet_utf8_len(s + i, n - i);
        step = first > 0 ? (size_t)first : 1;
        bool whole = len && !guarded(r, id);
        if (len == 0)
            len = turn_at(r, s + i, n - i);
        if (whole)
            step = len;
        if (len && len <= step && !whole)
            bnet_str_puts(r->out, "\xef\xbf\xbd");
        else
            bnet_str_add(r->out, s + i, step);
        if (len > step)
            bnet_str_putc(r->out, ' ');
    }
    r->pending.n = 0;
    if (r->out->n == begin)
        return;
    if (!bnet_grow(&r->parts, &r->cap_parts, r->n_parts + 1, sizeof *r->parts)) {
        r->failed = true;
        return;
    }
    r->parts[r->n_parts++] = (part){begin, r->out->n, r->message};
}

static void write_template(renderer *r, const char *s, size_t n)
{
    if (n == 0)
        return;
    flush(r);
    bnet_str_add(r->out, s, n);
    r->n_specials += count_guarded(r, s, n);
}

static bool is_space(uint32_t cp)
{
    return (cp >= 0x9 && cp <= 0xd) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

static bnet_span trim(bnet_span s)
{
    for (int len;
         (len = bnet_utf8_len(s.data, s.n)) > 0 && is_space(bnet_utf8_decode(s.data, len));) {
        s.data += len;
        s.n -= (size_t)len;
    }
    for (size_t back = 1; back <= 3 && back <= s.n;) { /* white space has at most three bytes */
        const char *last = s.data + s.n - back;
        if (bnet_utf8_len(last, back) != (int)back) {
            back++;
        } else if (is_space(bnet_utf8_decode(last, (int)back))) {
            s.n -= back;
            back = 1;
        } else {
            break;
        }
    }
    return s;
}

static int find_role(const char *role)
{
    static const char *const names[N_ROLES] = {"system", "user", "assistant"};
    for (int i = 0; role && i < N_ROLES; i++)
        if (strcmp(role, names[i]) == 0)
            return i;
    return -1;
}

static bitnet_status check_messages(const bitnet_message *messages, size_t n, bitnet_error *err)
{
    char text[64];
    for (size_t i = 0; i < n; i++) {
        const char *role = messages[i].role;
        if (find_role(role) < 0)
            return bnet_fail(err, BITNET_ARGUMENT,
                             "message %zu: role \"%s\" is not system, user or assistant", i,
                             role ? bnet_quote(role, strlen(role), text, sizeof text) : "(null)");
        if (!messages[i].text)
            return bnet_fail(err, BITNET_ARGUMENT, "message %zu (%s) has no text", i, role);
    }
    return BITNET_OK;
}

static void write_message(renderer *r, const bitnet_message *m, size_t i)
{
    const char *const *around = r->c->around[find_role(m->role)];
    bnet_span text = {m->text, strlen(m->text)};
    if (r->c->flags & FLAG_TRIM)
        text = trim(text);
    if (i == 0 && (r->c->flags & FLAG_BOS) && bnet_tokenizer_bos(r->t) >= 0) {
        size_t n;
        const char *bos = bnet_token_bytes(r->t, bnet_tokenizer_bos(r->t), &n);
        write_template(r, bos, n);
    }
    write_template(r, around[0], strlen(around[0]));
    bnet_str_add(&r->pending, text.data, text.n);
    r->message = i;
    write_template(r, around[1], strlen(around[1]));
}

/* The invariant, checked on out[begin..]: guarded tokens only where the template wrote, and all of
 * those. */
static bitnet_status verify(const renderer *r, size_t begin, bitnet_error *err)
{
    const char *s = r->out->data;
    size_t n_found = 0, p = 0;
    for (size_t i = begin, len; i < r->out->n; i += len ? len : 1) {
        int32_t id;
        len = bnet_special_match(r->t, s + i, r->out->n - i, true, &id);
        if (!len || !guarded(r, id))
            continue;
        while (p < r->n_parts && r->parts[p].end <= i)
            p++;
        if (p < r->n_parts && r->parts[p].begin < i + len)
            return bnet_fail(err, BITNET_ARGUMENT,
                             "message %zu: its text would be read as the special token %d of this "
                             "vocabulary",
                             r->parts[p].message, (int)id);
        n_found++;
    }
    if (n_found != r->n_specials)
        return bnet_fail(err, BITNET_ARGUMENT,
                         "a message hides %zu of the %zu special tokens that template %s writes",
                         r->n_specials - n_found, r->n_specials, r->c->name);
    return BITNET_OK;
}

bitnet_status bnet_chat_render(const bnet_chat_template *c, const bnet_tokenizer *t,
                               const bitnet_message *messages, size_t n, bool reply, bnet_str *out,
                               bitnet_error *err)
{
    renderer r = {.c = c, .t = t, .out = out};
    size_t begin = out->n;
    bitnet_status status = check_messages(messages, n, err);
    if (status == BITNET_OK && bnet_chat_is_own(c))
        status = bnet_chat_own_check(t, err);
    if (status != BITNET_OK)
        return status;
    if (bnet_chat_is_own(c))
        return bnet_chat_own_talk(t->own, messages, n, reply, out, err);
    for (size_t i = 0; i < n; i++)
        write_message(&r, &messages[i], i);
    if (reply)
        write_template(&r, c->reply, strlen(c->reply));
    flush(&r);
    if (out->failed || r.pending.failed || r.failed)
        status = bnet_no_memory(err, "chat text");
    else
        status = verify(&r, begin, err);
    if (status != BITNET_OK && out->data)
        out->data[out->n = begin] = '\0';
    bnet_str_free(&r.pending);
    bnet_free(r.parts);
    return status;
}
