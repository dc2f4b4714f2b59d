/* chat_values.h - the variables of a file's own chat template, written as JSON: whatever a user
 * gave is in disguise (chat_guard.h), with the names that transformers gives them. */
#ifndef BNET_CHAT_VALUES_H
#define BNET_CHAT_VALUES_H

#include <jansson.h>

#include "text/chat_own.h"

typedef struct bnet_values {
    const bnet_chat_own *own;
    bnet_str text;    /* what is written so far */
    bnet_str scratch; /* one text in disguise */
} bnet_values;        /* zero but for own; close it */

void bnet_values_close(bnet_values *v);
/* Behind whatever begins, and before the next member or element of it. */
void bnet_values_comma(bnet_values *v);
void bnet_values_text(bnet_values *v, bnet_span text, bnet_guard_kind kind);
void bnet_values_name(bnet_values *v, const char *name); /* of a member, ours */
/* A tree of the user's; texts and keys in disguise. */
void bnet_values_tree(bnet_values *v, const json_t *tree);
/* The content of a message, in the form that the template wants. */
void bnet_values_content(bnet_values *v, bnet_span text, bnet_guard_kind kind);
/* Behind the messages: tools and documents (NULL: none), the tokens' names. */
void bnet_values_rest(bnet_values *v, const json_t *tools, const json_t *documents, bool reply);

#endif
