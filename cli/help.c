/* help.c - what `bitnet help` prints, made from the tables of commands and options: for each
 * command a page with examples and the options people use, and another with all of them. */
#include "cli.h"

enum { WIDTH = 80, COLUMN = 26 };

/* Appends words folded to WIDTH, continuation lines indented; `at` is the current column. */
static void wrap(buffer *out, const char *words, size_t at, size_t indent)
{
    bool fresh = true;
    while (*words) {
        size_t n = strcspn(words, " ");
        if (!fresh && at + 1 + n > WIDTH) {
            text_printf(out, "\n%*s", (int)indent, "");
            at = indent;
            fresh = true;
        }
        if (!fresh) {
            text_puts(out, " ");
            at++;
        }
        text_add(out, words, n);
        at += n;
        fresh = false;
        words += n + (words[n] == ' ');
    }
    text_puts(out, "\n");
}

/* "  -m, --model FILE" */
static void option_heading(const option *o, buffer *out)
{
    if (o->letter)
        text_printf(out, "  -%c, ", o->letter);
    else
        text_puts(out, "      ");
    text_printf(out, o->type == TYPE_SWITCH ? "--[no-]%s" : "--%s", o->name);
    if (option_takes_value(o))
        text_printf(out, " %s", o->argument);
}

/* The sentence behind an option: help, default, environment, other names. Short: the first sentence
 * of the help and the default. */
static void option_sentence(const option *o, bool all, buffer *out)
{
    char word[64];
    const char *end = all ? NULL : strstr(o->help, ". ");
    text_add(out, o->help, end ? (size_t)(end - o->help) : strlen(o->help));
    if (o->initial && o->type != TYPE_SHORTHAND)
        text_printf(out, " [%s]", o->initial);
    if (!all)
        return;
    for (size_t i = 0; word_at(o->environment, ' ', i, word, sizeof word); i++)
        text_printf(out, i ? ", %s" : " (environment: %s", word);
    if (o->environment[0])
        text_puts(out, ")");
    for (size_t i = 0; word_at(o->aliases, ' ', i, word, sizeof word); i++)
        text_printf(out, "%s%s%s", i ? ", " : " (also ", alias_dashes(word), word);
    if (o->aliases[0])
        text_puts(out, ")");
}

static void option_help(const option *o, bool all, buffer *out)
{
    buffer sentence = {0};
    size_t start = out->n;
    option_heading(o, out);
    size_t at = out->n - start;
    if (at + 2 > COLUMN) {
        text_printf(out, "\n%*s", COLUMN, "");
    } else {
        text_printf(out, "%*s", (int)(COLUMN - at), "");
    }
    option_sentence(o, all, &sentence);
    wrap(out, sentence.data, COLUMN, COLUMN);
    free_buffer(&sentence);
}

static void group_help(option_group g, const command *c, buffer *out)
{
    bool first = true;
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const option *o = option_at(i);
        if (o->group != g || option_is_habit(o) || !option_on(o, c->key))
            continue;
        if (first)
            text_printf(out, "\n%s\n", group_title(g));
        first = false;
        option_help(o, true, out);
    }
}

/* The options people use. */
static void top_help(const command *c, buffer *out)
{
    bool first = true;
    for (size_t i = 0; i < OPT_COUNT; i++) {
        if (!option_on_top(option_at(i), c->key))
            continue;
        text_puts(out, first ? "\nOptions\n" : "");
        first = false;
        option_help(option_at(i), false, out);
    }
    text_printf(out, "\nEvery option: bitnet %s --help-all. The manual: bitnet man | man -l -\n",
                c->name);
}

static void examples_help(const command *c, buffer *out)
{
    const char *p = c->examples;
    text_puts(out, "\nExamples\n");
    while (*p) {
        size_t n = strcspn(p, "\n");
        text_printf(out, "  %.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
    text_puts(out, "\n");
}

/* The paragraphs of the description; short: the first. */
static void describe(const command *c, bool all, buffer *out)
{
    char *words = xstrdup(c->description[0] ? c->description : c->summary);
    for (char *p = words, *next; p; p = all ? next : NULL) {
        next = strchr(p, '\n');
        if (next)
            *next++ = '\0';
        wrap(out, p, 0, 0);
    }
    free(words);
}

void help_command(const command *c, bool all, buffer *out)
{
    char word[64];
    text_printf(out, "Usage: bitnet %s [OPTION...]%s%s\n", c->name, c->arguments[0] ? " " : "",
                c->arguments);
    for (size_t i = 0; all && word_at(c->aliases, ' ', i, word, sizeof word); i++)
        text_printf(out, i ? ", %s" : "Also called: %s", word);
    if (all && c->aliases[0])
        text_puts(out, "\n");
    examples_help(c, out);
    describe(c, all, out);
    if (!all)
        top_help(c, out);
    for (int g = 0; all && g < GROUP_COUNT; g++)
        group_help((option_group)g, c, out);
}

static const char beginning[] =
    "bitnet " BITNET_VERSION " - runs 1.58-bit (ternary) language models\n\n"
    "Examples\n"
    "  bitnet run \"Once upon a time\"        continue a text with the story model\n"
    "  bitnet run FILE.gguf \"Once upon\"     with a model of your own\n"
    "  bitnet chat FILE.gguf                talk with it; /help inside\n"
    "  bitnet FILE.gguf                     chat, or answer what is piped in\n"
    "  bitnet convert FOLDER OUT.gguf       make a GGUF file of a checkpoint\n"
    "\nCommands\n";

static const char end[] =
    "\nOne command: bitnet help run; every option of it: bitnet help run --all.\n"
    "The manual: bitnet man | man -l -\n";

void help_general(bool all, buffer *out)
{
    text_puts(out, beginning);
    for (size_t i = 0; i < CMD_COUNT; i++) {
        const command *c = command_at(i);
        if (!c->shown)
            continue;
        text_printf(out, "  %-20s", c->name);
        wrap(out, c->summary, 22, 22);
    }
    if (all)
        text_puts(out, "\nOptions of every command\n");
    for (size_t i = 0; all && i < OPT_COUNT; i++)
        if (option_everywhere(option_at(i)) && !option_is_habit(option_at(i)))
            option_help(option_at(i), true, out);
    text_puts(out, end);
}

int cmd_help(args *a)
{
    buffer out = {0};
    bool all = opt_on(a, OPT_ALL) || opt_given(a, OPT_HELP_ALL);
    if (opt_on(a, OPT_MAN)) {
        man_page(&out);
    } else if (a->n_words) {
        const command *c = command_find(a->words[0]);
        if (!c)
            return unknown_command(a->words[0]);
        help_command(c, all, &out);
    } else {
        help_general(all, &out);
    }
    out_write(out.data, out.n);
    free_buffer(&out);
    return EXIT_OK;
}
