/* man.c - the manual page as troff source, made from the tables. */
#include "chat.h"

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
/* The option that tells what a variable means: of run where it has one, else the first. */
static const option *option_of(const char *variable)
{
    const option *first = NULL;
    for (size_t i = 0; i < OPT_COUNT; i++) {
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
    const char *end = strstr(o->help, ". ");
    char *first = xmemdup(o->help, end ? (size_t)(end - o->help) : strlen(o->help));
    roff_format(out, ".TP\n\\fB", variable, "\\fR\n");
    roff_format(out, "Where \\fB\\-\\-", o->name, "\\fR is absent: ");
    roff_format(out, "", first, ".\n");
    free(first);
}

/* Variables that stand for no option. */
static const char *const other_variables[][2] = {
    {"BITNET_CPP_DIR", "folder of libbitnet_bridge.so, which validate compares with"},
    {"CUDA_HOME", "where preflight looks for the CUDA tools first"},
    {"CUDA_VISIBLE_DEVICES", "the GPUs that CUDA shows; messages say when it hides one"},
    {"EDITOR", "the editor of chat's /edit, where VISUAL is not set"},
    {"HOME", "where the cache and the history lie, see FILES"},
    {"NO_COLOR", "if it is set chat shows its own lines without style"},
    {"PATH", "where bench looks for gnuplot (--plot) and preflight for tools"},
    {"TERM", "the kind of terminal; on a dumb one chat has no style and marks no pasted lines"},
    {"TMPDIR", "where chat's /edit keeps the message while it is edited"},
    {"VISUAL", "the editor of chat's /edit"},
    {"XDG_CACHE_HOME", "where the cache lies instead of ~/.cache"},
    {"XDG_STATE_HOME", "where the history lies instead of ~/.local/state"},
};

static void environment_page(buffer *out)
{
    char word[64];
    text_puts(out, ".SH ENVIRONMENT\nAn option beats its variable. An empty variable counts as "
                   "unset; a bad value is an error that names it.\n");
    for (size_t i = 0; i < OPT_COUNT; i++)
        for (size_t k = 0; word_at(option_at(i)->environment, ' ', k, word, sizeof word); k++)
            if (option_of(word) == option_at(i))
                variable_page(option_at(i), word, out);
    for (size_t i = 0; i < sizeof other_variables / sizeof *other_variables; i++) {
        roff_format(out, ".TP\n\\fB", other_variables[i][0], "\\fR\n");
        roff_format(out, "", other_variables[i][1], ".\n");
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

static void chat_page(buffer *out)
{
    const slash_command *c;
    text_puts(out, ".SH CHAT\nA line that begins with a slash is a command:\n");
    for (size_t i = 0; (c = slash_command_at(i)); i++) {
        if (!c->help)
            continue;
        roff_format(out, ".TP\n\\fB", c->name, "\\fR");
        roff_format(out, " \\fI", c->argument, "\\fR\n");
        roff_format(out, "", c->help, ".\n");
    }
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
    "compiled (\\fB\\-\\-cache\\fR, \\fB\\-\\-cache\\-size\\fR). It may be deleted at any time.\n"
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
    text_puts(out, ".SH EXAMPLES\n");
    for (size_t i = 0; i < CMD_COUNT; i++) {
        const command *c = command_at(i);
        roff_format(out, ".TP\n", c->summary, "\n");
        for (const char *p = c->examples; *p;) {
            size_t n = strcspn(p, "\n");
            char *line = xmemdup(p, n);
            roff_format(out, "\\fB", line, "\\fR\n.br\n");
            free(line);
            p += n + (p[n] == '\n');
        }
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

void man_page(buffer *out)
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
    out_write(out.data, out.n);
    free_buffer(&out);
    return EXIT_OK;
}
