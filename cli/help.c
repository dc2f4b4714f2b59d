/* help.c - what `bitnet help` and `bitnet man` print, made from the tables of commands and options:
 * for each command a page with examples and the options people use, and another with all of them;
 * and the manual page as troff source. */
#include "chat.h"

enum { WIDTH = 80, COLUMN = 26 };

/* Appends words folded to WIDTH, continuation lines indented; `at` is the current column. */
static void fold(buffer *out, const char *words, size_t at, size_t indent)
{
    wrap w = {.column = at, .indent = indent};
    wrap_all(&w, WIDTH, words, out);
    text_puts(out, "\n");
}

size_t first_sentence(const char *help)
{
    const char *end = strstr(help, ". ");
    return end ? (size_t)(end - help) : strlen(help);
}

/* The sentence behind an option: help, default, environment, other names. Short: the first sentence
 * of the help and the default. */
static void option_sentence(const option *o, bool all, buffer *out)
{
    char word[64];
    text_add(out, o->help, all ? strlen(o->help) : first_sentence(o->help));
    if (o->initial && o->type != TYPE_SHORTHAND)
        text_printf(out, " [%s]", o->initial);
    if (!all)
        return;
    for (size_t i = 0; word_at(o->environment, ' ', i, word, sizeof word); i++)
        text_printf(out, i ? ", %s" : " (environment: %s", word);
    text_puts(out, o->environment[0] ? ")" : "");
    for (size_t i = 0; word_at(o->aliases, ' ', i, word, sizeof word); i++)
        text_printf(out, "%s%s%s", i ? ", " : " (also ", alias_dashes(word), word);
    text_puts(out, o->aliases[0] ? ")" : "");
}

/* "  -m, --model FILE  sentence" */
static void option_help(const option *o, bool all, buffer *out)
{
    buffer sentence = {0};
    size_t start = out->n;
    text_printf(out, o->letter ? "  -%c, " : "      ", o->letter);
    text_printf(out, o->type == TYPE_SWITCH ? "--[no-]%s" : "--%s", o->name);
    if (option_takes_value(o))
        text_printf(out, " %s", o->argument);
    size_t at = out->n - start;
    bool fits = at + 2 <= COLUMN;
    text_printf(out, "%s%*s", fits ? "" : "\n", (int)(fits ? COLUMN - at : COLUMN), "");
    option_sentence(o, all, &sentence);
    fold(out, sentence.data, COLUMN, COLUMN);
    free_buffer(&sentence);
}

static void group_help(option_group g, const command *c, buffer *out)
{
    bool first = true;
    for (size_t i = 0; i < N_OPTIONS; i++) {
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
    for (size_t i = 0; i < N_OPTIONS; i++) {
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
    char line[256];
    text_puts(out, "\nExamples\n");
    for (size_t i = 0; word_at(c->examples, '\n', i, line, sizeof line); i++)
        text_printf(out, "  %s\n", line);
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
        fold(out, p, 0, 0);
    }
    free(words);
}

static void help_command(const command *c, bool all, buffer *out)
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
    for (int g = 0; all && g < N_GROUPS; g++)
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

static void help_general(bool all, buffer *out)
{
    text_puts(out, beginning);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const command *c = command_at(i);
        if (!c->shown)
            continue;
        text_printf(out, "  %-20s", c->name);
        fold(out, c->summary, 22, 22);
    }
    if (all)
        text_puts(out, "\nOptions of every command\n");
    for (size_t i = 0; all && i < N_OPTIONS; i++)
        if (option_everywhere(option_at(i)) && !option_is_habit(option_at(i)))
            option_help(option_at(i), true, out);
    text_puts(out, end);
}

int print_help(const command *c, bool all)
{
    buffer out = {0};
    if (c)
        help_command(c, all, &out);
    else
        help_general(all, &out);
    out_buffer(&out);
    return EXIT_OK;
}

