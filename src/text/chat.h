/* chat.h - conversations rendered as the model was trained to see them. Templates are a closed list (chat.inc), never
 * executed from the file: the file's Jinja text only chooses the row, by marks it contains. */
#ifndef BNET_CHAT_H
#define BNET_CHAT_H

#include "text/tokenizer.h"

typedef struct bnet_chat_template bnet_chat_template;

/* The row for a file: from tokenizer.chat_template by its marks, else from the vocabulary's special tokens and the
 * architecture, else NULL (the file has none we know). */
const bnet_chat_template *bnet_chat_detect(const bnet_gguf *g, const bnet_tokenizer *t);
const bnet_chat_template *bnet_chat_by_name(const char *name); /* NULL: unknown */
const bnet_chat_template *bnet_chat_at(int i);                 /* NULL past the end */
const char *bnet_chat_name(const bnet_chat_template *c);

/* Renders into *out. Special-token texts inside message texts are defused (a zero-width joiner-free way: the tokenizer's
 * special names found in user text get a space after their first character) so that a user cannot forge a turn.
 * Fails ARGUMENT naming the role. */
bitnet_status bnet_chat_render(const bnet_chat_template *c, const bnet_tokenizer *t, const bitnet_message *messages,
                               size_t n, bool reply, bnet_str *out, bitnet_error *err);

#endif
