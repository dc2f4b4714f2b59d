/* chat_commands.c - the slash commands of `bitnet chat`, and what Tab may mean in a line: the name
 * of a command, a file after a command that takes one, a setting after /set. */
#include <ctype.h>
#include <dirent.h>
#include <sys/stat.h>

#include "chat.h"

char *expand_home(const char *path)
{
    const char *home = getenv("HOME");
    if (path[0] == '~' && (path[1] == '/' || !path[1]) && home)
        return xformat("%s%s", home, path + 1);
    return xstrdup(path);
}

/* ---- the conversation ---- */

static int do_clear(chat_state *s, const char *argument)
{
    (void)argument;
    conversation_clear(&s->talk);
    s->unanswered = false;
    chat_count(s);
    chat_note(s, "[the conversation is forgotten]");
    return EXIT_OK;
}

static int do_system(chat_state *s, const char *argument)
{
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

static int do_undo(chat_state *s, const char *argument)
{
    (void)argument;
    conversation gone = conversation_take_newest(&s->talk);
    bool any = gone.n > 0;
    conversation_free(&gone);
    if (!any)
        return fail(EXIT_USAGE, "/undo: nothing was said yet"), EXIT_OK;
    s->unanswered = false;
    chat_count(s);
    const char *question = conversation_question(&s->talk);
    int n = question ? shown_bytes(question, 60) : 0;
    if (question)
        chat_note(s, "[the last exchange is removed; before it you said: %.*s%s]", n, question,
                  question[n] ? "..." : "");
    else
        chat_note(s, "[the last exchange is removed; the conversation is empty]");
    return EXIT_OK;
}

/* The old reply comes back if no new one is made. */
static int do_regen(chat_state *s, const char *argument)
{
    (void)argument;
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

static int do_edit(chat_state *s, const char *argument)
{
    const char *question = conversation_question(&s->talk);
    if (!question)
        return fail(EXIT_USAGE, "/edit: there is no message to change yet"), EXIT_OK;
    if (*argument)
        return chat_resend(s, argument);
    if (s->interactive && editor())
        return edit_outside(s, question);
    if (!s->edits_lines)
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

static int do_save(chat_state *s, const char *argument)
{
    char *path = file_argument(s, "/save", argument);
    if (path && conversation_save(&s->talk, s->m->path, path) == EXIT_OK)
        chat_note(s, "[%zu message%s saved to %s]", s->talk.n, plural(s->talk.n), path);
    free(path);
    return EXIT_OK;
}

static int do_load(chat_state *s, const char *argument)
{
    char *path = file_argument(s, "/load", argument);
    if (path && conversation_load(&s->talk, path) == EXIT_OK) {
        s->unanswered = false;
        chat_note(s, "[%zu message%s loaded from %s]", s->talk.n, plural(s->talk.n), path);
        chat_count(s);
    }
    free(path);
    return EXIT_OK;
}

/* ---- figures ---- */

static int do_stats(chat_state *s, const char *argument)
{
    (void)argument;
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

static int do_help(chat_state *s, const char *argument)
{
    const slash_command *c;
    (void)argument;
    for (size_t i = 0; (c = slash_command_at(i)); i++)
        if (c->help)
            chat_say(s, 25, "  %-8s %-13s %s", c->name, c->argument, c->help);
    chat_say(
        s, 0,
        "\"\"\" begins a message of several lines and ends it; pasted lines are one message; a "
        "line that ends with \\ continues in the next one; // at the beginning sends one slash. "
        "Tab completes. Ctrl-C stops a reply, Ctrl-Z the program (fg resumes it), Ctrl-D leaves.");
    return EXIT_OK;
}

static int do_exit(chat_state *s, const char *argument)
{
    (void)argument;
    s->leaves = true;
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
     chat_set},
    {"/model", "[FILE]", "show the model, or continue with another one", chat_switch_model},
    {"/save", "FILE", "write the conversation to FILE as JSON", do_save},
    {"/load", "FILE", "continue a conversation that was saved", do_load},
    {"/stats", "", "tokens, speed, context, kernels, device", do_stats},
    {"/metrics", "", NULL, do_stats},
    {"/exit", "", "leave", do_exit},
    {"/quit", "", NULL, do_exit},
    {"/bye", "", NULL, do_exit},
};

const slash_command *slash_command_at(size_t i)
{
    return i < sizeof slashes / sizeof slashes[0] ? &slashes[i] : NULL;
}

static void unknown_slash(const char *name)
{
    const slash_command *c;
    suggestion near;
    suggest_start(&near, name);
    for (size_t i = 0; (c = slash_command_at(i)); i++)
        suggest_offer(&near, c->name);
    fail(EXIT_USAGE, "unknown command %s; %s", name, suggest_or(&near, "/help lists them"));
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

int chat_command(chat_state *s, const char *line)
{
    char name[64];
    const slash_command *c;
    size_t n = strcspn(line, " \t\n");
    snprintf(name, sizeof name, "%.*s", (int)n, line);
    for (size_t i = 0; (c = slash_command_at(i)); i++)
        if (strcmp(c->name, name) == 0)
            return c->run(s, line + n + strspn(line + n, " \t\n"));
    unknown_slash(name);
    return EXIT_OK;
}

/* ---- Tab ---- */

static void offer(completion *c, const char *word, const char *typed)
{
    if (strncmp(word, typed, strlen(typed)) != 0)
        return;
    c->words = xrealloc(c->words, (c->n + 1) * sizeof *c->words);
    c->words[c->n++] = xstrdup(word);
}

static void offer_commands(completion *c, const char *typed)
{
    const slash_command *each;
    for (size_t i = 0; (each = slash_command_at(i)); i++)
        if (each->help) /* other names for the same are not offered */
            offer(c, each->name, typed);
    c->spaced = true;
}

static void offer_settings(completion *c, const char *typed)
{
    const option *o;
    for (size_t i = 0; (o = setting_at(i)); i++)
        offer(c, o->name, typed);
    c->spaced = true;
}

/* Names in the folder of `typed`; folders get a slash. Hidden ones only if a dot was typed, and
 * none that a line cannot hold and that must not reach the terminal. */
static void offer_files(completion *c, const char *typed)
{
    const char *slash = strrchr(typed, '/'), *base = slash ? slash + 1 : typed;
    char *before = xmemdup(typed, (size_t)(base - typed)), *folder = expand_home(before);
    DIR *d = opendir(*folder ? folder : ".");
    struct dirent *entry;
    struct stat st;
    while (d && (entry = readdir(d))) {
        const char *name = entry->d_name, *p = name;
        while ((unsigned char)*p >= 0x20 && *p != 0x7f)
            p++;
        bool hidden = name[0] == '.' && base[0] != '.';
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || hidden || *p)
            continue;
        char *path = xformat("%s%s", folder, name);
        bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
        char *word = xformat("%s%s%s", before, name, is_folder ? "/" : "");
        offer(c, word, typed);
        free(path);
        free(word);
    }
    if (d)
        closedir(d);
    c->n_hidden = (size_t)(base - typed);
    free(before);
    free(folder);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool takes_file(const char *typed, size_t n)
{
    const slash_command *c;
    for (size_t i = 0; (c = slash_command_at(i)); i++)
        if (strlen(c->name) == n && memcmp(c->name, typed, n) == 0)
            return strstr(c->argument, "FILE") != NULL;
    return false;
}

void complete_line(const char *line, size_t n, completion *out)
{
    char *typed = xmemdup(line, n);
    size_t n_command = strcspn(typed, " \t");
    const char *argument = typed + n_command + strspn(typed + n_command, " \t");
    *out = (completion){.n_typed = strlen(argument)};
    if (typed[0] != '/') {
        out->n_typed = 0;
    } else if (!typed[n_command]) {
        out->n_typed = n;
        offer_commands(out, typed);
    } else if (n_command == 4 && memcmp(typed, "/set", 4) == 0) {
        offer_settings(out, argument);
    } else if (takes_file(typed, n_command)) {
        offer_files(out, argument);
    }
    if (out->n)
        qsort(out->words, out->n, sizeof *out->words, by_text);
    free(typed);
}

/* Where the words part inside a character, they part before it. */
size_t complete_shared(const completion *c)
{
    if (c->n == 0)
        return 0;
    const char *first = c->words[0], *last = c->words[c->n - 1]; /* sorted: these differ most */
    size_t n = 0;
    while (first[n] && first[n] == last[n])
        n++;
    while (n && ((unsigned char)first[n] & 0xc0) == 0x80)
        n--;
    return n;
}

void complete_free(completion *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->words[i]);
    free(c->words);
    *c = (completion){0};
}