int cmd_help(args *a)
{
    const command *c = a->n_words ? command_find(a->words[0]) : NULL;
    if (opt_on(a, OPT_MAN))
        return cmd_man(a);
    if (a->n_words && !c)
        return unknown_command(a->words[0]);
    return print_help(c, opt_on(a, OPT_ALL) || opt_given(a, OPT_HELP_ALL));
}

/* ---- the manual page ---- */

#define MANUAL_DATE "2026-11-16" /* when what it says last changed */

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

/* Adds the format, each %s in it replaced by an argument for troff. */
static void page(buffer *out, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    for (const char *p; (p = strstr(fmt, "%s")); fmt = p + 2) {
        text_add(out, fmt, (size_t)(p - fmt));
        roff(out, va_arg(ap, const char *));
    }
    va_end(ap);
    text_puts(out, fmt);
}

static void names(const option *o, buffer *out)
{
    char word[64];
    if (o->letter)
        text_printf(out, "\\fB\\-%c\\fR, ", o->letter);
    page(out,
         o->type == TYPE_SWITCH ? "\\fB\\-\\-\\fR[\\fBno\\-\\fR]\\fB%s\\fR" : "\\fB\\-\\-%s\\fR",
         o->name);
    for (size_t i = 0; word_at(o->aliases, ' ', i, word, sizeof word); i++)
        page(out, ", \\fB%s%s\\fR", alias_dashes(word), word);
    if (option_takes_value(o))
        page(out, " \\fI%s\\fR", o->argument);
}

/* "Used by run, chat." unless every command has it. */
static void used_by(const option *o, buffer *out)
{
    bool first = true;
    if (option_everywhere(o))
        return;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (!option_on(o, command_at(i)->key))
            continue;
        page(out, first ? " Used by \\fB%s\\fR" : ", \\fB%s\\fR", command_at(i)->name);
        first = false;
    }
    text_puts(out, ".");
}

static void option_page(const option *o, buffer *out)
{
    char word[64];
    text_puts(out, ".TP\n");
    names(o, out);
    page(out, "\n%s.", o->help);
    if (o->type == TYPE_INT || o->type == TYPE_FLOAT)
        text_printf(out, " Range: %.10g to %.10g.", o->low, o->high);
    if (o->initial && o->type != TYPE_SHORTHAND)
        page(out, " Default: %s.", o->initial);
    for (size_t i = 0; word_at(o->environment, ' ', i, word, sizeof word); i++)
        page(out, i ? " or \\fB%s\\fR" : " Environment: \\fB%s\\fR", word);
    text_puts(out, o->environment[0] ? "." : "");
    used_by(o, out);
    text_puts(out, "\n");
}

static void commands_page(buffer *out)
{
    char word[64];
    text_puts(out, ".SH COMMANDS\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const command *c = command_at(i);
        page(out, ".TP\n\\fB%s\\fR", c->name);
        for (size_t k = 0; word_at(c->aliases, ' ', k, word, sizeof word); k++)
            page(out, ", \\fB%s\\fR", word);
        page(out, " \\fI%s\\fR\n%s.\n", c->arguments, c->summary);
        page(out, c->description[0] ? "%s\n" : "%s", c->description);
    }
}

static void habits_page(option_type type, const char *title, buffer *out)
{
    text_puts(out, title);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option *o = option_at(i);
        if (o->type != type)
            continue;
        text_puts(out, ".TP\n");
        names(o, out);
        page(out, "\n%s.\n", o->help[0] ? o->help : "it is what the command does");
    }
}

static void options_page(buffer *out)
{
    text_puts(out, ".SH OPTIONS\nA value follows its option as the next word or after an equals "
                   "sign. An option beats its "
                   "environment variable, which beats the default.\n");
    for (int g = 0; g < N_GROUPS; g++) {
        text_printf(out, ".SS %s\n", group_title((option_group)g));
        for (size_t i = 0; i < N_OPTIONS; i++)
            if (option_at(i)->group == (option_group)g && !option_is_habit(option_at(i)))
                option_page(option_at(i), out);
    }
    habits_page(TYPE_REFUSED,
                ".SS Refused\nThese are known from elsewhere and refused with a reason:\n", out);
    habits_page(TYPE_IGNORED,
                ".SS Ignored\nThese are known from elsewhere and not needed; a line says so:\n",
                out);
}
/* The option that tells what a variable means: of run where it has one, else the first. */
static const option *option_of(const char *variable)
{
    const option *first = NULL;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option *o = option_at(i);
        if (!word_in(o->environment, ' ', variable))
            continue;
        if (option_on(o, CMD_RUN))
            return o;
        first = first ? first : o;
    }
    return first;
}

