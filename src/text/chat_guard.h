/* chat_guard.h - a message cannot speak for the template that the file brought along.
 *
 * Such a template is a program: nothing tells which bytes of what it wrote are its own. So the
 * characters with which special tokens and marks of this vocabulary and this template begin and end
 * ('<', '>', '[', ']' and whatever else the tokens have) are replaced in every text that a user
 * gave before the template sees it, one character for one, by characters of a private range: they
 * travel through it in disguise. What it has written is then read once: a character in disguise was
 * a user's, wherever the template put it and whatever it joined it with; the others are the
 * template's. Tokens and marks in which a user's character takes part are broken by a space.
 *
 * Letters have no disguise: where a template puts a user's word between brackets of its own, as in
 * '<|' + name + '|>', it vouches for the word. Roles are a closed list for that reason. */
#ifndef BNET_CHAT_GUARD_H
#define BNET_CHAT_GUARD_H

#include "text/tokenizer.h"

enum { BNET_GUARD_CHARS = 64, BNET_GUARD_OPEN = 32 };

typedef struct bnet_guard {
    const bnet_tokenizer *t;
    int32_t *users; /* user-defined tokens that the template writes, ascending */
    size_t n_users, cap_users;
    bnet_span *marks; /* "<tool_call>", "[INST]" as the template spells them, sorted */
    size_t n_marks, cap_marks;
    bnet_span open[BNET_GUARD_OPEN]; /* "<|" of '<|' + role + '|>': any mark that begins so */
    size_t n_open;
    uint32_t chars[BNET_GUARD_CHARS]; /* those that travel in disguise */
    size_t n_chars;
    bool stubborn;   /* tokens begin with a letter or white space, which cannot */
    bool thought[2]; /* "<think>" and "</think>" are marks, and no control tokens */
} bnet_guard;

typedef enum bnet_guard_kind {
    BNET_GUARD_TEXT,
    BNET_GUARD_REPLY, /* what the model said: marks of its thoughts stay marks */
    BNET_GUARD_KEY,   /* of an object: a template must find those it asks for */
} bnet_guard_kind;

/* For a template whose text is `source`, which must stay. Fails MEMORY; close it then too. */
bitnet_status bnet_guard_open(bnet_guard *g, const bnet_tokenizer *t, bnet_span source,
                              bitnet_error *err);
void bnet_guard_close(bnet_guard *g);

/* Appends a user's text in disguise. Bytes that are no UTF-8, and characters of the private range,
 * become U+FFFD. No memory: out->failed. */
void bnet_guard_disguise(const bnet_guard *g, bnet_span text, bnet_guard_kind kind, bnet_str *out);
/* Appends what the template wrote without disguise, so that tokenizing it with BITNET_TEXT_SPECIAL
 * finds guarded tokens where the template wrote them and nowhere else. Guarded are control and stop
 * tokens, and user-defined ones beginning with '<' or '[' that the template's text has. Fails:
 * ARGUMENT for a vocabulary whose tokens cannot be broken by a space, MEMORY; *out is as before
 * then. */
bitnet_status bnet_guard_reveal(const bnet_guard *g, bnet_span written, bnet_str *out,
                                bitnet_error *err);
/* The same for a message about a failure: characters only. */
void bnet_guard_reveal_message(const bnet_guard *g, char *text);

#endif
