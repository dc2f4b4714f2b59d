/* anthropic_blocks.h - blocks of Anthropic's messages as parts, a list of {"type": "text", "text"}.
 * What returns false has told the client why. */
#ifndef SRV_ANTHROPIC_BLOCKS_H
#define SRV_ANTHROPIC_BLOCKS_H

#include "http/exchange.h"

/* "": it has none. */
const char *srv_block_type(const json_t *block);
/* Appends a text. */
bool srv_block_add(srv_exchange *x, json_t *parts, json_t *text);
/* A block of this type is not read where it stands; returns false. */
bool srv_block_refuse(srv_exchange *x, const char *where, const char *type);
/* Appends a text, or those of a list of text blocks. */
bool srv_block_texts(srv_exchange *x, json_t *content, const char *where, json_t *parts);
/* Parts without any get an empty one. */
bool srv_block_or_empty(srv_exchange *x, json_t *parts);
/* Appends what a tool_result says, after "Error:" where it is one. */
bool srv_block_result(srv_exchange *x, json_t *block, const char *where, json_t *parts);

#endif
