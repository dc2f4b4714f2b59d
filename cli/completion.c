/* completion.c - completion scripts for bash, zsh and fish, made from the tables. Hides how each
 * shell is told which values an option may have. */
#include "cli.h"

/* What a shell is told of one spelling of an option: its name, or no-NAME of a switch. */
typedef void tell_option(const option *o, const command *c, const char *name, buffer *out);

static void each_option(const command *c, buffer *out, tell_option *tell)
{
    char negated[80];
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option *o = option_at(i);
        if (option_is_habit(o) || !option_on(o, c->key))
            continue;
        tell(o, c, o->name, out);
        snprintf(negated, sizeof negated, "no-%s", o->name);
        if (o->type == TYPE_SWITCH)
            tell(o, c, negated, out);
    }
}

/* ---- values ---- */

static void add_word(buffer *out, const char *word)
{
    text_printf(out, "%s%s", out->n ? " " : "", word);
}

static void add_names(buffer *out, const char *first, const char *(*at)(int))
{
    const char *name;
    add_word(out, first);
    for (int i = 0; (name = at(i)); i++)
        add_word(out, name);
}

static const char *shape_at(int i)
{
    static bitnet_synthetic_info shape;
    return bitnet_synthetic_at(i, &shape) ? shape.name : NULL;
}

typedef enum value_kind { VALUE_NONE, VALUE_WORDS, VALUE_MODEL, VALUE_FILE, VALUE_FREE } value_kind;

/* What the option takes; VALUE_WORDS: the words are appended, separated by spaces. */
static value_kind value_of(const option *o, buffer *words)
{
    char word[64];
    for (size_t i = 0; o->type == TYPE_CHOICE && word_at(o->argument, '|', i, word, sizeof word);
         i++)
        add_word(words, word);
    if (o->key == OPT_RUN_TEMPLATE || o->key == OPT_TEMPLATE)
        add_names(words, "auto", bitnet_template_list);
    else if (o->key == OPT_DEVICE || o->key == OPT_VALIDATE_DEVICE)
        text_puts(words, "auto cpu gpu cuda hip oneapi metal opencl vulkan npu host");
    else if (o->key == OPT_ISA)
        add_names(words, "best", bitnet_isa_at);
    else if (o->key == OPT_SYNTHETIC)
        add_names(words, "list", shape_at);
    else if (o->key == OPT_HEAD)
        text_puts(words, "q6_k q8_0 q4_0 f16 bf16 f32");
    else if (o->key == OPT_CACHE || o->key == OPT_BENCH_CACHE || o->key == OPT_CACHE_FOLDER)
        text_puts(words, "on off");
    else if (o->type == TYPE_LEVELS)
        text_puts(words, "error warn info debug");
    else if (o->type == TYPE_SEED)
        text_puts(words, "random");
    return words->n                                            ? VALUE_WORDS
           : o->key == OPT_MODEL || o->key == OPT_VERIFY_MODEL ? VALUE_MODEL
           : o->type == TYPE_PATH || o->type == TYPE_OUT       ? VALUE_FILE
           : option_takes_value(o)                             ? VALUE_FREE
                                                               : VALUE_NONE;
}

/* True if the first argument of the command may be a model. */
static bool takes_model(const command *c)
{
    return option_on(option_at(OPT_MODEL), c->key);
}

/* True if its arguments may be files of any kind. */
static bool takes_files(const command *c)
{
    return c->key == CMD_SCORE || c->key == CMD_CONVERT || c->key == CMD_RECEIPT;
}

/* Names of a command and its aliases, as in the shell pattern run|generate. */
static void all_names(const command *c, const char *between, buffer *out)
{
    text_puts(out, c->name);
    text_puts(out, c->aliases[0] ? between : "");
    text_mapped(out, c->aliases, " ", &between);
}

static void command_names(buffer *out)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (command_at(i)->shown)
            text_printf(out, "%s%s", i ? " " : "", command_at(i)->name);
}

