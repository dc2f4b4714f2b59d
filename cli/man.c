/* man.c - the manual page as troff source, made from the tables. */
#include <string.h>

#include "cli.h"

/* Text for troff: backslashes and dashes kept literal, no line begins with a request. */
static void roff(buffer *out, const char *s)
{
    bool start = out->n == 0 || out->data[out->n - 1] == '\n';
    for (; *s; s++) {
        if (start && (*s == '.' || *s == '\''))
            text_puts(out, "\\&");
        start = *s == '\n';
        if (*s == '\\')
            text_puts(out, "\\e");
        else if (*s == '-')
            text_puts(out, "\\-");
        else
            text_add(out, s, 1);
    }
}

static void roff_format(buffer *out, const char *before, const char *s, const char *after)
{
    text_puts(out, before);
    roff(out, s);
    text_puts(out, after);
}

static void names(const option *o, buffer *out)
{
    char word[64];
    if (o->letter)
        text_printf(out, "\\fB\\-%c\\fR, ", o->letter);
    roff_format(out, o->type == TYPE_SWITCH ? "\\fB\\-\\-\\fR[\\fBno\\-\\fR]\\fB" : "\\fB\\-\\-",
                o->name, "\\fR");
    for (size_t i = 0; word_at(o->aliases, ' ', i, word, sizeof word); i++)
        roff_format(out, word[0] == '-' ? ", \\fB" : ", \\fB\\-\\-", word, "\\fR");
    if (option_takes_value(o))
        roff_format(out, " \\fI", o->argument, "\\fR");
}

/* "Used by run, chat." unless every command has it. */
static void used_by(const option *o, buffer *out)
{
    bool first = true;
    if (option_everywhere(o))
        return;
    for (size_t i = 0; i < CMD_COUNT; i++) {
        if (!option_on(o, command_at(i)->key))
            continue;
        roff_format(out, first ? " Used by \\fB" : ", \\fB", command_at(i)->name, "\\fR");
        first = false;
    }
    text_puts(out, ".");
}

static void range(const option *o, buffer *out)
{
    if (o->type == TYPE_INT || o->type == TYPE_FLOAT)
        text_printf(out, " Range: %.10g to %.10g.", o->low, o->high);
    if (o->initial && o->type != TYPE_SHORTHAND)
        roff_format(out, " Default: ", o->initial, ".");
}

static void option_page(const option *o, buffer *out)
{
    char word[64];
    text_puts(out, ".TP\n");
    names(o, out);
    text_puts(out, "\n");
    roff(out, o->help);
    text_puts(out, ".");
    range(o, out);
    for (size_t i = 0; word_at(o->environment, ' ', i, word, sizeof word); i++)
        roff_format(out, i ? " or \\fB" : " Environment: \\fB", word, "\\fR");
    if (o->environment[0])
        text_puts(out, ".");
    used_by(o, out);
    text_puts(out, "\n");
}

static void commands_page(buffer *out)
{
    char word[64];
    text_puts(out, ".SH COMMANDS\n");
    for (size_t i = 0; i < CMD_COUNT; i++) {
        const command *c = command_at(i);
        roff_format(out, ".TP\n\\fB", c->name, "\\fR");
        for (size_t k = 0; word_at(c->aliases, ' ', k, word, sizeof word); k++)
            roff_format(out, ", \\fB", word, "\\fR");
        roff_format(out, " \\fI", c->arguments, "\\fR\n");
        roff(out, c->summary);
        text_puts(out, ".\n");
        roff(out, c->description);
        text_puts(out, c->description[0] ? "\n" : "");
    }
}

static void habits_page(option_type type, const char *title, buffer *out)
{
    text_puts(out, title);
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const option *o = option_at(i);
        if (o->type != type)
            continue;
        text_puts(out, ".TP\n");
        names(o, out);
        text_puts(out, "\n");
        roff(out, o->help[0] ? o->help : "it is what the command does");
        text_puts(out, ".\n");
    }
}

