/* completion.c - completion scripts for bash, zsh and fish, made from the tables. */
#include <string.h>

#include "cli.h"

/* Calls `each` with every spelling of an option that may be completed: name, and --no-name of a
 * switch. */
static void spellings(const option *o, buffer *out,
                      void (*each)(const option *, const char *, buffer *))
{
    char negated[80];
    each(o, o->name, out);
    if (o->type != TYPE_SWITCH)
        return;
    snprintf(negated, sizeof negated, "no-%s", o->name);
    each(o, negated, out);
}

static bool completes(const option *o, const command *c)
{
    return !option_is_habit(o) && option_on(o, c->key);
}

static void each_option(const command *c, buffer *out,
                        void (*each)(const option *, const char *, buffer *))
{
    for (size_t i = 0; i < OPT_COUNT; i++)
        if (completes(option_at(i), c))
            spellings(option_at(i), out, each);
}

static void words_of(const char *list, buffer *out)
{
    for (const char *p = list; *p; p++)
        text_add(out, *p == '|' ? " " : p, 1);
}

/* Names of a command and its aliases as a shell pattern: run|generate */
static void command_pattern(const command *c, buffer *out)
{
    text_puts(out, c->name);
    for (const char *p = c->aliases; *p; p++) {
        if (p == c->aliases || *p == ' ')
            text_puts(out, "|");
        if (*p != ' ')
            text_add(out, p, 1);
    }
}

static void command_names(buffer *out)
{
    for (size_t i = 0; i < CMD_COUNT; i++)
        if (command_at(i)->shown)
            text_printf(out, "%s%s", i ? " " : "", command_at(i)->name);
}

/* ---- bash ---- */

static void bash_word(const option *o, const char *name, buffer *out)
{
    (void)o;
    text_printf(out, " --%s", name);
}

/* The words that may follow a command as arguments. */
static void command_words(const command *c, buffer *out)
{
    if (c->key == CMD_COMPLETIONS)
        text_puts(out, "bash zsh fish");
    else if (c->key == CMD_HELP)
        command_names(out);
}

static void bash_values(buffer *out)
{
    text_puts(out, "    case \"$prev\" in\n");
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const option *o = option_at(i);
        if (!option_takes_value(o))
            continue;
        text_printf(out, "        --%s", o->name);
        if (o->letter)
            text_printf(out, "|-%c", o->letter);
        if (o->type == TYPE_CHOICE) {
            text_puts(out, ") COMPREPLY=($(compgen -W \"");
            words_of(o->argument, out);
            text_puts(out, "\" -- \"$cur\")); return ;;\n");
        } else if (option_is_path(o)) {
            text_puts(out, ") COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n");
        } else {
            text_puts(out, ") return ;;\n");
        }
    }
    text_puts(out, "    esac\n");
}

static void bash_script(buffer *out)
{
    text_puts(out, "# bash completion for bitnet\n_bitnet()\n{\n"
                   "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} "
                   "command= words= options= i\n"
                   "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                   "        case ${COMP_WORDS[i]} in -*) ;; *) command=${COMP_WORDS[i]}; break ;; "
                   "esac\n    done\n");
    bash_values(out);
    text_puts(out, "    case \"$command\" in\n");
    for (size_t i = 0; i < CMD_COUNT; i++) {
        text_puts(out, "        ");
        command_pattern(command_at(i), out);
        text_puts(out, ") options=\"");
        each_option(command_at(i), out, bash_word);
        text_puts(out, "\"; words=\"");
        command_words(command_at(i), out);
        text_puts(out, "\" ;;\n");
    }
    text_puts(out, "        *) words=\"");
    command_names(out);
    text_puts(
        out,
        "\"; options=\"--help --version --completions --interface-version\" ;;\n    esac\n"
        "    if [[ $cur == -* ]]; then\n        COMPREPLY=($(compgen -W \"$options\" -- "
        "\"$cur\"))\n"
        "    elif [[ -n $words ]]; then\n        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
        "    else\n        COMPREPLY=($(compgen -f -- \"$cur\"))\n    fi\n}\n"
        "complete -o filenames -F _bitnet bitnet\n");
}

/* ---- zsh ---- */

/* Inside '...' of an _arguments specification: quotes end it, brackets and colons mean something.
 */
static void zsh_text(const char *s, buffer *out)
{
    for (; *s; s++) {
        if (*s == '\'')
            text_puts(out, "'\\''");
        else if (strchr("[]:\\", *s))
            text_printf(out, "\\%c", *s);
        else
            text_add(out, s, 1);
    }
}

static void zsh_word(const option *o, const char *name, buffer *out)
{
    bool repeats = o->type == TYPE_TEXTS || o->type == TYPE_INTS;
    text_printf(out, " \\\n                '%s--%s%s[", repeats ? "*" : "", name,
                option_takes_value(o) ? "=" : "");
    zsh_text(o->help, out);
    text_puts(out, "]");
    if (option_takes_value(o)) {
        text_puts(out, ":");
        zsh_text(o->type == TYPE_CHOICE ? "value" : o->argument, out);
        text_puts(out, ":");
        if (o->type == TYPE_CHOICE) {
            text_puts(out, "(");
            words_of(o->argument, out);
            text_puts(out, ")");
        } else if (option_is_path(o)) {
            text_puts(out, "_files");
        }
    }
    text_puts(out, "'");
}

