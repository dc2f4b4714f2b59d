/* log.c - what the library reports, filtered by part and level, as text or JSON lines on standard
 * error. Never prompt text: the library does not report any. */
#include <strings.h>
#include <time.h>

#include "cli.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static bool level_named(const char *s, size_t n, bitnet_log_level *out)
{
    for (int i = BITNET_LOG_ERROR; i <= BITNET_LOG_DEBUG; i++)
        if (strlen(level_names[i]) == n && strncasecmp(level_names[i], s, n) == 0) {
            *out = (bitnet_log_level)i;
            return true;
        }
    return false;
}

/* The level of a module; that of the list's entry without a module (or warn) for all others. False:
 * the list is malformed. */
static bool look_up(const char *levels, const char *module, bitnet_log_level *out)
{
    bitnet_log_level general = BITNET_LOG_WARN, own = BITNET_LOG_WARN;
    bool named = false;
    for (const char *p = levels;; p++) {
        size_t n = strcspn(p, ","), k = strcspn(p, "=");
        bitnet_log_level level;
        bool pair = k < n;
        if (pair ? k == 0 || !level_named(p + k + 1, n - k - 1, &level)
                 : !level_named(p, n, &level))
            return false;
        if (!pair)
            general = level;
        else if (strlen(module) == k && strncasecmp(p, module, k) == 0)
            own = level, named = true;
        p += n;
        if (!*p)
            break;
    }
    *out = named ? own : general;
    return true;
}

bool log_levels_ok(const char *levels)
{
    bitnet_log_level unused;
    return look_up(levels, "", &unused);
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

static bool is_module(const char *s, size_t n)
{
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (strlen(modules[i]) == n && strncasecmp(modules[i], s, n) == 0)
            return true;
    return false;
}

const char *log_unknown_module(const char *levels, char *buf, size_t cap)
{
    char word[128];
    for (size_t i = 0; word_at(levels, ',', i, word, sizeof word); i++) {
        size_t n = strcspn(word, "=");
        if (word[n] && !is_module(word, n)) {
            snprintf(buf, cap, "%.*s", (int)n, word);
            return buf;
        }
    }
    return NULL;
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

void log_sink(void *user, bitnet_log_level level, const char *module, const char *message)
{
    const args *a = user;
    if ((unsigned)level > BITNET_LOG_DEBUG || !wanted(a, level, module))
        return;
    if (level == BITNET_LOG_WARN && said_before(module, message))
        return;
    progress_pause();
    if (opt_text(a, OPT_LOG_FORMAT)[0] == 'j')
        json_line(level, module, message, -1);
    else
        fprintf(stderr, "bitnet: %s: %s: %s\n",
                level == BITNET_LOG_WARN ? "warning" : level_names[level], module, message);
    progress_resume(false);
}
