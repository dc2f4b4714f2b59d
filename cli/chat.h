/* chat.h - the parts of `bitnet chat`: a conversation, a reader of lines, replies, slash commands.
 */
#ifndef BITNET_CLI_CHAT_H
#define BITNET_CLI_CHAT_H

#include "terminal.h"

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
/* An exchange is a question and what follows it up to the next one. How many can be dropped: all
 * but the newest. */
size_t conversation_droppable(const conversation *c);
/* What is left without the oldest exchanges, of those that can be dropped; the texts are c's. */
conversation conversation_tail(const conversation *c, size_t n_exchanges);
void conversation_forget(conversation *c, size_t n_exchanges); /* the oldest */
/* Removes the newest question and what follows it, and returns them; empty: there is none. */
conversation conversation_take_newest(conversation *c);
const char *conversation_question(const conversation *c); /* the newest; NULL: none */
int conversation_render(const conversation *c, const loaded *m, const char *template_name,
                        buffer *out);
int conversation_save(const conversation *c, const char *model, const char *path);
int conversation_load(conversation *c, const char *path); /* on failure c is unchanged */

/* ---- line.c: a line from the terminal or a pipe ---- */

enum { MESSAGE_BYTES_MAX = 1 << 24 }; /* what reads on beyond it is no message */

typedef enum line_result {
    LINE_OK,
    LINE_END,
    LINE_INTERRUPTED,
    LINE_FAILED,
    LINE_TOO_LONG
} line_result;
typedef struct line_reader line_reader;

/* *edits: a person sits there and can edit the line. */
line_reader *line_open(const args *a, bool *edits);
void line_close(line_reader *r);
/* `given` (may be NULL) stands in the line at first, where it can be edited. A line that Ctrl-C
 * ended is in `out` too. */
line_result line_read(line_reader *r, const char *prompt, const char *given, buffer *out);
void line_remember(line_reader *r,
                   const char *entry); /* for the arrow keys, and between sessions */

/* ---- what a chat is ---- */

typedef struct chat_totals {
    size_t n_replies, n_prompt, n_computed, n_generated, n_dropped;
    double prefill_ms, decode_ms, first_token_ms;
} chat_totals;

typedef struct chat_state {
    args *args; /* /set and /model change them */
    loaded *m;
    bitnet_sampler *sampler;
    text_form form;
    uint64_t seed;
    const char *template_name;
    conversation talk;
    size_t n_used;   /* tokens it takes of the context; 0: nothing was said */
    bool refused;    /* the newest message was too long and was not sent */
    bool unanswered; /* the newest question got an empty reply: the next one takes its place */
    line_reader *lines;
    bool interactive; /* a person sits there: prompts are shown */
    bool edits_lines, styled;
    stop_list stops;
    bitnet_generate_options options;
    /* of the reply being made */
    bool announced; /* it is shown who speaks */
    buffer made;    /* as the model made it */
    buffer shown;   /* without the white space it begins with */
    id_list ids;
    reply_events events;
    wrap wrap;
    bitnet_generate_result last;
    chat_totals totals;
    bitnet_receipt *receipt; /* NULL: not wanted */
    id_list all_ids;         /* of all replies, for the receipt */
    buffer all_made;
    char *given; /* stands in the next line: /edit; NULL: none */
    bool edits;  /* that line takes the place of the newest question */
    bool leaves; /* the user wants to go */
} chat_state;

/* A notice on standard error, dim where that can be; without a newline at its end. */
void chat_note(const chat_state *s, const char *fmt, ...) BITNET_PRINTF(2, 3);
/* What the user has asked for, on standard error, also with --quiet; where a line is broken, the
 * rest of it is indented. */
void chat_say(const chat_state *s, size_t indent, const char *fmt, ...) BITNET_PRINTF(3, 4);

/* Ctrl-C at a terminal was meant for what is under way, which has ended: it is forgotten. Returns
 * the exit code that any other signal asks for, or 0. */
int chat_interrupted(const chat_state *s);

/* ---- chat_reply.c ---- */

/* Sends a message of the user, or (NULL) has the conversation as it is answered. */
int chat_turn(chat_state *s, const char *said);
/* Sends a message in the place of the newest one, which stays if the other is too long. */
int chat_resend(chat_state *s, const char *said);
/* Counts anew what the conversation takes of the context. */
void chat_count(chat_state *s);

/* ---- chat_settings.c: /set, /model and what they change ---- */

/* Opens model, session and sampler as the arguments say. On failure the state is as it was. */
int chat_open(chat_state *s);
void chat_close(chat_state *s);
const option *setting_at(size_t i);                     /* NULL past the end */
int chat_set(chat_state *s, const char *argument);      /* /set */
int chat_switch_model(chat_state *s, const char *path); /* /model */

/* ---- chat_commands.c ---- */

typedef struct slash_command {
    const char *name, *argument, *help; /* help NULL: another name of the one before, not listed */
    int (*run)(chat_state *s, const char *argument);
} slash_command;

const slash_command *slash_command_at(size_t i); /* NULL past the end */
/* Obeys a line that begins with a slash. */
int chat_command(chat_state *s, const char *line);
bool is_chat_command(const char *line); /* a slash and letters; else it is something said */
char *expand_home(const char *path);    /* ~ and ~/... ; to be freed */

/* ---- cmd_chat.c ---- */

const char *editor(void);         /* $VISUAL or $EDITOR; NULL: neither is set */
bool editor_change(buffer *text); /* has the user change it there; false: that failed */

/* ---- line_edit.c: what line.c, which reads from anything, asks for at a terminal ---- */

/* A line that is edited (line_edit.c). */
typedef struct line_edit line_edit;

line_edit *line_edit_open(void); /* NULL: the program was built without libedit, or it fails */
void line_edit_close(line_edit *e);
/* `given`: text that stands in the line at first. */
line_result line_edit_read(line_edit *e, const char *prompt, const char *given, buffer *out);
void line_edit_remember(line_edit *e, const char *entry); /* for the arrow keys */

/* ---- what Tab may mean (chat_commands.c) ---- */

typedef struct completion {
    char **words; /* that the end of the line may become; sorted */
    size_t n;
    size_t n_typed;  /* bytes at the end of the line that every word begins with */
    size_t n_hidden; /* of these, bytes that a list of the words omits: a folder's name */
    bool spaced;     /* a word that is whole is followed by a space */
} completion;

/* Of line[0..n), the line up to the cursor. */
void complete_line(const char *line, size_t n, completion *out);
size_t complete_shared(const completion *c); /* bytes in which all words agree */
void complete_free(completion *c);

#endif