static void zsh_script(buffer *out)
{
    text_puts(out, "#compdef bitnet\n_bitnet()\n{\n    local -a commands\n    commands=(\n");
    for (size_t i = 0; i < CMD_COUNT; i++) {
        if (!command_at(i)->shown)
            continue;
        text_printf(out, "        '%s:", command_at(i)->name);
        zsh_text(command_at(i)->summary, out);
        text_puts(out, "'\n");
    }
    text_puts(
        out, "    )\n    if ((CURRENT == 2)); then\n        _describe command commands\n"
             "        _arguments '--help[explain the program]' '--version[print the version]'\n    "
             "    return\n    fi\n"
             "    local command=${words[2]}\n    words=(\"${(@)words[2,-1]}\")\n    ((CURRENT--))\n"
             "    case $command in\n");
    for (size_t i = 0; i < CMD_COUNT; i++) {
        const command *c = command_at(i);
        text_puts(out, "        ");
        command_pattern(c, out);
        text_puts(out, ")\n            _arguments");
        each_option(c, out, zsh_word);
        if (c->key == CMD_COMPLETIONS || c->key == CMD_HELP) {
            text_puts(out, " \\\n                '1:word:(");
            command_words(c, out);
            text_puts(out, ")'");
        } else {
            text_puts(out, " \\\n                '*:argument:_files'");
        }
        text_puts(out, " ;;\n");
    }
    text_puts(out,
              "    esac\n}\nif [ \"$funcstack[1]\" = _bitnet ]; then\n    _bitnet \"$@\"\nelse\n"
              "    compdef _bitnet bitnet\nfi\n");
}

/* ---- fish ---- */

static void fish_text(const char *s, buffer *out)
{
    text_puts(out, "'");
    for (; *s; s++) {
        if (*s == '\'' || *s == '\\')
            text_puts(out, "\\");
        text_add(out, s, 1);
    }
    text_puts(out, "'");
}

/* `seen` is the condition, e.g. "__fish_seen_subcommand_from run generate". */
static void fish_option(const option *o, const command *c, const char *name, buffer *out)
{
    text_printf(out, "complete -c bitnet -n '__fish_seen_subcommand_from %s%s%s' -l %s", c->name,
                c->aliases[0] ? " " : "", c->aliases, name);
    if (o->letter && strcmp(name, o->name) == 0)
        text_printf(out, " -s %c", o->letter);
    if (o->type == TYPE_CHOICE) {
        text_puts(out, " -x -a '");
        words_of(o->argument, out);
        text_puts(out, "'");
    } else if (option_is_path(o)) {
        text_puts(out, " -r -F");
    } else if (option_takes_value(o)) {
        text_puts(out, " -x");
    }
    text_puts(out, " -d ");
    fish_text(o->help, out);
    text_puts(out, "\n");
}

static void fish_command(const command *c, buffer *out)
{
    char negated[80];
    if (c->shown) {
        text_printf(out, "complete -c bitnet -n __fish_use_subcommand -f -a %s -d ", c->name);
        fish_text(c->summary, out);
        text_puts(out, "\n");
    }
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const option *o = option_at(i);
        if (!completes(o, c))
            continue;
        fish_option(o, c, o->name, out);
        snprintf(negated, sizeof negated, "no-%s", o->name);
        if (o->type == TYPE_SWITCH)
            fish_option(o, c, negated, out);
    }
    if (c->key == CMD_COMPLETIONS || c->key == CMD_HELP) {
        text_printf(out, "complete -c bitnet -n '__fish_seen_subcommand_from %s' -f -a '", c->name);
        command_words(c, out);
        text_puts(out, "'\n");
    }
}

static void fish_script(buffer *out)
{
    text_puts(out,
              "# fish completion for bitnet\n"
              "complete -c bitnet -n __fish_use_subcommand -l help -d 'explain the program'\n"
              "complete -c bitnet -n __fish_use_subcommand -l version -d 'print the version'\n");
    for (size_t i = 0; i < CMD_COUNT; i++)
        fish_command(command_at(i), out);
}

/* ---- the command ---- */

static int completion_script(const char *shell, buffer *out)
{
    if (strcmp(shell, "bash") == 0)
        bash_script(out);
    else if (strcmp(shell, "zsh") == 0)
        zsh_script(out);
    else if (strcmp(shell, "fish") == 0)
        fish_script(out);
    else
        return fail(EXIT_USAGE, "completions: '%s' is not one of bash, zsh, fish", shell);
    return EXIT_OK;
}

int print_completions(const char *shell)
{
    buffer out = {0};
    int rc = completion_script(shell, &out);
    if (!rc)
        out_write(out.data, out.n);
    free_buffer(&out);
    return rc;
}

int cmd_completions(args *a)
{
    return print_completions(a->words[0]);
}
