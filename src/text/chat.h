/* chat.h - conversations rendered as the model was trained to see them: by one of the forms in
 * chat.inc where the file's Jinja text is one of those we know to the byte; else by that text
 * itself
 * ("file", chat_own.h); and where it cannot be rendered, by the form whose marks it contains. */
#ifndef BNET_CHAT_H
#define BNET_CHAT_H

#include "text/chat_own.h"

typedef struct bnet_chat_template bnet_chat_template;

/* The row for a file: that of its tokenizer.chat_template if one renders it exactly, else "file" if
 * the template can be rendered, else by its marks, else from the vocabulary's special tokens and
 * the architecture, else NULL (the file has none we know). *match tells how sure that is. */
const bnet_chat_template *bnet_chat_detect(const bnet_gguf *g, const bnet_tokenizer *t,
                                           bitnet_template_match *match);
/* The row that renders this Jinja text to the byte; NULL: none is known to. */
const bnet_chat_template *bnet_chat_exact(bnet_span text);
const bnet_chat_template *bnet_chat_by_name(const char *name); /* NULL: unknown */
const bnet_chat_template *bnet_chat_at(int i);                 /* NULL past the end */
const char *bnet_chat_name(const bnet_chat_template *c);
bool bnet_chat_is_own(const bnet_chat_template *c); /* the row "file" */
/* The file's own template; NULL: it has none. */
const bnet_chat_own *bnet_chat_own_of(const bnet_tokenizer *t);
/* Fails TOKENIZER if the row "file" renders nothing for this tokenizer, saying why. */
bitnet_status bnet_chat_own_check(const bnet_tokenizer *t, bitnet_error *err);

/* Appends the conversation to *out. Only the template speaks in special tokens: tokenizing the
 * result with BITNET_TEXT_SPECIAL gives control tokens, and user-defined ones that end a reply or
 * that the template writes, only where the template put them. To that end such a token's name
 * inside a message text gets a space after its first character ("<|eot_id|>" becomes "< |eot_id|>";
 * a name of one character becomes U+FFFD), names spread over adjacent messages included; so do the
 * template's own marks where the vocabulary has no tokens for them, and at the beginning of a line
 * the words with which a template without marks begins a turn ("Q:" of instruct). Words that follow
 * a mark ("User: ") a message may imitate: without the mark they begin no turn. Fails ARGUMENT
 * naming the message and the role, also for a vocabulary whose tokens cannot be broken that way.
 * The row "file" guards what chat_guard.h says, and fails as bnet_chat_own_render does. */
bitnet_status bnet_chat_render(const bnet_chat_template *c, const bnet_tokenizer *t,
                               const bitnet_message *messages, size_t n, bool reply, bnet_str *out,
                               bitnet_error *err);
/* The same from a JSON object (bitnet_chat_render_json says which). Fails ARGUMENT too for what the
 * object or the row does not have. */
bitnet_status bnet_chat_render_json(const bnet_chat_template *c, const bnet_tokenizer *t,
                                    bnet_span request, bnet_str *out, bitnet_error *err);
/* A conversation of checked messages by a usable template of a file (chat_request.c). */
bitnet_status bnet_chat_own_talk(const bnet_chat_own *o, const bitnet_message *messages, size_t n,
                                 bool reply, bnet_str *out, bitnet_error *err);

#endif
