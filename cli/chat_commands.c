/* chat_commands.c - the slash commands of `bitnet chat`. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"

typedef struct slash_command {
    const char *name, *argument, *help; /* help NULL: another name of the one before, not listed */
    int (*run)(chat_state *s, const char *argument, bool *leave);
} slash_command;

static const slash_command *slash_at(size_t i);

char *expand_home(const char *path)
{
    const char *home = getenv("HOME");
    if (path[0] == '~' && (path[1] == '/' || !path[1]) && home)
        return xformat("%s%s", home, path + 1);
    return xstrdup(path);
}

/* ---- the conversation ---- */

static int do_clear(chat_state *s, const char *argument, bool *leave)
{
    (void)argument, (void)leave;
    conversation_clear(&s->talk);
    s->unanswered = false;
    chat_count(s);
    chat_note(s, "[the conversation is forgotten]");
    return EXIT_OK;
}

static int do_system(chat_state *s, const char *argument, bool *leave)
{
    (void)leave;
    if (!*argument) {
        chat_note(s,
                  s->talk.system ? "[the system message is: %s]" : "[there is no system message]",
                  s->talk.system);
        return EXIT_OK;
    }
    bool off = strcmp(argument, "off") == 0;
    free(s->talk.system);
    s->talk.system = off ? NULL : xstrdup(argument);
    chat_count(s);
    chat_note(s, off ? "[there is no system message any more]" : "[the system message is set]");
    return EXIT_OK;
}

/* So many bytes of a text are shown: of its first line, whole characters. */
static int shown_bytes(const char *text, int most)
{
    int n = (int)strcspn(text, "\n");
    if (n > most)
        for (n = most; n && ((unsigned char)text[n] & 0xc0) == 0x80;)
            n--;
    return n;
}

static int do_undo(chat_state *s, const char *argument, bool *leave)
{
    (void)argument, (void)leave;
    if (!conversation_drop_newest(&s->talk))
        return fail(EXIT_USAGE, "/undo: nothing was said yet"), EXIT_OK;
    s->unanswered = false;
    chat_count(s);
    const char *question = conversation_question(&s->talk);
    if (question)
        chat_note(s, "[the last exchange is removed; before it you said: %.*s%s]",
                  shown_bytes(question, 60), question,
                  question[shown_bytes(question, 60)] ? "..." : "");
    else
        chat_note(s, "[the last exchange is removed; the conversation is empty]");
    return EXIT_OK;
}

/* The old reply comes back if no new one is made. */
static int do_regen(chat_state *s, const char *argument, bool *leave)
{
    (void)argument, (void)leave;
    conversation *c = &s->talk;
    char *old = NULL;
    if (!conversation_question(c))
        return fail(EXIT_USAGE, "/regen: there is no message to answer yet"), EXIT_OK;
    if (opt_float(s->args, OPT_TEMPERATURE) == 0 && !s->unanswered)
        chat_note(s, "[temperature is 0: the most likely reply is always the same]");
    if (strcmp(c->turns[c->n - 1].role, "assistant") == 0) {
        old = xstrdup(c->turns[c->n - 1].text);
        conversation_pop(c);
    }
    int rc = chat_turn(s, NULL);
    if (old && c->n && strcmp(c->turns[c->n - 1].role, "user") == 0) {
        conversation_add(c, "assistant", old);
        s->unanswered = false;
    }
    free(old);
    return rc;
}

static int edit_outside(chat_state *s, const char *question)
{
    buffer text = {0};
    int rc = EXIT_OK;
    text_puts(&text, question);
    if (editor_change(&text)) {
        bool same = strcmp(text.data, question) == 0,
             empty = text.data[strspn(text.data, " \n")] == '\0';
        if (same || empty)
            chat_note(s, "[%s: nothing is sent]", same ? "nothing was changed" : "it is empty");
        else
            rc = chat_resend(s, text.data);
    }
    free_buffer(&text);
    return rc;
}

