/* chat_commands.c - the slash commands of `bitnet chat`. */
#include <string.h>

#include "chat.h"

typedef struct slash_command {
    const char *name, *argument, *help;
    void (*run)(chat_state *s, const char *argument, bool *leave);
} slash_command;

static const slash_command *slash_at(size_t i);

static void do_help(chat_state *s, const char *argument, bool *leave)
{
    const slash_command *c;
    (void)s, (void)argument, (void)leave;
    for (size_t i = 0; (c = slash_at(i)); i++)
        fprintf(stderr, "  %-8s %-6s %s\n", c->name, c->argument, c->help);
    fputs("Ctrl-C stops a reply; Ctrl-D leaves. A line that ends with \\ goes on in the next one;\n"
          "a line that begins with // is sent with one slash.\n",
          stderr);
}

static void do_clear(chat_state *s, const char *argument, bool *leave)
{
    (void)argument, (void)leave;
    conversation_clear(&s->talk);
    note(s->args, "[the conversation is forgotten]\n");
}

static void do_save(chat_state *s, const char *argument, bool *leave)
{
    (void)leave;
    if (!*argument)
        fail(EXIT_USAGE, "/save needs a file name");
    else if (same_file(argument, s->m.path))
        fail(EXIT_USAGE, "/save: %s is the model; choose another file", argument);
    else if (conversation_save(&s->talk, s->m.path, argument) == EXIT_OK)
        note(s->args, "[%zu messages saved to %s]\n", s->talk.n, argument);
}

static void do_load(chat_state *s, const char *argument, bool *leave)
{
    (void)leave;
    if (!*argument)
        fail(EXIT_USAGE, "/load needs a file name");
    else if (conversation_load(&s->talk, argument) == EXIT_OK)
        note(s->args, "[%zu messages loaded from %s]\n", s->talk.n, argument);
}

static void do_metrics(chat_state *s, const char *argument, bool *leave)
{
    (void)argument, (void)leave;
    chat_metrics(s);
}

static void do_exit(chat_state *s, const char *argument, bool *leave)
{
    (void)s, (void)argument;
    *leave = true;
}

static const slash_command slashes[] = {
    {"/help", "", "this list", do_help},
    {"/clear", "", "forget the conversation; the system message stays", do_clear},
    {"/save", "FILE", "write the conversation to FILE as JSON", do_save},
    {"/load", "FILE", "go on with a conversation that was saved", do_load},
    {"/metrics", "", "tokens, speed, memory of the context, kernels", do_metrics},
    {"/exit", "", "leave", do_exit},
    {"/quit", "", "leave", do_exit},
};

static const slash_command *slash_at(size_t i)
{
    return i < sizeof slashes / sizeof slashes[0] ? &slashes[i] : NULL;
}

static void unknown_slash(const char *name)
{
    const slash_command *c;
    suggestion near;
    suggest_start(&near, name);
    for (size_t i = 0; (c = slash_at(i)); i++)
        suggest_offer(&near, c->name, strlen(c->name));
    const char *best = suggest_best(&near);
    fail(EXIT_USAGE, "unknown command %s; %s%s", name, best ? "did you mean " : "/help lists them",
         best ? best : "");
}

void chat_command(chat_state *s, const char *line, bool *leave)
{
    char name[64];
    const slash_command *c;
    size_t n = strcspn(line, " \t");
    snprintf(name, sizeof name, "%.*s", (int)n, line);
    const char *argument = line + n + strspn(line + n, " \t");
    for (size_t i = 0; (c = slash_at(i)); i++)
        if (strcmp(c->name, name) == 0) {
            c->run(s, argument, leave);
            return;
        }
    unknown_slash(name);
}

void chat_metrics(const chat_state *s)
{
    buffer kernels = {0};
    kernels_text(&s->m, &kernels);
    fprintf(stderr, "replies:  %zu, %zu tokens made, %.1f tok/s\n", s->n_replies, s->n_generated,
            per_second(s->n_generated > s->n_replies ? s->n_generated - s->n_replies : 0,
                       s->decode_ms));
    fprintf(stderr, "prompts:  %zu tokens, %zu computed, %zu reused, %.1f tok/s\n", s->n_prompt,
            s->n_computed, s->n_prompt - s->n_computed, per_second(s->n_computed, s->prefill_ms));
    fprintf(stderr, "context:  %zu of %zu tokens, %zu messages, %zu exchanges dropped\n",
            bitnet_session_position(s->m.session), bitnet_session_context(s->m.session), s->talk.n,
            s->n_dropped);
    fprintf(stderr, "seed:     %llu\nkernels:  %s\n", (unsigned long long)s->seed, kernels.data);
    kernels.n = 0;
    engine_stats_text(&s->m, &kernels);
    fprintf(stderr, "backend:  %s\nstats:    %s\n", bitnet_runtime_summary(s->m.runtime),
            kernels.data);
    free_buffer(&kernels);
}
