/* anthropic_blocks.c - what messages are made of: blocks of text, and what clients put into results
 * of tools. */
#include "anthropic/anthropic_blocks.h"

#include <string.h>

#include "ask/fields.h"
#include "http/refuse.h"

const char *srv_block_type(const json_t *block)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    return type ? type : "";
}

/* ---- content ---- */

/* Appends {"type": "text", "text": ...}. */
bool srv_block_add(srv_exchange *x, json_t *parts, json_t *text)
{
    return json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text)) == 0
               ? true
               : srv_no_memory(x);
}

bool srv_block_refuse(srv_exchange *x, const char *where, const char *type)
{
    srv_fail(x, 400, "invalid_value", where,
             "%s: blocks of type '%.40s' are not supported; this server reads text, tool_use, "
             "tool_result and thinking",
             where, type);
    return false;
}

/* A text, or a list of text blocks, as parts. */
bool srv_block_texts(srv_exchange *x, json_t *content, const char *where, json_t *parts)
{
    size_t i;
    json_t *block;
    if (json_is_string(content))
        return srv_block_add(x, parts, content);
    if (!json_is_array(content))
        return srv_field_wrong(x, where, "a text or a list of content blocks");
    json_array_foreach(content, i, block)
    {
        json_t *text = json_object_get(block, "text");
        if (strcmp(srv_block_type(block), "text") != 0)
            return srv_block_refuse(x, where, srv_block_type(block));
        if (!json_is_string(text))
            return srv_missing(x, "text");
        if (!srv_block_add(x, parts, text))
            return false;
    }
    return true;
}

/* A message without any text has an empty one. */
bool srv_block_or_empty(srv_exchange *x, json_t *parts)
{
    json_t *empty = json_array_size(parts) ? NULL : json_string("");
    bool ok = json_array_size(parts) || (empty ? srv_block_add(x, parts, empty) : srv_no_memory(x));
    json_decref(empty);
    return ok;
}

/* ---- results of tools ---- */

/* What a block of another type says that clients put into results: text, the name of a tool that
 * was found, or that there was a picture. NULL: nothing that can be read. A refused result would
 * end the conversation, which has it in every request that follows. */
static json_t *words_of(const json_t *block)
{
    const char *type = srv_block_type(block);
    json_t *source = json_object_get(block, "source"), *name = json_object_get(block, "tool_name");
    json_t *data = json_object_get(source, "data");
    if (strcmp(type, "image") == 0)
        return json_string("[an image, which this model cannot see]");
    if (strcmp(type, "tool_reference") == 0 && json_is_string(name))
        return json_incref(name);
    if (strcmp(type, "document") == 0 && strcmp(srv_block_type(source), "text") == 0)
        return json_is_string(data) ? json_incref(data) : NULL;
    return NULL;
}

static bool read_result_block(srv_exchange *x, json_t *block, const char *where, json_t *parts)
{
    json_t *words = words_of(block), *alone = NULL;
    json_t *title = json_object_get(block, "title"), *inner = json_object_get(block, "content");
    bool ok;
    if (words)
        ok = srv_block_add(x, parts, words);
    else if (strcmp(srv_block_type(block), "search_result") == 0 && inner)
        ok = (!json_is_string(title) || srv_block_add(x, parts, title)) &&
             srv_block_texts(x, inner, where, parts);
    else
        ok = (alone = json_pack("[O]", block)) ? srv_block_texts(x, alone, where, parts)
                                               : srv_no_memory(x);
    json_decref(words);
    json_decref(alone);
    return ok;
}

/* That a tool failed stands before what it says of that. */
bool srv_block_result(srv_exchange *x, json_t *block, const char *where, json_t *parts)
{
    json_t *content = srv_field(block, "content"), *one, *mark = NULL;
    bool failed = json_is_true(json_object_get(block, "is_error")), ok = true;
    size_t i;
    if (failed)
        ok = (mark = json_string("Error:")) ? srv_block_add(x, parts, mark) : srv_no_memory(x);
    json_decref(mark);
    if (!ok || !content)
        return ok;
    if (!json_is_array(content))
        return srv_block_texts(x, content, where, parts);
    json_array_foreach(content, i, one)
    {
        ok = ok && read_result_block(x, one, where, parts);
    }
    return ok;
}