static void variable_page(const option *o, const char *variable, buffer *out)
{
    char *first = xmemdup(o->help, first_sentence(o->help));
    page(out, ".TP\n\\fB%s\\fR\nWhere \\fB\\-\\-%s\\fR is absent: %s.\n", variable, o->name, first);
    free(first);
}

/* Variables that stand for no option. */
static const char *const other_variables[][2] = {
    {"BITNET_CPP_DIR", "folder of libbitnet_bridge.so, which validate compares with"},
    {"CUDA_HOME", "where preflight looks for the CUDA tools first"},
    {"CUDA_VISIBLE_DEVICES", "the GPUs that CUDA shows; messages say when it hides one"},
    {"EDITOR", "the editor of chat's /edit, where VISUAL is not set"},
    {"HOME", "where the cache and the history lie, see FILES"},
    {"LISTEN_FDS", "serve: systemd has opened the socket, if LISTEN_PID is this process"},
    {"LISTEN_PID", "serve: see LISTEN_FDS"},
    {"NOTIFY_SOCKET", "serve: where systemd wants to hear that it is ready, or about to end"},
    {"NO_COLOR", "if it is set chat shows its own lines without style"},
    {"PATH", "where bench looks for gnuplot (--plot) and preflight for tools"},
    {"TERM", "the kind of terminal; on a dumb one chat has no style and marks no pasted lines"},
    {"TMPDIR", "where chat's /edit keeps the message while it is edited, and receipt verify "
               "--replay the second receipt"},
    {"VISUAL", "the editor of chat's /edit"},
    {"WATCHDOG_USEC", "serve: how often systemd wants a sign of life"},
    {"XDG_CACHE_HOME", "where the cache lies instead of ~/.cache"},
    {"XDG_STATE_HOME", "where the history lies instead of ~/.local/state"},
};

static void environment_page(buffer *out)
{
    char word[64];
    text_puts(out, ".SH ENVIRONMENT\nAn option beats its variable. An empty variable counts as "
                   "unset; a bad value is an error that names it.\n");
    for (size_t i = 0; i < N_OPTIONS; i++)
        for (size_t k = 0; word_at(option_at(i)->environment, ' ', k, word, sizeof word); k++)
            if (option_of(word) == option_at(i))
                variable_page(option_at(i), word, out);
    for (size_t i = 0; i < sizeof other_variables / sizeof *other_variables; i++)
        page(out, ".TP\n\\fB%s\\fR\n%s.\n", other_variables[i][0], other_variables[i][1]);
}

static void exit_page(buffer *out)
{
    static const struct {
        int code;
        const char *meaning;
    } codes[] = {
#define EXIT_CODE(name, code, text) {code, text},
#include "exit_codes.inc"
#undef EXIT_CODE
    };
    text_puts(out, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        text_printf(out, ".TP\n\\fB%d\\fR\n", codes[i].code);
        page(out, "%s.\n", codes[i].meaning);
    }
}

static void chat_page(buffer *out)
{
    const slash_command *c;
    text_puts(out, ".SH CHAT\nA line that begins with a slash is a command:\n");
    for (size_t i = 0; (c = slash_command_at(i)); i++)
        if (c->help)
            page(out, ".TP\n\\fB%s\\fR \\fI%s\\fR\n%s.\n", c->name, c->argument, c->help);
    text_puts(out, ".PP\nThree quotation marks begin a message of several lines and end it; pasted "
                   "lines are one message; a line that ends with a backslash continues in the next "
                   "one; a message that begins with two slashes is sent with one. When the "
                   "conversation no longer fits the context "
                   "the oldest turns are dropped with a notice.\n");
}

