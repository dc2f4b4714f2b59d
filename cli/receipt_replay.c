/* receipt_replay.c - `bitnet receipt verify --replay`: the run of a receipt made again, by a child
 * process with the recorded options, and the digests of both compared. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

/* What the result does not depend on, or what would have the run made twice or end early. */
static bool is_left_out(const char *name)
{
    static const char left_out[] = "max-tokens timeout deterministic dump-logits threads isa pin "
                                   "self-test cache cache-size cache-min progress-delay";
    return word_in(left_out, ' ', name);
}

/* "NAME=VALUE" as an argument of `bitnet run`; nothing where it is a flag that was off, or no
 * option that receipts record: a receipt is somebody else's file, and must not name what is
 * written. */
static void add_flag(stop_list *argv, const char *flag)
{
    char name[64];
    size_t n = flag ? strcspn(flag, "=") : 0;
    if (n == 0 || n >= sizeof name || !flag[n])
        return;
    snprintf(name, sizeof name, "%.*s", (int)n, flag);
    for (size_t i = 0; option_at(i); i++) {
        const option *o = option_at(i);
        bool on = strcmp(flag + n, "=on") == 0, takes = option_takes_value(o);
        if (strcmp(o->name, name) != 0 || !receipt_records(o, CMD_RUN) || is_left_out(name))
            continue;
        char *argument = takes ? xformat("--%s", flag) : xformat("--%s%s", on ? "" : "no-", name);
        if (on || takes || o->type == TYPE_SWITCH)
            stop_list_add(argv, argument);
        free(argument);
        return;
    }
}

static void add_given(stop_list *argv, const args *a, option_key key, const char *name)
{
    if (!opt_given(a, key))
        return;
    char *argument = xformat("--%s=%s", name, opt_text(a, key));
    stop_list_add(argv, argument);
    free(argument);
}

static const json_t *part(const json_t *receipt, const char *object, const char *key)
{
    return json_object_get(json_object_get(receipt, object), key);
}

/* The command line that makes the run of the receipt again and writes its receipt to `path`. */
static void command_line(const args *a, const json_t *receipt, const char *path, stop_list *argv)
{
    const json_t *flags = part(receipt, "request", "flags");
    const char *model = opt_text(a, OPT_VERIFY_MODEL);
    char *model_path = xformat(
        "--model=%s", model ? model : json_string_value(part(receipt, "model_info", "path")));
    char *n_made =
        xformat("--max-tokens=%lld",
                (long long)json_integer_value(part(receipt, "generation", "output_tokens")));
    char *to = xformat("--receipt=%s", path);
    stop_list_add(argv, "bitnet");
    stop_list_add(argv, "run");
    for (size_t i = 0; i < json_array_size(flags); i++)
        add_flag(argv, json_string_value(json_array_get(flags, i)));
    add_given(argv, a, OPT_PROMPT, "prompt");
    add_given(argv, a, OPT_RUN_FILE, "file");
    add_given(argv, a, OPT_RUN_SYSTEM, "system");
    stop_list_add(argv, model_path);
    stop_list_add(argv, n_made);
    stop_list_add(argv, to);
    stop_list_add(argv, "--quiet");
    free(model_path);
    free(n_made);
    free(to);
}

/* In the child: the text is not shown. */
static int run_silently(stop_list *argv)
{
    args again = {0};
    int nowhere = open("/dev/null", O_WRONLY);
    if (nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0)
        return fail(EXIT_OTHER, "replay: /dev/null cannot be opened");
    int rc = args_parse(&again, (int)argv->n, argv->data);
    rc = rc ? rc : cmd_run(&again);
    args_free(&again);
    return rc;
}

/* A signal that asks us to end is passed on, and the child is waited for. */
static int run_in_child(stop_list *argv)
{
    int status = 0;
    pid_t child = fork(), ended = -1;
    if (child == 0)
        _exit(run_silently(argv));
    while (child > 0 && (ended = waitpid(child, &status, 0)) < 0 && errno == EINTR)
        if (interrupted())
            kill(child, SIGTERM);
    if (interrupted())
        return interrupted();
    if (child < 0 || ended != child)
        return fail(EXIT_OTHER, "replay: the run cannot be started: %s", strerror(errno));
    if (!WIFEXITED(status))
        return fail(EXIT_OTHER, "replay: the run was ended by a signal");
    return WEXITSTATUS(status);
}

/* Prompt first: another one makes another text. */
static int compare(const json_t *receipt, const json_t *again, char *why, size_t cap)
{
    static const char *const rows[][3] = {
        {"model_info", "sha256", "the model is another file"},
        {"generation", "prompt_ids_sha256", "the prompt is another"},
        {"generation", "output_tokens", "another number of tokens was made"},
        {"generation", "output_ids_sha256", "other tokens were made"},
        {"generation", "text_sha256", "another text was made"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (json_equal(part(receipt, rows[i][0], rows[i][1]), part(again, rows[i][0], rows[i][1])))
            continue;
        snprintf(why, cap, "%s (%s.%s)", rows[i][2], rows[i][0], rows[i][1]);
        return EXIT_RECEIPT;
    }
    return EXIT_OK;
}

int receipt_replay(const args *a, const char *path, char *why, size_t cap)
{
    const char *folder = getenv("TMPDIR");
    char *temp = xformat("%s/bitnet-replay-XXXXXX", folder && *folder ? folder : "/tmp");
    json_t *receipt = json_load_file(path, 0, NULL), *again = NULL;
    const char *made_by = json_string_value(part(receipt, "request", "command"));
    bool has_model =
        opt_given(a, OPT_VERIFY_MODEL) || json_is_string(part(receipt, "model_info", "path"));
    stop_list argv = {0};
    int rc = EXIT_OK, file = -1;
    if (!made_by || strcmp(made_by, "run") != 0)
        rc = fail(EXIT_USAGE, "%s: --replay needs a receipt of bitnet run", path);
    else if (!has_model)
        rc = fail(EXIT_USAGE, "%s: model_info.path is no text; name the model with --model", path);
    else if ((file = mkstemp(temp)) < 0)
        rc = fail(EXIT_IO, "replay: %s: %s; TMPDIR names the folder", temp, strerror(errno));
    if (!rc) {
        close(file);
        signals_name_temp(temp);
        command_line(a, receipt, temp, &argv);
        rc = run_in_child(&argv);
        again = rc ? NULL : json_load_file(temp, 0, NULL);
        rc = rc ? rc : compare(receipt, again, why, cap);
        remove(temp);
        signals_name_temp(NULL);
    }
    free(temp);
    stop_list_free(&argv);
    json_decref(receipt);
    json_decref(again);
    return rc;
}
