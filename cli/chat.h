/* chat.h - the parts of `bitnet chat`: a conversation, a reader of lines, slash commands. */
#ifndef BITNET_CLI_CHAT_H
#define BITNET_CLI_CHAT_H

#include "events.h"

/* ---- conversation.c: who said what ---- */

typedef struct turn_text {
    const char *role; /* "user" or "assistant", static */
    char *text;
} turn_text;

typedef struct conversation {
    char *system; /* NULL: none */
    turn_text *turns;
    size_t n, cap;
} conversation;

void conversation_add(conversation *c, const char *role, const char *bytes);
void conversation_pop(conversation *c);
void conversation_clear(conversation *c); /* the system message stays */
void conversation_free(conversation *c);
/* Forgets the oldest question and what follows it up to the next one; false if only the newest is
 * left. */
bool conversation_drop_oldest(conversation *c);
size_t conversation_exchanges(const conversation *c); /* how many messages of the user there are */
int conversation_render(const conversation *c, const loaded *m, const char *template_name,
                        buffer *out);
int conversation_save(const conversation *c, const char *model, const char *path);
int conversation_load(conversation *c, const char *path); /* on failure c is unchanged */

/* ---- line.c: a line from the terminal (libedit) or a pipe ---- */

typedef enum line_result { LINE_OK, LINE_END, LINE_INTERRUPTED, LINE_FAILED } line_result;
typedef struct line_reader line_reader;

line_reader *
line_open(const char *history_path); /* NULL path: history lasts as long as the session */
void line_close(line_reader *r);
bool line_interactive(const line_reader *r); /* a person sits there: prompts are shown */
line_result line_read(line_reader *r, const char *prompt, buffer *out);

/* ---- cmd_chat.c ---- */

typedef struct chat_state {
    const args *args;
    loaded m;
    bitnet_sampler *sampler;
    uint64_t seed;
    const char *template_name; /* NULL: the file's */
    conversation talk;
    line_reader *lines;
    bool interactive;
    stop_list stops;
    bitnet_generate_options options;
    /* of the reply being made */
    buffer made;  /* as the model made it */
    buffer shown; /* without the white space it begins with */
    id_list ids;
    reply_events events;
    /* totals for /metrics */
    size_t n_replies, n_prompt, n_computed, n_generated, n_dropped;
    double prefill_ms, decode_ms, first_token_ms;
    bitnet_receipt *receipt; /* NULL: not wanted */
    bitnet_generate_result last;
} chat_state;

/* ---- chat_commands.c ---- */

/* Obeys a line that begins with a slash. *leave: the user wants to go. */
void chat_command(chat_state *s, const char *line, bool *leave);
void chat_metrics(const chat_state *s);

#endif
