/* detok.c - ids to text as they come. Invariant: what is held is a valid beginning of one UTF-8
 * character. */
#include "text/vocab.h"

void bnet_detok_init(bnet_detok *d, const bnet_tokenizer *t, bool special, bool at_start)
{
    *d = (bnet_detok){.t = t, .special = special, .at_start = at_start};
}

/* Length of the longest beginning of s that holds no unfinished character. */
static size_t finished(const char *s, size_t n)
{
    for (size_t i = n, back = 0; i-- > 0 && back < 3; back++)
        if ((unsigned char)s[i] >= 0xc0) /* a lead byte near the end: is its character all there? */
            return bnet_utf8_len(s + i, n - i) < 0 ? i : n;
    return n;
}

/* Adds bytes behind the held ones, one at a time, until no character is open or the bytes are used
 * up. Returns how many it took. */
static size_t close_held(bnet_detok *d, const char *s, size_t n, bnet_str *out)
{
    size_t i = 0;
    while (d->n_held && i < n) {
        d->held[d->n_held] = s[i];
        int len = bnet_utf8_len(d->held, d->n_held + 1);
        if (len == 0) { /* s[i] does not belong to it: the held bytes stay what they are */
            bnet_str_add(out, d->held, d->n_held);
            d->n_held = 0;
            break;
        }
        i++;
        d->n_held++;
        if (len > 0) {
            bnet_str_add(out, d->held, d->n_held);
            d->n_held = 0;
        }
    }
    return i;
}

static void push_bytes(bnet_detok *d, const char *s, size_t n, bnet_str *out)
{
    size_t taken = close_held(d, s, n, out);
    s += taken;
    n -= taken;
    if (n == 0)
        return;
    size_t whole = finished(s, n);
    bnet_str_add(out, s, whole);
    d->n_held = n - whole;
    memcpy(d->held, s + whole, d->n_held);
}

void bnet_detok_push(bnet_detok *d, int32_t id, bnet_str *out)
{
    size_t n;
    const char *s = bnet_token_bytes(d->t, id, &n);
    if (!s || (bnet_token_special(d->t, id) && !d->special))
        return;
    bnet_token_type type = bnet_type_of(d->t, (size_t)id);
    if (bnet_type_special(type) || type == BNET_TOKEN_USER) {
        push_bytes(d, s, n, out);
        d->at_start = true; /* tokenizing put a space in front of what follows */
        return;
    }
    bool strip = d->at_start && d->t->spm && d->t->space_prefix && n && s[0] == ' ';
    push_bytes(d, s + strip, n - strip, out);
    if (n)
        d->at_start = false;
}

void bnet_detok_finish(bnet_detok *d, bnet_str *out)
{
    bnet_str_add(out, d->held, d->n_held);
    d->n_held = 0;
}
