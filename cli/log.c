/* log.c - what the library reports, filtered by part and level, as text or JSON lines on standard
 * error. Never prompt text: the library does not report any. */
#include <pthread.h>
#include <strings.h>
#include <time.h>

#include "cli.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* Where s[0..n) stands in a list of names, whatever its case; -1: nowhere. */
static int place_of(const char *const *names, size_t n_names, const char *s, size_t n)
{
    for (size_t i = 0; i < n_names; i++)
        if (strlen(names[i]) == n && strncasecmp(names[i], s, n) == 0)
            return (int)i;
    return -1;
}

/* The level of a module; that of the list's entry without a module (or warn) for all others. False:
 * the list is malformed. */
static bool look_up(const char *levels, const char *module, bitnet_log_level *out)
{
    int general = BITNET_LOG_WARN, own = -1;
    for (const char *p = levels;; p++) {
        size_t n = strcspn(p, ","), k = strcspn(p, "=");
        bool pair = k < n;
        size_t skip = pair ? k + 1 : 0;
        int level = place_of(level_names, BITNET_LOG_DEBUG + 1, p + skip, n - skip);
        if (level < 0 || (pair && k == 0))
            return false;
        if (!pair)
            general = level;
        else if (strlen(module) == k && strncasecmp(p, module, k) == 0)
            own = level;
        p += n;
        if (!*p)
            break;
    }
    *out = (bitnet_log_level)(own >= 0 ? own : general);
    return true;
}

static bool wanted(const args *a, bitnet_log_level level, const char *module)
{
    bitnet_log_level limit = BITNET_LOG_ERROR;
    bool quiet = opt_on(a, OPT_QUIET) && !opt_given(a, OPT_LOG_LEVEL);
    if (!quiet && !look_up(opt_text(a, OPT_LOG_LEVEL), module, &limit))
        return false;
    return level <= limit;
}

/* ---- what modules there are ---- */

/* What BITNET_LOG=module=level can name. A test compares it with the reports in the sources. */
static const char *const modules[] = {
    "cache",   "convert", "cpu",  "cuda",   "device", "engine",  "gguf",     "gpu",       "load",
    "mempool", "model",   "null", "policy", "run",    "session", "template", "tokenizer", "tuning",
};

int log_levels_check(const char *origin, const char *levels)
{
    char word[128];
    bitnet_log_level unused;
    if (!look_up(levels, "", &unused))
        return fail(EXIT_USAGE,
                    "%s: '%s' is neither error, warn, info or debug nor a list like "
                    "device=debug,gguf=info",
                    origin, levels);
    for (size_t i = 0; word_at(levels, ',', i, word, sizeof word); i++) {
        size_t n = strcspn(word, "=");
        if (!word[n] || place_of(modules, sizeof modules / sizeof *modules, word, n) >= 0)
            continue;
        warn("%s: no part of the program is called '%.*s'", origin, (int)n, word);
        break;
    }
    return EXIT_OK;
}

/* ---- lines ---- */

static bool lines_are_json;

void log_as_json(bool on)
{
    lines_are_json = on;
}

/* code < 0: none. False: no memory. */
static bool json_line(bitnet_log_level level, const char *module, const char *message, int code)
{
    char stamp[32] = "";
    time_t now = time(NULL);
    struct tm t;
    if (gmtime_r(&now, &t))
        strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &t);
    json_t *j = json_pack("{s:s, s:s, s:o, s:o}", "time", stamp, "level", level_names[level],
                          "module", j_str(module), "message", j_str(message));
    if (j && code >= 0)
        json_object_set_new(j, "exit", json_integer(code));
    if (j && (code == EXIT_NOT_COMPILED || code == EXIT_NOT_AVAILABLE))
        json_object_set_new(
            j, "error",
            json_string(code == EXIT_NOT_COMPILED ? "NotCompiled" : "NotAvailableRuntime"));
    char *line = json_dumps(j, JSON_COMPACT);
    if (line)
        fprintf(stderr, "%s\n", line);
    free(line);
    json_decref(j);
    return line != NULL;
}

/* Without the brackets and the newline that people see around a notice. */
bool log_own_line(bitnet_log_level level, int code, const char *fmt, va_list ap)
{
    char *text = NULL;
    va_list again;
    if (!lines_are_json)
        return false;
    va_copy(again, ap);
    int n = vasprintf(&text, fmt, again);
    va_end(again);
    if (n < 0)
        return false;
    size_t end = (size_t)n, begin = text[0] == '[';
    while (end > begin && (text[end - 1] == '\n' || text[end - 1] == ' '))
        end--;
    if (begin && end > begin && text[end - 1] == ']')
        end--;
    text[end] = '\0';
    bool ok = json_line(level, "bitnet", text + begin, code);
    free(text);
    return ok;
}

/* A warning that was said before is not said again: two parts may find the same. */
static bool said_before(const char *module, const char *message)
{
    enum { REMEMBERED = 64 };
    static uint64_t said[REMEMBERED];
    static size_t n_said;
    uint64_t hash = 14695981039346656037u;
    for (const char *s = module; *s; s++)
        hash = (hash ^ (unsigned char)*s) * 1099511628211u;
    for (const char *s = message; *s; s++)
        hash = (hash ^ (unsigned char)*s) * 1099511628211u;
    for (size_t i = 0; i < n_said; i++)
        if (said[i] == hash)
            return true;
    if (n_said < REMEMBERED)
        said[n_said++] = hash;
    return false;
}

static void say(const args *a, bitnet_log_level level, const char *module, const char *message)
{
    if (level == BITNET_LOG_WARN && said_before(module, message))
        return;
    progress_pause();
    if (opt_text(a, OPT_LOG_FORMAT)[0] == 'j')
        json_line(level, module, message, -1);
    else {
        char *shown = visible(message);
        fprintf(stderr, "bitnet: %s: %s: %s\n",
                level == BITNET_LOG_WARN ? "warning" : level_names[level], module, shown);
        free(shown);
    }
    progress_resume(false);
}

void log_sink(void *user, bitnet_log_level level, const char *module, const char *message)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if ((unsigned)level > BITNET_LOG_DEBUG || !wanted(user, level, module))
        return;
    char text[2048];
    pthread_mutex_lock(&lock);
    bool names_fields = strcmp(module, "session") == 0 || strcmp(module, "engine") == 0;
    say(user, level, module, names_fields ? in_flags(message, text, sizeof text) : message);
    pthread_mutex_unlock(&lock);
}
