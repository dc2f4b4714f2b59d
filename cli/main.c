/* main.c - from argv to an exit code. */
#include <locale.h>

#include "cli.h"

static int print_help(const args *a)
{
    buffer out = {0};
    if (a->command)
        help_command(a->command, opt_given(a, OPT_HELP_ALL), &out);
    else
        help_general(opt_given(a, OPT_HELP_ALL), &out);
    out_write(out.data, out.n);
    free_buffer(&out);
    return EXIT_OK;
}

static int dispatch(args *a)
{
    bool named = a->command && a->command->key == CMD_HELP && a->n_words;
    if (opt_given(a, OPT_HELP_ALL) && named) /* help run --help-all */
        return cmd_help(a);
    if (opt_given(a, OPT_HELP) || opt_given(a, OPT_HELP_ALL))
        return print_help(a);
    if (opt_given(a, OPT_VERSION))
        return cmd_version(a);
    if (opt_given(a, OPT_COMPLETIONS))
        return print_completions(opt_text(a, OPT_COMPLETIONS));
    if (opt_given(a, OPT_INTERFACE))
        return out_puts("1.0.0\n"), EXIT_OK;
    if (!a->command)
        return print_help(a);
    int rc = outputs_try(a);
    return rc ? rc : a->command->run(a);
}

int main(int argc, char **argv)
{
    args a;
    out_guard_descriptors();
    signals_install();
    setlocale(LC_CTYPE, "");
    const char *format = getenv("BITNET_LOG_FORMAT");
    log_as_json(format && strcmp(format, "json") == 0); /* until an option says otherwise */
    int rc = args_parse(&a, argc, argv);
    if (!rc) {
        progress_allow(&a);
        rc = dispatch(&a);
        progress_end();
    }
    args_free(&a);
    return out_finish(rc);
}
