/* chat_exact.c - is a file's Jinja text one that a built-in form renders to the byte? Only spelling
 * may differ from the list in chat.inc: white space and the kind of quotes inside tags, literals
 * joined by +, a second name for the list of messages. Whatever else differs is another template,
 * though it may mean the same: an unneeded warning is better than a conversation in a form the
 * model never saw. */
#include "text/chat.h"

static const struct {
    const char *name, *text; /* the text behind the head of the loop, in the normal spelling */
} exact[] = {
#define EXACT(name, text) {name, text},
#include "text/chat.inc"
#undef EXACT
};

enum { TEXT_MAX = 1024 }; /* longer than the longest of the list: another template */

typedef struct speller {
    const char *at, *end; /* what is left of the template */
    char out[TEXT_MAX];
    size_t n;
    bool failed; /* too long, or not in the language of the list */
} speller;

static void put(speller *s, char c)
{
    if (s->n + 1 < sizeof s->out)
        s->out[s->n++] = c;
    else
        s->failed = true;
}

static bool ends_with(const speller *s, const char *part)
{
    size_t n = strlen(part);
    return s->n >= n && memcmp(s->out + s->n - n, part, n) == 0;
}

static bool in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* In single quotes, a line break written as \n, joined to the literal before it. One that holds a
 * quote is not in the list. */
static void literal(speller *s)
{
    char quote = *s->at++;
    if (ends_with(s, "'+"))
        s->n -= 2;
    else
        put(s, '\'');
    for (; s->at < s->end && *s->at != quote && !s->failed; s->at++) {
        if (*s->at == '\n')
            put(s, '\\'), put(s, 'n');
        else
            put(s, *s->at);
        s->failed |= *s->at == '\'' || *s->at == '"' || *s->at == '\0';
    }
    s->failed |= s->at == s->end;
    s->at++;
    put(s, '\'');
}

/* From "{%" or "{{" to its end: white space only where it parts two words. */
static void tag(speller *s)
{
    char closing = s->at[1] == '%' ? '%' : '}';
    bool parted = false;
    put(s, *s->at++);
    put(s, *s->at++);
    while (!s->failed) {
        if (s->end - s->at < 2) {
            s->failed = true;
        } else if (s->at[0] == closing && s->at[1] == '}') {
            put(s, *s->at++);
            put(s, *s->at++);
            return;
        } else if (*s->at == '\'' || *s->at == '"') {
            literal(s);
            parted = false;
        } else if (*s->at == ' ' || *s->at == '\n') {
            parted = true;
            s->at++;
        } else {
            if (parted && in_word(*s->at) && in_word(s->out[s->n - 1]))
                put(s, ' ');
            parted = false;
            put(s, *s->at++);
        }
    }
}

/* Text between tags stays as it is; nothing of the list has any. */
static bool spell(speller *s)
{
    while (s->at < s->end && !s->failed) {
        if (s->end - s->at >= 2 && s->at[0] == '{' && (s->at[1] == '%' || s->at[1] == '{'))
            tag(s);
        else
            put(s, *s->at++);
    }
    s->out[s->n] = '\0';
    return !s->failed && memchr(s->out, '\0', s->n) == NULL;
}

/* What follows the head of the loop over the messages; NULL: there is none. */
static const char *behind_head(const char *text)
{
    static const char *const heads[] = {
        "{%for message in messages%}",
        "{%set loop_messages=messages%}{%for message in loop_messages%}",
    };
    for (size_t i = 0; i < BNET_COUNT(heads); i++)
        if (strncmp(text, heads[i], strlen(heads[i])) == 0)
            return text + strlen(heads[i]);
    return NULL;
}

const bnet_chat_template *bnet_chat_exact(bnet_span text)
{
    speller s = {.at = text.data, .end = text.data + text.n};
    const char *rest = spell(&s) ? behind_head(s.out) : NULL;
    for (size_t i = 0; rest && i < BNET_COUNT(exact); i++)
        if (strcmp(rest, exact[i].text) == 0)
            return bnet_chat_by_name(exact[i].name);
    return NULL;
}
