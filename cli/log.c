/* log.c - what the library reports, filtered by part and level, as text or JSON lines on standard
 * error. Never prompt text: the library does not report any. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
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

static void json_line(bitnet_log_level level, const char *module, const char *message)
{
    char stamp[32] = "";
    time_t now = time(NULL);
    struct tm t;
    if (gmtime_r(&now, &t))
        strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &t);
    json_t *j = json_pack("{s:s, s:s, s:o, s:o}", "time", stamp, "level", level_names[level],
                          "module", j_str(module), "message", j_str(message));
    char *line = json_dumps(j, JSON_COMPACT);
    if (line)
        fprintf(stderr, "%s\n", line);
    free(line);
    json_decref(j);
}

void log_sink(void *user, bitnet_log_level level, const char *module, const char *message)
{
    const args *a = user;
    if ((unsigned)level > BITNET_LOG_DEBUG || !wanted(a, level, module))
        return;
    if (opt_text(a, OPT_LOG_FORMAT)[0] == 'j')
        json_line(level, module, message);
    else
        fprintf(stderr, "bitnet: %s: %s: %s\n",
                level == BITNET_LOG_WARN ? "warning" : level_names[level], module, message);
}
