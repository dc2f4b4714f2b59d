/* habits.c - what people bring along from other programs: the model as the first argument, no
 * command at all, commands and options that live elsewhere. Hides how a word is known to be a
 * model. */
#include <errno.h>
#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* ---- is it a model? ---- */

static bool ends_with(const char *word, const char *tail)
{
    size_t n = strlen(word), k = strlen(tail);
    return n > k && strcasecmp(word + n - k, tail) == 0;
}

/* What models of other programs are called; opening one tells what to do with it. */
static bool ends_like_checkpoint(const char *word)
{
    static const char *const tails[] = {".safetensors", ".bin",  ".pt",        ".pth",
                                        ".ckpt",        ".ggml", ".llamafile", ".gguf.part"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (ends_with(word, tails[i]))
            return true;
    return false;
}

static bool begins_as_gguf(const char *path)
{
    char magic[4] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool is = fd >= 0 && read(fd, magic, 4) == 4 && memcmp(magic, "GGUF", 4) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

static bool holds_checkpoint(const char *folder)
{
    char *config = xformat("%s/config.json", folder);
    bool there = access(config, F_OK) == 0;
    free(config);
    return there || strchr(folder, '/');
}

bool names_model(const char *word)
{
    struct stat st;
    if (ends_with(word, ".gguf"))
        return true;
    if (stat(word, &st) != 0)
        return false;
    if (S_ISDIR(st.st_mode))
        return holds_checkpoint(word);
    return S_ISREG(st.st_mode) && (ends_like_checkpoint(word) || begins_as_gguf(word));
}

/* ---- the model as an argument ---- */

/* A folder among words that the command cannot do without is one of those: IN and OUT of batch are
 * the last two. What is wrong with it the command knows. */
static bool is_needed(const args *a)
{
    struct stat st;
    return (int)a->n_words <= a->command->fewest && stat(a->words[0], &st) == 0 &&
           S_ISDIR(st.st_mode);
}

/* Commands that take no other argument take any file for the model; inspect any word. */
int take_model(args *a, size_t n_free)
{
    const command *c = a->command;
    value *v = &a->values[OPT_MODEL];
    if (!c || !option_on(option_at(OPT_MODEL), c->key) || n_free == 0 || is_needed(a))
        return EXIT_OK;
    const char *word = a->words[0];
    bool takes_text = c->most != 0;
    if (c->key != CMD_INSPECT && !names_model(word) && (takes_text || access(word, F_OK) != 0))
        return EXIT_OK;
    if (v->origin)
        return fail(EXIT_USAGE, "%s: two models are given: %s and %s %s; leave one out%s", c->name,
                    word, v->origin, v->text,
                    takes_text ? " (text that looks like a file goes behind --)" : "");
    if (access(word, F_OK) != 0)
        return fail(EXIT_IO, "%s: cannot open: %s%s", word, strerror(errno),
                    takes_text ? " (if it is meant as text put -- before it)" : "");
    v->text = word;
    v->origin = "the argument";
    a->n_words--;
    memmove(a->words, a->words + 1, a->n_words * sizeof *a->words);
    return EXIT_OK;
}

/* ---- no command ---- */

const command *implied_command(const glance *g, const char *word, bool *answers)
{
    bool model = word && names_model(word);
    bool sentence = word && !model && strchr(word, ' ') && (g->model || g->text);
    bool said = g->model || g->text || g->talks;
    if (word ? !model && !sentence : !said)
        return NULL;
    if (g->talks)
        return command_at(CMD_CHAT);
    if (g->text || g->n_words > (model ? 1 : 0))
        return command_at(CMD_RUN);
    *answers = !isatty(STDIN_FILENO);
    return command_at(*answers ? CMD_RUN : CMD_CHAT);
}

/* ---- names of other programs ---- */

static const struct {
    const char *names, *answer;
} elsewhere[] = {
#define ELSEWHERE(names, answer) {names, answer},
#include "commands.inc"
};

const char *elsewhere_find(const char *name)
{
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (word_in(elsewhere[i].names, ' ', name))
            return elsewhere[i].answer;
    return NULL;
}

int take_gpu_layers(args *a)
{
    const value *v = &a->values[OPT_GPU_LAYERS];
    value *device = &a->values[OPT_DEVICE];
    if (!v->text)
        return EXIT_OK;
    const char *digits = v->text + (v->text[0] == '-');
    bool number = *digits && digits[strspn(digits, "0123456789")] == '\0';
    if (!number && strcmp(v->text, "all") != 0 && strcmp(v->text, "auto") != 0)
        return fail(EXIT_USAGE,
                    "%s: '%s' is not a number of layers: 0 is --device cpu, all is "
                    "--device auto",
                    v->origin, v->text);
    if (device->origin) /* said more plainly */
        return EXIT_OK;
    bool none = number && digits[strspn(digits, "0")] == '\0';
    *device = (value){.text = none ? "cpu" : "auto", .origin = v->origin};
    return EXIT_OK;
}

void tell_ignored(const args *a)
{
    const char *level = opt_text(a, OPT_LOG_LEVEL);
    if (opt_on(a, OPT_QUIET) || (level && strcmp(level, "error") == 0))
        return;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option *o = option_at(i);
        if (o->type == TYPE_IGNORED && a->values[o->key].origin && o->help[0])
            warn("%s is ignored: %s", a->values[o->key].origin, o->help);
    }
}
