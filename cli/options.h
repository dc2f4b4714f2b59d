/* options.h - commands, options and the values a command line gives them: what args.c reads, what
 * options.c and habits.c know, and how everybody else asks. */
#ifndef BITNET_CLI_OPTIONS_H
#define BITNET_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum command_key {
#define COMMAND(key, ...) CMD_##key,
#include "commands.inc"
    N_COMMANDS
} command_key;

typedef struct args args;

typedef struct command {
    command_key key;
    const char *name, *aliases, *arguments;
    int fewest, most; /* most < 0: no limit */
    bool shown;
    const char *summary, *description;
    const char *examples; /* lines */
    int (*run)(args *a);
} command;

typedef enum option_type {
    TYPE_FLAG,
    TYPE_SWITCH,
    TYPE_INT,
    TYPE_FLOAT,
    TYPE_SEED,
    TYPE_TEXT,
    TYPE_PATH,
    TYPE_OUT,
    TYPE_CHOICE,
    TYPE_TEXTS,
    TYPE_INTS,
    TYPE_LEVELS,
    TYPE_SHORTHAND,
    TYPE_REFUSED,
    TYPE_IGNORED,
} option_type;

typedef enum option_group {
#define GROUP(key, title) GROUP_##key,
#include "options.inc"
    N_GROUPS
} option_group;

typedef enum option_key {
#define OPTION(key, ...)    OPT_##key,
#define SHORTHAND(key, ...) OPT_##key,
#define REFUSED(key, ...)   OPT_##key,
#define IGNORED(key, ...)   OPT_##key,
#include "options.inc"
    N_OPTIONS
} option_key;

typedef struct option {
    option_key key;
    const char *name, *dashed; /* "seed", "--seed" */
    char letter;               /* 0: none */
    option_type type;
    const char *argument; /* name of the value; TYPE_CHOICE: the words, separated by | */
    double low, high;
    const char *initial; /* default as text; NULL: unset. TYPE_SHORTHAND: the value of `target` */
    const char *environment; /* names separated by spaces */
    uint64_t commands;       /* bit per command_key; above the 32nd: also in its short help */
    option_group group;
    const char *aliases; /* names separated by spaces; "-ngl": a word behind one dash */
    const char *help;    /* TYPE_REFUSED, TYPE_IGNORED: the reason */
    option_key target;   /* TYPE_SHORTHAND */
} option;

const option *option_at(size_t i); /* NULL past the end */
const command *command_at(size_t i);
const char *group_title(option_group g);
const command *command_find(const char *name); /* by name or alias; NULL: unknown */
bool option_takes_value(const option *o);
bool option_is_called(const option *o, const char *name); /* by name or alias */
bool option_is_habit(const option *o); /* of another program: refused or ignored, not offered */
bool option_on(const option *o, command_key c);
bool option_on_top(const option *o, command_key c); /* in the short help */
bool option_everywhere(const option *o);            /* on every command */
bool word_in(const char *list, char separator,
             const char *word); /* exact member of a separated list */
/* Copies the i-th word of a separated list into buf; false past the end. */
bool word_at(const char *list, char separator, size_t i, char *buf, size_t cap);

/* What stands before an alias: two dashes, unless it has its own. */
static inline const char *alias_dashes(const char *alias)
{
    return alias[0] == '-' ? "" : "--";
}

/* The nearest of some names by edit distance: call _start, _offer for each, then _best (NULL: none
 * is near) or _or ("did you mean NAME?", or what it is given where none is near). */
typedef struct suggestion {
    const char *wanted;
    char best[64], question[96];
    size_t distance;
} suggestion;

void suggest_start(suggestion *s, const char *wanted);
void suggest_offer(suggestion *s, const char *name);
const char *suggest_best(const suggestion *s);
const char *suggest_or(suggestion *s, const char *otherwise); /* lives as long as s */

typedef struct value {
    const char *text;   /* as written; NULL: unset */
    const char *origin; /* "--seed" or "BITNET_SEED"; NULL: the default */
    double number;
    int64_t integer;
    bool on;
    const char **list; /* TYPE_TEXTS */
    int32_t *ids;      /* TYPE_INTS */
    size_t n_list;
} value;

struct args {
    const command *command;
    value values[N_OPTIONS];
    const char **words; /* arguments that are no options, and not the model */
    size_t n_words;
    bool answers; /* no command was named: standard input is a message to be answered */
    char **kept;  /* owned: names that values came from, texts set later */
    size_t n_kept;
};

/* Reads argv, the environment and defaults. A command line without a command gives a->command NULL.
 */
int args_parse(args *a, int argc, char **argv);
void args_free(args *a);
char *args_keep(args *a, const char *text, size_t n); /* a copy that lives as long as a */
/* The option of command c that is called so, or --no-name of which is; NULL: none, and `near` knows
 * the nearest. */
const option *option_named(const char *name, const command *c, suggestion *near);
/* Sets a value as if `origin` had given it; texts must live as long as a. */
int args_set(args *a, const option *o, const char *origin, const char *written);
/* Reads the file of --config, for options that neither the command line nor the environment has
 * given (config_file.c). */
int config_file_read(args *a);
int unknown_command(const char *name); /* says so, with the nearest name */

/* ---- habits (habits.c) ---- */

/* What a command line says before its command is known. */
typedef struct glance {
    int i_word;            /* of the first argument that is no option; argc: none */
    int n_words;           /* how many there are */
    bool model, text;      /* --model; a prompt, by option or behind -- */
    bool talks, asks;      /* -cnv and its like; --help and its like */
    const option *refused; /* the first option that no command takes, as it was written */
    const char *refused_as;
} glance;

bool names_model(const char *word);           /* a GGUF file by name or content, a checkpoint */
const char *elsewhere_find(const char *name); /* what to type for a command of another program */
/* The command that `g` means without naming one; NULL: none. */
const command *implied_command(const glance *g, const char *word, bool *answers);
/* Takes the model out of the words, where it is the first of them. n_free: words before "--". */
int take_model(args *a, size_t n_free);
int take_gpu_layers(args *a); /* --n-gpu-layers into --device */
void tell_ignored(const args *a);
/* Reads `written` as a value of `o` into *v; says what is wrong as "origin: ..." */
int value_parse(const option *o, const char *origin, const char *written, value *v);

static inline const char *opt_text(const args *a, option_key k)
{
    return a->values[k].text;
}
static inline int64_t opt_int(const args *a, option_key k)
{
    return a->values[k].integer;
}
static inline double opt_float(const args *a, option_key k)
{
    return a->values[k].number;
}
static inline bool opt_on(const args *a, option_key k)
{
    return a->values[k].on;
}
static inline bool opt_given(const args *a, option_key k)
{
    return a->values[k].origin != NULL;
}
static inline bool opt_json(const args *a)
{
    return a->values[OPT_FORMAT].integer > 0; /* text|json|jsonl */
}

/* Somebody reads the report as JSON: on standard output or in a file. */
static inline bool opt_report(const args *a)
{
    return opt_json(a) || opt_given(a, OPT_JSON_OUT);
}

/* A stream of JSON: events as they come, then the object. */
static inline bool opt_jsonl(const args *a)
{
    return a->values[OPT_FORMAT].integer == 2;
}

#endif