static int do_edit(chat_state *s, const char *argument, bool *leave)
{
    const char *question = conversation_question(&s->talk);
    (void)leave;
    if (!question)
        return fail(EXIT_USAGE, "/edit: there is no message to change yet"), EXIT_OK;
    if (*argument)
        return chat_resend(s, argument);
    if (s->interactive && editor_wanted())
        return edit_outside(s, question);
    if (!line_edits(s->lines))
        return fail(EXIT_USAGE, "/edit needs the new text here: /edit TEXT"), EXIT_OK;
    s->given = xstrdup(question);
    s->edits = true;
    return EXIT_OK;
}

/* ---- files ---- */

/* A path as the user means it; NULL: there is none, or it is no file of its own. */
static char *file_argument(const chat_state *s, const char *slash, const char *argument)
{
    if (!*argument || strcmp(argument, "-") == 0) {
        fail(EXIT_USAGE, "%s needs a file name", slash);
        return NULL;
    }
    char *path = expand_home(argument);
    if (!same_file(path, s->m->path))
        return path;
    fail(EXIT_USAGE, "%s: %s is the model; choose another file", slash, path);
    free(path);
    return NULL;
}

static int do_save(chat_state *s, const char *argument, bool *leave)
{
    (void)leave;
    char *path = file_argument(s, "/save", argument);
    if (path && conversation_save(&s->talk, s->m->path, path) == EXIT_OK)
        chat_note(s, "[%zu message%s saved to %s]", s->talk.n, plural(s->talk.n), path);
    free(path);
    return EXIT_OK;
}

static int do_load(chat_state *s, const char *argument, bool *leave)
{
    (void)leave;
    char *path = file_argument(s, "/load", argument);
    if (path && conversation_load(&s->talk, path) == EXIT_OK) {
        s->unanswered = false;
        chat_note(s, "[%zu message%s loaded from %s]", s->talk.n, plural(s->talk.n), path);
        chat_count(s);
    }
    free(path);
    return EXIT_OK;
}

/* ---- settings ---- */

static int do_set(chat_state *s, const char *argument, bool *leave)
{
    (void)leave;
    if (!*argument) {
        chat_show_settings(s);
        return EXIT_OK;
    }
    size_t n = strcspn(argument, " \t=");
    char *key = xmemdup(argument, n);
    char *written = xstrdup(argument + n + strspn(argument + n, " \t="));
    for (size_t k = strlen(written); k && isspace((unsigned char)written[k - 1]);)
        written[--k] = '\0';
    chat_set(s, key, written);
    free(key);
    free(written);
    return EXIT_OK;
}

static int do_model(chat_state *s, const char *argument, bool *leave)
{
    (void)leave;
    chat_switch_model(s, argument);
    return s->interactive ? EXIT_OK : interrupted();
}

static int do_stats(chat_state *s, const char *argument, bool *leave)
{
    (void)argument, (void)leave;
    char made[32], read[32];
    const chat_totals *t = &s->totals;
    buffer line = {0};
    size_t n_later = t->n_generated > t->n_replies ? t->n_generated - t->n_replies : 0;
    chat_say(s, 10, "model:    %s", s->m->path);
    chat_say(s, 10, "replies:  %zu, %zu token%s made, %s tok/s", t->n_replies, t->n_generated,
             plural(t->n_generated),
             rate_text(per_second(n_later, t->decode_ms), made, sizeof made));
    chat_say(s, 10, "prompts:  %zu token%s, %zu computed, %zu reused, %s tok/s", t->n_prompt,
             plural(t->n_prompt), t->n_computed, t->n_prompt - t->n_computed,
             rate_text(per_second(t->n_computed, t->prefill_ms), read, sizeof read));
    chat_say(s, 10, "context:  %zu of %zu tokens, %zu message%s, %zu exchange%s dropped", s->n_used,
             bitnet_session_context(s->m->session), s->talk.n, plural(s->talk.n), t->n_dropped,
             plural(t->n_dropped));
    kernels_text(s->m, &line);
    chat_say(s, 10, "seed:     %llu\nkernels:  %s", (unsigned long long)s->seed, line.data);
    line.n = 0;
    engine_stats_text(s->m, &line);
    chat_say(s, 10, "backend:  %s\nstats:    %s", bitnet_runtime_summary(s->m->runtime), line.data);
    free_buffer(&line);
    return EXIT_OK;
}