/* ---- bash ---- */

static void bash_word(const option *o, const command *c, const char *name, buffer *out)
{
    (void)o, (void)c;
    text_printf(out, " --%s", name);
}

/* The words that may follow a command as arguments. */
static void command_words(const command *c, buffer *out)
{
    if (c->key == CMD_COMPLETIONS)
        text_puts(out, "bash zsh fish");
    else if (c->key == CMD_HELP)
        command_names(out);
    else if (c->key == CMD_RECEIPT)
        text_puts(out, "verify sign key gates");
    else if (c->key == CMD_CACHE)
        text_puts(out, "list clear path");
}

static void bash_value(const option *o, buffer *out)
{
    static const char *const answers[] = {
        [VALUE_WORDS] = ") COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")); return ;;\n",
        [VALUE_MODEL] = ") _bitnet_files '!*.[gG][gG][uU][fF]'; return ;;\n",
        [VALUE_FILE] = ") _bitnet_files; return ;;\n",
        [VALUE_FREE] = ") return ;;\n",
    };
    char word[64];
    buffer words = {0};
    if (!option_takes_value(o) || option_is_habit(o))
        return;
    text_printf(out, "        --%s", o->name);
    if (o->letter)
        text_printf(out, "|-%c", o->letter);
    for (size_t i = 0; word_at(o->aliases, ' ', i, word, sizeof word); i++)
        text_printf(out, "|%s%s", alias_dashes(word), word);
    const char *answer = answers[value_of(o, &words)]; /* before words.data is read */
    text_printf(out, answer, words.data);
    free_buffer(&words);
}

/* Names with spaces stay whole; the shell marks folders and quotes. */
static const char bash_files[] =
    "# files whose names the pattern does not take away, and folders\n"
    "_bitnet_files()\n{\n    local name\n"
    "    while IFS= read -r name; do\n        COMPREPLY+=(\"$name\")\n"
    "    done < <(compgen -f ${1:+-X \"$1\"} -- \"$cur\"; [[ -n $1 ]] && compgen -d -- \"$cur\")\n"
    "}\n";

static const char bash_start[] =
    "_bitnet()\n{\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} "
    "command= words= options= files= i\n"
    "    COMPREPLY=()\n"
    "    if [[ $cur == = ]]; then\n        cur=\n"
    "    elif [[ $prev == = ]]; then\n        prev=${COMP_WORDS[COMP_CWORD-2]}\n    fi\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        case ${COMP_WORDS[i]} in -*) ;; *) command=${COMP_WORDS[i]}; break ;; esac\n    "
    "done\n";

static const char bash_end[] =
    "    if [[ $cur == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n        return\n    fi\n"
    "    [[ -n $words ]] && COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
    "    if [[ -n $cur && -n ${COMPREPLY[*]} ]]; then # no slash after a folder of that name\n"
    "        compopt +o filenames 2>/dev/null\n        return\n    fi\n"
    "    case $files in\n"
    "        models) _bitnet_files '!*.[gG][gG][uU][fF]' ;;\n"
    "        all) _bitnet_files ;;\n    esac\n}\n"
    "complete -o filenames -F _bitnet bitnet\n";

static void bash_command(const command *c, buffer *out)
{
    text_puts(out, "        ");
    all_names(c, "|", out);
    text_puts(out, ") options=\"");
    each_option(c, out, bash_word);
    text_puts(out, "\"; words=\"");
    command_words(c, out);
    text_printf(out, "\"; files=%s ;;\n",
                takes_files(c)   ? "all"
                : takes_model(c) ? "models"
                                 : "none");
}

