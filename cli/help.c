/* help.c - what `bitnet help` prints, made from the tables of commands and options. */
#include <string.h>

#include "cli.h"

enum { WIDTH = 96, COLUMN = 32 };

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

/* The sentence behind an option: help, default, environment, other names. */
static void option_sentence(const option *o, buffer *out)
{
    char word[64];
    text_puts(out, o->help);
    if (o->initial && o->type != TYPE_SHORTHAND)
        text_printf(out, " [%s]", o->initial);
    for (size_t i = 0; word_at(o->environment, ' ', i, word, sizeof word); i++)
        text_printf(out, i ? ", %s" : " (environment: %s", word);
    if (o->environment[0])
        text_puts(out, ")");
    for (size_t i = 0; word_at(o->aliases, ' ', i, word, sizeof word); i++)
        text_printf(out, "%s%s%s", i ? ", " : " (also ", alias_dashes(word), word);
    if (o->aliases[0])
        text_puts(out, ")");
}

static void option_help(const option *o, buffer *out)
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
    option_sentence(o, &sentence);
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
        option_help(o, out);
    }
}

void help_command(const command *c, buffer *out)
{
    char word[64];
    text_printf(out, "Usage: bitnet %s [OPTION...]%s%s\n", c->name, c->arguments[0] ? " " : "",
                c->arguments);
    for (size_t i = 0; word_at(c->aliases, ' ', i, word, sizeof word); i++)
        text_printf(out, i ? ", %s" : "Also called: %s", word);
    if (c->aliases[0])
        text_puts(out, "\n");
    text_puts(out, "\n");
    wrap(out, c->description[0] ? c->description : c->summary, 0, 0);
    for (int g = 0; g < GROUP_COUNT; g++)
        group_help((option_group)g, c, out);
}

void help_general(buffer *out)
{
    text_puts(out, "bitnet " BITNET_VERSION " - run 1.58-bit (ternary) language models\n\n"
                   "Usage: bitnet COMMAND [OPTION...] [ARGUMENT...]\n\nCommands\n");
    for (size_t i = 0; i < CMD_COUNT; i++) {
        const command *c = command_at(i);
        if (!c->shown)
            continue;
        text_printf(out, "  %-20s", c->name);
        wrap(out, c->summary, 22, 22);
    }
    text_puts(out, "\nOptions of every command\n");
    for (size_t i = 0; i < OPT_COUNT; i++)
        if (option_at(i)->commands == 0xffffffffu && !option_is_habit(option_at(i)))
            option_help(option_at(i), out);
    text_puts(out,
              "\nExamples\n"
              "  bitnet run Once upon a time\n"
              "  bitnet run --model my.gguf --temperature 0 --prompt \"The capital of France is\"\n"
              "  bitnet chat\n"
              "  bitnet help run        all options of run; bitnet man | man -l - is the manual\n");
}

int cmd_help(args *a)
{
    buffer out = {0};
    if (opt_on(a, OPT_MAN)) {
        man_page(&out);
    } else if (a->n_words) {
        const command *c = command_find(a->words[0]);
        if (!c)
            return unknown_command(a->words[0]);
        help_command(c, &out);
    } else {
        help_general(&out);
    }
    out_write(out.data, out.n);
    free_buffer(&out);
    return EXIT_OK;
}