/* ---- the list ---- */

static int do_help(chat_state *s, const char *argument, bool *leave)
{
    const slash_command *c;
    (void)argument, (void)leave;
    for (size_t i = 0; (c = slash_at(i)); i++)
        if (c->help)
            chat_say(s, 25, "  %-8s %-13s %s", c->name, c->argument, c->help);
    chat_say(
        s, 0,
        "\"\"\" begins a message of several lines and ends it; pasted lines are one message; a "
        "line\n"
        "that ends with \\ goes on in the next one; // at the beginning sends one slash. "
        "Tab completes. Ctrl-C stops a reply, Ctrl-Z the program (fg goes on), Ctrl-D leaves.");
    return EXIT_OK;
}

static int do_exit(chat_state *s, const char *argument, bool *leave)
{
    (void)s, (void)argument;
    *leave = true;
    return EXIT_OK;
}

static const slash_command slashes[] = {
    {"/help", "", "this list", do_help},
    {"/?", "", NULL, do_help},
    {"/regen", "", "another reply to the last message", do_regen},
    {"/edit", "[TEXT]", "change the last message (in $EDITOR, or in the line) and send it",
     do_edit},
    {"/undo", "", "remove the last message and its reply", do_undo},
    {"/clear", "", "forget the conversation; the system message stays", do_clear},
    {"/system", "[TEXT|off]", "show or set the system message", do_system},
    {"/set", "[KEY [VALUE]]", "show or change settings: temperature, top-k, max-tokens, seed ...",
     do_set},
    {"/model", "[FILE]", "show the model, or go on with another one", do_model},
    {"/save", "FILE", "write the conversation to FILE as JSON", do_save},
    {"/load", "FILE", "go on with a conversation that was saved", do_load},
    {"/stats", "", "tokens, speed, context, kernels, device", do_stats},
    {"/metrics", "", NULL, do_stats},
    {"/exit", "", "leave", do_exit},
    {"/quit", "", NULL, do_exit},
    {"/bye", "", NULL, do_exit},
};

static const slash_command *slash_at(size_t i)
{
    return i < sizeof slashes / sizeof slashes[0] ? &slashes[i] : NULL;
}

bool slash_command_at(size_t i, const char **name, const char **argument)
{
    const slash_command *c = slash_at(i);
    if (c)
        *name = c->name, *argument = c->argument;
    return c != NULL;
}

const char *slash_command_help(size_t i)
{
    return slash_at(i) ? slash_at(i)->help : NULL;
}

static void unknown_slash(const char *name)
{
    const slash_command *c;
    suggestion near;
    suggest_start(&near, name);
    for (size_t i = 0; (c = slash_at(i)); i++)
        suggest_offer(&near, c->name, strlen(c->name));
    const char *best = suggest_best(&near);
    fail(EXIT_USAGE, "unknown command %s; %s%s%s", name,
         best ? "did you mean " : "/help lists them", best ? best : "", best ? "?" : "");
}

bool is_chat_command(const char *line)
{
    size_t n = 1;
    if (line[0] != '/')
        return false;
    while (isalpha((unsigned char)line[n]))
        n++;
    n += n == 1 && line[n] == '?';
    return n > 1 && (!line[n] || isspace((unsigned char)line[n]));
}

int chat_command(chat_state *s, const char *line, bool *leave)
{
    char name[64];
    const slash_command *c;
    size_t n = strcspn(line, " \t\n");
    snprintf(name, sizeof name, "%.*s", (int)n, line);
    const char *argument = line + n + strspn(line + n, " \t\n");
    for (size_t i = 0; (c = slash_at(i)); i++)
        if (strcmp(c->name, name) == 0)
            return c->run(s, argument, leave);
    unknown_slash(name);
    return EXIT_OK;
}