static const char files_page[] =
    ".SH FILES\n"
    ".TP\n\\fImodels/story.gguf\\fR beside the program, \\fIPREFIX/share/bitnet/story.gguf\\fR\n"
    "The story model, taken where no model is named.\n"
    ".TP\n\\fI~/.cache/bitnet/\\fR\n"
    "Packed weights of large models, their checksums, and kernels that "
    "\\fB\\-\\-gpu\\-specialise\\fR "
    "compiled (\\fB\\-\\-cache\\fR, \\fB\\-\\-cache\\-size\\fR, \\fBbitnet cache\\fR). It must "
    "belong to you "
    "and be writable by nobody else, and may be deleted at any time.\n"
    ".TP\n\\fI~/.local/state/bitnet/history\\fR\n"
    "The lines typed in \\fBchat\\fR (\\fB\\-\\-history\\fR).\n"
    ".TP\n\\fIOUT.XXXXXX.tmp\\fR\n"
    "A file while it is written. It becomes \\fIOUT\\fR when it is whole, and is left behind only "
    "where the program was killed.\n";

static const char see_page[] =
    ".SH SEE ALSO\n\\fBbitnet help\\fR \\fICOMMAND\\fR, \\fBgnuplot\\fR(1), \\fBperf\\fR(1), "
    "\\fBtaskset\\fR(1); in the source tree README.md, docs/TROUBLESHOOTING.md, docs/SPEED.md and, "
    "for programs, include/bitnet.h.\n";

static void examples_page(buffer *out)
{
    char line[256];
    text_puts(out, ".SH EXAMPLES\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        page(out, ".TP\n%s\n", command_at(i)->summary);
        for (size_t k = 0; word_at(command_at(i)->examples, '\n', k, line, sizeof line); k++)
            page(out, "\\fB%s\\fR\n.br\n", line);
    }
}

static const char first_page[] =
    ".TH BITNET 1 \"" MANUAL_DATE "\" \"bitnet " BITNET_VERSION "\" \"User Commands\"\n"
    ".SH NAME\nbitnet \\- run 1.58\\-bit (ternary) language models\n"
    ".SH SYNOPSIS\n\\fBbitnet\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...] [\\fIMODEL.gguf\\fR] "
    "[\\fIARGUMENT\\fR...]\n.br\n"
    "\\fBbitnet\\fR \\fIMODEL.gguf\\fR [\\fIOPTION\\fR...] [\\fIPROMPT\\fR...]\n.br\n"
    "\\fBbitnet\\fR \\fB\\-m\\fR \\fIMODEL.gguf\\fR [\\fB\\-p\\fR \\fIPROMPT\\fR] "
    "[\\fIOPTION\\fR...]\n"
    ".SH DESCRIPTION\n\\fBbitnet\\fR runs, scores, inspects and converts language models with "
    "ternary weights in GGUF files, on the CPU and on GPUs. The same prompt and seed give the same "
    "text for any number of threads.\n.PP\n"
    "A first argument that ends in .gguf or names a GGUF file is the model; \\fB\\-\\-\\fR before "
    "it "
    "makes it text. Without a command a prompt is continued as \\fBrun\\fR does. Without a prompt "
    "\\fBbitnet\\fR \\fIMODEL.gguf\\fR chats at a terminal; otherwise all of standard input is one "
    "message, answered with the chat template of the file, or continued if the file has none.\n";

static void man_page(buffer *out)
{
    text_puts(out, first_page);
    commands_page(out);
    options_page(out);
    chat_page(out);
    environment_page(out);
    text_puts(out, files_page);
    exit_page(out);
    examples_page(out);
    text_puts(out, see_page);
}

int cmd_man(args *a)
{
    buffer out = {0};
    (void)a;
    man_page(&out);
    out_buffer(&out);
    return EXIT_OK;
}