static void options_page(buffer *out)
{
    text_puts(out, ".SH OPTIONS\nA value follows its option as the next word or after an equals "
                   "sign. An option beats its "
                   "environment variable, which beats the default.\n");
    for (int g = 0; g < GROUP_COUNT; g++) {
        text_printf(out, ".SS %s\n", group_title((option_group)g));
        for (size_t i = 0; i < OPT_COUNT; i++)
            if (option_at(i)->group == (option_group)g && !option_is_habit(option_at(i)))
                option_page(option_at(i), out);
    }
    habits_page(TYPE_REFUSED,
                ".SS Refused\nThese are known from elsewhere and refused with a reason:\n", out);
    habits_page(TYPE_IGNORED,
                ".SS Ignored\nThese are known from elsewhere and not needed; a line says so:\n",
                out);
}
static void environment_page(buffer *out)
{
    char word[64];
    text_puts(out, ".SH ENVIRONMENT\nAn empty variable counts as unset; a bad value is an error "
                   "that names it.\n");
    for (size_t i = 0; i < OPT_COUNT; i++)
        for (size_t k = 0; word_at(option_at(i)->environment, ' ', k, word, sizeof word); k++) {
            roff_format(out, ".TP\n\\fB", word, "\\fR\n");
            roff_format(out, "Used where \\fB\\-\\-", option_at(i)->name, "\\fR is absent.\n");
        }
}

static void exit_page(buffer *out)
{
    int code;
    const char *meaning;
    text_puts(out, ".SH EXIT STATUS\n");
    for (size_t i = 0; exit_code_at(i, &code, &meaning); i++) {
        text_printf(out, ".TP\n\\fB%d\\fR\n", code);
        roff(out, meaning);
        text_puts(out, ".\n");
    }
}

static const char chat_page[] =
    ".SH CHAT\nA line that begins with a slash is a command: \\fB/help\\fR, \\fB/clear\\fR (forget "
    "the conversation), "
    "\\fB/save\\fR \\fIFILE\\fR and \\fB/load\\fR \\fIFILE\\fR (the conversation as JSON), "
    "\\fB/metrics\\fR, "
    "\\fB/exit\\fR or \\fB/quit\\fR. A line that ends with a backslash goes on in the next one. "
    "When the "
    "conversation no longer fits the context the oldest turns are dropped with a notice.\n";

static const char examples_page[] =
    ".SH EXAMPLES\n.TP\nContinue a story\n\\fBbitnet run Once upon a time\\fR\n.TP\n"
    "The same text every time, for a program\n\\fBbitnet run \\-\\-greedy \\-\\-json \\-\\-prompt "
    "\"The capital of France is\"\\fR\n.TP\nPerplexity of a file\n\\fBbitnet score \\-\\-model "
    "my.gguf "
    "\\-\\-file texts.txt\\fR\n.TP\nA model of your own\n\\fBbitnet convert my\\-checkpoint/ "
    "my.gguf && bitnet "
    "inspect my.gguf\\fR\n";

void man_page(buffer *out)
{
    text_puts(
        out,
        ".TH BITNET 1 \"\" \"bitnet " BITNET_VERSION "\" \"User Commands\"\n"
        ".SH NAME\nbitnet \\- run 1.58\\-bit (ternary) language models\n"
        ".SH SYNOPSIS\n\\fBbitnet\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...] [\\fIARGUMENT\\fR...]\n"
        ".SH DESCRIPTION\n\\fBbitnet\\fR runs, scores, inspects and converts language models with "
        "ternary "
        "weights in GGUF files, on the CPU. The same prompt and seed give the same text for any "
        "number of "
        "threads.\n");
    commands_page(out);
    options_page(out);
    text_puts(out, chat_page);
    environment_page(out);
    exit_page(out);
    text_puts(out, examples_page);
}

int cmd_man(args *a)
{
    buffer out = {0};
    (void)a;
    man_page(&out);
    out_write(out.data, out.n);
    free_buffer(&out);
    return EXIT_OK;
}