static void bash_script(buffer *out)
{
    text_puts(out, "# bash completion for bitnet\n");
    text_puts(out, bash_files);
    text_puts(out, bash_start);
    text_puts(out, "    case \"$prev\" in\n");
    for (size_t i = 0; i < N_OPTIONS; i++)
        bash_value(option_at(i), out);
    text_puts(out, "    esac\n    case \"$command\" in\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        bash_command(command_at(i), out);
    text_puts(out, "        *.[gG][gG][uU][fF]) options=\"");
    each_option(command_at(CMD_RUN), out, bash_word);
    text_puts(out, "\"; files=none ;;\n        *) words=\"");
    command_names(out);
    text_puts(out, "\"; options=\"--help --help-all --version --model --prompt\"; files=models ;;\n"
                   "    esac\n");
    text_puts(out, bash_end);
}

/* What an option does, as short as a list of completions wants it; to be freed. */
static char *brief(const option *o)
{
    size_t n = strcspn(o->help, ";("), most = first_sentence(o->help);
    n = most < n ? most : n;
    while (n && o->help[n - 1] == ' ')
        n--;
    return xmemdup(o->help, n);
}

/* ---- zsh ---- */

/* Inside '...' of an _arguments specification: quotes end it, brackets and colons mean something.
 */
static void zsh_text(const char *s, buffer *out)
{
    static const char *const escapes[] = {"'\\''", "\\[", "\\]", "\\:", "\\\\"};
    text_mapped(out, s, "'[]:\\", escapes);
}

#define ZSH_MODELS "_files -g \"*.(gguf|GGUF)(-.)\""

/* ":FILE:_files" behind an option that takes a value. */
static void zsh_value(const option *o, buffer *out)
{
    buffer words = {0};
    value_kind kind = value_of(o, &words);
    if (kind == VALUE_NONE)
        return;
    text_puts(out, ":");
    zsh_text(o->type == TYPE_CHOICE ? "value" : o->argument, out);
    text_puts(out, kind == VALUE_WORDS ? ":(" : ":");
    zsh_text(kind == VALUE_WORDS ? words.data : "", out);
    text_puts(out, kind == VALUE_WORDS   ? ")"
                   : kind == VALUE_MODEL ? ZSH_MODELS
                   : kind == VALUE_FILE  ? "_files"
                                         : "");
    free_buffer(&words);
}

static void zsh_spec(const option *o, const char *spelling, const char *sign, buffer *out)
{
    bool repeats = o->type == TYPE_TEXTS || o->type == TYPE_INTS;
    text_printf(out, " \\\n                '%s%s%s[", repeats ? "*" : "", spelling, sign);
    char *about = brief(o);
    zsh_text(about, out);
    free(about);
    text_puts(out, "]");
    zsh_value(o, out);
    text_puts(out, "'");
}

static void zsh_word(const option *o, const command *c, const char *name, buffer *out)
{
    char spelling[80], letter[3] = {'-', o->letter, '\0'};
    (void)c;
    snprintf(spelling, sizeof spelling, "--%s", name);
    zsh_spec(o, spelling, option_takes_value(o) ? "=" : "", out);
    if (o->letter && strcmp(name, o->name) == 0)
        zsh_spec(o, letter, option_takes_value(o) ? "+" : "", out);
}

static void zsh_arguments(const command *c, buffer *out)
{
    buffer words = {0};
    command_words(c, &words);
    if (words.n)
        text_printf(out, " \\\n                '1:word:(%s)'", words.data);
    if (takes_model(c) && !takes_files(c))
        text_puts(out, " \\\n                '1:model:" ZSH_MODELS "'");
    if (takes_files(c))
        text_puts(out, " \\\n                '*:file:_files'");
    free_buffer(&words);
}

static void zsh_commands(buffer *out)
{
    text_puts(out, "#compdef bitnet\n_bitnet()\n{\n    local -a commands\n    commands=(\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (!command_at(i)->shown)
            continue;
        text_printf(out, "        '%s:", command_at(i)->name);
        zsh_text(command_at(i)->summary, out);
        text_puts(out, "'\n");
    }
    text_puts(out, "    )\n");
}

static void zsh_script(buffer *out)
{
    zsh_commands(out);
    text_puts(
        out,
        "    if ((CURRENT == 2)); then\n        _describe command commands\n        " ZSH_MODELS
        "\n        _arguments '--help[explain the program]' "
        "'--help-all[explain every option]' '--version[print the version]'\n"
        "        return\n    fi\n    local command=${words[2]}\n"
        "    words=(\"${(@)words[2,-1]}\")\n    ((CURRENT--))\n    case $command in\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        text_puts(out, "        ");
        all_names(command_at(i), "|", out);
        text_puts(out, ")\n            _arguments");
        each_option(command_at(i), out, zsh_word);
        zsh_arguments(command_at(i), out);
        text_puts(out, " ;;\n");
    }
    text_puts(out,
              "    esac\n}\nif [ \"$funcstack[1]\" = _bitnet ]; then\n    _bitnet \"$@\"\nelse\n"
              "    compdef _bitnet bitnet\nfi\n");
}

/* ---- fish ---- */

static void fish_text(const char *s, buffer *out)
{
    static const char *const escapes[] = {"\\'", "\\\\"};
    text_puts(out, " -d '");
    text_mapped(out, s, "'\\", escapes);
    text_puts(out, "'\n");
}

#define FISH_MODELS "-a '(__fish_complete_suffix .gguf)'"

static void fish_condition(const command *c, buffer *out)
{
    text_puts(out, "complete -c bitnet -n '__fish_seen_subcommand_from ");
    all_names(c, " ", out);
    text_puts(out, "' ");
}

static void fish_option(const option *o, const command *c, const char *name, buffer *out)
{
    static const char *const answers[] = {"", " -x -a '%s'", (" -r -k " FISH_MODELS), " -r -F",
                                          " -x"};
    buffer words = {0};
    char *about = brief(o);
    fish_condition(c, out);
    text_printf(out, "-l %s", name);
    if (o->letter && strcmp(name, o->name) == 0)
        text_printf(out, " -s %c", o->letter);
    const char *answer = answers[value_of(o, &words)]; /* before words.data is read */
    text_printf(out, answer, words.data);
    fish_text(about, out);
    free_buffer(&words);
    free(about);
}

/* What may stand behind the command. */
static void fish_arguments(const command *c, buffer *out)
{
    buffer words = {0};
    command_words(c, &words);
    if (words.n)
        text_printf(out, "complete -c bitnet -n '__fish_seen_subcommand_from %s' %s-a '%s'\n",
                    c->name, takes_files(c) ? "" : "-f ", words.data);
    if (takes_model(c)) {
        fish_condition(c, out);
        text_puts(out, "-k " FISH_MODELS "\n");
    }
    free_buffer(&words);
}

static void fish_command(const command *c, buffer *out)
{
    if (c->shown) {
        text_printf(out, "complete -c bitnet -n __fish_use_subcommand -f -a %s", c->name);
        fish_text(c->summary, out);
    }
    each_option(c, out, fish_option);
    fish_arguments(c, out);
}

static void fish_script(buffer *out)
{
    text_puts(out,
              "# fish completion for bitnet\n"
              "complete -c bitnet -n __fish_use_subcommand -l help -d 'explain the program'\n"
              "complete -c bitnet -n __fish_use_subcommand -l help-all -d 'explain every option'\n"
              "complete -c bitnet -n __fish_use_subcommand -l version -d 'print the version'\n"
              "complete -c bitnet -n __fish_use_subcommand -k " FISH_MODELS "\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        fish_command(command_at(i), out);
}

/* ---- the command ---- */

int print_completions(const char *shell)
{
    buffer out = {0};
    if (strcmp(shell, "bash") == 0)
        bash_script(&out);
    else if (strcmp(shell, "zsh") == 0)
        zsh_script(&out);
    else if (strcmp(shell, "fish") == 0)
        fish_script(&out);
    else
        return fail(EXIT_USAGE, "completions: '%s' is not one of bash, zsh, fish", shell);
    out_buffer(&out);
    return EXIT_OK;
}

int cmd_completions(args *a)
{
    return print_completions(a->words[0]);
}
