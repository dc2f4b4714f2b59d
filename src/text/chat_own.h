/* chat_own.h - the chat template a file brings along (tokenizer.chat_template): a Jinja program,
 * rendered by src/jinja, that sees texts of users in disguise only (chat_guard.h). */
#ifndef BNET_CHAT_OWN_H
#define BNET_CHAT_OWN_H

#include "text/chat_guard.h"

typedef struct bnet_chat_own {
    const bnet_tokenizer *t;
    bnet_span source;
    bnet_guard guard;
    bool usable;       /* it rendered a question when it was opened, or refused one in its words */
    char problem[200]; /* why it is not */
    bool typed;        /* it wants contents as lists of {"type": "text", "text": ...} */
    bool tools, thinking;
    bool text_arguments; /* it wants the arguments of calls as the text of an object */
    bool null_content;   /* it shows calls only of a message whose content is none */
    bitnet_tool_style style;
} bnet_chat_own;

/* `source` must stay as long as *out. An empty one gives NULL; one that cannot be rendered gives an
 * object that is not usable. Fails: MEMORY. */
bitnet_status bnet_chat_own_open(const bnet_tokenizer *t, bnet_span source, bnet_chat_own **out,
                                 bitnet_error *err);
void bnet_chat_own_close(bnet_chat_own *o); /* NULL: nothing */
/* Appends what it writes for these values, a JSON object whose texts of users are in disguise.
 * Fails: ARGUMENT (the template refuses the values, in its own words; a text that cannot be told
 * from a special token), TOKENIZER (what the template does is not supported, or reached a bound),
 * MEMORY; *out is as before then. */
bitnet_status bnet_chat_own_render(const bnet_chat_own *o, bnet_span values, bnet_str *out,
                                   bitnet_error *err);

#endif
