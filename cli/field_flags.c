/* field_flags.c - the library names the fields of its interface; who typed --ctx reads --ctx. */
#include "cli.h"

static const struct {
    const char *field, *flag;
} pairs[] = {
    {"n_ctx", "--ctx"},
    {"n_batch", "--batch"},
    {"kv_type", "--kv"},
    {"max_bytes", "--kv-pool"},
    {"n_threads", "--threads"},
    {"isa", "--isa"},
    {"public_key", "--public-key"},
};

/* The field that the word of n bytes names, as a flag; NULL: it names none. */
static const char *flag_of(const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strlen(pairs[i].field) == n && memcmp(pairs[i].field, word, n) == 0)
            return pairs[i].flag;
    return NULL;
}

const char *in_flags(const char *message, char *out, size_t cap)
{
    size_t n = 0;
    for (const char *p = message; *p;) {
        size_t blanks = strspn(p, " "), word = strcspn(p + blanks, " ,;:");
        word += word == 0 && p[blanks];
        bool subject = p == message && p[blanks + word] == ':'; /* of the message: a file's name */
        const char *flag = subject ? NULL : flag_of(p + blanks, word);
        int k = snprintf(out + n, cap - n, "%.*s%.*s", (int)blanks, p,
                         flag ? (int)strlen(flag) : (int)word, flag ? flag : p + blanks);
        if (k < 0 || (size_t)k >= cap - n)
            return message;
        n += (size_t)k;
        p += blanks + word;
    }
    return n ? out : message;
}
