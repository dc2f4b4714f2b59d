/* main.c - from argv to an exit code. */
#include <locale.h>

#include "cli.h"

static int dispatch(args *a)
{
    bool all = opt_given(a, OPT_HELP_ALL);
    bool named = a->command && a->command->key == CMD_HELP && a->n_words;
    if (all && named) /* help run --help-all */
        return cmd_help(a);
    if (opt_given(a, OPT_HELP) || all)
        return print_help(a->command, all);
    if (opt_given(a, OPT_VERSION))
        return cmd_version(a);
    if (opt_given(a, OPT_COMPLETIONS))
        return print_completions(opt_text(a, OPT_COMPLETIONS));
    if (opt_given(a, OPT_INTERFACE))
        return out_puts("1.0.0\n"), EXIT_OK;
    if (!a->command)
        return print_help(NULL, false);
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
